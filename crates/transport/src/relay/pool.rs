//! The connected sockets, at random ports, from which one upstream is queried.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{connect, sockopt};
use rustix::rand::{GetRandomFlags, getrandom};

use super::Outgoing;
use crate::clock::{Clock, MonotonicClock, Nanos, SECOND};
use crate::socket::{OpenError, bind_to, gather, option, unbound};
use crate::{LinkError, sys};

/// The sockets for one upstream. A port is closed until the first query from it; a port whose socket could not be
/// opened stays closed until a later attempt succeeds.
pub(super) struct Pool {
    server: SocketAddr,
    outgoing: Outgoing,
    ports: Vec<Option<OwnedFd>>,
    /// Ports that are not opened.
    avoided: Arc<[RangeInclusive<u16>]>,
    /// Closed ports are not retried before this time.
    retry_at: Nanos,
}

/// Retry interval for an upstream without a route: an attempt costs about ten system calls, and a second is short
/// compared to the time in which a network comes up.
const RETRY_NS: Nanos = SECOND;

impl Pool {
    /// Creates a pool of closed ports to `server`.
    pub(super) fn new(
        (server, outgoing): (SocketAddr, Outgoing),
        avoided: Arc<[RangeInclusive<u16>]>,
        ports: usize,
    ) -> Self {
        Self {
            server,
            outgoing,
            ports: (0..ports).map(|_| None).collect(),
            avoided,
            retry_at: 0,
        }
    }

    /// Number of ports, open and closed.
    pub(super) fn ports(&self) -> usize {
        self.ports.len()
    }

    pub(super) fn server(&self) -> SocketAddr {
        self.server
    }

    /// The socket of a port; a closed port is opened if a retry is due.
    pub(super) fn socket(
        &mut self,
        port: usize,
        epoll: &OwnedFd,
        number: usize,
    ) -> Option<&OwnedFd> {
        let place = self.ports.get_mut(port)?;
        if place.is_none() && MonotonicClock.now() >= self.retry_at {
            let token = token(number, port);
            // A source without an interface is that of another port until it has one.
            let mut sources = self.outgoing.sources(self.server, port).into_iter();
            let opened = sources.find_map(|source| {
                let (server, outgoing) = (self.server, &self.outgoing);
                open_port(server, outgoing, source, &self.avoided, epoll, token).ok()
            });
            match opened {
                Some(socket) => *place = Some(socket),
                None => self.retry_at = MonotonicClock.now() + RETRY_NS,
            }
        }
        place.as_ref()
    }

    /// The socket of an open port.
    pub(super) fn opened(&self, port: usize) -> Option<&OwnedFd> {
        self.ports.get(port)?.as_ref()
    }

    /// Takes the socket of a port, which is closed from then on.
    pub(super) fn close(&mut self, port: usize) -> Option<OwnedFd> {
        self.ports.get_mut(port)?.take()
    }
}

/// Datagrams that were dropped because the buffer of this socket was full.
pub(super) fn drops(socket: &OwnedFd) -> Result<u64, LinkError> {
    sys::drops(socket.as_fd()).map_err(|reason| LinkError {
        call: "getsockopt SO_MEMINFO",
        reason,
    })
}

/// Upstream and port as one number, if they fit.
pub(crate) fn port_token(server: usize, port: usize) -> Option<u32> {
    let [server, port] = [server, port].map(u16::try_from);
    Some(u32::from(server.ok()?) << 16 | u32::from(port.ok()?))
}

/// Upstream and port of a [`port_token`].
pub(crate) fn of_port_token(token: u32) -> (usize, usize) {
    ((token >> 16) as usize, (token & 0xffff) as usize)
}

/// Kinds of epoll tokens, in the upper half.
const LISTENER: u64 = 0;
const PORT: u64 = 1;
const WAKER: u64 = 2;

/// The epoll token of a socket of a pool.
fn token(number: usize, port: usize) -> EventData {
    let token = port_token(number, port).unwrap_or(u32::MAX);
    EventData::new_u64(PORT << 32 | u64::from(token))
}

/// The epoll token of a listening socket.
pub(super) fn listener_token(i: usize) -> EventData {
    EventData::new_u64(LISTENER << 32 | i as u64)
}

/// The epoll token of the relay's waker.
pub(super) fn waker_token() -> EventData {
    EventData::new_u64(WAKER << 32)
}

/// The source of an epoll event.
pub(super) enum Ready {
    /// The listening socket of this index.
    Listener(usize),
    /// A socket to an upstream.
    Port {
        /// Index of the upstream.
        server: usize,
        /// The port in its pool.
        port: usize,
    },
    /// The relay's waker.
    Waker,
}

impl Ready {
    pub(super) fn of(data: EventData) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let token = data.u64() as u32;
        match data.u64() >> 32 {
            PORT => {
                let (server, port) = of_port_token(token);
                Self::Port { server, port }
            }
            WAKER => Self::Waker,
            _ => Self::Listener(token as usize),
        }
    }
}

/// A random port is almost always free: with nine in ten ports in use or avoided, 256 attempts would still fail only once
/// in 10^11.
const BIND_TRIES: usize = 256;

/// The buffers have the kernel's default size (`net.core.rmem_default`, about 100 responses): queries are spread over
/// the ports of the pool, so each port receives few responses.
fn open_port(
    server: SocketAddr,
    outgoing: &Outgoing,
    source: IpAddr,
    avoided: &[RangeInclusive<u16>],
    epoll: &OwnedFd,
    token: EventData,
) -> Result<OwnedFd, OpenError> {
    let socket = unbound(server)?;
    if server.is_ipv6() {
        option("IPV6_V6ONLY", sockopt::set_ipv6_v6only(&socket, true))?;
    }
    gather(&socket)?;
    option("SO_BINDTODEVICE", outgoing.prepare(&socket, server))?;
    bind_at_random(&socket, source, avoided)?;
    connect(&socket, &server).map_err(|e| OpenError::Connect {
        server,
        reason: e.into(),
    })?;
    let watched = epoll::add(epoll, &socket, token, EventFlags::IN);
    option("epoll_ctl", watched)?;
    Ok(socket)
}

/// Without `SO_REUSEADDR`: no other socket of this machine can share the port, now or later.
fn bind_at_random(
    socket: &OwnedFd,
    source: IpAddr,
    avoided: &[RangeInclusive<u16>],
) -> Result<(), OpenError> {
    let mut tries = 0;
    loop {
        let port = option("getrandom", random_port())?;
        tries += 1;
        let address = SocketAddr::new(source, port);
        let bound = if avoided.iter().any(|range| range.contains(&port)) {
            let reason = io::ErrorKind::AddrInUse.into();
            Err(OpenError::Bind { address, reason })
        } else {
            bind_to(socket, address)
        };
        match bound {
            Err(OpenError::Bind { reason, .. })
                if reason.kind() == io::ErrorKind::AddrInUse && tries < BIND_TRIES => {}
            result => return result,
        }
    }
}

/// First port that is not a system port (RFC 6335 section 6).
const FIRST_PORT: u16 = 1024;

/// Returns a uniformly distributed port from 1024 to 65535 from the system's random source: observed ports do not
/// reveal the others (RFC 5452 section 9.2).
fn random_port() -> rustix::io::Result<u16> {
    loop {
        let mut bytes = [0; 2];
        let got = getrandom(&mut bytes, GetRandomFlags::empty())?;
        let port = u16::from_ne_bytes(bytes);
        if got == bytes.len() && port >= FIRST_PORT {
            return Ok(port);
        }
    }
}
