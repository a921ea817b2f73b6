//! All unsafe calls of the project: `recvmmsg`, `sendmmsg`, and the socket options without a safe wrapper.
//!
//! Both batches own all memory that the kernel accesses, in boxed slices that never move or grow, and rebuild the
//! pointers before each call.

pub(crate) mod bpf;
mod gather;
pub(crate) mod stream;
pub(crate) mod xsk;

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use libc::{c_int, c_void, cmsghdr, iovec, mmsghdr, msghdr};

use crate::LocalAddr;
pub(crate) use gather::Gather;

/// Space for the control messages of one datagram: receive timestamp, segment size, packet info.
const CONTROL_BYTES: usize = 128;

/// Control messages are aligned like their header.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// A socket address as the kernel writes it; large enough for both families, compared bytewise.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct RawAddr {
    bytes: [u8; size_of::<libc::sockaddr_in6>()],
    len: u32,
}

impl RawAddr {
    const EMPTY: Self = Self {
        bytes: [0; size_of::<libc::sockaddr_in6>()],
        len: 0,
    };

    /// The address, if its family is one of those that this crate opens sockets for.
    pub(crate) fn addr(&self) -> Option<SocketAddr> {
        let b = &self.bytes;
        let port = u16::from_be_bytes([b[2], b[3]]);
        match c_int::from(u16::from_ne_bytes([b[0], b[1]])) {
            libc::AF_INET => {
                let ip = Ipv4Addr::new(b[4], b[5], b[6], b[7]);
                Some(SocketAddrV4::new(ip, port).into())
            }
            libc::AF_INET6 => {
                let flow = u32::from_be_bytes([b[4], b[5], b[6], b[7]]);
                let ip: [u8; 16] = b[8..24].try_into().ok()?;
                let scope = u32::from_ne_bytes([b[24], b[25], b[26], b[27]]);
                Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
            }
            _ => None,
        }
    }

    /// Hashes the address to 32 bits. An attacker who selects colliding addresses only makes the grouping of his
    /// responses less efficient.
    pub(crate) fn hash(&self) -> u32 {
        let (words, _) = self.bytes.as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let mixed = words.fold(0, |hash: u64, word| {
            (hash.rotate_left(29) ^ word).wrapping_mul(crate::random::INCREMENT)
        });
        (mixed >> 32) as u32
    }
}

impl From<SocketAddr> for RawAddr {
    fn from(addr: SocketAddr) -> Self {
        let mut raw = Self::EMPTY;
        let b = &mut raw.bytes;
        b[2..4].copy_from_slice(&addr.port().to_be_bytes());
        let family = match addr {
            SocketAddr::V4(v4) => {
                b[4..8].copy_from_slice(&v4.ip().octets());
                raw.len = length(size_of::<libc::sockaddr_in>());
                libc::AF_INET
            }
            SocketAddr::V6(v6) => {
                b[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                b[8..24].copy_from_slice(&v6.ip().octets());
                b[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                raw.len = length(size_of::<libc::sockaddr_in6>());
                libc::AF_INET6
            }
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "both families are small positive numbers"
        )]
        raw.bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        raw
    }
}

/// One received datagram, or several segments of equal length (the last may be shorter).
pub(crate) struct Received<'a> {
    pub(crate) payload: &'a [u8],
    /// Length of the segments; the payload length for a single datagram.
    pub(crate) segment: usize,
    /// Kernel receive timestamp, nanoseconds of real time.
    pub(crate) stamp_ns: Option<u64>,
    pub(crate) from: &'a RawAddr,
    pub(crate) to: Option<LocalAddr>,
}

/// Buffers for one `recvmmsg`.
pub(crate) struct ReceiveBatch {
    headers: Box<[mmsghdr]>,
    iovecs: Box<[iovec]>,
    names: Box<[RawAddr]>,
    controls: Box<[Control]>,
    payloads: Box<[u8]>,
}

// SAFETY: the raw pointers inside point into the batch's own boxes, and only the kernel follows them, during a call
// through `&mut self`.
unsafe impl Send for ReceiveBatch {}

/// Upper bound of a UDP payload, segmented or not.
const PAYLOAD_BYTES: usize = 65_536;

/// Distance between buffers: more than a payload, so that their first lines do not all fall into the same set of the
/// first-level cache.
const PAYLOAD_STRIDE: usize = PAYLOAD_BYTES + 192;

