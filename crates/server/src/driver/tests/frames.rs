//! Valid and invalid frames, and a model of which of them the kernel passes to a socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::questions::Question;

pub(super) const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(super) const OWN4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const OWN6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub(super) const BROADCAST: Ipv4Addr = Ipv4Addr::new(10, 255, 255, 255);
const CLIENT4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// Offsets in IPv4 frames.
const IP: usize = 14;
const UDP4: usize = IP + 20;
const UDP6: usize = IP + 40;

/// A query in a frame.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) question: &'static Question,
    pub(super) ipv6: bool,
    pub(super) udp_size: Option<u16>,
    pub(super) do_bit: bool,
    pub(super) cd: bool,
    pub(super) ad: bool,
    pub(super) upper: bool,
    pub(super) id: u16,
}

impl Frame {
    /// The simplest query.
    pub(super) fn of(question: &'static Question) -> Self {
        Self {
            question,
            ipv6: false,
            udp_size: None,
            do_bit: false,
            cd: false,
            ad: false,
            upper: false,
            id: 0x1234,
        }
    }

    /// All variants of queries for a question.
    pub(super) fn all(question: &'static Question) -> Vec<Self> {
        let mut frames = Vec::new();
        for kind in 0..128_u16 {
            let bit = |at: u16| kind >> at & 1 == 1;
            let udp_size = [None, Some(100), Some(1232), Some(4096)][usize::from(kind >> 5)];
            frames.push(Self {
                question,
                ipv6: bit(0),
                udp_size,
                do_bit: bit(1) && udp_size.is_some(),
                cd: bit(2),
                ad: bit(3),
                upper: bit(4),
                id: kind * 511,
            });
        }
        frames
    }

    pub(super) fn message(&self) -> Vec<u8> {
        let flags = 1 << 8 | u16::from(self.ad) << 5 | u16::from(self.cd) << 4;
        let mut message = Vec::new();
        for half in [self.id, flags, 1, 0, 0, u16::from(self.udp_size.is_some())] {
            message.extend(half.to_be_bytes());
        }
        let mut name = self.question.wire();
        if self.upper {
            // Every other octet; lengths are not letters.
            name.iter_mut()
                .step_by(2)
                .for_each(|octet| octet.make_ascii_uppercase());
        }
        message.extend(name);
        message.extend(self.question.rtype.to_be_bytes());
        message.extend([0, 1]);
        if let Some(size) = self.udp_size {
            message.extend([0, 0, 41]);
            message.extend(size.to_be_bytes());
            message.extend([0, 0, u8::from(self.do_bit) << 7, 0, 0, 0]);
        }
        message
    }

    pub(super) fn octets(&self) -> Vec<u8> {
        let (source, target): (IpAddr, IpAddr) = match self.ipv6 {
            false => (CLIENT4.into(), OWN4.into()),
            true => (CLIENT6.into(), OWN6.into()),
        };
        frame(source, target, (4000, 53), &self.message())
    }

    /// With a partial checksum, as this machine's stack leaves it to the hardware.
    pub(super) fn with_partial_sum(&self) -> Vec<u8> {
        let mut octets = self.octets();
        let udp = if self.ipv6 { UDP6 } else { UDP4 };
        let sum = pseudo_sum(&octets, udp);
        octets[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        octets
    }
}

/// A frame with a datagram.
pub(super) fn frame(source: IpAddr, target: IpAddr, ports: (u16, u16), message: &[u8]) -> Vec<u8> {
    let mut octets = [OWN_MAC, CLIENT_MAC].concat();
    let udp_len = u16::try_from(8 + message.len()).unwrap().to_be_bytes();
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            octets.extend([8, 0, 0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 17, 0, 0]);
            octets.extend(source.octets());
            octets.extend(target.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            octets.extend([0x86, 0xdd, 0x60, 0, 0, 5]);
            octets.extend(udp_len);
            octets.extend([17, 64]);
            octets.extend(source.octets());
            octets.extend(target.octets());
        }
        _ => panic!("different address families"),
    }
    octets.extend(ports.0.to_be_bytes());
    octets.extend(ports.1.to_be_bytes());
    octets.extend(udp_len);
    octets.extend([0, 0]);
    octets.extend(message);
    repair(&mut octets);
    octets
}

