//! Checks a response and rewrites it into the form that is cached.

use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Message, Opt, Question, Record, Section};
use dns64_wire::name::NAME_LEN_MAX;
use dns64_wire::{ParseError, Truncated};

use super::chain::{Chain, REDIRECTIONS_MAX, answers, is_wanted};
use super::scrub::{self, Additional, Authority};
use super::{
    FAILURE_TTL_S, Kind, Malformed, OPTION_EXTENDED_ERROR, QUESTION_AT, Run, Stored, TtlBounds,
};
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
    /// them, see `scrub`. OPT is removed, the ID is zero, and TTLs are limited by `bounds`; a TTL
    /// with the top bit set counts as a large one (RFC 8767 section 4). An extended response code,
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
        let seen = Survey::of(reply, question.class)?;
        let mut chain = Chain::new(reply, &question);
        chain.follow(reply, &question);
        let end = chain.end();
        let soa = seen.soa.filter(|soa| end.is_within(&soa.name));
        let accepted = Accepted {
            reply,
            question,
            kind: kind(reply, &seen, &chain, soa.is_some()),
            seen,
            chain: &chain,
            soa,
            bounds,
        };
        accepted
            .write(&mut [0; FRAME_LEN])
            .or_else(|_| accepted.write(&mut vec![0; MESSAGE_LEN_MAX]))
            .map_err(|_| Malformed::TooLong)
    }
}

fn kind(reply: &Message<'_>, seen: &Survey<'_>, chain: &Chain<'_>, has_soa: bool) -> Kind {
    match (seen.extended_rcode, reply.rcode()) {
        (true, _) => Kind::Failure(Rcode::SERVFAIL),
        (_, Rcode::NXDOMAIN) => Kind::NxDomain,
        (_, Rcode::NOERROR) if chain.found => Kind::Positive,
        (_, Rcode::NOERROR) if chain.names().len() > 1 && !has_soa => Kind::Positive,
        (_, Rcode::NOERROR) => Kind::NoData,
        (_, rcode) => Kind::Failure(rcode),
    }
}

/// The result of one pass over a response with valid records.
#[derive(Default)]
pub(super) struct Survey<'a> {
    pub(super) extended_rcode: bool,
    pub(super) extended_error: Option<u16>,
    /// First SOA record of the authority section.
    soa: Option<Record<'a>>,
    /// Whether there are signatures in the answer section.
    signatures: bool,
    /// Whether there are DNAME records in the answer section.
    redirections: bool,
    /// Whether there are proofs in the authority section.
    proofs: bool,
    /// Whether there are additional records besides OPT.
    additionals: bool,
}

impl<'a> Survey<'a> {
    fn of(reply: &Message<'a>, class: Class) -> Result<Self, Malformed> {
        let mut seen = Self::default();
        let mut opt_seen = false;
        let mut records = reply.records();
        while let Some(record) = records.next() {
            let record = record?;
            let rtype = record.rtype;
            if rtype == Rtype::OPT {
                if opt_seen {
                    return Err(ParseError::OptRepeated.into());
                }
                opt_seen = true;
                seen.opt(&record)?;
                continue;
            }
            if record.class != class {
                let class = record.class;
                return Err(Malformed::Class { class });
            }
            if !rdata::is_sound(&mut records, &record) {
                return Err(Malformed::Data { rtype });
            }
            match (record.section, rtype) {
                (Section::Answer, Rtype::RRSIG) => seen.signatures = true,
                (Section::Answer, Rtype::DNAME) => seen.redirections = true,
                (Section::Answer, _) => {}
                (Section::Authority, Rtype::SOA) => {
                    seen.soa.get_or_insert(record);
                }
                (Section::Authority, _) => seen.proofs |= scrub::is_proof(rtype),
                (Section::Additional, _) => seen.additionals = true,
            }
        }
        Ok(seen)
    }

