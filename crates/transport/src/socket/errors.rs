//! Errors that the kernel reports in place of a datagram, or for an earlier one: ICMP messages, full queues.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvFlags, recv};

use super::{OpenError, option};
use crate::sys;

/// Maximum number of pending ICMP errors processed in one call.
pub(super) const ERRORS_MAX: usize = 16;

/// Makes the kernel report a datagram that was dropped before transmission, at a full queue of the interface, as
/// `ENOBUFS`. Otherwise UDP hides this and counts it in `SndbufErrors`, and `sendmmsg` returns as if the datagram had
/// been sent (`IP_RECVERR`, ip(7); `udp_v6_send_skb` of Linux). The kernel then queues ICMP messages as well: see
/// [`take`].
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

/// Removes up to [`ERRORS_MAX`] ICMP messages from the socket's error queue, which uses space of the receive buffer;
/// returns their number. The kernel reports the remaining ones as the error of a later call. To be called only after a
/// reported error: a socket without errors needs no system call.
pub(super) fn take(socket: &OwnedFd) -> u64 {
    let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
    // The datagram in a message is irrelevant: a short buffer truncates it.
    let next = || recv(socket, &mut [0; 1][..], flags).is_ok();
    (0..ERRORS_MAX).take_while(|_| next()).count() as u64
}

/// Whether an earlier datagram failed with an ICMP message or without a neighbour.
pub(crate) fn is_unreachable(error: &io::Error) -> bool {
    let known = [
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EPROTO,
    ];
    error.raw_os_error().is_some_and(|e| known.contains(&e))
}

/// Whether the network accepts no more datagrams for now.
pub(crate) fn is_full(error: &io::Error) -> bool {
    let known = [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|e| known.contains(&e))
}
