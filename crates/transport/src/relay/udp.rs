//! [`Relay`] over kernel UDP sockets: one epoll set, `recvmmsg`, `sendmmsg`, `UDP_SEGMENT` and
//! `UDP_GRO`.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use super::pool::{Ready, waker_token};
use super::{Relay, UdpClients, UdpUpstreams};
use crate::LinkError;
use crate::clock::Nanos;
use crate::socket::{BUFFER_BYTES, OpenError, is_full, is_unreachable, option};
use crate::sys::Gather;

/// Kernel sockets of one worker, for clients and for upstreams.
pub struct UdpRelay {
    pub(crate) epoll: Arc<OwnedFd>,
    waker: Waker,
    pub(crate) clients: UdpClients,
    pub(crate) upstreams: UdpUpstreams,
}

/// Receive buffer that each listening socket requests, in octets.
pub const RECEIVE_BUFFER_BYTES: usize = BUFFER_BYTES;

/// Wakes a relay from another thread. Clones wake the same relay.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the relay's current or next [`Relay::wait`].
    pub fn wake(&self) {
        // The only possible failure is a full counter, which wakes too.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn drain(&self) {
        // The only possible failure is that the waker was not used.
        let _ = rustix::io::read(&self.0, &mut [0; size_of::<u64>()]);
    }
}

/// Maximum number of ready sockets returned by one call of epoll. The next call returns the others,
/// because epoll moves reported sockets to the end.
const EVENTS: usize = 128;

impl UdpRelay {
    /// Opens a socket at each address of `listen`; several relays may listen at the same address
    /// and the kernel distributes the clients to them. At an unspecified address, responses are
    /// sent from the address that was queried; an IPv6 one serves IPv6 only.
    /// With `free_bind`, an address need not belong to an interface yet (`IP_FREEBIND`, ip(7)).
    pub fn open(listen: &[SocketAddr], free_bind: bool) -> Result<Self, OpenError> {
        let one = |&address| super::listen(address, free_bind);
        Self::over(listen.iter().map(one).collect::<Result<_, _>>()?)
    }

    /// Like [`UdpRelay::open`], with sockets that listen already; several may have the same address.
    ///
    /// # Errors
    ///
    /// The system refuses to watch them.
    pub fn over(listening: Vec<OwnedFd>) -> Result<Self, OpenError> {
        let epoll = option("epoll_create1", epoll::create(epoll::CreateFlags::CLOEXEC))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let waker = Waker(Arc::new(option("eventfd2", eventfd(0, flags))?));
        let added = epoll::add(&epoll, &waker.0, waker_token(), EventFlags::IN);
        option("epoll_ctl", added)?;
        let epoll = Arc::new(epoll);
        Ok(Self {
            clients: UdpClients::over(listening, Arc::clone(&epoll))?,
            upstreams: UdpUpstreams::new(Arc::clone(&epoll)),
            epoll,
            waker,
        })
    }

    /// A handle that ends this relay's wait.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Forgets which sockets are ready; the next [`Relay::wait`] finds them again.
    pub(crate) fn forget_ready(&mut self) {
        self.clients.forget_ready();
        self.upstreams.forget_ready();
    }
}

impl Relay for UdpRelay {
    type Clients = UdpClients;
    type Upstreams = UdpUpstreams;

    fn clients(&mut self) -> &mut UdpClients {
        &mut self.clients
    }

    fn upstreams(&mut self) -> &mut UdpUpstreams {
        &mut self.upstreams
    }

    /// A wake-up is remembered until here: a caller that checks for messages once between two waits
    /// misses none.
    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError> {
        self.forget_ready();
        let timeout = if self.upstreams.has_returned() {
            0
        } else {
            timeout
        };
        let timeout = std::time::Duration::from_nanos(timeout);
        let timeout = rustix::time::Timespec::try_from(timeout).unwrap_or_default();
        let mut room = [const { MaybeUninit::uninit() }; EVENTS];
        let events = match epoll::wait(&self.epoll, &mut room, Some(&timeout)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => {
                return Err(LinkError {
                    call: "epoll_wait",
                    reason: e.into(),
                });
            }
        };
        for event in events {
            match Ready::of(event.data) {
                Ready::Listener(i) => self.clients.note_ready(i),
                Ready::Port { server, port } => self.upstreams.note_ready(server, port),
                Ready::Waker => self.waker.drain(),
            }
        }
        Ok(())
    }
}

/// Result of sending frames.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Frames that the network did not accept.
    pub(super) lost: u64,
    /// ICMP errors for earlier frames, reported by the socket.
    pub(super) unreachable: u64,
}

/// Sends these messages of the batch.
pub(super) fn send_all(batch: &mut Gather, socket: &OwnedFd, messages: Range<usize>) -> Sent {
    let mut told = Sent::default();
    let mut tried_again = false;
    let mut message = messages.start;
    while message < messages.end {
        match batch.send(socket.as_fd(), message, messages.end) {
            Ok(sent) => message += sent,
            // The error belongs to an earlier datagram; this one has not been sent yet.
            Err(e) if !tried_again && is_unreachable(&e) => {
                told.unreachable += 1;
                tried_again = true;
                continue;
            }
            Err(e) if is_full(&e) => {
                let left = (message..messages.end).map(|i| batch.segments(i) as u64);
                told.lost += left.sum::<u64>();
                break;
            }
            Err(e) if batch.segments(message) > 1 && cannot_segment(&e) => {
                for segment in 0..batch.segments(message) {
                    let sent = batch.send_one(socket.as_fd(), message, segment);
                    told.lost += u64::from(sent.is_err());
                }
                message += 1;
            }
            // One client or server is unreachable; the others are not.
            Err(_) => {
                told.lost += batch.segments(message) as u64;
                message += 1;
            }
        }
        tried_again = false;
    }
    told
}

/// Whether the path of a run of datagrams may be the cause: a segment must fit into its MTU
/// (`EINVAL`, or `EMSGSIZE` from newer kernels), and IPsec and devices without checksum offload
/// accept no runs (`EIO`).
fn cannot_segment(error: &std::io::Error) -> bool {
    let known = [libc::EINVAL, libc::EMSGSIZE, libc::EIO];
    error.raw_os_error().is_some_and(|e| known.contains(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_can_move_to_another_thread() {
        fn movable<T: Send>(_: &T) {}
        let relay = UdpRelay::open(&[], false).unwrap();
        movable(&relay);
        movable(&relay.waker());
    }
}
