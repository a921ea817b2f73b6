//! Both sides of a forwarder: the contract. [`udp`] implements it over kernel sockets,
//! [`crate::memory`] on the simulated network.

mod clients;
pub(crate) mod pool;
pub mod udp;
mod upstreams;

use std::fmt;
use std::net::SocketAddr;

use crate::clock::Nanos;
use crate::{Counters, LinkError, LocalAddr};

pub use clients::UdpClients;
pub use upstreams::UdpUpstreams;

/// Where a query came from and how its response gets back, however much later. Plain data.
///
/// Made by a [`ClientSide`], or by [`Origin::new`] for simulations. At most 64 octets: one is kept
/// for each query that waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    pub(crate) peer: SocketAddr,
    /// The address that the query was sent to, where a socket listens at more than one.
    pub(crate) local: Option<LocalAddr>,
    /// Index of the listening socket.
    pub(crate) socket: u16,
}

impl Origin {
    /// A client of the first listening socket.
    pub fn new(peer: SocketAddr) -> Self {
        Self {
            peer,
            local: None,
            socket: 0,
        }
    }

    /// Address and port of the client.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at socket {}", self.peer, self.socket)
    }
}

/// What an [`UpstreamSide`] hands over.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// A datagram of an upstream server, from the address that was asked.
    Reply {
        /// Number of the server, as in [`UpstreamSide::set_servers`].
        server: usize,
        /// Number of the local port that it came to.
        port: usize,
        /// UDP payload.
        payload: &'a [u8],
    },
    /// An ICMP error came back for a question, or no route leads to the server.
    Unreachable {
        /// Number of the server.
        server: usize,
        /// Number of the local port that the question left from.
        port: usize,
    },
}

/// Both sides of a forwarder for one worker, and their common sleep.
pub trait Relay {
    /// The client side.
    type Clients: ClientSide;
    /// The upstream side.
    type Upstreams: UpstreamSide;

    /// The sockets at which clients ask.
    fn clients(&mut self) -> &mut Self::Clients;

    /// The sockets from which upstream servers are asked.
    fn upstreams(&mut self) -> &mut Self::Upstreams;

    /// Sleeps until a datagram waits at either side, the relay's waker is used or `timeout` has
    /// passed. What it finds waiting is handed over by the next `receive` of each side.
    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError>;
}

/// The sockets at which clients ask. Never blocks.
pub trait ClientSide {
    /// Hands about `max` waiting queries at most to `answer`, which writes an immediate response
    /// into the frame (4096 octets) and returns its length; 0: none now. The responses leave with
    /// the next [`ClientSide::flush`] or before. Returns the number of queries.
    fn receive(
        &mut self,
        max: usize,
        answer: impl FnMut(&Origin, &[u8], &mut [u8]) -> usize,
    ) -> Result<usize, LinkError>;

    /// Takes a response to an earlier query: `fill` writes it into the frame (4096 octets) and
    /// returns its length. It leaves with the next [`ClientSide::flush`] or before.
    fn reply(&mut self, to: &Origin, fill: impl FnOnce(&mut [u8]) -> usize);

    /// Sends all responses that were taken. Their order, even to one client, may change.
    fn flush(&mut self);

    /// Stops or starts to hand over queries; what comes meanwhile waits in the kernel.
    fn accept(&mut self, yes: bool);

    /// What this side has counted since it was opened.
    fn counters(&mut self) -> Result<Counters, LinkError>;
}

/// For each upstream server a pool of connected sockets at random local ports. Never blocks.
pub trait UpstreamSide {
    /// Asks these servers from now on, each from up to `ports` local ports. Pools of servers that
    /// stay, stay; their numbers are those of the new list.
    fn set_servers(&mut self, servers: &[SocketAddr], ports: usize) -> Result<(), LinkError>;

    /// Hands the waiting replies to `each`, and which questions could not be delivered. Returns the
    /// number of replies.
    fn receive(&mut self, each: impl FnMut(Arrival<'_>)) -> Result<usize, LinkError>;

    /// Takes a question to a server: `fill` writes it into the frame (4096 octets) and returns its
    /// length. It leaves with the next [`UpstreamSide::flush`] or before. A port that is not open
    /// is opened at a random number.
    fn ask(&mut self, server: usize, port: usize, fill: impl FnOnce(&mut [u8]) -> usize);

    /// Closes a port of a server's pool if it is open, and opens it at a new random number. What
    /// is in flight to the old one is lost.
    fn renew(&mut self, server: usize, port: usize) -> Result<(), LinkError>;

    /// Sends all questions that were taken. Their order may change.
    fn flush(&mut self);

    /// What this side has counted since it was opened.
    fn counters(&mut self) -> Result<Counters, LinkError>;
}
