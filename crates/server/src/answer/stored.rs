//! A response in the form that it is kept in and answered from.

use dns64_wire::ParseError;
use dns64_wire::build::Builder;
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Flags, HEADER_LEN, Message, Opt, Question, Record, Records, Section};
use dns64_wire::name::{NAME_LEN_MAX, Name, NameBuf};

/// How long a failure is remembered, in seconds. RFC 9520 section 3.2 asks for at least 1 s and
/// at most 5 minutes, and suggests to begin with 5 s.
pub const FAILURE_TTL_S: u32 = 5;

/// TTL of records that are sent after their end, in seconds (RFC 8767 section 4).
pub const STALE_TTL_S: u32 = 30;

/// Code of the EDNS option with an extended error (RFC 8914 section 2).
pub(super) const OPTION_EXTENDED_ERROR: u16 = 15;

/// Extended errors that tell of an answer after its end (RFC 8914 sections 4.4 and 4.20).
const STALE_ANSWER: u16 = 3;
const STALE_NXDOMAIN: u16 = 19;

/// Longest message: its length has 16 bits over TCP (RFC 1035 section 4.2.2).
const MESSAGE_LEN_MAX: usize = 65_535;

/// Octets of an SOA record behind its two names (RFC 1035 section 3.3.13).
const SOA_NUMBERS_LEN: usize = 20;

/// The two high bits of a compression pointer, and the rest of it (RFC 1035 section 4.1.4).
const POINTER: u8 = 0xc0;
const POINTER_MAX: u16 = 0x3fff;

/// An octet that begins neither a label nor a pointer (RFC 1035 section 4.1.4).
const NO_LABEL: u8 = 0x80;

/// Walks over the answer section to follow its aliases. One is enough where they stand in the
/// order that they are followed in (RFC 1034 section 4.3.2 builds them so). In any other order
/// this follows at least 11 and sees what they lead to; after 11, BIND 9 gives up
/// (`max-query-restarts`). The bound keeps a message of thousands of aliases in reverse from
/// costing the square of their number.
const ALIAS_WALKS_MAX: usize = 12;

/// Bounds on what a response may say about its age, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlBounds {
    /// Least TTL of a record; not in effect for negative answers.
    pub min_s: u32,
    /// Largest TTL of a record.
    pub max_s: u32,
    /// Largest TTL of a negative answer (RFC 2308 section 5).
    pub max_negative_s: u32,
}

/// A question, as it was sent to an upstream.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Name asked for, in the case that it was sent in.
    pub name: &'a NameBuf,
    /// Type asked for.
    pub rtype: Rtype,
    /// Class asked for.
    pub class: Class,
}

/// Why a response is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A record or a name is not sound.
    #[error("response is malformed: {reason}")]
    Parse {
        /// What is wrong.
        reason: ParseError,
    },
    /// It has no question.
    #[error("response has no question")]
    NoQuestion,
    /// More than 65,535 octets.
    #[error("response is longer than {MESSAGE_LEN_MAX} octets")]
    TooLong,
    /// A record of another class than the question.
    #[error("record of class {class} answers a question of another class")]
    Class {
        /// Class of the record.
        class: Class,
    },
    /// An address record whose data is no address.
    #[error("{rtype} record has {len} octets of data, which is no address")]
    Address {
        /// A or AAAA.
        rtype: Rtype,
        /// Octets of data.
        len: usize,
    },
}

impl From<ParseError> for Malformed {
    fn from(reason: ParseError) -> Self {
        Self::Parse { reason }
    }
}

/// A response to one question: of an upstream, checked, or that there is none.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Header, question and records without OPT. Every record has been walked, every name in it
    /// is sound, and every A and AAAA record has the length of its address.
    message: Box<[u8]>,
    kind: Kind,
    /// How long it may be used, in seconds.
    ttl_s: u32,
    /// Smaller of TTL and MINIMUM of the authority section's SOA record, in seconds.
    soa_ttl_s: Option<u32>,
    /// Extended error to send with it (RFC 8914).
    extended_error: Option<u16>,
    /// Where the name stands at which the aliases end.
    chain_end_at: u16,
    /// Whether there are DNSSEC records in the answer or authority section.
    signed: bool,
}

