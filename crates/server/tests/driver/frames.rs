//! Frames with a query: unusual ones of many kinds, and random mutants.

use std::net::Ipv6Addr;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::QUERY;

/// Of the server's end of the link, the client's end, and nobody.
pub(crate) const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
/// Of a macvlan interface on the server's end.
const UPPER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const BROADCAST: [u8; 6] = [0xff; 6];

/// Number of frames with random faults in their headers.
const MUTANTS: usize = 600;

/// Offsets of the IP header, and of the UDP header after it.
pub(crate) const IP: usize = 14;
pub(crate) const UDP4: usize = IP + 20;
pub(crate) const UDP6: usize = IP + 40;

/// A frame, and what is unusual in it.
pub(crate) struct Unusual {
    pub(crate) what: String,
    pub(crate) frame: Vec<u8>,
}

fn sum(octets: &[u8]) -> u32 {
    let halves = octets.chunks(2);
    halves
        .map(|half| u32::from(half[0]) << 8 | u32::from(*half.get(1).unwrap_or(&0)))
        .sum()
}

fn fold(mut sum: u32) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap().to_be_bytes()
}

/// Corrects lengths and checksums, as far as their headers exist.
fn repair(frame: &mut [u8]) {
    let len = |from: usize| u16::try_from(frame.len() - from).unwrap().to_be_bytes();
    let (udp, addresses) = match &frame[12..14] {
        [8, 0] if frame.len() >= UDP4 + 8 => {
            // With its options.
            let header = 4 * usize::from(frame[IP] & 15);
            let udp = (IP + header).clamp(UDP4, frame.len() - 8);
            let total = len(IP);
            frame[IP + 2..IP + 4].copy_from_slice(&total);
            frame[IP + 10..IP + 12].fill(0);
            let [a, b] = fold(sum(&frame[IP..udp]));
            frame[IP + 10..IP + 12].copy_from_slice(&[!a, !b]);
            (udp, IP + 12..UDP4)
        }
        [0x86, 0xdd] if frame.len() >= UDP6 + 8 => {
            let payload = len(UDP6);
            frame[IP + 4..IP + 6].copy_from_slice(&payload);
            (UDP6, IP + 8..UDP6)
        }
        _ => return,
    };
    let udp_len = u16::try_from(frame.len() - udp).unwrap();
    frame[udp + 4..udp + 6].copy_from_slice(&udp_len.to_be_bytes());
    frame[udp + 6..udp + 8].fill(0);
    let pseudo = sum(&frame[addresses]) + 17 + u32::from(udp_len);
    let [a, b] = fold(pseudo + sum(&frame[udp..]));
    frame[udp + 6..udp + 8].copy_from_slice(&[!a, !b]);
}

/// A query of a client behind a router.
pub(crate) fn query(is_v6: bool, id: u16) -> Vec<u8> {
    let mut frame = [SERVER_MAC, CLIENT_MAC].concat();
    if is_v6 {
        frame.extend(b"\x86\xdd\x60\0\0\0\0\0\x11\x40");
        frame.extend("fd99::2".parse::<Ipv6Addr>().unwrap().octets());
        frame.extend("fd64::1".parse::<Ipv6Addr>().unwrap().octets());
    } else {
        frame.extend(b"\x08\0\x45\0\0\0\0\0\x40\0\x40\x11\0\0\x0a\x63\0\x02\x0a\x40\0\x01");
    }
    frame.extend(b"\x0f\xa0\0\x35\0\0\0\0");
    frame.extend(id.to_be_bytes());
    frame.extend(&QUERY[2..]);
    repair(&mut frame);
    frame
}

