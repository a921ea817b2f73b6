//! Judges the octets of a response against its query. It uses no link and no clock.

use std::net::IpAddr;

use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{HEADER_LEN, Header, Message, Options, Record, Section};
use dns64_wire::name::Name;

use super::ledger::Fate;
use super::names::Wanted;
use crate::namespace::{LABEL_BYTES, set_target};

/// What a response is for its query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The outcome of the query.
    pub fate: Fate,
    /// Number of records of the type in the response that are not correct.
    pub others: u32,
    /// Whether a correct HTTPS record has a synthesised `ipv6hint`.
    pub hinted: bool,
}

impl From<Fate> for Verdict {
    fn from(fate: Fate) -> Self {
        Self {
            fate,
            others: 0,
            hinted: false,
        }
    }
}

/// Returns the outcome of a query with the question section `question` if `reply` is its first response; `place` tells which address
/// of the name an address is, if it is correct, and `wanted` the records that it must have. `None` if the response answers another
/// question, or none.
///
/// Stricter than RFC 8219 section 9.2, which requires "a AAAA record": each of the addresses must be exactly one that the
/// name implies, after the CNAME records of the name in their order. The address of an HTTPS record is one of its hints.
pub fn judge(
    reply: &[u8],
    question: &[u8],
    place: impl Fn(IpAddr) -> Option<u32>,
    wanted: Wanted,
    in_time: bool,
) -> Option<Verdict> {
    let header = Header::parse(reply).ok().filter(Header::qr)?;
    let answers_at = HEADER_LEN + question.len();
    match reply.get(HEADER_LEN..answers_at) {
        Some(echoed) if header.qdcount() == 1 && echoed.eq_ignore_ascii_case(question) => {}
        // FORMERR may lack the question (RFC 1035 4.1.1 does not specify it); the ID and the port identify the query.
        None if header.qdcount() == 0 && header.rcode() != Rcode::NOERROR => {
            return Some(Fate::Error.into());
        }
        _ => return None,
    }
    if header.tc() {
        return Some(Fate::Truncated.into());
    }
    if header.rcode() != Rcode::NOERROR {
        return Some(Fate::Error.into());
    }
    let is_common = header.ancount() == 1 && wanted == Wanted::ADDRESS;
    let sole = is_common.then(|| sole_aaaa(&reply[answers_at..]));
    let mut verdict = match sole.flatten() {
        Some(found) if place(found.into()).is_some() => Fate::Valid.into(),
        _ => judge_records(reply, question, place, wanted),
    };
    if verdict.fate == Fate::Valid && !in_time {
        verdict.fate = Fate::Late;
    }
    Some(verdict)
}

/// Returns the first address of the queried type in a response for which `accept` is false.
#[cold]
pub fn first_other(reply: &[u8], accept: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let message = Message::parse(reply).ok()?;
    let rtype = message.question()?.rtype;
    let records = message.records().map_while(Result::ok);
    let of_type = records.filter(|record| record.rtype == rtype);
    let mut found = of_type.flat_map(|record| addresses(rtype, record.rdata));
    found.find(|address| !accept(*address))
}

/// Returns the type of a question, which precedes its class at the end.
fn type_of(question: &[u8]) -> Rtype {
    let end = question.last_chunk::<4>();
    Rtype(end.map_or(0, |[high, low, ..]| u16::from_be_bytes([*high, *low])))
}

/// Returns the addresses in the data of a record: that of A and AAAA, or the hints of HTTPS (RFC 9460 section 7.3).
fn addresses(rtype: Rtype, rdata: &[u8]) -> impl Iterator<Item = IpAddr> {
    let (own, parameters) = match rtype {
        Rtype::HTTPS => (None, parameters(rdata).unwrap_or_default()),
        _ => (address(rdata), &[][..]),
    };
    // They have the form of EDNS options.
    let hints = Options::new(parameters).flat_map(|parameter| {
        let width = match parameter.code {
            IPV4HINT => 4,
            IPV6HINT => 16,
            _ => usize::MAX,
        };
        parameter.value.chunks_exact(width).filter_map(address)
    });
    own.into_iter().chain(hints)
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let ipv4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let ipv6 = || <[u8; 16]>::try_from(octets).map(IpAddr::from);
    ipv4.or_else(|_| ipv6()).ok()
}

