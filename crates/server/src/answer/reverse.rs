//! Answers queries for the reverse names of synthesised addresses (RFC 6147 section 5.3.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dns64_wire::Truncated;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::Section;
use dns64_wire::name::NameBuf;

use super::asker::Asker;
use super::copy::{Copier, FIXED_LEN};
use super::reply::{self, Head};
use super::stored::{Aged, Kind};
use crate::settings::dns64::{Dns64, Ptr};

/// TTL in seconds of the record with the local name, which no zone determines: the limit of RFC
/// 6147 section 5.1.7 for synthesised records.
const LOCAL_TTL: u32 = 600;

/// Number of nibbles in an IPv6 address, each of which is a label (RFC 3596 section 2.5).
const NIBBLES: usize = 32;

/// The target of the reverse name of a synthesised address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a name on the stack costs less than one on the heap"
)]
pub enum Reverse<'a> {
    /// One name for all addresses: see [`local`].
    Local(&'a NameBuf),
    /// The reverse name of the IPv4 address: see [`alias`].
    Alias(NameBuf),
}

/// The target of a PTR query, if its name is the reverse name of an address under one of the
/// prefixes; otherwise `None`.
pub fn target<'a>(asker: &Asker, dns64: &'a Dns64) -> Option<Reverse<'a>> {
    if asker.rtype != Rtype::PTR || asker.class != Class::IN {
        return None;
    }
    let ipv4 = dns64.extract(address(&asker.name)?)?;
    Some(match &dns64.ptr {
        Ptr::Local(name) => Reverse::Local(name),
        Ptr::Cname => Reverse::Alias(in_addr_arpa(ipv4)?),
    })
}

/// The IPv6 address of a name below `ip6.arpa`; `None` if the address is incomplete (RFC 3596
/// section 2.5).
pub fn address(name: &NameBuf) -> Option<Ipv6Addr> {
    let (nibbles, suffix) = name.as_wire().split_at_checked(2 * NIBBLES)?;
    if !suffix.eq_ignore_ascii_case(b"\x03ip6\x04arpa\0") {
        return None;
    }
    let mut bits = 0;
    for (place, label) in nibbles.chunks_exact(2).enumerate() {
        let digit = char::from(label[1])
            .to_digit(16)
            .filter(|_| label[0] == 1)?;
        bits |= u128::from(digit) << (4 * place);
    }
    Some(bits.into())
}

/// The reverse name of an address. Always `Some`: the name is never too long.
pub fn of_address(address: IpAddr) -> Option<NameBuf> {
    let ipv6 = match address {
        IpAddr::V4(ipv4) => return in_addr_arpa(ipv4),
        IpAddr::V6(ipv6) => ipv6.to_bits(),
    };
    let nibbles = (0..NIBBLES).map(|place| format!("{:x}.", ipv6 >> (4 * place) & 15));
    (nibbles.collect::<String>() + "ip6.arpa").parse().ok()
}

/// The reverse name of an IPv4 address (RFC 1035 section 3.5). Always `Some`: the name is never too
/// long.
fn in_addr_arpa(ipv4: Ipv4Addr) -> Option<NameBuf> {
    let mut wire = [0; 4 * 4 + 14];
    let mut len = 0;
    for octet in ipv4.octets().into_iter().rev() {
        let digits = [octet / 100, octet / 10 % 10, octet % 10].map(|digit| b'0' + digit);
        let skip = match octet {
            0..10 => 2,
            10..100 => 1,
            100.. => 0,
        };
        wire[len] = 3 - skip;
        let digits = &digits[usize::from(skip)..];
        wire[len + 1..=len + digits.len()].copy_from_slice(digits);
        len += 1 + digits.len();
    }
    let suffix = b"\x07in-addr\x04arpa\0";
    wire[len..len + suffix.len()].copy_from_slice(suffix);
    NameBuf::from_wire(&wire[..len + suffix.len()]).ok()
}

/// Answers authoritatively with the one name for all addresses. Returns the length in octets.
pub fn local(asker: &Asker, name: &NameBuf, frame: &mut [u8]) -> usize {
    let head = Head {
        rcode: Rcode::NOERROR,
        aa: true,
        ad: false,
        extended_error: None,
    };
    reply::write(asker, &head, frame, |builder| {
        builder.record(
            Section::Answer,
            Owner::Question,
            Rtype::PTR,
            Class::IN,
            LOCAL_TTL,
            name.as_wire(),
        )
    })
}

/// Answers a PTR query from the response for PTR of `target`, the reverse name of the IPv4 address.
///
/// The response has a CNAME record to `target` and its PTR records. If `target` is itself an alias,
/// as in RFC 2317, the PTR records are under the queried name without a CNAME, because RFC 6147
/// requires that the chain is not extended. If there is no PTR record, the response has the same
/// response code and the SOA record for its negative TTL (RFC 2308 section 5). Returns the length
/// in octets.
pub fn alias(asker: &Asker, target: &NameBuf, ptr: Aged<'_>, frame: &mut [u8]) -> usize {
    let stored = ptr.stored;
    let head = Head {
        rcode: stored.rcode(),
        extended_error: ptr.extended_error(),
        ..Head::default()
    };
    let message = stored.message();
    if stored.kind() != Kind::Positive || stored.found() == 0 {
        return reply::write(asker, &head, frame, |to| {
            let mut copier = Copier::new(&message, None);
            reply::each(to, stored.soa(&message), |to, record| {
                copier.record(to, record, ptr.ttl(record.ttl))
            })
        });
    }
    // In a positive response: the smallest TTL of the answer section.
    let ttl = ptr.ttl(stored.ttl_s());
    let is_direct = stored.chain_end().eq_ignore_case(&target.as_name());
    reply::write(asker, &head, frame, |to| {
        if !is_direct {
            let mut copier = Copier::new(&message, None);
            let found = stored.found_within(&message, false, to.room())?;
            return reply::each(to, found, |to, record| {
                copier.under(to, Owner::Question, record, ttl)
            });
        }
        let target_at = cname(to, target, ttl)?;
        let mut copier = Copier::new(&message, Some(target_at));
        let found = stored.found_within(&message, true, to.room())?;
        reply::each(to, found, |to, record| {
            copier.record(to, record, ptr.ttl(record.ttl))
        })
    })
}

/// Writes the CNAME record; returns the offset of its target.
fn cname(builder: &mut Builder<'_>, target: &NameBuf, ttl: u32) -> Result<u16, Truncated> {
    let target_at = builder.position() + 2 + FIXED_LEN;
    builder.record(
        Section::Answer,
        Owner::Question,
        Rtype::CNAME,
        Class::IN,
        ttl,
        target.as_wire(),
    )?;
    u16::try_from(target_at).map_err(|_| Truncated)
}

#[cfg(test)]
mod tests;