type Change = (&'static str, bool, fn(&mut Vec<u8>));

/// Addresses a frame to every interface of the link.
pub(crate) fn to_all(frame: &mut [u8]) {
    to(frame, BROADCAST);
}

fn to(frame: &mut [u8], mac: [u8; 6]) {
    frame[..6].copy_from_slice(&mac);
}

fn tag(frame: &mut Vec<u8>, tag: [u8; 4]) {
    frame.splice(12..12, tag);
}

/// Changes to an IPv4 frame, and whether lengths and checksums are corrected afterwards.
const CHANGES4: [Change; 37] = [
    ("none", true, |_| ()),
    ("to another MAC", true, |f| to(f, OTHER_MAC)),
    ("to all", true, |f| to_all(f)),
    ("to a group", true, |f| to(f, [1, 0, 0x5e, 0, 0, 1])),
    ("to the MAC of macvlan", true, |f| to(f, UPPER_MAC)),
    ("to macvlan", true, |f| {
        to(f, UPPER_MAC);
        f[31] = 66;
    }),
    ("to macvlan's address here", true, |f| f[31] = 66),
    ("from another MAC", true, |f| f[11] = 3),
    ("from a group", true, |f| f[6] |= 1),
    ("VLAN 100", true, |f| tag(f, [0x81, 0, 0, 100])),
    ("to the address of VLAN 100", true, |f| {
        f[31] = 67;
        repair(f);
        tag(f, [0x81, 0, 0, 100]);
    }),
    ("VLAN 0", true, |f| tag(f, [0x81, 0, 0x20, 0])),
    ("a provider's VLAN", true, |f| tag(f, [0x88, 0xa8, 0, 100])),
    ("two tags", true, |f| {
        tag(f, [0x81, 0, 0, 100]);
        tag(f, [0x88, 0xa8, 0, 7]);
    }),
    ("options", true, |f| {
        f.splice(UDP4..UDP4, [1, 1, 1, 0]);
        f[IP] = 0x46;
    }),
    ("more fragments", true, |f| f[IP + 6] |= 0x20),
    ("a fragment", true, |f| f[IP + 7] = 1),
    ("evil bit", true, |f| f[IP + 6] |= 0x80),
    ("IPv4 checksum", false, |f| f[IP + 10] ^= 1),
    ("total length", false, |f| f[IP + 3] ^= 1),
    ("UDP length", false, |f| f[UDP4 + 5] ^= 1),
    ("UDP checksum", false, |f| f[UDP4 + 6] ^= 1),
    ("contents", false, |f| f[UDP4 + 9] ^= 1),
    ("no checksum", false, |f| f[UDP4 + 6..UDP4 + 8].fill(0)),
    ("padding", false, |f| f.extend([0; 9])),
    ("port 0", true, |f| f[UDP4..UDP4 + 2].fill(0)),
    ("port 54", true, |f| f[UDP4 + 3] = 54),
    ("to an address of lo", true, |f| f[31] = 65),
    ("to 127.0.0.1", true, |f| {
        f[30..34].copy_from_slice(&[127, 0, 0, 1]);
    }),
    ("to nobody", true, |f| f[33] = 99),
    ("to the network's broadcast", true, |f| f[33] = 255),
    ("to a group's address", true, |f| f[30] = 224),
    ("from this host", true, |f| f.copy_within(30..34, 26)),
    ("from lo of this host", true, |f| {
        f[26..30].copy_from_slice(&[10, 65, 0, 1]);
    }),
    ("from broadcast", true, |f| {
        f[26..30].copy_from_slice(&[10, 64, 0, 255]);
    }),
    ("from loopback", true, |f| f[26] = 127),
    ("from a group's address", true, |f| f[26] = 224),
];

/// The same for IPv6.
const CHANGES6: [Change; 15] = [
    ("none", true, |_| ()),
    ("to another MAC", true, |f| to(f, OTHER_MAC)),
    ("to a group", true, |f| to(f, [0x33, 0x33, 0, 0, 0, 1])),
    ("VLAN 100", true, |f| tag(f, [0x81, 0, 0, 100])),
    ("from another MAC", true, |f| f[11] = 3),
    ("version", true, |f| f[IP] = 0x50),
    ("an extension header", true, |f| f[IP + 6] = 0),
    ("IPv6 length", false, |f| f[IP + 5] ^= 1),
    ("no checksum", false, |f| f[UDP6 + 6..UDP6 + 8].fill(0)),
    ("UDP checksum", false, |f| f[UDP6 + 7] ^= 1),
    ("padding", false, |f| f.extend([0; 9])),
    ("from a group", true, |f| f[IP + 8] = 0xff),
    ("from nowhere", true, |f| f[IP + 8..IP + 24].fill(0)),
    ("from loopback", true, |f| {
        f[IP + 8..IP + 23].fill(0);
        f[IP + 23] = 1;
    }),
    ("to nobody", true, |f| f[IP + 39] = 99),
];

/// One to three faults in the headers.
fn mutate(frame: &mut Vec<u8>, random: &mut StdRng) {
    let headers = if frame[12] == 8 { UDP4 } else { UDP6 } + 8;
    for _ in 0..random.random_range(1..=3) {
        let at = random.random_range(0..headers.min(frame.len()));
        match random.random_range(0..6) {
            0 => frame[at] = random.random(),
            1 => frame[at] = 0,
            2 => drop(frame.splice(at..at, [random.random()])),
            3 => frame.extend([0; 3]),
            _ => frame[at] ^= 1 << random.random_range(0..8),
        }
    }
    if random.random_range(0..3) > 0 {
        repair(frame);
    }
}

/// All frames; their IDs are their numbers.
pub(crate) fn all() -> Vec<Unusual> {
    let mut frames = Vec::new();
    let mut random = StdRng::seed_from_u64(64);
    for (is_v6, changes) in [(false, &CHANGES4[..]), (true, &CHANGES6)] {
        for (what, is_repaired, change) in changes {
            let mut frame = query(is_v6, u16::try_from(frames.len()).unwrap());
            change(&mut frame);
            if *is_repaired {
                repair(&mut frame);
            }
            let what = format!("{what}, IPv6 {is_v6}");
            frames.push(Unusual { what, frame });
        }
    }
    for _ in 0..MUTANTS {
        let mut frame = query(random.random(), u16::try_from(frames.len()).unwrap());
        mutate(&mut frame, &mut random);
        let what = format!("{frame:02x?}");
        frames.push(Unusual { what, frame });
    }
    frames
}
