//! Writes queries by patching a template.

use std::net::Ipv4Addr;

use dns64_wire::codes::Rtype;
use dns64_wire::name::NameBuf;

use crate::namespace::{self, LABEL_BYTES};

/// Offsets in a query: header, then the first label.
const ID: std::ops::Range<usize> = 0..2;
const LABEL: std::ops::Range<usize> = HEADER_BYTES + 1..HEADER_BYTES + 1 + LABEL_BYTES;
const HEADER_BYTES: usize = 12;

/// A query for AAAA, with RD, of class IN, without EDNS, like those of dns64perf++. All queries of a trial have the
/// same length.
#[derive(Clone, Debug)]
pub struct QueryTemplate(Vec<u8>);

impl QueryTemplate {
    /// Creates the template of queries below `suffix`.
    pub fn new(suffix: &NameBuf) -> Self {
        Self::of_type(suffix, Rtype::AAAA)
    }

    /// Creates the template of queries for another type.
    pub fn of_type(suffix: &NameBuf, rtype: Rtype) -> Self {
        let mut bytes = vec![0, 0, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
        bytes.push(15); // LABEL_BYTES
        bytes.extend([b'-'; LABEL_BYTES]);
        bytes.extend(suffix.as_wire());
        bytes.extend(rtype.0.to_be_bytes());
        bytes.extend([0, 1]); // IN
        Self(bytes)
    }

    /// Writes the query for the name of `address` into `frame`; returns its length.
    pub fn write(&self, id: u16, address: Ipv4Addr, frame: &mut [u8]) -> usize {
        let query = &mut frame[..self.0.len()];
        query.copy_from_slice(&self.0);
        query[ID].copy_from_slice(&id.to_be_bytes());
        query[LABEL].copy_from_slice(&namespace::label(address));
        query.len()
    }

    /// Writes the question section of the query for the name of `address`, which the response must repeat.
    pub fn question(&self, address: Ipv4Addr, question: &mut [u8; QUESTION_BYTES]) -> usize {
        let bytes = &self.0[HEADER_BYTES..];
        let own = &mut question[..bytes.len()];
        own.copy_from_slice(bytes);
        own[1..=LABEL_BYTES].copy_from_slice(&namespace::label(address));
        own.len()
    }
}

/// Largest query: a header and a question.
pub const QUERY_BYTES: usize = HEADER_BYTES + QUESTION_BYTES;

/// Largest question: a name of at most 255 octets, type and class.
pub const QUESTION_BYTES: usize = 259;

#[cfg(test)]
mod tests {
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
}
