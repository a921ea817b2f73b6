//! Checks a response and rewrites it into the form that is cached.

use dns64_wire::Truncated;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{Message, Question, Record, Section};
use dns64_wire::name::NAME_LEN_MAX;

use super::chain::Chain;
use super::scrub::Selection;
use super::survey::{Entry, Survey, is_wanted};
use super::{FAILURE_TTL_S, Head, Kind, Malformed, QUESTION_AT, Run, Stored, TtlBounds};
use crate::answer::copy::{self, Copier, TTL_BEFORE_DATA};
use crate::answer::rdata;

/// Octets of the frame on the stack for the rewritten message: enough for a datagram, which has up
/// to 1232 octets by default, even if rewriting makes its names longer.
const FRAME_LEN: usize = 2048;

/// Longest message: its length has 16 bits over TCP (RFC 1035 section 4.2.2).
pub(super) const MESSAGE_LEN_MAX: usize = 65_535;

impl Stored {
    /// Checks and rewrites a response. The caller has compared its ID and question with those of
    /// the query.
    ///
    /// The answer section keeps the aliases from the name of the question, the records of the
    /// queried type at their end, and the signatures over these; all records of the name if the
    /// query was for ANY. The authority and the additional section keep the records that belong to
    /// them, see `scrub`. OPT is removed, the ID is zero, all records of an RRset have its lowest TTL,
    /// and TTLs are limited by `bounds`; one with the top bit set counts as a large one (RFC 8767
    /// section 4). An extended response code,
    /// which is in the OPT record, counts as SERVFAIL.
    ///
    /// # Errors
    ///
    /// If any record is malformed, even one that is not kept: its owner, its class, which must be
    /// that of the question, or its data, which must have the format of its type.
    pub fn accept(reply: &Message<'_>, bounds: &TtlBounds) -> Result<Self, Malformed> {
        if reply.bytes().len() > MESSAGE_LEN_MAX {
            return Err(Malformed::TooLong);
        }
        match Self::plain(reply, bounds) {
            Some(stored) => Ok(stored),
            None => Self::rewritten(reply, bounds),
        }
    }

    /// Checks and rewrites any response, see [`Stored::accept`].
    pub(super) fn rewritten(reply: &Message<'_>, bounds: &TtlBounds) -> Result<Self, Malformed> {
        let question = reply.question().ok_or(Malformed::NoQuestion)?;
        let mut copier = Copier::new(reply, copy::QUESTION_AT);
        let seen = Survey::of(reply, question.class, &mut copier)?;
        let asked = copier.id(&question.name);
        let chain = Chain::follow(&seen, &copier.names, asked, question.rtype, reply.rcode());
        let first_soa = seen
            .authority()
            .iter()
            .find(|entry| entry.record.rtype == Rtype::SOA);
        let soa = first_soa.filter(|soa| copier.names.up(chain.end).any(|id| id == soa.owner));
        let accepted = Accepted {
            reply,
            question,
            kind: kind(reply, &seen, &chain, soa.is_some()),
            seen: &seen,
            chain: &chain,
            soa,
            bounds,
        };
        accepted
            .write(&mut copier, &mut [0; FRAME_LEN])
            .or_else(|_| accepted.write(&mut copier, &mut vec![0; MESSAGE_LEN_MAX]))
            .map_err(|_| Malformed::TooLong)
    }
}

fn kind(reply: &Message<'_>, seen: &Survey<'_>, chain: &Chain<'_, '_>, has_soa: bool) -> Kind {
    match (seen.edns.extended_rcode, reply.rcode()) {
        (true, _) => Kind::Failure(Rcode::SERVFAIL),
        (_, Rcode::NXDOMAIN) => Kind::NxDomain,
        (_, Rcode::NOERROR) if chain.found => Kind::Positive,
        (_, Rcode::NOERROR) if chain.has_links() && !has_soa => Kind::Positive,
        (_, Rcode::NOERROR) => Kind::NoData,
        (_, rcode) => Kind::Failure(rcode),
    }
}

/// An accepted response and how it is rewritten.
struct Accepted<'r, 'a> {
    reply: &'r Message<'a>,
    question: Question<'a>,
    seen: &'r Survey<'a>,
    chain: &'r Chain<'r, 'a>,
    kind: Kind,
    /// The SOA record that applies.
    soa: Option<&'r Entry<'a>>,
    bounds: &'r TtlBounds,
}

