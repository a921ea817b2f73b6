//! The cost of a message is bounded by its octets, and that of a response by the octets sent,
//! whatever the message holds.

use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{Flags, Message, Section};
use dns64_wire::name::NameBuf;
use proptest::prelude::*;

use super::asker::Asker;
use super::stored::{Aged, Stored};
use super::synthesis::{self, Verdict};
use super::texts::{self, BOUNDS, dns64, with_do};
use super::{reply, reverse, work};
use crate::settings::dns64::Dns64;

/// Steps for each octet of a response of an upstream, and for each that is sent to a client.
const STEPS_PER_OCTET: u64 = 3;

/// Types with names, and some without.
const TYPES: [u16; 13] = [1, 2, 5, 6, 12, 15, 28, 33, 39, 46, 47, 64, 65];

/// A name in a record.
#[derive(Clone, Debug)]
enum Name {
    /// One that stands in the message already, by its index.
    Known(u16),
    /// A label before such a name.
    Below(u16),
    /// This number of labels of one octet. Such names differ in the last one.
    New(u8, u8),
}

fn name() -> impl Strategy<Value = Name> {
    prop_oneof![
        4 => (0..64_u16).prop_map(Name::Known),
        2 => (0..64_u16).prop_map(Name::Below),
        1 => (1..=127_u8, b'a'..=b'z').prop_map(|(labels, last)| Name::New(labels, last)),
    ]
}

/// A record: its section, type, owner and the name in its data.
type Shape = (u8, u16, Name, Name);

fn shape() -> impl Strategy<Value = Shape> {
    let rtype = prop::sample::select(TYPES.to_vec());
    (0..3_u8, rtype, name(), name())
}

/// Labels of one octet, the last of which is given.
fn labels(count: u8, last: u8) -> NameBuf {
    let mut wire = b"\x01a".repeat(usize::from(count.min(126)));
    wire.extend_from_slice(&[1, last, 0]);
    NameBuf::from_wire(&wire[wire.len().saturating_sub(255)..]).expect("a name")
}

/// Up to 64 KiB of records of these shapes, in turn. The names of the first 16 KiB stand in it.
fn message(question: &NameBuf, qtype: u16, shapes: &[Shape]) -> Vec<u8> {
    let mut bytes = vec![0; 65_535];
    let mut builder = Builder::new(&mut bytes, 65_535).expect("room");
    builder.header(0, Flags(0x8180));
    let asked = builder.question(question, Rtype(qtype), Class::IN);
    asked.expect("room");
    let mut standing = vec![12_u16];
    for section in [Section::Answer, Section::Authority, Section::Additional] {
        let mut own = shapes
            .iter()
            .filter(|shape| shape.0 == section as u8)
            .cycle();
        // A third of the message each.
        let end = (1 + section as usize) * 65_535 / 3;
        while builder.position() + 600 < end
            && let Some((_, rtype, owner, data)) = own.next()
        {
            let known = |at: u16| 0xc000 | standing[usize::from(at) % standing.len()];
            let wire = |name: &Name| match name {
                Name::Known(at) => known(*at).to_be_bytes().to_vec(),
                Name::Below(at) => [b"\x01b", &known(*at).to_be_bytes()[..]].concat(),
                Name::New(count, last) => labels(*count, *last).as_wire().to_vec(),
            };
            let (owner, name) = (wire(owner), wire(data));
            let plain = labels(3, b'z');
            let octets = match rtype {
                1 => vec![10, 0, 0, 1],
                28 => vec![0; 16],
                6 => [&name[..], b"\0", &[0; 20]].concat(),
                15 => [b"\0\x0a", &name[..]].concat(),
                33 => [&[0; 6], &name[..]].concat(),
                46 => [b"\0\x05", &[0; 16][..], plain.as_wire(), b"s"].concat(),
                47 => [plain.as_wire(), b"\0\x01\x40"].concat(),
                64 | 65 => b"\0\x01\0".to_vec(),
                _ => name.clone(),
            };
            let at = builder.position();
            let name_at = at + owner.len() + 10 + octets.len().saturating_sub(name.len());
            let has_name = matches!(rtype, 2 | 5 | 12 | 15 | 33 | 39);
            for (place, is_name) in [(at, true), (name_at, has_name)] {
                if is_name && place < 16_000 && standing.len() < 64 {
                    standing.push(u16::try_from(place).expect("near"));
                }
            }
            let written = builder.record(
                section,
                Owner::Wire(&owner),
                Rtype(*rtype),
                Class::IN,
                60,
                &octets,
            );
            written.expect("room");
        }
    }
    let len = builder.finish();
    bytes.truncate(len);
    bytes
}