    /// Reads the OPT record.
    pub(super) fn opt(&mut self, record: &Record<'_>) -> Result<(), ParseError> {
        if record.section != Section::Additional || !record.name.is_root() {
            return Err(ParseError::OptMisplaced);
        }
        let [ext_rcode, version, _, _] = record.ttl.to_be_bytes();
        self.extended_rcode = ext_rcode != 0;
        let opt = Opt {
            udp_size: record.class.0,
            ext_rcode,
            version,
            do_bit: false,
            options: record.rdata,
        };
        let mut errors = opt.options().filter(|o| o.code == OPTION_EXTENDED_ERROR);
        let code = errors.next().and_then(|o| o.value.first_chunk().copied());
        self.extended_error = code.map(u16::from_be_bytes);
        Ok(())
    }
}

/// An accepted response and how it is rewritten.
struct Accepted<'r, 'a> {
    reply: &'r Message<'a>,
    question: Question<'a>,
    seen: Survey<'a>,
    chain: &'r Chain<'a>,
    kind: Kind,
    /// The SOA record that applies.
    soa: Option<Record<'a>>,
    bounds: &'r TtlBounds,
}

impl<'a> Accepted<'_, 'a> {
    fn write(&self, frame: &mut [u8]) -> Result<Stored, Truncated> {
        let reply = self.reply;
        let room = frame.len();
        let mut to = Builder::new(frame, room)?;
        to.header(0, reply.flags());
        to.question_raw(&self.question)?;
        let mut writer = Writer {
            to,
            copier: Copier::new(reply, copy::QUESTION_AT),
            accepted: self,
            written: 0,
            answer_ttl_s: None,
            additional: match self.seen.additionals {
                true => Some(Additional::NONE),
                false => None,
            },
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
        let soa_ttl_s = self.soa.map(|soa| self.ttl_s(&soa).min(minimum_s(&soa)));
        Ok(Stored {
            octets,
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
            extended_error: self.seen.extended_error,
            signed,
            ad: reply.ad(),
        })
    }

    /// The TTL of a record in seconds, within the bounds.
    fn ttl_s(&self, record: &Record<'_>) -> u32 {
        let is_negative = matches!(self.kind, Kind::NoData | Kind::NxDomain);
        if is_negative && record.section == Section::Authority {
            // Limited to the MINIMUM, so that no client caches the SOA record longer than the
            // negative response (RFC 2308 sections 3 and 6).
            let minimum_s = match record.rtype {
                Rtype::SOA => minimum_s(record),
                _ => u32::MAX,
            };
            record.ttl.min(minimum_s).min(self.bounds.max_negative_s)
        } else {
            record.ttl.max(self.bounds.min_s).min(self.bounds.max_s)
        }
    }
}

/// Writes the kept records of a response.
struct Writer<'w, 'r, 'a> {
    to: Builder<'w>,
    copier: Copier<'a>,
    accepted: &'w Accepted<'r, 'a>,
    /// Records written.
    written: usize,
    /// Shortest TTL of the answer section, in seconds.
    answer_ttl_s: Option<u32>,
    /// The kept records of the additional section, if there is one.
    additional: Option<Additional<'a>>,
    signed: bool,
}

