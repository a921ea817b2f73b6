//! UDP datagrams in Ethernet frames: pure functions.
//!
//! Frames that the socket path would not deliver are refused: invalid lengths, wrong checksums, VLAN tags, fragments,
//! options and extension headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;

const TYPE_IPV4: [u8; 2] = [8, 0];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const PROTOCOL_UDP: u8 = 17;
/// TTL or hop limit of sent datagrams: the kernel's default.
const HOPS: u8 = 64;

/// Addresses of the network layer, the source first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addresses {
    V4([[u8; 4]; 2]),
    V6([[u8; 16]; 2]),
}

/// The headers of a frame: its source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    /// Destination, then source, as in a frame.
    pub(super) macs: [[u8; 6]; 2],
    pub(super) addresses: Addresses,
    /// Source and destination.
    pub(super) ports: [u16; 2],
}

impl Flow {
    /// The flow in the opposite direction.
    pub(super) fn reversed(&self) -> Self {
        let swap = |[a, b]: [[u8; 6]; 2]| [b, a];
        Self {
            macs: swap(self.macs),
            addresses: match self.addresses {
                Addresses::V4([source, destination]) => Addresses::V4([destination, source]),
                Addresses::V6([source, destination]) => Addresses::V6([destination, source]),
            },
            ports: [self.ports[1], self.ports[0]],
        }
    }

    pub(super) fn source(&self) -> SocketAddr {
        SocketAddr::new(self.ip(0), self.ports[0])
    }

    pub(super) fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.ip(1), self.ports[1])
    }

    fn ip(&self, i: usize) -> IpAddr {
        match self.addresses {
            Addresses::V4(both) => Ipv4Addr::from(both[i]).into(),
            Addresses::V6(both) => Ipv6Addr::from(both[i]).into(),
        }
    }

    /// Octets before the payload.
    pub(super) fn headers_bytes(&self) -> usize {
        let ip = match self.addresses {
            Addresses::V4(_) => IPV4_BYTES,
            Addresses::V6(_) => IPV6_BYTES,
        };
        ETHERNET_BYTES + ip + UDP_BYTES
    }

    /// One's complement sum of the pseudo header (RFC 768; RFC 8200 section 8.1).
    fn pseudo_sum(&self, udp_bytes: u16) -> u64 {
        let addresses = match &self.addresses {
            Addresses::V4(both) => sum(both.as_flattened()),
            Addresses::V6(both) => sum(both.as_flattened()),
        };
        addresses + u64::from(PROTOCOL_UDP) + u64::from(udp_bytes)
    }
}

/// Source and destination of a flow; `None` if they are of different families.
pub(super) fn addresses(source: IpAddr, destination: IpAddr) -> Option<Addresses> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Some(Addresses::V4([source.octets(), destination.octets()]))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Some(Addresses::V6([source.octets(), destination.octets()]))
        }
        _ => None,
    }
}

