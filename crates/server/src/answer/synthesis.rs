//! Synthesises AAAA records from A records (RFC 6147 sections 5.1 and 5.4).

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::Truncated;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::Section;
use dns64_wire::name::NAME_LEN_MAX;

use super::asker::Asker;
use super::copy::{self, Copier, QUESTION_AT};
use super::reply::{self, Head};
use super::stored::{Age, Aged, Kind, Stored};
use crate::settings::dns64::{Dns64, DomainAction, FailurePolicy, SignedPolicy};

/// TTL limit in seconds for synthesised records if no SOA record sets one (RFC 6147 section 5.1.7).
const TTL_WITHOUT_SOA: u32 = 600;

/// TTL limit in seconds for records that are synthesised because the AAAA query failed. It is
/// short, because the name may have AAAA records and only one query was lost: then clients should
/// not use the translator for long. It is not zero, because clients of a name whose servers never
/// answer AAAA should not wait for the timeout every time. RFC 8767 section 4 uses 30 s for stale
/// responses, which are a similar fallback.
const TTL_AFTER_FAILURE: u32 = 30;

/// Extended error "Forged Answer" (RFC 8914 section 4.5).
const FORGED_ANSWER: u16 = 4;

/// Number of addresses in a response among which duplicates are detected. Resolvers send no
/// duplicates: the limit prevents that a hostile response costs the square of its length.
const DISTINCT: usize = 64;

/// The decision about the response to an AAAA query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward the response.
    Native,
    /// Forward the response without its excluded AAAA records: see [`filtered`].
    Filtered,
    /// Query A records: see [`synthesise`].
    NeedsA,
    /// Forward the response, which has no AAAA records, without synthesis.
    No(Reason),
}

/// The reason why no AAAA records are synthesised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The client requests DNSSEC records and the response is signed, but the policy forbids
    /// synthesis (RFC 6147 section 5.5).
    Dnssec,
    /// The domain is excluded.
    Domain,
    /// The translators of all prefixes for the addresses do not answer.
    Translator,
}

/// Decides about the response to an AAAA query (RFC 6147 sections 5.1.1 to 5.1.6).
///
/// Nothing is synthesised for clients that validate. Policies where the RFC leaves a choice: an
/// excluded domain is answered as without DNS64. A forced domain is synthesised despite DNSSEC
/// records, unless the name does not exist. If all AAAA records are excluded and DNSSEC forbids
/// synthesis, they are nevertheless removed. A response that exceeds the client's limit is
/// forwarded, that is, truncated, before its records are read.
pub fn judge(asker: &Asker, dns64: &Dns64, aaaa: &Stored) -> Verdict {
    if asker.rtype != Rtype::AAAA || asker.class != Class::IN || asker.validates() {
        return Verdict::Native;
    }
    if aaaa.kind() == Kind::NxDomain {
        return Verdict::Native;
    }
    match dns64.domains.rule(&asker.name.as_name()).action {
        DomainAction::Exclude if aaaa.found() > 0 => return Verdict::Native,
        DomainAction::Exclude => return Verdict::No(Reason::Domain),
        DomainAction::Force => return Verdict::NeedsA,
        DomainAction::Include if aaaa.is_failure() && dns64.failure == FailurePolicy::Fail => {
            return Verdict::Native;
        }
        DomainAction::Include => {}
    }
    if aaaa.kind() == Kind::Positive && aaaa.found_end() > asker.limit {
        return Verdict::Native;
    }
    let dnssec = is_protected(asker, dns64, aaaa);
    match Found::of(dns64, aaaa) {
        Found {
            usable: true,
            excluded: false,
        } => Verdict::Native,
        Found {
            usable: true,
            excluded: true,
        } => Verdict::Filtered,
        Found { excluded: true, .. } if dnssec => Verdict::Filtered,
        _ if dnssec => Verdict::No(Reason::Dnssec),
        _ => Verdict::NeedsA,
    }
}

/// Whether DNSSEC forbids to replace a response by a synthesised one.
fn is_protected(asker: &Asker, dns64: &Dns64, response: &Stored) -> bool {
    asker.do_bit()
        && response.is_signed()
        && match dns64.signed {
            SignedPolicy::Validated => !response.ad(),
            SignedPolicy::Always => false,
            SignedPolicy::Never => true,
        }
}

