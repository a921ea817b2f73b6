//! The questions of clients, and the data of upstreams.

use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Flags, Message, Section};
use dns64_wire::name::NameBuf;

/// A question; its first label selects the data of upstreams.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) name: &'static str,
    pub(super) rtype: u16,
}

impl Question {
    pub(super) fn wire(&self) -> Vec<u8> {
        let name: NameBuf = self.name.parse().unwrap();
        name.as_wire().to_vec()
    }

    /// Whether the program can hold the response.
    pub(super) fn is_kept_in_driver(&self) -> bool {
        !["huge", "many", "much", "wide"]
            .iter()
            .any(|first| self.name.starts_with(first))
            && self.wire().len() > 3
    }
}

const fn question(name: &'static str, rtype: u16) -> Question {
    Question { name, rtype }
}

pub(super) const QUESTIONS: [Question; 20] = [
    question("v4.example", 28),
    question("v4.example", 1),
    question("v4.some.longer.name.example", 28),
    question("v4three.example", 28),
    question("v4three.odd.example", 28),
    question("v6.example", 28),
    question("alias.example", 28),
    question("alias.example", 1),
    question("none.example", 1),
    question("none.odd.example", 28),
    question("signed.example", 28),
    question("mx.example", 15),
    question("v4.example", 65),
    question(
        "8.0.8.0.8.0.8.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.f.f.4.6.0.0.ip6.arpa",
        12,
    ),
    question(
        "longxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy.example",
        16,
    ),
    // Beyond the program's limits: a long record, many records, a long name, a short one.
    question("huge.example", 16),
    question("many.example", 1),
    question("much.example", 28),
    question(
        "wide.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy.example",
        1,
    ),
    question("q", 2),
];

/// The response of upstreams to a query.
pub(super) fn upstream(query: &[u8]) -> Vec<u8> {
    let query = Message::parse(query).unwrap();
    let asked = query.question().unwrap();
    let name = asked.name.to_string().to_ascii_lowercase();
    let first = name.split('.').next().unwrap();
    let mut octets = vec![0; 4096];
    let mut builder = Builder::new(&mut octets, 4096).unwrap();
    let rcode = if first == "none" {
        Rcode::NXDOMAIN
    } else {
        Rcode::NOERROR
    };
    let flags = Flags::default().with_qr(true).with_rd(true).with_ra(true);
    let flags = flags
        .with_rcode(rcode)
        .with_ad(first == "signed")
        .with_cd(query.cd());
    builder.header(query.id(), flags);
    builder.question_raw(&asked).unwrap();
    let mut add = |section, owner: Owner<'_>, rtype, data: &[u8]| {
        builder
            .record(section, owner, rtype, Class::IN, 300, data)
            .unwrap();
    };
    let mut answer = |rtype, data: &[u8]| add(Section::Answer, Owner::Question, rtype, data);
    let target: NameBuf = "v4.example".parse().unwrap();
    match (first, asked.rtype) {
        ("alias", Rtype::A) => {
            answer(Rtype::CNAME, target.as_wire());
            add(
                Section::Answer,
                Owner::Name(&target),
                Rtype::A,
                &[8, 8, 8, 8],
            );
        }
        ("alias", _) => answer(Rtype::CNAME, target.as_wire()),
        ("v4" | "wide", Rtype::A) => answer(Rtype::A, &[8, 8, 4, 4]),
        ("v4three", Rtype::A) => (1..=3).for_each(|n| answer(Rtype::A, &[8, 8, 8, n])),
        ("many", Rtype::A) => (1..=17).for_each(|n| answer(Rtype::A, &[8, 8, 8, n])),
        ("much", Rtype::A) => (1..=16).for_each(|n| answer(Rtype::A, &[8, 8, 8, n])),
        ("v6" | "signed", Rtype::AAAA) => answer(Rtype::AAAA, &[0x20; 16]),
        ("mx", _) => answer(Rtype(15), &[&[0, 10][..], target.as_wire()].concat()),
        ("huge", _) => answer(Rtype(16), &text(500)),
        (long, Rtype(16)) if long.starts_with("long") => answer(Rtype(16), &text(419)),
        (_, Rtype::HTTPS) => answer(Rtype::HTTPS, &[0, 1, 0]),
        ("8", Rtype::PTR) => answer(Rtype::PTR, target.as_wire()),
        ("q", _) => answer(Rtype(2), target.as_wire()),
        _ => {
            let soa: NameBuf = "example".parse().unwrap();
            let data = [&[0; 18][..], &600_u32.to_be_bytes()].concat();
            add(Section::Authority, Owner::Name(&soa), Rtype::SOA, &data);
        }
    }
    let len = builder.finish();
    octets.truncate(len);
    octets
}

/// Data of a TXT record of this length in octets, 258 to 510.
fn text(len: u16) -> Vec<u8> {
    let rest = u8::try_from(len - 257).unwrap();
    let parts = [
        vec![255],
        vec![b'x'; 255],
        vec![rest],
        vec![b'y'; rest.into()],
    ];
    parts.concat()
}
