//! One connection: octets out and in, without blocking.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, connect, send, socket_with, sockopt,
};

use super::counts::Ending;
use super::framing::Messages;
use super::tls::{self, Over, Session};
use crate::clock::Nanos;
use crate::socket::{OpenError, bind_freely, option};
use crate::sys;

/// Octets that a connection holds while the kernel takes no more: some 300 queries.
const OUTPUT_BYTES: usize = 16 << 10;

const SENT: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The server has not answered the request for it.
    Connecting,
    /// The TLS handshake is under way.
    Shaking,
    /// Queries and responses travel.
    Open,
}

/// Result of reading a connection.
pub(super) enum Read {
    /// Everything that had arrived was read.
    Emptied,
    /// There may be more.
    More,
    /// The server has ended the connection.
    Ended(Ending),
}

/// Memory of a connection; reused for the next one.
pub(super) struct Connection {
    /// `None` between two connections.
    socket: Option<OwnedFd>,
    pub(super) state: State,
    /// The port of the link that it belongs to.
    pub(super) port: usize,
    /// Time of the request for it.
    pub(super) begun: Nanos,
    /// Queries passed to it.
    pub(super) asked: u64,
    /// Responses received.
    pub(super) answered: u64,
    /// Time of its last query, once another connection has taken its place.
    pub(super) retired: Option<Nanos>,
    /// Octets that the kernel has not taken.
    output: Vec<u8>,
    /// Whether the kernel reports room for more octets.
    awaits_room: bool,
    messages: Messages,
    tls: Option<Session>,
    /// Octets of queries that wait for the end of the handshake.
    waiting: usize,
}

impl Connection {
    /// Allocates the memory of a connection.
    pub(super) fn new() -> Self {
        Self {
            socket: None,
            state: State::Connecting,
            port: 0,
            begun: 0,
            asked: 0,
            answered: 0,
            retired: None,
            output: Vec::with_capacity(OUTPUT_BYTES),
            awaits_room: false,
            messages: Messages::new(),
            tls: None,
            waiting: 0,
        }
    }