/// Whether the responses for AAAA and A prove enough to synthesise for a client that requests DNSSEC
/// records: if the policy requires validated responses and the name is in a signed zone, both must
/// be validated (RFC 6147 section 5.5 (2)). A failed AAAA query is not: the upstream may have found
/// the response bogus, and the name may have AAAA records.
pub fn is_proven(asker: &Asker, dns64: &Dns64, aaaa: &Stored, a: &Stored) -> bool {
    let is_signed = aaaa.is_signed() || aaaa.is_failure() && a.is_signed();
    dns64.signed != SignedPolicy::Validated
        || !asker.do_bit()
        || !is_signed
        || aaaa.ad() && a.ad()
        || dns64.domains.rule(&asker.name.as_name()).action == DomainAction::Force
}

/// Extended error "Network Error" (RFC 8914 section 4.24).
const NETWORK_ERROR: u16 = 23;

/// Whether the A records are behind translators that do not answer, all of them.
pub fn is_cut_off(asker: &Asker, dns64: &Dns64, a: &Stored) -> bool {
    if dns64.withdrawn.is_empty() || a.kind() != Kind::Positive || a.found_end() > asker.limit {
        return false;
    }
    let rule = dns64.domains.rule(&asker.name.as_name());
    let addresses = || a.a().map(|(_, ipv4)| ipv4);
    let is_left = |ipv4| dns64.embed(ipv4, rule).next().is_some();
    !addresses().any(is_left) && addresses().any(|ipv4| dns64.is_cut_off(ipv4, rule))
}

/// Writes the response to a query for a name whose translators do not answer. An empty answer would say that the name has
/// no AAAA records, and be cached for minutes after the translator is back (RFC 2308 section 5); SERVFAIL is not, and lets
/// clients with several servers ask the next one.
pub fn cut_off(asker: &Asker, frame: &mut [u8]) -> usize {
    reply::error(asker, Rcode::SERVFAIL, Some(NETWORK_ERROR), frame)
}

/// The kinds of AAAA records in a response to an AAAA query.
#[derive(Clone, Copy)]
struct Found {
    usable: bool,
    excluded: bool,
}

impl Found {
    fn of(dns64: &Dns64, aaaa: &Stored) -> Self {
        let mut found = Self {
            usable: false,
            excluded: false,
        };
        if aaaa.kind() != Kind::Positive {
            return found;
        }
        for (_, address) in aaaa.aaaa() {
            match dns64.excludes(address) {
                true => found.excluded = true,
                false => found.usable = true,
            }
            if found.usable && found.excluded {
                break;
            }
        }
        found
    }
}

/// Writes the AAAA response without its excluded AAAA records and their signatures (RFC 6147
/// section 5.1.4). Returns the length in octets.
pub fn filtered(asker: &Asker, dns64: &Dns64, aaaa: Aged<'_>, frame: &mut [u8]) -> usize {
    let (len, _) = with_addresses(asker, aaaa, aaaa.extended_error(), frame, |addresses| {
        let mut kept = aaaa
            .stored
            .aaaa()
            .filter(|(_, ipv6)| !dns64.excludes(*ipv6));
        kept.try_for_each(|(ttl, ipv6)| addresses.add(aaaa.ttl(ttl), ipv6))
    });
    len
}

/// Writes a response with other addresses at the end of its CNAME chain, and without the signatures
/// over the original ones. Returns the length in octets and whether the response is complete.
fn with_addresses(
    asker: &Asker,
    basis: Aged<'_>,
    extended_error: Option<u16>,
    frame: &mut [u8],
    fill: impl FnOnce(&mut Addresses<'_, '_>) -> Result<(), Truncated>,
) -> (usize, bool) {
    let stored = basis.stored;
    let head = head(stored.rcode(), extended_error);
    let mut whole = false;
    let len = reply::write(asker, &head, frame, |to| {
        if stored.has_only_found() {
            fill(&mut Addresses {
                to,
                owner: Owner::Question,
            })?;
            whole = true;
            return Ok(());
        }
        let message = stored.message();
        let mut copier = Copier::new(&message, QUESTION_AT);
        reply::each(to, stored.aliases(&message), |to, record| {
            copier.record(to, record, basis.ttl(record.ttl))
        })?;
        let (end, mut octets) = (stored.chain_end(), [0; NAME_LEN_MAX]);
        let owner = match copier.place(&end) {
            Some(place) => Owner::At(place),
            None => Owner::Wire(copy::write_plain(end, &mut octets)),
        };
        fill(&mut Addresses { to, owner })?;
        let behind = stored.behind_answer_within(&message, to.room())?;
        reply::each(to, behind, |to, record| {
            copier.record(to, record, basis.ttl(record.ttl))
        })?;
        whole = true;
        Ok(())
    });
    (len, whole)
}

/// Writes the AAAA records of a response.
struct Addresses<'t, 'b> {
    to: &'t mut Builder<'b>,
    owner: Owner<'t>,
}

