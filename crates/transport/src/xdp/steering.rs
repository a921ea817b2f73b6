//! The program that steers datagrams to AF_XDP sockets: one per interface, shared by all links of this process.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::linux::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::netlink::Interface;
use super::program::{Attached, Map, Mode, Object, XdpError};
use super::queue::Part;
use super::{STEER_OBJECT, allow};

/// Steers the datagrams of one interface; detached when the last link that uses it is dropped.
pub(super) struct Steering {
    ports: Map,
    ends: Map,
    sockets: Map,
    attached: Attached,
    claims: Mutex<Claims>,
    _object: Object,
}

/// The role of the address and port in the program's lookup: `LISTENS` and `ASKS` there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub(super) enum Role {
    /// A local end: datagrams to it are wanted.
    Listens = 1,
    /// A server's end: datagrams from it to our ports are wanted.
    Asks = 2,
}

/// Bit positions of a link's queues in the map value of a port: every `of`-th queue, from `index` on.
const OF_SHIFT: u32 = 8;
const INDEX_SHIFT: u32 = 20;

/// Number of links that want a port in a role, or an end.
struct Claims {
    /// Indexed by port number.
    ports: Box<[PortClaims]>,
    ends: BTreeMap<EndKey, usize>,
}

#[derive(Clone, Copy, Default)]
struct PortClaims {
    /// Number of links that listen at the port, and number of those that query from it.
    listens: u16,
    asks: u16,
    /// Queues that accept replies, in the program's format.
    owner: u32,
}

impl Default for Claims {
    fn default() -> Self {
        Self {
            ports: vec![PortClaims::default(); 1 << 16].into(),
            ends: BTreeMap::new(),
        }
    }
}

/// `struct end` of the program.
type EndKey = [u8; 20];

/// The steered interfaces of all network namespaces, by the namespace's file and the interface's index.
static STEERED: Mutex<Vec<(Place, Weak<Steering>)>> = Mutex::new(Vec::new());

type Place = (u64, u32);

impl Steering {
    /// The steering of an interface of the calling thread's network namespace; attaches it if necessary.
    pub(super) fn of(
        interface: &Interface,
        mode: Mode,
        force: bool,
    ) -> Result<Arc<Self>, XdpError> {
        let namespace = fs::metadata(NAMESPACE).map_err(|reason| XdpError::Facts {
            what: NAMESPACE.into(),
            reason,
        })?;
        let place = (namespace.st_ino(), interface.index);
        let mut steered = lock(&STEERED);
        steered.retain(|(_, steering)| steering.strong_count() > 0);
        let known = steered.iter().find(|(known, _)| *known == place);
        if let Some(steering) = known.and_then(|(_, steering)| steering.upgrade()) {
            return Ok(steering);
        }
        allow(&interface.name, force)?;
        let mut object = Object::load(STEER_OBJECT)?;
        object.map("station")?.set(&[0; 4], &station(interface))?;
        let steering = Arc::new(Self {
            ports: object.map("ports")?,
            ends: object.map("ends")?,
            sockets: object.map("sockets")?,
            attached: object.attach("steer", &interface.name, mode)?,
            claims: Mutex::default(),
            _object: object,
        });
        steered.push((place, Arc::downgrade(&steering)));
        Ok(steering)
    }

    /// Name of the interface.
    pub(super) fn interface(&self) -> &str {
        self.attached.interface()
    }

    /// Mode of its program.
    pub(super) fn mode(&self) -> Mode {
        self.attached.mode()
    }

    /// Sends datagrams that arrive at a queue to a socket, until the socket is closed.
    pub(super) fn register(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), XdpError> {
        let number = socket.as_raw_fd().unsigned_abs();
        self.sockets
            .set(&queue.to_ne_bytes(), &number.to_ne_bytes())
    }

