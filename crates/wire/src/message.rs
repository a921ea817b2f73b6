//! A view of a DNS message (RFC 1035 section 4).
//!
//! [`Message::parse`] checks the header and the question once; the accessors of the result cannot fail. The records
//! after the question are checked while they are iterated, so a caller that needs only the question does not pay for
//! them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::{Deref, Range};

use crate::codes::{Class, Rtype};
pub use crate::header::{Flags, HEADER_LEN, Header};
use crate::name::Name;
use crate::{ParseError, read_u16};

/// A message with a valid header and question. Dereferences to its header.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    header: Header,
    question: Option<Question<'a>>,
    records_at: usize,
}

impl<'a> Message<'a> {
    /// Parses the header and the question section: at most one question (RFC 9619).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = Header::parse(bytes)?;
        let (question, records_at) = match header.qdcount() {
            0 => (None, HEADER_LEN),
            1 => {
                let question = Question::parse(bytes, HEADER_LEN)?;
                (Some(question), question.range().end)
            }
            count => return Err(ParseError::Questions { count }),
        };
        Ok(Self {
            bytes,
            header,
            question,
            records_at,
        })
    }

    /// The octets of the whole message.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The question, if there is one.
    #[inline]
    pub fn question(&self) -> Option<Question<'a>> {
        self.question
    }

    /// Iterates over the records of all three sections. Ends after the first error.
    pub fn records(&self) -> Records<'a> {
        let counts = [self.ancount(), self.nscount(), self.arcount()];
        self.records_from(self.records_at, counts)
    }

    /// Iterates over `counts` records of each section; the first one is at octet `at`.
    pub fn records_from(&self, at: usize, counts: [u16; 3]) -> Records<'a> {
        Records {
            message: self.bytes,
            question: self.question.map(|question| question.name),
            position: at,
            section: Section::Answer,
            left: counts,
            steps: 0,
        }
    }

    /// Finds and checks the OPT record; iterates over all records.
    ///
    /// Returns an error if any record is malformed, if there is more than one OPT record, or if it violates RFC 6891
    /// section 6.1 (place or format).
    pub fn opt(&self) -> Result<Option<Opt<'a>>, ParseError> {
        let mut found = None;
        for record in self.records() {
            let record = record?;
            if record.rtype != Rtype::OPT {
                continue;
            }
            if found.is_some() {
                return Err(ParseError::OptRepeated);
            }
            found = Some(Opt::from_record(&record)?);
        }
        Ok(found)
    }
}

impl Deref for Message<'_> {
    type Target = Header;

    #[inline]
    fn deref(&self) -> &Header {
        &self.header
    }
}

/// Octets after the name of a question (RFC 1035 section 4.1.2).
pub const TYPE_AND_CLASS_LEN: usize = 4;

/// The question of a message (RFC 1035 section 4.1.2).
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Name queried.
    pub name: Name<'a>,
    /// Type queried.
    pub rtype: Rtype,
    /// Class queried.
    pub class: Class,
    octets: &'a [u8],
}

impl<'a> Question<'a> {
    #[inline]
    fn parse(message: &'a [u8], at: usize) -> Result<Self, ParseError> {
        let (name, name_end) = Name::parse(message, at)?;
        let end = name_end + TYPE_AND_CLASS_LEN;
        let octets = message.get(at..end).ok_or(ParseError::ShortMessage)?;
        let Some(&[t0, t1, c0, c1]) = octets.last_chunk() else {
            return Err(ParseError::ShortMessage);
        };
        Ok(Self {
            name,
            rtype: Rtype(u16::from_be_bytes([t0, t1])),
            class: Class(u16::from_be_bytes([c0, c1])),
            octets,
        })
    }

    /// The octets of the question section in the message. Its name is not compressed: directly after the header there
    /// is no earlier name to point to.
    pub fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// The range of the question section in the message.
    pub fn range(&self) -> Range<usize> {
        HEADER_LEN..HEADER_LEN + self.octets.len()
    }
}

/// The record sections, in message order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Records that answer the question.
    Answer,
    /// Records about the authority: SOA of a negative answer, NS of a referral.
    Authority,
    /// All other records, including OPT.
    Additional,
}