impl<'a> Writer<'_, '_, 'a> {
    /// Writes the records of the chain; returns the index of the record that has the chain's end as
    /// a name.
    fn aliases(&mut self) -> Result<Option<usize>, Truncated> {
        let Accepted {
            chain, reply, seen, ..
        } = self.accepted;
        let mut chain_end = None;
        if !chain.has_links() {
            return Ok(None);
        }
        let mut ttls = None;
        if seen.redirections {
            ttls = Some(chain.redirected_ttls(reply));
            // The target of a CNAME record that is synthesised from a DNAME record contains labels
            // of the question, in the random case of the query (RFC 6672 section 2.2).
            self.copier.set_lower_case(true);
        }
        let mut redirections = 0;
        for mut record in answers(reply) {
            redirections += usize::from(record.rtype == Rtype::DNAME);
            let is_kept = match record.rtype {
                Rtype::DNAME if redirections > REDIRECTIONS_MAX => false,
                Rtype::CNAME | Rtype::DNAME => chain.is_link(&record),
                _ => rdata::covered(&record)
                    .is_some_and(|covered| chain.has_link_of(covered, &record.name)),
            };
            if !is_kept {
                continue;
            }
            let is_last = record.rtype == Rtype::CNAME
                && record
                    .rdata_name()
                    .is_ok_and(|name| name.eq_ignore_case(&chain.end()));
            if is_last {
                chain_end = Some(self.written);
            }
            let ttls = ttls.filter(|_| record.rtype == Rtype::CNAME);
            if let Some(ttl) = ttls.and_then(|ttls| ttls[chain.place_of(&record.name)?]) {
                record.ttl = ttl;
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
            reply,
            question,
            ..
        } = self.accepted;
        let (at, end) = (self.to.position(), chain.end());
        let mut octets = [0; NAME_LEN_MAX];
        let mut run = Run::default();
        if !chain.found {
            return Ok(run);
        }
        run.at = offset(at)?;
        let owner = match self.copier.place(&end) {
            Some(place) => Owner::At(place),
            None => Owner::Wire(copy::write_plain(end, &mut octets)),
        };
        run.owner_len = offset(copy::owner_len(&owner))?;
        for record in answers(reply) {
            if is_wanted(question, &record) && record.name.eq_ignore_case(&end) {
                let ttl_s = self.answer_ttl_s(&record);
                self.copier.under(&mut self.to, owner, &record, ttl_s)?;
                self.follow(&record);
                self.written += 1;
                run.count += 1;
            }
        }
        Ok(run)
    }

    /// Writes the signatures over the found records.
    fn signatures(&mut self) -> Result<(), Truncated> {
        let Accepted {
            chain,
            reply,
            question,
            seen,
            ..
        } = self.accepted;
        if !seen.signatures {
            return Ok(());
        }
        // Queries for RRSIG or ANY: they are already written as found records.
        let is_asked = matches!(question.rtype, Rtype::RRSIG | Rtype::ANY);
        self.signed |= is_asked && chain.found;
        for record in answers(reply).filter(|_| !is_asked) {
            let is_over_found = rdata::covered(&record) == Some(question.rtype);
            if is_over_found && record.name.eq_ignore_case(&chain.end()) {
                self.signed = true;
                self.record(&record)?;
            }
        }
        Ok(())
    }

    fn authority(&mut self) -> Result<(), Truncated> {
        let Accepted {
            chain,
            reply,
            soa,
            seen,
            ..
        } = self.accepted;
        if reply.nscount() == 0 {
            return Ok(());
        }
        let mut authority = Authority::of(chain, soa.map(|soa| soa.rdata_offset));
        if seen.proofs {
            authority.take_zones(reply);
        }
        for record in self.section(Section::Authority) {
            if authority.keeps(&record) {
                let is_proof = matches!(record.rtype, Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3);
                self.signed |= is_proof;
                self.follow(&record);
                self.record(&record)?;
            }
        }
        Ok(())
    }

    fn additional(&mut self) -> Result<(), Truncated> {
        if self.additional.is_none() {
            return Ok(());
        }
        for record in self.section(Section::Additional) {
            let reply = self.accepted.reply;
            let additional = self.additional.as_mut();
            if additional.is_some_and(|additional| additional.keeps(reply, &record)) {
                self.record(&record)?;
            }
        }
        Ok(())
    }

    /// Keeps the addresses of the host in a record's data.
    fn follow(&mut self, record: &Record<'a>) {
        if let Some(additional) = &mut self.additional {
            additional.follow(self.accepted.reply, record);
        }
    }

    /// The records of one section.
    fn section(&self, section: Section) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let records = self.accepted.reply.records().map_while(Result::ok);
        let records = records.skip_while(move |record| record.section < section);
        records.take_while(move |record| record.section == section)
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
fn with_ttl_offsets(message: &[u8], mut at: usize, count: usize) -> Box<[u8]> {
    let mut octets = Vec::with_capacity(message.len() + 2 * count);
    octets.extend_from_slice(message);
    for _ in 0..count {
        let (ttl_at, end) = copy::ttl_and_end(message, at);
        octets.extend_from_slice(&u16::try_from(ttl_at).unwrap_or_default().to_be_bytes());
        at = end;
    }
    octets.into()
}
