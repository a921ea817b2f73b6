//! Answers queries for special-use zones, which no server on the Internet has data for.
//!
//! The zones are those of the registry of locally served zones (RFC 6303, RFC 7793, RFC 8375, RFC
//! 9462, RFC 9665), `localhost` and `invalid` (RFC 6761), and `onion` (RFC 7686). Unbound serves
//! the same zones by default (`resolver.arpa` and `service.arpa` since 2025), except `test`, which
//! is forwarded because resolvers in test networks have its names.
//!
//! A zone has the records of RFC 6303 section 3, and responses are authoritative. Queries for DS of
//! a zone below `arpa` are forwarded, because DS is in the parent zone.

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::build::Owner;
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{HEADER_LEN, Section};
use dns64_wire::name::NameBuf;

use super::asker::Asker;
use super::reply::{self, Head};
use super::special::{self, is_within};
use crate::settings::dns64::Dns64;
use crate::settings::domains::Domains;

/// Serial, refresh, retry, expire and minimum of a zone (RFC 6303 section 3).
const SOA_NUMBERS: [u32; 5] = [1, 3600, 1200, 604_800, TTL];

/// TTL of the records in seconds (RFC 6303 section 3).
const TTL: u32 = 10_800;

const ARPA: &[u8] = b"\x04arpa\0";
const LOCALHOST: &[u8] = b"\x09localhost\0";

/// The reverse name of 127.0.0.1, for which Unbound returns a PTR record. That of ::1 is a zone of
/// its own.
const LOOPBACK: &[u8] = b"\x011\x010\x010\x03127\x07in-addr\x04arpa\0";

/// Reverse zones of IPv4: the octets of each network, and the upper end of the last one.
const IN_ADDR: [(&[u8], u8); 11] = [
    (&[0], 0),                        // this network: RFC 6303 section 4.2
    (&[10], 10),                      // private: RFC 6303 section 4.1
    (&[127], 127),                    // loopback: RFC 6303 section 4.2
    (&[100, 64], 127),                // shared: RFC 7793
    (&[169, 254], 254),               // link-local: RFC 6303 section 4.2
    (&[172, 16], 31),                 // private: RFC 6303 section 4.1
    (&[192, 168], 168),               // private: RFC 6303 section 4.1
    (&[192, 0, 2], 2),                // documentation: RFC 6303 section 4.2
    (&[198, 51, 100], 100),           // documentation: RFC 6303 section 4.2
    (&[203, 0, 113], 113),            // documentation: RFC 6303 section 4.2
    (&[255, 255, 255, 255], u8::MAX), // broadcast: RFC 6303 section 4.2
];

/// Reverse zones of IPv6: the nibbles of each network.
const IP6: [&[u8]; 8] = [
    b"00000000000000000000000000000000", // unspecified: RFC 6303 section 4.3
    b"00000000000000000000000000000001", // loopback: RFC 6303 section 4.3
    b"fd",                               // unique local: RFC 6303 section 4.4
    b"fe8",                              // link-local, four zones: RFC 6303 section 4.5
    b"fe9",
    b"fea",
    b"feb",
    b"20010db8", // documentation: RFC 6303 section 4.6
];

/// Number of labels of an address below `in-addr.arpa` and below `ip6.arpa`.
const OCTETS: usize = 4;
const NIBBLES: usize = 32;

/// The special-use zone of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zone {
    /// Offset of the zone's name in that name.
    at: usize,
    kind: Kind,
}

/// Contents of a zone besides SOA and NS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No records: names below it do not exist.
    Empty,
    /// The loopback addresses, at every name (RFC 6761 section 6.3).
    Localhost,
    /// No records, but every name exists (RFC 9462 section 6.4).
    NoData,
    /// A reverse zone of IPv6, with the network of the name: its bits and prefix length.
    Ip6(u128, u32),
}