/// A record of a message (RFC 1035 section 4.1.3).
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Section of the record.
    pub section: Section,
    /// Owner.
    pub name: Name<'a>,
    /// Type.
    pub rtype: Rtype,
    /// Class; in an OPT record, the sender's UDP payload size.
    pub class: Class,
    /// Time to live in seconds; in an OPT record, extended RCODE, version and flags.
    pub ttl: u32,
    /// Data as in the message: names in it may be compressed.
    pub rdata: &'a [u8],
    /// Offset of the data in the message.
    pub rdata_offset: usize,
    message: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the record of the owner `name` whose other fields are at `fields`.
    #[inline]
    fn parse(
        message: &'a [u8],
        name: Name<'a>,
        fields: usize,
        section: Section,
    ) -> Result<Self, ParseError> {
        let rdata_offset = fields + 10;
        let fixed = message.get(fields..rdata_offset);
        let Some(&[t0, t1, c0, c1, ttl @ .., l0, l1]) =
            fixed.and_then(|fixed| fixed.first_chunk::<10>())
        else {
            return Err(ParseError::ShortMessage);
        };
        let rdata_len = usize::from(u16::from_be_bytes([l0, l1]));
        let Some(rdata) = message.get(rdata_offset..rdata_offset + rdata_len) else {
            return Err(ParseError::ShortMessage);
        };
        Ok(Self {
            section,
            name,
            rtype: Rtype(u16::from_be_bytes([t0, t1])),
            class: Class(u16::from_be_bytes([c0, c1])),
            ttl: u32::from_be_bytes(ttl),
            rdata,
            rdata_offset,
            message,
        })
    }

    /// The address of an A record of class IN; `None` for anything else.
    pub fn a(&self) -> Option<Ipv4Addr> {
        let octets: [u8; 4] = self.rdata.try_into().ok()?;
        (self.rtype == Rtype::A && self.class == Class::IN).then(|| octets.into())
    }

    /// The address of an AAAA record of class IN; `None` for anything else.
    pub fn aaaa(&self) -> Option<Ipv6Addr> {
        let octets: [u8; 16] = self.rdata.try_into().ok()?;
        (self.rtype == Rtype::AAAA && self.class == Class::IN).then(|| octets.into())
    }

    /// The name that is the whole data, as in CNAME, DNAME, NS and PTR.
    pub fn rdata_name(&self) -> Result<Name<'a>, ParseError> {
        let (name, end) = Name::parse(self.message, self.rdata_offset)?;
        match end.cmp(&(self.rdata_offset + self.rdata.len())) {
            std::cmp::Ordering::Equal => Ok(name),
            std::cmp::Ordering::Less => Err(ParseError::NameTooShort),
            std::cmp::Ordering::Greater => Err(ParseError::ShortMessage),
        }
    }
}

/// Labels and pointers that the names of a message may have in addition to one for each octet.
///
/// Each name has its own bounds, 127 labels and 127 pointers, but a record of 12 octets can refer to such a name. Names
/// in normal responses need far less than one step per octet: an address record with a compressed owner has 16 octets,
/// its owner about five labels. The spare steps are for names of many labels in short records: 100 PTR records below
/// `ip6.arpa`, 36 steps each. They cost about as much as one message of 4,096 octets.
pub const STEPS_SPARE: usize = 4096;

/// Iterator over the records of a [`Message`].
///
/// Its work is proportional to the length of the message, whatever the compression pointers: it returns an error once
/// the names have taken more steps than one for each octet up to their end plus [`STEPS_SPARE`]. A message that is cut
/// after a record is therefore read as far as before.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    message: &'a [u8],
    question: Option<Name<'a>>,
    position: usize,
    section: Section,
    left: [u16; 3],
    steps: usize,
}

impl<'a> Records<'a> {
    /// Reads the name at an offset of the message, as [`Name::parse`] does, within the bound on this iteration. For
    /// names in the data of records from the network.
    #[inline]
    pub fn name(&mut self, at: usize) -> Result<(Name<'a>, usize), ParseError> {
        if let (Some(name), Some(TO_QUESTION)) = (self.question, self.message.get(at..at + 2)) {
            self.steps += 1;
            return Ok((name, at + 2));
        }
        let (name, end) = Name::parse_counted(self.message, at, &mut self.steps)?;
        if self.steps > end + STEPS_SPARE {
            return Err(ParseError::NameSteps);
        }
        Ok((name, end))
    }

