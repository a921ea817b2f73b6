//! Answers `ipv4only.arpa`, from which clients learn the prefix of their NAT64 (RFC 7050, RFC
//! 8880).

use std::net::Ipv4Addr;

use dns64_wire::Truncated;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{HEADER_LEN, Section};
use dns64_wire::pref64::Pref64;

use super::asker::Asker;
use super::reply::{self, Head};
use super::reverse;
use crate::settings::dns64::Dns64;

/// `ipv4only.arpa` (RFC 7050 section 8.2).
const ZONE: &[u8] = b"\x08ipv4only\x04arpa\0";

/// Its addresses (RFC 7050 section 8.2).
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// TTL of the A records in seconds (RFC 8880 appendix A).
const TTL: u32 = 86_400;

/// TTL in seconds of the records that contain a prefix: clients learn of a new prefix when it has
/// expired (RFC 7050 section 5). Section 4 has at least an hour for the zone.
const PREFIX_TTL: u32 = 3600;

/// Serial, refresh, retry, expire and minimum of the zone (RFC 8880 appendix A).
const SOA_NUMBERS: [u32; 5] = [2_016_052_400, 7200, 3600, 15_724_800, SOA_MINIMUM];

/// TTL of negative responses in seconds, which is also the TTL of the SOA record in them (RFC 2308
/// section 3).
const SOA_MINIMUM: u32 = 60;

/// RNAME of the zone: nobody, as in all locally served zones (RFC 6303 section 3).
const SOA_RNAME: &[u8] = b"\x06nobody\x07invalid\0";

/// Largest number of prefixes in the synthesised AAAA records. A client tries them one by one (RFC
/// 7050 section 3), so a group of clients has only a few.
const PREFIXES: usize = 32;

/// Answers queries for `ipv4only.arpa`, for names below it and for the reverse names of its
/// synthesised addresses, if the view of the client enables it. Returns the length in octets.
///
/// CD and DO do not prevent synthesis: the server is the authority for this zone (RFC 8880 section
/// 7.1). Queries for DS of the zone itself go to the upstream, as required there.
pub fn answer(asker: &Asker, dns64: Option<&Dns64>, frame: &mut [u8]) -> Option<usize> {
    let dns64 = dns64.filter(|dns64| dns64.ipv4only && asker.class == Class::IN)?;
    let name = asker.name.as_wire();
    if name.eq_ignore_ascii_case(ZONE) {
        return match asker.rtype {
            Rtype::DS => None,
            Rtype::A => Some(addresses(asker, frame)),
            Rtype::AAAA => Some(synthesised(asker, dns64, frame)),
            _ => Some(negative(asker, Rcode::NOERROR, name.len(), frame)),
        };
    }
    if is_within(name, ZONE) {
        return Some(negative(asker, Rcode::NXDOMAIN, name.len(), frame));
    }
    let asks_for_name = asker.rtype == Rtype::PTR && is_address_name(asker, dns64);
    asks_for_name.then(|| pointer(asker, frame))
}

/// Whether a name in wire format is `ancestor` or below it.
pub(crate) fn is_within(name: &[u8], ancestor: &[u8]) -> bool {
    let Some(at) = name.len().checked_sub(ancestor.len()) else {
        return false;
    };
    if !name[at..].eq_ignore_ascii_case(ancestor) {
        return false;
    }
    // `ancestor` must begin at the start of a label.
    let mut start = 0;
    while start < at {
        start += 1 + usize::from(name[start]);
    }
    start == at
}

/// Whether the name is the reverse name of a synthesised address of the zone (RFC 8880 section
/// 7.2.1). The reverse names of the IPv4 addresses themselves are not special here (section 7.2,
/// item 4).
fn is_address_name(asker: &Asker, dns64: &Dns64) -> bool {
    let ipv4 = reverse::address(&asker.name).and_then(|ipv6| dns64.extract(ipv6));
    ipv4.is_some_and(|ipv4| ADDRESSES.contains(&ipv4))
}

fn head(rcode: Rcode) -> Head {
    Head {
        rcode,
        aa: true,
        ..Head::default()
    }
}

fn record(builder: &mut Builder<'_>, rtype: Rtype, data: &[u8]) -> Result<(), Truncated> {
    let (section, owner) = (Section::Answer, Owner::Question);
    let ttl = if rtype == Rtype::A { TTL } else { PREFIX_TTL };
    builder.record(section, owner, rtype, Class::IN, ttl, data)
}

fn addresses(asker: &Asker, frame: &mut [u8]) -> usize {
    reply::write(asker, &head(Rcode::NOERROR), frame, |builder| {
        let mut octets = ADDRESSES.iter().map(Ipv4Addr::octets);
        octets.try_for_each(|octets| record(builder, Rtype::A, &octets))
    })
}

/// Both addresses under every prefix in use (RFC 8880 section 7.1). They are synthesised although
/// they are not global, because clients derive the prefix from them.
fn synthesised(asker: &Asker, dns64: &Dns64, frame: &mut [u8]) -> usize {
    let mut prefixes = [Pref64::WELL_KNOWN; PREFIXES];
    let mut count = 0;
    for prefix in dns64.prefixes_in_use() {
        if count < PREFIXES && !prefixes[..count].contains(&prefix) {
            prefixes[count] = prefix;
            count += 1;
        }
    }
    if count == 0 {
        return negative(asker, Rcode::NOERROR, ZONE.len(), frame);
    }
    reply::write(asker, &head(Rcode::NOERROR), frame, |builder| {
        let mut made = prefixes[..count]
            .iter()
            .flat_map(|prefix| ADDRESSES.map(|ipv4| prefix.embed(ipv4).octets()));
        made.try_for_each(|octets| record(builder, Rtype::AAAA, &octets))
    })
}

fn pointer(asker: &Asker, frame: &mut [u8]) -> usize {
    reply::write(asker, &head(Rcode::NOERROR), frame, |builder| {
        record(builder, Rtype::PTR, ZONE)
    })
}

/// A response with only the SOA record of the zone, whose name is the end of the queried name,
/// which has `name_len` octets.
fn negative(asker: &Asker, rcode: Rcode, name_len: usize, frame: &mut [u8]) -> usize {
    reply::write(asker, &head(rcode), frame, |builder| {
        let zone_at = HEADER_LEN + name_len - ZONE.len();
        let ttl = TTL.min(SOA_MINIMUM);
        soa(builder, Section::Authority, zone_at, SOA_NUMBERS, ttl)
    })
}

/// Writes the SOA record of a zone whose name is at `zone_at` and is also its MNAME.
pub(super) fn soa(
    builder: &mut Builder<'_>,
    section: Section,
    zone_at: usize,
    numbers: [u32; 5],
    ttl: u32,
) -> Result<(), Truncated> {
    let zone_at = u16::try_from(zone_at).map_err(|_| Truncated)?;
    let mname = (0xc000 | zone_at).to_be_bytes();
    let mut octets = [0; 20];
    for (place, number) in octets.chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    builder.record_parts(
        section,
        Owner::At(zone_at),
        Rtype::SOA,
        Class::IN,
        ttl,
        [&mname, SOA_RNAME, &octets],
    )
}

#[cfg(test)]
mod tests;
