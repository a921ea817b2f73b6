//! Answers queries for names that the server knows itself: those of the operator, and of special-use zones, which no
//! server on the Internet has data for.
//!
//! The zones are those of the registry of locally served zones (RFC 6303, RFC 7793, RFC 8375, RFC
//! 9462, RFC 9665), `localhost` and `invalid` (RFC 6761), and `onion` (RFC 7686). Unbound serves
//! the same zones by default (`resolver.arpa` and `service.arpa` since 2025), except `test`, which
//! is forwarded because resolvers in test networks have its names.
//!
//! A zone has the records of RFC 6303 section 3, and responses are authoritative. Queries for DS of
//! a zone below `arpa` are forwarded, because DS is in the parent zone.

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::Truncated;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{HEADER_LEN, Section};
use dns64_wire::name::NameBuf;

use super::asker::Asker;
use super::copy::FIXED_LEN;
use super::reply::{self, Head};
use super::special::{self, is_within};
use super::stored::FOLLOWED_MAX;
use crate::settings::dns64::Dns64;
use crate::settings::domains::Domains;
use crate::settings::local::{Found, Local, LocalRecord, Zone};

/// Serial, refresh, retry and expire of a zone (RFC 6303 section 3).
const SOA_NUMBERS: [u32; 4] = [1, 3600, 1200, 604_800];

/// TTL of the records of special-use zones in seconds (RFC 6303 section 3).
const TTL_S: u32 = 10_800;

const ARPA: &[u8] = b"\x04arpa\0";
const IP6_ARPA: &[u8] = b"\x03ip6\x04arpa\0";

/// Number of labels of an address below it.
const NIBBLES: usize = 32;

/// Zones without records: names below them do not exist.
const EMPTY: [&str; 4] = ["invalid", "onion", "home.arpa", "service.arpa"];

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

/// The special-use zones, without those in domains that are forwarded.
pub fn special_use(forwarded: &[NameBuf]) -> Local {
    let mut local = Local::default();
    for zone in in_addr().chain(IP6.map(ip6)).chain(EMPTY.map(known)) {
        local.set_zone(&zone, Zone::Closed(TTL_S));
    }
    // Every name has the loopback addresses (RFC 6761 section 6.3).
    local.set_zone(&known("localhost"), Zone::Closed(TTL_S));
    for owner in [known("localhost"), known("*.localhost")] {
        local.add(&owner, record(Rtype::A, &Ipv4Addr::LOCALHOST.octets()));
        local.add(&owner, record(Rtype::AAAA, &Ipv6Addr::LOCALHOST.octets()));
    }
    // As Unbound has them.
    for owner in [known("1.0.0.127.in-addr.arpa"), ip6(IP6[1])] {
        local.add(&owner, record(Rtype::PTR, known("localhost").as_wire()));
    }
    // Every name exists, without records (RFC 9462 section 6.4).
    local.set_zone(&known("resolver.arpa"), Zone::Closed(TTL_S));
    local.add_name(&known("*.resolver.arpa"));
    for domain in forwarded {
        local.open(domain);
    }
    local
}

/// The names of the reverse zones of IPv4 (RFC 1035 section 3.5).
fn in_addr() -> impl Iterator<Item = NameBuf> {
    IN_ADDR.iter().flat_map(|(network, last)| {
        let (first, above) = network.split_last().unwrap_or((&0, &[]));
        (*first..=*last).map(|own| {
            let octets = [own].into_iter().chain(above.iter().rev().copied());
            let labels: String = octets.map(|octet| format!("{octet}.")).collect();
            known(&(labels + "in-addr.arpa"))
        })
    })
}

/// The name of a reverse zone of IPv6 (RFC 3596 section 2.5).
fn ip6(nibbles: &[u8]) -> NameBuf {
    let labels = nibbles
        .iter()
        .rev()
        .map(|nibble| format!("{}.", char::from(*nibble)));
    known(&(labels.collect::<String>() + "ip6.arpa"))
}

fn known(text: &str) -> NameBuf {
    match text.parse() {
        Ok(name) => name,
        Err(_) => unreachable!("{text} is written here"),
    }
}

fn record(rtype: Rtype, data: &[u8]) -> LocalRecord {
    LocalRecord {
        rtype,
        ttl_s: TTL_S,
        data: data.into(),
    }
}

/// Whether `domain` is in a special-use zone, or is a parent domain of one.
pub fn concerns(domain: &NameBuf) -> bool {
    let name = domain.as_wire();
    let local = special_use(&[]);
    local
        .zones()
        .any(|zone| is_within(name, zone) || is_within(zone, name))
}

/// The response to a query for a local name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its length in octets.
    pub len: usize,
    /// Whether it is only a part of what a client gets: it ends with an alias to a name that is not local, or the rules
    /// of the client's view apply to addresses that the operator gave.
    pub is_part: bool,
}