/// Corrects lengths and checksums, as far as their headers exist.
pub(super) fn repair(octets: &mut [u8]) {
    let len = octets.len();
    match octets.get(12..14) {
        Some([8, 0]) if len >= UDP4 + 8 => {
            let total = u16::try_from(len - IP).unwrap();
            octets[IP + 2..IP + 4].copy_from_slice(&total.to_be_bytes());
            octets[IP + 10..IP + 12].fill(0);
            let sum = !sum(&octets[IP..UDP4]);
            octets[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
            repair_udp(octets, UDP4);
        }
        Some([0x86, 0xdd]) if len >= UDP6 + 8 => {
            let payload = u16::try_from(len - UDP6).unwrap();
            octets[IP + 4..IP + 6].copy_from_slice(&payload.to_be_bytes());
            repair_udp(octets, UDP6);
        }
        _ => {}
    }
}

fn repair_udp(octets: &mut [u8], udp: usize) {
    let len = u16::try_from(octets.len() - udp).unwrap();
    octets[udp + 4..udp + 6].copy_from_slice(&len.to_be_bytes());
    octets[udp + 6..udp + 8].fill(0);
    let sum = match !udp_sum(octets, udp) {
        0 => 0xffff,
        sum => sum,
    };
    octets[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
}

/// The one's complement sum (RFC 1071).
fn sum(octets: &[u8]) -> u16 {
    let halves = octets.chunks(2);
    let halves =
        halves.map(|half| u16::from_be_bytes([half[0], half.get(1).copied().unwrap_or(0)]));
    let mut sum: u32 = halves.map(u32::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

fn pseudo_header(octets: &[u8], udp: usize) -> Vec<u8> {
    let addresses = if udp == UDP4 {
        IP + 12..UDP4
    } else {
        IP + 8..UDP6
    };
    let len = &octets[udp + 4..udp + 6];
    [&octets[addresses], &[0, 17], len].concat()
}

fn pseudo_sum(octets: &[u8], udp: usize) -> u16 {
    sum(&pseudo_header(octets, udp))
}

fn udp_sum(octets: &[u8], udp: usize) -> u16 {
    let end = udp + usize::from(u16::from_be_bytes([octets[udp + 4], octets[udp + 5]]));
    sum(&[&pseudo_header(octets, udp), &octets[udp..end]].concat())
}

/// A datagram that the kernel would pass to a socket of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) source: SocketAddr,
    pub(super) target: SocketAddr,
    pub(super) payload: Vec<u8>,
}

/// A model of how the kernel processes a frame for this host (Linux 6.18: `ip_rcv_core`, `ip_route_input_slow`,
/// `ip6_rcv_core`, `__udp4_lib_rcv`, `__udp6_lib_rcv`), without reassembly: fragments and options count as refused.
pub(super) fn taken(octets: &[u8], own_mac: [u8; 6]) -> Option<Taken> {
    let found = taken_anywhere(octets, own_mac)?;
    let is_own = match found.source.ip() {
        IpAddr::V4(source) => [OWN4, BROADCAST].contains(&source),
        IpAddr::V6(source) => source == OWN6,
    };
    let targets: [IpAddr; 2] = [OWN4.into(), OWN6.into()];
    (!is_own && targets.contains(&found.target.ip())).then_some(found)
}

/// The same on any host.
pub(super) fn taken_anywhere(octets: &[u8], own_mac: [u8; 6]) -> Option<Taken> {
    if octets.get(..6)? != own_mac || octets.get(6)? & 1 == 1 {
        return None;
    }
    let ip = octets.get(IP..)?;
    let (udp, source, target): (_, IpAddr, IpAddr) = match octets.get(12..14)? {
        [8, 0] => {
            let header = ip.get(..20)?;
            let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            let is_whole = u16::from_be_bytes([ip[6], ip[7]]) & 0xbfff == 0;
            if ip[0] != 0x45 || sum(header) != 0xffff || !is_whole || ip[8] == 0 || ip[9] != 17 {
                return None;
            }
            let address = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap();
            let (source, target) = (Ipv4Addr::from(address(12)), Ipv4Addr::from(address(16)));
            let is_martian =
                source.is_loopback() || source.octets()[0] == 0 || source.octets()[0] >= 224;
            if is_martian {
                return None;
            }
            (ip.get(20..total)?, source.into(), target.into())
        }
        [0x86, 0xdd] => {
            let payload = usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]));
            if ip[0] >> 4 != 6 || *ip.get(6)? != 17 || *ip.get(7)? == 0 {
                return None;
            }
            let udp = ip.get(40..40 + payload)?;
            let address = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap();
            let (source, target) = (Ipv6Addr::from(address(8)), Ipv6Addr::from(address(24)));
            let is_martian = source.is_loopback()
                || source.is_unspecified()
                || source.is_multicast()
                || source.to_ipv4_mapped().is_some();
            if is_martian {
                return None;
            }
            (udp, source.into(), target.into())
        }
        _ => return None,
    };
    let half = |at: usize| Some(u16::from_be_bytes([*udp.get(at)?, *udp.get(at + 1)?]));
    let at = if source.is_ipv4() { UDP4 } else { UDP6 };
    let payload = udp.get(8..usize::from(half(4)?))?.to_vec();
    let is_intact = match half(6)? {
        0 => source.is_ipv4(),
        _ => udp_sum(octets, at) == 0xffff,
    };
    is_intact.then_some(Taken {
        source: (source, half(0)?).into(),
        target: (target, half(2)?).into(),
        payload,
    })
}

