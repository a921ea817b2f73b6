//! [`Link`] over AF_XDP sockets.
//!
//! An ordinary [`UdpLink`] is open beside the rings: it binds the ports, makes the kernel resolve neighbours and
//! receive ICMP messages, and carries what the rings cannot: fragments, datagrams larger than the MTU, and datagrams
//! that arrive by another interface.

mod client;
mod server;

use std::net::{IpAddr, SocketAddr};

use super::Copying;
use super::frame::{self, Flow};
use super::program::Mode;
use super::queue::{self, Part, Queue};
use super::steering::Wanted;
use crate::clock::{Clock, MonotonicClock, Nanos, SECOND};
use crate::socket::UdpLink;
use crate::sys::FRAME_BYTES;
use crate::{Carrier, Counters, Datagram, Departure, Link, LinkError, Origin};

/// Options for opening AF_XDP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Mode of the steering program.
    pub mode: Mode,
    /// Whether to use an interface with a default route too.
    pub force: bool,
    /// The queues of the link.
    pub part: Part,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            force: false,
            part: Part::WHOLE,
        }
    }
}

/// AF_XDP sockets, of a client or of a server.
pub struct XdpLink {
    /// Dropped first: later datagrams go to the ordinary sockets.
    _wanted: Vec<Wanted>,
    slow: UdpLink,
    /// Time of the last check of the ordinary sockets.
    looked: Nanos,
    queues: Vec<Queue>,
    /// Queue to read next.
    cursor: usize,
    client: Option<Client>,
    server: Option<Server>,
    /// Buffer for replies of unknown length.
    scratch: Box<[u8]>,
    departures: Vec<Departure>,
    send_drops: u64,
    /// Datagrams that arrived at a queue of this link for a port of another link.
    misdirected: u64,
}

/// State of a client.
struct Client {
    server: SocketAddr,
    /// One flow from each port to the server.
    flows: Vec<Flow>,
    /// For each port number, the index of the port plus one; 0 for ports of others.
    indices: Box<[u16]>,
}

/// State of a server.
struct Server {
    listen: SocketAddr,
    /// See [`no_clients`](super::netlink::no_clients).
    no_clients: Vec<IpAddr>,
}

/// Frames received in one batch: as many as an authority answers in one turn.
const BATCH: usize = 64;

/// Replies received for each one that the caller allows. Callers base their limit on the cost of a reply from a socket;
/// one from a ring costs less than a quarter of it, and a ring that is not emptied overflows sooner than many sockets.
const FOR_EACH: usize = 4;

/// Interval of checks of the ordinary sockets while the rings are empty: a check costs about 0.3 us per socket.
const LOOK_NS: Nanos = 250_000;

/// Minimum number of sockets per check.
const LOOK_PORTS: usize = 4;

/// Maximum number of checks until each socket was checked once: 64 ms.
const LOOKS_MAX: usize = 256;

/// A timestamp older than this was not written for this frame.
const STAMP_NS_MAX: Nanos = 10 * SECOND;

impl XdpLink {
    fn over(slow: UdpLink, queues: Vec<Queue>, wanted: Vec<Wanted>) -> Self {
        Self {
            _wanted: wanted,
            slow,
            looked: 0,
            queues,
            cursor: 0,
            client: None,
            server: None,
            scratch: vec![0; FRAME_BYTES].into(),
            departures: Vec::with_capacity(2 * BATCH),
            send_drops: 0,
            misdirected: 0,
        }
    }

    /// Address and port of the link's port number `port`.
    pub fn local_addr(&self, port: usize) -> Option<SocketAddr> {
        self.slow.local_addr(port)
    }

    /// Number of queues that it reads.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Whether a check of the ordinary sockets is due.
    fn is_slow_due(&mut self) -> bool {
        let now = MonotonicClock.now();
        let is_due = now.saturating_sub(self.looked) >= LOOK_NS;
        if is_due {
            self.looked = now;
        }
        is_due
    }
}

/// Arrival time of a frame: the timestamp of the steering program, or the current time.
fn arrival(stamp: u64, now: Nanos) -> Nanos {
    // The timestamp can be slightly later than the reading of the clock before the ring was read.
    if stamp == 0 || now.saturating_sub(stamp) > STAMP_NS_MAX || stamp > now + SECOND {
        now
    } else {
        stamp
    }
}

/// Sends the frames that wait in a queue; returns the number of frames that its driver dropped.
pub(super) fn flush(queue: &mut Queue) -> Result<u64, LinkError> {
    queue.departures.flush().map_err(|reason| LinkError {
        call: "sendto (AF_XDP)",
        reason,
    })
}

/// Writes a datagram into a frame of the queue; returns false if no frame is free.
fn push(queue: &mut Queue, flow: &Flow, payload: &[u8]) -> bool {
    let write = |frame: &mut [u8]| frame::build(flow, payload, frame).unwrap_or(0);
    queue.departures.push(write)
}

impl Link for XdpLink {
    fn ports(&self) -> usize {
        self.slow.ports()
    }

    fn send(
        &mut self,
        port: usize,
        n: usize,
        fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        self.send_queries(port, n, fill)
    }

    fn receive(&mut self, max: usize, each: impl FnMut(Datagram<'_>)) -> Result<usize, LinkError> {
        self.receive_replies(max, each)
    }

    fn sweeps(&self) -> u64 {
        self.slow.sweeps()
    }

    fn answer(
        &mut self,
        max: usize,
        answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        self.answer_queries(max, answer)
    }

    fn reply(
        &mut self,
        next: impl FnMut(&mut [u8]) -> Option<(Origin, usize)>,
    ) -> Result<usize, LinkError> {
        self.reply_later(next)
    }

    fn now(&self) -> Nanos {
        MonotonicClock.now()
    }

    fn departures(&self) -> &[Departure] {
        &self.departures
    }

    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError> {
        use rustix::event::{PollFd, PollFlags};
        let rings = self.queues.iter().map(|queue| queue.arrivals.fd());
        let watched = rings.chain(self.slow.descriptors());
        let mut watched: Vec<_> = watched
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        crate::socket::sleep(&mut watched, timeout)?;
        self.looked = 0;
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let mut counters = self.slow.counters()?;
        for queue in &self.queues {
            let counted = queue.arrivals.statistics().map_err(|reason| LinkError {
                call: "getsockopt XDP_STATISTICS",
                reason,
            })?;
            counters.receive_drops +=
                counted.dropped + counted.ring_full + counted.invalid_arrivals;
            counters.send_drops += counted.invalid_departures;
        }
        counters.receive_drops += self.misdirected;
        counters.send_drops += self.send_drops;
        Ok(counters)
    }

    fn carrier(&self) -> Carrier {
        match queue::copying(self.queues.iter()) {
            Some(Copying::Zero) => Carrier::XdpZeroCopy,
            _ if self.queues.iter().any(Queue::is_generic) => Carrier::XdpGeneric,
            _ => Carrier::XdpCopy,
        }
    }
}