fn private() -> Dns64 {
    Dns64 {
        well_known_private: false,
        ..dns64()
    }
}

/// The steps of responses over UDP to a query for AAAA, for a reverse name or for any other type, from a response for
/// that type, for A or for PTR, and the octets that are sent.
fn steps_of_hit(asker: &Asker, dns64: &Dns64, stored: &Stored) -> (u64, u64) {
    let mut frame = vec![0; 65_535];
    let aged = Aged::fresh(stored, 1);
    let none = texts::failed("a.test", Rtype::AAAA);
    let (steps, sent) = work::steps(|| {
        let mut sent = 0;
        if asker.rtype == Rtype::A {
            let asker = Asker {
                rtype: Rtype::AAAA,
                ..asker.clone()
            };
            let none = Aged::fresh(&none, 0);
            sent += synthesis::synthesise(&asker, dns64, none, aged, &mut frame).len;
        }
        if asker.rtype == Rtype::PTR {
            // The response is for the target itself, or for an alias of it.
            for target in [stored.chain_end().to_buf(), labels(3, b'z')] {
                sent += reverse::alias(asker, &target, aged, &mut frame);
            }
        }
        sent += match synthesis::judge(asker, dns64, stored) {
            Verdict::Filtered => synthesis::filtered(asker, dns64, aged, &mut frame),
            _ => reply::forward(asker, aged, &mut frame),
        };
        sent as u64
    });
    (steps, sent)
}

/// Checks both laws.
fn check(question: &NameBuf, qtype: u16, bytes: &[u8]) -> Result<(), TestCaseError> {
    let message = Message::parse(bytes).expect("sound");
    let (steps, accepted) = work::steps(|| Stored::accept(&message, &BOUNDS));
    let octets = bytes.len() as u64;
    prop_assert!(
        steps <= STEPS_PER_OCTET * octets,
        "{steps} steps for {octets} octets"
    );
    if let Ok(stored) = accepted {
        let asker = Asker {
            name: question.clone(),
            ..texts::asker("a.test", Rtype(qtype))
        };
        for asker in [with_do(asker.clone()), asker] {
            let (steps, sent) = steps_of_hit(&asker, &private(), &stored);
            prop_assert!(
                steps <= STEPS_PER_OCTET * sent,
                "{steps} steps for {sent} octets that are sent"
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn cost_of_a_message_is_bounded_by_its_octets(
        asked in 1..=127_u8,
        qtype in prop::sample::select(TYPES.to_vec()),
        shapes in prop::collection::vec(shape(), 1..12),
    ) {
        let question = labels(asked, b'q');
        check(&question, qtype, &message(&question, qtype, &shapes))?;
    }
}

/// The shapes that were most expensive.
#[test]
fn cost_of_extreme_messages_is_bounded_by_their_octets() {
    let longest = labels(127, b'q');
    let (asked, other) = (Name::Known(0), |last| Name::New(127, last));
    let targets = |rtype| (b'a'..=b'z').map(move |last| (0, rtype, Name::Known(0), other(last)));
    let every = |rtype| (0, rtype, asked.clone(), asked.clone());
    for qtype in TYPES {
        // Records that have the queried name only, and records with 26 names of 127 labels.
        let mut shapes = vec![every(qtype)];
        check(&longest, qtype, &message(&longest, qtype, &shapes)).expect("bounded");
        shapes.extend(targets(qtype));
        shapes.extend(std::iter::repeat_n(every(qtype), 2000));
        shapes.push((2, 1, Name::Known(0), Name::Known(0)));
        check(&longest, qtype, &message(&longest, qtype, &shapes)).expect("bounded");
    }
}
