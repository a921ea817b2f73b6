//! Upgrades of the built program under load: a new process takes the sockets of the running one.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;
#[path = "support/tls.rs"]
mod tls;

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, SECOND};

use rustix::process::Signal;
use support::{PATIENCE, Server, command, config, free_port, stdout, value};

/// Time until the upstream responds: queries wait in the old process while the new one starts.
const SLOW_NS: u64 = 3 * SECOND / 10;

/// Clients over UDP: each socket of each process has some of them.
const CLIENTS: u16 = 24;

/// Length of the queries below.
const QUERY_LEN: usize = 26;

/// The answer in the responses: an A record of the queried name.
const ANSWER: [u8; 16] = *b"\xc0\x0c\0\x01\0\x01\0\0\x0e\x10\0\x04\xc0\0\x02\x01";

/// Length of the responses.
const RESPONSE_LEN: usize = QUERY_LEN + ANSWER.len();

/// A query for a name that only this client and number have.
fn query(client: u16, number: u16) -> [u8; QUERY_LEN] {
    let mut query = *b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x0800000000\0\0\x01\0\x01";
    query[..2].copy_from_slice(&number.to_be_bytes());
    query[13..21].copy_from_slice(format!("{client:04x}{number:04x}").as_bytes());
    query
}

/// An upstream that responds late, with an address, until the tests end.
fn slow_upstream() -> SocketAddr {
    let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap();
    upstream
        .set_read_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    thread::spawn(move || {
        let mut waiting = VecDeque::new();
        loop {
            let mut message = [0; 512];
            if let Ok((_, from)) = upstream.recv_from(&mut message) {
                message[2] |= 0x80;
                message[6..12].copy_from_slice(b"\0\x01\0\0\0\0");
                message[QUERY_LEN..RESPONSE_LEN].copy_from_slice(&ANSWER);
                waiting.push_back((MonotonicClock.now() + SLOW_NS, from, message));
            }
            while let Some((due, from, message)) = waiting.front()
                && *due <= MonotonicClock.now()
            {
                // The port may have been closed.
                let _ = upstream.send_to(&message[..RESPONSE_LEN], from);
                waiting.pop_front();
            }
        }
    });
    address
}

/// A configuration with this upstream.
fn settings(workers: usize, upstream: SocketAddr) -> String {
    format!("workers = {workers}\n[upstream]\nservers = [\"{upstream}\"]\n")
}

/// A client that sends the next query when it has the response to the last, until `ended`. Returns their number. A lost
/// response ends it with an error, and so does a second response to a query.
fn client(client: u16, server: SocketAddr, ended: Arc<AtomicBool>) -> JoinHandle<u16> {
    thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut number = 0;
        while !ended.load(Ordering::Relaxed) {
            number += 1;
            let query = query(client, number);
            socket.send_to(&query, server).unwrap();
            let mut response = [0; 512];
            let len = socket.recv(&mut response).unwrap();
            assert!(len >= QUERY_LEN && response[2] & 0x80 != 0);
            assert_eq!(
                (&response[..2], &response[12..26]),
                (&query[..2], &query[12..])
            );
        }
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 512]).is_err(), "a second response");
        number
    })
}

/// Sends a query over a new connection.
fn ask_over_tcp(server: SocketAddr, number: u16) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    send(&mut stream, number);
    stream
}

fn send(stream: &mut impl Write, number: u16) {
    stream.write_all(&[0, 26]).unwrap();
    stream.write_all(&query(CLIENTS, number)).unwrap();
}

/// Reads the response to the query of this number.
fn assert_answered(stream: &mut impl Read, number: u16) {
    let mut response = [0; 2 + RESPONSE_LEN];
    stream.read_exact(&mut response).unwrap();
    assert_eq!(response[2..4], number.to_be_bytes());
    assert!(response.ends_with(&ANSWER[12..]));
}

/// Replaces the server by a new process, whose configuration is that in the file.
fn upgrade(server: &mut Server) {
    let new = command(&server.dir).arg("--take-over").spawn().unwrap();
    assert!(server.notice().starts_with("READY=1"));
    let mut old = std::mem::replace(&mut server.child, new);
    assert!(server.notice().contains("STOPPING=1"));
    assert_eq!(old.wait().unwrap().code(), Some(0));
    let status = stdout(&server.ctl(&["status"]));
    assert_eq!(value(&status, "pid"), server.child.id().to_string());
}

/// The output of a process that does not get to serve.
fn fails(server: &Server) -> (Option<i32>, String) {
    let mut command = command(&server.dir);
    let Output { status, stderr, .. } = command.arg("--take-over").output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn five_upgrades_answer_every_query_once() {
    let upstream = slow_upstream();
    let mut server = Server::start(&settings(2, upstream), Stdio::inherit);
    let ended = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| client(number, server.dns, Arc::clone(&ended)))
        .collect();
    // With fewer workers one reads several sockets, in which queries wait; with more there are more.
    for (number, workers) in (0..).zip([2, 1, 3, 2, 2]) {
        config(&server.dir, server.dns, &settings(workers, upstream));
        let mut pending = ask_over_tcp(server.dns, number);
        // It has the one of the last turn, too.
        let asked = if number == 0 { "1" } else { "2" };
        while value(&stdout(&server.ctl(&["stats"])), "queries.tcp") != asked {}
        upgrade(&mut server);
        assert_answered(&mut pending, number);
        assert_eq!(pending.read(&mut [0]).unwrap(), 0, "it stays open");
        let mut next = ask_over_tcp(server.dns, number);
        assert_answered(&mut next, number);
    }
    ended.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().unwrap() > 0);
    }
    server.ends();
}

