//! Fast path for the most common query of resolvers: one question for A or AAAA of a name that encodes an address,
//! class IN, with a plain OPT record or none. The answer is copied from templates.
//!
//! All other queries take the general path, which gives the same octets for the common query; tests compare both.

use std::net::Ipv4Addr;

use dns64_wire::codes::Rtype;
use dns64_wire::name::NAME_LEN_MAX;

use super::counts::AnswerKind;
use super::zone::{SOA_RDATA_LEN, ZoneConfig, soa_rdata};
use crate::load::query::OPT;
use crate::namespace::{AskedName, LABEL_BYTES, own_aaaa, parse_label};

/// Octets of all replies that do not depend on the query.
#[derive(Clone, Debug)]
pub(super) struct Fast {
    /// Length of a query without OPT; longer than any query if the zone has no names with one address.
    query_len: usize,
    /// An A record without its data.
    pub(super) a: [u8; RECORD_LEN],
    /// An AAAA record without its data.
    pub(super) aaaa: [u8; RECORD_LEN],
    /// The SOA record.
    pub(super) soa: [u8; SOA_LEN],
}

/// A reply that has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FastReply {
    pub(super) len: usize,
    pub(super) asked: AskedName,
    pub(super) kind: AnswerKind,
}

impl Fast {
    pub(super) fn new(config: &ZoneConfig) -> Self {
        let ttl = config.ttl_s.to_be_bytes();
        let negative_ttl = config.negative_ttl_s.to_be_bytes();
        let mut a = *b"\xc0\x0c\0\x01\0\x01TTTT\0\x04";
        a[6..10].copy_from_slice(&ttl);
        let mut aaaa = *b"\xc0\x0c\0\x1c\0\x01TTTT\0\x10";
        aaaa[6..10].copy_from_slice(&ttl);
        let mut soa = [0; SOA_LEN];
        soa[..RECORD_LEN].copy_from_slice(b"\xc0\x1c\0\x06\0\x01TTTT\0\x26");
        soa[6..10].copy_from_slice(&negative_ttl);
        soa[RECORD_LEN..].copy_from_slice(&soa_rdata(SUFFIX_AT_U16, config.negative_ttl_s));
        let suffix_len = config.zone.suffix.as_wire().len();
        // A longer suffix leaves no room for a name that encodes an address.
        let too_long = suffix_len + 1 + LABEL_BYTES > NAME_LEN_MAX;
        Self {
            query_len: if too_long || !config.zone.records.are_plain() {
                usize::MAX
            } else {
                SUFFIX_AT + suffix_len + 4
            },
            a,
            aaaa,
            soa,
        }
    }

    /// Writes the reply to `query` into `out`, if the query is common and the buffer large enough.
    #[inline]
    pub(super) fn answer(
        &self,
        config: &ZoneConfig,
        query: &[u8],
        out: &mut [u8],
    ) -> Option<FastReply> {
        let edns = Edns::of(query.get(self.query_len..)?)?;
        let (address, rtype) = self.asked(config, query, edns)?;
        let out = out.first_chunk_mut::<ROOM>()?;
        let mut reply = ReplyWriter { out, len: 0 };
        reply.put(&query[..self.query_len]);
        let (kind, counts) = if rtype == Rtype::A {
            reply.put(&self.a);
            reply.put(&address.octets());
            (AnswerKind::Answered, ANSWER_COUNTS)
        } else if config.has_aaaa(address) {
            reply.put(&self.aaaa);
            reply.put(&own_aaaa(address).octets());
            (AnswerKind::Answered, ANSWER_COUNTS)
        } else {
            reply.put(&self.soa);
            (AnswerKind::NoData, NEGATIVE_COUNTS)
        };
        // QR and AA set, RD copied; CD copied.
        reply.out[2] = 0x84 | query[2] & 0x01;
        reply.out[3] = query[3] & 0x10;
        reply.out[6..12].copy_from_slice(&counts);
        if let Some(do_octet) = edns.do_octet {
            reply.out[11] = 1;
            reply.put(&OPT);
            reply.out[reply.len - 4] = do_octet;
        }
        Some(FastReply {
            len: reply.len,
            asked: AskedName { address, rtype },
            kind,
        })
    }

    /// Returns the address and the type of the question, if the query up to its OPT record has the common form.
    #[inline]
    fn asked(&self, config: &ZoneConfig, query: &[u8], edns: Edns) -> Option<(Ipv4Addr, Rtype)> {
        let head = query.first_chunk::<SUFFIX_AT>()?;
        // QR and OPCODE zero; one question and no records but OPT.
        let plain = head[2] & 0xf8 == 0
            && head[4..11] == [0, 1, 0, 0, 0, 0, 0]
            && head[11] == u8::from(edns.do_octet.is_some())
            && usize::from(head[12]) == LABEL_BYTES;
        if !plain {
            return None;
        }
        let (suffix, rest) = query[SUFFIX_AT..self.query_len].split_last_chunk::<4>()?;
        let own = config.zone.suffix.as_wire();
        // Length octets are below 64 and therefore not letters: the wire format can be compared like the name.
        if suffix != own && !suffix.eq_ignore_ascii_case(own) {
            return None;
        }
        let rtype = match rest {
            [0, 1, 0, 1] => Rtype::A,
            [0, 28, 0, 1] => Rtype::AAAA,
            _ => return None,
        };
        let label = head.last_chunk::<LABEL_BYTES>()?;
        Some((parse_label(label)?, rtype))
    }
}

/// The part of a common query after the question.
#[derive(Clone, Copy)]
struct Edns {
    /// With an OPT record, the octet of its flags that contains DO.
    do_octet: Option<u8>,
}

impl Edns {
    /// Accepts nothing, or a plain OPT record of version 0 without options.
    #[inline]
    fn of(rest: &[u8]) -> Option<Self> {
        match rest {
            [] => Some(Self { do_octet: None }),
            [0, 0, 41, _, _, _, 0, flags, _, 0, 0] => Some(Self {
                do_octet: Some(flags & 0x80),
            }),
            _ => None,
        }
    }
}

/// Appends to a reply; the caller has checked the size of the buffer.
struct ReplyWriter<'a> {
    out: &'a mut [u8; ROOM],
    len: usize,
}

impl ReplyWriter<'_> {
    #[inline]
    fn put(&mut self, part: &[u8]) {
        self.out[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }
}

/// Owner, type, class, TTL and length of a record.
pub(super) const RECORD_LEN: usize = 12;

/// The SOA record of a negative answer.
pub(super) const SOA_LEN: usize = RECORD_LEN + SOA_RDATA_LEN;

/// Offset of the suffix in a common query: after the header and the first label.
pub(super) const SUFFIX_AT: usize = 12 + 1 + LABEL_BYTES;
const SUFFIX_AT_U16: u16 = 28;

/// Size of the largest reply of this path.
const ROOM: usize = super::PLAIN_LEN_MAX;

/// ANCOUNT, NSCOUNT and ARCOUNT.
const ANSWER_COUNTS: [u8; 6] = [0, 1, 0, 0, 0, 0];
const NEGATIVE_COUNTS: [u8; 6] = [0, 0, 0, 1, 0, 0];
