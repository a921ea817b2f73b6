//! [`Relay`] over kernel UDP sockets: one epoll set, `recvmmsg`, `sendmmsg`, `UDP_SEGMENT` and
//! `UDP_GRO`.

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::net::{getsockname, sockopt};

use super::pool::{Pool, Ready, drops, listener_token};
use super::{Arrival, Origin, Relay};
use crate::clock::Nanos;
use crate::socket::{
    BUFFER_BYTES, OpenError, RECEIVE_BATCH, SEND_BATCH, allow_descriptors, bind_to, enlarge,
    gather, is_full, is_unreachable, note_asked_address, option, sleep, take, unbound,
};
use crate::sys::{FRAME_BYTES, LocalAddr, RawAddr, ReceiveBatch, SendBatch};
use crate::{Counters, LinkError};

/// Kernel sockets of one worker: those that listen and those that ask.
pub struct UdpRelay {
    listeners: Vec<Listener>,
    pools: Vec<Pool>,
    /// Source addresses toward servers.
    sources: Vec<IpAddr>,
    epoll: OwnedFd,
    waker: Waker,
    receive: ReceiveBatch,
    asks: SendBatch,
    /// Server and port for which `asks` is filled.
    asking: Option<(usize, usize)>,
    /// Listening sockets at which queries wait; kept for its memory.
    ready: Vec<usize>,
    /// Which of them comes first, in turn.
    turn: usize,
    accepting: bool,
    counted: Counters,
}

struct Listener {
    socket: OwnedFd,
    replies: SendBatch,
}

/// Ends the sleep of a relay from another thread. Clones wake the same relay.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the relay's present or next [`Relay::wait`].
    pub fn wake(&self) {
        // The only failure is a full counter, and that wakes as well.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn drain(&self) {
        // The only failure is that nobody has called.
        let _ = rustix::io::read(&self.0, &mut [0; size_of::<u64>()]);
    }
}

/// Sockets that one look at epoll finds ready: two whole pools. Those beyond come with the next
/// look, for epoll puts those it has told of behind them.
const EVENTS: usize = 2 * super::PORTS_PER_SERVER;

/// Each local port makes for at most one socket of each family: no process ever has more.
const SOCKETS_MAX: usize = 2 * 65_536;

impl UdpRelay {
    /// Opens a socket at each address of `listen`; several relays may listen at the same address
    /// and the kernel spreads the clients over them. At an unspecified address, answers leave
    /// from the address that was asked; one of IPv6 is asked by IPv6 alone.
    ///
    /// `sources` are the source addresses toward servers, the first of the server's family
    /// counts; without one it is left to the routing table.
    pub fn open(listen: &[SocketAddr], sources: &[IpAddr]) -> Result<Self, OpenError> {
        allow_descriptors(SOCKETS_MAX)?;
        let epoll = option("epoll_create1", epoll::create(epoll::CreateFlags::CLOEXEC))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let waker = Waker(Arc::new(option("eventfd2", eventfd(0, flags))?));
        let mut listeners = Vec::with_capacity(listen.len());
        for (i, &address) in listen.iter().enumerate() {
            let socket = open_listener(address)?;
            let added = epoll::add(&epoll, &socket, listener_token(i), EventFlags::IN);
            option("epoll_ctl", added)?;
            listeners.push(Listener {
                socket,
                replies: SendBatch::new(SEND_BATCH),
            });
        }
        Ok(Self {
            listeners,
            pools: Vec::new(),
            sources: sources.to_vec(),
            epoll,
            waker,
            receive: ReceiveBatch::new(RECEIVE_BATCH),
            asks: SendBatch::new(SEND_BATCH),
            asking: None,
            ready: Vec::new(),
            turn: 0,
            accepting: true,
            counted: Counters::default(),
        })
    }

    /// Address and port of listening socket `i`.
    pub fn local_addr(&self, i: usize) -> Option<SocketAddr> {
        let name = getsockname(&self.listeners.get(i)?.socket).ok()?;
        name.try_into().ok()
    }

    /// A handle that ends this relay's sleep.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The address from which this server is asked.
    fn source(&self, server: SocketAddr) -> IpAddr {
        let same_family = |ip: &&IpAddr| ip.is_ipv4() == server.is_ipv4();
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        self.sources
            .iter()
            .find(same_family)
            .copied()
            .unwrap_or(any)
    }