/// Returns the part of the data of an HTTPS record after its priority and its target (RFC 9460 section 2.2).
fn parameters(rdata: &[u8]) -> Option<&[u8]> {
    let mut rest = rdata.get(2..)?;
    while let (length @ 1.., after) = rest.split_first()? {
        rest = after.get(usize::from(*length)..)?;
    }
    rest.get(1..)
}

/// Parameters of HTTPS records (RFC 9460 section 14.3.2).
const IPV4HINT: u16 = 4;
const IPV6HINT: u16 = 6;

/// Returns the address of a first record if it is an AAAA record with the question's name: the common response, read
/// without parsing all records.
fn sole_aaaa(record: &[u8]) -> Option<[u8; 16]> {
    const OWNER_TYPE_CLASS: [u8; 6] = [0xc0, 12, 0, 28, 0, 1];
    const RDLENGTH: [u8; 2] = [0, 16];
    let rest = record.strip_prefix(&OWNER_TYPE_CLASS)?;
    let rdata = rest.get(4..)?.strip_prefix(&RDLENGTH)?;
    rdata.first_chunk().copied()
}

/// Returns whether the RCODE of a response is REFUSED.
#[cold]
pub fn is_refused(reply: &[u8]) -> bool {
    Header::parse(reply).is_ok_and(|header| header.rcode() == Rcode::REFUSED)
}

fn judge_records(
    reply: &[u8],
    question: &[u8],
    place: impl Fn(IpAddr) -> Option<u32>,
    wanted: Wanted,
) -> Verdict {
    let rtype = type_of(question);
    let Ok(message) = Message::parse(reply) else {
        return Fate::Error.into();
    };
    let mut chain = Chain {
        question,
        followed: 0,
        len: wanted.aliases,
    };
    // A bit for each address of the name.
    let (mut correct, mut others, mut hinted) = (0_u32, 0, false);
    let mut is_empty = true;
    for record in message.records() {
        let Ok(record) = record else {
            return Fate::Error.into();
        };
        if record.section != Section::Answer {
            break;
        }
        if record.class != Class::IN {
            continue;
        }
        chain.follow(&record);
        if record.rtype != rtype {
            continue;
        }
        is_empty = false;
        let is_at_end = chain.ends_at(&record.name);
        let mut is_correct = false;
        for (found, bit) in addresses(rtype, record.rdata).filter_map(|it| Some((it, place(it)?))) {
            is_correct = true;
            correct |= u32::from(is_at_end) << bit;
            hinted |= rtype == Rtype::HTTPS && found.is_ipv6();
        }
        others += u32::from(!is_correct);
    }
    let fate = if is_empty {
        Fate::Empty
    } else if correct.count_ones() >= wanted.addresses {
        Fate::Valid
    } else {
        Fate::Wrong
    };
    Verdict {
        fate,
        others,
        hinted,
    }
}

/// Offset of the suffix in a question.
const SUFFIX_AT: usize = 1 + LABEL_BYTES;

/// The CNAME records of a name, as far as an answer has them in their order.
struct Chain<'q> {
    question: &'q [u8],
    followed: u8,
    len: u8,
}