/// What a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There are records of the type that was asked for, or an alias to them.
    Positive,
    /// The name exists, but no record of this type (RFC 2308 section 2.2). With an alias before
    /// it or without.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// Any other response code, or no response at all (then SERVFAIL).
    Failure(Rcode),
}

impl Stored {
    /// Takes a response whose ID and question have been found to be those that were sent.
    ///
    /// The copy is without the OPT record. What stands behind an OPT record that is not the last
    /// is left out too: additional records are a courtesy, and to close the gap would move the
    /// targets of compression pointers. Its ID is zero and its TTLs are within `bounds`; a TTL
    /// with its top bit set counts as 0 (RFC 2181 section 8). An extended response code, which
    /// only the OPT record has, counts as SERVFAIL.
    ///
    /// An error if any record, or a name in the data of a type of RFC 1035, SRV or DNAME, is not
    /// sound or leads through a TTL; if an address has the wrong length; or if a class is not that
    /// of the question.
    pub fn accept(reply: &Message<'_>, bounds: &TtlBounds) -> Result<Self, Malformed> {
        if reply.bytes().len() > MESSAGE_LEN_MAX {
            return Err(Malformed::TooLong);
        }
        let question = reply.question().ok_or(Malformed::NoQuestion)?;
        let seen = Survey::of(reply, &question)?;
        let chain = Chain::follow(reply, &question);
        let kind = match (seen.extended_rcode, reply.rcode()) {
            (true, _) => Kind::Failure(Rcode::SERVFAIL),
            (_, Rcode::NXDOMAIN) => Kind::NxDomain,
            (_, Rcode::NOERROR) if chain.found => Kind::Positive,
            (_, Rcode::NOERROR) if chain.steps > 0 && seen.soa_minimum_s.is_none() => {
                Kind::Positive
            }
            (_, Rcode::NOERROR) => Kind::NoData,
            (_, rcode) => Kind::Failure(rcode),
        };
        let mut message: Box<[u8]> = reply.bytes()[..seen.end].into();
        message[..2].fill(0);
        message[10..HEADER_LEN].copy_from_slice(&seen.additionals.to_be_bytes());
        if seen.leaves_question {
            // A name that leads through a TTL would become another name as the TTL runs down, or
            // none. With octets there that begin no label, it is none already.
            for (_, ttl_at) in records_before(reply, seen.end) {
                message[ttl_at..ttl_at + 4].fill(NO_LABEL);
            }
            Survey::of(&Message::parse(&message)?, &question)?;
        }
        let ttls = bound_ttls(reply, seen.end, kind, bounds, &mut message);
        let soa_ttl_s = ttls.soa_s.zip(seen.soa_minimum_s).map(|(a, b)| a.min(b));
        Ok(Self {
            message,
            kind,
            ttl_s: match kind {
                Kind::Positive => ttls.answer_s.unwrap_or(0),
                Kind::NoData | Kind::NxDomain => {
                    soa_ttl_s.map_or(0, |soa| ttls.answer_s.map_or(soa, |s| s.min(soa)))
                }
                Kind::Failure(_) => FAILURE_TTL_S,
            },
            soa_ttl_s,
            extended_error: seen.extended_error,
            chain_end_at: chain.end_at,
            signed: seen.signed,
        })
    }

    /// That a question has no answer: a message of header and question alone.
    pub fn failure(asked: &Asked<'_>, rcode: Rcode, extended_error: Option<u16>) -> Self {
        let mut bytes = [0; HEADER_LEN + NAME_LEN_MAX + 4];
        let room = bytes.len();
        let mut len = 0;
        if let Ok(mut message) = Builder::new(&mut bytes, room) {
            message.header(0, Flags::default().with_qr(true).with_rcode(rcode));
            // The room is that of the longest name.
            let _fits = message.question(asked.name, asked.rtype, asked.class);
            len = message.finish();
        }
        Self {
            message: bytes[..len].into(),
            kind: Kind::Failure(rcode),
            ttl_s: FAILURE_TTL_S,
            soa_ttl_s: None,
            extended_error,
            chain_end_at: QUESTION_AT,
            signed: false,
        }
    }