    /// Labels and pointers read so far, root labels included: the cost of this iteration.
    pub fn steps(&self) -> usize {
        self.steps
    }

    #[inline]
    fn record(&mut self) -> Result<Record<'a>, ParseError> {
        let (name, fields) = self.name(self.position)?;
        Record::parse(self.message, name, fields, self.section)
    }
}

/// A compression pointer to the name of the question, which most owners are.
const TO_QUESTION: &[u8] = &[0xc0, 12];

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, ParseError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.left[self.section as usize] == 0 {
            self.section = match self.section {
                Section::Answer => Section::Authority,
                Section::Authority => Section::Additional,
                Section::Additional => return None,
            };
        }
        let record = self.record();
        match &record {
            Ok(record) => {
                self.position = record.rdata_offset + record.rdata.len();
                self.left[self.section as usize] -= 1;
            }
            Err(_) => self.left = [0; 3],
        }
        Some(record)
    }
}

/// Octets of an OPT record without options (RFC 6891 section 6.1.2).
pub const OPT_LEN: usize = 11;

/// The content of an OPT record (RFC 6891 section 6.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt<'a> {
    /// Largest UDP payload that the sender accepts, in octets, as sent. Values below 512 mean 512 (RFC 6891 section
    /// 6.2.3).
    pub udp_size: u16,
    /// Upper 8 bits of the extended response code.
    pub ext_rcode: u8,
    /// EDNS version.
    pub version: u8,
    /// DNSSEC OK (RFC 3225).
    pub do_bit: bool,
    /// Options, as in the record.
    pub options: &'a [u8],
}

impl<'a> Opt<'a> {
    /// DO, in the lower 16 bits of the TTL field (RFC 6891 section 6.1.4).
    pub const DO: u16 = 1 << 15;

    /// Reads an OPT record. Returns an error if it violates RFC 6891 section 6.1 (place or format).
    pub fn from_record(record: &Record<'a>) -> Result<Self, ParseError> {
        if record.section != Section::Additional || !record.name.is_root() {
            return Err(ParseError::OptMisplaced);
        }
        let [ext_rcode, version, flags_high, flags_low] = record.ttl.to_be_bytes();
        let opt = Self {
            udp_size: record.class.0,
            ext_rcode,
            version,
            do_bit: u16::from_be_bytes([flags_high, flags_low]) & Self::DO != 0,
            options: record.rdata,
        };
        let in_options: usize = opt.options().map(|option| 4 + option.value.len()).sum();
        if in_options != opt.options.len() {
            return Err(ParseError::OptOptions);
        }
        Ok(opt)
    }

    /// Iterates over the options.
    pub fn options(&self) -> Options<'a> {
        Options::new(self.options)
    }
}

/// One EDNS option (RFC 6891 section 6.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdnsOption<'a> {
    /// Code of the option.
    pub code: u16,
    /// Its value.
    pub value: &'a [u8],
}