/// A frame with one to four faults; lengths and checksums may be corrected afterwards.
pub(super) fn mutant(octets: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut octets = octets.to_vec();
    for _ in 0..random.random_range(1..=4) {
        let at = random.random_range(0..octets.len());
        let octet: u8 = random.random();
        match random.random_range(0..8) {
            0 => octets.truncate(at.max(14)),
            1 => octets.insert(at, octet),
            2 => octets.extend(std::iter::repeat_n(octet, random.random_range(1..20))),
            3 => {
                octets.remove(at.min(octets.len() - 1));
            }
            4 | 5 => octets[at] ^= 1 << random.random_range(0..8),
            // Changes the case of letters.
            6 if octets[at].is_ascii_alphabetic() => octets[at] ^= 0x20,
            _ => octets[at] = octet,
        }
        if octets.len() < 15 {
            octets.resize(15, octet);
        }
    }
    if random.random_range(0..3) > 0 {
        repair(&mut octets);
    }
    octets
}

/// Makes one change and corrects lengths and checksums.
fn but(octets: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut octets = octets.to_vec();
    change(&mut octets);
    repair(&mut octets);
    octets
}

/// Makes one change and nothing else.
fn only(octets: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut octets = octets.to_vec();
    change(&mut octets);
    octets
}

/// Frames that do not reach the server's sockets, or whose sender it treats differently.
pub(super) fn untaken(good: &Frame) -> Vec<(String, Vec<u8>)> {
    let four = good.octets();
    let six = Frame {
        ipv6: true,
        ..good.clone()
    };
    let named = broken4(&four).into_iter().chain(broken6(&six.octets()));
    let named = named.map(|(name, octets)| (name.to_owned(), octets));
    let cut = (14..four.len()).map(|len| (format!("{len} octets"), four[..len].to_vec()));
    named.chain(cut).chain(misled(&good.message())).collect()
}

fn broken4(four: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("another MAC", only(four, |f| f[5] = 9)),
        ("a MAC of many as source", only(four, |f| f[6] |= 1)),
        ("another protocol", only(four, |f| f[12] = 0x81)),
        ("options", but(four, |f| f[IP] = 0x46)),
        ("version", but(four, |f| f[IP] = 0x55)),
        ("more fragments", but(four, |f| f[IP + 6] |= 0x20)),
        ("a later fragment", but(four, |f| f[IP + 7] = 1)),
        ("no hops", but(four, |f| f[IP + 8] = 0)),
        ("TCP", but(four, |f| f[IP + 9] = 6)),
        ("IPv4 checksum", only(four, |f| f[IP + 10] ^= 1)),
        ("total length", only(four, |f| f[IP + 3] ^= 1)),
        ("UDP length", only(four, |f| f[UDP4 + 5] ^= 1)),
        ("UDP checksum", only(four, |f| f[UDP4 + 6] ^= 1)),
        ("contents", only(four, |f| f[UDP4 + 9] ^= 1)),
    ]
}

fn broken6(six: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("IPv6 version", but(six, |f| f[IP] = 0x50)),
        ("an IPv6 extension", but(six, |f| f[IP + 6] = 0)),
        ("no hops of IPv6", but(six, |f| f[IP + 7] = 0)),
        ("no checksum", only(six, |f| f[UDP6 + 6..UDP6 + 8].fill(0))),
        ("IPv6 UDP checksum", only(six, |f| f[UDP6 + 7] ^= 1)),
        ("IPv6 length", only(six, |f| f[IP + 5] ^= 1)),
    ]
}

