//! Writes queries by patching a template.

use std::fmt;
use std::str::FromStr;

use dns64_wire::codes::Rtype;
use dns64_wire::name::NameBuf;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::namespace::{self, AskedName, LABEL_BYTES, Share, dealt, rest};
use crate::quantity::ValueError;

/// Offsets in a query: header, then the first label.
const ID: std::ops::Range<usize> = 0..2;
const LABEL: std::ops::Range<usize> = HEADER_BYTES + 1..HEADER_BYTES + 1 + LABEL_BYTES;
const HEADER_BYTES: usize = 12;

/// Form of the queries of a trial: what else than the name distinguishes them from those of dns64perf++.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryForm {
    /// Their EDNS.
    pub edns: Edns,
    /// Their types.
    pub types: Types,
}

impl QueryForm {
    /// Explains why trials with such queries are not those of RFC 8219 section 9.2, if they are not.
    pub fn flaws(&self) -> impl Iterator<Item = String> {
        let Self { edns, types } = *self;
        let edns = (edns != Edns::None).then(|| {
            format!("the queries carry EDNS ({edns}), unlike those of RFC 8219 section 9.2")
        });
        let types = (types != Types::default()).then(|| {
            format!("the queries are for {types}, and those of RFC 8219 section 9.2 for AAAA")
        });
        edns.into_iter().chain(types)
    }
}

/// Types of the queries, each with its exact share: AAAA, A and HTTPS. The sum of the shares is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct Types([Share; 3]);

impl Types {
    /// The types, in the order of their shares.
    pub const ALL: [Rtype; 3] = [Rtype::AAAA, Rtype::A, Rtype::HTTPS];
    /// The place of HTTPS among them.
    pub const HTTPS: usize = 2;

    /// Returns the type of the query with this position.
    #[inline]
    pub fn of(self, position: u64) -> Rtype {
        match self.are_aaaa() {
            true => Rtype::AAAA,
            false => dealt(&self.0, position).map_or(Rtype::AAAA, |index| Self::ALL[index]),
        }
    }

    /// Returns whether all queries are for AAAA.
    #[inline]
    pub fn are_aaaa(self) -> bool {
        self.0[0] == Share::ALL
    }

    /// Returns whether some queries are for this type.
    pub fn has(self, rtype: Rtype) -> bool {
        let mut parts = Self::ALL.iter().zip(self.0);
        parts.any(|(it, share)| *it == rtype && share != Share::NONE)
    }
}

impl Default for Types {
    /// Returns those of RFC 8219: AAAA alone.
    fn default() -> Self {
        Self([Share::ALL, Share::NONE, Share::NONE])
    }
}

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = Self::ALL.iter().zip(self.0);
        let parts = parts.filter(|(_, share)| *share != Share::NONE);
        let texts: Vec<_> = parts
            .map(|(rtype, share)| format!("{rtype}={share}"))
            .collect();
        f.write_str(&texts.join(","))
    }
}

impl FromStr for Types {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut shares = [Share::NONE; 3];
        for part in text.split(',') {
            let (name, share) = part.split_once('=').unwrap_or((part, "100%"));
            let place = Self::ALL.iter().position(|rtype| rtype.to_string() == name);
            let place = place.ok_or_else(|| {
                ValueError(format!(
                    "{name:?} is not a type of queries; use AAAA, A and HTTPS, {MIX}"
                ))
            })?;
            shares[place] = share.parse()?;
        }
        match rest(&shares) {
            Some(Share::NONE) => Ok(Self(shares)),
            _ => Err(ValueError(format!(
                "the shares of {text:?} do not add up to 100%; use {MIX}"
            ))),
        }
    }
}

const MIX: &str = "for example AAAA=60%,A=30%,HTTPS=10%";

/// EDNS of a query (RFC 6891).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edns {
    /// No OPT record, as in the queries of dns64perf++.
    #[default]
    None,
    /// An OPT record that offers [`UDP_SIZE`] octets.
    Plain,
    /// The same with DO: a request for the records of DNSSEC (RFC 3225).
    Do,
    /// As plain, with a client cookie (RFC 7873), the same in all queries.
    Cookie,
}

impl Edns {
    /// Returns the OPT record; no octets without one.
    fn record(self) -> Vec<u8> {
        let mut record = OPT.to_vec();
        match self {
            Self::None => record.clear(),
            Self::Plain => {}
            Self::Do => record[OPT_FLAGS_AT] = 0x80,
            Self::Cookie => {
                record[OPT_FLAGS_AT + 3] = COOKIE_BYTES;
                record.extend(COOKIE);
            }
        }
        record
    }
}

impl fmt::Display for Edns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Plain => "plain",
            Self::Do => "do",
            Self::Cookie => "cookie",
        })
    }
}

/// Largest UDP payload that the Tester announces (DNS flag day 2020; fits any IPv6 path unfragmented).
pub const UDP_SIZE: u16 = 1232;

/// An OPT record of version 0 without options; the octet that contains DO is the fourth from the end.
pub const OPT: [u8; 11] = {
    let [high, low] = UDP_SIZE.to_be_bytes();
    [0, 0, 41, high, low, 0, 0, 0, 0, 0, 0]
};

/// Offset of the flags in an OPT record, whose first octet contains DO; the length of the options follows.
const OPT_FLAGS_AT: usize = 7;

/// Option 10 with the 8 octets of a client cookie (RFC 7873 section 4).
const COOKIE: [u8; COOKIE_BYTES as usize] = *b"\0\x0a\0\x08dns64\xc0\x01\xe5";
const COOKIE_BYTES: u8 = 12;

