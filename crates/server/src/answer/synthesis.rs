//! AAAA records from A records (RFC 6147 sections 5.1 and 5.4).

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::Truncated;
use dns64_wire::build::Builder;
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Record, Section};
use dns64_wire::name::Name;

use super::asker::Asker;
use super::copy::{self, Copier, QUESTION_AT};
use super::reply::{self, Head};
use super::stored::{Age, Aged, Kind, Stored};
use crate::settings::dns64::{Dns64, DomainAction, DomainRule};

/// TTL in seconds of what is made without an SOA to limit it (RFC 6147 section 5.1.7).
pub const TTL_WITHOUT_SOA: u32 = 600;

/// Extended error "Forged Answer" (RFC 8914 section 4.5).
const FORGED_ANSWER: u16 = 4;

/// Addresses of one answer among which duplicates are found. Resolvers send none; this only keeps
/// a hostile answer from costing the square of its length.
const DISTINCT: usize = 64;

/// What an AAAA response means for its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the answer.
    Native,
    /// It is the answer, without its excluded AAAA records: see [`filtered`].
    Filtered,
    /// A records are needed: see [`synthesise`].
    NeedsA,
    /// It is the answer, though there are no AAAA records: none are to be made.
    No(Reason),
}

/// Why no AAAA records are made where there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The client wants DNSSEC records and the response has them, so that it would find what was
    /// made to be bogus (RFC 6147 section 5.5).
    Dnssec,
    /// The domain is excluded.
    Domain,
}

/// What is to be done with the response to an AAAA question (RFC 6147 sections 5.1.1 to 5.1.6).
///
/// Policy where the RFC leaves it open: CD=1 is never synthesised for, whatever DO is. An
/// excluded domain is answered as if there were no DNS64. A forced domain is synthesised for
/// whatever DNSSEC records there are, unless the name does not exist. Where all AAAA records are
/// excluded and DNSSEC forbids synthesis, they are left out all the same.
pub fn judge(asker: &Asker, dns64: &Dns64, aaaa: &Stored) -> Verdict {
    if asker.rtype != Rtype::AAAA || asker.class != Class::IN || asker.cd() {
        return Verdict::Native;
    }
    if aaaa.kind() == Kind::NxDomain {
        return Verdict::Native;
    }
    let found = Found::of(dns64, aaaa);
    match dns64.domains.rule(&asker.name.as_name()).action {
        DomainAction::Exclude if found.any() => return Verdict::Native,
        DomainAction::Exclude => return Verdict::No(Reason::Domain),
        DomainAction::Force => return Verdict::NeedsA,
        DomainAction::Include => {}
    }
    let dnssec = asker.do_bit() && aaaa.is_signed() && !dns64.break_dnssec;
    match found {
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

/// The AAAA records that a response has for its question.
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
        let end = aaaa.chain_end();
        for record in aaaa.message().records().map_while(Result::ok) {
            if let Some(address) = record.aaaa().filter(|_| is_at_end(&record, &end)) {
                match dns64.excludes(address) {
                    true => found.excluded = true,
                    false => found.usable = true,
                }
            }
        }
        found
    }

    fn any(self) -> bool {
        self.usable || self.excluded
    }
}

/// Whether a record stands at the end of the chain of the answer section.
fn is_at_end(record: &Record<'_>, end: &Name<'_>) -> bool {
    record.section == Section::Answer && record.name.eq_ignore_case(end)
}

/// The AAAA response without its excluded AAAA records and without the signatures over them
/// (RFC 6147 section 5.1.4). Returns the octets written.
pub fn filtered(asker: &Asker, dns64: &Dns64, aaaa: Aged<'_>, frame: &mut [u8]) -> usize {
    leave_out(asker, aaaa, Rtype::AAAA, frame, |record| {
        record.aaaa().is_some_and(|address| dns64.excludes(address))
    })
}

/// A response without those records of its answer section that are left out and without the
/// signatures over records of their type.
fn leave_out(
    asker: &Asker,
    basis: Aged<'_>,
    rtype: Rtype,
    frame: &mut [u8],
    is_left_out: impl Fn(&Record<'_>) -> bool,
) -> usize {
    let head = head(basis.stored.rcode(), basis.extended_error());
    reply::write(asker, &head, frame, |builder| {
        copy::each(builder, basis, QUESTION_AT, |builder, copier, record| {
            let in_answer = record.section == Section::Answer;
            if in_answer && (is_left_out(record) || covers(record, rtype)) {
                return Ok(());
            }
            copier.record(builder, record, basis.ttl(record.ttl))
        })
    })
}

/// Neither authoritative nor authenticated: the records are of others, and not all of them.
fn head(rcode: Rcode, extended_error: Option<u16>) -> Head {
    Head {
        rcode,
        aa: false,
        ad: false,
        extended_error,
    }
}

/// Whether a record is a signature over records of this type (RFC 4034 section 3.1.1).
fn covers(record: &Record<'_>, rtype: Rtype) -> bool {
    record.rtype == Rtype::RRSIG && record.rdata.starts_with(&rtype.0.to_be_bytes())
}

/// What [`synthesise`] has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synthesised {
    /// Octets of the answer.
    pub len: usize,
    /// AAAA records in it that were made.
    pub made: usize,
}

