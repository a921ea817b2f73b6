//! An AF_XDP socket: memory that is shared with the kernel, and its four rings (Documentation/networking/af_xdp.rst of
//! Linux).
//!
//! Half of the frames are for receiving, half for sending, so that [`Arrivals`] and [`Departures`] can be used at the
//! same time. The kernel owns a frame from the moment its number is put into a ring until it returns in the other ring;
//! each half ensures this for its own frames.

mod ring;

use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use libc::{c_int, c_void};

use super::length;
use crate::clock::{Clock as _, MonotonicClock, Nanos, SECOND};
use ring::{Mapping, Ring};

/// Octets before a received frame that hold its arrival time; zero without a timestamp.
const STAMP_BYTES: usize = size_of::<u64>();

/// Option of newer kernels: number of frames that one call sends in copy mode (`XDP_MAX_TX_SKB_BUDGET`, Linux 6.17).
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;

/// Options for opening a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) interface: u32,
    pub(crate) queue: u32,
    /// Size of a frame in octets: a power of two, at least 2048.
    pub(crate) frame_bytes: usize,
    /// Numbers of frames for receiving and for sending: powers of two.
    pub(crate) arrivals: u32,
    pub(crate) departures: u32,
    /// Forces copy mode, even if the driver supports zero copy.
    pub(crate) copies: bool,
}

/// How frames come from the driver to a socket and back, as the kernel chose it when the socket was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Copying {
    /// The kernel copies each frame.
    Copy,
    /// The driver uses the memory of the socket.
    Zero,
}

impl Copying {
    /// By the flags of `struct xdp_options`.
    fn of(options: u32) -> Self {
        match options & libc::XDP_OPTIONS_ZEROCOPY {
            0 => Self::Copy,
            _ => Self::Zero,
        }
    }
}

impl fmt::Display for Copying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Copy => "copy",
            Self::Zero => "zero-copy",
        })
    }
}

/// The kernel's counters of a socket: `struct xdp_statistics`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) dropped: u64,
    pub(crate) invalid_arrivals: u64,
    pub(crate) invalid_departures: u64,
    pub(crate) ring_full: u64,
    pub(crate) no_frames: u64,
    pub(crate) nothing_to_send: u64,
}

/// Opens a socket at one queue of an interface. The caller must add it to the map of the steering program by
/// [`Arrivals::fd`].
pub(crate) fn open(config: &Config) -> io::Result<(Arrivals, Departures)> {
    let frames = (config.arrivals + config.departures) as usize;
    let area = Area::map(frames * config.frame_bytes)?;
    let fd = socket()?;
    size(&fd, config, &area)?;
    let offsets: Offsets = get(&fd, libc::XDP_MMAP_OFFSETS)?;
    let ring =
        |page: u64, at: &Offset, size: u32, entry: usize| Ring::map(&fd, page, at, size, entry);
    let (arrivals, departures) = (config.arrivals, config.departures);
    let fill = ring(libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fill, arrivals, 8)?;
    let completion = ring(
        libc::XDP_UMEM_PGOFF_COMPLETION_RING,
        &offsets.completion,
        departures,
        8,
    )?;
    let received = ring(
        libc::XDP_PGOFF_RX_RING.cast_unsigned(),
        &offsets.received,
        arrivals,
        16,
    )?;
    let sent = ring(
        libc::XDP_PGOFF_TX_RING.cast_unsigned(),
        &offsets.sent,
        departures,
        16,
    )?;
    let (fd, frame_bytes) = (Arc::new(fd), config.frame_bytes);
    let numbers = |range: std::ops::Range<u32>| range.map(|i| u64::from(i) * frame_bytes as u64);
    let mut all = Arrivals {
        fd: Arc::clone(&fd),
        area: Arc::clone(&area),
        fill,
        received,
        frame_bytes: frame_bytes as u64,
    };
    numbers(0..arrivals).for_each(|number| all.give(number));
    // Before a driver that does not copy takes its first frames: one that finds none may receive nothing until it is woken.
    all.fill.publish();
    patiently(|| bind(&fd, config))?;
    let copying = Copying::of(get(&fd, libc::XDP_OPTIONS)?);
    let free = numbers(arrivals..arrivals + departures).collect();
    let departures = Departures {
        fd,
        area,
        completion,
        sent,
        free,
        frame_bytes,
        copying,
    };
    Ok((all, departures))
}

/// Repeats while the queue is still held by a process that has ended or by a link that was closed. The socket stays: each
/// new one would register its memory, and the kernel's worker that releases the queue would first release that, too.
fn patiently(bind: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let end = MonotonicClock.now() + RELEASE_NS;
    let mut pause_ns = RETRY_NS;
    loop {
        match bind() {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && MonotonicClock.now() < end => {
                MonotonicClock.sleep(pause_ns);
                pause_ns = (2 * pause_ns).min(RETRY_MAX_NS);
            }
            result => return result,
        }
    }
}

