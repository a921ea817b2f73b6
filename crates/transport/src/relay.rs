//! Traits for both sides of a forwarder. [`udp`] implements them over kernel sockets,
//! [`crate::memory`] on the simulated network.

mod clients;
mod outgoing;
pub(crate) mod pool;
pub mod udp;
mod upstreams;

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use crate::clock::Nanos;
use crate::{Counters, LinkError, LocalAddr};

pub use clients::{UdpClients, listen};
pub use outgoing::{Missing, Outgoing};
pub use upstreams::UdpUpstreams;

/// The origin of a query, to which its response is sent, however much later. Plain data.
///
/// Created by a [`ClientSide`], or by [`Origin::new`] for simulations. At most 68 octets: one is
/// kept for each pending query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    pub(crate) peer: SocketAddr,
    /// The address that the query was sent to, if the socket listens at more than one.
    pub(crate) local: Option<LocalAddr>,
    /// Index of the listening socket.
    pub(crate) socket: u16,
    /// The way back, if the query came by an AF_XDP socket.
    pub(crate) hop: Option<Hop>,
}

/// Where a query came from: it belongs to the query, so that no other frame can move its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Index of the AF_XDP socket that received it.
    pub(crate) queue: u16,
    /// Source MAC address of its frame.
    pub(crate) mac: [u8; 6],
}

impl Origin {
    /// Creates the origin of a client of the first listening socket.
    pub fn new(peer: SocketAddr) -> Self {
        Self {
            peer,
            local: None,
            socket: 0,
            hop: None,
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

/// An event of an [`UpstreamSide`].
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// A datagram from an upstream, from the address that was queried.
    Reply {
        /// Index of the upstream, as in [`UpstreamSide::set_servers`].
        server: usize,
        /// Index of the local port that received it.
        port: usize,
        /// UDP payload.
        payload: &'a [u8],
    },
    /// An ICMP error for a query, or no route to the upstream.
    Unreachable {
        /// Index of the upstream.
        server: usize,
        /// Index of the local port that sent the query.
        port: usize,
    },
}

/// Both sides of a forwarder for one worker, and their common wait.
pub trait Relay {
    /// The client side.
    type Clients: ClientSide;
    /// The upstream side.
    type Upstreams: UpstreamSide;

    /// The sockets that receive queries from clients.
    fn clients(&mut self) -> &mut Self::Clients;

    /// The sockets that query upstreams.
    fn upstreams(&mut self) -> &mut Self::Upstreams;

    /// Sleeps until a datagram waits at either side, the relay's waker is used or `timeout` has
    /// passed. The next `receive` of each side passes on the waiting datagrams.
    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError>;
}

/// The sockets that receive queries from clients. Never blocks.
pub trait ClientSide {
    /// Passes at most about `max` waiting queries to `answer`, which writes an immediate response
    /// into the frame (4096 octets) and returns its length; 0 for no immediate response. The
    /// responses are sent by the next [`ClientSide::flush`] or earlier. Returns the number of
    /// queries.
    fn receive(
        &mut self,
        max: usize,
        answer: impl FnMut(&Origin, &[u8], &mut [u8]) -> usize,
    ) -> Result<usize, LinkError>;

    /// Queues a response to an earlier query: `fill` writes it into the frame (4096 octets) and
    /// returns its length. It is sent by the next [`ClientSide::flush`] or earlier.
    fn reply(&mut self, to: &Origin, fill: impl FnOnce(&mut [u8]) -> usize);

    /// Sends all queued responses. Their order, even to one client, may change.
    fn flush(&mut self);

    /// Starts or stops passing on queries; meanwhile, queries wait in the kernel.
    fn accept(&mut self, yes: bool);

    /// The counters of this side since it was opened.
    fn counters(&mut self) -> Result<Counters, LinkError>;
}

/// A pool of connected sockets at random local ports for each upstream. Never blocks.
pub trait UpstreamSide {
    /// Closes all ports, and sets the list of upstreams, each with up to `ports` local ports. Ports in
    /// `avoided` are not opened.
    fn set_servers(
        &mut self,
        servers: &[(SocketAddr, Outgoing)],
        ports: usize,
        avoided: &[RangeInclusive<u16>],
    );

    /// Passes the waiting responses and the queries that could not be delivered to `each`. Returns
    /// the number of responses.
    fn receive(&mut self, each: impl FnMut(Arrival<'_>)) -> Result<usize, LinkError>;

    /// Queues a query to an upstream: `fill` writes it into the frame (4096 octets) and returns its
    /// length. It is sent by the next [`UpstreamSide::flush`] or earlier. A closed port is opened
    /// with a random number.
    fn ask(&mut self, server: usize, port: usize, fill: impl FnOnce(&mut [u8]) -> usize);

    /// Closes a port of an upstream's pool if it is open. Datagrams in flight to it are lost; the next
    /// query from it opens another one.
    fn close(&mut self, server: usize, port: usize) -> Result<(), LinkError>;

    /// Sends all queued queries. Their order may change.
    fn flush(&mut self);

    /// The counters of this side since it was opened.
    fn counters(&mut self) -> Result<Counters, LinkError>;
}