/// Answers a query for a local name; `None` if the query is forwarded. Names that the operator gave precede all others.
/// Otherwise names are forwarded that are in no closed zone, in `ip6.arpa` above or below a prefix of the client's view,
/// or in one of `domains`, which have servers of their own, unless the zone is the longer match.
pub fn answer<T>(
    asker: &Asker,
    local: &Local,
    dns64: Option<&Dns64>,
    domains: &Domains<T>,
    frame: &mut [u8],
) -> Option<Answered> {
    let find = |name: &NameBuf| {
        let found = local.find(name).filter(|_| asker.class == Class::IN)?;
        let is_ours = found.node.is_some_and(|node| node.is_given)
            || found.zone.is_some_and(|(at, _)| {
                let zone_len = name.as_wire().len() - at;
                let is_of_parent =
                    asker.rtype == Rtype::DS && at == 0 && is_within(name.as_wire(), ARPA);
                let domain_len = domains.get(name).map_or(0, |(len, _)| len);
                !is_of_parent && domain_len < zone_len && !is_prefixed(name, dns64)
            });
        is_ours.then_some(found)
    };
    let mut end = End {
        name: asker.name.clone(),
        found: Some(find(&asker.name)?),
    };
    let mut aliases = Vec::new();
    while let Some(alias) = end
        .alias(asker.rtype)
        .filter(|_| aliases.len() < FOLLOWED_MAX)
    {
        aliases.push(alias);
        let name = NameBuf::from_wire(&alias.data).ok()?;
        end = End {
            found: find(&name),
            name,
        };
    }
    let head = Head {
        rcode: end.rcode(),
        aa: true,
        ..Head::default()
    };
    let len = reply::write(asker, &head, frame, |to| {
        let (mut owner, mut owner_at) = (Owner::Question, HEADER_LEN);
        for alias in aliases {
            owner_at = to.position() + 2 + FIXED_LEN;
            write(to, owner, alias)?;
            owner = Owner::At(u16::try_from(owner_at).map_err(|_| Truncated)?);
        }
        end.write(to, asker.rtype, owner, owner_at)
    });
    let has_rules = matches!(asker.rtype, Rtype::A | Rtype::AAAA);
    let is_part = match end.found.and_then(|found| found.node) {
        Some(node) => has_rules && node.is_given && node.has_address(),
        None => end.found.is_none(),
    };
    Some(Answered { len, is_part })
}

/// The name at the end of the aliases.
struct End<'a> {
    name: NameBuf,
    /// `None`: it is forwarded.
    found: Option<Found<'a>>,
}

impl<'a> End<'a> {
    fn records(&self) -> &'a [LocalRecord] {
        let node = self.found.and_then(|found| found.node);
        node.map_or(&[], |node| &node.records)
    }

    /// The alias that the name is.
    fn alias(&self, rtype: Rtype) -> Option<&'a LocalRecord> {
        let first = self.records().first()?;
        (first.rtype == Rtype::CNAME && !matches!(rtype, Rtype::CNAME | Rtype::ANY))
            .then_some(first)
    }

    fn rcode(&self) -> Rcode {
        match self.found {
            Some(Found { node: None, .. }) => Rcode::NXDOMAIN,
            _ => Rcode::NOERROR,
        }
    }

    /// Writes the records of a type (ANY: of one type, RFC 8482 section 4.1), or the SOA record of the zone that has none.
    /// The name is at `at`.
    fn write(
        &self,
        to: &mut Builder<'_>,
        rtype: Rtype,
        owner: Owner<'_>,
        at: usize,
    ) -> Result<(), Truncated> {
        let first = self.records().first().map(|record| record.rtype);
        let wanted = first.filter(|_| rtype == Rtype::ANY).unwrap_or(rtype);
        let mut records = self
            .records()
            .iter()
            .filter(|record| record.rtype == wanted)
            .peekable();
        if records.peek().is_some() {
            return records.try_for_each(|record| write(to, owner, record));
        }
        let Some((zone_at, ttl_s)) = self.found.and_then(|found| found.zone) else {
            return Ok(());
        };
        let zone = &self.name.as_wire()[zone_at..];
        let section = match rtype {
            Rtype::NS if zone_at == 0 => return write(to, owner, &record(Rtype::NS, zone)),
            Rtype::SOA | Rtype::ANY if zone_at == 0 => Section::Answer,
            _ => Section::Authority,
        };
        let [serial, refresh, retry, expire] = SOA_NUMBERS;
        let numbers = [serial, refresh, retry, expire, ttl_s];
        special::soa(to, section, at + zone_at, numbers, ttl_s)
    }
}

fn write(to: &mut Builder<'_>, owner: Owner<'_>, record: &LocalRecord) -> Result<(), Truncated> {
    let LocalRecord { rtype, ttl_s, data } = record;
    to.record(Section::Answer, owner, *rtype, Class::IN, *ttl_s, data)
}

/// Whether a name of `ip6.arpa` is above or below that of a prefix. The reverse names of
/// synthesised addresses are there, and NXDOMAIN would also deny them (RFC 8020).
fn is_prefixed(name: &NameBuf, dns64: Option<&Dns64>) -> bool {
    let Some(dns64) = dns64.filter(|_| is_within(name.as_wire(), IP6_ARPA)) else {
        return false;
    };
    let labels: Vec<_> = name.as_name().labels().collect();
    let nibble = |label: &&[u8]| match label {
        [digit] => char::from(*digit).to_digit(16),
        _ => None,
    };
    let (mut bits, mut len) = (0, 0);
    for digit in labels.iter().rev().skip(2).map_while(nibble).take(NIBBLES) {
        bits |= u128::from(digit) << (u128::BITS - 4 - len);
        len += 4;
    }
    dns64.prefixes_in_use().any(|prefix| {
        let shared = len.min(u32::from(prefix.prefix_len()));
        (prefix.addr().to_bits() ^ bits).leading_zeros() >= shared
    })
}

#[cfg(test)]
mod tests;
