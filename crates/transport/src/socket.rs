//! [`Link`] over kernel UDP sockets.
//!
//! [`UdpLink::client`] opens many connected sockets, one for each source port, to one server; [`UdpLink::server`] opens
//! one unconnected socket that replies to any client. Both receive datagrams by `recvmmsg` with kernel receive
//! timestamps. Datagrams of equal length may travel segmented: see [`Segmentation`].

mod descriptors;
mod errors;
mod failure;
mod replies;
mod segmentation;
mod source;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, socket_with, sockopt,
};

use crate::address;
use crate::clock::{Clock, MonotonicClock, Nanos};
use crate::sys::{self, RawAddr, ReceiveBatch, SendBatch};
use crate::{Carrier, Counters, Datagram, Departure, Link, LinkError, Origin};
pub use descriptors::{DESCRIPTORS_BESIDE, allow_descriptors};
use errors::ERRORS_MAX;
pub(crate) use errors::{is_full, is_unreachable};
pub use failure::OpenError;
pub use segmentation::Segmentation;
pub(crate) use segmentation::gather;
use segmentation::stamp;
pub(crate) use source::bind_freely;
pub use source::{check as check_sources, freely};

/// Kernel sockets of a client or of a server.
pub struct UdpLink {
    sockets: Vec<OwnedFd>,
    /// For each client socket, an unconnected socket at the same port of any address: it receives datagrams from all
    /// addresses except the server's.
    catchers: Vec<OwnedFd>,
    peer: Option<SocketAddr>,
    receive: ReceiveBatch,
    send: SendBatch,
    /// Socket to read next.
    cursor: usize,
    sweeps: u64,
    realtime_offset: i64,
    departures: Vec<Departure>,
    counted: Counters,
}

/// Datagrams per `recvmmsg`: batches of 16, 64 and 256 perform equally (measured), and a small one lets the loop return
/// to its schedule quickly.
pub(crate) const RECEIVE_BATCH: usize = 16;

/// Datagrams that a socket has lost at a full receive buffer since it was opened.
///
/// # Errors
///
/// The kernel has no `SO_MEMINFO`.
pub fn drops(socket: &impl AsFd) -> io::Result<u64> {
    sys::drops(socket.as_fd())
}

/// Messages per `sendmmsg`; each can contain a run of segments.
pub(crate) const SEND_BATCH: usize = 64;

/// Receive buffer requested for each socket. The kernel charges about 1 KiB for a small datagram, so this holds about
/// 8,000 of them: 25 ms at 300 k/s. The default of 208 KiB holds about 200.
pub(crate) const BUFFER_BYTES: usize = 8 << 20;

/// Maximum number of batches of replies that one call of [`Link::answer`] sends: to [`RECEIVE_BATCH`] datagrams of 128
/// segments each (`UDP_MAX_SEGMENTS` of Linux 6.9), in messages of one reply.
const DEPARTURES_MAX: usize = RECEIVE_BATCH * 128 / SEND_BATCH + 1;

/// Sufficient for a socket that is only counted at the end of a trial.
const CATCHER_BUFFER_BYTES: usize = 64 << 10;

/// Sockets per source port of a client: the one that is connected to the server, and its catcher.
pub const SOCKETS_A_PORT: usize = 2;