    /// Steers datagrams to these local ports, to or from one of these ends depending on its role. Replies that arrive
    /// at a queue of another part remain with the kernel and reach the kernel socket at the port.
    pub(super) fn want(
        self: &Arc<Self>,
        role: Role,
        ends: &[SocketAddr],
        ports: &[u16],
        part: Part,
    ) -> Result<Wanted, XdpError> {
        let wanted = Wanted {
            steering: Arc::clone(self),
            role,
            ends: ends.iter().map(|end| key(*end, role)).collect(),
            ports: ports.to_vec(),
            part,
        };
        let mut claims = lock(&self.claims);
        wanted.count(&mut claims, |count| count + 1)?;
        drop(claims);
        Ok(wanted)
    }
}

/// The namespace of the calling thread.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends and ports that a link wants, until this is dropped.
pub(super) struct Wanted {
    steering: Arc<Steering>,
    role: Role,
    ends: Vec<EndKey>,
    ports: Vec<u16>,
    part: Part,
}

impl Wanted {
    /// Whether anything is wanted.
    pub(super) fn has_ends(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Updates all counts by `change` and writes the result to the program's maps.
    fn count(&self, claims: &mut Claims, change: impl Fn(usize) -> usize) -> Result<(), XdpError> {
        let steering = &self.steering;
        for end in &self.ends {
            let count = claims.ends.entry(*end).or_default();
            let before = std::mem::replace(count, change(*count));
            match (before, *count) {
                (_, 0) => {
                    claims.ends.remove(end);
                    steering.ends.remove(end)?;
                }
                (0, _) => steering.ends.set(end, &[1, 0, 0, 0])?,
                _ => {}
            }
        }
        for port in &self.ports {
            let claim = &mut claims.ports[usize::from(*port)];
            let count = match self.role {
                Role::Listens => &mut claim.listens,
                Role::Asks => &mut claim.asks,
            };
            *count = u16::try_from(change((*count).into())).unwrap_or(u16::MAX);
            if self.role == Role::Asks {
                claim.owner = self.part.of.max(1) << OF_SHIFT | self.part.index << INDEX_SHIFT;
            }
            let number = u32::from(*port).to_ne_bytes();
            steering.ports.set(&number, &claim.seen().to_ne_bytes())?;
        }
        Ok(())
    }
}

impl PortClaims {
    /// The value for the program's map.
    fn seen(self) -> u32 {
        let listens = if self.listens > 0 {
            Role::Listens as u32
        } else {
            0
        };
        let asks = if self.asks > 0 {
            Role::Asks as u32 | self.owner
        } else {
            0
        };
        listens | asks
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        let mut claims = lock(&self.steering.claims);
        // A map that was written can be written again. After a failure, steered datagrams find no socket and are passed
        // to the kernel.
        let _ = self.count(&mut claims, |count| count.saturating_sub(1));
    }
}

/// `struct station` of the program.
fn station(interface: &Interface) -> [u8; 8] {
    let [a, b, c, d, e, f] = interface.mac.unwrap_or_default();
    [a, b, c, d, e, f, u8::from(interface.is_veth), 0]
}

fn key(end: SocketAddr, role: Role) -> EndKey {
    let ip = match end.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut key = [0; 20];
    key[..16].copy_from_slice(&Ipv6Addr::octets(&ip));
    key[16..18].copy_from_slice(&end.port().to_be_bytes());
    key[18..].copy_from_slice(&(role as u16).to_ne_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_has_the_format_of_the_program() {
        let key = |end: &str, role| key(end.parse().unwrap(), role);
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
        let v4 = key("192.0.2.1:53", Role::Listens);
        assert_eq!(v4[..16], mapped);
        assert_eq!(v4[16..18], [0, 53]);
        assert_eq!(u16::from_ne_bytes([v4[18], v4[19]]), 1);
        let v6 = key("[2001:db8::35]:4096", Role::Asks);
        assert_eq!(v6[..4], [0x20, 1, 0x0d, 0xb8]);
        assert_eq!(v6[15..18], [0x35, 16, 0]);
        assert_eq!(u16::from_ne_bytes([v6[18], v6[19]]), 2);
    }
}