/// Iterator over the options of an [`Opt`].
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    /// The options in the data of an OPT record.
    pub fn new(rdata: &'a [u8]) -> Self {
        Self { rest: rdata }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = EdnsOption<'a>;

    fn next(&mut self) -> Option<EdnsOption<'a>> {
        let code = read_u16(self.rest, 0).ok()?;
        let end = 4 + usize::from(read_u16(self.rest, 2).ok()?);
        let value = self.rest.get(4..end)?;
        self.rest = &self.rest[end..];
        Some(EdnsOption { code, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::{Opcode, Rcode};

    /// A response with an alias, an address, an SOA under the root, and an OPT with one option.
    const REPLY: &[u8] = b"\x12\x34\x85\xb3\0\x01\0\x02\0\x01\0\x01\
        \x03wWw\x04test\0\0\x1c\0\x01\
        \xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01a\xc0\x10\
        \x01a\xc0\x10\0\x1c\0\x01\0\0\0\x05\0\x10\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\xc0\0\x02\x01\
        \0\0\x06\0\x01\0\0\0\0\0\0\
        \0\0\x29\x04\xd0\x01\0\x80\0\0\x06\0\x0a\0\x02hi";

    #[test]
    fn header_bits_are_at_the_places_of_rfc_1035() {
        let message = Message::parse(REPLY).unwrap();
        assert_eq!(message.id(), 0x1234);
        assert!(message.qr() && message.aa() && message.rd());
        assert!(message.ra() && message.ad() && message.cd());
        assert!(!message.tc());
        assert_eq!(message.opcode(), Opcode::QUERY);
        assert_eq!(message.rcode(), Rcode::NXDOMAIN);
        let counts = (
            message.qdcount(),
            message.ancount(),
            message.nscount(),
            message.arcount(),
        );
        assert_eq!(counts, (1, 2, 1, 1));
        assert_eq!(
            format!("{:?}", message.flags()),
            "Flags(QUERY qr aa rd ra ad cd NXDOMAIN)"
        );
    }

    #[test]
    fn question_is_parsed() {
        let question = Message::parse(REPLY).unwrap().question().unwrap();
        assert_eq!(question.name.to_string(), "wWw.test.");
        assert_eq!((question.rtype, question.class), (Rtype::AAAA, Class::IN));
        assert_eq!(&REPLY[question.range()], b"\x03wWw\x04test\0\0\x1c\0\x01");
    }

    #[test]
    fn records_are_iterated_by_section() {
        let message = Message::parse(REPLY).unwrap();
        let records: Vec<_> = message.records().collect::<Result<_, _>>().unwrap();
        let sections: Vec<_> = records.iter().map(|record| record.section).collect();
        use Section::{Additional, Answer, Authority};
        assert_eq!(sections, [Answer, Answer, Authority, Additional]);
        assert_eq!(records[0].rdata_name().unwrap().to_string(), "a.test.");
        assert_eq!(records[0].ttl, 60);
        assert_eq!(records[0].aaaa(), None);
        assert_eq!(records[1].name.to_string(), "a.test.");
        assert_eq!(
            records[1].aaaa(),
            Some("2001:db8::c000:201".parse().unwrap())
        );
        assert_eq!(records[1].a(), None);
        let rdata = records[1].rdata_offset..records[1].rdata_offset + 16;
        assert_eq!(&REPLY[rdata], records[1].rdata);
        assert_eq!(records[2].rdata, b"");
    }

    #[test]
    fn opt_is_found() {
        let opt = Message::parse(REPLY).unwrap().opt().unwrap().unwrap();
        assert_eq!(
            (opt.udp_size, opt.ext_rcode, opt.version, opt.do_bit),
            (1232, 1, 0, true)
        );
        let options: Vec<_> = opt.options().collect();
        assert_eq!(
            options,
            [EdnsOption {
                code: 10,
                value: b"hi"
            }]
        );
    }

    #[test]
    fn every_truncated_message_is_an_error_and_never_panics() {
        for len in 0..REPLY.len() {
            let result = Message::parse(&REPLY[..len]).and_then(|message| message.opt());
            let error = result.unwrap_err();
            if len < HEADER_LEN {
                assert_eq!(error, ParseError::ShortHeader { len });
            } else {
                assert_eq!(error, ParseError::ShortMessage, "at {len}");
            }
        }
    }

    #[test]
    fn iteration_ends_after_the_first_error() {
        let message = Message::parse(&REPLY[..REPLY.len() - 20]).unwrap();
        let results: Vec<_> = message.records().map(|record| record.is_ok()).collect();
        assert_eq!(results, [true, true, false]);
    }

    /// A response of up to `len` octets: a TXT record with a chain of 126 pointers, then records whose owner is the end
    /// of that chain.
    fn chained(len: usize) -> Vec<u8> {
        let mut bytes = b"\0\0\x80\0\0\x01\0\0\0\0\0\0\x01a\0\0\x10\0\x01".to_vec();
        bytes.extend_from_slice(b"\xc0\x0c\0\x10\0\x01\0\0\0\0\0\xfc");
        let mut target = [0xc0, 12];
        for _ in 0..126 {
            let [high, low] = u16::try_from(bytes.len()).unwrap().to_be_bytes();
            bytes.extend_from_slice(&target);
            target = [0xc0 | high, low];
        }
        let mut records: u16 = 1;
        while bytes.len() + 12 <= len {
            bytes.extend_from_slice(&target);
            bytes.extend_from_slice(b"\0\x10\0\x01\0\0\0\0\0\0");
            records += 1;
        }
        bytes[6..8].copy_from_slice(&records.to_be_bytes());
        bytes
    }

    #[test]
    fn pointer_chains_cost_no_more_than_the_message_length() {
        for len in [1_464, 65_535] {
            let bytes = chained(len);
            let mut records = Message::parse(&bytes).unwrap().records();
            let error = records.by_ref().find_map(Result::err);
            assert_eq!(error, Some(ParseError::NameSteps), "{len}");
            // The last name exceeds the bound, by at most 128 steps.
            assert!(records.steps() <= len + STEPS_SPARE + 128, "{len}");
        }
    }

    #[test]
    fn names_in_data_count_towards_the_step_bound() {
        let bytes = chained(1_464);
        let mut records = Message::parse(&bytes).unwrap().records();
        let first = records.next().unwrap().unwrap();
        let end_of_chain = first.rdata_offset + first.rdata.len() - 2;
        assert_eq!(records.name(end_of_chain).unwrap().0.to_string(), "a.");
        let error = (0..100).find_map(|_| records.name(end_of_chain).err());
        assert_eq!(error, Some(ParseError::NameSteps));
    }

    #[test]
    fn a_name_of_127_labels_can_own_as_many_records_as_fit() {
        let mut bytes = b"\0\0\x80\0\0\x01\0\0\0\0\0\0".to_vec();
        bytes.extend_from_slice(&b"\x01a".repeat(127));
        bytes.extend_from_slice(b"\0\0\x10\0\x01");
        let count = (65_535 - bytes.len()) / 12;
        bytes.extend_from_slice(&b"\xc0\x0c\0\x10\0\x01\0\0\0\0\0\0".repeat(count));
        bytes[6..8].copy_from_slice(&u16::try_from(count).unwrap().to_be_bytes());
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.records().filter(Result::is_ok).count(), count);
    }

    #[test]
    fn two_questions_are_an_error_and_no_question_is_valid() {
        let mut bytes = *b"\0\0\0\0\0\0\0\0\0\0\0\0";
        assert!(Message::parse(&bytes).unwrap().question().is_none());
        bytes[5] = 2;
        let error = Message::parse(&bytes).unwrap_err();
        assert_eq!(error, ParseError::Questions { count: 2 });
    }

    #[test]
    fn opt_must_be_unique_complete_and_owned_by_the_root_in_the_additional_section() {
        const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
        let error = |counts: [u8; 3], records: &[u8]| {
            let [answers, authorities, additionals] = counts;
            let mut bytes = vec![0, 0, 0, 0, 0, 0, 0, answers, 0, authorities, 0, additionals];
            bytes.extend_from_slice(records);
            Message::parse(&bytes).unwrap().opt().unwrap_err()
        };
        assert_eq!(
            error([0, 0, 2], &[OPT, OPT].concat()),
            ParseError::OptRepeated
        );
        assert_eq!(error([1, 0, 0], OPT), ParseError::OptMisplaced);
        assert_eq!(error([0, 1, 0], OPT), ParseError::OptMisplaced);
        let named = b"\x01a\0\0\x29\x04\xd0\0\0\0\0\0\0";
        assert_eq!(error([0, 0, 1], named), ParseError::OptMisplaced);
        let short = b"\0\0\x29\x04\xd0\0\0\0\0\0\x05\0\x0a\0\x02h";
        assert_eq!(error([0, 0, 1], short), ParseError::OptOptions);
        let rest = b"\0\0\x29\x04\xd0\0\0\0\0\0\x07\0\x0a\0\x02hi!";
        assert_eq!(error([0, 0, 1], rest), ParseError::OptOptions);
    }

    #[test]
    fn a_name_in_rdata_must_fill_the_data() {
        let name = |rdata: &[u8]| {
            let mut bytes = b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x05\0\x01\0\0\0\0\0".to_vec();
            bytes.push(u8::try_from(rdata.len()).unwrap());
            bytes.extend_from_slice(rdata);
            bytes.extend_from_slice(b"\0\0");
            let message = Message::parse(&bytes).unwrap();
            let record = message.records().next().unwrap().unwrap();
            record.rdata_name().map(|name| name.to_string())
        };
        assert_eq!(name(b"\x01a\0"), Ok("a.".to_owned()));
        assert_eq!(name(b"\x01a\0\0"), Err(ParseError::NameTooShort));
        assert_eq!(name(b"\x01a"), Err(ParseError::ShortMessage));
    }
}
