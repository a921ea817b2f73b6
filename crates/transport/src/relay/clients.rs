//! [`ClientSide`] over listening kernel sockets.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventFlags};
use rustix::net::{getsockname, sockopt};

use super::pool::{drops, listener_token};
use super::{ClientSide, Origin};
use crate::socket::{
    BUFFER_BYTES, OpenError, RECEIVE_BATCH, bind_to, enlarge, freely, gather, ignore_path_mtu,
    is_full, note_asked_address, option, take, unbound,
};
use crate::sys::{FRAME_BYTES, Gather, RawAddr, ReceiveBatch};
use crate::{Counters, LinkError};

/// The sockets at which one worker receives queries.
pub struct UdpClients {
    epoll: Arc<OwnedFd>,
    listeners: Vec<Listener>,
    receive: ReceiveBatch,
    /// Listening sockets with waiting queries.
    ready: Vec<usize>,
    /// Which of them is first in this turn.
    turn: usize,
    accepting: bool,
    receive_buffer: usize,
    counted: Counters,
}

struct Listener {
    socket: OwnedFd,
    replies: Gather,
}

impl UdpClients {
    pub(super) fn over(sockets: Vec<OwnedFd>, epoll: Arc<OwnedFd>) -> Result<Self, OpenError> {
        let mut listeners = Vec::with_capacity(sockets.len());
        let mut receive_buffer = BUFFER_BYTES;
        for (i, socket) in sockets.into_iter().enumerate() {
            receive_buffer = receive_buffer.min(granted(&socket)?);
            let added = epoll::add(&epoll, &socket, listener_token(i), EventFlags::IN);
            option("epoll_ctl", added)?;
            listeners.push(Listener {
                socket,
                replies: Gather::new(),
            });
        }
        Ok(Self {
            epoll,
            listeners,
            receive: ReceiveBatch::new(RECEIVE_BATCH),
            ready: Vec::new(),
            turn: 0,
            accepting: true,
            receive_buffer,
            counted: Counters::default(),
        })
    }

    /// The listening sockets.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|it| it.socket.as_fd())
    }

    /// Address and port of listening socket `i`.
    pub fn local_addr(&self, i: usize) -> Option<SocketAddr> {
        let name = getsockname(&self.listeners.get(i)?.socket).ok()?;
        name.try_into().ok()
    }

    /// The smallest receive buffer that the kernel granted to a listening socket, in octets:
    /// [`RECEIVE_BUFFER_BYTES`] unless `net.core.rmem_max` is lower and the process has no
    /// `CAP_NET_ADMIN`.
    ///
    /// [`RECEIVE_BUFFER_BYTES`]: super::udp::RECEIVE_BUFFER_BYTES
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Clears the list of ready sockets before a new check.
    pub(super) fn forget_ready(&mut self) {
        self.ready.clear();
    }

    /// Notes waiting queries at this listening socket.
    pub(super) fn note_ready(&mut self, listener: usize) {
        self.ready.push(listener);
    }

    fn take_batch(&mut self, i: usize, asked: usize) -> Result<usize, LinkError> {
        let Some(listener) = self.listeners.get(i) else {
            return Ok(0);
        };
        let unreachable = &mut self.counted.unreachable;
        let socket = listener.socket.as_fd();
        match take(&mut self.receive, socket, asked, unreachable) {
            // Out of memory: the datagrams keep waiting.
            Err(e) if is_full(&e.reason) => Ok(0),
            taken => taken,
        }
    }

    /// Passes on the queries of one message; returns their number.
    fn hand_over(
        &mut self,
        listener: usize,
        message: usize,
        answer: &mut impl FnMut(&Origin, &[u8], &mut [u8]) -> usize,
    ) -> usize {
        let message = self.receive.message(message);
        let (Some(peer), Ok(socket)) = (message.from.addr(), u16::try_from(listener)) else {
            return 0;
        };
        let (to, local) = (*message.from, message.to);
        let origin = Origin {
            peer,
            local,
            socket,
            hop: None,
        };
        let group = to.hash();
        let listener = &mut self.listeners[listener];
        let mut total = 0;
        for payload in message.payload.chunks(message.segment.max(1)) {
            if listener.replies.is_full() {
                listener.send(&mut self.counted);
            }
            let len = answer(&origin, payload, listener.replies.frame());
            if len > 0 {
                listener.replies.push(len, group, Some(to), local);
            }
            total += 1;
        }
        total
    }
}

impl ClientSide for UdpClients {
    fn receive(
        &mut self,
        max: usize,
        mut answer: impl FnMut(&Origin, &[u8], &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        if !self.accepting {
            return Ok(0);
        }
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
                let queries = self.hand_over(i, message, &mut answer);
                total += queries;
                // A message without queries counts as one, so that a flood of them is bounded too.
                left = left.saturating_sub(queries.max(1));
            }
            if got == asked {
                self.ready.push(i);
            }
        }
        self.ready.clear();
        Ok(total)
    }

    fn reply(&mut self, to: &Origin, fill: impl FnOnce(&mut [u8]) -> usize) {
        let Some(listener) = self.listeners.get_mut(usize::from(to.socket)) else {
            self.counted.send_drops += 1;
            return;
        };
        if listener.replies.is_full() {
            listener.send(&mut self.counted);
        }
        let len = fill(listener.replies.frame());
        if (1..=FRAME_BYTES).contains(&len) {
            let raw = RawAddr::from(to.peer);
            listener.replies.push(len, raw.hash(), Some(raw), to.local);
        } else {
            self.counted.send_drops += 1;
        }
    }

    fn flush(&mut self) {
        for listener in &mut self.listeners {
            listener.send(&mut self.counted);
        }
    }

    fn accept(&mut self, yes: bool) {
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
            // Allocates nothing and therefore cannot fail; even if it failed, `receive` would still
            // respect `accepting`.
            let _ = epoll::modify(&self.epoll, &listener.socket, listener_token(i), flags);
        }
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let mut counters = self.counted;
        for listener in &self.listeners {
            counters.receive_drops += drops(&listener.socket)?;
        }
        Ok(counters)
    }
}