/// A query with RD, of class IN. All queries of a trial have the same length.
#[derive(Clone, Debug)]
pub struct QueryTemplate {
    octets: Vec<u8>,
    /// End of the question; the OPT record follows, if there is one.
    question_end: usize,
}

impl QueryTemplate {
    /// Creates the template of queries below `suffix`.
    pub fn new(suffix: &NameBuf, edns: Edns) -> Self {
        let mut octets = vec![
            0,
            0,
            0x01,
            0x00,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            u8::from(edns != Edns::None),
        ];
        octets.push(15); // LABEL_BYTES
        octets.extend([b'-'; LABEL_BYTES]);
        octets.extend(suffix.as_wire());
        octets.extend(Rtype::AAAA.0.to_be_bytes());
        octets.extend([0, 1]); // IN
        let question_end = octets.len();
        octets.extend(edns.record());
        Self {
            octets,
            question_end,
        }
    }

    /// Writes a query into `frame`; returns its length.
    pub fn write(&self, id: u16, asked: AskedName, frame: &mut [u8]) -> usize {
        let query = &mut frame[..self.octets.len()];
        query.copy_from_slice(&self.octets);
        query[ID].copy_from_slice(&id.to_be_bytes());
        query[LABEL].copy_from_slice(&namespace::label(asked.address));
        put_type(&mut query[..self.question_end], asked.rtype);
        query.len()
    }

    /// Returns the question section of a query, which the response must repeat: in place, since each query overwrites
    /// label and type of the template anyway.
    pub fn question(&mut self, asked: AskedName) -> &[u8] {
        let question = &mut self.octets[HEADER_BYTES..self.question_end];
        question[1..=LABEL_BYTES].copy_from_slice(&namespace::label(asked.address));
        put_type(question, asked.rtype);
        question
    }
}

/// Writes the type of a question, before its class at the end.
fn put_type(question: &mut [u8], rtype: Rtype) {
    if let Some([high, low, ..]) = question.last_chunk_mut::<4>() {
        [*high, *low] = rtype.0.to_be_bytes();
    }
}

/// Largest query: a header, a question, and an OPT record with a cookie.
pub const QUERY_BYTES: usize = HEADER_BYTES + QUESTION_BYTES + OPT.len() + COOKIE.len();

/// Largest question: a name of at most 255 octets, type and class.
const QUESTION_BYTES: usize = 259;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use dns64_wire::message::Message;

    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 7, 255);

    #[test]
    fn query_has_the_expected_octets() {
        let suffix = namespace::DEFAULT_SUFFIX.parse().unwrap();
        let mut template = QueryTemplate::new(&suffix, Edns::None);
        let mut frame = [0xff; 64];
        for (rtype, low) in [(Rtype::AAAA, 28), (Rtype::A, 1), (Rtype::HTTPS, 65)] {
            let asked = AskedName {
                address: ADDRESS,
                rtype,
            };
            let len = template.write(0xabcd, asked, &mut frame);
            let mut expected = *b"\xab\xcd\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\
                \x0f010-000-007-255\x09dns64perf\x04test\x00\x00\x1c\x00\x01";
            expected[45] = low;
            assert_eq!(frame[..len], expected);
            assert_eq!(template.question(asked), &expected[12..]);
        }
    }

    #[test]
    fn edns_follows_the_question_and_is_no_part_of_it() {
        let suffix = namespace::DEFAULT_SUFFIX.parse().unwrap();
        let asked = AskedName::aaaa(ADDRESS);
        let mut frame = [0; QUERY_BYTES];
        let len = QueryTemplate::new(&suffix, Edns::None).write(1, asked, &mut frame);
        let without = frame[..len].to_vec();
        for (edns, octets, options) in [
            (Edns::None, 0, None),
            (Edns::Plain, 11, Some((false, 0))),
            (Edns::Do, 11, Some((true, 0))),
            (Edns::Cookie, 23, Some((false, 1))),
        ] {
            let mut template = QueryTemplate::new(&suffix, edns);
            let len = template.write(1, asked, &mut frame);
            assert_eq!(len, without.len() + octets, "{edns}");
            let message = Message::parse(&frame[..len]).unwrap();
            let opt = message.opt().unwrap();
            let found = opt.map(|opt| (opt.do_bit, opt.options().count()));
            assert_eq!(found, options, "{edns}");
            assert!(opt.is_none_or(|opt| opt.udp_size == 1232 && opt.version == 0));
            assert_eq!(template.question(asked), &without[HEADER_BYTES..], "{edns}");
        }
    }

    #[test]
    fn shares_of_types_are_exact_and_add_up() {
        let types: Types = "AAAA=60%,A=30%,HTTPS=10%".parse().unwrap();
        for from in [0, 7, 1_000_003] {
            let found = Types::ALL.map(|rtype| {
                let positions = from..from + 1_000_000;
                positions.filter(|&n| types.of(n) == rtype).count()
            });
            assert_eq!(found, [600_000, 300_000, 100_000]);
        }
        assert_eq!(types.to_string().parse(), Ok(types));
        assert_eq!("AAAA".parse(), Ok(Types::default()));
        assert!(types.has(Rtype::HTTPS) && !Types::default().has(Rtype::A));
        for bad in ["", "MX", "AAAA=60%", "AAAA=60%,A=50%", "A=", "AAAA=1,A=x"] {
            assert!(bad.parse::<Types>().is_err(), "{bad}");
        }
    }
}
