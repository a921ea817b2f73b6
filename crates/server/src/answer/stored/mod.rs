//! Responses in the form in which they are cached.
//!
//! A stored response is a message that the server has rewritten: its records are checked, records
//! that do not belong to the question are removed, names are compressed again, and the records of
//! the queried type are consecutive.
//!
//! - `accept`: checks and rewrites a response;
//! - `chain`: the CNAME chain from the name of the question;
//! - `join`: combines an incomplete chain with the response for its end;
//! - `plain`: fast path for responses that contain only addresses;
//! - `scrub`: selects the records that belong to a response;
//! - `survey`: reads the records of a response once.

mod accept;
mod chain;
mod join;
mod plain;
mod scrub;
mod survey;

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::build::Builder;
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Flags, HEADER_LEN, Message, Records};
use dns64_wire::name::{NAME_LEN_MAX, Name, NameBuf};
use dns64_wire::{ParseError, Truncated};
use triomphe::ThinArc;

use super::copy::{self, FIXED_LEN};
use super::work::step;
pub use join::FOLLOWED_MAX;

/// TTL of a failure, in seconds. RFC 9520 section 3.2 requires 1 s to 5 minutes and suggests 5 s
/// initially.
pub const FAILURE_TTL_S: u32 = 5;

/// Time for which an empty response is used in place of one that clients must not get, in seconds.
pub const BLOCKED_TTL_S: u32 = 60;

/// Extended error "Blocked" (RFC 8914 section 4.16).
const BLOCKED: u16 = 15;

/// TTL of the records in a stale response, in seconds (RFC 8767 section 4).
pub const STALE_TTL_S: u32 = 30;

/// Code of the EDNS option with an extended error (RFC 8914 section 2).
pub(super) const OPTION_EXTENDED_ERROR: u16 = 15;

/// Extended errors of a stale response (RFC 8914 sections 4.4 and 4.20).
const STALE_ANSWER: u16 = 3;
const STALE_NXDOMAIN: u16 = 19;

/// Limits for the TTLs of a response, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlBounds {
    /// Smallest TTL of a record, except in negative responses.
    pub min_s: u32,
    /// Largest TTL of a record.
    pub max_s: u32,
    /// Largest TTL of a negative response (RFC 2308 section 5).
    pub max_negative_s: u32,
}

impl TtlBounds {
    /// No limits, for responses that do not come from an upstream.
    pub const NONE: Self = Self {
        min_s: 0,
        max_s: u32::MAX,
        max_negative_s: u32::MAX,
    };
}

/// The question of a query to an upstream.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Queried name, in the case that was sent.
    pub name: &'a NameBuf,
    /// Queried type.
    pub rtype: Rtype,
    /// Queried class.
    pub class: Class,
}

/// The reason why a response is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A malformed record or name.
    #[error("response is malformed: {reason}")]
    Parse {
        /// The parse error.
        reason: ParseError,
    },
    /// The response has no question.
    #[error("response has no question")]
    NoQuestion,
    /// More than 65,535 octets, as received or after rewriting.
    #[error("response is longer than {} octets", u16::MAX)]
    TooLong,
    /// A record has another class than the question.
    #[error("record of class {class} answers a question of another class")]
    Class {
        /// Class of the record.
        class: Class,
    },
    /// A record's data does not have the format of its type.
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

/// The response to a query: a checked response of an upstream, or a failure. Its octets are the message, then the
/// offsets of its TTLs in two octets each, in one allocation with the head, which clones share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored(ThinArc<Head, u8>);

/// What is known of a stored message without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    message_len: u16,
    /// Ends of the answer section and of the authority section.
    answer_end: u16,
    authority_end: u16,
    /// Number of records of the answer section before `found`: aliases and their signatures.
    aliases: u16,
    found: Run,
    /// Offset of the name at the end of the aliases.
    chain_end_at: u16,
    kind: Kind,
    /// TTL of the response in seconds.
    ttl_s: u32,
    /// Smaller of TTL and MINIMUM of the authority section's SOA record, in seconds.
    soa_ttl_s: Option<u32>,
    /// Extended error of the response (RFC 8914).
    extended_error: Option<u16>,
    /// Whether there are DNSSEC records for the end of the chain.
    signed: bool,
    /// Whether the upstream set AD.
    ad: bool,
}

