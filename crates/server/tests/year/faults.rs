//! Faults that are planted one at a time, between the engines and the world around them, and the laws that find each.

use std::collections::HashMap;

use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::Message;

use super::laws::Law;
use super::truth;

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A response does not reach its client.
    LostResponse,
    /// A query does not reach the server, and nobody counts it.
    LostQuery,
    /// A response arrives twice.
    DoubledResponse,
    /// An octet that a client reads from its connection is another one.
    TornStream,
    /// A response has the ID of another query.
    ForeignId,
    /// A response has a letter of its question in the other case.
    OtherCase,
    /// A response arrives 6 s late.
    LateResponse,
    /// One worker's timers do not run.
    SleepingTimers,
    /// The TTL of a response is an hour longer.
    GrownTtl,
    /// The first response to a question is repeated as it was.
    Replay,
    /// A worker reads a clock that is a minute late when queries arrive.
    LateClock,
    /// A bit of an address is another one.
    FlippedBit,
    /// Somebody guesses the ID of a question.
    GuessedId,
    /// An upstream's AAAA records are lost on the way.
    HiddenAaaa,
    /// An upstream's NOERROR becomes NXDOMAIN.
    FalseNxdomain,
    /// Each question is asked again, for ever.
    EndlessQuestion,
    /// The cache is larger than it should be.
    LargeCache,
    /// The table of queries that wait is larger than it should be.
    LargeTable,
    /// All clients seem to be of one network.
    OneNetwork,
}

/// Every fault with the laws that may find it first.
pub(crate) const FAULTS: [(Fault, &[Law]); 19] = [
    (Fault::LostResponse, &[Law::AnsweredOrCounted]),
    (Fault::LostQuery, &[Law::AnsweredOrCounted]),
    (Fault::DoubledResponse, &[Law::OneResponse]),
    (Fault::TornStream, &[Law::OneResponse]),
    (Fault::ForeignId, &[Law::OneResponse]),
    (Fault::OtherCase, &[Law::OneResponse]),
    (Fault::LateResponse, &[Law::AnsweredOrCounted]),
    (Fault::SleepingTimers, &[Law::AnsweredOrCounted]),
    (Fault::GrownTtl, &[Law::AgingTtl]),
    (Fault::Replay, &[Law::AgingTtl]),
    (Fault::LateClock, &[Law::AgingTtl, Law::AnsweredOrCounted]),
    (Fault::FlippedBit, &[Law::TrueData]),
    (Fault::GuessedId, &[Law::TrueData]),
    (Fault::HiddenAaaa, &[Law::NativeFirst]),
    (Fault::FalseNxdomain, &[Law::TrueDenial]),
    (Fault::EndlessQuestion, &[Law::Quiet]),
    (Fault::LargeCache, &[Law::BoundedMemory]),
    (Fault::LargeTable, &[Law::BoundedMemory]),
    (Fault::OneNetwork, &[Law::FairShare]),
];

/// A planted fault strikes once in this many times.
const EVERY: u64 = 31;

/// The planted fault of a world, if there is one.
pub(crate) struct Planted {
    fault: Option<Fault>,
    chances: u64,
    /// The first response to each question.
    first: HashMap<Vec<u8>, Vec<u8>>,
}

impl Planted {
    pub(crate) fn new(fault: Option<Fault>) -> Self {
        Self {
            fault,
            chances: 0,
            first: HashMap::new(),
        }
    }

    pub(crate) fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Whether the fault is this one and strikes now.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        self.chances += u64::from(self.is(fault));
        self.is(fault) && self.chances.is_multiple_of(EVERY)
    }

    /// Whether the fault is this one and strikes for the first time.
    pub(crate) fn strikes_first(&mut self, fault: Fault) -> bool {
        self.strikes(fault) && self.chances == EVERY
    }

    /// Changes the true response of an upstream.
    pub(crate) fn falsify(&mut self, reply: &mut Vec<u8>) {
        let (name, rtype) = truth::asked(reply);
        let is_dual = truth::native(name).is_some() && truth::a(name).is_some();
        if rtype == Rtype::AAAA && is_dual && self.strikes(Fault::HiddenAaaa) {
            *reply = truth::bare(reply, Rcode::NOERROR, false);
        } else if !truth::is_missing(name) && self.strikes(Fault::FalseNxdomain) {
            *reply = truth::bare(reply, Rcode::NXDOMAIN, false);
        }
    }

    /// Changes a response of the server.
    pub(crate) fn damage(&mut self, response: &mut Vec<u8>) {
        if self.strikes(Fault::OtherCase) {
            response[13] ^= 0x20;
        }
        let Some((data, len)) = address(response) else {
            return;
        };
        if self.strikes(Fault::GrownTtl) {
            let ttl = &mut response[data - 6..data - 2];
            let seconds = u32::from_be_bytes(ttl.try_into().unwrap());
            ttl.copy_from_slice(&(seconds + 3600).to_be_bytes());
        }
        if self.strikes(Fault::FlippedBit) {
            response[data + len - 1] ^= 1;
        }
        if self.is(Fault::Replay) {
            let id = [response[0], response[1]];
            let end = truth::question_end(response);
            // With EDNS or without.
            let question = [&response[12..end], &response[11..12]].concat();
            let first = self.first.entry(question).or_insert(response.clone());
            response.clone_from(first);
            response[..2].copy_from_slice(&id);
        }
    }
}

/// Position and length of the first address in a response.
fn address(response: &[u8]) -> Option<(usize, usize)> {
    let message = Message::parse(response).ok()?;
    let mut records = message.records().map_while(Result::ok);
    let first = records.find(|record| [Rtype::A, Rtype::AAAA].contains(&record.rtype))?;
    Some((first.rdata_offset, first.rdata.len()))
}