    /// The response as a message: without OPT, its ID zero.
    pub fn message(&self) -> Message<'_> {
        match Message::parse(&self.message) {
            Ok(message) => message,
            Err(_) => unreachable!("a stored message was parsed before it was stored"),
        }
    }

    /// The name at which the aliases of the question's name end: that name itself without any.
    pub fn chain_end(&self) -> Name<'_> {
        match Name::parse(&self.message, usize::from(self.chain_end_at)) {
            Ok((name, _)) => name,
            Err(_) => unreachable!("the names of a stored message were parsed before"),
        }
    }

    /// What it says.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its response code.
    pub fn rcode(&self) -> Rcode {
        match self.kind {
            Kind::Positive | Kind::NoData => Rcode::NOERROR,
            Kind::NxDomain => Rcode::NXDOMAIN,
            Kind::Failure(rcode) => rcode,
        }
    }

    /// How long it may be used, in seconds: the smallest TTL of the answer section; of a negative
    /// answer also of its SOA record (RFC 2308 section 5), and 0 without one; of a failure
    /// [`FAILURE_TTL_S`].
    pub fn ttl_s(&self) -> u32 {
        self.ttl_s
    }

    /// The smaller of TTL and MINIMUM of the SOA record in the authority section, in seconds.
    pub fn soa_ttl_s(&self) -> Option<u32> {
        self.soa_ttl_s
    }

    /// Extended error to send with it (RFC 8914).
    pub fn extended_error(&self) -> Option<u16> {
        self.extended_error
    }

    /// Whether there are DNSSEC records (RRSIG, NSEC, NSEC3) in the answer or authority section.
    pub fn is_signed(&self) -> bool {
        self.signed
    }

    /// Whether the upstream called it authentic.
    pub fn ad(&self) -> bool {
        self.message().ad()
    }

    /// Memory that it takes, in octets, without what the allocator adds.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.message.len()
    }
}

/// A stored response and what has become of its TTLs since.
#[derive(Clone, Copy, Debug)]
pub struct Aged<'a> {
    /// The response.
    pub stored: &'a Stored,
    /// Its age.
    pub age: Age,
}

/// How old a stored response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// This many seconds, within its TTL: its TTLs are smaller by that.
    Seconds(u32),
    /// Beyond its TTL: each of its TTLs is [`STALE_TTL_S`].
    Stale,
}

impl<'a> Aged<'a> {
    /// A response that was stored `age_s` seconds ago.
    pub fn fresh(stored: &'a Stored, age_s: u32) -> Self {
        let age = Age::Seconds(age_s);
        Self { stored, age }
    }

    /// A response past its end (RFC 8767).
    pub fn stale(stored: &'a Stored) -> Self {
        let age = Age::Stale;
        Self { stored, age }
    }

    /// What is left of a TTL that the stored response has, in seconds.
    pub fn ttl(&self, ttl: u32) -> u32 {
        match self.age {
            Age::Seconds(age_s) => ttl.saturating_sub(age_s),
            Age::Stale => STALE_TTL_S,
        }
    }

    /// Extended error to send with it: its own, or that it is stale.
    pub fn extended_error(&self) -> Option<u16> {
        let stale = match (self.age, self.stored.kind) {
            (Age::Seconds(_), _) => None,
            (Age::Stale, Kind::NxDomain) => Some(STALE_NXDOMAIN),
            (Age::Stale, _) => Some(STALE_ANSWER),
        };
        stale.or(self.stored.extended_error)
    }
}

/// Where the name of the question starts.
const QUESTION_AT: u16 = 12;

/// What one walk over a response shows.
struct Survey {
    /// Where the copy ends.
    end: usize,
    /// Additional records in the copy.
    additionals: u16,
    extended_rcode: bool,
    extended_error: Option<u16>,
    soa_minimum_s: Option<u32>,
    signed: bool,
    /// Whether a name is compressed against anything but a name of the question.
    leaves_question: bool,
}