impl ReceiveBatch {
    pub(crate) fn new(messages: usize) -> Self {
        // SAFETY: mmsghdr and iovec are plain C structures for which all zeroes is a valid value.
        let (header, vec) = unsafe { (zeroed::<mmsghdr>(), zeroed::<iovec>()) };
        Self {
            headers: vec![header; messages].into(),
            iovecs: vec![vec; messages].into(),
            names: vec![RawAddr::EMPTY; messages].into(),
            controls: vec![Control([0; CONTROL_BYTES]); messages].into(),
            payloads: vec![0; messages * PAYLOAD_STRIDE].into(),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.headers.len()
    }

    /// Receives up to `max` datagrams from the socket without waiting.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, max: usize) -> io::Result<usize> {
        let n = max.min(self.capacity());
        for i in 0..n {
            self.iovecs[i] = iovec {
                iov_base: self.payloads[i * PAYLOAD_STRIDE..].as_mut_ptr().cast(),
                iov_len: PAYLOAD_BYTES,
            };
            let header = &mut self.headers[i].msg_hdr;
            header.msg_name = ptr::from_mut(&mut self.names[i].bytes).cast();
            header.msg_namelen = length(size_of::<libc::sockaddr_in6>());
            header.msg_iov = ptr::from_mut(&mut self.iovecs[i]);
            header.msg_iovlen = 1;
            header.msg_control = ptr::from_mut(&mut self.controls[i]).cast();
            header.msg_controllen = CONTROL_BYTES as _;
            header.msg_flags = 0;
        }
        // SAFETY: the first n headers point to a name, a payload and a control buffer of the
        // lengths stated, all owned by self and not otherwise borrowed during the call.
        let got = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                length(n),
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    /// Datagram `i` of the last call to `receive`.
    pub(crate) fn message(&mut self, i: usize) -> Received<'_> {
        let header = &self.headers[i];
        self.names[i].len = header.msg_hdr.msg_namelen;
        let len = (header.msg_len as usize).min(PAYLOAD_BYTES);
        let start = i * PAYLOAD_STRIDE;
        let mut received = Received {
            payload: &self.payloads[start..start + len],
            segment: len,
            stamp_ns: None,
            from: &self.names[i],
            to: None,
        };
        read_control(&header.msg_hdr, &mut received);
        received
    }
}

/// Reads timestamp, segment size and local address from the control messages.
fn read_control(header: &msghdr, received: &mut Received<'_>) {
    // SAFETY: the header was filled by recvmmsg, its control pointer and length describe a
    // buffer of the batch that is still alive; CMSG_* stay within that length.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return null or a whole header in the buffer.
        let control: cmsghdr = unsafe { ptr::read_unaligned(next) };
        // SAFETY: the data follows the header within the same control message.
        let data = unsafe { libc::CMSG_DATA(next) };
        match (control.cmsg_level, control.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the kernel wrote a timespec, by the type of this message.
                let t: libc::timespec = unsafe { ptr::read_unaligned(data.cast()) };
                received.stamp_ns =
                    Some(t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned());
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // SAFETY: the kernel wrote an int, by the type of this message.
                let size: c_int = unsafe { ptr::read_unaligned(data.cast()) };
                received.segment = usize::try_from(size).unwrap_or(received.segment).max(1);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: the kernel wrote an in6_pktinfo, by the type of this message.
                let info: libc::in6_pktinfo = unsafe { ptr::read_unaligned(data.cast()) };
                let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                let link_local = ip.is_unicast_link_local();
                received.to = Some(LocalAddr {
                    ip: ip.into(),
                    interface: if link_local { info.ipi6_ifindex } else { 0 },
                });
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: the kernel wrote an in_pktinfo, by the type of this message.
                let info: libc::in_pktinfo = unsafe { ptr::read_unaligned(data.cast()) };
                let ip = Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes());
                received.to = Some(LocalAddr {
                    ip: ip.into(),
                    interface: 0,
                });
            }
            _ => {}
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
}

/// Writes the control message that sets this source address; returns its length with padding.
fn write_source(at: &mut [u8], source: LocalAddr) -> usize {
    let interface = source.interface.to_ne_bytes();
    match source.ip {
        IpAddr::V4(ip) => {
            // struct in_pktinfo: interface, source address, and an address for receivers only.
            let mut info = [0; size_of::<libc::in_pktinfo>()];
            info[..4].copy_from_slice(&interface);
            info[4..8].copy_from_slice(&ip.octets());
            write_control(at, libc::IPPROTO_IP, libc::IP_PKTINFO, &info)
        }
        IpAddr::V6(ip) => {
            // struct in6_pktinfo: source address, interface.
            let mut info = [0; size_of::<libc::in6_pktinfo>()];
            info[..16].copy_from_slice(&ip.octets());
            info[16..].copy_from_slice(&interface);
            write_control(at, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info)
        }
    }
}