/// Maximum time until the kernel releases a queue after its last user has ended: some 70 ms, but seconds on a busy
/// machine (RCU, a worker thread of the kernel and the lock of all interfaces); 20 s were not always enough.
pub const RELEASE_NS: Nanos = 60 * SECOND;
const RETRY_NS: Nanos = 5_000_000;
const RETRY_MAX_NS: Nanos = SECOND / 4;

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers the memory and sets the ring sizes.
fn size(fd: &OwnedFd, config: &Config, area: &Area) -> io::Result<()> {
    let memory = Registration {
        start: area.0.start.as_ptr() as u64,
        bytes: area.0.bytes as u64,
        frame_bytes: length(config.frame_bytes),
        ..Registration::default()
    };
    set(fd, libc::XDP_UMEM_REG, &memory)?;
    set(fd, libc::XDP_UMEM_FILL_RING, &config.arrivals)?;
    set(fd, libc::XDP_RX_RING, &config.arrivals)?;
    set(fd, libc::XDP_UMEM_COMPLETION_RING, &config.departures)?;
    set(fd, libc::XDP_TX_RING, &config.departures)?;
    // Older kernels send 32 at a time and then report busy: each batch needs another call.
    let _ = set(fd, XDP_MAX_TX_SKB_BUDGET, &config.departures.min(256));
    Ok(())
}

/// `struct xdp_umem_reg` up to its flags.
#[repr(C)]
#[derive(Default)]
struct Registration {
    start: u64,
    bytes: u64,
    frame_bytes: u32,
    headroom: u32,
    flags: u32,
    _pad: u32,
}

/// `struct xdp_ring_offset` and `struct xdp_mmap_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Offset {
    producer: u64,
    consumer: u64,
    entries: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Offsets {
    received: Offset,
    sent: Offset,
    fill: Offset,
    completion: Offset,
}

