//! The server that is attacked, seen by an honest client and by its operator.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::panic::{catch_unwind, resume_unwind};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::name::NameBuf;

use super::packets::{addresses, name, query, rcode, synthesised};
use super::support::{PATIENCE, Server, stdout, value};
use super::upstream::Upstream;

/// After this long a client asks again (resolv.conf(5) has 5 s).
const ASK_AGAIN: Duration = Duration::from_secs(4);

/// A server with a small cache, so that it gets full; otherwise as [`serve`].
pub(crate) fn start(upstream: &Upstream, more: &str, in_upstream: &str) -> Server {
    let more = format!("{more}\n[cache]\nsize = \"2MiB\"");
    serve(&[upstream], &more, in_upstream)
}

/// A server of one worker, so that what is asked once is asked once. `more` is what comes before `[upstream]`
/// and `in_upstream` what stands in it.
pub(crate) fn serve(upstreams: &[&Upstream], more: &str, in_upstream: &str) -> Server {
    let servers: Vec<_> = upstreams.iter().map(|u| u.address.to_string()).collect();
    let settings =
        format!("workers = 1\n{more}\n[upstream]\nservers = {servers:?}\n{in_upstream}\n");
    Server::start(&settings, Stdio::null)
}

/// A socket for queries to the server, at which answers are waited for up to this long. What others
/// send to its port, as an upstream does to whose question the port belonged before, does not arrive.
pub(crate) fn socket(server: SocketAddr, patience: Duration) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server).unwrap();
    // It may have come before the port had a peer.
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket
}

/// The answer to a query in a datagram; asks again as a client would.
pub(crate) fn ask(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let socket = socket(server, ASK_AGAIN);
    let mut answer = vec![0; 65_535];
    let give_up = MonotonicClock.now() + nanos(PATIENCE);
    while MonotonicClock.now() < give_up {
        socket.send(query).unwrap();
        if let Ok(len) = socket.recv(&mut answer) {
            assert_eq!(answer[..2], query[..2]);
            answer.truncate(len);
            return answer;
        }
    }
    panic!("no answer to a good query");
}

/// The name with this number has its address, and no other.
pub(crate) fn assert_resolves(server: SocketAddr, number: u32) {
    let answer = ask(server, &query(0x4242, &name(number), Rtype::AAAA));
    let found = (rcode(&answer), addresses(&answer));
    assert_eq!(found, (Rcode::NOERROR, vec![synthesised(number)]));
}

/// As [`assert_resolves`], where the upstream may be too slow on a busy machine: then the server says
/// that it failed, never anything else, and forgets it after a while.
pub(crate) fn assert_resolves_in_the_end(server: SocketAddr, number: u32) {
    wait_until("a good name is there", || {
        let answer = ask(server, &query(0x4242, &name(number), Rtype::AAAA));
        let found = (rcode(&answer), addresses(&answer));
        found == (Rcode::NOERROR, vec![synthesised(number)]) || {
            assert_eq!(found, (Rcode::SERVFAIL, vec![]));
            false
        }
    });
}

/// The address of another name for A.
pub(crate) fn ask_name(server: SocketAddr, name: &NameBuf, rtype: Rtype) -> Vec<u8> {
    ask(server, &query(0x1717, name, rtype))
}

/// A connection on which answers are waited for patiently.
pub(crate) fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A message with its length before it.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    [&length, message].concat()
}

/// The next message of a connection.
pub(crate) fn read_message(stream: &mut TcpStream) -> Vec<u8> {
    try_read_message(stream).unwrap()
}

/// The same where a connection may be closed.
pub(crate) fn try_read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// The answer to a query over a connection of its own. A server whose connections are all in use
/// refuses one; it is tried again until it has noticed that others are gone.
pub(crate) fn ask_connection(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let deadline = MonotonicClock.now() + nanos(PATIENCE);
    loop {
        let mut stream = connect(server);
        let answer = stream
            .write_all(&framed(query))
            .and_then(|()| try_read_message(&mut stream));
        match answer {
            Ok(answer) => {
                assert_eq!(answer[..2], query[..2]);
                return answer;
            }
            Err(_) if MonotonicClock.now() < deadline => MonotonicClock.sleep(SECOND / 50),
            Err(error) => panic!("no answer over a connection: {error}"),
        }
    }
}

/// Resident memory of a process in octets.
pub(crate) fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() * 1024
}

/// Open descriptors of a process but for UDP sockets: it opens one for each question to an upstream,
/// within a bound that tests do not reach.
pub(crate) fn descriptors(pid: u32) -> usize {
    let tables = ["udp", "udp6"].map(|name| {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{name}"));
        table.unwrap()
    });
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    // The column "inode" (proc_pid_net(5)).
    let udp: HashSet<String> = lines
        .filter_map(|line| line.split_whitespace().nth(9))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links
        .filter(|link| !udp.contains(&*link.to_string_lossy()))
        .count()
}

/// A figure of `dns64d ctl stats`.
pub(crate) fn figure(server: &Server, name: &str) -> u64 {
    let stats = stdout(&server.ctl(&["stats"]));
    value(&stats, name).parse().unwrap()
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = MonotonicClock.now() + nanos(PATIENCE);
    while !is_so() {
        assert!(MonotonicClock.now() < give_up, "never: {what}");
        MonotonicClock.sleep(SECOND / 20);
    }
}

/// A machine that stands still for this long makes questions time out to which the answers are there.
const PAUSE_NS: Nanos = SECOND / 2;

/// Runs a test of what is so on a machine that runs: where it fails and the machine has stood still
/// meanwhile, as a virtual one does while its host copies it, that is no failure and it begins again.
pub(crate) fn unless_paused(test: fn()) {
    for _ in 0..4 {
        let (result, longest_ns) = watched(test);
        match result {
            Ok(()) => return,
            Err(panic) if longest_ns < PAUSE_NS => resume_unwind(panic),
            // It has been printed.
            Err(_) => {}
        }
    }
    test();
}

/// What came of a test, and for how long at most the machine stood still meanwhile.
fn watched(test: fn()) -> (thread::Result<()>, Nanos) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut last, mut longest_ns) = (MonotonicClock.now(), 0);
            while !is_over.load(Ordering::Relaxed) {
                MonotonicClock.sleep(SECOND / 50);
                let now = MonotonicClock.now();
                longest_ns = longest_ns.max(now - last);
                last = now;
            }
            longest_ns
        });
        let result = catch_unwind(test);
        is_over.store(true, Ordering::Relaxed);
        (result, watch.join().unwrap())
    })
}

pub(crate) fn nanos(span: Duration) -> Nanos {
    u64::try_from(span.as_nanos()).unwrap()
}
