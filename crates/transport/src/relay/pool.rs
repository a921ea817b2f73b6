//! The connected sockets, at random ports, from which one server is asked.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{connect, sockopt};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::clock::{Clock, MonotonicClock, Nanos, SECOND};
use crate::socket::{OpenError, bind_to, gather, option, unbound};
use crate::{LinkError, sys};

/// The sockets for one server. A port is closed until the first question that leaves from it; one whose
/// socket could not be opened stays closed until a later try succeeds.
pub(super) struct Pool {
    server: SocketAddr,
    source: IpAddr,
    ports: Vec<Option<OwnedFd>>,
    /// No closed port is tried again before this moment.
    retry_at: Nanos,
}

/// How long a server to which no way leads is left alone: a try costs some ten system calls, and
/// a second is short beside the time in which a network comes up.
const RETRY_NS: Nanos = SECOND;

impl Pool {
    /// A pool of closed ports toward `server`, from the address `source`.
    pub(super) fn new(server: SocketAddr, source: IpAddr, ports: usize) -> Self {
        Self {
            server,
            source,
            ports: (0..ports).map(|_| None).collect(),
            retry_at: 0,
        }
    }

    /// Gives the pool so many ports; those beyond are closed.
    pub(super) fn resize(&mut self, ports: usize) {
        self.ports.resize_with(ports, || None);
    }

    /// Its ports, open and closed.
    pub(super) fn ports(&self) -> usize {
        self.ports.len()
    }

    pub(super) fn server(&self) -> SocketAddr {
        self.server
    }

    /// The socket of a port; a closed one is opened, if it may be tried again by now.
    pub(super) fn socket(
        &mut self,
        port: usize,
        epoll: &OwnedFd,
        number: usize,
    ) -> Option<&OwnedFd> {
        let place = self.ports.get_mut(port)?;
        if place.is_none() && MonotonicClock.now() >= self.retry_at {
            match open_port(self.server, self.source, epoll, token(number, port)) {
                Ok(socket) => *place = Some(socket),
                Err(_) => self.retry_at = MonotonicClock.now() + RETRY_NS,
            }
        }
        place.as_ref()
    }

    /// The socket of a port that is open.
    pub(super) fn opened(&self, port: usize) -> Option<&OwnedFd> {
        self.ports.get(port)?.as_ref()
    }

    /// Puts a socket at a new port in the place of the old one, which is handed back. The old one
    /// is open meanwhile, so that chance cannot choose its port again.
    pub(super) fn renew(&mut self, port: usize, epoll: &OwnedFd, number: usize) -> Option<OwnedFd> {
        let old = self.ports.get_mut(port)?.take();
        self.retry_at = 0;
        self.socket(port, epoll, number);
        old
    }

    /// Has the sockets watched under another number.
    pub(super) fn renumber(&self, epoll: &OwnedFd, number: usize) -> Result<(), LinkError> {
        for (port, socket) in self.ports.iter().enumerate() {
            if let Some(socket) = socket {
                epoll::modify(epoll, socket, token(number, port), EventFlags::IN).map_err(|e| {
                    LinkError {
                        call: "epoll_ctl",
                        reason: e.into(),
                    }
                })?;
            }
        }
        Ok(())
    }
}

/// Datagrams that found the buffer of this socket full.
pub(super) fn drops(socket: &OwnedFd) -> Result<u64, LinkError> {
    sys::drops(socket.as_fd()).map_err(|reason| LinkError {
        call: "getsockopt SO_MEMINFO",
        reason,
    })
}

/// Server and port in one number, if they fit.
pub(crate) fn port_token(server: usize, port: usize) -> Option<u32> {
    let [server, port] = [server, port].map(u16::try_from);
    Some(u32::from(server.ok()?) << 16 | u32::from(port.ok()?))
}

/// Server and port of a [`port_token`].
pub(crate) fn of_port_token(token: u32) -> (usize, usize) {
    ((token >> 16) as usize, (token & 0xffff) as usize)
}

/// How epoll names things: the upper half is the kind.
const LISTENER: u64 = 0;
const PORT: u64 = 1;
const WAKER: u64 = 2;
const RING: u64 = 3;

/// How epoll names a socket of a pool.
fn token(number: usize, port: usize) -> EventData {
    let token = port_token(number, port).unwrap_or(u32::MAX);
    EventData::new_u64(PORT << 32 | u64::from(token))
}

/// How epoll names a listening socket.
pub(super) fn listener_token(i: usize) -> EventData {
    EventData::new_u64(LISTENER << 32 | i as u64)
}

/// How epoll names the relay's waker.
pub(super) fn waker_token() -> EventData {
    EventData::new_u64(WAKER << 32)
}

/// How epoll names an AF_XDP socket.
pub(crate) fn ring_token() -> EventData {
    EventData::new_u64(RING << 32)
}

/// What an event of epoll is about.
pub(super) enum Ready {
    /// The listening socket of this index.
    Listener(usize),
    /// A server's socket.
    Port {
        /// The server's number.
        server: usize,
        /// The port in its pool.
        port: usize,
    },
    /// The relay's waker.
    Waker,
    /// The ring of an AF_XDP socket.
    Ring,
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
            RING => Self::Ring,
            _ => Self::Listener(token as usize),
        }
    }
}

/// A random port is free with near certainty: were nine in ten taken, 256 tries would still fail
/// only once in 10^11.
const BIND_TRIES: usize = 256;

/// Its buffers are those that the kernel gives (`net.core.rmem_default`, some 100 replies): questions are
/// spread over the ports of the pool, so that few replies come to one.
fn open_port(
    server: SocketAddr,
    source: IpAddr,
    epoll: &OwnedFd,
    token: EventData,
) -> Result<OwnedFd, OpenError> {
    let socket = unbound(server)?;
    if server.is_ipv6() {
        option("IPV6_V6ONLY", sockopt::set_ipv6_v6only(&socket, true))?;
    }
    gather(&socket)?;
    bind_at_random(&socket, source)?;
    connect(&socket, &server).map_err(|e| OpenError::Connect {
        server,
        reason: e.into(),
    })?;
    let watched = epoll::add(epoll, &socket, token, EventFlags::IN);
    option("epoll_ctl", watched)?;
    Ok(socket)
}

/// Without `SO_REUSEADDR`: no other socket of this machine can share the port, now or later.
fn bind_at_random(socket: &OwnedFd, source: IpAddr) -> Result<(), OpenError> {
    let mut tries = 0;
    loop {
        let port = option("getrandom", random_port())?;
        tries += 1;
        match bind_to(socket, SocketAddr::new(source, port)) {
            Err(OpenError::Bind { reason, .. })
                if reason.kind() == io::ErrorKind::AddrInUse && tries < BIND_TRIES => {}
            result => return result,
        }
    }
}

/// First port that is not reserved to the system (RFC 6335 section 6).
const FIRST_PORT: u16 = 1024;

/// A port from 1024 to 65535, each as likely as the next, from the system's random source: who
/// has seen some cannot guess the others (RFC 5452 section 9.2).
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