#[test]
fn new_server_answers_from_the_cache_of_the_old_one() {
    let mut server = Server::start(&settings(1, slow_upstream()), Stdio::inherit);
    let mut stream = ask_over_tcp(server.dns, 1);
    assert_answered(&mut stream, 1);
    upgrade(&mut server);
    let mut stream = ask_over_tcp(server.dns, 1);
    assert_answered(&mut stream, 1);
    let stats = stdout(&server.ctl(&["stats"]));
    assert_eq!(value(&stats, "upstream_queries.udp"), "0");
    server.ends();
}

#[test]
fn new_server_listens_with_tls_where_the_old_one_did() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), slow_upstream());
    let client = tls::issue(folder.path());
    let with_tls = || {
        let listen = free_port();
        (
            settings(1, upstream) + &tls::table(folder.path(), listen),
            listen,
        )
    };
    let (mut server, listen) = Server::start_with(with_tls, &[], Stdio::inherit);
    upgrade(&mut server);
    let mut stream = tls::connect(&client, listen);
    send(&mut stream, 1);
    assert_answered(&mut stream, 1);
    server.ends();
}

#[test]
fn server_continues_if_a_new_one_does_not_start() {
    let upstream = slow_upstream();
    let good = settings(2, upstream);
    let mut server = Server::start(&good, Stdio::inherit);
    let unusable = "[metrics]\nlisten = \"192.0.2.1:9\"\n";
    for (faulty, code) in [
        ("no-such-key = 1\n".to_owned() + &good, 1),
        (good.clone() + unusable, 4),
    ] {
        config(&server.dir, server.dns, &faulty);
        let (found, error) = fails(&server);
        assert_eq!(found, Some(code), "{error}");
        let mut stream = ask_over_tcp(server.dns, 1);
        assert_answered(&mut stream, 1);
    }
    config(&server.dir, server.dns, &good);
    upgrade(&mut server);
    server.ends();
}

/// Asks for the sockets of the server, as a new process does; closing the stream ends the take-over.
fn begin(server: &Server) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    stream.write_all(b"{\"command\":\"take-over\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    (stream, line)
}

#[test]
fn old_server_that_ends_during_a_take_over_leaves_the_control_socket_to_the_new_one() {
    let mut server = Server::start(&settings(1, slow_upstream()), Stdio::inherit);
    let begun = begin(&server);
    server.signal(Signal::TERM);
    assert!(server.notice().contains("STOPPING=1"));
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(server.socket().exists());
    drop(begun);
    // Nobody took the socket, so the next start replaces it.
    server.child = command(&server.dir).arg("--take-over").spawn().unwrap();
    assert!(server.notice().starts_with("READY=1"));
    server.ends();
}

#[test]
fn second_take_over_at_the_same_time_is_refused() {
    let mut server = Server::start(&settings(1, slow_upstream()), Stdio::inherit);
    let (first, line) = begin(&server);
    // UDP, TCP and the control socket.
    assert!(line.contains("\"sockets\":3"), "{line}");
    let (code, error) = fails(&server);
    assert_eq!(code, Some(4));
    assert!(
        error.contains("refused: another process is taking over"),
        "{error}"
    );
    drop(first);
    upgrade(&mut server);
    server.ends();
}

#[test]
fn address_that_the_new_server_lacks_is_reported_and_a_new_one_is_opened() {
    let upstream = slow_upstream();
    let mut server = Server::start(&settings(1, upstream), Stdio::inherit);
    let (old, new) = (server.dns, free_port());
    config(&server.dir, new, &settings(1, upstream));
    server.dns = new;
    let mut command = command(&server.dir);
    let mut successor = command
        .arg("--take-over")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(successor.stderr.take().unwrap());
    for transport in ["TCP", "UDP"] {
        let expected = format!("{old} over {transport} is not taken over");
        let mut line = String::new();
        while !line.contains(&expected) {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "no line: {expected}");
        }
    }
    assert!(server.notice().starts_with("READY=1"));
    assert!(server.notice().contains("STOPPING=1"));
    let mut predecessor = std::mem::replace(&mut server.child, successor);
    assert_eq!(predecessor.wait().unwrap().code(), Some(0));
    let mut stream = ask_over_tcp(new, 1);
    assert_answered(&mut stream, 1);
    assert!(TcpStream::connect(old).is_err());
    server.ends();
}

#[test]
fn server_starts_without_a_predecessor_and_refuses_what_it_cannot_take() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |settings: &str| {
        std::fs::write(dir.path().join("dns64d.toml"), settings).unwrap();
        let output = command(&dir).arg("--take-over").output().unwrap();
        assert_eq!(output.status.code(), Some(4));
        String::from_utf8(output.stderr).unwrap()
    };
    let upstream = "[upstream]\nservers = [\"192.0.2.1\"]\n";
    let error = fails(&format!("driver-cache = [\"lo\"]\n{upstream}"));
    assert!(
        error.contains("cannot take over with af-xdp or driver-cache: stop"),
        "{error}"
    );
    // It starts as usual, so it needs the address.
    let (_udp, tcp) = support::bind();
    let listen = tcp.local_addr().unwrap();
    let socket = dir.path().join("control.sock");
    let error = fails(&format!(
        "listen = [\"{listen}\"]\n{upstream}[control]\nsocket = {socket:?}\n"
    ));
    assert!(error.contains("no server to take over from at"), "{error}");
    assert!(
        error.contains(&format!("cannot listen at {listen}")),
        "{error}"
    );
}