/// The unspecified address of the IP version of `server`.
pub(crate) fn unspecified(server: SocketAddr) -> IpAddr {
    match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

impl UdpLink {
    /// Opens `ports` sockets to `server`, each with its own source port. Their source addresses are those of `local`,
    /// in turn; without any the routing table selects them.
    ///
    /// # Errors
    ///
    /// An address of `local` does not belong to this host, the ports are not available, or there is no route to the
    /// server.
    pub fn client(
        server: SocketAddr,
        local: &[IpAddr],
        ports: usize,
        segmentation: Segmentation,
    ) -> Result<Self, OpenError> {
        let unspecified = unspecified(server);
        allow_descriptors(SOCKETS_A_PORT * ports)?;
        source::check(&local[..local.len().min(ports)])?;
        let mut sockets = Vec::with_capacity(ports);
        let mut catchers = Vec::with_capacity(ports);
        for i in 0..ports {
            // At all addresses, so that no other port of this host has the same number at any address.
            let catcher = open(SocketAddr::new(unspecified, 0), false)?;
            // The port may be shared only from now on: if sharing were requested earlier, the kernel could assign the
            // same port twice.
            share_port(&catcher)?;
            let small = sockopt::set_socket_recv_buffer_size(&catcher, CATCHER_BUFFER_BYTES);
            option("SO_RCVBUF", small)?;
            let source = local.get(i % local.len().max(1));
            let address = SocketAddr::new(*source.unwrap_or(&unspecified), port_of(&catcher)?);
            // Replies reach a link-local address only over the server's link.
            let address = address::within(address, address::zone(server));
            let socket = unbound(address)?;
            share_port(&socket)?;
            bind_freely(&socket, address)?;
            enlarge(&socket, BUFFER_BYTES)?;
            stamp(&socket, segmentation)?;
            errors::report(&socket, server)?;
            connect(&socket, &server).map_err(|e| OpenError::Connect {
                server,
                reason: e.into(),
            })?;
            catchers.push(catcher);
            sockets.push(socket);
        }
        Ok(Self::over(sockets, catchers, Some(server), segmentation))
    }

    /// Opens one socket that listens at `listen`. With `share`, several links may listen at the same address and the
    /// kernel distributes the clients to them (`SO_REUSEPORT`).
    ///
    /// At an unspecified address, responses are sent from the address that was queried.
    pub fn server(
        listen: SocketAddr,
        share: bool,
        segmentation: Segmentation,
    ) -> Result<Self, OpenError> {
        let socket = open(listen, share)?;
        enlarge(&socket, BUFFER_BYTES)?;
        stamp(&socket, segmentation)?;
        note_asked_address(&socket, listen)?;
        Ok(Self::over(vec![socket], Vec::new(), None, segmentation))
    }

    fn over(
        sockets: Vec<OwnedFd>,
        catchers: Vec<OwnedFd>,
        peer: Option<SocketAddr>,
        segmentation: Segmentation,
    ) -> Self {
        Self {
            sockets,
            catchers,
            peer,
            receive: ReceiveBatch::new(RECEIVE_BATCH),
            send: SendBatch::new(SEND_BATCH, segmentation == Segmentation::On),
            cursor: 0,
            sweeps: 0,
            realtime_offset: MonotonicClock.realtime_offset(),
            departures: Vec::with_capacity(DEPARTURES_MAX),
            counted: Counters::default(),
        }
    }

    /// Address and port of the link's socket number `port`.
    pub fn local_addr(&self, port: usize) -> Option<SocketAddr> {
        getsockname(self.sockets.get(port)?).ok()?.try_into().ok()
    }

    /// The link's sockets from which datagrams are read.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Sends the batch from `socket`; returns the number of frames that the network accepted.
    fn flush(&mut self, port: usize) -> Result<usize, LinkError> {
        let mut message = 0;
        let mut frames = 0;
        let mut errors = 0;
        while message < self.send.messages() {
            match self.send.send(self.sockets[port].as_fd(), message) {
                Ok(sent) => {
                    frames += (message..message + sent)
                        .map(|i| self.send.segments(i))
                        .sum::<usize>();
                    message += sent;
                }
                // The error belongs to an earlier datagram; this one has not been sent yet.
                Err(e) if is_unreachable(&e) && self.peer.is_some() && errors < ERRORS_MAX => {
                    self.counted.unreachable += errors::take(&self.sockets[port]).max(1);
                    errors += 1;
                }
                Err(e) if is_full(&e) => break,
                // One client is unreachable; the others are not.
                Err(_) if self.peer.is_none() => message += 1,
                Err(reason) => {
                    return Err(LinkError {
                        call: "sendmmsg",
                        reason,
                    });
                }
            }
        }
        Ok(frames)
    }

    /// Sends a batch of `replies` replies and records the time.
    fn depart(&mut self, port: usize, replies: usize) -> Result<usize, LinkError> {
        self.departures.push(Departure {
            replies,
            at: MonotonicClock.now(),
        });
        self.flush(port)
    }

    /// Receives one batch from the socket at the cursor; advances the cursor once the socket is empty.
    fn take(&mut self, max: usize) -> Result<usize, LinkError> {
        let asked = max.clamp(1, self.receive.capacity());
        let socket = self.sockets[self.cursor].as_fd();
        let mut unreachable = 0;
        let got = take(&mut self.receive, socket, asked, &mut unreachable);
        if unreachable > 0 {
            self.counted.unreachable += errors::take(&self.sockets[self.cursor]).max(unreachable);
        }
        let got = got?;
        if got < asked {
            self.cursor += 1;
            if self.cursor == self.sockets.len() {
                self.cursor = 0;
                self.sweeps += 1;
            }
        }
        Ok(got)
    }
}

/// Receives up to `max` waiting datagrams from the socket; 0 if it is empty. ICMP errors that are reported in place of
/// datagrams are counted in `unreachable`.
pub(crate) fn take(
    batch: &mut ReceiveBatch,
    socket: BorrowedFd<'_>,
    max: usize,
    unreachable: &mut u64,
) -> Result<usize, LinkError> {
    let mut errors = 0;
    loop {
        match batch.receive(socket, max) {
            Ok(got) => return Ok(got),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(e) if is_unreachable(&e) && errors < ERRORS_MAX => {
                *unreachable += 1;
                errors += 1;
            }
            Err(reason) => {
                return Err(LinkError {
                    call: "recvmmsg",
                    reason,
                });
            }
        }
    }
}

impl Link for UdpLink {
    fn ports(&self) -> usize {
        self.sockets.len()
    }

    fn send(
        &mut self,
        port: usize,
        n: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        self.send.clear();
        let mut sent = 0;
        let mut waiting = 0;
        for i in 0..n {
            let len = fill(i, self.send.frame());
            self.send.push(len, None, None);
            waiting += 1;
            if self.send.is_full() || i + 1 == n {
                let taken = self.flush(port)?;
                sent += taken;
                if taken < waiting {
                    break;
                }
                waiting = 0;
                self.send.clear();
            }
        }
        Ok(sent)
    }

    fn receive(
        &mut self,
        max: usize,
        mut each: impl FnMut(Datagram<'_>),
    ) -> Result<usize, LinkError> {
        let mut total = 0;
        // Checking an empty port takes about as long as receiving a datagram: it counts as one.
        let mut left = max.max(1);
        for _ in 0..self.sockets.len() {
            let port = self.cursor;
            let got = self.take(left)?;
            for i in 0..got {
                let message = self.receive.message(i);
                let at = arrival(message.stamp_ns, self.realtime_offset);
                let Some(peer) = self.peer.or_else(|| message.from.addr()) else {
                    continue;
                };
                for payload in message.payload.chunks(message.segment.max(1)) {
                    each(Datagram {
                        port,
                        peer,
                        payload,
                        at,
                        local: None,
                        hop: None,
                    });
                    total += 1;
                }
            }
            left = left.saturating_sub(got.max(1));
            if left == 0 {
                break;
            }
        }
        Ok(total)
    }

    fn sweeps(&self) -> u64 {
        self.sweeps
    }

    fn answer(
        &mut self,
        max: usize,
        mut answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        let port = self.cursor;
        let got = self.take(max)?;
        let mut total = 0;
        let (mut replies, mut waiting) = (0, 0);
        let mut sent = 0;
        self.send.clear();
        self.departures.clear();
        for i in 0..got {
            let message = self.receive.message(i);
            let at = arrival(message.stamp_ns, self.realtime_offset);
            let Some(peer) = message.from.addr() else {
                continue;
            };
            let (to, local, segment): (RawAddr, _, _) =
                (*message.from, message.to, message.segment);
            let mut offset = 0;
            let len = message.payload.len();
            while offset < len {
                let message = self.receive.message(i);
                let payload = &message.payload[offset..(offset + segment).min(len)];
                offset += segment;
                total += 1;
                let reply = answer(
                    Datagram {
                        port,
                        peer,
                        payload,
                        at,
                        local,
                        hop: None,
                    },
                    self.send.frame(),
                );
                if reply == 0 {
                    continue;
                }
                self.send.push(reply, Some(&to), local);
                replies += 1;
                waiting += 1;
                if self.send.is_full() {
                    sent += self.depart(port, waiting)?;
                    self.send.clear();
                    waiting = 0;
                }
            }
        }
        if waiting > 0 {
            sent += self.depart(port, waiting)?;
        }
        self.counted.send_drops += (replies - sent) as u64;
        Ok(total)
    }

    fn reply(
        &mut self,
        next: impl FnMut(&mut [u8]) -> Option<(Origin, usize)>,
    ) -> Result<usize, LinkError> {
        self.send_replies(next)
    }

    fn now(&self) -> Nanos {
        MonotonicClock.now()
    }

    fn departures(&self) -> &[Departure] {
        &self.departures
    }

    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError> {
        let watch = |socket| PollFd::new(socket, PollFlags::IN);
        match self.sockets.as_slice() {
            // An authority waits here during trials, when nothing may be allocated.
            [socket] => sleep(&mut [watch(socket)], timeout),
            sockets => sleep(&mut sockets.iter().map(watch).collect::<Vec<_>>(), timeout),
        }
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let sum = |sockets: &[OwnedFd]| -> Result<u64, LinkError> {
            let each = sockets.iter().map(drops);
            each.sum::<io::Result<u64>>().map_err(|reason| LinkError {
                call: "getsockopt SO_MEMINFO",
                reason,
            })
        };
        let (foreign, from) = self.drain_catchers()?;
        self.counted.foreign += foreign;
        self.counted.foreign_from = self.counted.foreign_from.or(from);
        let mut counters = self.counted;
        counters.receive_drops = sum(&self.sockets)?;
        counters.foreign += sum(&self.catchers)?;
        Ok(counters)
    }

    fn carrier(&self) -> Carrier {
        Carrier::Socket
    }
}

impl UdpLink {
    /// Counts the datagrams from addresses other than the server's, and returns the sender of the first.
    fn drain_catchers(&mut self) -> Result<(u64, Option<SocketAddr>), LinkError> {
        let mut foreign = 0;
        let mut from = None;
        for catcher in &self.catchers {
            loop {
                match self.receive.receive(catcher.as_fd(), RECEIVE_BATCH) {
                    Ok(0) => break,
                    Ok(got) => {
                        foreign += got as u64;
                        from = from.or_else(|| self.receive.message(0).from.addr());
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) if is_unreachable(&e) => {}
                    Err(reason) => {
                        return Err(LinkError {
                            call: "recvmmsg",
                            reason,
                        });
                    }
                }
            }
        }
        Ok((foreign, from))
    }
}

/// Sleeps until one of the descriptors is ready or `timeout` has passed.
pub(crate) fn sleep(watched: &mut [PollFd<'_>], timeout: Nanos) -> Result<(), LinkError> {
    let timeout = std::time::Duration::from_nanos(timeout);
    let timeout = rustix::time::Timespec::try_from(timeout).unwrap_or_default();
    match poll(watched, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(LinkError {
            call: "poll",
            reason: e.into(),
        }),
    }
}

/// Arrival on the monotonic clock.
pub(crate) fn arrival(stamp_ns: Option<u64>, realtime_offset: i64) -> Nanos {
    match stamp_ns {
        Some(real) => real.saturating_add_signed(-realtime_offset),
        None => MonotonicClock.now(),
    }
}

fn open(address: SocketAddr, share: bool) -> Result<OwnedFd, OpenError> {
    let socket = unbound(address)?;
    if share {
        option("SO_REUSEPORT", sockopt::set_socket_reuseport(&socket, true))?;
    }
    bind_to(&socket, address)?;
    Ok(socket)
}

/// Opens a socket of the address's family.
pub(crate) fn unbound(address: SocketAddr) -> Result<OwnedFd, OpenError> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None);
    option("socket", socket)
}

pub(crate) fn bind_to(socket: &OwnedFd, address: SocketAddr) -> Result<(), OpenError> {
    bind(socket, &address).map_err(|e| OpenError::Bind {
        address,
        reason: e.into(),
    })
}

/// At an unspecified address, makes the kernel report the address that each datagram was sent to.
pub(crate) fn note_asked_address(socket: &OwnedFd, listen: SocketAddr) -> Result<(), OpenError> {
    if !listen.ip().is_unspecified() {
        return Ok(());
    }
    let (level, name) = match listen {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    option(
        "IP_PKTINFO",
        sys::set_option(socket.as_fd(), level, name, 1),
    )
}

/// Lets other sockets with this option bind to the same port.
fn share_port(socket: &OwnedFd) -> Result<(), OpenError> {
    option("SO_REUSEADDR", sockopt::set_socket_reuseaddr(socket, true))
}

fn port_of(socket: &OwnedFd) -> Result<u16, OpenError> {
    let name = option("getsockname", getsockname(socket))?;
    Ok(SocketAddr::try_from(name).map_or(0, |address| address.port()))
}

/// Requests large buffers: above the system's limit if the process may (`CAP_NET_ADMIN`), up to the limit otherwise.
pub(crate) fn enlarge(socket: &OwnedFd, bytes: usize) -> Result<(), OpenError> {
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        option(
            "SO_RCVBUF",
            sockopt::set_socket_recv_buffer_size(socket, bytes),
        )?;
    }
    option(
        "SO_SNDBUF",
        sockopt::set_socket_send_buffer_size(socket, bytes),
    )?;
    Ok(())
}

/// Makes the kernel fragment datagrams only by the interface's MTU and ignore ICMP messages about the path MTU. Forged
/// ones could cause fragmentation of responses and replacement of a fragment (RFC 9715 section 3.1, R2, and appendix C;
/// `IP_PMTUDISC_OMIT`, ip(7)).
pub(crate) fn ignore_path_mtu(socket: &OwnedFd, address: SocketAddr) -> Result<(), OpenError> {
    let (level, name, value) = match address {
        SocketAddr::V4(_) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_OMIT,
        ),
        SocketAddr::V6(_) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_OMIT,
        ),
    };
    option(
        "IP_MTU_DISCOVER",
        sys::set_option(socket.as_fd(), level, name, value),
    )
}

pub(crate) fn option<T, E: Into<io::Error>>(
    call: &'static str,
    result: Result<T, E>,
) -> Result<T, OpenError> {
    result.map_err(|e| OpenError::System {
        call,
        reason: e.into(),
    })
}
