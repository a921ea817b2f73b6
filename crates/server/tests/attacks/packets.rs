//! Builds valid and malformed messages.

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Flags, Message, Section};
use dns64_wire::name::NameBuf;
use rand::RngExt as _;
use rand::rngs::StdRng;

/// Longest DNS message.
pub(crate) const MESSAGE_MAX: usize = 65_535;

/// The name with this number. The honest upstream has an address for it.
pub(crate) fn name(number: u32) -> NameBuf {
    format!("n{number}.example").parse().unwrap()
}

/// The address of a name at the honest upstream: a global one.
pub(crate) fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0800_0000 | number)
}

/// The synthesised address of a name, under the Well-Known Prefix.
pub(crate) fn synthesised(number: u32) -> Ipv6Addr {
    let [a, b, c, d] = address(number).octets();
    let pair = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, pair(a, b), pair(c, d))
}

/// A query without EDNS.
pub(crate) fn query(id: u16, name: &NameBuf, rtype: Rtype) -> Vec<u8> {
    build(|builder| {
        builder.header(id, Flags::default().with_rd(true));
        builder.question(name, rtype, Class::IN).unwrap();
    })
}

/// A query with EDNS and these options.
pub(crate) fn query_edns(id: u16, name: &NameBuf, udp_size: u16, options: &[u8]) -> Vec<u8> {
    let mut message = query(id, name, Rtype::AAAA);
    message[11] = 1;
    message.extend([0, 0, 41]);
    message.extend(udp_size.to_be_bytes());
    message.extend([0; 4]);
    message.extend(u16::try_from(options.len()).unwrap().to_be_bytes());
    message.extend_from_slice(options);
    message
}

/// A record of a response.
pub(crate) struct Record {
    section: Section,
    owner: NameBuf,
    rtype: Rtype,
    data: Vec<u8>,
}

impl Record {
    pub(crate) fn a(section: Section, owner: &NameBuf, address: Ipv4Addr) -> Self {
        Self {
            section,
            owner: owner.clone(),
            rtype: Rtype::A,
            data: address.octets().to_vec(),
        }
    }

    pub(crate) fn alias(owner: &NameBuf, target: &NameBuf) -> Self {
        Self {
            section: Section::Answer,
            owner: owner.clone(),
            rtype: Rtype::CNAME,
            data: target.as_wire().to_vec(),
        }
    }

    /// An SOA record for a negative response with a TTL of ten minutes.
    pub(crate) fn soa() -> Self {
        let minimum = 600_u32.to_be_bytes();
        Self {
            section: Section::Authority,
            owner: "example".parse().unwrap(),
            rtype: Rtype::SOA,
            data: [&[0; 18][..], &minimum].concat(),
        }
    }
}

/// A response to a query with as many of the records as fit.
pub(crate) fn response(query: &[u8], rcode: Rcode, records: &[Record]) -> Vec<u8> {
    let query = Message::parse(query).unwrap();
    let question = query.question().unwrap();
    build(|builder| {
        let flags = Flags::default().with_qr(true).with_rd(true).with_ra(true);
        builder.header(query.id(), flags.with_rcode(rcode));
        builder.question_raw(&question).unwrap();
        for record in records {
            let owner = match record.owner.as_name().eq_ignore_case(&question.name) {
                true => Owner::Question,
                false => Owner::Name(&record.owner),
            };
            let (rtype, data) = (record.rtype, record.data.as_slice());
            let section = record.section;
            if builder
                .record(section, owner, rtype, Class::IN, 300, data)
                .is_err()
            {
                break;
            }
        }
    })
}

/// The response of an honest upstream: names with a number have an address and no other record.
pub(crate) fn honest(query: &[u8]) -> Vec<u8> {
    let (asked, rtype) = asked(query);
    match (number(&asked), rtype) {
        (None, _) => response(query, Rcode::NXDOMAIN, &[Record::soa()]),
        (Some(number), Rtype::A) => {
            let record = Record::a(Section::Answer, &asked, address(number));
            response(query, Rcode::NOERROR, &[record])
        }
        _ => response(query, Rcode::NOERROR, &[Record::soa()]),
    }
}

/// Name and type of a query.
pub(crate) fn asked(query: &[u8]) -> (NameBuf, Rtype) {
    let question = Message::parse(query).unwrap().question().unwrap();
    (question.name.to_buf(), question.rtype)
}

/// The number of a name of [`name`].
pub(crate) fn number(name: &NameBuf) -> Option<u32> {
    let name = name.as_name().to_string().to_ascii_lowercase();
    let label = name.strip_prefix('n')?.split('.').next()?;
    label.parse().ok().filter(|number| *number < 1 << 24)
}

/// A truncated response over UDP.
pub(crate) fn truncated(query: &[u8]) -> Vec<u8> {
    let mut message = response(query, Rcode::NOERROR, &[]);
    message[2] |= 2;
    message
}

pub(crate) fn rcode(message: &[u8]) -> Rcode {
    Message::parse(message).unwrap().rcode()
}

/// The IPv6 addresses in a message. All its records must be well-formed.
pub(crate) fn addresses(message: &[u8]) -> Vec<Ipv6Addr> {
    let message = Message::parse(message).unwrap();
    let records = message.records().map(Result::unwrap);
    records.filter_map(|record| record.aaaa()).collect()
}

/// A message with one to four random faults.
pub(crate) fn mutant(message: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut message = message.to_vec();
    for _ in 0..random.random_range(1..=4) {
        let at = random.random_range(0..message.len().max(1));
        let octet: u8 = random.random();
        match random.random_range(0..7) {
            _ if message.is_empty() => message.push(octet),
            0 => message.truncate(at),
            1 => message.insert(at, octet),
            2 => message.extend(std::iter::repeat_n(octet, at)),
            3 => message[at] = 0xc0,
            // Faults are most likely in counts, flags and opcode.
            4 => message[at % 12.min(at + 1)] = octet,
            5 => {
                let (_, tail) = message.split_at(at);
                let tail = tail.to_vec();
                message.extend(tail);
            }
            _ => message[at] = octet,
        }
    }
    message.truncate(1400);
    message
}

fn build(fill: impl FnOnce(&mut Builder<'_>)) -> Vec<u8> {
    let mut message = vec![0; MESSAGE_MAX];
    let mut builder = Builder::new(&mut message, MESSAGE_MAX).unwrap();
    fill(&mut builder);
    let len = builder.finish();
    message.truncate(len);
    message
}
