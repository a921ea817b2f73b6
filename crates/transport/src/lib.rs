//! Datagrams in and out, and the time. Knows no DNS.
//!
//! A [`Link`] moves UDP datagrams for one worker thread. Two implementations:
//!
//! - [`socket::UdpLink`]: kernel sockets, `recvmmsg`, `sendmmsg`, `UDP_SEGMENT`, `UDP_GRO`;
//! - [`memory::MemoryLink`]: a simulated network on a [`clock::ManualClock`].
//!
//! The module `sys` holds all the unsafe code of the project.

pub mod clock;
pub mod cpu;
pub mod memory;
pub mod socket;
#[expect(
    unsafe_code,
    reason = "the one door to the kernel's vectored socket calls"
)]
mod sys;

use std::net::SocketAddr;

use clock::Nanos;

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Index of the local port that it arrived at, below [`Link::ports`].
    pub port: usize,
    /// Who sent it.
    pub peer: SocketAddr,
    /// UDP payload.
    pub payload: &'a [u8],
    /// Arrival time on the link's clock: the kernel's receive stamp where there is one.
    pub at: Nanos,
}

/// Why a link cannot go on. Losing a datagram is no error; it is counted in [`Counters`].
#[derive(Debug, thiserror::Error)]
#[error("{call} failed: {reason}")]
pub struct LinkError {
    /// Name of the system call.
    pub call: &'static str,
    /// What the kernel said.
    pub reason: std::io::Error,
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

    /// Sleeps until a datagram waits or `timeout` has passed.
    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError>;

    /// What the link has counted since it was opened.
    fn counters(&mut self) -> Result<Counters, LinkError>;

    /// Short name of the kind of link, for reports: "udp", "memory".
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
    /// ICMP errors that came back: nobody listens there, or no way leads there.
    pub unreachable: u64,
    /// Datagrams that came to a port of this link from another than its destination.
    pub foreign: u64,
    /// Sender of the first of those.
    pub foreign_from: Option<SocketAddr>,
}

/// Where a query came from and by which way its answer goes back, however much later.
///
/// Made by a [`Relay`], or by [`Origin::new`] for simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    // helper A: socket index, peer (and RawAddr / LocalAddr as needed)
    socket: u16,
    peer: SocketAddr,
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