/// The answer to an AAAA question from the responses for AAAA and for A (RFC 6147 sections 5.1.5
/// to 5.1.7 and 5.4).
///
/// If no record can be made, it is the response for AAAA; the response for A, without its A
/// records, if either response is an error or its AAAA records do not count, so that the answer
/// says for how long there is nothing (RFC 2308 section 5).
pub fn synthesise(
    asker: &Asker,
    dns64: &Dns64,
    aaaa: Aged<'_>,
    a: Aged<'_>,
    frame: &mut [u8],
) -> Synthesised {
    let rule = dns64.domains.rule(&asker.name.as_name());
    let mut maker = Maker {
        dns64,
        rule,
        end: a.stored.chain_end(),
        ttl_max: ttl_max(aaaa),
        seen: [Ipv4Addr::UNSPECIFIED; DISTINCT],
        seen_len: 0,
        made: 0,
    };
    if !maker.makes_any(a.stored) {
        let len = nothing_made(asker, dns64, aaaa, a, frame);
        return Synthesised { len, made: 0 };
    }
    let mark = dns64.mark_synthesised.then_some(FORGED_ANSWER);
    // Why an AAAA question failed does not matter any more; that its answer is stale does.
    let stale = aaaa.extended_error().filter(|_| aaaa.age == Age::Stale);
    let extended_error = mark.or(a.extended_error()).or(stale);
    let len = reply::write(
        asker,
        &head(Rcode::NOERROR, extended_error),
        frame,
        |builder| {
            let filled = copy::each(builder, a, QUESTION_AT, |builder, copier, record| {
                maker.record(builder, copier, record, a.ttl(record.ttl))
            });
            if filled.is_err() {
                maker.made = 0;
            }
            filled
        },
    );
    Synthesised {
        len,
        made: maker.made,
    }
}

/// Longest TTL of what is made: what is left of the negative TTL of the AAAA response.
fn ttl_max(aaaa: Aged<'_>) -> u32 {
    let negative = aaaa.stored.soa_ttl_s();
    negative.map_or(TTL_WITHOUT_SOA, |ttl| aaaa.ttl(ttl))
}

/// Makes the AAAA records of one answer.
struct Maker<'a> {
    dns64: &'a Dns64,
    rule: DomainRule,
    end: Name<'a>,
    ttl_max: u32,
    seen: [Ipv4Addr; DISTINCT],
    seen_len: usize,
    made: usize,
}

impl<'a> Maker<'a> {
    /// The address to be made from a record.
    fn address(&self, record: &Record<'_>) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let ipv4 = record.a().filter(|_| is_at_end(record, &self.end))?;
        Some((ipv4, self.dns64.embed(ipv4, self.rule)?))
    }

    fn makes_any(&self, a: &Stored) -> bool {
        let mut records = a.message().records().map_while(Result::ok);
        a.kind() == Kind::Positive && records.any(|record| self.address(&record).is_some())
    }

    /// Writes what a record of the A response becomes.
    fn record(
        &mut self,
        builder: &mut Builder<'_>,
        copier: &mut Copier<'a>,
        record: &Record<'a>,
        ttl: u32,
    ) -> Result<(), Truncated> {
        if record.section != Section::Answer {
            return copier.record(builder, record, ttl);
        }
        match record.rtype {
            Rtype::A => match self.address(record) {
                Some((ipv4, _)) if self.is_repeated(ipv4) => Ok(()),
                Some((_, ipv6)) => {
                    self.made += 1;
                    let (ttl, data) = (ttl.min(self.ttl_max), ipv6.octets());
                    copier.with_data(builder, record, Section::Answer, Rtype::AAAA, ttl, &data)
                }
                None => Ok(()),
            },
            Rtype::AAAA => Ok(()),
            _ if covers(record, Rtype::A) => Ok(()),
            _ => copier.record(builder, record, ttl),
        }
    }

    fn is_repeated(&mut self, ipv4: Ipv4Addr) -> bool {
        if self.seen[..self.seen_len].contains(&ipv4) {
            return true;
        }
        if let Some(place) = self.seen.get_mut(self.seen_len) {
            *place = ipv4;
            self.seen_len += 1;
        }
        false
    }
}

/// The answer where no AAAA record can be made (RFC 6147 sections 5.1.2, 5.1.6 and 5.4).
///
/// An AAAA response with records counts as empty here, but has no SOA record to say for how long.
fn nothing_made(
    asker: &Asker,
    dns64: &Dns64,
    aaaa: Aged<'_>,
    a: Aged<'_>,
    frame: &mut [u8],
) -> usize {
    let is_error = |kind| matches!(kind, Kind::Failure(_));
    let basis_is_a = is_error(a.stored.kind())
        || a.stored.kind() == Kind::NxDomain
        || is_error(aaaa.stored.kind())
        || Found::of(dns64, aaaa.stored).any();
    if basis_is_a {
        leave_out(asker, a, Rtype::A, frame, |record| record.rtype == Rtype::A)
    } else {
        reply::forward(asker, aaaa, frame)
    }
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
