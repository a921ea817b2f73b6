//! The attacked server, from the view of an honest client and of its operator.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
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

/// Interval of the retries of a client (5 s in resolv.conf(5)).
const ASK_AGAIN: Duration = Duration::from_secs(4);

/// Starts a server with a small cache, so that it becomes full; otherwise like [`serve`].
pub(crate) fn start(upstream: &Upstream, more: &str, in_upstream: &str) -> Server {
    let more = format!("{more}\n[cache]\nsize = \"2MiB\"");
    serve(&[upstream], &more, in_upstream)
}

/// Starts a server with one worker, so that equal queries share one upstream query. `more` is the
/// configuration before `[upstream]`, and `in_upstream` the one in it.
pub(crate) fn serve(upstreams: &[&Upstream], more: &str, in_upstream: &str) -> Server {
    let servers: Vec<_> = upstreams.iter().map(|u| u.address.to_string()).collect();
    let settings =
        format!("workers = 1\n{more}\n[upstream]\nservers = {servers:?}\n{in_upstream}\n");
    Server::start(&settings, Stdio::null)
}

/// A socket for queries to the server, with this timeout. It does not receive datagrams from
/// others, such as an upstream whose query had the same port before.
pub(crate) fn socket(server: SocketAddr, patience: Duration) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server).unwrap();
    // Datagrams that arrived before the socket was connected.
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket
}

/// Returns the response to a query over UDP; retries like a client.
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
    panic!("no response to a valid query");
}

/// Checks that the name with this number has its address and no other.
pub(crate) fn assert_resolves(server: SocketAddr, number: u32) {
    let answer = ask(server, &query(0x4242, &name(number), Rtype::AAAA));
    let found = (rcode(&answer), addresses(&answer));
    assert_eq!(found, (Rcode::NOERROR, vec![synthesised(number)]));
}

/// Like [`assert_resolves`], for an upstream that may be too slow on a busy machine.
pub(crate) fn assert_resolves_in_the_end(server: SocketAddr, number: u32) {
    let found = resolved_in_the_end(server, &name(number));
    assert_eq!(found, vec![synthesised(number)]);
}

/// Asks until there is an answer, and returns its addresses. Until then the server must respond with SERVFAIL, whose TTL is
/// short.
pub(crate) fn resolved_in_the_end(server: SocketAddr, name: &NameBuf) -> Vec<Ipv6Addr> {
    let mut found = Vec::new();
    wait_until("the name resolves", || {
        let answer = ask(server, &query(0x4242, name, Rtype::AAAA));
        found = addresses(&answer);
        assert!(
            rcode(&answer) != Rcode::NOERROR || !found.is_empty(),
            "{answer:02x?}"
        );
        rcode(&answer) == Rcode::NOERROR || {
            assert_eq!((rcode(&answer), found.len()), (Rcode::SERVFAIL, 0));
            false
        }
    });
    found
}

/// Returns the response to a query for a name and a type.
pub(crate) fn ask_name(server: SocketAddr, name: &NameBuf, rtype: Rtype) -> Vec<u8> {
    ask(server, &query(0x1717, name, rtype))
}

/// Opens a connection with a long timeout.
pub(crate) fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A message after its length.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    [&length, message].concat()
}

/// Reads the next message of a connection.
pub(crate) fn read_message(stream: &mut impl io::Read) -> Vec<u8> {
    try_read_message(stream).unwrap()
}

/// Reads the next message of a connection that may be closed.
pub(crate) fn try_read_message(stream: &mut impl io::Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// Returns the response to a query over a new connection. The server rejects connections above its
/// limit; the client retries until the server has closed others.
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
            Err(error) => panic!("no response over TCP: {error}"),
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

/// Largest resident memory of a process, in octets, while clients send this again and again and read nothing.
pub(crate) fn largest_while_unread(pid: u32, clients: &mut [impl io::Write], octets: &[u8]) -> u64 {
    let mut largest = resident(pid);
    for _ in 0..5 {
        for client in &mut *clients {
            // The server closes connections of clients that do not read.
            let _ = client.write_all(octets);
        }
        for _ in 0..20 {
            MonotonicClock.sleep(SECOND / 100);
            largest = largest.max(resident(pid));
        }
    }
    largest
}

/// Number of open descriptors of a process without UDP sockets: it opens one for each query to an
/// upstream, up to a limit that tests do not reach.
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

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = MonotonicClock.now() + nanos(PATIENCE);
    while !is_so() {
        assert!(MonotonicClock.now() < give_up, "timeout: {what}");
        MonotonicClock.sleep(SECOND / 20);
    }
}

/// A machine that stalls for this long makes queries time out whose responses have arrived.
const PAUSE_NS: Nanos = SECOND / 2;

/// Time for which a test is repeated on a machine that is too busy for it.
const BUSY_MAX_NS: Nanos = 300 * SECOND;

/// Runs a test that requires a running machine. If it fails and the machine stalled meanwhile, as a virtual one does while
/// its host copies it, or ran hardly anything but other processes, the test is repeated.
pub(crate) fn unless_busy(test: impl Fn()) {
    let give_up = MonotonicClock.now() + BUSY_MAX_NS;
    loop {
        let before = ProcessorTime::now();
        let (result, longest_ns) = watched(&test);
        let Err(panic) = result else { return };
        let was_busy = longest_ns >= PAUSE_NS || before.was_for_others();
        if !was_busy || MonotonicClock.now() > give_up {
            resume_unwind(panic);
        }
        // The panic has been printed.
    }
}

/// Time of all processors since their start, and the part of it that others did not use, in ticks.
struct ProcessorTime {
    all: u64,
    ours: u64,
}

impl ProcessorTime {
    fn now() -> Self {
        let [machine, process] =
            ["/proc/stat", "/proc/self/stat"].map(|it| fs::read_to_string(it).unwrap());
        // proc(5): "cpu", then user, nice, system, idle, iowait, irq, softirq and steal.
        let machine = numbers(&machine, 1, 8);
        // After the name, which can contain spaces: utime, stime, cutime and cstime are fields 14 to 17.
        let process = numbers(process.rsplit_once(") ").unwrap().1, 11, 4);
        Self {
            all: machine.iter().sum(),
            ours: machine[3] + machine[4] + process.iter().sum::<u64>(),
        }
    }

    /// Whether other processes, or the host, used three quarters of the processors since then: the attacks pass with a
    /// tenth of two processors, and not with 3 %.
    fn was_for_others(&self) -> bool {
        let now = Self::now();
        // Counters of idle processors can decrease.
        now.all.saturating_sub(self.all) > 4 * now.ours.saturating_sub(self.ours)
    }
}

/// The numbers after the first words of a text.
fn numbers(text: &str, skipped: usize, count: usize) -> Vec<u64> {
    let words = text.split_ascii_whitespace().skip(skipped).take(count);
    words.map(|word| word.parse().unwrap()).collect()
}

/// The result of a test, and the longest stall of the machine meanwhile.
fn watched(test: &impl Fn()) -> (thread::Result<()>, Nanos) {
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
        let result = catch_unwind(AssertUnwindSafe(test));
        is_over.store(true, Ordering::Relaxed);
        (result, watch.join().unwrap())
    })
}

pub(crate) fn nanos(span: Duration) -> Nanos {
    u64::try_from(span.as_nanos()).unwrap()
}
