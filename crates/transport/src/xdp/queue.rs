//! AF_XDP sockets at the queues of an interface.

use std::io;
use std::sync::Arc;

use super::netlink::Interface;
use super::program::{Mode, XdpError};
use super::steering::Steering;
use crate::clock::{Clock, MonotonicClock, Nanos, SECOND};
use crate::sys::xsk::{self, Arrivals, Config};

/// Frames for what arrives at the queues of a link, all together: 200 ms at 300 k/s. The sockets of a client hold twice
/// as much, but a frame has room for any packet.
const ARRIVALS: u32 = 65_536;

/// Frames of one queue at least and at most: 16 MiB and 64 MiB.
const ARRIVALS_OF_QUEUE: [u32; 2] = [8192, 32_768];

/// Frames for what leaves by a queue: many batches, though in copy mode they come back at once.
const DEPARTURES: u32 = 2048;

/// What the kernel keeps free before a frame that arrived (`XDP_PACKET_HEADROOM`), with room for a VLAN tag.
const HEADROOM_BYTES: usize = 256 + 4;

/// How long the kernel may take to let go of a queue whose last user has ended.
const RELEASE_NS: Nanos = 2 * SECOND;
const RETRY_NS: Nanos = 5_000_000;

/// A socket at one queue of an interface, and what steers datagrams to it.
pub(super) struct Queue {
    pub(super) arrivals: Arrivals,
    pub(super) departures: xsk::Departures,
    pub(super) interface: Arc<Interface>,
    /// Holds the program as long as the socket is open.
    _steering: Arc<Steering>,
}

/// Which queues of an interface a link takes: every `of`-th, from `index` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the link.
    pub index: u32,
    /// How many links share the interface; at least 1.
    pub of: u32,
}

impl Part {
    /// All queues.
    pub const WHOLE: Self = Self { index: 0, of: 1 };
}

/// Opens sockets at the queues of an interface for this part, of which there must be one.
pub(super) fn open(
    interface: &Arc<Interface>,
    steering: &Arc<Steering>,
    part: Part,
) -> Result<Vec<Queue>, XdpError> {
    let queues = of_part(interface, steering, part)?;
    if queues.is_empty() {
        return Err(XdpError::Unusable {
            interface: interface.name.clone(),
            reason: "it has fewer receive queues than the Tester has threads there; see 'ethtool -l'",
        });
    }
    Ok(queues)
}

/// Opens sockets at the queues of an interface, as far as there are any for this part.
pub(super) fn of_part(
    interface: &Arc<Interface>,
    steering: &Arc<Steering>,
    part: Part,
) -> Result<Vec<Queue>, XdpError> {
    let mut queues = Vec::new();
    let [least, most] = ARRIVALS_OF_QUEUE;
    let share = ARRIVALS / interface.queues.next_power_of_two();
    let wanted = (0..interface.queues).filter(|queue| queue % part.of.max(1) == part.index);
    for queue in wanted {
        let failed = |reason| XdpError::Socket {
            interface: interface.name.clone(),
            queue,
            reason,
        };
        let config = Config {
            interface: interface.index,
            queue,
            frame_bytes: frame_bytes(interface)?,
            arrivals: share.clamp(least, most),
            departures: DEPARTURES,
            copies: steering.mode() == Mode::Generic,
        };
        match patiently(|| xsk::open(&config)) {
            Ok((arrivals, departures)) => {
                steering.register(queue, arrivals.fd())?;
                queues.push(Queue {
                    arrivals,
                    departures,
                    interface: Arc::clone(interface),
                    _steering: Arc::clone(steering),
                });
            }
            // Interfaces have fewer queues than there is room for.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && queue > 0 => break,
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(queues)
}

/// Tries again as long as the queue of a process that has ended, or of a link that was closed, is still held.
fn patiently<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let end = MonotonicClock.now() + RELEASE_NS;
    loop {
        match open() {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && MonotonicClock.now() < end => {
                MonotonicClock.sleep(RETRY_NS);
            }
            result => return result,
        }
    }
}

/// Octets of a frame: a power of two that the largest packet of the interface fits into.
fn frame_bytes(interface: &Interface) -> Result<usize, XdpError> {
    let needed = interface.mtu + super::frame::ETHERNET_BYTES + HEADROOM_BYTES;
    let sizes = [2048, 4096];
    let fits = sizes.into_iter().find(|size| needed <= *size);
    fits.ok_or_else(|| XdpError::Unusable {
        interface: interface.name.clone(),
        reason: "its packets are too large for AF_XDP; set an MTU of at most 3822",
    })
}
