//! A copy has the same contents as its source, whatever the compression of its names.

use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{Flags, Section};
use dns64_wire::name::NameBuf;
use proptest::prelude::*;

use super::*;

fn name(text: &str) -> NameBuf {
    text.parse().expect("a name")
}

/// A record as text: section, owner, TTL, type and its data with names uncompressed.
fn meaning(bytes: &[u8]) -> Vec<String> {
    let message = Message::parse(bytes).expect("sound");
    let mut seen = Vec::new();
    for record in message.records() {
        let record = record.expect("sound");
        let data = match Layout::of(record.rtype) {
            None => format!("{:02x?}", record.rdata),
            Some(layout) => {
                let parts = layout
                    .split(&record, |at| Name::parse(bytes, at).ok())
                    .expect("of its layout");
                let names: Vec<_> = parts.names.iter().flatten().map(Name::to_string).collect();
                format!("{:02x?} {names:?} {:02x?}", parts.before, parts.after)
            }
        };
        let line = format!(
            "{:?} {} {} {} {data}",
            record.section, record.name, record.ttl, record.rtype
        );
        seen.push(line.to_ascii_lowercase());
    }
    seen
}

/// Copies all records with their TTLs, under the question in this case.
fn copied(source: &[u8], question: &NameBuf, limit: usize) -> Vec<u8> {
    let message = Message::parse(source).expect("sound");
    let mut bytes = vec![0; 65_535];
    let mut builder = Builder::new(&mut bytes, limit).expect("room");
    builder
        .question(question, Rtype::AAAA, Class::IN)
        .expect("room");
    let mut copier = Copier::new(&message, QUESTION_AT);
    for record in message.records() {
        let record = record.expect("sound");
        if copier.record(&mut builder, &record, record.ttl).is_err() {
            builder.truncate();
            break;
        }
    }
    let len = builder.finish();
    bytes.truncate(len);
    bytes
}

/// Header of a message with these counts, and the question `www.example AAAA`.
fn head(answer: u8, authority: u8, additional: u8) -> Vec<u8> {
    let mut bytes = vec![
        0, 1, 0x81, 0x80, 0, 1, 0, answer, 0, authority, 0, additional,
    ];
    bytes.extend_from_slice(b"\x03www\x07example\0\0\x1c\0\x01");
    bytes
}

fn push(bytes: &mut Vec<u8>, owner: &[u8], rtype: u8, data: &[u8]) {
    bytes.extend_from_slice(owner);
    bytes.extend_from_slice(&[0, rtype, 0, 1, 0, 0, 0, 60, 0]);
    bytes.push(u8::try_from(data.len()).expect("short data"));
    bytes.extend_from_slice(data);
}

#[test]
fn copied_names_keep_their_compression() {
    let mut source = head(2, 1, 0);
    // www.example CNAME a.net.example; that name A; example SOA ns.example, x.ns.example.
    push(&mut source, b"\xc0\x0c", 5, b"\x01a\x03net\xc0\x10");
    push(&mut source, b"\xc0\x29", 1, &[192, 0, 2, 1]);
    let soa = b"\x02ns\xc0\x10\x01x\xc0\x4daaaabbbbccccddddeeee";
    push(&mut source, b"\xc0\x10", 6, soa);
    let copy = copied(&source, &name("wWw.eXample"), 512);
    assert_eq!(meaning(&copy), meaning(&source));
    assert_eq!(copy.len(), source.len());
    assert_eq!(&copy[29..31], b"\xc0\x0c");
    assert_eq!(&copy[13..16], b"wWw");
}

#[test]
fn uncompressed_names_are_compressed_against_question_and_last_names() {
    let mut source = head(3, 1, 0);
    push(&mut source, b"\x03wwW\x07example\0", 5, b"\x01a\x03net\0");
    push(&mut source, b"\x01A\x03net\0", 1, &[192, 0, 2, 1]);
    push(&mut source, b"\x01a\x03Net\0", 1, &[192, 0, 2, 2]);
    push(&mut source, b"\x07example\0", 2, b"\x02ns\x07example\0");
    let copy = copied(&source, &name("www.example"), 512);
    assert_eq!(meaning(&copy), meaning(&source));
    let mut compressed = head(3, 1, 0);
    compressed[..12].fill(0);
    (compressed[5], compressed[7], compressed[9]) = (1, 3, 1);
    push(&mut compressed, b"\xc0\x0c", 5, b"\x01a\x03net\0");
    push(&mut compressed, b"\xc0\x29", 1, &[192, 0, 2, 1]);
    push(&mut compressed, b"\xc0\x29", 1, &[192, 0, 2, 2]);
    push(&mut compressed, b"\xc0\x10", 2, b"\x02ns\xc0\x10");
    assert_eq!(copy, compressed);
}

#[test]
fn partial_label_of_the_question_is_not_shared() {
    let mut source = head(1, 0, 0);
    push(&mut source, b"\x08aexample\0", 1, &[192, 0, 2, 1]);
    // The octets "7 e x a m p l e 0" within a label, not at its start.
    push(&mut source, b"\x0aab\x07example\0", 1, &[192, 0, 2, 2]);
    source[7] = 2;
    let copy = copied(&source, &name("www.example"), 512);
    assert_eq!(meaning(&copy), meaning(&source));
    assert_eq!(copy.len(), source.len());
}