/// Writes a frame; returns its length, or `None` if the frame does not fit into `frame` or the payload does not fit
/// into a datagram.
pub(super) fn build(flow: &Flow, payload: &[u8], frame: &mut [u8]) -> Option<usize> {
    let len = flow.headers_bytes().checked_add(payload.len())?;
    let frame = frame.get_mut(..len)?;
    let udp_bytes = u16::try_from(UDP_BYTES + payload.len()).ok()?;
    let (ethernet, rest) = frame.split_at_mut(ETHERNET_BYTES);
    ethernet[..12].copy_from_slice(flow.macs.as_flattened());
    ethernet[12..].copy_from_slice(match flow.addresses {
        Addresses::V4(_) => &TYPE_IPV4,
        Addresses::V6(_) => &TYPE_IPV6,
    });
    let udp = match flow.addresses {
        Addresses::V4(both) => {
            let (ip, udp) = rest.split_first_chunk_mut()?;
            *ip = ipv4(both, udp_bytes)?;
            udp
        }
        Addresses::V6(both) => {
            let (ip, udp) = rest.split_first_chunk_mut::<IPV6_BYTES>()?;
            ip[..4].copy_from_slice(&[0x60, 0, 0, 0]);
            ip[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
            ip[6..8].copy_from_slice(&[PROTOCOL_UDP, HOPS]);
            ip[8..].copy_from_slice(both.as_flattened());
            udp
        }
    };
    let (header, data) = udp.split_at_mut(UDP_BYTES);
    header[..2].copy_from_slice(&flow.ports[0].to_be_bytes());
    header[2..4].copy_from_slice(&flow.ports[1].to_be_bytes());
    header[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    header[6..].copy_from_slice(&[0, 0]);
    data.copy_from_slice(payload);
    let checksum = match !fold(flow.pseudo_sum(udp_bytes) + sum(header) + sum(payload)) {
        // Zero means no checksum.
        0 => u16::MAX,
        checksum => checksum,
    };
    header[6..].copy_from_slice(&checksum.to_be_bytes());
    Some(len)
}

/// A header that forbids fragmentation: the payload fits the MTU of its first link.
fn ipv4(addresses: [[u8; 4]; 2], udp_bytes: u16) -> Option<[u8; IPV4_BYTES]> {
    const DO_NOT_FRAGMENT: u8 = 0x40;
    let total = u16::try_from(IPV4_BYTES + usize::from(udp_bytes))
        .ok()?
        .to_be_bytes();
    let mut ip = [0; IPV4_BYTES];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&total);
    ip[6] = DO_NOT_FRAGMENT;
    ip[8..10].copy_from_slice(&[HOPS, PROTOCOL_UDP]);
    ip[12..].copy_from_slice(addresses.as_flattened());
    let checksum = !fold(sum(&ip));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(ip)
}

/// The flow and the payload of a frame; `None` if it is not an intact datagram.
///
/// With `partial`, the checksum may cover the pseudo header alone: the kernel leaves the rest to the hardware
/// (`CHECKSUM_PARTIAL`), and a veth link has none.
pub(super) fn parse(frame: &[u8], partial: bool) -> Option<(Flow, &[u8])> {
    let (ethernet, rest) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
    let macs = [
        ethernet[..6].try_into().ok()?,
        ethernet[6..12].try_into().ok()?,
    ];
    let (addresses, udp) = match [ethernet[12], ethernet[13]] {
        TYPE_IPV4 => parse_ipv4(rest)?,
        TYPE_IPV6 => parse_ipv6(rest)?,
        _ => return None,
    };
    let header = udp.first_chunk::<UDP_BYTES>()?;
    let half = |i: usize| u16::from_be_bytes([header[i], header[i + 1]]);
    let flow = Flow {
        macs,
        addresses,
        ports: [half(0), half(2)],
    };
    let udp_bytes = half(4);
    // The rest of the packet is ignored.
    let udp = udp.get(..usize::from(udp_bytes))?;
    let payload = udp.get(UDP_BYTES..)?;
    let is_intact = match (half(6), addresses) {
        (0, Addresses::V4(_)) => true,
        (0, Addresses::V6(_)) => false,
        (checksum, _) => {
            let pseudo = flow.pseudo_sum(udp_bytes);
            fold(pseudo + sum(udp)) == u16::MAX || (partial && checksum == fold(pseudo))
        }
    };
    is_intact.then_some((flow, payload))
}

/// The addresses and the payload of the packet, without the padding of the frame.
fn parse_ipv4(packet: &[u8]) -> Option<(Addresses, &[u8])> {
    const FRAGMENTS: u16 = 0x3fff;
    let ip = packet.first_chunk::<IPV4_BYTES>()?;
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let is_whole = u16::from_be_bytes([ip[6], ip[7]]) & FRAGMENTS == 0;
    if ip[0] != 0x45 || ip[9] != PROTOCOL_UDP || !is_whole || fold(sum(ip)) != u16::MAX {
        return None;
    }
    let both = [ip[12..16].try_into().ok()?, ip[16..].try_into().ok()?];
    Some((Addresses::V4(both), packet.get(IPV4_BYTES..total)?))
}

fn parse_ipv6(packet: &[u8]) -> Option<(Addresses, &[u8])> {
    let (ip, rest) = packet.split_first_chunk::<IPV6_BYTES>()?;
    if ip[0] >> 4 != 6 || ip[6] != PROTOCOL_UDP {
        return None;
    }
    let payload = rest.get(..usize::from(u16::from_be_bytes([ip[4], ip[5]])))?;
    let both = [ip[8..24].try_into().ok()?, ip[24..].try_into().ok()?];
    Some((Addresses::V6(both), payload))
}

/// Sum of the octets as 16-bit numbers in network order, the last one padded with zero; must be folded (RFC 1071).
fn sum(octets: &[u8]) -> u64 {
    let (words, rest) = octets.as_chunks::<4>();
    let words: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_be_bytes(*word)))
        .sum();
    let (halves, rest) = rest.as_chunks::<2>();
    let halves: u64 = halves
        .iter()
        .map(|half| u64::from(u16::from_be_bytes(*half)))
        .sum();
    words + halves + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

/// Folds a sum to 16 bits in one's complement.
fn fold(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it has 16 bits now")]
    let folded = sum as u16;
    folded
}

#[cfg(test)]
#[path = "frame/tests.rs"]
mod tests;