impl<'a> Accepted<'_, 'a> {
    fn write(&self, copier: &mut Copier<'a>, frame: &mut [u8]) -> Result<Stored, Truncated> {
        let reply = self.reply;
        let room = frame.len();
        let mut to = Builder::new(frame, room)?;
        to.header(0, reply.flags());
        to.question_raw(&self.question)?;
        copier.restart(&self.question.name, copy::QUESTION_AT);
        let mut writer = Writer {
            to,
            selection: Selection::of(self.seen, self.chain, &copier.names),
            copier,
            accepted: self,
            written: 0,
            answer_ttl_s: None,
            signed: false,
        };
        let chain_end = writer.aliases()?;
        let aliases = writer.written;
        let found = writer.found()?;
        writer.signatures()?;
        let answer_end = writer.to.position();
        writer.authority()?;
        let authority_end = writer.to.position();
        writer.additional()?;
        let (answer_ttl_s, signed) = (writer.answer_ttl_s, writer.signed);
        let (count, len) = (writer.written, writer.to.finish());
        let octets = with_ttl_offsets(&frame[..len], self.question.range().end, count);
        let chain_end_at = chain_end.map_or(QUESTION_AT, |alias| {
            let at = octets[len + 2 * alias..].first_chunk();
            at.map_or(QUESTION_AT, |at| u16::from_be_bytes(*at) + TTL_BEFORE_DATA)
        });
        let soa_ttl_s = self
            .soa
            .map(|soa| self.ttl_s(&soa.record).min(minimum_s(&soa.record)));
        let head = Head {
            message_len: offset(len)?,
            answer_end: offset(answer_end)?,
            authority_end: offset(authority_end)?,
            aliases: offset(aliases)?,
            found,
            chain_end_at,
            kind: self.kind,
            ttl_s: match self.kind {
                Kind::Positive => answer_ttl_s.unwrap_or(0),
                Kind::NoData | Kind::NxDomain => {
                    soa_ttl_s.map_or(0, |soa| answer_ttl_s.map_or(soa, |s| s.min(soa)))
                }
                Kind::Failure(_) => FAILURE_TTL_S,
            },
            soa_ttl_s,
            extended_error: self.seen.edns.extended_error,
            signed,
            ad: reply.ad(),
        };
        Ok(Stored::new(head, &octets))
    }

    /// The TTL of a record in seconds, within the bounds.
    fn ttl_s(&self, record: &Record<'_>) -> u32 {
        let is_negative = matches!(self.kind, Kind::NoData | Kind::NxDomain);
        if is_negative && record.section == Section::Authority {
            // Limited to the MINIMUM, so that no client caches the SOA record longer than the
            // negative response (RFC 2308 sections 3 and 6). A signature has the same TTL (RFC 4034
            // section 3).
            let is_soa = rdata::covered(record).unwrap_or(record.rtype) == Rtype::SOA;
            let soa = self.soa.filter(|_| is_soa);
            let minimum_s = soa.map_or(u32::MAX, |soa| minimum_s(&soa.record));
            record.ttl.min(minimum_s).min(self.bounds.max_negative_s)
        } else {
            record.ttl.max(self.bounds.min_s).min(self.bounds.max_s)
        }
    }
}

/// Writes the kept records of a response.
struct Writer<'w, 'r, 'a> {
    to: Builder<'w>,
    copier: &'w mut Copier<'a>,
    selection: Selection,
    accepted: &'w Accepted<'r, 'a>,
    /// Records written.
    written: usize,
    /// Shortest TTL of the answer section, in seconds.
    answer_ttl_s: Option<u32>,
    signed: bool,
}

impl<'a> Writer<'_, '_, 'a> {
    /// Writes the records of the chain; returns the index of the record that has the chain's end in
    /// its data.
    fn aliases(&mut self) -> Result<Option<usize>, Truncated> {
        let Accepted { chain, seen, .. } = self.accepted;
        let mut chain_end = None;
        // The target of a CNAME record that is synthesised from a DNAME record contains labels of
        // the question, in the random case of the query (RFC 6672 section 2.2).
        self.copier.set_lower_case(chain.redirections);
        for record in chain.records(seen) {
            if record.rtype == Rtype::CNAME {
                chain_end = Some(self.written);
            }
            self.record(&record)?;
        }
        self.copier.set_lower_case(false);
        Ok(chain_end)
    }