impl Chain<'_> {
    /// Takes a record of the answer.
    fn follow(&mut self, record: &Record<'_>) {
        if record.rtype != Rtype::CNAME || self.followed == self.len {
            return;
        }
        let target = record.rdata_name().ok();
        let is_next = target.is_some_and(|target| self.is(self.followed + 1, &target));
        self.followed += u8::from(is_next && self.is(self.followed, &record.name));
    }

    /// Returns whether addresses with this owner are those of the name. The owner in an answer without CNAME records is not compared.
    fn ends_at(&self, owner: &Name<'_>) -> bool {
        self.followed == self.len && (self.len == 0 || self.is(self.len, owner))
    }

    /// Returns whether a name is the target with this number of the queried name; number 0 is the name itself.
    fn is(&self, number: u8, name: &Name<'_>) -> bool {
        let queried = self.question.get(1..).and_then(<[u8]>::first_chunk);
        let suffix = Name::parse(self.question, SUFFIX_AT);
        let (Some(mut label), Ok((suffix, _))) = (queried.copied(), suffix) else {
            return false;
        };
        set_target(&mut label, number);
        let first = name.labels().next();
        name.wire_len() == SUFFIX_AT + suffix.wire_len()
            && first.is_some_and(|first| first.eq_ignore_ascii_case(&label))
            && name.is_within(&suffix)
    }
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

    fn accept(found: IpAddr) -> bool {
        place(found).is_some()
    }

    fn place(found: IpAddr) -> Option<u32> {
        let correct = ["64:ff9b::a00:7ff", "64:ff9b::b00:7ff"];
        let correct = correct.map(|it| it.parse::<IpAddr>().unwrap());
        (0..)
            .zip(correct)
            .find(|(_, it)| *it == found)
            .map(|(place, _)| place)
    }

    fn judged_as(bytes: &[u8], in_time: bool) -> Option<Fate> {
        judge(bytes, QUESTION, place, Wanted::ADDRESS, in_time).map(|verdict| verdict.fate)
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
    fn other_addresses_are_counted_and_are_wrong_without_a_correct_one() {
        let mut other = RECORD.to_vec();
        other[27] ^= 1;
        let address = Some("64:ff9b::a00:7fe".parse().unwrap());
        for (records, fate, others) in [
            (&[&other[..]][..], Fate::Wrong, 1),
            (&[&other, &other], Fate::Wrong, 2),
            (&[RECORD, &other], Fate::Valid, 1),
            (&[&other, RECORD, &other], Fate::Valid, 2),
        ] {
            let count = u8::try_from(records.len()).unwrap();
            let records = records.concat();
            let reply = reply([0x81, 0x80], [1, count], &[QUESTION, &records]);
            let verdict = judge(&reply, QUESTION, place, Wanted::ADDRESS, true);
            let found = verdict.map(|it| (it.fate, it.others));
            assert_eq!(found, Some((fate, others)));
            assert_eq!(first_other(&reply, accept), address);
        }
    }

    /// Returns the fate of an answer with these records, of a name with these.
    fn fate(wanted: Wanted, records: &[&[u8]]) -> Option<Fate> {
        let count = u8::try_from(records.len()).unwrap();
        let reply = reply([0x81, 0x80], [1, count], &[QUESTION, &records.concat()]);
        judge(&reply, QUESTION, place, wanted, true).map(|it| it.fate)
    }

    #[test]
    fn each_address_of_the_name_must_be_in_the_response() {
        let mut second = RECORD.to_vec();
        second[24] = 11;
        let two = Wanted {
            addresses: 2,
            aliases: 0,
        };
        for (records, expected) in [
            (&[RECORD, &second][..], Fate::Valid),
            (&[&second, RECORD], Fate::Valid),
            (&[RECORD], Fate::Wrong),
            (&[&second], Fate::Wrong),
            (&[RECORD, RECORD], Fate::Wrong),
            (&[], Fate::Empty),
        ] {
            assert_eq!(fate(two, records), Some(expected));
        }
        assert_eq!(fate(Wanted::ADDRESS, &[&second]), Some(Fate::Valid));
    }

    #[test]
    fn chain_must_be_complete_and_in_order_with_the_address_at_its_end() {
        let name = |number| {
            let mut label = *b"010-000-007-255";
            set_target(&mut label, number);
            [&[15], &label[..], b"\x09dns64perf\x04test\0"].concat()
        };
        let cname = |from: u8, to: u8| {
            let fixed = [0, 5, 0, 1, 0, 0, 14, 16, 0, 32];
            [&name(from)[..], &fixed, &name(to)].concat()
        };
        let aaaa = |owner: u8| [&name(owner)[..], &RECORD[2..]].concat();
        let (first, second) = (cname(0, 1), cname(1, 2));
        let (alias, at_end) = (
            |aliases| Wanted {
                aliases,
                ..Wanted::ADDRESS
            },
            aaaa(2),
        );
        let upper = second.to_ascii_uppercase();
        for (records, expected) in [
            (&[&first, &second, &at_end][..], Fate::Valid),
            (&[&first, &upper, &at_end], Fate::Valid),
            (&[&first, &second], Fate::Empty),
            (&[&second, &first, &at_end], Fate::Wrong),
            (&[&at_end, &first, &second], Fate::Wrong),
            (&[&first, &at_end], Fate::Wrong),
            (&[&first, &second, &aaaa(1)], Fate::Wrong),
            (&[&cname(0, 2), &at_end], Fate::Wrong),
            (&[&aaaa(0)], Fate::Wrong),
        ] {
            let records: Vec<_> = records.iter().map(|it| &it[..]).collect();
            assert_eq!(fate(alias(2), &records), Some(expected));
        }
        assert_eq!(fate(alias(1), &[&first, &aaaa(1)]), Some(Fate::Valid));
        assert_eq!(fate(alias(1), &[RECORD]), Some(Fate::Wrong));
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

    #[test]
    fn https_record_is_judged_by_its_hints_and_an_a_record_by_its_address() {
        let question = |rtype: u8| {
            let mut question = QUESTION.to_vec();
            let at = question.len() - 3;
            question[at] = rtype;
            question
        };
        let record = |rtype: u8, rdata: &[u8]| {
            let fixed = [0xc0, 12, 0, rtype, 0, 1, 0, 0, 14, 16, 0];
            let length = [u8::try_from(rdata.len()).unwrap()];
            [&fixed[..], &length, rdata].concat()
        };
        let place = |found: IpAddr| {
            let correct: [IpAddr; 2] =
                [[10, 0, 7, 255].into(), "64:ff9b::a00:7ff".parse().unwrap()];
            correct.contains(&found).then_some(0)
        };
        let judged = |rtype: u8, rdata: &[u8]| {
            let question = question(rtype);
            let reply = reply([0x81, 0x80], [1, 1], &[&question, &record(rtype, rdata)]);
            let verdict = judge(&reply, &question, place, Wanted::ADDRESS, true);
            verdict.map(|it| (it.fate, it.others, it.hinted))
        };
        let valid = |hinted| Some((Fate::Valid, 0, hinted));
        let wrong = Some((Fate::Wrong, 1, false));
        assert_eq!(judged(1, &[10, 0, 7, 255]), valid(false));
        assert_eq!(judged(1, &[10, 0, 7, 254]), wrong);
        // Priority, target, alpn, hints.
        let alpn = b"\0\x01\x01a\0\0\x01\0\x03\x02h3";
        let ipv4 = b"\0\x04\0\x08\x0a\0\x07\xfe\x0a\0\x07\xff";
        let ipv6 = b"\0\x06\0\x10\0\x64\xff\x9b\0\0\0\0\0\0\0\0\x0a\0\x07\xff";
        assert_eq!(judged(65, &[&alpn[..], ipv4].concat()), valid(false));
        assert_eq!(judged(65, &[&alpn[..], ipv4, ipv6].concat()), valid(true));
        assert_eq!(judged(65, &[&alpn[..], ipv6].concat()), valid(true));
        assert_eq!(judged(65, alpn), wrong);
        assert_eq!(judged(65, &ipv4[..3]), wrong);
    }
}