impl Survey {
    fn of(reply: &Message<'_>, question: &Question<'_>) -> Result<Self, Malformed> {
        let mut seen = Self {
            end: question.range().end,
            additionals: 0,
            extended_rcode: false,
            extended_error: None,
            soa_minimum_s: None,
            signed: false,
            leaves_question: false,
        };
        let mut opt_seen = false;
        let mut records = reply.records();
        while let Some(record) = records.next() {
            let record = record?;
            if record.rtype == Rtype::OPT {
                if opt_seen {
                    return Err(ParseError::OptRepeated.into());
                }
                opt_seen = true;
                seen.opt(&record)?;
                continue;
            }
            let ends = check(&mut records, &record, question.class)?;
            seen.leaves_question |= ends.into_iter().any(|end| leaves(reply, question, end));
            if !opt_seen {
                seen.record(&record);
            }
        }
        Ok(seen)
    }

    fn record(&mut self, record: &Record<'_>) {
        self.end = record.rdata_offset + record.rdata.len();
        let dnssec = matches!(record.rtype, Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3);
        match record.section {
            Section::Additional => self.additionals += 1,
            Section::Answer | Section::Authority if dnssec => self.signed = true,
            Section::Authority if record.rtype == Rtype::SOA && self.soa_minimum_s.is_none() => {
                self.soa_minimum_s = soa_minimum_s(record);
            }
            Section::Answer | Section::Authority => {}
        }
    }

    fn opt(&mut self, record: &Record<'_>) -> Result<(), ParseError> {
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

/// Checks what of a record its walk does not; returns where its names end, some more than once.
fn check(
    records: &mut Records<'_>,
    record: &Record<'_>,
    class: Class,
) -> Result<[usize; 3], Malformed> {
    let (rtype, len) = (record.rtype, record.rdata.len());
    if record.class != class {
        return Err(Malformed::Class {
            class: record.class,
        });
    }
    let (start, end) = (record.rdata_offset, record.rdata_offset + len);
    let owner_end = start - FIXED_LEN;
    let mut name_end = |at| records.name(at).map(|(_, end)| end);
    let (first_end, last_end, behind) = match rtype {
        Rtype::A if class == Class::IN && len != 4 => {
            return Err(Malformed::Address { rtype, len });
        }
        Rtype::AAAA if class == Class::IN && len != 16 => {
            return Err(Malformed::Address { rtype, len });
        }
        Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::DNAME => (owner_end, name_end(start)?, 0),
        Rtype::MX => (owner_end, name_end(start + 2)?, 0),
        Rtype::SRV => (owner_end, name_end(start + 6)?, 0),
        Rtype::SOA => {
            let first_end = name_end(start)?;
            (first_end, name_end(first_end)?, SOA_NUMBERS_LEN)
        }
        _ => return Ok([owner_end; 3]),
    };
    match (last_end + behind).cmp(&end) {
        std::cmp::Ordering::Equal => Ok([owner_end, first_end, last_end]),
        std::cmp::Ordering::Less => Err(ParseError::NameTooShort.into()),
        std::cmp::Ordering::Greater => Err(ParseError::ShortMessage.into()),
    }
}

/// Whether the name that ends before `end` goes on by a pointer to anything but a label of the
/// question. A label whose end looks like a pointer is taken for one, which costs one more survey.
fn leaves(reply: &Message<'_>, question: &Question<'_>, end: usize) -> bool {
    let Some(&[high, low]) = reply.bytes()[..end].last_chunk() else {
        return false;
    };
    let target = usize::from(u16::from_be_bytes([high, low]) & POINTER_MAX);
    high >= POINTER && !question.name.labels_at().any(|(at, _)| at == target)
}

/// The aliases from the name of a question on.
struct Chain {
    /// Where the name at its end stands.
    end_at: u16,
    /// Aliases followed.
    steps: usize,
    /// Whether a record of the type that was asked for is there.
    found: bool,
}

impl Chain {
    /// Follows CNAME records by their names, in whatever order they stand; see
    /// [`ALIAS_WALKS_MAX`]. Aliases that go round end after as many steps as there are records.
    /// A DNAME record comes with the CNAME record that it means (RFC 6672 section 3.1).
    fn follow(reply: &Message<'_>, question: &Question<'_>) -> Self {
        let any = question.rtype == Rtype::ANY;
        let mut chain = Self {
            end_at: QUESTION_AT,
            steps: 0,
            found: false,
        };
        let mut current = question.name;
        for _ in 0..ALIAS_WALKS_MAX {
            let steps_before = chain.steps;
            for record in answers(reply) {
                let wanted = any || record.rtype == question.rtype;
                if !wanted && record.rtype != Rtype::CNAME || !record.name.eq_ignore_case(&current)
                {
                    continue;
                }
                if wanted {
                    chain.found = true;
                    return chain;
                }
                if chain.steps == usize::from(reply.ancount()) {
                    return chain;
                }
                let (Ok(target), Ok(at)) =
                    (record.rdata_name(), u16::try_from(record.rdata_offset))
                else {
                    return chain;
                };
                current = target;
                chain.end_at = at;
                chain.steps += 1;
            }
            if chain.steps == steps_before {
                break;
            }
        }
        chain
    }
}

/// The records of the answer section of a message whose records are sound.
fn answers<'a>(message: &Message<'a>) -> impl Iterator<Item = Record<'a>> {
    let records = message.records().map_while(Result::ok);
    records.take(usize::from(message.ancount()))
}