/// Answers a query for a name in a special-use zone; returns the length in octets, or `None` if the
/// query is forwarded. Names at and below those of `forwarded` are forwarded, and so are names in
/// `ip6.arpa` that are above or below a prefix of the client's view, and names in one of `domains`,
/// which have servers of their own, unless the zone is the longer match.
pub fn answer<T>(
    asker: &Asker,
    dns64: Option<&Dns64>,
    forwarded: &[NameBuf],
    domains: &Domains<T>,
    frame: &mut [u8],
) -> Option<usize> {
    let name = asker.name.as_wire();
    let zone = find(name).filter(|_| asker.class == Class::IN)?;
    let is_forwarded = |domain: &NameBuf| is_within(name, domain.as_wire());
    let is_of_parent = asker.rtype == Rtype::DS && zone.at == 0 && is_within(name, ARPA);
    let domain_len = domains.get(&asker.name).map_or(0, |(len, _)| len);
    if is_of_parent
        || forwarded.iter().any(is_forwarded)
        || domain_len >= name.len() - zone.at
        || is_prefixed(zone.kind, dns64)
    {
        return None;
    }
    let localhost = zone.kind == Kind::Localhost;
    Some(match asker.rtype {
        Rtype::A | Rtype::ANY if localhost => {
            record(asker, Rtype::A, &Ipv4Addr::LOCALHOST.octets(), frame)
        }
        Rtype::AAAA if localhost => {
            record(asker, Rtype::AAAA, &Ipv6Addr::LOCALHOST.octets(), frame)
        }
        Rtype::PTR if is_loopback(name) => record(asker, Rtype::PTR, LOCALHOST, frame),
        Rtype::NS if zone.at == 0 => record(asker, Rtype::NS, name, frame),
        Rtype::SOA | Rtype::ANY if zone.at == 0 => {
            soa(asker, Rcode::NOERROR, Section::Answer, zone, frame)
        }
        _ => {
            let exists = zone.at == 0
                || matches!(zone.kind, Kind::Localhost | Kind::NoData)
                || is_within(LOOPBACK, name);
            let rcode = if exists {
                Rcode::NOERROR
            } else {
                Rcode::NXDOMAIN
            };
            soa(asker, rcode, Section::Authority, zone, frame)
        }
    })
}

/// Whether `domain` is in a special-use zone, or is a parent domain of many.
pub fn concerns(domain: &NameBuf) -> bool {
    const ABOVE: [&[u8]; 4] = [b"\0", ARPA, b"\x07in-addr\x04arpa\0", b"\x03ip6\x04arpa\0"];
    let name = domain.as_wire();
    ABOVE.iter().any(|above| name.eq_ignore_ascii_case(above)) || find(name).is_some()
}

/// The zone of a name. The last letter rules out most other names.
fn find(name: &[u8]) -> Option<Zone> {
    let top = match name.get(name.len().checked_sub(2)?)?.to_ascii_lowercase() {
        b'a' => ARPA,
        b't' => LOCALHOST,
        b'd' => b"\x07invalid\0",
        b'n' => b"\x05onion\0",
        _ => return None,
    };
    if !is_within(name, top) {
        return None;
    }
    let at = name.len() - top.len();
    match top {
        ARPA => below_arpa(name),
        LOCALHOST => Some(Zone {
            at,
            kind: Kind::Localhost,
        }),
        _ => Some(Zone {
            at,
            kind: Kind::Empty,
        }),
    }
}

/// The zone of a name below `arpa`.
fn below_arpa(name: &[u8]) -> Option<Zone> {
    let labels = Labels::of(name);
    let (at, label) = labels.last(1)?;
    let is = |known: &[u8]| label.eq_ignore_ascii_case(known);
    if is(b"in-addr") {
        return in_addr(&labels);
    }
    if is(b"ip6") {
        return ip6(&labels);
    }
    let kind = if is(b"resolver") {
        Kind::NoData
    } else if is(b"home") || is(b"service") {
        Kind::Empty
    } else {
        return None;
    };
    Some(Zone { at, kind })
}

/// The zone of a name below `in-addr.arpa` (RFC 1035 section 3.5).
fn in_addr(labels: &Labels<'_>) -> Option<Zone> {
    let mut octets = [0; OCTETS];
    let mut count = 0;
    for place in &mut octets {
        let Some(octet) = labels.last(2 + count).and_then(|(_, label)| octet(label)) else {
            break;
        };
        *place = octet;
        count += 1;
    }
    let octets = &octets[..count];
    let holds = |(first, last): &&(&[u8], u8)| {
        first.split_last().is_some_and(|(from, above)| {
            let own = octets.strip_prefix(above).and_then(<[u8]>::first);
            own.is_some_and(|own| (*from..=*last).contains(own))
        })
    };
    let (network, _) = IN_ADDR.iter().find(holds)?;
    let (at, _) = labels.last(1 + network.len())?;
    let kind = Kind::Empty;
    Some(Zone { at, kind })
}

