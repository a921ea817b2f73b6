//! [`Link`] over TCP connections to one server (RFC 7766), with TLS if that is asked for (RFC 7858).
//!
//! A port of the link is one connection at a time. A used-up connection stays open until its last response has arrived, while
//! the next one of its port carries the next queries.

mod connection;
mod counts;
mod framing;
mod tls;

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventFlags};

use crate::clock::{Clock, MonotonicClock, Nanos, SECOND};
use crate::socket::{OpenError, allow_descriptors, arrival, check_sources, option};
use crate::{Carrier, Counters, Datagram, FRAME_BYTES, Link, LinkError};
use connection::{Connection, Read, State};
pub use counts::{Connections, Ending, SET_UPS_MAX};
use framing::PREFIX_BYTES;

/// Use of the connections of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether connections have TLS.
    pub tls: bool,
    /// Queries after which a connection is replaced; `None` to keep it.
    pub queries_per_connection: Option<u32>,
    /// A used-up connection is closed after this time even if responses are missing.
    pub patience_ns: Nanos,
    /// Largest number of connections at the same time, those of all ports and used-up ones.
    pub most: usize,
}

impl Options {
    /// Descriptors for `ports` ports with `queries` in this time of patience: two for each port, and used-up connections.
    pub fn connections(queries_per_connection: Option<u32>, ports: usize, queries: usize) -> usize {
        let used_up = queries_per_connection.map(|each| queries.div_ceil(each.max(1) as usize));
        2 * ports + used_up.unwrap_or(0)
    }
}

/// TCP connections of a client.
pub struct StreamLink {
    server: SocketAddr,
    options: Options,
    tls: Option<tls::Config>,
    epoll: OwnedFd,
    connections: Box<[Connection]>,
    /// Unused ones among them.
    free: Vec<usize>,
    /// Used-up ones, with the time of their last query.
    retired: VecDeque<(usize, Nanos)>,
    ports: Vec<Port>,
    /// The queries of one call, with their lengths.
    frames: Box<[u8]>,
    /// What was read in one call.
    piece: Box<[u8]>,
    sweeps: u64,
    realtime_offset: i64,
    counted: Connections,
}

/// A port of the link.
#[derive(Default)]
struct Port {
    /// Source address.
    local: Option<IpAddr>,
    /// The connection of the next query.
    current: Option<usize>,
    /// The one that takes its place.
    next: Option<usize>,
    /// Until then no connection is requested, because the last one ended without a response,
    pauses_until: Nanos,
    /// in this way.
    ended: Ending,
}

/// Connections that are read in one call.
const EVENTS_MAX: usize = 64;

/// Octets that are read from a connection at once: some 150 responses, so that the sender is soon back at its schedule.
const PIECE_BYTES: usize = 16 << 10;

/// Queries that are written at once.
const FRAMES_MAX: usize = 64;

/// Connections that a new link requests at once: the shortest queue of a server in common use has 10 places (`tcp-listen-queue`
/// of BIND).
const REQUESTS_MAX: usize = 8;

/// A new link waits for its connections until none was established for this time: the kernel repeats a request after a second.
const OPENING_NS: Nanos = 2 * SECOND;

/// Time between the requests for two connections of a port, if the first one ended without a response: a server that refuses
/// all is not flooded.
const PAUSE_NS: Nanos = SECOND / 100;

const NO_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

impl StreamLink {
    /// Opens `ports` connections to `server`. Their source addresses are those of `local`, in turn; without any the routing
    /// table selects them. Connections that the server refuses are counted, and requested again when a query is due on them.
    ///
    /// # Errors
    ///
    /// An address of `local` does not belong to this host, or there are too few descriptors or ports.
    pub fn client(
        server: SocketAddr,
        local: &[IpAddr],
        ports: usize,
        options: Options,
    ) -> Result<Self, OpenError> {
        let most = options.most.max(2 * ports);
        allow_descriptors(most)?;
        check_sources(&local[..local.len().min(ports)])?;
        let epoll = option("epoll_create1", epoll::create(epoll::CreateFlags::CLOEXEC))?;
        let port = |k| Port {
            local: local.get(k % local.len().max(1)).copied(),
            ..Port::default()
        };
        let mut link = Self {
            server,
            options,
            tls: option("TLS", options.tls.then(tls::config).transpose())?,
            epoll,
            connections: (0..most).map(|_| Connection::new()).collect(),
            free: (0..most).rev().collect(),
            retired: VecDeque::with_capacity(2 * most),
            ports: (0..ports).map(port).collect(),
            frames: vec![0; FRAMES_MAX * (PREFIX_BYTES + FRAME_BYTES)].into(),
            piece: vec![0; PIECE_BYTES].into(),
            sweeps: 0,
            realtime_offset: MonotonicClock.realtime_offset(),
            counted: Connections {
                set_up_ns: Vec::with_capacity(match options.queries_per_connection {
                    Some(_) => SET_UPS_MAX,
                    None => 2 * most,
                }),
                ..Connections::default()
            },
        };
        link.open()?;
        Ok(link)
    }

