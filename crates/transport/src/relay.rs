//! Both sides of a forwarder: the contract. [`udp`] keeps it with kernel sockets,
//! [`crate::memory`] on the simulated network.

mod pool;
pub mod udp;

use std::fmt;
use std::net::SocketAddr;

use crate::clock::Nanos;
use crate::sys::LocalAddr;
use crate::{Counters, LinkError};

/// Where a query came from and by which way its answer goes back, however much later.
///
/// Made by a [`Relay`], or by [`Origin::new`] for simulations. Small (56 bytes): one is kept for
/// each query that waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    pub(crate) peer: SocketAddr,
    /// The address that was asked, where the socket listens at more than one.
    pub(crate) local: Option<LocalAddr>,
    /// Index of the listening socket.
    pub(crate) socket: u16,
}

impl Origin {
    /// A client that asked at the relay's first listening socket.
    pub fn new(peer: SocketAddr) -> Self {
        Self {
            peer,
            local: None,
            socket: 0,
        }
    }

    /// Who asked.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at socket {}", self.peer, self.socket)
    }
}

/// What a [`Relay`] hands over.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// A datagram of a client.
    Query {
        /// Where it came from.
        origin: &'a Origin,
        /// UDP payload.
        payload: &'a [u8],
    },
    /// A datagram of an upstream server, from the address that was asked.
    Reply {
        /// Number of the server, as in [`Relay::set_servers`].
        server: usize,
        /// Number of the local port that it came to, below [`PORTS_PER_SERVER`].
        port: usize,
        /// UDP payload.
        payload: &'a [u8],
    },
}

/// Both sides of a forwarder for one worker: sockets at which clients ask, and for each upstream
/// server a pool of connected sockets at random ports. Never blocks, but for [`Relay::wait`].
pub trait Relay {
    /// Asks these servers from now on. Pools of servers that stay, stay; their numbers are those
    /// of the new list.
    fn set_servers(&mut self, servers: &[SocketAddr]) -> Result<(), LinkError>;

    /// Hands what waits to `each`, replies of upstreams first; about `max` queries at most.
    /// Returns how many datagrams it handed over.
    fn receive(&mut self, max: usize, each: impl FnMut(Arrival<'_>)) -> Result<usize, LinkError>;

    /// Takes a reply to a client; it leaves with the next [`Relay::flush`] or before.
    fn reply(&mut self, to: &Origin, payload: &[u8]) -> Result<(), LinkError>;

    /// Takes a question to a server; it leaves with the next [`Relay::flush`] or before. Questions to
    /// the same server and port that follow each other leave together.
    fn ask(&mut self, server: usize, port: usize, payload: &[u8]) -> Result<(), LinkError>;

    /// Sends everything that was taken.
    fn flush(&mut self) -> Result<(), LinkError>;

    /// Closes a port of a server's pool and opens another at a new random port in its place. What
    /// was on its way to the old one is lost.
    fn renew(&mut self, server: usize, port: usize) -> Result<(), LinkError>;

    /// Stops or starts to hand over queries; what comes meanwhile waits in the kernel.
    fn accept_queries(&mut self, yes: bool);

    /// Sleeps until something waits, the [`Relay`]'s waker is used or `timeout` has passed.
    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError>;

    /// What the relay has counted since it was opened.
    fn counters(&mut self) -> Result<Counters, LinkError>;
}

/// Local ports of the pool of one server. A blind attacker has to find one of them among the
/// 64,512 that are not reserved, and the ID (RFC 5452 section 9.2); the engine changes them one by one.
pub const PORTS_PER_SERVER: usize = 64;
