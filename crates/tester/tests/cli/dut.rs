//! A scripted DNS64 server on a socket of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock};
use dns64_wire::pref64::Pref64;

use super::script::{Conduct, Script, is_of_trial};

/// Listening address of DUTs in tests that are not about IPv6.
pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A running server; dropping it ends its thread.
pub(crate) struct Dut {
    pub(crate) address: SocketAddr,
    seen: Arc<AtomicU64>,
    seen_in_trials: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Dut {
    /// Starts a server with the well-known prefix at a port that the kernel chooses.
    pub(crate) fn start(at: IpAddr, conduct: Conduct) -> Self {
        Self::with_pref64(at, conduct, Pref64::WELL_KNOWN)
    }

    pub(crate) fn with_pref64(at: IpAddr, conduct: Conduct, pref64: Pref64) -> Self {
        let socket = UdpSocket::bind((at, 0)).unwrap();
        socket.set_read_timeout(Some(POLL)).unwrap();
        let elsewhere = match conduct {
            Conduct::From(other) | Conduct::TrialsFrom(other) => {
                Some(UdpSocket::bind((other, 0)).unwrap())
            }
            _ => None,
        };
        let address = socket.local_addr().unwrap();
        let (seen, stop) = (Arc::default(), Arc::default());
        let seen_in_trials = Arc::default();
        let mut server = Server {
            reply_from: elsewhere.unwrap_or_else(|| socket.try_clone().unwrap()),
            in_trials_only: matches!(conduct, Conduct::TrialsFrom(_)),
            socket,
            script: Script::new(conduct, pref64),
            seen: Arc::clone(&seen),
            seen_in_trials: Arc::clone(&seen_in_trials),
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
            seen_in_trials,
            stop,
            thread: Some(thread),
        }
    }

    /// Number of queries received so far.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Number of those for names of trials.
    pub(crate) fn seen_in_trials(&self) -> u64 {
        self.seen_in_trials.load(Ordering::Relaxed)
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

/// A port without a listener, which no other process can take.
pub(crate) struct ClosedPort {
    pub(crate) address: SocketAddr,
    /// Bound, and connected to its own address.
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

/// Interval at which the server checks for due delayed answers.
const POLL: Duration = Duration::from_millis(1);

/// State of the server's thread.
struct Server {
    socket: UdpSocket,
    reply_from: UdpSocket,
    /// Answers to queries before trials leave from the queried address.
    in_trials_only: bool,
    script: Script,
    seen: Arc<AtomicU64>,
    seen_in_trials: Arc<AtomicU64>,
}

impl Server {
    fn turn(&mut self) {
        let mut query = [0; 512];
        // An error is a timeout, or an ICMP error because a client has ended.
        if let Ok((len, peer)) = self.socket.recv_from(&mut query) {
            self.seen.fetch_add(1, Ordering::Relaxed);
            let in_trial = u64::from(is_of_trial(&query[..len]));
            self.seen_in_trials.fetch_add(in_trial, Ordering::Relaxed);
            let now = MonotonicClock.now();
            self.script.take(peer, &query[..len], now);
        }
        while let Some((peer, reply)) = self.script.due(MonotonicClock.now()) {
            let from = match self.in_trials_only && !is_of_trial(&reply) {
                true => &self.socket,
                false => &self.reply_from,
            };
            let _ = from.send_to(&reply, peer);
        }
    }
}