    /// Opens the first connection of each port.
    fn open(&mut self) -> Result<(), OpenError> {
        let mut until = MonotonicClock.now() + OPENING_NS;
        let mut requested = 0;
        loop {
            let established = self.counted.established;
            let is_requested = |at: &usize| self.connections[*at].state != State::Open;
            let current = self.ports[..requested].iter().filter_map(|it| it.current);
            let pending = current.filter(is_requested).count();
            let group =
                (REQUESTS_MAX - pending.min(REQUESTS_MAX)).min(self.ports.len() - requested);
            for port in requested..requested + group {
                self.ports[port].current = self.begin(port)?;
            }
            requested += group;
            if pending + group == 0 || MonotonicClock.now() >= until {
                self.counted.at_opening = self.counted.established;
                return Ok(());
            }
            self.wait(OPENING_NS / 100).map_err(OpenError::from)?;
            self.receive(EVENTS_MAX, |_| ())?;
            if self.counted.established > established {
                until = MonotonicClock.now() + OPENING_NS;
            }
        }
    }

    /// Requests another connection for a port; `None` if the server refuses it at once.
    fn begin(&mut self, port: usize) -> Result<Option<usize>, OpenError> {
        let Some(at) = self.free.pop() else {
            return Ok(None);
        };
        let now = MonotonicClock.now();
        let local = self.ports[port].local;
        let place = (&self.epoll, at);
        let begun = self.connections[at].begin(
            self.server,
            self.tls.as_ref(),
            local,
            (port, now),
            place,
        )?;
        let Some(how) = begun else {
            return Ok(Some(at));
        };
        self.free.push(at);
        self.counted.ended(how, 0);
        self.pause(port, how, now);
        Ok(None)
    }

    /// Lets a port pause whose last connection, requested at `begun`, ended without a response.
    fn pause(&mut self, port: usize, how: Ending, begun: Nanos) {
        let port = &mut self.ports[port];
        (port.pauses_until, port.ended) = (begun + PAUSE_NS, how);
    }

    /// The connection for the next query of a port, if there is one.
    fn current(&mut self, port: usize) -> Result<Option<usize>, OpenError> {
        let Port {
            current,
            pauses_until,
            ..
        } = self.ports[port];
        if current.is_none() && MonotonicClock.now() >= pauses_until {
            self.ports[port].current = self.begin(port)?;
        }
        Ok(self.ports[port].current)
    }

    /// Requests the next connection of a port when half of the queries of this one were sent, and retires this one when all
    /// were.
    fn replace(&mut self, port: usize, at: usize) -> Result<(), OpenError> {
        let Some(most) = self.options.queries_per_connection.map(u64::from) else {
            return Ok(());
        };
        let asked = self.connections[at].asked;
        if self.ports[port].next.is_none() && 2 * asked >= most {
            self.ports[port].next = self.begin(port)?;
        }
        if asked >= most {
            let now = MonotonicClock.now();
            self.connections[at].retired = Some(now);
            self.retired.push_back((at, now));
            self.ports[port].current = self.ports[port].next.take();
        }
        Ok(())
    }

    /// Closes a connection.
    fn close(&mut self, at: usize) {
        self.counted.retransmitted += self.connections[at].close();
        self.free.push(at);
    }

    /// Closes used-up connections whose last responses are overdue.
    fn close_overdue(&mut self) {
        while let Some(&(at, since)) = self.retired.front() {
            let is_waiting = self.connections[at].retired == Some(since);
            if is_waiting && MonotonicClock.now() < since + self.options.patience_ns {
                return;
            }
            if is_waiting {
                self.connections[at].retired = None;
                self.close(at);
            }
            self.retired.pop_front();
        }
    }

    /// Counts a connection that the server has ended, and replaces it.
    fn ended(&mut self, at: usize, how: Ending) -> Result<(), OpenError> {
        let Connection {
            state,
            port,
            begun,
            answered,
            ..
        } = self.connections[at];
        let lost = self.connections[at].open_queries();
        self.connections[at].retired = None;
        self.close(at);
        match state {
            State::Open if lost == 0 => self.counted.ended_idle += 1,
            _ => self.counted.ended(how, lost),
        }
        if answered == 0 {
            self.pause(port, how, begun);
        }
        let it = &mut self.ports[port];
        if it.next == Some(at) {
            it.next = None;
        }
        if it.current == Some(at) {
            it.current = it.next.take();
            self.current(port)?;
        }
        Ok(())
    }

