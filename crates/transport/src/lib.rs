//! Sends and receives datagrams and measures time. Independent of DNS.
//!
//! A [`Link`] sends and receives messages for one worker thread: UDP datagrams, or those of TCP connections. Four implementations:
//!
//! - [`socket::UdpLink`]: kernel sockets, `recvmmsg`, `sendmmsg`, `UDP_SEGMENT`, `UDP_GRO`;
//! - [`xdp::XdpLink`]: AF_XDP sockets, which bypass the network stack of the kernel;
//! - [`stream::StreamLink`]: TCP connections of a client, with or without TLS;
//! - [`memory::MemoryLink`]: a simulated network on a [`clock::ManualClock`].
//!
//! A [`Relay`] serves both sides of a forwarder, a [`ClientSide`] and an [`UpstreamSide`], for one worker thread:
//! [`relay::udp::UdpRelay`] over kernel sockets, [`memory::MemoryRelay`] on the simulated network.
//!
//! The module `sys` contains all unsafe code of the project.

pub mod address;
mod backend;
pub mod clock;
pub mod cpu;
pub mod memory;
pub mod random;
pub mod relay;
pub mod socket;
pub mod stream;
#[expect(
    unsafe_code,
    reason = "the only module that makes vectored socket calls"
)]
mod sys;
pub mod xdp;

use std::net::{IpAddr, SocketAddr};

use clock::Nanos;

pub use backend::{Backend, Carrier};
use relay::Hop;
pub use relay::{Arrival, ClientSide, Origin, Relay, UpstreamSide};
use stream::Connections;
pub use sys::FRAME_BYTES;

/// A received datagram, or a message of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Index of the local port that received it, below [`Link::ports`].
    pub port: usize,
    /// Address of the sender.
    pub peer: SocketAddr,
    /// UDP payload.
    pub payload: &'a [u8],
    /// Arrival time on the link's clock: the kernel's receive timestamp if there is one.
    pub at: Nanos,
    /// The local destination address, if the port listens at more than one.
    pub(crate) local: Option<LocalAddr>,
    /// The way back, if it came by an AF_XDP socket.
    pub(crate) hop: Option<Hop>,
}

impl<'a> Datagram<'a> {
    /// Creates a datagram received at a port with one address.
    pub fn new(port: usize, peer: SocketAddr, payload: &'a [u8], at: Nanos) -> Self {
        Self {
            port,
            peer,
            payload,
            at,
            local: None,
            hop: None,
        }
    }

    /// Destination of a reply, for [`Link::reply`].
    pub fn origin(&self) -> Origin {
        Origin {
            local: self.local,
            hop: self.hop,
            ..Origin::new(self.peer)
        }
    }
}

/// Replies that were sent in one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Number of replies.
    pub replies: usize,
    /// Send time on the link's clock: read directly before the system call, so that nothing caused by a reply has an
    /// earlier timestamp than the reply.
    pub at: Nanos,
}

/// The local address that a datagram was sent to, used as the source address of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalAddr {
    pub(crate) ip: IpAddr,
    /// Index of the interface, for link-local addresses; 0: any.
    pub(crate) interface: u32,
}

/// An error after which a link cannot continue. A lost datagram is not an error; it is counted in [`Counters`].
#[derive(Debug, thiserror::Error)]
#[error("{call} failed: {reason}")]
pub struct LinkError {
    /// Name of the system call.
    pub call: &'static str,
    /// Error of the kernel.
    pub reason: std::io::Error,
}

/// Sends and receives datagrams, or messages of connections, for one worker. Only [`Link::wait`] blocks.
///
/// A link owns one or more local ports. The caller selects the source port of each datagram, and received datagrams
/// include the port that received them.
pub trait Link {
    /// Number of local ports of the link; at least 1.
    fn ports(&self) -> usize;

    /// Sends up to `n` datagrams from `port` to the link's fixed destination. `fill(i, frame)` writes datagram `i` into
    /// `frame` and returns its length. Returns the number of datagrams that the network accepted; fewer than `n` means
    /// that the link is full for now.
    ///
    /// Consecutive datagrams of equal length are sent as one segmented datagram if the kernel supports it
    /// (`UDP_SEGMENT`) and segmentation is not disabled, so `n` must not exceed the burst size that the caller allows.
    fn send(
        &mut self,
        port: usize,
        n: usize,
        fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError>;

    /// Passes up to about `max` waiting datagrams to `each`; returns their number. Checks at most `max` ports. A
    /// segmented datagram is passed on completely, so the number can exceed `max`.
    fn receive(&mut self, max: usize, each: impl FnMut(Datagram<'_>)) -> Result<usize, LinkError>;

    /// Number of rounds in which [`Link::receive`] has checked all ports and emptied each queue. At the end of a round,
    /// everything that arrived before its start has been passed on.
    fn sweeps(&self) -> u64;

    /// Replies to up to about `max` waiting datagrams: `answer(datagram, frame)` writes the reply into `frame` and
    /// returns its length, 0 for no reply. The reply goes to the sender of the datagram. Returns the number of
    /// datagrams received. A link that only asks answers nothing.
    fn answer(
        &mut self,
        _max: usize,
        _answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        Ok(0)
    }

    /// Sends replies to datagrams that [`Link::answer`] passed on earlier: `next` writes one into the frame and returns
    /// its destination and length, or `None` if there are no more. Returns the number of replies. For links that
    /// listen, which have one local port.
    fn reply(
        &mut self,
        _next: impl FnMut(&mut [u8]) -> Option<(Origin, usize)>,
    ) -> Result<usize, LinkError> {
        Ok(0)
    }

    /// The current time, on the clock of the arrival times.
    fn now(&self) -> Nanos;

    /// Send times of the replies of the last [`Link::answer`] or [`Link::reply`], in the order in which they were
    /// written.
    fn departures(&self) -> &[Departure] {
        &[]
    }

    /// Sleeps until a datagram waits or `timeout` has passed.
    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError>;

    /// The link's counters since it was opened.
    fn counters(&mut self) -> Result<Counters, LinkError>;

    /// What happened to its connections, if it has any.
    fn connections(&mut self) -> Connections {
        Connections::default()
    }

    /// What carries its datagrams.
    fn carrier(&self) -> Carrier;
}

/// Counters of a link. The drops are losses on this side of the network, not losses of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams dropped because the receive buffer was full (`sk_drops` of the kernel).
    pub receive_drops: u64,
    /// Replies that the network did not accept.
    pub send_drops: u64,
    /// ICMP errors received: port or destination unreachable. Connections that were refused.
    pub unreachable: u64,
    /// Datagrams received from an address other than the link's destination.
    pub foreign: u64,
    /// Sender of the first such datagram.
    pub foreign_from: Option<SocketAddr>,
}