/// Frames with an impossible source or without a listening destination.
fn misled(message: &[u8]) -> Vec<(String, Vec<u8>)> {
    let four = "127.0.0.1 0.0.0.0 0.1.2.3 224.0.0.1 240.0.0.1 255.255.255.255 10.255.255.255 10.0.0.1 11.0.0.1 \
                9.255.255.255 10.9.0.1 10.9.255.255";
    let six = "::1 :: ff02::1 ::ffff:10.0.0.2 2001:db8::1 2001:db9::1 2001:db8:9::1";
    let four = four
        .split_whitespace()
        .map(|source| (source, "10.0.0.1", (4000, 53)));
    let six = six
        .split(' ')
        .map(|source| (source, "2001:db8::1", (4000, 53)));
    let others = [
        ("10.0.0.2", "10.0.0.3", (4000, 53)),
        ("10.0.0.2", "10.0.0.1", (4000, 54)),
        ("10.0.0.2", "10.0.0.1", (0, 53)),
        ("2001:db8::2", "2001:db8::3", (4000, 53)),
        ("2001:db8::2", "2001:db8::1", (4000, 5353)),
    ];
    let frame = |(source, target, ports): (&str, &str, (u16, u16))| {
        let octets = frame(
            source.parse().unwrap(),
            target.parse().unwrap(),
            ports,
            message,
        );
        (format!("{source} to {target} {ports:?}"), octets)
    };
    four.chain(six).chain(others).map(frame).collect()
}

/// Frames with a message that is left to the sockets.
pub(super) fn unfit(good: &Frame) -> Vec<(&'static str, Vec<u8>)> {
    let plain = good.octets();
    let edns = Frame {
        udp_size: Some(1232),
        ..good.clone()
    }
    .octets();
    let opt = edns.len() - 11;
    let dns = UDP4 + 8;
    let option = |code: u8, len: u8| {
        but(&edns, |f| {
            let end = f.len();
            f[end - 1] = 4 + len;
            f.extend([0, code, 0, len]);
            f.extend(vec![7; len.into()]);
        })
    };
    vec![
        ("a response", but(&plain, |f| f[dns + 2] |= 0x80)),
        ("a NOTIFY", but(&plain, |f| f[dns + 2] |= 0x20)),
        ("TC", but(&plain, |f| f[dns + 2] |= 2)),
        ("AA", but(&plain, |f| f[dns + 2] |= 4)),
        ("no RD", but(&plain, |f| f[dns + 2] &= !1)),
        ("RA", but(&plain, |f| f[dns + 3] |= 0x80)),
        ("an RCODE", but(&plain, |f| f[dns + 3] |= 3)),
        ("no question", but(&plain, |f| f[dns + 5] = 0)),
        ("two questions", but(&plain, |f| f[dns + 5] = 2)),
        ("an answer", but(&plain, |f| f[dns + 7] = 1)),
        ("an authority", but(&plain, |f| f[dns + 9] = 1)),
        ("an OPT that is not there", but(&plain, |f| f[dns + 11] = 1)),
        ("an OPT that is not told", but(&edns, |f| f[dns + 11] = 0)),
        ("two additionals", but(&edns, |f| f[dns + 11] = 2)),
        ("an octet behind", but(&plain, |f| f.push(0))),
        ("a cookie", option(10, 8)),
        ("padding", option(12, 4)),
        ("an unknown option", option(99, 0)),
        ("EDNS version", but(&edns, |f| f[opt + 6] = 1)),
        ("an owner of OPT", but(&edns, |f| f[opt] = 1)),
        ("another record", but(&edns, |f| f[opt + 2] = 40)),
        ("class CH", but(&plain, |f| *f.last_mut().unwrap() = 3)),
        ("another type", but(&plain, |f| f[plain.len() - 3] = 77)),
        ("another name", but(&plain, |f| f[dns + 13] = b'z')),
        ("a shorter label", but(&plain, |f| f[dns + 12] -= 1)),
        ("a longer label", but(&plain, |f| f[dns + 12] += 1)),
        ("a pointer", but(&plain, |f| f[dns + 12] = 0xc0)),
        (
            "a capital for a length",
            but(&plain, |f| f[dns + 12] = b'D'),
        ),
    ]
}