impl Listener {
    /// Sends the queued responses.
    fn send(&mut self, counted: &mut Counters) {
        if self.replies.is_empty() {
            return;
        }
        self.replies.arrange();
        let all = 0..self.replies.messages();
        counted.send_drops += super::udp::send_all(&mut self.replies, &self.socket, all).lost;
        self.replies.clear();
    }
}

/// Opens a listening socket for [`UdpRelay::over`](super::udp::UdpRelay::over), as
/// [`UdpRelay::open`](super::udp::UdpRelay::open) does.
///
/// # Errors
///
/// The address is not available.
pub fn listen(address: SocketAddr, free_bind: bool) -> Result<OwnedFd, OpenError> {
    let socket = unbound(address)?;
    if address.is_ipv6() {
        option("IPV6_V6ONLY", sockopt::set_ipv6_v6only(&socket, true))?;
    }
    option("SO_REUSEPORT", sockopt::set_socket_reuseport(&socket, true))?;
    if free_bind {
        option("IP_FREEBIND", freely(&socket, address))?;
    }
    bind_to(&socket, address)?;
    enlarge(&socket, BUFFER_BYTES)?;
    gather(&socket)?;
    ignore_path_mtu(&socket, address)?;
    note_asked_address(&socket, address)?;
    Ok(socket)
}

/// The size of a receive buffer, in octets.
fn granted(socket: &OwnedFd) -> Result<usize, OpenError> {
    // The kernel doubles the requested size for its own book-keeping (socket(7)).
    let doubled = option("SO_RCVBUF", sockopt::socket_recv_buffer_size(socket))?;
    Ok(doubled / 2)
}

#[cfg(test)]
mod tests {
    use super::super::Relay as _;
    use super::super::udp::UdpRelay;
    use super::*;
    use crate::sys;

    fn copy(payload: &[u8]) -> impl FnOnce(&mut [u8]) -> usize {
        |frame| {
            frame[..payload.len()].copy_from_slice(payload);
            payload.len()
        }
    }

    #[test]
    fn unsendable_run_is_sent_one_by_one() {
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let limit = std::time::Duration::from_secs(2);
        client.set_read_timeout(Some(limit)).unwrap();
        let mut relay = UdpRelay::open(&["127.0.0.1:0".parse().unwrap()], false).unwrap();
        let clients = relay.clients();
        // The kernel refuses segments of a socket without checksums with EINVAL, as it refuses
        // segments above the MTU.
        let Listener { socket, replies } = &mut clients.listeners[0];
        sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let to = RawAddr::from(client.local_addr().unwrap());
        for _ in 0..2 {
            replies.push(50, 0, Some(to), None);
        }
        replies.arrange();
        assert_eq!(replies.messages(), 1);
        let refused = replies.send(socket.as_fd(), 0, 1).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        replies.clear();
        let origin = Origin::new(client.local_addr().unwrap());
        for i in 0..10 {
            clients.reply(&origin, copy(&[i; 50]));
        }
        clients.reply(&origin, copy(&[10; 60]));
        clients.flush();
        let mut buffer = [0; 100];
        let mut got = Vec::new();
        for _ in 0..11 {
            let len = client.recv(&mut buffer).unwrap();
            got.push((buffer[0], len));
        }
        got.sort_unstable();
        let expected: Vec<_> = (0..11).map(|i| (i, if i < 10 { 50 } else { 60 })).collect();
        assert_eq!(got, expected);
        assert_eq!(clients.counters().unwrap(), Counters::default());
    }

    #[test]
    fn receive_buffer_is_the_granted_size_and_not_the_requested_size() {
        let mut relay = UdpRelay::open(&["127.0.0.1:0".parse().unwrap()], false).unwrap();
        let clients = relay.clients();
        let socket = clients.listeners[0].socket.as_fd();
        let kernel = sys::get_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap();
        assert_eq!(
            2 * clients.receive_buffer(),
            usize::try_from(kernel).unwrap()
        );
        // Far above any limit: the kernel grants less, without an error.
        let socket = unbound("127.0.0.1:0".parse().unwrap()).unwrap();
        let huge = usize::try_from(i32::MAX).unwrap();
        enlarge(&socket, huge).unwrap();
        assert!(granted(&socket).unwrap() < huge);
    }

    /// RFC 9715 section 3.1, R2.
    #[test]
    fn responses_ignore_icmp_messages_about_the_path_mtu() {
        for (address, level, name, expected) in [
            (
                "127.0.0.1:0",
                libc::IPPROTO_IP,
                libc::IP_MTU_DISCOVER,
                libc::IP_PMTUDISC_OMIT,
            ),
            (
                "[::1]:0",
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_OMIT,
            ),
        ] {
            let socket = listen(address.parse().unwrap(), false).unwrap();
            assert_eq!(
                sys::get_option(socket.as_fd(), level, name).unwrap(),
                expected
            );
        }
    }
}
