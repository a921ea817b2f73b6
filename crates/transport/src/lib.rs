//! Datagrams in and out, and the time. Knows no DNS.
//!
//! A [`Link`] moves UDP datagrams for one worker thread. Two implementations:
//!
//! - [`socket::UdpLink`]: kernel sockets, `recvmmsg`, `sendmmsg`, `UDP_SEGMENT`, `UDP_GRO`;
//! - [`memory::MemoryLink`]: a simulated network on a [`clock::ManualClock`].
//!
//! This crate holds all the unsafe code of the project, in [`sys`] alone.

pub mod clock;

use std::net::SocketAddr;

use clock::Nanos;

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Index of the local port (socket) that it arrived at, below [`Link::ports`].
    pub port: usize,
    /// Who sent it.
    pub peer: Peer,
    /// UDP payload.
    pub payload: &'a [u8],
    /// Arrival time on the link's clock: the kernel's receive stamp where there is one.
    pub at: Nanos,
}

/// The source of a datagram: enough to answer it, turned into an address only on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(SocketAddr);

impl Peer {
    /// The peer's address and port.
    pub fn addr(&self) -> SocketAddr {
        self.0
    }
}

/// Why a link cannot go on. Losing a datagram is no error; it is counted in [`Drops`].
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A system call failed in a way that no retry mends.
    #[error("{call} failed")]
    System {
        /// Name of the call.
        call: &'static str,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}

/// Moves UDP datagrams for one worker. Never blocks, but for [`Link::wait`].
///
/// A link owns one or more local ports; datagrams leave from the port that the caller names, and
/// those that arrive say at which port they did.
pub trait Link {
    /// How many local ports the link sends from; at least 1.
    fn ports(&self) -> usize;

    /// Sends up to `n` datagrams from `port` to the link's fixed destination. `fill(i, frame)`
    /// writes datagram `i` into `frame` and returns its length. Returns how many the network
    /// took; fewer than `n` means that the link is full for now.
    ///
    /// Neighbours of equal length travel as one segmented datagram where the kernel can
    /// (`UDP_SEGMENT`), so `n` must stay within what the caller allows to leave as one burst.
    fn send(
        &mut self,
        port: usize,
        n: usize,
        fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError>;

    /// Hands up to about `max` waiting datagrams to `each`; returns how many. A segmented
    /// datagram is handed over whole, so the count can pass `max` by less than 64.
    fn receive(&mut self, max: usize, each: impl FnMut(Datagram<'_>)) -> Result<usize, LinkError>;

    /// Answers up to about `max` waiting datagrams: `answer(datagram, frame)` writes the reply
    /// into `frame` and returns its length, 0 for none. The reply goes back to where the
    /// datagram came from. Returns how many datagrams were taken in.
    fn answer(
        &mut self,
        max: usize,
        answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError>;

    /// Sleeps until a datagram waits or `timeout` has passed.
    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError>;

    /// Datagrams that the link itself lost since it was opened.
    fn drops(&self) -> Result<Drops, LinkError>;

    /// Short name of the kind of link, for reports: "udp", "memory".
    fn backend(&self) -> &'static str;
}

/// Losses on this side of the network. None of them is the other side's fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Datagrams that arrived but found the receive buffer full.
    pub receive: u64,
    /// Replies that the network did not take.
    pub send: u64,
}