/// The records of the queried type at the end of the chain: they are consecutive, and their owners
/// have the same length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    at: u16,
    /// Offset of the end of its last record.
    end: u16,
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
            step();
            let ttl = record[owner_len + 4..].first_chunk()?;
            Some((u32::from_be_bytes(*ttl), *record.last_chunk()?))
        })
    }
}

/// The kind of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records of the queried type, or an alias to them.
    Positive,
    /// The name exists, but has no record of this type (RFC 2308 section 2.2), with or without
    /// aliases.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// Any other response code, or no response (SERVFAIL).
    Failure(Rcode),
}

impl Stored {
    /// A failure: a message with only a header and a question.
    pub fn failure(asked: &Asked<'_>, rcode: Rcode, extended_error: Option<u16>) -> Self {
        let mut bytes = [0; HEADER_LEN + NAME_LEN_MAX + 4];
        let room = bytes.len();
        let mut len = 0;
        if let Ok(mut message) = Builder::new(&mut bytes, room) {
            message.header(0, Flags::default().with_qr(true).with_rcode(rcode));
            // The buffer has room for the longest name.
            let _fits = message.question(asked.name, asked.rtype, asked.class);
            len = message.finish();
        }
        let end = u16::try_from(len).unwrap_or_default();
        let head = Head {
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
        };
        Self::new(head, &bytes[..len])
    }

    /// An empty response in place of one that clients must not get.
    pub fn blocked(asked: &Asked<'_>) -> Self {
        let empty = Self::failure(asked, Rcode::NOERROR, Some(BLOCKED));
        let head = Head {
            kind: Kind::NoData,
            ttl_s: BLOCKED_TTL_S,
            ..*empty.head()
        };
        Self::new(head, empty.octets())
    }

    /// The same response with this extended error.
    fn with_extended_error(self, extended_error: Option<u16>) -> Self {
        if self.head().extended_error == extended_error {
            return self;
        }
        let head = Head {
            extended_error,
            ..*self.head()
        };
        Self::new(head, self.octets())
    }

