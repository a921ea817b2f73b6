//! Judges the octets of a response against its query. It uses no link and no clock.

use std::net::Ipv6Addr;

use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{HEADER_LEN, Header, Message, Section};

use super::ledger::Fate;

/// Returns the outcome of a query with the question section `question` and the expected address `aaaa`, if `reply` is
/// its first response. `None` if the response answers another question, or none.
///
/// Stricter than RFC 8219 section 9.2, which requires "a AAAA record": the address must be exactly the one that the
/// name implies, and it must be the only one.
pub fn judge(reply: &[u8], question: &[u8], aaaa: Ipv6Addr, in_time: bool) -> Option<Fate> {
    let header = Header::parse(reply).ok().filter(Header::qr)?;
    let answers_at = HEADER_LEN + question.len();
    match reply.get(HEADER_LEN..answers_at) {
        Some(echoed) if header.qdcount() == 1 && echoed.eq_ignore_ascii_case(question) => {}
        // FORMERR may lack the question (RFC 1035 4.1.1 does not specify it); the ID and the port identify the query.
        None if header.qdcount() == 0 && header.rcode() != Rcode::NOERROR => {
            return Some(Fate::Error);
        }
        _ => return None,
    }
    if header.tc() {
        return Some(Fate::Truncated);
    }
    if header.rcode() != Rcode::NOERROR {
        return Some(Fate::Error);
    }
    let sole = (header.ancount() == 1).then(|| sole_aaaa(&reply[answers_at..]));
    let fate = match sole.flatten() {
        Some(found) if found == aaaa.octets() => Fate::Valid,
        Some(_) => Fate::Wrong,
        None => judge_records(reply, aaaa),
    };
    Some(match fate {
        Fate::Valid if !in_time => Fate::Late,
        fate => fate,
    })
}

/// Returns the address of a first record if it is an AAAA record with the question's name: the common response, read
/// without parsing all records.
fn sole_aaaa(record: &[u8]) -> Option<[u8; 16]> {
    const OWNER_TYPE_CLASS: [u8; 6] = [0xc0, 12, 0, 28, 0, 1];
    const RDLENGTH: [u8; 2] = [0, 16];
    let rest = record.strip_prefix(&OWNER_TYPE_CLASS)?;
    let rdata = rest.get(4..)?.strip_prefix(&RDLENGTH)?;
    rdata.first_chunk().copied()
}