impl Addresses<'_, '_> {
    fn add(&mut self, ttl: u32, ipv6: Ipv6Addr) -> Result<(), Truncated> {
        let data = ipv6.octets();
        self.to.record(
            Section::Answer,
            self.owner,
            Rtype::AAAA,
            Class::IN,
            ttl,
            &data,
        )
    }
}

/// The head of a modified response: neither authoritative nor authenticated.
fn head(rcode: Rcode, extended_error: Option<u16>) -> Head {
    Head {
        rcode,
        aa: false,
        ad: false,
        extended_error,
    }
}

/// The outcome of [`synthesise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synthesised {
    /// Length of the response in octets.
    pub len: usize,
    /// Number of synthesised AAAA records in it.
    pub made: usize,
}

/// Writes the response to an AAAA query from the responses for AAAA and for A (RFC 6147 sections
/// 5.1.5 to 5.1.7 and 5.4).
///
/// If no record can be synthesised, the AAAA response is forwarded. If either response is an error
/// or all AAAA records are unusable, the A response is forwarded without its A records, so that the
/// SOA record sets the negative TTL (RFC 2308 section 5). If the A records exceed the client's
/// limit, the response is truncated before they are read.
pub fn synthesise(
    asker: &Asker,
    dns64: &Dns64,
    aaaa: Aged<'_>,
    a: Aged<'_>,
    frame: &mut [u8],
) -> Synthesised {
    let nothing = |len| Synthesised { len, made: 0 };
    if a.stored.kind() != Kind::Positive {
        return nothing(nothing_made(asker, aaaa, a, frame));
    }
    if a.stored.found_end() > asker.limit {
        return nothing(reply::truncated(asker, frame));
    }
    let rule = dns64.domains.rule(&asker.name.as_name());
    let mark = dns64.mark_synthesised.then_some(FORGED_ANSWER);
    // The reason why the AAAA query failed is irrelevant now, but a stale response must be marked.
    let stale = aaaa.extended_error().filter(|_| aaaa.age == Age::Stale);
    let extended_error = mark.or(a.extended_error()).or(stale);
    let (ttl_max, mut made) = (ttl_max(aaaa), 0);
    let (len, whole) = with_addresses(asker, a, extended_error, frame, |addresses| {
        let mut distinct = Distinct::default();
        for (ttl, ipv4) in a.stored.a().filter(|(_, ipv4)| distinct.is_new(*ipv4)) {
            for ipv6 in dns64.embed(ipv4, rule) {
                made += 1;
                addresses.add(a.ttl(ttl).min(ttl_max), ipv6)?;
            }
        }
        Ok(())
    });
    if made == 0 {
        return nothing(nothing_made(asker, aaaa, a, frame));
    }
    Synthesised {
        len,
        made: if whole { made } else { 0 },
    }
}

/// TTL limit of synthesised records: the remaining negative TTL of the AAAA response.
fn ttl_max(aaaa: Aged<'_>) -> u32 {
    match (aaaa.stored.kind(), aaaa.stored.soa_ttl_s()) {
        (Kind::Failure(_), _) => TTL_AFTER_FAILURE,
        (_, Some(negative)) => aaaa.ttl(negative),
        (_, None) => TTL_WITHOUT_SOA,
    }
}

/// Detects duplicate addresses.
struct Distinct {
    seen: [Ipv4Addr; DISTINCT],
    len: usize,
}

impl Default for Distinct {
    fn default() -> Self {
        Self {
            seen: [Ipv4Addr::UNSPECIFIED; DISTINCT],
            len: 0,
        }
    }
}

impl Distinct {
    fn is_new(&mut self, ipv4: Ipv4Addr) -> bool {
        if self.seen[..self.len].contains(&ipv4) {
            return false;
        }
        if let Some(place) = self.seen.get_mut(self.len) {
            *place = ipv4;
            self.len += 1;
        }
        true
    }
}

/// Writes the response if no AAAA record can be synthesised (RFC 6147 sections 5.1.2, 5.1.6 and
/// 5.4).
///
/// An AAAA response with records counts as empty, but has no SOA record for a negative TTL.
fn nothing_made(asker: &Asker, aaaa: Aged<'_>, a: Aged<'_>, frame: &mut [u8]) -> usize {
    let is_error = |kind| matches!(kind, Kind::Failure(_));
    let basis_is_a = is_error(a.stored.kind())
        || a.stored.kind() == Kind::NxDomain
        || is_error(aaaa.stored.kind())
        || aaaa.stored.found() > 0;
    if basis_is_a {
        with_addresses(asker, a, a.extended_error(), frame, |_| Ok(())).0
    } else {
        reply::forward(asker, aaaa, frame)
    }
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