    fn new(head: Head, octets: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice(head, octets))
    }

    fn head(&self) -> &Head {
        &self.0.header.header
    }

    fn octets(&self) -> &[u8] {
        &self.0.slice
    }

    /// The response as a message, without OPT and with ID zero.
    pub fn message(&self) -> Message<'_> {
        match Message::parse(self.bytes()) {
            Ok(message) => message,
            Err(_) => unreachable!("a stored message was written here"),
        }
    }

    /// The octets of the message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.octets()[..self.head().message_len.into()]
    }

    /// The name of the question, uncompressed.
    pub(crate) fn question_name(&self) -> &[u8] {
        let bytes = self.bytes();
        &bytes[HEADER_LEN..copy::name_end(bytes, HEADER_LEN)]
    }

    /// The type of the question.
    pub(crate) fn rtype(&self) -> Rtype {
        let bytes = self.bytes();
        let octets = bytes[copy::name_end(bytes, HEADER_LEN)..].first_chunk();
        octets.map_or(Rtype::ANY, |octets| Rtype(u16::from_be_bytes(*octets)))
    }

    /// Whether it says that the name of the question does not exist; not if the name is an alias of one that does not
    /// (RFC 6604 section 3).
    pub(crate) fn denies_name(&self) -> bool {
        self.head().kind == Kind::NxDomain && self.head().aliases == 0
    }

    /// Offsets of the TTLs of all its records, in the order of the message.
    pub fn ttl_offsets(&self) -> impl Iterator<Item = usize> {
        let octets = self.octets()[self.head().message_len.into()..]
            .as_chunks()
            .0;
        octets.iter().map(|at| {
            step();
            u16::from_be_bytes(*at).into()
        })
    }

    /// Writes the records after a question of the same length. The additional section is written
    /// only if all of it fits: the response is complete without it (RFC 2181 section 9). Returns
    /// the end of the records.
    pub fn write_records(&self, to: &mut Builder<'_>) -> Result<usize, Truncated> {
        let message = self.message();
        let end = usize::from(self.head().message_len);
        if to.records_raw(&message, end, message.arcount()).is_ok() {
            return Ok(end);
        }
        let end = usize::from(self.head().authority_end);
        to.records_raw(&message, end, 0).map(|()| end)
    }

    /// The name at the end of the aliases, or the name of the question if there are none.
    pub fn chain_end(&self) -> Name<'_> {
        match Name::parse(self.bytes(), usize::from(self.head().chain_end_at)) {
            Ok((name, _)) => name,
            Err(_) => unreachable!("a stored message was written here"),
        }
    }

    /// The name at the end of the aliases if the response has neither records for it nor an SOA
    /// record that denies them.
    pub fn open_end(&self) -> Option<Name<'_>> {
        let is_open = self.head().kind == Kind::Positive && self.head().found.count == 0;
        is_open.then(|| self.chain_end())
    }

    /// The records of the answer section that lead to the end of the chain.
    pub fn aliases<'a>(&self, message: &Message<'a>) -> Records<'a> {
        let at = message.question().map_or(HEADER_LEN, |q| q.range().end);
        message.records_from(at, [self.head().aliases, 0, 0])
    }

    /// The records of the queried type, with the aliases before them and the signatures behind them if `whole`, for a
    /// response with this room for them. None takes fewer octets there, unless a name in it ends like the question of
    /// that response.
    ///
    /// # Errors
    ///
    /// They do not fit.
    pub fn found_within<'a>(
        &self,
        message: &Message<'a>,
        whole: bool,
        room: usize,
    ) -> Result<Records<'a>, Truncated> {
        let head = self.head();
        let (at, end, count) = if whole {
            let at = message.question().map_or(HEADER_LEN, |q| q.range().end);
            (at, head.answer_end, message.ancount())
        } else {
            (head.found.at.into(), head.found.end, head.found.count)
        };
        if usize::from(end) > at + room {
            return Err(Truncated);
        }
        Ok(message.records_from(at, [count, 0, 0]))
    }

    /// The SOA record that applies, which begins the authority section.
    pub fn soa<'a>(&self, message: &Message<'a>) -> Records<'a> {
        let count = u16::from(self.head().soa_ttl_s.is_some());
        message.records_from(self.head().answer_end.into(), [0, count, 0])
    }

    /// The records of the authority and the additional section.
    pub fn behind_answer<'a>(&self, message: &Message<'a>) -> Records<'a> {
        let counts = [0, message.nscount(), message.arcount()];
        message.records_from(self.head().answer_end.into(), counts)
    }

    /// The same records for a response with this room for them: without the additional section if that does not fit.
    /// No name of theirs takes fewer octets behind other records.
    ///
    /// # Errors
    ///
    /// The authority section does not fit.
    pub fn behind_answer_within<'a>(
        &self,
        message: &Message<'a>,
        room: usize,
    ) -> Result<Records<'a>, Truncated> {
        let head = self.head();
        let fits = |end: u16| usize::from(end - head.answer_end) <= room;
        if !fits(head.authority_end) {
            return Err(Truncated);
        }
        let arcount = if fits(head.message_len) {
            message.arcount()
        } else {
            0
        };
        let counts = [0, message.nscount(), arcount];
        Ok(message.records_from(head.answer_end.into(), counts))
    }

    /// Whether it has records of the queried type, owned by the name of the question, and otherwise no
    /// records but signatures over these. The name is not the root, which no pointer shortens.
    pub fn has_only_found(&self) -> bool {
        const POINTER_LEN: u16 = 2;
        self.head().aliases == 0
            && self.head().found.owner_len == POINTER_LEN
            && self.head().answer_end == self.head().message_len
    }

    /// Number of records of the queried type at the end of the chain.
    pub fn found(&self) -> usize {
        self.head().found.count.into()
    }

    /// The found addresses and their TTLs, if the question is for A in class IN.
    pub fn a(&self) -> impl Iterator<Item = (u32, Ipv4Addr)> {
        let found = self.head().found.fixed(self.bytes());
        found.map(|(ttl, octets)| (ttl, <[u8; 4]>::into(octets)))
    }

    /// The found addresses and their TTLs, if the question is for AAAA in class IN.
    pub fn aaaa(&self) -> impl Iterator<Item = (u32, Ipv6Addr)> {
        let found = self.head().found.fixed(self.bytes());
        found.map(|(ttl, octets)| (ttl, <[u8; 16]>::into(octets)))
    }

    /// Octets of the message without its additional section, which a response may omit.
    pub fn required_len(&self) -> usize {
        self.head().authority_end.into()
    }

    /// Octets up to the end of the records of the queried type. A response with all of them, or with an AAAA record for
    /// each A record, is not shorter.
    pub fn found_end(&self) -> usize {
        self.head().found.end.into()
    }

    /// The kind of the response.
    pub fn kind(&self) -> Kind {
        self.head().kind
    }

    /// Whether the response is neither positive nor negative.
    pub fn is_failure(&self) -> bool {
        matches!(self.head().kind, Kind::Failure(_))
    }

    /// The response code.
    pub fn rcode(&self) -> Rcode {
        match self.head().kind {
            Kind::Positive | Kind::NoData => Rcode::NOERROR,
            Kind::NxDomain => Rcode::NXDOMAIN,
            Kind::Failure(rcode) => rcode,
        }
    }

    /// TTL of the response in seconds: the smallest TTL of the answer section; of a negative
    /// response also that of its SOA record (RFC 2308 section 5), and 0 without one; of a failure
    /// [`FAILURE_TTL_S`].
    pub fn ttl_s(&self) -> u32 {
        self.head().ttl_s
    }

    /// The smaller of TTL and MINIMUM of the SOA record in the authority section, in seconds.
    pub fn soa_ttl_s(&self) -> Option<u32> {
        self.head().soa_ttl_s
    }

    /// Extended error of the response (RFC 8914).
    pub fn extended_error(&self) -> Option<u16> {
        self.head().extended_error
    }

    /// Whether the response has DNSSEC records for the end of the chain: signatures over the found
    /// records, or RRSIG, NSEC or NSEC3 records in the authority section.
    pub fn is_signed(&self) -> bool {
        self.head().signed
    }

    /// Whether the upstream set AD.
    pub fn ad(&self) -> bool {
        self.head().ad
    }

    /// Size in memory in octets, without the overhead of the allocator.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Head>() + self.octets().len()
    }
}

