//! Writes queries by patching a template.

use std::fmt;
use std::net::Ipv4Addr;

use dns64_wire::codes::Rtype;
use dns64_wire::name::NameBuf;
use serde::{Deserialize, Serialize};

use crate::namespace::{self, LABEL_BYTES};

/// Offsets in a query: header, then the first label.
const ID: std::ops::Range<usize> = 0..2;
const LABEL: std::ops::Range<usize> = HEADER_BYTES + 1..HEADER_BYTES + 1 + LABEL_BYTES;
const HEADER_BYTES: usize = 12;

/// Form of the queries of a trial: what else than the name distinguishes them from those of dns64perf++.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryForm {
    /// Their EDNS.
    pub edns: Edns,
}

impl QueryForm {
    /// Explains why trials with such queries are not those of RFC 8219 section 9.2, if they are not.
    pub fn flaw(&self) -> Option<String> {
        let edns = self.edns;
        (edns != Edns::None)
            .then(|| format!("the queries carry EDNS ({edns}), unlike those of RFC 8219 section 9.2"))
    }
}

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

/// A query for AAAA, with RD, of class IN. All queries of a trial have the same length.
#[derive(Clone, Debug)]
pub struct QueryTemplate {
    octets: Vec<u8>,
    /// End of the question; the OPT record follows, if there is one.
    question_end: usize,
}

impl QueryTemplate {
    /// Creates the template of queries below `suffix`, without EDNS.
    pub fn new(suffix: &NameBuf) -> Self {
        Self::of_type(suffix, Rtype::AAAA)
    }

    /// Creates the template of queries for another type.
    pub fn of_type(suffix: &NameBuf, rtype: Rtype) -> Self {
        let mut octets = vec![0, 0, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
        octets.push(15); // LABEL_BYTES
        octets.extend([b'-'; LABEL_BYTES]);
        octets.extend(suffix.as_wire());
        octets.extend(rtype.0.to_be_bytes());
        octets.extend([0, 1]); // IN
        Self {
            question_end: octets.len(),
            octets,
        }
    }

    /// Returns the template of the same queries with this EDNS.
    #[must_use]
    pub fn with_edns(mut self, edns: Edns) -> Self {
        self.octets.truncate(self.question_end);
        self.octets.extend(edns.record());
        self.octets[HEADER_BYTES - 1] = u8::from(edns != Edns::None);
        self
    }

    /// Writes the query for the name of `address` into `frame`; returns its length.
    pub fn write(&self, id: u16, address: Ipv4Addr, frame: &mut [u8]) -> usize {
        let query = &mut frame[..self.octets.len()];
        query.copy_from_slice(&self.octets);
        query[ID].copy_from_slice(&id.to_be_bytes());
        query[LABEL].copy_from_slice(&namespace::label(address));
        query.len()
    }

    /// Writes the question section of the query for the name of `address`, which the response must repeat.
    pub fn question(&self, address: Ipv4Addr, question: &mut [u8; QUESTION_BYTES]) -> usize {
        let bytes = &self.octets[HEADER_BYTES..self.question_end];
        let own = &mut question[..bytes.len()];
        own.copy_from_slice(bytes);
        own[1..=LABEL_BYTES].copy_from_slice(&namespace::label(address));
        own.len()
    }
}

/// Largest query: a header, a question, and an OPT record with a cookie.
pub const QUERY_BYTES: usize = HEADER_BYTES + QUESTION_BYTES + OPT.len() + COOKIE.len();

/// Largest question: a name of at most 255 octets, type and class.
pub const QUESTION_BYTES: usize = 259;

#[cfg(test)]
mod tests {
    use dns64_wire::message::Message;

    use super::*;

    #[test]
    fn query_has_the_expected_octets() {
        let template = QueryTemplate::new(&namespace::DEFAULT_SUFFIX.parse().unwrap());
        let mut frame = [0xff; 64];
        let len = template.write(0xabcd, Ipv4Addr::new(10, 0, 7, 255), &mut frame);
        let expected = b"\xab\xcd\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\
            \x0f010-000-007-255\x09dns64perf\x04test\x00\x00\x1c\x00\x01";
        assert_eq!(&frame[..len], expected);
        let mut question = [0; QUESTION_BYTES];
        let len = template.question(Ipv4Addr::new(10, 0, 7, 255), &mut question);
        assert_eq!(&question[..len], &expected[12..]);
    }

    #[test]
    fn edns_follows_the_question_and_is_no_part_of_it() {
        let suffix = namespace::DEFAULT_SUFFIX.parse().unwrap();
        let plain = QueryTemplate::new(&suffix);
        let address = Ipv4Addr::new(10, 0, 7, 255);
        let (mut frame, mut question) = ([0; QUERY_BYTES], [0; QUESTION_BYTES]);
        let len = plain.write(1, address, &mut frame);
        let without = frame[..len].to_vec();
        for (edns, octets, options) in [
            (Edns::None, 0, None),
            (Edns::Plain, 11, Some((false, 0))),
            (Edns::Do, 11, Some((true, 0))),
            (Edns::Cookie, 23, Some((false, 1))),
        ] {
            let template = plain.clone().with_edns(edns);
            let len = template.write(1, address, &mut frame);
            assert_eq!(len, without.len() + octets, "{edns}");
            let message = Message::parse(&frame[..len]).unwrap();
            let opt = message.opt().unwrap();
            let found = opt.map(|opt| (opt.do_bit, opt.options().count()));
            assert_eq!(found, options, "{edns}");
            assert!(opt.is_none_or(|opt| opt.udp_size == 1232 && opt.version == 0));
            let len = template.question(address, &mut question);
            assert_eq!(question[..len], without[HEADER_BYTES..], "{edns}");
        }
    }
}
