//! Datagrams in and out, and the time. Knows no DNS.
//!
//! A [`Link`] moves UDP datagrams for one worker thread. Three implementations:
//!
//! - [`socket::UdpLink`]: kernel sockets, `recvmmsg`, `sendmmsg`, `UDP_SEGMENT`, `UDP_GRO`;
//! - [`xdp::XdpLink`]: AF_XDP sockets, past the network stack of the kernel;
//! - [`memory::MemoryLink`]: a simulated network on a [`clock::ManualClock`].
//!
//! A [`Relay`] moves both sides of a forwarder, a [`ClientSide`] and an [`UpstreamSide`], for one worker
//! thread: [`relay::udp::UdpRelay`] over kernel sockets, [`memory::MemoryRelay`] on the simulated network.
//!
//! The module `sys` holds all the unsafe code of the project.

mod backend;
pub mod clock;
pub mod cpu;
pub mod memory;
pub mod random;
pub mod relay;
pub mod socket;
#[expect(
    unsafe_code,
    reason = "the one door to the kernel's vectored socket calls"
)]
mod sys;
pub mod xdp;

use std::net::{IpAddr, SocketAddr};

use clock::Nanos;

pub use backend::Backend;
pub use relay::{Arrival, ClientSide, Origin, Relay, UpstreamSide};
pub use sys::FRAME_BYTES;

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Index of the local port that it arrived at, below [`Link::ports`].
    pub port: usize,
    /// Address of the sender.
    pub peer: SocketAddr,
    /// UDP payload.
    pub payload: &'a [u8],
    /// Arrival time on the link's clock: the kernel's receive stamp where there is one.
    pub at: Nanos,
    /// The local destination address, if the port listens at more than one.
    pub(crate) local: Option<LocalAddr>,
}

impl<'a> Datagram<'a> {
    /// A datagram that arrived at a port with one address.
    pub fn new(port: usize, peer: SocketAddr, payload: &'a [u8], at: Nanos) -> Self {
        Self {
            port,
            peer,
            payload,
            at,
            local: None,
        }
    }

    /// Destination of a reply, for [`Link::reply`].
    pub fn origin(&self) -> Origin {
        Origin {
            local: self.local,
            ..Origin::new(self.peer)
        }
    }
}

/// Replies that were handed to the network together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// How many.
    pub replies: usize,
    /// When, on the link's clock: read right before the system call, so that nothing that follows
    /// from a reply has an earlier stamp than the reply.
    pub at: Nanos,
}

/// The local address that a datagram was sent to, to answer from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalAddr {
    pub(crate) ip: IpAddr,
    /// Index of the interface, for link-local addresses; 0: any.
    pub(crate) interface: u32,
}

/// Why a link cannot continue. A lost datagram is not an error; it is counted in [`Counters`].
#[derive(Debug, thiserror::Error)]
#[error("{call} failed: {reason}")]
pub struct LinkError {
    /// Name of the system call.
    pub call: &'static str,
    /// What the kernel said.
    pub reason: std::io::Error,
}

/// Moves UDP datagrams for one worker. Only [`Link::wait`] blocks.
///
/// A link owns one or more local ports. Datagrams leave from the port that the caller names, and
/// received datagrams include the port at which they arrived.
pub trait Link {
    /// How many local ports the link sends from; at least 1.
    fn ports(&self) -> usize;

    /// Sends up to `n` datagrams from `port` to the link's fixed destination. `fill(i, frame)`
    /// writes datagram `i` into `frame` and returns its length. Returns how many the network
    /// took; fewer than `n` means that the link is full for now.
    ///
    /// Neighbours of equal length travel as one segmented datagram where the kernel can
    /// (`UDP_SEGMENT`) and the link is not told otherwise, so `n` must stay within what the caller allows to leave as one burst.
    fn send(
        &mut self,
        port: usize,
        n: usize,
        fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError>;

    /// Hands up to about `max` waiting datagrams to `each`; returns how many. Looks at no more
    /// than `max` ports. What arrived as one segmented datagram is handed over whole, so the
    /// count can pass `max`.
    fn receive(&mut self, max: usize, each: impl FnMut(Datagram<'_>)) -> Result<usize, LinkError>;

    /// How often [`Link::receive`] has gone through all ports and found the end of each queue.
    /// What arrived before one such round began has been handed over once it has ended.
    fn sweeps(&self) -> u64;

    /// Answers up to about `max` waiting datagrams: `answer(datagram, frame)` writes the reply
    /// into `frame` and returns its length, 0 for none. The reply goes back to where the
    /// datagram came from. Returns how many datagrams were taken in.
    fn answer(
        &mut self,
        max: usize,
        answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError>;

    /// Sends replies to datagrams that [`Link::answer`] was given earlier: `next` writes one into the
    /// frame and returns where it goes and its length, or `None` if there is no further one. Returns
    /// how many there were. For links that listen, which have one local port.
    fn reply(
        &mut self,
        next: impl FnMut(&mut [u8]) -> Option<(Origin, usize)>,
    ) -> Result<usize, LinkError>;

    /// Now, on the clock of the arrival times.
    fn now(&self) -> Nanos;

    /// When the replies of the last [`Link::answer`] or [`Link::reply`] were handed to the network, in
    /// the order in which they were written.
    fn departures(&self) -> &[Departure];

    /// Sleeps until a datagram waits or `timeout` has passed.
    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError>;

    /// What the link has counted since it was opened.
    fn counters(&mut self) -> Result<Counters, LinkError>;

    /// Short name of the kind of link, for reports: "udp", "xdp", "memory".
    fn backend(&self) -> &'static str;
}

/// What a link counts. The drops are losses on this side of the network: none of them is the
/// other side's fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that arrived but found the receive buffer full (`sk_drops` of the kernel).
    pub receive_drops: u64,
    /// Replies that the network did not take.
    pub send_drops: u64,
    /// ICMP errors that were received: port or destination unreachable.
    pub unreachable: u64,
    /// Datagrams at a port of this link from an address other than its destination.
    pub foreign: u64,
    /// Sender of the first of those.
    pub foreign_from: Option<SocketAddr>,
}
