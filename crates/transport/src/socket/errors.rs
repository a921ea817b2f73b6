//! What the kernel reports in place of a datagram, or of one that was sent before: ICMP messages, full
//! queues.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvFlags, recv};

use super::{OpenError, option};
use crate::sys;

/// Pending ICMP errors that are worked off in one call.
pub(super) const ERRORS_MAX: usize = 16;

/// Has the kernel report a datagram that was dropped before it left, at a full queue of the interface,
/// as `ENOBUFS`. UDP hides this otherwise and counts it in `SndbufErrors`, and `sendmmsg` returns as if
/// the datagram had been sent (`IP_RECVERR`, ip(7); `udp_v6_send_skb` of Linux). The kernel then
/// queues ICMP messages as well: see [`take`].
pub(super) fn report(socket: &OwnedFd, server: SocketAddr) -> Result<(), OpenError> {
    let (level, name) = match server {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    option(
        "IP_RECVERR",
        sys::set_option(socket.as_fd(), level, name, 1),
    )
}

/// Takes up to [`ERRORS_MAX`] ICMP messages off the socket's error queue, where they use up room of the
/// receive buffer; returns how many. The kernel announces those that are left as the error of a later
/// call. To be called only after an error was reported: a socket without errors costs no system call.
pub(super) fn take(socket: &OwnedFd) -> u64 {
    let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
    // The datagram that a message is about does not matter: a short buffer cuts it off.
    let next = || recv(socket, &mut [0; 1][..], flags).is_ok();
    (0..ERRORS_MAX).take_while(|_| next()).count() as u64
}

/// Whether an ICMP message or the lack of a neighbour came back for an earlier datagram.
pub(crate) fn is_unreachable(error: &io::Error) -> bool {
    let known = [
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EPROTO,
    ];
    error.raw_os_error().is_some_and(|e| known.contains(&e))
}

/// Whether the network takes nothing more for now.
pub(crate) fn is_full(error: &io::Error) -> bool {
    let known = [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|e| known.contains(&e))
}
