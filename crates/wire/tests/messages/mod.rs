//! Generators for messages, and two parsers to compare.

use dns64_wire::ParseError;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{Flags, Message, Opt, Section};
use dns64_wire::name::NameBuf;
use proptest::prelude::*;

const SECTIONS: [Section; 3] = [Section::Answer, Section::Authority, Section::Additional];

/// Size of the largest plan: a question, 9 records of 255 + 10 + 40 octets, OPT.
const ROOM: usize = 4096;

/// A record as both parsers see it: section, owner, type, class, TTL, length of data.
pub(crate) type SeenRecord = (usize, Vec<u8>, u16, u16, u32, usize);

/// A message as both parsers see it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// ID and flags.
    pub(crate) header: (u16, u16),
    /// Name, type and class.
    pub(crate) question: Option<(Vec<u8>, u16, u16)>,
    /// All sections, including OPT.
    pub(crate) records: Vec<SeenRecord>,
}

/// Parses a message with this crate.
pub(crate) fn ours(bytes: &[u8]) -> Result<Seen, ParseError> {
    let message = Message::parse(bytes)?;
    let wire = |name: dns64_wire::name::Name<'_>| name.to_buf().as_wire().to_vec();
    let question = message
        .question()
        .map(|q| (wire(q.name), q.rtype.0, q.class.0));
    let mut records = Vec::new();
    for record in message.records() {
        let r = record?;
        records.push((
            r.section as usize,
            wire(r.name),
            r.rtype.0,
            r.class.0,
            r.ttl,
            r.rdata.len(),
        ));
    }
    Ok(Seen {
        header: (message.id(), message.flags().0),
        question,
        records,
    })
}

/// Parses a message with the crate `domain`.
pub(crate) fn theirs(bytes: &[u8]) -> Option<Seen> {
    use domain::base::{Message, ToName};
    let message = Message::from_octets(bytes).ok()?;
    let mut question = None;
    for asked in message.question() {
        let asked = asked.ok()?;
        let name = asked.qname().to_vec().as_slice().to_vec();
        question = Some((name, asked.qtype().to_int(), asked.qclass().to_int()));
    }
    let mut records = Vec::new();
    let mut section = Some(message.answer().ok()?);
    let mut number = 0;
    while let Some(mut walk) = section {
        for record in walk.by_ref() {
            let r = record.ok()?;
            let owner = r.owner().to_vec().as_slice().to_vec();
            let numbers = (r.rtype().to_int(), r.class().to_int(), r.ttl().as_secs());
            records.push((
                number,
                owner,
                numbers.0,
                numbers.1,
                numbers.2,
                usize::from(r.rdlen()),
            ));
        }
        section = walk.next_section().ok()?;
        number += 1;
    }
    Some(Seen {
        header: (
            message.header().id(),
            u16::from_be_bytes([bytes[2], bytes[3]]),
        ),
        question,
        records,
    })
}

/// A planned record. Its owner is the name of the question, if there is one, or a name of its own.
#[derive(Clone, Debug)]
pub(crate) struct PlannedRecord {
    section: usize,
    owner: Option<NameBuf>,
    numbers: (u16, u16, u32),
    rdata: Vec<u8>,
}

/// The planned content of a message.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    header: (u16, u16),
    question: Option<(NameBuf, u16, u16)>,
    records: Vec<PlannedRecord>,
    opt: Option<(u16, u8, u8, bool, Vec<u8>)>,
}

impl Plan {
    /// The octets of the message.
    pub(crate) fn build(&self) -> Vec<u8> {
        self.build_within(ROOM)
    }

    /// Builds the message within a limit; truncates it if it does not fit.
    pub(crate) fn build_within(&self, limit: usize) -> Vec<u8> {
        let mut buf = vec![0xee; ROOM];
        let mut builder = Builder::new(&mut buf, limit).expect("room for a header");
        builder.header(self.header.0, Flags(self.header.1));
        if !self.try_build(&mut builder) {
            builder.truncate();
        }
        let len = builder.finish();
        assert!(buf[limit..].iter().all(|octet| *octet == 0xee));
        buf.truncate(len);
        buf
    }