    /// Takes what waits at a server's port, one batch at most.
    fn take_replies(
        &mut self,
        server: usize,
        port: usize,
        each: &mut impl FnMut(Arrival<'_>),
    ) -> usize {
        let Some(pool) = self.pools.get(server) else {
            return 0;
        };
        let Some(socket) = pool.opened(port) else {
            return 0;
        };
        let unreachable = &mut self.counted.unreachable;
        let taken = take(
            &mut self.receive,
            socket.as_fd(),
            RECEIVE_BATCH,
            unreachable,
        );
        // An ICMP error of a rarer kind; reading it has cleared it.
        let got = taken.unwrap_or_else(|_| {
            self.counted.unreachable += 1;
            0
        });
        let asked = pool.server();
        let mut total = 0;
        for i in 0..got {
            let message = self.receive.message(i);
            // Between bind and connect a socket is open to all.
            let from = message.from.addr();
            if from.is_none_or(|from| (from.ip(), from.port()) != (asked.ip(), asked.port())) {
                self.counted.foreign += 1;
                self.counted.foreign_from = self.counted.foreign_from.or(from);
                continue;
            }
            for payload in message.payload.chunks(message.segment.max(1)) {
                each(Arrival::Reply {
                    server,
                    port,
                    payload,
                });
                total += 1;
            }
        }
        total
    }

    /// Takes queries, a batch from each ready socket in turn until about `max` are taken.
    fn take_queries(
        &mut self,
        max: usize,
        each: &mut impl FnMut(Arrival<'_>),
    ) -> Result<usize, LinkError> {
        let first = self.turn % self.ready.len().max(1);
        self.ready.rotate_left(first);
        self.turn = self.turn.wrapping_add(1);
        let mut total = 0;
        let mut left = max;
        let mut next = 0;
        while left > 0
            && let Some(&i) = self.ready.get(next)
        {
            next += 1;
            let asked = left.min(RECEIVE_BATCH);
            let got = self.take_batch(i, asked)?;
            for message in 0..got {
                let queries = self.hand_over(i, message, each);
                total += queries;
                // Even a message without any counts, so that a flood of those ends too.
                left = left.saturating_sub(queries.max(1));
            }
            if got == asked {
                self.ready.push(i);
            }
        }
        Ok(total)
    }

    fn take_batch(&mut self, i: usize, asked: usize) -> Result<usize, LinkError> {
        let Some(listener) = self.listeners.get(i) else {
            return Ok(0);
        };
        let unreachable = &mut self.counted.unreachable;
        let socket = listener.socket.as_fd();
        match take(&mut self.receive, socket, asked, unreachable) {
            // Short of memory: the datagrams go on waiting.
            Err(e) if is_full(&e.reason) => Ok(0),
            taken => taken,
        }
    }

    /// Hands over the queries of one message; returns how many.
    fn hand_over(
        &mut self,
        listener: usize,
        message: usize,
        each: &mut impl FnMut(Arrival<'_>),
    ) -> usize {
        let message = self.receive.message(message);
        let (Some(peer), Ok(socket)) = (message.from.addr(), u16::try_from(listener)) else {
            return 0;
        };
        let origin = Origin {
            peer,
            local: message.to,
            socket,
        };
        let mut total = 0;
        for payload in message.payload.chunks(message.segment.max(1)) {
            each(Arrival::Query {
                origin: &origin,
                payload,
            });
            total += 1;
        }
        total
    }

    fn flush_asks(&mut self) {
        let Some((server, port)) = self.asking.take() else {
            return;
        };
        let pool = self.pools.get_mut(server);
        match pool.and_then(|pool| pool.socket(port, &self.epoll, server)) {
            Some(socket) => send_all(&mut self.asks, socket, true, &mut self.counted),
            None => {
                self.counted.send_drops += frames_from(&self.asks, 0);
                self.asks.clear();
            }
        }
    }
}

fn open_listener(address: SocketAddr) -> Result<OwnedFd, OpenError> {
    let socket = unbound(address)?;
    if address.is_ipv6() {
        option("IPV6_V6ONLY", sockopt::set_ipv6_v6only(&socket, true))?;
    }
    option("SO_REUSEPORT", sockopt::set_socket_reuseport(&socket, true))?;
    bind_to(&socket, address)?;
    enlarge(&socket, BUFFER_BYTES)?;
    gather(&socket)?;
    note_asked_address(&socket, address)?;
    Ok(socket)
}

/// Adds a frame to a batch that is not full. False: no batch takes one of this length.
fn add(
    batch: &mut SendBatch,
    payload: &[u8],
    to: Option<&RawAddr>,
    local: Option<LocalAddr>,
) -> bool {
    let fits = (1..=FRAME_BYTES).contains(&payload.len());
    if fits {
        batch.frame()[..payload.len()].copy_from_slice(payload);
        batch.push(payload.len(), to, local);
    }
    fits
}

/// Frames of the batch's messages from `first` on.
fn frames_from(batch: &SendBatch, first: usize) -> u64 {
    (first..batch.messages())
        .map(|i| batch.segments(i) as u64)
        .sum()
}

/// Sends the batch and empties it. What the network does not take is counted.
fn send_all(batch: &mut SendBatch, socket: &OwnedFd, connected: bool, counted: &mut Counters) {
    let mut message = 0;
    let mut tried_again = false;
    while message < batch.messages() {
        match batch.send(socket.as_fd(), message) {
            Ok(sent) => message += sent,
            // The error belongs to an earlier datagram; this one has not been tried yet.
            Err(e) if connected && !tried_again && is_unreachable(&e) => {
                counted.unreachable += 1;
                tried_again = true;
                continue;
            }
            Err(e) if is_full(&e) => {
                counted.send_drops += frames_from(batch, message);
                break;
            }
            Err(e) if batch.segments(message) > 1 && cannot_segment(&e) => {
                for segment in 0..batch.segments(message) {
                    let sent = batch.send_one(socket.as_fd(), message, segment);
                    counted.send_drops += u64::from(sent.is_err());
                }
                message += 1;
            }
            // One client or server cannot be told; the others can.
            Err(_) => {
                counted.send_drops += batch.segments(message) as u64;
                message += 1;
            }
        }
        tried_again = false;
    }
    batch.clear();
}

/// Whether the way that a run of datagrams takes may be to blame: a segment must fit into its MTU
/// (`EINVAL`, or `EMSGSIZE` from newer kernels), and IPsec and devices that leave checksums alone
/// take no run (`EIO`).
fn cannot_segment(error: &std::io::Error) -> bool {
    let known = [libc::EINVAL, libc::EMSGSIZE, libc::EIO];
    error.raw_os_error().is_some_and(|e| known.contains(&e))
}

impl Relay for UdpRelay {
    /// A server that cannot be reached from here is no error: what it is asked is dropped and
    /// counted, and its ports are tried again, once a second at most, when it is asked.
    fn set_servers(&mut self, servers: &[SocketAddr]) -> Result<(), LinkError> {
        self.flush_asks();
        let mut old = std::mem::take(&mut self.pools);
        for (number, &server) in servers.iter().enumerate() {
            let pool = match old.iter().position(|pool| pool.server() == server) {
                Some(i) => {
                    let pool = old.swap_remove(i);
                    pool.renumber(&self.epoll, number)?;
                    pool
                }
                None => Pool::open(server, self.source(server), &self.epoll, number),
            };
            self.pools.push(pool);
        }
        for pool in old {
            self.counted.receive_drops += pool.drops()?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        max: usize,
        mut each: impl FnMut(Arrival<'_>),
    ) -> Result<usize, LinkError> {
        let mut room = [const { MaybeUninit::uninit() }; EVENTS];
        let now = rustix::time::Timespec::default();
        let events = match epoll::wait(&self.epoll, &mut room, Some(&now)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(0),
            Err(e) => {
                return Err(LinkError {
                    call: "epoll_wait",
                    reason: e.into(),
                });
            }
        };
        let mut total = 0;
        self.ready.clear();
        for event in events {
            match Ready::of(event.data) {
                Ready::Port { server, port } => {
                    total += self.take_replies(server, port, &mut each);
                }
                Ready::Listener(i) if self.accepting => self.ready.push(i),
                Ready::Listener(_) => {}
            }
        }
        Ok(total + self.take_queries(max, &mut each)?)
    }

    fn reply(&mut self, to: &Origin, payload: &[u8]) -> Result<(), LinkError> {
        let Some(listener) = self.listeners.get_mut(usize::from(to.socket)) else {
            self.counted.send_drops += 1;
            return Ok(());
        };
        let batch = &mut listener.replies;
        if batch.is_full() {
            send_all(batch, &listener.socket, false, &mut self.counted);
        }
        if !add(batch, payload, Some(&to.peer.into()), to.local) {
            self.counted.send_drops += 1;
        }
        Ok(())
    }

    fn ask(&mut self, server: usize, port: usize, payload: &[u8]) -> Result<(), LinkError> {
        if self.asking != Some((server, port)) || self.asks.is_full() {
            self.flush_asks();
            self.asking = Some((server, port));
        }
        if !add(&mut self.asks, payload, None, None) {
            self.counted.send_drops += 1;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        self.flush_asks();
        for listener in &mut self.listeners {
            let batch = &mut listener.replies;
            send_all(batch, &listener.socket, false, &mut self.counted);
        }
        Ok(())
    }

    /// If no new port can be had now, the place stays closed until a later question opens it.
    fn renew(&mut self, server: usize, port: usize) -> Result<(), LinkError> {
        self.flush_asks();
        if let Some(pool) = self.pools.get_mut(server)
            && let Some(old) = pool.renew(port, &self.epoll, server)
        {
            self.counted.receive_drops += drops(&old)?;
        }
        Ok(())
    }

    fn accept_queries(&mut self, yes: bool) {
        if self.accepting == yes {
            return;
        }
        self.accepting = yes;
        let flags = if yes {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        for (i, listener) in self.listeners.iter().enumerate() {
            // Allocates nothing and so cannot fail; if it did, `receive` would still obey.
            let _ = epoll::modify(&self.epoll, &listener.socket, listener_token(i), flags);
        }
    }

    /// Being woken is remembered until here, whatever else the relay is called for meanwhile: who
    /// looks for messages once between two sleeps misses none.
    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError> {
        let mut watched = [
            PollFd::new(&self.epoll, PollFlags::IN),
            PollFd::new(&self.waker.0, PollFlags::IN),
        ];
        sleep(&mut watched, timeout)?;
        if watched[1].revents().contains(PollFlags::IN) {
            self.waker.drain();
        }
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let mut counters = self.counted;
        for listener in &self.listeners {
            counters.receive_drops += drops(&listener.socket)?;
        }
        for pool in &self.pools {
            counters.receive_drops += pool.drops()?;
        }
        Ok(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    #[test]
    fn a_run_that_cannot_travel_as_one_is_sent_one_by_one() {
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let limit = std::time::Duration::from_secs(2);
        client.set_read_timeout(Some(limit)).unwrap();
        let mut relay = UdpRelay::open(&["127.0.0.1:0".parse().unwrap()], &[]).unwrap();
        // The kernel refuses segments of a socket that makes no checksums with EINVAL, as it does
        // those that are longer than the MTU.
        let socket = relay.listeners[0].socket.as_fd();
        sys::set_option(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let origin = Origin::new(client.local_addr().unwrap());
        for i in 0..10 {
            relay.reply(&origin, &[i; 50]).unwrap();
        }
        assert_eq!(relay.listeners[0].replies.messages(), 1);
        let Listener { socket, replies } = &mut relay.listeners[0];
        let refused = replies.send(socket.as_fd(), 0);
        assert!(cannot_segment(&refused.unwrap_err()));
        relay.reply(&origin, &[10; 60]).unwrap();
        relay.flush().unwrap();
        let mut buffer = [0; 100];
        for i in 0..11 {
            let len = client.recv(&mut buffer).unwrap();
            assert_eq!((len, buffer[0]), (if i < 10 { 50 } else { 60 }, i));
        }
        assert_eq!(relay.counters().unwrap(), Counters::default());
    }

    #[test]
    fn a_relay_can_move_to_its_thread() {
        fn movable<T: Send>(_: &T) {}
        let relay = UdpRelay::open(&[], &[]).unwrap();
        movable(&relay);
        movable(&relay.waker());
    }
}
