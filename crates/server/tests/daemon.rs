//! The built program on loopback: started, asked, reloaded and ended as an operator would.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use dns64_transport::clock::{Clock as _, MonotonicClock, SECOND};
use rustix::process::Signal;

use support::{PATIENCE, PROGRAM, Server, free_port, stdout, value};

/// A query for `. A`, with ID 0x1234.
const QUERY: [u8; 17] = *b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\0\0\x01\0\x01";

/// Starts a server with these lines added to its configuration.
fn start(more: &str, stderr: impl Fn() -> Stdio) -> Server {
    Server::start(&settings(more), stderr)
}

/// A configuration with an upstream that nobody is.
fn settings(more: &str) -> String {
    format!(
        "workers = 2\n{more}\n\
         [upstream]\nservers = [\"{}\"]\ntimeout = \"50ms\"\nattempts = 1\n",
        nobody()
    )
}

/// An address at which nobody listens, now or later: bound, but only to be talked to by itself.
fn nobody() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    socket.connect(address).unwrap();
    // For as long as the tests run.
    mem::forget(socket);
    address
}

fn config_of(server: &Server) -> PathBuf {
    server.dir.path().join("dns64d.toml")
}

/// Asks over TCP and says whether an answer came.
fn answers(server: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[0, 17]).unwrap();
    stream.write_all(&QUERY).unwrap();
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    head[2..4] == QUERY[..2] && head[4] & 0x80 != 0
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn what_the_sockets_lose_is_counted() {
    let server = start("", Stdio::inherit);
    assert!(answers(server.dns));
    // Nobody is the upstream: its kernel says so, and the sockets are asked once a second.
    let deadline = MonotonicClock.now() + 120 * SECOND;
    let unreachable = || {
        let stats = stdout(&server.ctl(&["stats"]));
        value(&stats, "datagrams_lost.unreachable") != "0"
    };
    while !unreachable() {
        assert!(MonotonicClock.now() < deadline, "an ICMP error went unseen");
        MonotonicClock.sleep(SECOND / 20);
    }
    server.ends();
}

#[test]
fn it_serves_says_how_it_is_and_ends() {
    let with_metrics = || {
        let metrics = free_port();
        let text = format!("{}[metrics]\nlisten = \"{metrics}\"\n", settings(""));
        (text, metrics)
    };
    let (server, metrics) = Server::start_with(with_metrics, Stdio::inherit);
    assert!(answers(server.dns));
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(PATIENCE)).unwrap();
    udp.send_to(&QUERY, server.dns).unwrap();
    let mut answer = [0; 512];
    let (_, from) = udp.recv_from(&mut answer).unwrap();
    assert_eq!((from, &answer[..2]), (server.dns, &QUERY[..2]));

    let status = server.ctl(&["status"]);
    assert_eq!(value(&stdout(&status), "workers"), "2");
    assert_eq!(
        value(&stdout(&status), "pid"),
        server.child.id().to_string()
    );
    assert_eq!(value(&stdout(&status), "listen"), server.dns.to_string());
    let stats = stdout(&server.ctl(&["stats"]));
    assert_eq!(value(&stats, "queries.udp"), "1");
    assert_eq!(value(&stats, "queries.tcp"), "1");
    assert_eq!(value(&stats, "tcp_accepted"), "1");
    let json = stdout(&server.ctl(&["stats", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["figures"]["queries.udp"], 1);
    let flush = server.ctl(&["flush"]);
    assert!(stdout(&flush).starts_with("flushed="), "{flush:?}");
    let flush = server.ctl(&["flush", "a..b"]);
    assert_eq!(flush.status.code(), Some(1), "{flush:?}");
    assert!(stderr(&flush).starts_with("dns64d: \"a..b\" is no name: "));

    let mut page = String::new();
    let mut scraper = TcpStream::connect(metrics).unwrap();
    scraper.set_read_timeout(Some(PATIENCE)).unwrap();
    scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    scraper.read_to_string(&mut page).unwrap();
    assert!(
        page.contains("dns64d_queries_total{transport=\"udp\"} 1\n"),
        "{page}"
    );
    server.ends();
}

#[test]
fn a_bad_configuration_leaves_the_old_one_in_force() {
    let server = start("", Stdio::null);
    let good = fs::read_to_string(config_of(&server)).unwrap();
    fs::write(
        config_of(&server),
        good.replace("workers = 2", "workers = no"),
    )
    .unwrap();
    let reload = server.ctl(&["reload"]);
    assert_eq!(reload.status.code(), Some(1), "{reload:?}");
    let place = format!("{}:2:11: ", config_of(&server).display());
    assert!(stderr(&reload).contains(&place), "{reload:?}");
    assert!(server.notice().contains("RELOADING=1\nMONOTONIC_USEC="));
    assert!(server.notice().contains("READY=1"));
    assert!(answers(server.dns));

    let new = good.replace("workers = 2", "workers = 1");
    fs::write(
        config_of(&server),
        new.replace("timeout = \"50ms\"", "timeout = \"60ms\""),
    )
    .unwrap();
    let reload = server.ctl(&["reload"]);
    assert_eq!(reload.status.code(), Some(0), "{reload:?}");
    assert!(stdout(&reload).contains("note: workers counts after a restart\n"));
    assert!(server.notice().contains("RELOADING=1"));
    assert!(server.notice().contains("READY=1"));
    server.signal(Signal::HUP);
    assert!(server.notice().contains("RELOADING=1"));
    assert!(server.notice().contains("READY=1"));
    assert!(answers(server.dns));
    assert_eq!(value(&stdout(&server.ctl(&["status"])), "workers"), "2");
    server.ends();
}

#[test]
fn an_address_is_not_shared_with_another_server() {
    let server = start("", Stdio::null);
    let dir = tempfile::tempdir().unwrap();
    let config = support::config(&dir, server.dns, &settings(""));
    let second = Command::new(PROGRAM).arg("--config").arg(config).output();
    let second = second.unwrap();
    assert_eq!(second.status.code(), Some(4), "{second:?}");
    let text = stderr(&second);
    assert!(
        text.contains(&format!("cannot listen at {}", server.dns)),
        "{text}"
    );
    assert!(text.contains("stop the server that has it"), "{text}");
    assert!(answers(server.dns));
}

#[test]
fn a_log_that_cannot_be_written_hurts_nobody() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full");
    let server = start("", || full().unwrap().into());
    server.signal(Signal::HUP);
    assert!(server.notice().contains("RELOADING=1"));
    assert!(server.notice().contains("READY=1"));
    assert!(answers(server.dns));
    server.ends();
}

#[test]
fn root_becomes_the_user_of_the_configuration() {
    if !rustix::process::geteuid().is_root() {
        // There is nothing to give up then.
        return;
    }
    let server = start("user = \"nobody\"", Stdio::null);
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for name in ["Uid:", "Gid:"] {
        assert!(line(name).iter().all(|id| id != "0"), "{status}");
    }
    assert_eq!(line("CapEff:"), ["0000000000000000"]);
    assert!(answers(server.dns));
    assert_eq!(server.ctl(&["status"]).status.code(), Some(0));
}

#[test]
fn a_user_that_does_not_exist_is_named_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let config = support::config(&dir, free_port(), &settings("user = \"no-such-user\""));
    let output = Command::new(PROGRAM).arg("--config").arg(config).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(stderr(&output).contains("useradd --system"), "{output:?}");
}