    fn try_build<'a>(&'a self, builder: &mut Builder<'a>) -> bool {
        let question = self.question.as_ref();
        let asked = question.is_none_or(|(name, rtype, class)| {
            builder.question(name, Rtype(*rtype), Class(*class)).is_ok()
        });
        let with_opt = self.opt().is_none_or(|opt| builder.opt(opt).is_ok());
        asked
            && with_opt
            && self.records.iter().all(|record| {
                let owner = record.owner.as_ref().map_or(Owner::Question, Owner::Name);
                let (rtype, class, ttl) = record.numbers;
                let section = SECTIONS[record.section];
                builder
                    .record(
                        section,
                        owner,
                        Rtype(rtype),
                        Class(class),
                        ttl,
                        &record.rdata,
                    )
                    .is_ok()
            })
    }

    /// The message that a parser should see.
    pub(crate) fn seen(&self) -> Seen {
        let asked = self.question.as_ref().map(|(name, ..)| name);
        let record = |r: &PlannedRecord| {
            let owner = r.owner.as_ref().or(asked).expect("an owner");
            let (rtype, class, ttl) = r.numbers;
            (
                r.section,
                owner.as_wire().to_vec(),
                rtype,
                class,
                ttl,
                r.rdata.len(),
            )
        };
        let opt = self
            .opt
            .as_ref()
            .map(|(size, ext_rcode, version, do_bit, options)| {
                let ttl = u32::from_be_bytes([*ext_rcode, *version, u8::from(*do_bit) << 7, 0]);
                (2, vec![0], 41, *size, ttl, options.len())
            });
        Seen {
            header: self.header,
            question: self
                .question
                .as_ref()
                .map(|(name, rtype, class)| (name.as_wire().to_vec(), *rtype, *class)),
            records: self.records.iter().map(record).chain(opt).collect(),
        }
    }

    /// The OPT record that a parser should see.
    pub(crate) fn opt(&self) -> Option<Opt<'_>> {
        let (udp_size, ext_rcode, version, do_bit, options) = self.opt.as_ref()?;
        Some(Opt {
            udp_size: *udp_size,
            ext_rcode: *ext_rcode,
            version: *version,
            do_bit: *do_bit,
            options,
        })
    }

    /// The same with every owner uncompressed.
    pub(crate) fn without_compression(mut self) -> Self {
        for record in &mut self.records {
            let asked = self.question.as_ref().map(|(name, ..)| name);
            record.owner = record.owner.take().or(asked.cloned());
        }
        self
    }

    /// A plan that would build a given valid message.
    pub(crate) fn from_parsed(bytes: &[u8]) -> Self {
        let message = Message::parse(bytes).expect("sound");
        let records = message.records().map(|record| record.expect("sound"));
        let opt = message.opt().expect("sound");
        Self {
            header: (message.id(), message.flags().0),
            question: message
                .question()
                .map(|question| (question.name.to_buf(), question.rtype.0, question.class.0)),
            records: records
                .filter(|record| record.rtype != Rtype::OPT)
                .map(|record| PlannedRecord {
                    section: record.section as usize,
                    owner: Some(record.name.to_buf()),
                    numbers: (record.rtype.0, record.class.0, record.ttl),
                    rdata: record.rdata.to_vec(),
                })
                .collect(),
            opt: opt.map(|opt| {
                let options = opt.options.to_vec();
                (
                    opt.udp_size,
                    opt.ext_rcode,
                    opt.version,
                    opt.do_bit,
                    options,
                )
            }),
        }
    }
}

/// Any name, most of them short.
pub(crate) fn name() -> impl Strategy<Value = NameBuf> {
    let label = prop_oneof![
        4 => prop::collection::vec(prop_oneof![b'a'..=b'z', b'A'..=b'Z', b'0'..=b'9'], 1..6),
        1 => prop::collection::vec(any::<u8>(), 1..=63),
    ];
    prop::collection::vec(label, 0..6).prop_map(|labels| {
        let parent = NameBuf::root();
        labels
            .iter()
            .fold(parent, |name, label| name.child(label).unwrap_or(name))
    })
}

/// Any type except OPT, which the builder writes itself.
fn rtype() -> impl Strategy<Value = u16> {
    any::<u16>().prop_map(|rtype| if rtype == 41 { 42 } else { rtype })
}

fn record() -> impl Strategy<Value = PlannedRecord> {
    let rdata = prop::collection::vec(any::<u8>(), 0..40);
    let numbers = (rtype(), any::<u16>(), any::<u32>());
    (0..3_usize, prop::option::of(name()), numbers, rdata).prop_map(
        |(section, owner, numbers, rdata)| PlannedRecord {
            section,
            owner,
            numbers,
            rdata,
        },
    )
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        (any::<u16>(), prop::collection::vec(any::<u8>(), 0..9)),
        0..3,
    )
    .prop_map(|options| {
        let mut octets = Vec::new();
        for (code, value) in options {
            octets.extend_from_slice(&code.to_be_bytes());
            octets.extend_from_slice(&u16::try_from(value.len()).expect("short").to_be_bytes());
            octets.extend_from_slice(&value);
        }
        octets
    })
}

/// Any message that the builder can build.
pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let question = prop::option::of((name(), any::<u16>(), any::<u16>()));
    let records = prop::collection::vec(record(), 0..10);
    let opt = prop::option::of((
        any::<u16>(),
        any::<u8>(),
        any::<u8>(),
        any::<bool>(),
        options(),
    ));
    (any::<(u16, u16)>(), question, records, opt).prop_map(
        |(header, question, mut records, opt)| {
            records.sort_by_key(|record| record.section);
            if question.is_none() {
                for record in &mut records {
                    record.owner.get_or_insert_with(NameBuf::root);
                }
            }
            Plan {
                header,
                question,
                records,
                opt,
            }
        },
    )
}

/// A built message with some octets overwritten and possibly with its end cut off.
pub(crate) fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = (
        any::<prop::sample::Index>(),
        prop_oneof![any::<u8>(), Just(0xc0), 0..30_u8],
    );
    let cut = prop::option::weighted(0.2, any::<prop::sample::Index>());
    (plan(), prop::collection::vec(damage, 1..4), cut).prop_map(|(plan, damages, cut)| {
        let mut bytes = plan.build();
        for (at, octet) in damages {
            let at = at.index(bytes.len());
            bytes[at] = octet;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes
    })
}