    /// Requests a connection to `server`, with TLS by `config` if there is one, which `epoll` reports as `slot`. Returns how the server refused it, if it did at
    /// once.
    ///
    /// # Errors
    ///
    /// No descriptors or ports are left on this host.
    pub(super) fn begin(
        &mut self,
        server: SocketAddr,
        config: Option<&tls::Config>,
        local: Option<IpAddr>,
        (port, now): (usize, Nanos),
        (epoll, slot): (&OwnedFd, usize),
    ) -> Result<Option<Ending>, OpenError> {
        let family = match server {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None);
        let socket = option("socket", socket)?;
        option("TCP_NODELAY", sockopt::set_tcp_nodelay(&socket, true))?;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
        let stamped = sys::set_option(socket.as_fd(), level, name, 1);
        option("SO_TIMESTAMPNS", stamped)?;
        if let Some(ip) = local {
            // The port is chosen for this server: others may have the same.
            let (level, name) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
            let later = sys::set_option(socket.as_fd(), level, name, 1);
            option("IP_BIND_ADDRESS_NO_PORT", later)?;
            bind_freely(&socket, SocketAddr::new(ip, 0))?;
        }
        match connect(&socket, &server) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(reason) => match ending(reason) {
                Some(how) => return Ok(Some(how)),
                None => return Err(no_connection(reason)),
            },
        }
        let data = EventData::new_u64(slot as u64);
        let both = EventFlags::IN | EventFlags::OUT;
        option("epoll_ctl", epoll::add(epoll, &socket, data, both))?;
        self.output.clear();
        self.messages.clear();
        let session = config.map(|config| Session::new(config, server.ip()));
        self.tls = option("TLS", session.transpose())?;
        self.waiting = 0;
        (self.asked, self.answered, self.retired) = (0, 0, None);
        (self.port, self.begun) = (port, now);
        (self.state, self.awaits_room) = (State::Connecting, true);
        self.socket = Some(socket);
        Ok(None)
    }

    /// Closes it. Returns the number of segments that were sent again.
    pub(super) fn close(&mut self) -> u64 {
        let retransmitted = self.retransmitted();
        if let (Some(tls), Some(socket)) = (&mut self.tls, &self.socket)
            && self.state == State::Open
            && self.output.is_empty()
            && tls.close(&mut self.output).is_ok()
        {
            // A server that has ended it does not read the announcement.
            let _ = send(socket, &self.output, SENT);
        }
        self.tls = None;
        self.socket = None;
        retransmitted
    }

    /// Number of segments that were sent again.
    pub(super) fn retransmitted(&self) -> u64 {
        let sending = self
            .socket
            .as_ref()
            .map(|it| sys::stream::sending(it.as_fd()));
        sending.map_or(0, |it| it.map_or(0, |it| it.retransmitted))
    }

    /// Queries without a response.
    pub(super) fn open_queries(&self) -> u64 {
        self.asked.saturating_sub(self.answered)
    }

    /// Returns whether so many more octets can be held.
    pub(super) fn has_room(&self, octets: usize) -> bool {
        let overhead = match self.tls {
            Some(_) => tls::OVERHEAD_BYTES,
            None => 0,
        };
        self.output.len() + self.waiting + octets + overhead <= OUTPUT_BYTES
    }

    /// Returns whether the server, or the network on the way to it, is the reason that octets wait here.
    pub(super) fn is_held_up(&self) -> bool {
        let Some(socket) = self.socket.as_ref().filter(|_| self.state == State::Open) else {
            return true;
        };
        sys::stream::sending(socket.as_fd()).is_ok_and(|it| it.is_window_closed)
    }

    /// Sends these octets, or holds what the kernel does not take.
    pub(super) fn write(&mut self, octets: &[u8], epoll: &OwnedFd, slot: usize) -> io::Result<()> {
        match &mut self.tls {
            None => self.output.extend_from_slice(octets),
            Some(tls) if self.state == State::Open => tls.seal(octets, &mut self.output)?,
            Some(tls) => {
                self.waiting += octets.len();
                tls.hold(octets)?;
            }
        }
        match self.state {
            State::Open if !self.awaits_room => self.flush(epoll, slot),
            State::Connecting | State::Shaking | State::Open => Ok(()),
        }
    }

    /// Passes what it holds to the kernel, and has the room for the rest reported. A broken connection is reported by the
    /// next event.
    fn flush(&mut self, epoll: &OwnedFd, slot: usize) -> io::Result<()> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        if !self.output.is_empty() {
            let sent = send(socket, &self.output, SENT).unwrap_or(0);
            self.output.drain(..sent);
        }
        let waits = !self.output.is_empty();
        if waits != self.awaits_room {
            let what = match waits {
                true => EventFlags::IN | EventFlags::OUT,
                false => EventFlags::IN,
            };
            epoll::modify(epoll, socket, EventData::new_u64(slot as u64), what)?;
            self.awaits_room = waits;
        }
        Ok(())
    }

    /// Proceeds when the kernel has room: a new connection is then established, and has sent what was due before. Returns how
    /// it ended, if it did.
    pub(super) fn proceed(&mut self, epoll: &OwnedFd, slot: usize) -> io::Result<Option<Ending>> {
        let Some(socket) = &self.socket else {
            return Ok(None);
        };
        if self.state == State::Connecting {
            match sockopt::socket_error(socket)? {
                Ok(()) => match &mut self.tls {
                    None => self.state = State::Open,
                    Some(tls) => {
                        tls.seal(&[], &mut self.output)?;
                        self.state = State::Shaking;
                    }
                },
                Err(reason) => return Ok(Some(ending(reason).unwrap_or(Ending::Unreachable))),
            }
        }
        self.flush(epoll, slot)?;
        Ok(None)
    }

    /// Reads once, into `piece`, and passes each complete message to `each` with the time of its arrival: of the last octet
    /// that was read with it, in real time.
    pub(super) fn read(
        &mut self,
        piece: &mut [u8],
        (epoll, slot): (&OwnedFd, usize),
        mut each: impl FnMut(&[u8], Option<u64>),
    ) -> io::Result<Read> {
        let Some(socket) = &self.socket else {
            return Ok(Read::Emptied);
        };
        let (got, stamp_ns) = match sys::stream::receive(socket.as_fd(), piece) {
            Ok((0, _)) => return Ok(self.ended(Ending::Closed)),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Read::Emptied),
            Err(_) => return Ok(self.ended(Ending::Reset)),
        };
        let (answered, messages) = (&mut self.answered, &mut self.messages);
        let mut pass = |contents: &[u8]| {
            messages.pass(contents, |message| {
                *answered += 1;
                each(message, stamp_ns);
            });
        };
        let Some(tls) = &mut self.tls else {
            pass(&piece[..got]);
            return Ok(read(got, piece.len()));
        };
        match tls.take(&piece[..got], pass) {
            Ok(()) => {}
            Err(Over(true)) => return Ok(self.ended(Ending::Closed)),
            Err(Over(false)) => return Ok(Read::Ended(Ending::Tls)),
        }
        // Handshake messages, alerts, and the queries that waited.
        tls.seal(&[], &mut self.output)?;
        if self.state == State::Shaking && !tls.is_handshaking() {
            (self.state, self.waiting) = (State::Open, 0);
        }
        if !self.awaits_room {
            self.flush(epoll, slot)?;
        }
        Ok(read(got, piece.len()))
    }

    /// How a server ended a connection: during a handshake, by refusing that.
    fn ended(&self, how: Ending) -> Read {
        Read::Ended(match self.state {
            State::Shaking => Ending::Tls,
            State::Connecting | State::Open => how,
        })
    }
}

/// Whether there may be more after so many octets of a piece.
fn read(got: usize, of: usize) -> Read {
    match got == of {
        true => Read::More,
        false => Read::Emptied,
    }
}

/// What an error of a request for a connection says of the server; `None` for one of this host.
fn ending(reason: Errno) -> Option<Ending> {
    match reason {
        Errno::CONNREFUSED => Some(Ending::Refused),
        Errno::CONNRESET | Errno::PIPE => Some(Ending::Reset),
        Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH => Some(Ending::Unreachable),
        _ => None,
    }
}

fn no_connection(reason: Errno) -> OpenError {
    let reason = match reason {
        Errno::ADDRNOTAVAIL => io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "no source port is left: closed connections keep theirs for a minute; use more source addresses, more queries \
             for each connection, or set net.ipv4.tcp_tw_reuse to 1 and net.ipv4.ip_local_port_range wider",
        ),
        reason => reason.into(),
    };
    OpenError::System {
        call: "connect",
        reason,
    }
}
