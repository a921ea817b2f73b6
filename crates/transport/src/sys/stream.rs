//! Calls on TCP sockets: data with its receive timestamp, and the state of the peer's window.

use std::io;
use std::mem::{size_of_val, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use libc::{c_void, iovec, msghdr};

use super::{CONTROL_BYTES, Control, RawAddr, Received, length, read_control};

/// Reads what has arrived at a TCP socket, without waiting; 0 octets at the end of the stream. Returns the number of octets
/// and, if the socket has `SO_TIMESTAMPNS`, when the last of them arrived: nanoseconds of real time.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    piece: &mut [u8],
) -> io::Result<(usize, Option<u64>)> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut vec = iovec {
        iov_base: piece.as_mut_ptr().cast(),
        iov_len: piece.len(),
    };
    // SAFETY: msghdr is a plain C structure for which all zeroes is a valid value.
    let mut header = unsafe { zeroed::<msghdr>() };
    header.msg_iov = ptr::from_mut(&mut vec);
    header.msg_iovlen = 1;
    header.msg_control = ptr::from_mut(&mut control).cast();
    header.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the header points to one buffer and a control buffer of the lengths stated, which outlive the call.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    let mut received = Received {
        payload: &[],
        segment: 0,
        stamp_ns: None,
        from: &RawAddr::EMPTY,
        to: None,
    };
    read_control(&header, &mut received);
    Ok((got, received.stamp_ns))
}

/// What the kernel knows of the sending side of a TCP socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// Octets wait in the socket, and the peer's window has no room for a segment of them.
    pub(crate) is_window_closed: bool,
    /// Segments that were sent again.
    pub(crate) retransmitted: u64,
}

/// Reads the state of the sending side (`TCP_INFO`).
pub(crate) fn sending(socket: BorrowedFd<'_>) -> io::Result<Sending> {
    let mut info = [0_u32; INFO_WORDS];
    let mut len = length(size_of_val(&info));
    // SAFETY: the kernel writes at most len bytes into info and the new length into len.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            ptr::from_mut(&mut info).cast::<c_void>(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // The lower halves of 64-bit counters: their difference is below 4 GiB.
    let low = |at: usize| match cfg!(target_endian = "little") {
        true => info[at],
        false => info[at + 1],
    };
    let sent = low(BYTES_SENT).wrapping_sub(low(BYTES_RETRANSMITTED));
    let in_flight = sent.wrapping_sub(low(BYTES_ACKED));
    let room = info[WINDOW].saturating_sub(in_flight);
    Ok(Sending {
        is_window_closed: info[NOT_SENT] > 0 && room < info[SEGMENT],
        retransmitted: u64::from(info[RETRANSMITTED]),
    })
}

/// Words of `struct tcp_info` (`linux/tcp.h`) up to `tcpi_snd_wnd`, which Linux has since 5.4, and their indices.
const INFO_WORDS: usize = 58;
const SEGMENT: usize = 4;
const RETRANSMITTED: usize = 25;
const BYTES_ACKED: usize = 30;
const NOT_SENT: usize = 36;
const BYTES_SENT: usize = 50;
const BYTES_RETRANSMITTED: usize = 52;
const WINDOW: usize = 57;
