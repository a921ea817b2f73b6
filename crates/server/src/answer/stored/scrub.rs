//! Selects the records of a response that belong to its question, like Unbound's scrubber: a
//! response must not inject other records into the cache of a client.

use dns64_wire::codes::Rtype;
use dns64_wire::message::Section;

use super::chain::Chain;
use super::survey::{Entry, Survey};
use crate::answer::names::{Id, Tree};

/// Selects records of the authority and the additional section, by marks of names.
pub(super) struct Selection {
    marks: Vec<u8>,
}

/// The end of the chain, and the names above it.
const ABOVE_END: u8 = 1;
/// The names of the chain, and the names above them.
const ABOVE_CHAIN: u8 = 2;
/// The zones whose DNSSEC records are kept, and the names below them.
const IN_ZONE: u8 = 4;
/// The hosts and services whose addresses are kept.
const TARGET: u8 = 8;

impl Selection {
    pub(super) fn of(survey: &Survey<'_>, chain: &Chain<'_, '_>, names: &Tree<'_>) -> Self {
        let mut selection = Self {
            marks: vec![0; names.len()],
        };
        for name in chain.names() {
            for id in names.up(name) {
                selection.mark(id, ABOVE_CHAIN);
            }
        }
        for id in names.up(chain.end) {
            selection.mark(id, ABOVE_END);
        }
        if survey
            .authority()
            .iter()
            .any(|entry| is_proof(entry.record.rtype))
        {
            selection.mark_zones(survey, names);
        }
        selection
    }

    /// Marks the zones of the chain: owners of SOA and NS records, and signers.
    fn mark_zones(&mut self, survey: &Survey<'_>, names: &Tree<'_>) {
        for entry in survey.answers().iter().chain(survey.authority()) {
            let zone = match (entry.record.section, entry.record.rtype) {
                (Section::Authority, Rtype::SOA | Rtype::NS) => Some(entry.owner),
                (_, Rtype::RRSIG) => entry.target,
                _ => None,
            };
            if let Some(zone) = zone.filter(|zone| self.has(*zone, ABOVE_CHAIN)) {
                self.mark(zone, IN_ZONE);
            }
        }
        for id in names.downward() {
            if self.has(names.rest(id), IN_ZONE) {
                self.mark(id, IN_ZONE);
            }
        }
    }

    fn mark(&mut self, id: Id, mark: u8) {
        self.marks[id.index()] |= mark;
    }

    fn has(&self, id: Id, mark: u8) -> bool {
        self.marks[id.index()] & mark != 0
    }

    /// Whether a record of the authority section is kept behind the SOA record that applies: name
    /// servers of zones of the chain, and DNSSEC records of these zones.
    pub(super) fn keeps_authority(&self, entry: &Entry<'_>) -> bool {
        match entry.kind() {
            Rtype::SOA if entry.covered.is_none() => false,
            Rtype::SOA => self.has(entry.owner, ABOVE_END),
            Rtype::NS => self.has(entry.owner, ABOVE_CHAIN),
            rtype => is_proof(rtype) && self.has(entry.owner, IN_ZONE),
        }
    }

    /// Keeps the addresses of the host or service in the data of a kept record.
    pub(super) fn follow(&mut self, entry: &Entry<'_>) {
        let is_host = !matches!(
            entry.record.rtype,
            Rtype::CNAME | Rtype::DNAME | Rtype::RRSIG
        );
        if let Some(target) = entry.target.filter(|_| is_host) {
            self.mark(target, TARGET);
        }
    }

    /// Whether a record of the additional section is kept: addresses of hosts and services in the
    /// data of kept records, and the aliases to these addresses. It must come after the records that
    /// lead to it, which is the order that resolvers use.
    pub(super) fn keeps_additional(&mut self, entry: &Entry<'_>) -> bool {
        let is_kept = matches!(
            entry.kind(),
            Rtype::A | Rtype::AAAA | Rtype::CNAME | Rtype::SRV | Rtype::SVCB | Rtype::HTTPS
        ) && self.has(entry.owner, TARGET);
        if is_kept {
            self.follow(entry);
            if let (Rtype::CNAME, Some(target)) = (entry.record.rtype, entry.target) {
                self.mark(target, TARGET);
            }
        }
        is_kept
    }
}

/// Whether records of this type are DNSSEC records of their zone (RFC 4034, RFC 5155).
fn is_proof(rtype: Rtype) -> bool {
    matches!(rtype, Rtype::DS | Rtype::NSEC | Rtype::NSEC3)
}