/// A stored response and its age.
#[derive(Clone, Copy, Debug)]
pub struct Aged<'a> {
    /// The stored response.
    pub stored: &'a Stored,
    /// Age of the response.
    pub age: Age,
}

/// Age of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Seconds since it was stored. All TTLs are reduced by them, at most to 0.
    Seconds(u32),
    /// Expired: all TTLs are [`STALE_TTL_S`].
    Stale,
}

impl<'a> Aged<'a> {
    /// A response that was stored `age_s` seconds ago.
    pub fn fresh(stored: &'a Stored, age_s: u32) -> Self {
        let age = Age::Seconds(age_s);
        Self { stored, age }
    }

    /// An expired response (RFC 8767).
    pub fn stale(stored: &'a Stored) -> Self {
        let age = Age::Stale;
        Self { stored, age }
    }

    /// The remaining TTL for a TTL of the stored response, in seconds.
    pub fn ttl(&self, ttl: u32) -> u32 {
        match self.age {
            Age::Seconds(age_s) => ttl.saturating_sub(age_s),
            Age::Stale => STALE_TTL_S,
        }
    }

    /// Extended error of the response: its own, or the one for stale responses.
    pub fn extended_error(&self) -> Option<u16> {
        let stale = match (self.age, self.stored.kind()) {
            (Age::Seconds(_), _) => None,
            (Age::Stale, Kind::NxDomain) => Some(STALE_NXDOMAIN),
            (Age::Stale, _) => Some(STALE_ANSWER),
        };
        stale.or(self.stored.extended_error())
    }
}

/// Offset of the name of the question.
const QUESTION_AT: u16 = 12;

#[cfg(test)]
mod tests;
