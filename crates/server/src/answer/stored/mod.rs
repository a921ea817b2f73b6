//! A response in the form that it is kept in and answered from.
//!
//! What is kept is a message that was written here: its records checked, those that have no place
//! in an answer to its question left out, their names recompressed, and the records that were
//! asked for side by side.
//!
//! - `accept`: from a response to what is kept of it;
//! - `chain`: the aliases from the name of the question on;
//! - `join`: from a chain that is left open and what stands at its end to one response;
//! - `plain`: the same for responses of addresses alone;
//! - `scrub`: which records belong to an answer.

mod accept;
mod chain;
mod join;
mod plain;
mod scrub;

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::build::Builder;
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Flags, HEADER_LEN, Message, Records};
use dns64_wire::name::{NAME_LEN_MAX, Name, NameBuf};
use dns64_wire::{ParseError, Truncated};

use super::copy::FIXED_LEN;

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

impl TtlBounds {
    /// None, for what does not come from an upstream.
    pub const NONE: Self = Self {
        min_s: 0,
        max_s: u32::MAX,
        max_negative_s: u32::MAX,
    };
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
    /// More than 65,535 octets, as it came or with its names rewritten.
    #[error("response is longer than {} octets", u16::MAX)]
    TooLong,
    /// A record of another class than the question.
    #[error("record of class {class} answers a question of another class")]
    Class {
        /// Class of the record.
        class: Class,
    },
    /// A record whose data does not have the form of its type.
    #[error("data of a {rtype} record is malformed")]
    Data {
        /// Type of the record.
        rtype: Rtype,
    },
}

impl From<ParseError> for Malformed {
    fn from(reason: ParseError) -> Self {
        Self::Parse { reason }
    }
}

/// A response to one question: of an upstream, checked, or that there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The message, then the offsets of its TTLs, each in two octets.
    octets: Box<[u8]>,
    message_len: u16,
    /// Where the answer section ends, and the authority section.
    answer_end: u16,
    authority_end: u16,
    /// Records of the answer section before `found`: aliases and their signatures.
    aliases: u16,
    found: Run,
    /// Where the name stands at which the aliases end.
    chain_end_at: u16,
    kind: Kind,
    /// How long it may be used, in seconds.
    ttl_s: u32,
    /// Smaller of TTL and MINIMUM of the authority section's SOA record, in seconds.
    soa_ttl_s: Option<u32>,
    /// Extended error to send with it (RFC 8914).
    extended_error: Option<u16>,
    /// Whether there are DNSSEC records for what stands at the end of the chain.
    signed: bool,
    /// Whether the upstream called it authentic.
    ad: bool,
}

/// The records of the type asked for at the end of the chain: they stand side by side, and their
/// owners take equally many octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    at: u16,
    count: u16,
    owner_len: u16,
}

impl Run {
    /// TTL and data of its records, if each has `N` octets of data.
    fn fixed<const N: usize>(self, message: &[u8]) -> impl Iterator<Item = (u32, [u8; N])> {
        let owner_len = usize::from(self.owner_len);
        let records = &message[usize::from(self.at)..];
        let records = records.chunks_exact(owner_len + FIXED_LEN + N);
        records.take(self.count.into()).filter_map(move |record| {
            let ttl = record[owner_len + 4..].first_chunk()?;
            Some((u32::from_be_bytes(*ttl), *record.last_chunk()?))
        })
    }
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
        let end = u16::try_from(len).unwrap_or_default();
        Self {
            octets: bytes[..len].into(),
            message_len: end,
            answer_end: end,
            authority_end: end,
            aliases: 0,
            found: Run::default(),
            chain_end_at: QUESTION_AT,
            kind: Kind::Failure(rcode),
            ttl_s: FAILURE_TTL_S,
            soa_ttl_s: None,
            extended_error,
            signed: false,
            ad: false,
        }
    }

    /// The response as a message: without OPT, its ID zero.
    pub fn message(&self) -> Message<'_> {
        match Message::parse(self.bytes()) {
            Ok(message) => message,
            Err(_) => unreachable!("a stored message was written here"),
        }
    }

    /// The octets of the message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.octets[..self.message_len.into()]
    }

    /// Offsets of the TTLs of all its records, in the order of the message.
    pub fn ttl_offsets(&self) -> impl Iterator<Item = usize> {
        let octets = self.octets[self.message_len.into()..].as_chunks().0;
        octets.iter().map(|at| u16::from_be_bytes(*at).into())
    }

    /// Writes its records behind a question of the same length, the additional section only if all
    /// of it has room: without it the answer is whole (RFC 2181 section 9). Returns where they
    /// end.
    pub fn write_records(&self, to: &mut Builder<'_>) -> Result<usize, Truncated> {
        let message = self.message();
        let end = usize::from(self.message_len);
        if to.records_raw(&message, end, message.arcount()).is_ok() {
            return Ok(end);
        }
        let end = usize::from(self.authority_end);
        to.records_raw(&message, end, 0).map(|()| end)
    }

    /// The name at which the aliases of the question's name end: that name itself without any.
    pub fn chain_end(&self) -> Name<'_> {
        match Name::parse(self.bytes(), usize::from(self.chain_end_at)) {
            Ok((name, _)) => name,
            Err(_) => unreachable!("a stored message was written here"),
        }
    }

    /// The name at which its aliases end if it leaves open what stands there: neither records nor
    /// an SOA record that says there are none.
    pub fn open_end(&self) -> Option<Name<'_>> {
        let is_open = self.kind == Kind::Positive && self.found.count == 0;
        is_open.then(|| self.chain_end())
    }

    /// The records of the answer section of its message that lead to its end.
    pub fn aliases<'a>(&self, message: &Message<'a>) -> Records<'a> {
        let at = message.question().map_or(HEADER_LEN, |q| q.range().end);
        message.records_from(at, [self.aliases, 0, 0])
    }

    /// The records of authority and additional section of its message.
    pub fn behind_answer<'a>(&self, message: &Message<'a>) -> Records<'a> {
        let counts = [0, message.nscount(), message.arcount()];
        message.records_from(self.answer_end.into(), counts)
    }

    /// Records of the type that was asked for, at the end of the chain.
    pub fn found(&self) -> usize {
        self.found.count.into()
    }

    /// The addresses found, with their TTLs, if it answers a question for A in class IN.
    pub fn a(&self) -> impl Iterator<Item = (u32, Ipv4Addr)> {
        let found = self.found.fixed(self.bytes());
        found.map(|(ttl, octets)| (ttl, <[u8; 4]>::into(octets)))
    }

    /// The addresses found, with their TTLs, if it answers a question for AAAA in class IN.
    pub fn aaaa(&self) -> impl Iterator<Item = (u32, Ipv6Addr)> {
        let found = self.found.fixed(self.bytes());
        found.map(|(ttl, octets)| (ttl, <[u8; 16]>::into(octets)))
    }

    /// What it says.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it says neither what there is nor that there is nothing.
    pub fn is_failure(&self) -> bool {
        matches!(self.kind, Kind::Failure(_))
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

    /// Whether DNSSEC records came with what stands at the end of the chain: signatures over the
    /// records found, or RRSIG, NSEC or NSEC3 records in the authority section.
    pub fn is_signed(&self) -> bool {
        self.signed
    }

    /// Whether the upstream called it authentic.
    pub fn ad(&self) -> bool {
        self.ad
    }

    /// Memory that it takes, in octets, without what the allocator adds.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.octets.len()
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

#[cfg(test)]
mod tests;