/// A datagram to be sent, or a run of datagrams of equal length to the same destination.
#[derive(Clone, Copy)]
struct Outgoing {
    start: usize,
    len: usize,
    segment: usize,
    segments: usize,
    local: Option<LocalAddr>,
}

/// Buffers for one `sendmmsg`. Frames are written consecutively into one buffer, so that neighbours of equal length and
/// destination can be passed to the kernel as one segmented datagram.
pub(crate) struct SendBatch {
    headers: Box<[mmsghdr]>,
    iovecs: Box<[iovec]>,
    names: Box<[RawAddr]>,
    controls: Box<[Control]>,
    outgoing: Vec<Outgoing>,
    buffer: Box<[u8]>,
    used: usize,
    /// Whether they are.
    segmented: bool,
}

// SAFETY: as for ReceiveBatch.
unsafe impl Send for SendBatch {}

/// Maximum length of a single datagram; a DNS response over UDP usually has at most 4096 bytes (RFC 6891 6.2.5).
pub const FRAME_BYTES: usize = 4096;

/// Bytes of all frames in one batch.
const BUFFER_BYTES: usize = 64 * FRAME_BYTES;

/// Maximum number of segments in one call (`UDP_MAX_SEGMENTS` of Linux 4.18).
const SEGMENTS_MAX: usize = 64;

/// A segmented datagram is an IP packet in transit: below 64 KiB with its headers.
const SEGMENTED_BYTES_MAX: usize = 65_000;

impl SendBatch {
    pub(crate) fn new(messages: usize, segmented: bool) -> Self {
        // SAFETY: mmsghdr and iovec are plain C structures for which all zeroes is a valid value.
        let (header, vec) = unsafe { (zeroed::<mmsghdr>(), zeroed::<iovec>()) };
        Self {
            headers: vec![header; messages].into(),
            iovecs: vec![vec; messages].into(),
            names: vec![RawAddr::EMPTY; messages].into(),
            controls: vec![Control([0; CONTROL_BYTES]); messages].into(),
            outgoing: Vec::with_capacity(messages),
            buffer: vec![0; BUFFER_BYTES].into(),
            used: 0,
            segmented,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.outgoing.clear();
        self.used = 0;
    }

    /// Whether one more frame, of any length and to any destination, may not fit.
    pub(crate) fn is_full(&self) -> bool {
        self.outgoing.len() == self.headers.len() || self.buffer.len() - self.used < FRAME_BYTES
    }

    /// Buffer of the next frame. The batch must not be full.
    pub(crate) fn frame(&mut self) -> &mut [u8] {
        &mut self.buffer[self.used..self.used + FRAME_BYTES]
    }

    /// Adds the first `len` bytes of the frame; `to` is `None` for a connected socket.
    pub(crate) fn push(&mut self, len: usize, to: Option<&RawAddr>, local: Option<LocalAddr>) {
        let len = len.min(FRAME_BYTES);
        let start = self.used;
        self.used += len;
        let to = to.copied().unwrap_or(RawAddr::EMPTY);
        let n = self.outgoing.len();
        if self.segmented
            && let Some(last) = self.outgoing.last_mut()
            && last.segment == len
            && last.segments < SEGMENTS_MAX
            && last.len + len <= SEGMENTED_BYTES_MAX
            && last.local == local
            && self.names[n - 1] == to
        {
            last.len += len;
            last.segments += 1;
            return;
        }
        self.names[n] = to;
        self.outgoing.push(Outgoing {
            start,
            len,
            segment: len,
            segments: 1,
            local,
        });
    }

    /// Sends messages from `first` on; returns the number that the kernel accepted. See [`SendBatch::segments`] for the
    /// number of frames in a message.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, first: usize) -> io::Result<usize> {
        let n = self.outgoing.len();
        for i in first..n {
            self.prepare(i);
        }
        // SAFETY: `prepare` has pointed these headers to names, payloads and control buffers of
        // the lengths stated, all owned by self and unchanged since.
        unsafe { send_messages(socket, &mut self.headers[first..n]) }
    }

    /// Number of messages in the batch.
    pub(crate) fn messages(&self) -> usize {
        self.outgoing.len()
    }

    /// Number of frames in message `i`.
    pub(crate) fn segments(&self, i: usize) -> usize {
        self.outgoing[i].segments
    }

