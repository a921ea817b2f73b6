//! A DNS64 server on a socket of its own, as good or as bad as a test wants it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use dns64_wire::pref64::Pref64;
use dns64bench::namespace::parse_label;

/// What the server does to its queries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Conduct {
    /// Answers each as it should.
    Good,
    /// Answers with an address of another prefix.
    WrongPrefix,
    /// Answers NOERROR without records.
    Empty,
    /// SERVFAIL.
    Fail,
    /// TC.
    Truncate,
    /// Three octets.
    Garbage,
    /// Answers after this time.
    Late(Nanos),
    /// Answers everything twice.
    Twice,
    /// Answers nothing.
    Silent,
    /// Answers this many, then no more.
    DieAfter(u64),
    /// Serves this many queries per second from an endless queue (paper 000, section 4.4).
    Queue(u64),
    /// Answers all but every n-th.
    LoseEvery(u64),
    /// Answers from another port of this address.
    From(IpAddr),
}

/// Where DUTs listen unless a test is about IPv6.
pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A running server; dropping it ends its thread.
pub(crate) struct Dut {
    pub(crate) address: SocketAddr,
    seen: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Dut {
    /// A server with the well-known prefix at a port that the kernel chooses.
    pub(crate) fn start(at: IpAddr, conduct: Conduct) -> Self {
        Self::with_pref64(at, conduct, Pref64::WELL_KNOWN)
    }

    pub(crate) fn with_pref64(at: IpAddr, conduct: Conduct, pref64: Pref64) -> Self {
        let socket = UdpSocket::bind((at, 0)).unwrap();
        socket.set_read_timeout(Some(POLL)).unwrap();
        let elsewhere = match conduct {
            Conduct::From(other) => Some(UdpSocket::bind((other, 0)).unwrap()),
            _ => None,
        };
        let address = socket.local_addr().unwrap();
        let (seen, stop) = (Arc::default(), Arc::default());
        let mut server = Server {
            reply_from: elsewhere.unwrap_or_else(|| socket.try_clone().unwrap()),
            socket,
            conduct,
            pref64,
            seen: Arc::clone(&seen),
            busy_until: 0,
            held: VecDeque::new(),
        };
        let stopped: Arc<AtomicBool> = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                server.turn();
            }
        });
        Self {
            address,
            seen,
            stop,
            thread: Some(thread),
        }
    }

    /// Queries that have arrived so far.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }
}

impl Drop for Dut {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A port at which nobody listens, and nobody else can begin to.
pub(crate) struct ClosedPort {
    pub(crate) address: SocketAddr,
    /// Bound, but only to be talked to by itself.
    _socket: UdpSocket,
}

impl ClosedPort {
    pub(crate) fn at(address: IpAddr) -> Self {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        socket.connect(address).unwrap();
        Self {
            address,
            _socket: socket,
        }
    }
}

/// How often the server looks for held answers whose time has come.
const POLL: Duration = Duration::from_millis(1);

/// The server's thread.
struct Server {
    socket: UdpSocket,
    reply_from: UdpSocket,
    conduct: Conduct,
    pref64: Pref64,
    seen: Arc<AtomicU64>,
    busy_until: Nanos,
    /// Answers that wait for their time.
    held: VecDeque<(Nanos, SocketAddr, Vec<u8>)>,
}

impl Server {
    fn turn(&mut self) {
        let mut query = [0; 512];
        // An error is the end of the wait, or an ICMP error of a client that has gone.
        if let Ok((len, peer)) = self.socket.recv_from(&mut query) {
            let nth = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
            self.take(peer, &query[..len], nth);
        }
        while let Some((at, peer, reply)) = self.held.pop_front() {
            if at > MonotonicClock.now() {
                self.held.push_front((at, peer, reply));
                break;
            }
            let _ = self.reply_from.send_to(&reply, peer);
        }
    }

    fn take(&mut self, peer: SocketAddr, query: &[u8], nth: u64) {
        let now = MonotonicClock.now();
        let good = answer(query, self.pref64);
        let (at, replies) = match self.conduct {
            Conduct::Good | Conduct::From(_) => (now, vec![good]),
            Conduct::WrongPrefix => {
                let other = "2001:db8:64::/96".parse().unwrap();
                (now, vec![answer(query, other)])
            }
            Conduct::Empty => (now, vec![flagged(query, [0x81, 0x80])]),
            Conduct::Fail => (now, vec![flagged(query, [0x81, 0x82])]),
            Conduct::Truncate => (now, vec![flagged(query, [0x83, 0x80])]),
            Conduct::Garbage => (now, vec![vec![1, 2, 3]]),
            Conduct::Late(by) => (now + by, vec![good]),
            Conduct::Twice => (now, vec![good.clone(), good]),
            Conduct::Silent => (now, vec![]),
            Conduct::DieAfter(n) if nth > n => (now, vec![]),
            Conduct::DieAfter(_) => (now, vec![good]),
            Conduct::Queue(rate_qps) => {
                self.busy_until = self.busy_until.max(now) + SECOND / rate_qps;
                (self.busy_until, vec![good])
            }
            Conduct::LoseEvery(n) if nth.is_multiple_of(n) => (now, vec![]),
            Conduct::LoseEvery(_) => (now, vec![good]),
        };
        let held = replies.into_iter().map(|reply| (at, peer, reply));
        self.held.extend(held);
    }
}

fn answer(query: &[u8], pref64: Pref64) -> Vec<u8> {
    let address = parse_label(query[13..28].try_into().unwrap()).unwrap();
    let mut reply = flagged(query, [0x81, 0x80]);
    reply[7] = 1;
    reply.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16]);
    reply.extend(pref64.embed(address).octets());
    reply
}

fn flagged(query: &[u8], flags: [u8; 2]) -> Vec<u8> {
    let mut reply = query.to_vec();
    reply[2..4].copy_from_slice(&flags);
    reply
}
