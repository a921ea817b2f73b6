//! Reads a response once: its records, the names in them, and its RRsets.

use std::collections::HashMap;

use dns64_wire::ParseError;
use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{Message, Opt, Record, Section};

use super::{Malformed, OPTION_EXTENDED_ERROR};
use crate::answer::copy::Copier;
use crate::answer::names::Id;
use crate::answer::rdata;
use crate::answer::work::step;

/// Octets of the shortest record: the root, type, class, TTL and length (RFC 1035 section 4.1.3).
const RECORD_LEN_MIN: usize = 11;

/// A response with valid records.
pub(super) struct Survey<'a> {
    /// All records but OPT.
    records: Vec<Entry<'a>>,
    /// Number of records of the answer section, and of the answer and authority section.
    answers_end: usize,
    authority_end: usize,
    sets: HashMap<SetKey, RrSet>,
    pub(super) edns: Edns,
}

/// A record of a response.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    /// The record, with the TTL of its RRset.
    pub(super) record: Record<'a>,
    pub(super) owner: Id,
    /// The name in its data that other records may belong to, see [`rdata::Target`].
    pub(super) target: Option<Id>,
    /// The type that it covers, if it is a signature.
    pub(super) covered: Option<Rtype>,
}

impl Entry<'_> {
    /// The RRset that it belongs to. A signature has the TTL of the RRset that it covers (RFC 4034
    /// section 3).
    fn set(&self) -> SetKey {
        (self.owner, self.kind())
    }

    /// Its type, or the type that it covers.
    pub(super) fn kind(&self) -> Rtype {
        self.covered.unwrap_or(self.record.rtype)
    }
}

/// The owner and type of an RRset.
type SetKey = (Id, Rtype);

struct RrSet {
    ttl: u32,
    /// Index of its first record, if that is in the answer section.
    first: Option<usize>,
}

impl<'a> Survey<'a> {
    pub(super) fn of(
        reply: &Message<'a>,
        class: Class,
        copier: &mut Copier<'a>,
    ) -> Result<Self, Malformed> {
        let counts = [reply.ancount(), reply.nscount(), reply.arcount()];
        let count = counts.map(usize::from).iter().sum::<usize>();
        let mut survey = Self {
            records: Vec::with_capacity(count.min(reply.bytes().len() / RECORD_LEN_MIN)),
            answers_end: 0,
            authority_end: 0,
            sets: HashMap::new(),
            edns: Edns::default(),
        };
        let mut records = reply.records();
        let mut opt_seen = false;
        while let Some(record) = records.next() {
            let record = record?;
            let rtype = record.rtype;
            if rtype == Rtype::OPT {
                if opt_seen {
                    return Err(ParseError::OptRepeated.into());
                }
                opt_seen = true;
                survey.edns = Edns::read(&record)?;
                continue;
            }
            if record.class != class {
                let class = record.class;
                return Err(Malformed::Class { class });
            }
            let target = rdata::check(&mut records, &record).ok_or(Malformed::Data { rtype })?;
            survey.add(Entry {
                record,
                owner: copier.id(&record.name),
                target: target.map(|name| copier.id(&name)),
                covered: rdata::covered(&record),
            });
        }
        for entry in &mut survey.records {
            if let Some(set) = survey.sets.get(&entry.set()) {
                entry.record.ttl = set.ttl;
            }
        }
        Ok(survey)
    }

    /// Adds a record. All records of an RRset have its lowest TTL (RFC 2181 section 5.2).
    fn add(&mut self, entry: Entry<'a>) {
        step();
        let set = self.sets.entry(entry.set()).or_insert(RrSet {
            ttl: u32::MAX,
            first: None,
        });
        set.ttl = set.ttl.min(entry.record.ttl);
        let index = self.records.len();
        match entry.record.section {
            Section::Answer => {
                self.answers_end = index + 1;
                if entry.covered.is_none() {
                    set.first.get_or_insert(index);
                }
                self.authority_end = index + 1;
            }
            Section::Authority => self.authority_end = index + 1,
            Section::Additional => {}
        }
        self.records.push(entry);
    }

    pub(super) fn answers(&self) -> &[Entry<'a>] {
        &self.records[..self.answers_end]
    }

    pub(super) fn authority(&self) -> &[Entry<'a>] {
        &self.records[self.answers_end..self.authority_end]
    }

    pub(super) fn additional(&self) -> &[Entry<'a>] {
        &self.records[self.authority_end..]
    }

    /// The first record of the queried type with this owner in the answer section.
    pub(super) fn wanted(&self, owner: Id, qtype: Rtype) -> Option<&Entry<'a>> {
        match qtype {
            Rtype::ANY | Rtype::RRSIG => {
                let mut answers = self.answers().iter();
                answers.find(|entry| entry.owner == owner && is_wanted(qtype, &entry.record))
            }
            _ => self.answer(owner, qtype),
        }
    }

    /// The first record of an RRset in the answer section.
    pub(super) fn answer(&self, owner: Id, rtype: Rtype) -> Option<&Entry<'a>> {
        let set = self.sets.get(&(owner, rtype))?;
        self.records.get(set.first?)
    }
}

/// Whether a record has the queried type.
pub(super) fn is_wanted(qtype: Rtype, record: &Record<'_>) -> bool {
    qtype == Rtype::ANY || record.rtype == qtype
}

/// The contents of the OPT record of a response.
#[derive(Default)]
pub(super) struct Edns {
    /// Whether it extends the response code.
    pub(super) extended_rcode: bool,
    pub(super) extended_error: Option<u16>,
}

impl Edns {
    pub(super) fn read(record: &Record<'_>) -> Result<Self, ParseError> {
        if record.section != Section::Additional || !record.name.is_root() {
            return Err(ParseError::OptMisplaced);
        }
        let [ext_rcode, version, _, _] = record.ttl.to_be_bytes();
        let opt = Opt {
            udp_size: record.class.0,
            ext_rcode,
            version,
            do_bit: false,
            options: record.rdata,
        };
        let mut errors = opt.options().filter(|o| o.code == OPTION_EXTENDED_ERROR);
        let code = errors.next().and_then(|o| o.value.first_chunk().copied());
        Ok(Self {
            extended_rcode: ext_rcode != 0,
            extended_error: code.map(u16::from_be_bytes),
        })
    }
}