#[test]
fn dname_and_srv_are_always_sent_uncompressed() {
    // RFC 6672 section 2.5, RFC 3597 section 4.
    let mut source = head(2, 0, 0);
    push(&mut source, b"\xc0\x10", 39, b"\x01d\xc0\x10");
    push(&mut source, b"\xc0\x0c", 33, b"\0\0\0\0\0\x50\x01s\xc0\x10");
    let copy = copied(&source, &name("www.example"), 512);
    assert_eq!(meaning(&copy), meaning(&source));
    let plain = |name: &[u8]| copy.windows(name.len()).any(|octets| octets == name);
    assert!(plain(b"\x01d\x07example\0"));
    assert!(plain(b"\x01s\x07example\0"));
}

#[test]
fn name_beyond_pointer_range_is_written_uncompressed() {
    let mut source = vec![0; 65_535];
    let mut builder = Builder::new(&mut source, 65_535).expect("room");
    let asked = name("www.example");
    builder
        .question(&asked, Rtype::AAAA, Class::IN)
        .expect("room");
    let far = name("far.away");
    for (owner, len) in [(&asked, 17_000), (&far, 10), (&far, 10)] {
        let owner = Owner::Name(owner);
        builder
            .record(
                Section::Answer,
                owner,
                Rtype::TXT,
                Class::IN,
                1,
                &vec![0; len],
            )
            .expect("room");
    }
    let len = builder.finish();
    let copy = copied(&source[..len], &asked, 65_535);
    assert_eq!(meaning(&copy), meaning(&source[..len]));
}

/// One of a few names in various cases. They share their suffixes.
fn some_name() -> impl Strategy<Value = NameBuf> {
    let label = prop::sample::select(vec!["a", "B", "www", "WWW", "example", "eXample", "net"]);
    prop::collection::vec(label, 0..5).prop_map(|labels| match labels.is_empty() {
        true => NameBuf::root(),
        false => name(&labels.join(".")),
    })
}

/// A section, an owner by name or by the index of an earlier one, a type, names for the data.
type Planned = (u8, Result<NameBuf, u16>, u16, NameBuf, Result<NameBuf, u16>);

fn planned() -> impl Strategy<Value = Planned> {
    let owner = || prop_oneof![some_name().prop_map(Ok), (0..100_u16).prop_map(Err)];
    let types = vec![
        1, 2, 5, 6, 12, 14, 15, 16, 17, 21, 24, 26, 30, 33, 35, 39, 46, 65,
    ];
    (
        0..3_u8,
        owner(),
        prop::sample::select(types),
        some_name(),
        owner(),
    )
}

fn build(question: &NameBuf, mut records: Vec<Planned>) -> Vec<u8> {
    records.sort_by_key(|planned| planned.0);
    let mut bytes = vec![0; 16_384];
    let mut builder = Builder::new(&mut bytes, 16_384).expect("room");
    builder.header(1, Flags(0x8180));
    builder
        .question(question, Rtype::AAAA, Class::IN)
        .expect("room");
    let mut standing = vec![12_u16];
    for (section, owner, rtype, first, second) in records {
        let choose = |choice: u16| standing[usize::from(choice) % standing.len()];
        let section =
            [Section::Answer, Section::Authority, Section::Additional][usize::from(section)];
        let pointer;
        let second = match &second {
            Ok(name) => name.as_wire(),
            Err(choice) => {
                pointer = (0xc000 | choose(*choice)).to_be_bytes();
                &pointer[..]
            }
        };
        let before: &[u8] = match rtype {
            1 => b"\xc0\0\x02\x01",
            15 | 21 | 26 => b"\0\x01",
            24 => b"123456789012345678",
            33 => b"123456",
            35 => b"\0\0\0\0\x01a\0\x02bc",
            _ => b"",
        };
        let after: &[u8] = if matches!(rtype, 6 | 24 | 30) {
            b"the rest"
        } else {
            b""
        };
        let names = match rtype {
            1 | 16 | 46 | 65 => Vec::new(),
            6 | 14 | 17 | 26 => [first.as_wire(), second].concat(),
            _ => second.to_vec(),
        };
        let record_at = builder.position();
        let (owner, owner_len) = match &owner {
            Ok(name) => (Owner::Name(name), name.as_wire().len()),
            Err(choice) => (Owner::At(choose(*choice)), 2),
        };
        let data_at = record_at + owner_len + FIXED_LEN + before.len();
        let data = [before, &names, after];
        builder
            .record_parts(section, owner, Rtype(rtype), Class::IN, 60, data)
            .expect("room");
        standing.push(u16::try_from(record_at).expect("near"));
        if !names.is_empty() {
            standing.push(u16::try_from(data_at).expect("near"));
        }
    }
    let len = builder.finish();
    bytes.truncate(len);
    bytes
}

proptest! {
    #[test]
    fn copy_has_contents_of_its_source(
        question in some_name(),
        records in prop::collection::vec(planned(), 0..20),
    ) {
        let source = build(&question, records);
        let upper = NameBuf::from_wire(&question.as_wire().to_ascii_uppercase()).expect("a name");
        let copy = copied(&source, &upper, 65_535);
        prop_assert_eq!(meaning(&copy), meaning(&source));
    }

    #[test]
    fn copy_does_not_exceed_its_limit(
        records in prop::collection::vec(planned(), 0..20),
        limit in 60..400_usize,
    ) {
        let source = build(&name("www.example"), records);
        let copy = copied(&source, &name("www.example"), limit);
        prop_assert!(copy.len() <= limit);
        let message = Message::parse(&copy).expect("sound");
        prop_assert_eq!(message.tc(), meaning(&copy).len() < meaning(&source).len());
    }
}
