//! Selects the records of a response that belong to its question, like Unbound's scrubber: a
//! response must not inject other records into the cache of a client.

use dns64_wire::codes::Rtype;
use dns64_wire::message::{Message, Record, Section};
use dns64_wire::name::Name;

use super::chain::Chain;
use crate::answer::rdata;

/// Number of zones in a response whose DNSSEC records are kept. A chain with signed data from two
/// zones is already rare.
const ZONES_MAX: usize = 8;

/// Number of names in a response whose addresses are kept: 13 name servers of a zone (RFC 8109
/// section 4) and more hosts than a service has. Further additional records are removed: they are
/// optional (RFC 1034 section 3.7).
const TARGETS_MAX: usize = 32;

/// A set of a few names.
pub(super) struct Names<'a, const N: usize>([Option<Name<'a>>; N]);

impl<'a, const N: usize> Names<'a, N> {
    pub(super) const NONE: Self = Self([None; N]);

    /// Adds a name if there is room.
    pub(super) fn add(&mut self, name: Name<'a>) {
        for place in &mut self.0 {
            match place {
                Some(known) if known.eq_ignore_case(&name) => return,
                Some(_) => {}
                None => {
                    *place = Some(name);
                    return;
                }
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Name<'a>> {
        self.0.iter().map_while(Option::as_ref)
    }

    fn has(&self, name: &Name<'_>) -> bool {
        self.iter().any(|known| known.eq_ignore_case(name))
    }
}

/// Selects records of the authority section: the SOA record of a negative response, name servers of
/// zones of the chain, and DNSSEC records of these zones.
pub(super) struct Authority<'c, 'a> {
    chain: &'c Chain<'a>,
    /// Offset of the data of the SOA record that applies.
    soa_at: Option<usize>,
    zones: Names<'a, ZONES_MAX>,
}

impl<'c, 'a> Authority<'c, 'a> {
    /// Creates a selection; `soa_at` is the offset of the data of the SOA record that applies.
    pub(super) fn of(chain: &'c Chain<'a>, soa_at: Option<usize>) -> Self {
        Self {
            chain,
            soa_at,
            zones: Names::NONE,
        }
    }

    /// Finds the zones whose DNSSEC records are kept. Without this call, none are kept.
    pub(super) fn take_zones(&mut self, reply: &Message<'a>) {
        for record in reply.records().map_while(Result::ok) {
            let zone = match (record.section, record.rtype) {
                (Section::Additional, _) => break,
                (Section::Authority, Rtype::SOA | Rtype::NS) => Some(record.name),
                _ => rdata::signer(&record),
            };
            if let Some(zone) = zone.filter(|zone| self.chain.is_below(zone)) {
                self.zones.add(zone);
            }
        }
    }

    pub(super) fn keeps(&self, record: &Record<'_>) -> bool {
        match record.rtype {
            Rtype::SOA => self.soa_at == Some(record.rdata_offset),
            Rtype::RRSIG => {
                rdata::covered(record).is_some_and(|covered| self.keeps_type(covered, &record.name))
            }
            rtype => self.keeps_type(rtype, &record.name),
        }
    }

    fn keeps_type(&self, rtype: Rtype, owner: &Name<'_>) -> bool {
        match rtype {
            Rtype::SOA => self.chain.end().is_within(owner),
            Rtype::NS => self.chain.is_below(owner),
            _ => is_proof(rtype) && self.zones.iter().any(|zone| owner.is_within(zone)),
        }
    }
}

/// Whether records of this type are DNSSEC records of their zone (RFC 4034, RFC 5155).
pub(super) fn is_proof(rtype: Rtype) -> bool {
    matches!(rtype, Rtype::DS | Rtype::NSEC | Rtype::NSEC3)
}

/// Selects records of the additional section: addresses of hosts and services in the data of kept
/// records, and the aliases to these addresses.
pub(super) struct Additional<'a> {
    targets: Names<'a, TARGETS_MAX>,
}

impl<'a> Additional<'a> {
    pub(super) const NONE: Self = Self {
        targets: Names::NONE,
    };

    /// Adds the names in the data of a kept record of another section.
    pub(super) fn follow(&mut self, message: &Message<'a>, record: &Record<'a>) {
        if let Some(target) = rdata::target(message.bytes(), record) {
            self.targets.add(target);
        }
    }

    /// Whether an additional record is kept. It must come after the records that lead to it, which
    /// is the order that resolvers use.
    pub(super) fn keeps(&mut self, message: &Message<'a>, record: &Record<'a>) -> bool {
        let rtype = rdata::covered(record).unwrap_or(record.rtype);
        let is_kept = matches!(
            rtype,
            Rtype::A | Rtype::AAAA | Rtype::CNAME | Rtype::SRV | Rtype::SVCB | Rtype::HTTPS
        ) && self.targets.has(&record.name);
        if is_kept {
            self.follow(message, record);
            if let (Rtype::CNAME, Ok(target)) = (record.rtype, record.rdata_name()) {
                self.targets.add(target);
            }
        }
        is_kept
    }
}