/// What the TTLs of a response come to, in seconds.
struct Ttls {
    /// Smallest of the answer section.
    answer_s: Option<u32>,
    /// Of the first SOA record of the authority section.
    soa_s: Option<u32>,
}

/// The records before `end`, each with the offset of its TTL.
fn records_before<'a>(
    reply: &Message<'a>,
    end: usize,
) -> impl Iterator<Item = (Record<'a>, usize)> + use<'a> {
    let records = reply.records().map_while(Result::ok);
    records
        .take_while(move |record| record.rdata_offset + record.rdata.len() <= end)
        .map(|record| (record, record.rdata_offset - TTL_BEFORE_DATA))
}

/// Brings the TTLs of the records before `end` within bounds, in a copy of the message that they
/// stand in.
fn bound_ttls(
    reply: &Message<'_>,
    end: usize,
    kind: Kind,
    bounds: &TtlBounds,
    copy: &mut [u8],
) -> Ttls {
    let mut ttls = Ttls {
        answer_s: None,
        soa_s: None,
    };
    let negative = matches!(kind, Kind::NoData | Kind::NxDomain);
    for (record, ttl_at) in records_before(reply, end) {
        let sent_s = if record.ttl >> 31 == 1 { 0 } else { record.ttl };
        let ttl_s = if negative && record.section == Section::Authority {
            // Counted down from here, so that nobody behind this server keeps it for longer
            // (RFC 2308 sections 3 and 6).
            let minimum_s = soa_minimum_s(&record).unwrap_or(u32::MAX);
            sent_s.min(minimum_s).min(bounds.max_negative_s)
        } else {
            sent_s.max(bounds.min_s).min(bounds.max_s)
        };
        match record.section {
            Section::Answer => ttls.answer_s = Some(ttls.answer_s.map_or(ttl_s, |s| s.min(ttl_s))),
            Section::Authority if record.rtype == Rtype::SOA => {
                ttls.soa_s.get_or_insert(ttl_s);
            }
            Section::Authority | Section::Additional => {}
        }
        copy[ttl_at..ttl_at + 4].copy_from_slice(&ttl_s.to_be_bytes());
    }
    ttls
}

/// The MINIMUM of an SOA record, in seconds; `None` for other types.
fn soa_minimum_s(record: &Record<'_>) -> Option<u32> {
    let minimum = record.rdata.last_chunk()?;
    (record.rtype == Rtype::SOA).then(|| u32::from_be_bytes(*minimum))
}

/// Octets of a record between its owner and its data (RFC 1035 section 4.1.3).
pub(super) const FIXED_LEN: usize = 10;

/// Octets from the TTL of a record to its data: the TTL itself and the length of the data
/// (RFC 1035 section 4.1.3).
pub(super) const TTL_BEFORE_DATA: usize = 6;

#[cfg(test)]
mod tests;
