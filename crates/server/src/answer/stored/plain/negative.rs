//! Negative responses with one SOA record whose names end with a pointer into the question.

use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{HEADER_LEN, Message, Question, TYPE_AND_CLASS_LEN};
use dns64_wire::name::NAME_LEN_MAX;

use super::{OWNER_LEN, Octets, TTL_AT, offset, only_opt};
use crate::answer::copy::FIXED_LEN;
use crate::answer::stored::{Head, Kind, QUESTION_AT, Run, Stored, TtlBounds};

/// Octets of an SOA record's data after its two names: five numbers, the last of which is MINIMUM
/// (RFC 1035 section 3.3.13).
const NUMBERS_LEN: usize = 20;

/// Stores such a response; `None` for any other one.
pub(super) fn stored(
    reply: &Message<'_>,
    question: &Question<'_>,
    bounds: &TtlBounds,
) -> Option<Stored> {
    let kind = match reply.rcode() {
        Rcode::NOERROR => Kind::NoData,
        Rcode::NXDOMAIN => Kind::NxDomain,
        _ => return None,
    };
    if reply.nscount() != 1 {
        return None;
    }
    let soa_at = question.range().end;
    let end = soa_end(reply.bytes(), question)?;
    let extended_error = only_opt(reply, end)?.extended_error;
    let mut octets = Octets::new();
    octets.extend_from_slice(&reply.bytes()[..end]);
    // The stored form has ID zero and no additional records.
    octets[..2].fill(0);
    octets[HEADER_LEN - 2..HEADER_LEN].fill(0);
    let minimum = *octets.last_chunk()?;
    let ttl: &mut [u8; 4] = octets[soa_at + TTL_AT..].first_chunk_mut()?;
    let ttl_s = [*ttl, minimum].map(u32::from_be_bytes).into_iter().min()?;
    let ttl_s = ttl_s.min(bounds.max_negative_s);
    *ttl = ttl_s.to_be_bytes();
    octets.extend_from_slice(&offset(soa_at + TTL_AT).ok()?.to_be_bytes());
    let end = offset(end).ok()?;
    let head = Head {
        message_len: end,
        answer_end: offset(soa_at).ok()?,
        authority_end: end,
        aliases: 0,
        found: Run::default(),
        chain_end_at: QUESTION_AT,
        kind,
        ttl_s,
        soa_ttl_s: Some(ttl_s),
        extended_error,
        signed: false,
        ad: reply.ad(),
    };
    Some(Stored::new(head, &octets))
}

/// End of the SOA record directly after the question, if its owner is a pointer into the question,
/// its names end with one, and neither can be compressed further.
fn soa_end(message: &[u8], question: &Question<'_>) -> Option<usize> {
    let at = question.range().end;
    let target = Suffix::pointed_at(message, question, at)?;
    let (fixed, _) = message
        .get(at + OWNER_LEN..)?
        .split_first_chunk::<FIXED_LEN>()?;
    let [class_high, class_low] = question.class.0.to_be_bytes();
    let [type_high, type_low] = Rtype::SOA.0.to_be_bytes();
    if fixed[..4] != [type_high, type_low, class_high, class_low] || target.wire_len < 2 {
        return None;
    }
    let data_at = at + OWNER_LEN + FIXED_LEN;
    let (server, server_end) = name(message, question, data_at)?;
    let (mailbox, mailbox_end) = name(message, question, server_end)?;
    let end = mailbox_end + NUMBERS_LEN;
    let data_len = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
    // Rewriting replaces a suffix that both have by a pointer.
    let differ = server.is_empty() || !server.eq_ignore_ascii_case(mailbox);
    (differ && data_len == end - data_at && end <= message.len()).then_some(end)
}

/// The last label before the pointer of the name at `at`, empty if there is none, and the end of the
/// name, if the pointer leads to the longest suffix of the question that the name ends with.
fn name<'a>(message: &'a [u8], question: &Question<'_>, at: usize) -> Option<(&'a [u8], usize)> {
    let (mut end, mut last) = (at, at);
    while let len @ 1..0x40 = *message.get(end)? {
        last = end;
        end += 1 + usize::from(len);
    }
    let suffix = Suffix::pointed_at(message, question, end)?;
    if end - at + suffix.wire_len > NAME_LEN_MAX {
        return None;
    }
    let label = if end > at { &message[last..end] } else { &[] };
    let is_longest = label.is_empty() || !label.eq_ignore_ascii_case(suffix.label_before);
    is_longest.then_some((label, end + OWNER_LEN))
}

/// A suffix of the question's name that has labels.
struct Suffix<'a> {
    /// The label before it in the question, with its length octet; empty if there is none.
    label_before: &'a [u8],
    /// With the root label.
    wire_len: usize,
}

impl<'a> Suffix<'a> {
    /// The suffix that the pointer at `at` refers to; `None` for anything else.
    fn pointed_at(message: &'a [u8], question: &Question<'_>, at: usize) -> Option<Self> {
        let pointer = message.get(at..)?.first_chunk()?;
        let target = usize::from(u16::from_be_bytes(*pointer).checked_sub(0xc000)?);
        let root = question.range().end - TYPE_AND_CLASS_LEN - 1;
        let (mut label, mut before) = (HEADER_LEN, HEADER_LEN);
        while label < target.min(root) {
            before = label;
            label += 1 + usize::from(message[label]);
        }
        (label == target && target < root).then(|| Self {
            label_before: &message[before..label],
            wire_len: root + 1 - target,
        })
    }
}
