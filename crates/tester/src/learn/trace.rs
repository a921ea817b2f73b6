//! Counts the messages of a trace.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;
use std::net::IpAddr;

use dns64_wire::codes::{Class, Opcode, Rcode, Rtype};
use dns64_wire::message::{Message, Question, Section};

use super::figures::{Figures, Repeated};
use crate::load::query::Edns;
use crate::namespace::Prefixes;

/// Transport of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    Udp,
    Tcp,
    /// TLS or HTTPS.
    Encrypted,
}

/// A message of a trace.
pub(super) struct Seen<'a> {
    /// Time in seconds since 1970, if it is known.
    pub(super) at_s: Option<u64>,
    /// Source of a query, if it is known.
    pub(super) client: Option<IpAddr>,
    pub(super) carrier: Carrier,
    pub(super) octets: &'a [u8],
}

/// The counts of a trace.
pub(super) struct Trace {
    /// Hashes names and addresses.
    key: RandomState,
    synthesised: Prefixes,
    entries_max: usize,
    figures: Figures,
    clients: HashSet<u64>,
    /// Number of queries for each name and type.
    asked: HashMap<u64, u64>,
    answered: HashMap<u64, Answered>,
    /// Queries in each second.
    seconds: BTreeMap<u64, u64>,
}

/// What the answers for a name have.
#[derive(Clone, Copy, Default)]
struct Answered {
    /// An AAAA record of its own; `None` without an answer to an AAAA query.
    own_aaaa: Option<bool>,
    addresses: u8,
    cnames: u8,
}

/// Largest number of entries of each table. Four full tables take half a gigabyte. As many repeated names are a quarter of the default
/// range of names, the most that a pattern may have.
pub(super) const ENTRIES_MAX: usize = 1 << 22;

/// Option code of cookies (RFC 7873 section 4).
const COOKIE: u16 = 10;

const HOUR_S: u64 = 3600;

impl Trace {
    /// Creates a trace whose tables have room for this number of entries each.
    pub(super) fn new(synthesised: Prefixes, entries_max: usize) -> Self {
        Self {
            key: RandomState::new(),
            synthesised,
            entries_max,
            figures: Figures::default(),
            clients: HashSet::new(),
            asked: HashMap::new(),
            answered: HashMap::new(),
            seconds: BTreeMap::new(),
        }
    }

    /// Returns whether a table is full: the trace must not grow.
    pub(super) fn is_full(&self) -> bool {
        let names = self.asked.len().max(self.answered.len());
        let most = names.max(self.clients.len()).max(self.seconds.len());
        most >= self.entries_max
    }

    /// Counts a packet that is not a query.
    pub(super) fn other(&mut self) {
        self.figures.others += 1;
    }

    /// Counts a connection whose queries cannot be read.
    pub(super) fn encrypted(&mut self) {
        self.figures.encrypted_connections += 1;
    }

    /// Counts a query of which name and type are known.
    pub(super) fn asked(&mut self, name: &str, rtype: Rtype) {
        self.figures.queries += 1;
        *self.figures.types.entry(rtype.0).or_default() += 1;
        let question = self.key.hash_one((name.to_ascii_lowercase(), rtype));
        *self.asked.entry(question).or_default() += 1;
    }

    /// Counts a message.
    pub(super) fn message(&mut self, seen: &Seen<'_>) {
        let message = Message::parse(seen.octets).ok();
        let message = message.filter(|message| message.opcode() == Opcode::QUERY);
        let asked = message.and_then(|message| Some((message, message.question()?)));
        match asked.filter(|(_, question)| question.class == Class::IN) {
            Some((message, question)) if message.qr() => self.response(&message, &question),
            Some((message, question)) => self.query(seen, &message, &question),
            None => self.other(),
        }
    }

    fn query(&mut self, seen: &Seen<'_>, message: &Message<'_>, question: &Question<'_>) {
        self.asked(&question.name.to_string(), question.rtype);
        let edns = match message.opt() {
            Ok(Some(opt)) if opt.do_bit => Edns::Do,
            Ok(Some(opt)) if opt.options().any(|option| option.code == COOKIE) => Edns::Cookie,
            Ok(Some(_)) => Edns::Plain,
            Ok(None) | Err(_) => Edns::None,
        };
        self.figures.edns[edns as usize] += 1;
        match seen.carrier {
            Carrier::Udp => self.figures.over_udp += 1,
            Carrier::Tcp => self.figures.over_tcp += 1,
            Carrier::Encrypted => self.figures.over_tls += 1,
        }
        let clients = seen.client.map(|client| self.key.hash_one(client));
        self.clients.extend(clients);
        if let Some(at_s) = seen.at_s {
            *self.seconds.entry(at_s).or_default() += 1;
        }
    }

    fn response(&mut self, message: &Message<'_>, question: &Question<'_>) {
        let is_address = matches!(question.rtype, Rtype::AAAA | Rtype::A);
        if !is_address || message.rcode() != Rcode::NOERROR || message.tc() {
            return;
        }
        let name = question.name.to_string().to_ascii_lowercase();
        let known = self.answered.entry(self.key.hash_one(name)).or_default();
        let (mut addresses, mut cnames, mut has_own) = (0_u8, 0_u8, false);
        let records = message.records().map_while(Result::ok);
        for record in records.filter(|record| record.section == Section::Answer) {
            addresses = addresses.saturating_add((record.rtype == question.rtype).into());
            cnames = cnames.saturating_add((record.rtype == Rtype::CNAME).into());
            let aaaa = record.aaaa().filter(|_| question.rtype == Rtype::AAAA);
            has_own |= aaaa.is_some_and(|it| !self.synthesised.contain(it));
        }
        if question.rtype == Rtype::AAAA {
            known.own_aaaa = Some(has_own);
        }
        known.addresses = known.addresses.max(addresses);
        known.cnames = known.cnames.max(cnames);
    }

    /// Returns the figures.
    pub(super) fn figures(self) -> Figures {
        let mut hours = [0; 24];
        for (second, queries) in &self.seconds {
            hours[usize::try_from(second / HOUR_S % 24).unwrap_or_default()] += queries;
        }
        let ends = self
            .seconds
            .keys()
            .next()
            .zip(self.seconds.keys().next_back());
        let answered = || self.answered.values();
        let of_aaaa = || answered().filter_map(|name| name.own_aaaa);
        let resolved = || answered().filter(|name| name.addresses > 0);
        Figures {
            is_partial: self.is_full(),
            clients: self.clients.len() as u64,
            names_answered: of_aaaa().count() as u64,
            names_with_aaaa: of_aaaa().filter(|own| *own).count() as u64,
            names_resolved: resolved().count() as u64,
            addresses: resolved().map(|name| u64::from(name.addresses)).sum(),
            aliases: resolved().filter(|name| name.cnames > 0).count() as u64,
            cnames: resolved().map(|name| u64::from(name.cnames)).sum(),
            questions: self.asked.len() as u64,
            span_s: ends.map(|(first, last)| last - first + 1),
            peak_qps: self.seconds.values().copied().max(),
            hours,
            repeated: Repeated::of(self.asked.into_values()),
            ..self.figures
        }
    }
}