    /// Proceeds with a connection. Passes its responses to `each`; returns their number, and whether all were read.
    fn serve(
        &mut self,
        event: Event,
        each: &mut impl FnMut(Datagram<'_>),
    ) -> Result<(usize, bool), OpenError> {
        let at = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
        let Some(connection) = self.connections.get_mut(at) else {
            return Ok((0, true));
        };
        let (flags, state) = (event.flags, connection.state);
        if state == State::Connecting || flags.contains(EventFlags::OUT) {
            let ended = option("send", connection.proceed(&self.epoll, at))?;
            if let Some(how) = ended {
                self.ended(at, how)?;
                return Ok((0, true));
            }
        }
        let (port, server, offset) = (connection.port, self.server, self.realtime_offset);
        let before = connection.answered;
        let place = (&self.epoll, at);
        let read = connection.read(&mut self.piece, place, |message, stamp_ns| {
            let at = arrival(stamp_ns, offset);
            each(Datagram::new(port, server, message, at));
        });
        let read = option("send", read)?;
        if state != State::Open && connection.state == State::Open {
            let after_ns = MonotonicClock.now() - connection.begun;
            self.counted.established(after_ns);
        }
        let messages = usize::try_from(connection.answered - before).unwrap_or(usize::MAX);
        let is_done = connection.retired.is_some() && connection.open_queries() == 0;
        match read {
            Read::Ended(how) => self.ended(at, how)?,
            Read::Emptied | Read::More if is_done => {
                connection.retired = None;
                self.close(at);
            }
            Read::Emptied | Read::More => {}
        }
        Ok((messages, !matches!(read, Read::More)))
    }

    /// Writes queries to a connection. Returns whether it has taken them.
    fn write(&mut self, at: usize, queries: u64, octets: usize) -> Result<bool, OpenError> {
        let connection = &mut self.connections[at];
        if !connection.has_room(octets) {
            let is_of_server = connection.is_held_up();
            self.counted.not_read += if is_of_server { queries } else { 0 };
            return Ok(is_of_server);
        }
        connection.asked += queries;
        let written = connection.write(&self.frames[..octets], &self.epoll, at);
        option("epoll_ctl", written)?;
        Ok(true)
    }
}

impl Link for StreamLink {
    fn ports(&self) -> usize {
        self.ports.len()
    }

    /// A query counts as sent when it is passed to its connection. It waits there while the connection is not established, and
    /// while the server does not read.
    fn send(
        &mut self,
        port: usize,
        n: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        let mut sent = 0;
        while sent < n {
            let Some(at) = self.current(port)? else {
                if self.free.is_empty() {
                    return Ok(sent);
                }
                self.counted.lost[self.ports[port].ended as usize] += (n - sent) as u64;
                return Ok(n);
            };
            let most = self.options.queries_per_connection.unwrap_or(u32::MAX);
            let left = u64::from(most).saturating_sub(self.connections[at].asked);
            let some = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .clamp(1, n - sent);
            let some = some.min(FRAMES_MAX);
            let mut octets = 0;
            for i in sent..sent + some {
                let (prefix, frame) = self.frames[octets..].split_at_mut(PREFIX_BYTES);
                let len = fill(i, &mut frame[..FRAME_BYTES]);
                prefix.copy_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
                octets += PREFIX_BYTES + len;
            }
            if !self.write(at, some as u64, octets)? {
                return Ok(sent);
            }
            self.replace(port, at)?;
            sent += some;
        }
        Ok(sent)
    }

    fn receive(
        &mut self,
        max: usize,
        mut each: impl FnMut(Datagram<'_>),
    ) -> Result<usize, LinkError> {
        self.close_overdue();
        let most = max.clamp(1, EVENTS_MAX);
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let ready = epoll::wait(&self.epoll, &mut events[..most], Some(&NO_WAIT));
        let ready: &[Event] = match ready {
            Ok((ready, _)) => ready,
            Err(rustix::io::Errno::INTR) => &[],
            Err(reason) => {
                return Err(LinkError {
                    call: "epoll_wait",
                    reason: reason.into(),
                });
            }
        };
        let (mut total, mut is_swept) = (0, ready.len() < most);
        for event in ready {
            let (messages, is_emptied) = self.serve(*event, &mut each)?;
            total += messages;
            is_swept &= is_emptied;
        }
        self.sweeps += u64::from(is_swept);
        Ok(total)
    }

    fn sweeps(&self) -> u64 {
        self.sweeps
    }

    fn now(&self) -> Nanos {
        MonotonicClock.now()
    }

    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError> {
        let watched = rustix::event::PollFd::new(&self.epoll, rustix::event::PollFlags::IN);
        crate::socket::sleep(&mut [watched], timeout)
    }

    /// A refused connection counts as unreachable.
    fn counters(&mut self) -> Result<Counters, LinkError> {
        Ok(Counters {
            unreachable: self.counted.ended[Ending::Refused as usize],
            ..Counters::default()
        })
    }

    fn connections(&mut self) -> Connections {
        let open = self.connections.iter().map(Connection::retransmitted);
        let mut counted = self.counted.clone();
        counted.retransmitted += open.sum::<u64>();
        counted
    }

    fn carrier(&self) -> Carrier {
        match self.tls {
            Some(_) => Carrier::Tls,
            None => Carrier::Tcp,
        }
    }
}

#[cfg(test)]
mod tests;