fn judge_records(reply: &[u8], aaaa: Ipv6Addr) -> Fate {
    let Ok(message) = Message::parse(reply) else {
        return Fate::Error;
    };
    let mut fate = Fate::Empty;
    for record in message.records() {
        let Ok(record) = record else {
            return Fate::Error;
        };
        if record.section != Section::Answer {
            break;
        }
        if record.rtype != Rtype::AAAA || record.class != Class::IN {
            continue;
        }
        match record.aaaa() {
            Some(found) if found == aaaa && fate == Fate::Empty => fate = Fate::Valid,
            Some(found) if found == aaaa => {}
            _ => fate = Fate::Wrong,
        }
    }
    fate
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &[u8] = b"\x0f010-000-007-255\x09dns64perf\x04test\x00\x00\x1c\x00\x01";
    const RECORD: &[u8] = b"\xc0\x0c\x00\x1c\x00\x01\x00\x00\x0e\x10\x00\x10\
        \x00\x64\xff\x9b\x00\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x07\xff";

    fn reply(flags: [u8; 2], counts: [u8; 2], rest: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![
            0xab, 0xcd, flags[0], flags[1], 0, counts[0], 0, counts[1], 0, 0, 0, 0,
        ];
        bytes.extend(rest.concat());
        bytes
    }

    fn judged_as(bytes: &[u8], in_time: bool) -> Option<Fate> {
        judge(
            bytes,
            QUESTION,
            "64:ff9b::a00:7ff".parse().unwrap(),
            in_time,
        )
    }

    fn judged(bytes: &[u8]) -> Option<Fate> {
        judged_as(bytes, true)
    }

    #[test]
    fn expected_address_is_valid_with_pointer_or_full_owner() {
        assert_eq!(
            judged(&reply([0x81, 0x80], [1, 1], &[QUESTION, RECORD])),
            Some(Fate::Valid)
        );
        let full = [&QUESTION[..QUESTION.len() - 4], &RECORD[2..]].concat();
        assert_eq!(
            judged(&reply([0x81, 0x80], [1, 1], &[QUESTION, &full])),
            Some(Fate::Valid)
        );
        let twice = reply([0x81, 0x80], [1, 2], &[QUESTION, RECORD, RECORD]);
        assert_eq!(judged(&twice), Some(Fate::Valid));
    }

    #[test]
    fn case_of_the_question_is_ignored() {
        let upper = QUESTION.to_ascii_uppercase();
        assert_eq!(
            judged(&reply([0x81, 0x80], [1, 1], &[&upper, RECORD])),
            Some(Fate::Valid)
        );
    }

    #[test]
    fn other_address_is_wrong_even_beside_the_expected_one() {
        let mut other = RECORD.to_vec();
        other[27] ^= 1;
        assert_eq!(
            judged(&reply([0x81, 0x80], [1, 1], &[QUESTION, &other])),
            Some(Fate::Wrong)
        );
        let both = reply([0x81, 0x80], [1, 2], &[QUESTION, RECORD, &other]);
        assert_eq!(judged(&both), Some(Fate::Wrong));
        let both = reply([0x81, 0x80], [1, 2], &[QUESTION, &other, RECORD]);
        assert_eq!(judged(&both), Some(Fate::Wrong));
    }

    #[test]
    fn response_without_aaaa_is_empty() {
        assert_eq!(
            judged(&reply([0x81, 0x80], [1, 0], &[QUESTION])),
            Some(Fate::Empty)
        );
        let a = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x0e\x10\x00\x04\x0a\x00\x07\xff";
        assert_eq!(
            judged(&reply([0x81, 0x80], [1, 1], &[QUESTION, a])),
            Some(Fate::Empty)
        );
    }

    #[test]
    fn rcodes_and_garbage_are_errors_and_tc_is_truncated() {
        assert_eq!(
            judged(&reply([0x81, 0x82], [1, 0], &[QUESTION])),
            Some(Fate::Error)
        );
        assert_eq!(judged(&reply([0x81, 0x81], [0, 0], &[])), Some(Fate::Error));
        assert_eq!(
            judged(&reply([0x83, 0x80], [1, 0], &[QUESTION])),
            Some(Fate::Truncated)
        );
        let cut = reply([0x81, 0x80], [1, 1], &[QUESTION, &RECORD[..20]]);
        assert_eq!(judged(&cut), Some(Fate::Error));
    }

    #[test]
    fn response_to_another_question_is_stray() {
        assert_eq!(judged(b"garbage"), None);
        assert_eq!(judged(&reply([0x01, 0x00], [1, 0], &[QUESTION])), None);
        let mut other = QUESTION.to_vec();
        other[1] = b'9';
        assert_eq!(
            judged(&reply([0x81, 0x80], [1, 1], &[&other, RECORD])),
            None
        );
        assert_eq!(judged(&reply([0x81, 0x80], [0, 0], &[])), None);
    }

    #[test]
    fn only_valid_responses_can_be_late() {
        let valid = reply([0x81, 0x80], [1, 1], &[QUESTION, RECORD]);
        assert_eq!(judged_as(&valid, true), Some(Fate::Valid));
        assert_eq!(judged_as(&valid, false), Some(Fate::Late));
        let error = reply([0x81, 0x82], [1, 0], &[QUESTION]);
        assert_eq!(judged_as(&error, false), Some(Fate::Error));
        assert_eq!(judged_as(b"garbage", false), None);
    }
}
