//! AF_XDP sockets at the queues of an interface.

use std::sync::Arc;

use super::netlink::Interface;
use super::program::{Mode, XdpError};
use super::steering::Steering;
use crate::sys::xsk::{self, Arrivals, Config, Copying};

/// Frames for receiving at all queues of a link together: 200 ms at 300 k/s. The sockets of a client hold twice as
/// much, but a frame can hold any packet.
const ARRIVALS: u32 = 65_536;

/// Minimum and maximum number of frames of one queue: 16 MiB and 64 MiB.
const ARRIVALS_OF_QUEUE: [u32; 2] = [8192, 32_768];

/// Frames for sending by a queue: many batches, though in copy mode they are returned immediately.
const DEPARTURES: u32 = 2048;

/// Octets that the kernel reserves before a received frame (`XDP_PACKET_HEADROOM`), with space for a VLAN tag.
const HEADROOM_BYTES: usize = 256 + 4;

/// A socket at one queue of an interface, and the steering of datagrams to it.
pub(super) struct Queue {
    pub(super) arrivals: Arrivals,
    pub(super) departures: xsk::Departures,
    pub(super) interface: Arc<Interface>,
    /// Keeps the program attached as long as the socket is open.
    steering: Arc<Steering>,
}

/// The queues of an interface that a link uses: every `of`-th, from `index` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index of the link.
    pub index: u32,
    /// Number of links that share the interface; at least 1.
    pub of: u32,
}

impl Part {
    /// All queues.
    pub const WHOLE: Self = Self { index: 0, of: 1 };
}

impl Queue {
    /// Whether the driver of the interface has no XDP.
    pub(super) fn is_generic(&self) -> bool {
        self.steering.mode() == Mode::Generic
    }
}

/// How frames come to these queues and leave from them: with zero copy only if those of each do.
pub(super) fn copying<'a>(queues: impl Iterator<Item = &'a Queue>) -> Option<Copying> {
    queues.map(|queue| queue.departures.copying()).min()
}

/// Opens sockets at the queues of an interface that belong to this part, at least one.
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

/// Opens sockets at the queues of an interface that belong to this part, possibly none.
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
        match xsk::open(&config) {
            Ok((arrivals, departures)) => {
                steering.register(queue, arrivals.fd())?;
                queues.push(Queue {
                    arrivals,
                    departures,
                    interface: Arc::clone(interface),
                    steering: Arc::clone(steering),
                });
            }
            // Interfaces may have fewer queues than their maximum.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && queue > 0 => break,
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(queues)
}

/// Size of a frame: a power of two that holds the largest packet of the interface.
fn frame_bytes(interface: &Interface) -> Result<usize, XdpError> {
    let needed = interface.mtu + super::frame::ETHERNET_BYTES + HEADROOM_BYTES;
    let sizes = [2048, 4096];
    let fits = sizes.into_iter().find(|size| needed <= *size);
    fits.ok_or_else(|| XdpError::Unusable {
        interface: interface.name.clone(),
        reason: "its packets are too large for AF_XDP; set an MTU of at most 3822",
    })
}
