//! Ethernet frames with a datagram, and the kernel's rules for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Source and destination: each field is a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) mac: ([u8; 6], [u8; 6]),
    pub(crate) ip: (IpAddr, IpAddr),
    pub(crate) port: (u16, u16),
}

/// The UDP checksum of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    Whole,
    /// Covers only the pseudo-header: checksum offload to the device.
    Begun,
    None,
    Wrong,
}

/// A datagram that the kernel would deliver to a socket.
#[derive(Debug)]
pub(crate) struct Arrived<'f> {
    pub(crate) way: Way,
    pub(crate) payload: &'f [u8],
    /// TTL or hop limit.
    pub(crate) hops: u8,
    /// Whether it has a complete checksum.
    pub(crate) is_summed: bool,
}

const ETHERNET: usize = 14;
const UDP: usize = 8;

/// Sum of 16-bit words (RFC 1071).
fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for word in part.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The pseudo-header.
fn pseudo(ip: (IpAddr, IpAddr), udp_octets: usize) -> Vec<u8> {
    let len = u16::try_from(udp_octets).unwrap().to_be_bytes();
    [octets(ip.0), octets(ip.1), vec![0, 17], len.to_vec()].concat()
}

/// A frame with this payload.
pub(crate) fn frame(way: &Way, payload: &[u8], checksum: Checksum) -> Vec<u8> {
    let udp_octets = UDP + payload.len();
    let len = |octets: usize| u16::try_from(octets).unwrap().to_be_bytes();
    let mut frame = [way.mac.1, way.mac.0].concat();
    match way.ip {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(len(20 + udp_octets));
            frame.extend([0x77, 0x01, 0x40, 0, 64, 17, 0, 0]);
            frame.extend([from.octets(), to.octets()].concat());
            sum_ipv4(&mut frame);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0x0b, 0xad, 0xed]);
            frame.extend(len(udp_octets));
            frame.extend([17, 64]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        mixed => panic!("{mixed:?}"),
    }
    let udp_at = frame.len();
    frame.extend([way.port.0.to_be_bytes(), way.port.1.to_be_bytes()].concat());
    frame.extend(len(udp_octets));
    frame.extend([0, 0]);
    frame.extend(payload);
    let pseudo = pseudo(way.ip, udp_octets);
    let whole = match !sum(&[&pseudo, &frame[udp_at..]]) {
        0 => 0xffff,
        whole => whole,
    };
    let field = match checksum {
        Checksum::Whole => whole,
        Checksum::Begun => sum(&[&pseudo]),
        Checksum::None => 0,
        Checksum::Wrong => whole ^ 0x0101,
    };
    frame[udp_at + 6..udp_at + 8].copy_from_slice(&field.to_be_bytes());
    frame
}

fn sum_ipv4(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let checksum = !sum(&[&frame[14..34]]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

/// Sets the lengths and checksums of a frame after any changes to it.
pub(crate) fn finish(frame: &mut [u8]) {
    let end = frame.len();
    let (udp_at, is_v4) = match frame.get(12..15) {
        Some([8, 0, _]) => (34, true),
        Some([0x86, 0xdd, _]) => (54, false),
        _ => return,
    };
    if end < udp_at + UDP {
        return;
    }
    let len = |octets: usize| u16::try_from(octets).unwrap().to_be_bytes();
    frame[udp_at + 4..udp_at + 6].copy_from_slice(&len(end - udp_at));
    let ip = if is_v4 {
        frame[16..18].copy_from_slice(&len(end - ETHERNET));
        sum_ipv4(frame);
        (v4(frame, 26), v4(frame, 30))
    } else {
        frame[18..20].copy_from_slice(&len(end - udp_at));
        (v6(frame, 22), v6(frame, 38))
    };
    frame[udp_at + 6..udp_at + 8].fill(0);
    let checksum = match !sum(&[&pseudo(ip, end - udp_at), &frame[udp_at..]]) {
        0 => 0xffff,
        checksum => checksum,
    };
    frame[udp_at + 6..udp_at + 8].copy_from_slice(&checksum.to_be_bytes());
}

fn v4(frame: &[u8], at: usize) -> IpAddr {
    let octets: [u8; 4] = frame[at..at + 4].try_into().unwrap();
    Ipv4Addr::from(octets).into()
}

fn v6(frame: &[u8], at: usize) -> IpAddr {
    let octets: [u8; 16] = frame[at..at + 16].try_into().unwrap();
    Ipv6Addr::from(octets).into()
}

/// Returns the datagram in a frame; or the reason why the kernel would not deliver it to a socket, or why the program
/// should pass the frame to the kernel.
pub(crate) fn arrived(frame: &[u8]) -> Result<Arrived<'_>, &'static str> {
    let mac = |at: usize| -> [u8; 6] { frame[at..at + 6].try_into().unwrap() };
    let (ip, udp_at, hops) = match frame.get(12..14).ok_or("no Ethernet header")? {
        [8, 0] => {
            ipv4(frame)?;
            ((v4(frame, 26), v4(frame, 30)), 34, frame[22])
        }
        [0x86, 0xdd] => {
            ipv6(frame)?;
            ((v6(frame, 22), v6(frame, 38)), 54, frame[21])
        }
        _ => return Err("no IP"),
    };
    let udp = &frame[udp_at..];
    let header = udp.first_chunk::<UDP>().ok_or("no UDP header")?;
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (port, len, checksum) = ((field(0), field(2)), field(4), field(6));
    if port.0 == 0 {
        return Err("nobody can be answered at port 0");
    }
    if usize::from(len) != udp.len() {
        return Err("UDP has another length");
    }
    let pseudo = pseudo(ip, udp.len());
    let is_summed = checksum != 0 && sum(&[&pseudo, udp]) == 0xffff;
    let is_begun = checksum == sum(&[&pseudo]);
    let may_be_missing = checksum == 0 && ip.0.is_ipv4();
    if !(is_summed || is_begun || may_be_missing) {
        return Err("the UDP checksum is wrong");
    }
    Ok(Arrived {
        way: Way {
            mac: (mac(6), mac(0)),
            ip,
            port,
        },
        payload: &udp[UDP..],
        hops,
        is_summed,
    })
}

fn ipv4(frame: &[u8]) -> Result<(), &'static str> {
    let header = frame.get(14..34).ok_or("no IPv4 header")?;
    let is_plain = header[0] == 0x45 && header[6] & 0xbf == 0 && header[7] == 0 && header[9] == 17;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let source = header[12];
    match () {
        () if !is_plain => Err("options, a fragment, or no UDP"),
        () if len != frame.len() - ETHERNET => Err("IPv4 has another length"),
        () if sum(&[header]) != 0xffff => Err("the IPv4 checksum is wrong"),
        () if matches!(source, 0 | 127 | 224..) => Err("a source that is nobody"),
        () if header[12..16] == header[16..20] => Err("from itself"),
        () => Ok(()),
    }
}

fn ipv6(frame: &[u8]) -> Result<(), &'static str> {
    let header = frame.get(14..54).ok_or("no IPv6 header")?;
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let source = &header[8..24];
    match () {
        () if header[0] >> 4 != 6 || header[6] != 17 => Err("another version, or no UDP"),
        () if len + 54 != frame.len() => Err("IPv6 has another length"),
        () if source[0] == 0xff || source[..8] == [0; 8] => Err("a source that is nobody"),
        () if *source == header[24..40] => Err("from itself"),
        () => Ok(()),
    }
}
