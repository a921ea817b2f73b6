//! What the authoritative servers say: everything follows from the number of a name, `n1234.example`.

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::codes::{Rcode, Rtype};

/// Names from here on: no upstream has an answer.
pub(crate) const DEAD: u32 = 1 << 30;

/// TTL and MINIMUM of the SOA record in seconds.
pub(crate) const NEGATIVE_S: u32 = 30;

/// Data of forged and stray records.
pub(crate) const POISON: [u8; 4] = [6, 6, 6, 6];

/// A pointer to the name of the question.
const OWNER: [u8; 2] = [0xc0, 12];

/// TTL of the records of a name in seconds.
pub(crate) fn ttl_s(name: u32) -> u32 {
    5 + name.wrapping_mul(0x9e37_79b1) % 600
}

pub(crate) fn a(name: u32) -> Option<Ipv4Addr> {
    let [_, b, c, d] = name.to_be_bytes();
    matches!(name % 16, 0..=10).then(|| Ipv4Addr::new(8, b, c, d))
}

pub(crate) fn native(name: u32) -> Option<Ipv6Addr> {
    let has_one = matches!(name % 16, 8..=11);
    has_one.then(|| Ipv6Addr::from_bits(0x2a00_0001_u128 << 96 | u128::from(name)))
}

pub(crate) fn is_missing(name: u32) -> bool {
    name % 16 >= 14
}

/// The address of the A record below the prefix.
pub(crate) fn synthesised(name: u32) -> Option<Ipv6Addr> {
    let prefix = 0x2001_0db8_0064_u128 << 80;
    a(name).map(|a| Ipv6Addr::from_bits(prefix | u128::from(a.to_bits())))
}

/// The RDATA of the one record of a type that a name has.
pub(crate) fn data(name: u32, rtype: Rtype) -> Option<Vec<u8>> {
    match rtype {
        Rtype::A => a(name).map(|a| a.octets().to_vec()),
        Rtype::AAAA => native(name).map(|aaaa| aaaa.octets().to_vec()),
        _ => None,
    }
}

/// A query for a name.
pub(crate) fn query(id: u16, name: u32, rtype: Rtype, edns: bool) -> Vec<u8> {
    let label = format!("n{name}");
    let mut query = id.to_be_bytes().to_vec();
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns)]);
    query.push(u8::try_from(label.len()).unwrap());
    query.extend(label.as_bytes());
    query.extend(b"\x07example\0");
    query.extend(rtype.0.to_be_bytes());
    query.extend([0, 1]);
    if edns {
        query.extend([0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
    }
    query
}

/// End of the question of a message.
pub(crate) fn question_end(message: &[u8]) -> usize {
    let mut at = 12;
    while message[at] != 0 {
        at += 1 + usize::from(message[at]);
    }
    at + 5
}

/// The number of the name in a question, and its type.
pub(crate) fn asked(message: &[u8]) -> (u32, Rtype) {
    let label = &message[14..13 + usize::from(message[12])];
    let number = label
        .iter()
        .fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
    let end = question_end(message);
    let rtype = u16::from_be_bytes([message[end - 4], message[end - 3]]);
    (number, Rtype(rtype))
}

fn record(message: &mut Vec<u8>, owner: [u8; 2], rtype: Rtype, ttl_s: u32, data: &[u8]) {
    message.extend(owner);
    message.extend(rtype.0.to_be_bytes());
    message.extend([0, 1]);
    message.extend(ttl_s.to_be_bytes());
    message.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    message.extend(data);
}

/// A response to a question of dns64d with this code and no records.
pub(crate) fn bare(question: &[u8], rcode: Rcode, truncated: bool) -> Vec<u8> {
    let mut reply = question[..question_end(question)].to_vec();
    reply[2] = 0x81 | u8::from(truncated) << 1;
    reply[3] = 0x80 | rcode.0;
    reply[6..12].fill(0);
    reply
}

/// The true response of an upstream. With `stray`, it has a record of another name that nobody asked for.
pub(crate) fn answer(question: &[u8], stray: bool) -> Vec<u8> {
    let (name, rtype) = asked(question);
    let rcode = match is_missing(name) {
        true => Rcode::NXDOMAIN,
        false => Rcode::NOERROR,
    };
    let mut reply = bare(question, rcode, false);
    match data(name, rtype) {
        Some(data) => {
            reply[7] = 1;
            record(&mut reply, OWNER, rtype, ttl_s(name), &data);
        }
        None => {
            reply[9] = 1;
            // MNAME and RNAME are the root; SERIAL, REFRESH, RETRY and EXPIRE are 0.
            let mut soa = [0; 22];
            soa[18..].copy_from_slice(&NEGATIVE_S.to_be_bytes());
            let zone = [0xc0, 13 + question[12]];
            record(&mut reply, zone, Rtype::SOA, NEGATIVE_S, &soa);
        }
    }
    if stray {
        reply[11] = 1;
        reply.extend(b"\x02n3");
        // "n3.example" is a popular name.
        let zone = [0xc0, 13 + question[12]];
        record(&mut reply, zone, Rtype::A, 86_400, &POISON);
    }
    reply
}

/// A response with false data, as somebody would forge it.
pub(crate) fn forged(question: &[u8]) -> Vec<u8> {
    let mut reply = bare(question, Rcode::NOERROR, false);
    let (_, rtype) = asked(question);
    let data: &[u8] = match rtype {
        Rtype::AAAA => &[6; 16],
        _ => &POISON,
    };
    reply[7] = 1;
    record(&mut reply, OWNER, rtype, 86_400, data);
    reply
}