fn bind(fd: &OwnedFd, config: &Config) -> io::Result<()> {
    let copies = if config.copies { libc::XDP_COPY } else { 0 };
    let address = libc::sockaddr_xdp {
        #[expect(clippy::cast_possible_truncation, reason = "a small positive number")]
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP | copies,
        sxdp_ifindex: config.interface,
        sxdp_queue_id: config.queue,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: the address outlives the call and its length is given.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            length(size_of::<libc::sockaddr_xdp>()),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set<T>(fd: &OwnedFd, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the value outlives the call and its length is given; the kernel checks the content.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            name,
            std::ptr::from_ref(value).cast::<c_void>(),
            length(size_of::<T>()),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `T` is one of the integer structures above.
fn get<T: Default>(fd: &OwnedFd, name: c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut len = length(size_of::<T>());
    // SAFETY: the kernel writes at most len octets into a structure of integers, for which all values are valid.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            name,
            std::ptr::from_mut(&mut value).cast::<c_void>(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The frames of one socket.
struct Area(Mapping);

impl Area {
    fn map(bytes: usize) -> io::Result<Arc<Self>> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Ok(Arc::new(Self(Mapping::new(bytes, flags, -1, 0)?)))
    }

    /// # Safety
    ///
    /// These octets must have no other user, including the kernel, while the slice lives.
    #[expect(
        clippy::mut_from_ref,
        reason = "each half tracks the ownership of its frames"
    )]
    unsafe fn octets(&self, at: u64, bytes: usize) -> Option<&mut [u8]> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(bytes)?;
        // SAFETY: within the mapping, as checked; the caller guarantees the rest.
        (end <= self.0.bytes).then(|| unsafe {
            std::slice::from_raw_parts_mut(self.0.start.as_ptr().add(at), bytes)
        })
    }
}

/// The receiving half.
pub(crate) struct Arrivals {
    fd: Arc<OwnedFd>,
    area: Arc<Area>,
    fill: Ring,
    received: Ring,
    frame_bytes: u64,
}

// SAFETY: the raw pointers point into mappings that move with it.
unsafe impl Send for Arrivals {}

impl Arrivals {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether frames wait.
    pub(crate) fn has_waiting(&self) -> bool {
        self.received.has_waiting()
    }

    /// Gives a frame to the kernel. There is space for all frames.
    fn give(&mut self, number: u64) {
        let entry = self.fill.entry(self.fill.own);
        // SAFETY: this side owns the entry until it is published; the ring has an entry for each frame.
        unsafe { entry.write(number) };
        self.fill.own = self.fill.own.wrapping_add(1);
    }

    /// Passes up to `max` waiting frames to `each`, with the timestamp of the steering program, or 0; returns their
    /// number.
    pub(crate) fn take(&mut self, max: usize, mut each: impl FnMut(&[u8], u64)) -> usize {
        let n = self
            .received
            .waiting()
            .min(u32::try_from(max).unwrap_or(u32::MAX));
        for _ in 0..n {
            let entry = self.received.entry(self.received.own);
            // SAFETY: the kernel has published this entry: address, then length and options.
            let (at, len) = unsafe { (entry.read(), entry.add(1).cast::<u32>().read()) };
            self.received.own = self.received.own.wrapping_add(1);
            let stamped = (len as usize).saturating_add(STAMP_BYTES);
            // SAFETY: this side owns the frame until it is given back below.
            let octets = unsafe {
                self.area
                    .octets(at.saturating_sub(STAMP_BYTES as u64), stamped)
            };
            if let Some((stamp, frame)) = octets.and_then(|o| o.split_first_chunk_mut()) {
                let at = u64::from_ne_bytes(*stamp);
                each(frame, at);
                // Prevents the next frame in this place from getting this timestamp.
                *stamp = [0; STAMP_BYTES];
            }
            self.give(at - at % self.frame_bytes);
        }
        if n > 0 {
            self.received.release();
            self.fill.publish();
        }
        // Also if nothing came: a driver that ran out of frames receives none until it is woken.
        if self.fill.needs_wakeup() {
            self.wake();
        }
        n as usize
    }

    /// Makes the kernel check the frames that it was given.
    fn wake(&self) {
        // SAFETY: no buffer, no address.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    pub(crate) fn statistics(&self) -> io::Result<Statistics> {
        get(&self.fd, libc::XDP_STATISTICS)
    }
}

/// The sending half.
pub(crate) struct Departures {
    fd: Arc<OwnedFd>,
    area: Arc<Area>,
    completion: Ring,
    sent: Ring,
    /// A stack: the frame that was used last is in the cache and is used next.
    free: Vec<u64>,
    frame_bytes: usize,
    copying: Copying,
}

// SAFETY: as for Arrivals.
unsafe impl Send for Departures {}

impl Copying {
    /// Calls in a row that take nothing before the kernel counts as full. In copy mode a call sends, with zero-copy it wakes the
    /// driver, which sends later.
    fn fruitless_max(self) -> u32 {
        match self {
            Self::Copy => 16,
            Self::Zero => 1,
        }
    }
}

impl Departures {
    /// How frames come from here to the driver, and those of the same socket's [`Arrivals`] from it.
    pub(crate) fn copying(&self) -> Copying {
        self.copying
    }

    /// Lets `write` fill a frame and return its length; false if no frame is free. The frame is sent by the next
    /// [`Self::flush`].
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.free.is_empty() {
            self.reap();
        }
        let Some(number) = self.free.pop().filter(|_| self.sent.free(1) > 0) else {
            return false;
        };
        // SAFETY: the frame was free: it has no user here or in the kernel.
        let frame = unsafe { self.area.octets(number, self.frame_bytes) };
        let len = frame.map_or(0, write).min(self.frame_bytes);
        let entry = self.sent.entry(self.sent.own);
        // SAFETY: this side owns the entry until it is published: address, then length and options.
        unsafe {
            entry.write(number);
            entry.add(1).cast::<[u32; 2]>().write([length(len), 0]);
        }
        self.sent.own = self.sent.own.wrapping_add(1);
        true
    }

    /// Reclaims frames that were sent.
    fn reap(&mut self) {
        let n = self.completion.waiting();
        for _ in 0..n {
            let entry = self.completion.entry(self.completion.own);
            // SAFETY: the kernel has published this entry.
            self.free.push(unsafe { entry.read() });
            self.completion.own = self.completion.own.wrapping_add(1);
        }
        if n > 0 {
            self.completion.release();
        }
    }

    /// Sends all pushed frames; returns the number of frames that the driver dropped. The next call continues with
    /// frames that the kernel has not taken yet.
    pub(crate) fn flush(&mut self) -> io::Result<u64> {
        self.sent.publish();
        let (mut dropped, mut fruitless) = (0, 0);
        let mut left = self.sent.untaken();
        let fruitless_max = self.copying.fruitless_max();
        while left > 0 && fruitless < fruitless_max && self.sent.needs_wakeup() {
            match self.kick() {
                Ok(()) => {}
                Err(e) => match e.raw_os_error() {
                    // The budget of one call is used up, or frames must be returned first.
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {}
                    // The driver dropped a frame, and the frames after it wait.
                    Some(libc::EBUSY) => dropped += 1,
                    _ => return Err(e),
                },
            }
            self.reap();
            let now = self.sent.untaken();
            fruitless = if now < left { 0 } else { fruitless + 1 };
            left = now;
        }
        Ok(dropped)
    }

    fn kick(&self) -> io::Result<()> {
        // SAFETY: no buffer, no address.
        let result = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                std::ptr::null(),
                0,
            )
        };
        if result >= 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bit_of_the_options_tells_of_zero_copy() {
        assert_eq!(Copying::of(0).to_string(), "copy");
        assert_eq!(Copying::of(1).to_string(), "zero-copy");
        assert_eq!(Copying::of(0b10), Copying::Copy, "another flag");
        assert_eq!(Copying::of(u32::MAX), Copying::Zero);
    }
}