/// An octet as a label: decimal, without leading zeros.
fn octet(label: &[u8]) -> Option<u8> {
    let digit = |value: u16, c: &u8| c.is_ascii_digit().then(|| 10 * value + u16::from(c - b'0'));
    match label {
        [b'0', _, ..] | [_, _, _, _, ..] => None,
        digits => u8::try_from(digits.iter().try_fold(0, digit)?).ok(),
    }
}

/// The zone of a name below `ip6.arpa` (RFC 3596 section 2.5).
fn ip6(labels: &Labels<'_>) -> Option<Zone> {
    let (mut nibbles, mut bits, mut count) = ([0; NIBBLES], 0, 0);
    for place in &mut nibbles {
        let Some((_, &[label])) = labels.last(2 + count) else {
            break;
        };
        let Some(digit) = char::from(label).to_digit(16) else {
            break;
        };
        *place = label.to_ascii_lowercase();
        bits = bits << 4 | u128::from(digit);
        count += 1;
    }
    let network = IP6
        .iter()
        .find(|network| nibbles[..count].starts_with(network))?;
    let (at, _) = labels.last(1 + network.len())?;
    let len = 4 * u32::try_from(count).ok()?;
    let kind = Kind::Ip6(bits << (u128::BITS - len), len);
    Some(Zone { at, kind })
}

/// Whether a name of `ip6.arpa` is above or below that of a prefix. The reverse names of
/// synthesised addresses are there, and NXDOMAIN would also deny them (RFC 8020).
fn is_prefixed(kind: Kind, dns64: Option<&Dns64>) -> bool {
    let (Kind::Ip6(bits, len), Some(dns64)) = (kind, dns64) else {
        return false;
    };
    dns64.prefixes_in_use().any(|prefix| {
        let shared = len.min(u32::from(prefix.prefix_len()));
        (prefix.addr().to_bits() ^ bits).leading_zeros() >= shared
    })
}

/// Whether this is the reverse name of 127.0.0.1 or ::1.
fn is_loopback(name: &[u8]) -> bool {
    let is_ipv6 = matches!(
        find(name),
        Some(Zone {
            at: 0,
            kind: Kind::Ip6(1, _)
        })
    );
    is_ipv6 || name.eq_ignore_ascii_case(LOOPBACK)
}

/// The offsets of the labels of a name.
struct Labels<'n> {
    name: &'n [u8],
    /// At most 127: a label has at least two octets.
    starts: [u8; 127],
    count: usize,
}

impl<'n> Labels<'n> {
    fn of(name: &'n [u8]) -> Self {
        let mut labels = Self {
            name,
            starts: [0; 127],
            count: 0,
        };
        let mut at = 0_u8;
        for place in &mut labels.starts {
            let len = name[usize::from(at)];
            if len == 0 {
                break;
            }
            *place = at;
            labels.count += 1;
            at += 1 + len;
        }
        labels
    }

    /// A label, counted from the last one, and its offset.
    fn last(&self, index: usize) -> Option<(usize, &'n [u8])> {
        let index = self.count.checked_sub(index + 1)?;
        let at = usize::from(self.starts[index]);
        let len = usize::from(self.name[at]);
        Some((at, &self.name[at + 1..=at + len]))
    }
}

fn head(rcode: Rcode) -> Head {
    Head {
        rcode,
        aa: true,
        ..Head::default()
    }
}

/// A response with one record.
fn record(asker: &Asker, rtype: Rtype, data: &[u8], frame: &mut [u8]) -> usize {
    reply::write(asker, &head(Rcode::NOERROR), frame, |builder| {
        let (section, owner) = (Section::Answer, Owner::Question);
        builder.record(section, owner, rtype, Class::IN, TTL, data)
    })
}

/// A response with the SOA record of the zone.
fn soa(asker: &Asker, rcode: Rcode, section: Section, zone: Zone, frame: &mut [u8]) -> usize {
    reply::write(asker, &head(rcode), frame, |builder| {
        special::soa(builder, section, HEADER_LEN + zone.at, SOA_NUMBERS, TTL)
    })
}

#[cfg(test)]
mod tests;