    fn prepare(&mut self, i: usize) {
        let out = self.outgoing[i];
        self.iovecs[i] = iovec {
            iov_base: self.buffer[out.start..].as_mut_ptr().cast(),
            iov_len: out.len,
        };
        let header = &mut self.headers[i].msg_hdr;
        header.msg_iov = ptr::from_mut(&mut self.iovecs[i]);
        header.msg_iovlen = 1;
        #[expect(clippy::cast_possible_truncation, reason = "at most FRAME_BYTES")]
        let segment = (out.segments > 1).then_some(out.segment as u16);
        let (name, control) = (&mut self.names[i], &mut self.controls[i]);
        address(header, name, control, segment, out.local);
    }
}

/// Sets the destination, the segment size and the source address in a message header.
fn address(
    header: &mut msghdr,
    name: &mut RawAddr,
    control: &mut Control,
    segment: Option<u16>,
    local: Option<LocalAddr>,
) {
    let mut control_len = 0;
    if let Some(segment) = segment {
        let segment = segment.to_ne_bytes();
        control_len += write_control(&mut control.0, libc::SOL_UDP, libc::UDP_SEGMENT, &segment);
    }
    if let Some(local) = local {
        control_len += write_source(&mut control.0[control_len..], local);
    }
    header.msg_name = if name.len == 0 {
        ptr::null_mut()
    } else {
        ptr::from_mut(&mut name.bytes).cast()
    };
    header.msg_namelen = name.len;
    header.msg_control = if control_len == 0 {
        ptr::null_mut()
    } else {
        ptr::from_mut(control).cast()
    };
    // C libraries differ in the types of lengths and flags.
    header.msg_controllen = control_len as _;
    header.msg_flags = 0;
}

/// Passes messages to the kernel without waiting; returns the number that it accepted.
///
/// # Safety
///
/// Each header points to a name, payloads and control messages of the lengths that it states, which do not change
/// during the call. The kernel only reads them.
unsafe fn send_messages(socket: BorrowedFd<'_>, headers: &mut [mmsghdr]) -> io::Result<usize> {
    // SAFETY: guaranteed by the caller; the slice has the stated length.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            length(headers.len()),
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Writes one control message and returns its length with padding.
fn write_control(at: &mut [u8], level: c_int, kind: c_int, data: &[u8]) -> usize {
    // SAFETY: both are arithmetic on the length.
    let (len, space) = unsafe {
        (
            libc::CMSG_LEN(length(data.len())),
            libc::CMSG_SPACE(length(data.len())),
        )
    };
    // SAFETY: cmsghdr is a plain C structure for which all zeroes is a valid value; musl's has a hidden member.
    let mut header = unsafe { zeroed::<cmsghdr>() };
    header.cmsg_len = len as _;
    header.cmsg_level = level;
    header.cmsg_type = kind;
    let data_at = len as usize - data.len();
    assert!(
        at.len() >= space as usize,
        "control buffer holds every message that is written"
    );
    // SAFETY: the buffer has space for the header, as asserted; cmsghdr has no padding here and the write needs no
    // alignment.
    unsafe { ptr::write_unaligned(at.as_mut_ptr().cast(), header) };
    at[data_at..data_at + data.len()].copy_from_slice(data);
    space as usize
}

/// Sets a socket option that is an int.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    set_octets(socket, level, name, &value.to_ne_bytes())
}

/// Sets an option that is not a number.
pub(crate) fn set_octets(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the value outlives the call and its length is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast::<c_void>(),
            length(value.len()),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Reads a socket option that is an int.
#[cfg(test)]
pub(crate) fn get_option(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = length(size_of::<c_int>());
    // SAFETY: the kernel writes at most len bytes into value and the new length into len.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_mut(&mut value).cast::<c_void>(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Number of datagrams that the socket has dropped since it was opened (`sk_drops`, the number in `SO_RXQ_OVFL` and in
/// the last column of `/proc/net/udp`).
pub(crate) fn drops(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = [0_u32; MEMINFO_VARS];
    let mut len = length(size_of_val(&info));
    // SAFETY: the kernel writes at most len bytes into info and the new length into len.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            ptr::from_mut(&mut info).cast::<c_void>(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok(u64::from(info[MEMINFO_DROPS]))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `SK_MEMINFO_VARS` and `SK_MEMINFO_DROPS` of `linux/sock_diag.h`.
const MEMINFO_VARS: usize = 9;
const MEMINFO_DROPS: usize = 8;

/// Converts a length to 32 bits for the kernel; all lengths here are small.
fn length(n: usize) -> u32 {
    u32::try_from(n).expect("batch and buffer sizes are constants far below 4 GiB")
}