    /// Writes the records of the queried type, consecutively and with one owner.
    fn found(&mut self) -> Result<Run, Truncated> {
        let Accepted {
            chain,
            seen,
            question,
            ..
        } = self.accepted;
        let mut octets = [0; NAME_LEN_MAX];
        let mut run = Run::default();
        if !chain.found {
            return Ok(run);
        }
        run.at = offset(self.to.position())?;
        let owner = match self.copier.place_of(chain.end) {
            Some(place) => Owner::At(place),
            None => Owner::Wire(self.copier.names.write(chain.end, &mut octets)),
        };
        run.owner_len = offset(copy::owner_len(&owner))?;
        for entry in seen.answers() {
            if entry.owner == chain.end && is_wanted(question.rtype, &entry.record) {
                let ttl_s = self.answer_ttl_s(&entry.record);
                self.copier
                    .under(&mut self.to, owner, &entry.record, ttl_s)?;
                self.selection.follow(entry);
                self.written += 1;
                run.count += 1;
            }
        }
        run.end = offset(self.to.position())?;
        Ok(run)
    }

    /// Writes the signatures over the found records.
    fn signatures(&mut self) -> Result<(), Truncated> {
        let Accepted {
            chain,
            seen,
            question,
            ..
        } = self.accepted;
        // Queries for RRSIG or ANY: they are already written as found records.
        let is_asked = matches!(question.rtype, Rtype::RRSIG | Rtype::ANY);
        for entry in seen.answers() {
            if is_asked {
                self.signed |= chain.found && entry.covered.is_some();
            } else if entry.covered == Some(question.rtype) && entry.owner == chain.end {
                self.signed = true;
                self.record(&entry.record)?;
            }
        }
        Ok(())
    }

    fn authority(&mut self) -> Result<(), Truncated> {
        let Accepted { soa, seen, .. } = self.accepted;
        if let Some(soa) = soa {
            self.selection.follow(soa);
            self.record(&soa.record)?;
        }
        for entry in seen.authority() {
            if self.selection.keeps_authority(entry) {
                let rtype = entry.record.rtype;
                self.signed |= matches!(rtype, Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3);
                self.selection.follow(entry);
                self.record(&entry.record)?;
            }
        }
        Ok(())
    }

    fn additional(&mut self) -> Result<(), Truncated> {
        for entry in self.accepted.seen.additional() {
            if self.selection.keeps_additional(entry) {
                self.record(&entry.record)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'a>) -> Result<(), Truncated> {
        let ttl_s = match record.section {
            Section::Answer => self.answer_ttl_s(record),
            Section::Authority | Section::Additional => self.accepted.ttl_s(record),
        };
        self.written += 1;
        self.copier.record(&mut self.to, record, ttl_s)
    }

    /// The TTL of a record of the answer section, which also limits the TTL of the response.
    fn answer_ttl_s(&mut self, record: &Record<'_>) -> u32 {
        let ttl_s = self.accepted.ttl_s(record);
        self.answer_ttl_s = Some(self.answer_ttl_s.map_or(ttl_s, |least| least.min(ttl_s)));
        ttl_s
    }
}

/// The MINIMUM of an SOA record, in seconds.
fn minimum_s(soa: &Record<'_>) -> u32 {
    soa.rdata
        .last_chunk()
        .map_or(0, |minimum| u32::from_be_bytes(*minimum))
}

/// An offset or a count in a message of at most 65,535 octets.
pub(super) fn offset(at: usize) -> Result<u16, Truncated> {
    u16::try_from(at).map_err(|_| Truncated)
}

/// A message followed by the offsets of the TTLs of its `count` records, the first of which is at
/// `at`.
fn with_ttl_offsets(message: &[u8], mut at: usize, count: usize) -> Vec<u8> {
    let mut octets = Vec::with_capacity(message.len() + 2 * count);
    octets.extend_from_slice(message);
    for _ in 0..count {
        let (ttl_at, end) = copy::ttl_and_end(message, at);
        octets.extend_from_slice(&u16::try_from(ttl_at).unwrap_or_default().to_be_bytes());
        at = end;
    }
    octets
}
