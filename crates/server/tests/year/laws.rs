//! The laws, and what breaks them.

use std::collections::HashMap;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{Message, Record, Section};

use super::truth;

/// A law that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Law {
    /// Every query is counted, and it is answered in time, or counted as dropped or lost.
    AnsweredOrCounted,
    /// Nobody gets a response to a query that nobody asked, or a second one, or one with another question.
    OneResponse,
    /// Every record is one that the authoritative servers have for the question, or is synthesised from one.
    TrueData,
    /// There is no synthesis where AAAA exists, unless upstreams do not answer for AAAA (RFC 6147 section 5.1.3).
    NativeFirst,
    /// A name is said to be missing or empty only if it is.
    TrueDenial,
    /// A TTL never exceeds what is left of the upstream's.
    AgingTtl,
    /// Cache, queries that wait and questions stay within their bounds.
    BoundedMemory,
    /// When nobody asks, nothing is asked.
    Quiet,
    /// Queries of a client that asks little get answers while upstreams are healthy, whatever others ask.
    FairShare,
}

/// The law and what was seen.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) law: Law,
    pub(crate) seen: String,
}

pub(crate) type Holds<T = ()> = Result<T, Broken>;

pub(crate) fn require(holds: bool, law: Law, seen: impl Fn() -> String) -> Holds {
    match holds {
        true => Ok(()),
        false => Err(Broken { law, seen: seen() }),
    }
}

/// A query that waits for its response.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) name: u32,
    pub(crate) rtype: Rtype,
    pub(crate) query: Vec<u8>,
    pub(crate) worker: usize,
    pub(crate) asked_at: Nanos,
    /// Whether its client asks little.
    pub(crate) is_modest: bool,
    /// Whether upstreams had been healthy for a while.
    pub(crate) was_calm: bool,
}

/// When the data that upstreams have sent expire at the latest.
#[derive(Default)]
pub(crate) struct Expiry(HashMap<(u32, u16), Nanos>);

impl Expiry {
    /// An upstream sent its data for a question, or that there are none.
    pub(crate) fn sent(&mut self, name: u32, rtype: Rtype, now: Nanos) {
        let ttl_s = match truth::data(name, rtype) {
            Some(_) => truth::ttl_s(name),
            None => truth::NEGATIVE_S,
        };
        let until = now + Nanos::from(ttl_s) * SECOND;
        self.0.insert(Self::key(name, rtype), until);
    }

    fn of(&self, name: u32, rtype: Rtype) -> Nanos {
        let key = Self::key(name, rtype);
        self.0.get(&key).copied().unwrap_or(0)
    }

    /// A response that a name does not exist is one for all types.
    fn key(name: u32, rtype: Rtype) -> (u32, u16) {
        let is_missing = truth::is_missing(name);
        (name, if is_missing { Rtype::ANY.0 } else { rtype.0 })
    }
}

/// A response that is checked by its question.
pub(crate) struct Heard<'a> {
    pub(crate) pending: &'a Pending,
    pub(crate) response: &'a [u8],
    pub(crate) now: Nanos,
    /// Whether upstreams have been healthy since before the query.
    pub(crate) is_calm: bool,
}

impl Heard<'_> {
    fn require(&self, holds: bool, law: Law) -> Holds {
        require(holds, law, || {
            let (pending, now, response) = (self.pending, self.now, self.response);
            format!("{pending:?} at {now}: {response:02x?}")
        })
    }

    /// Checks it; returns its code.
    pub(crate) fn check(&self, expiry: &Expiry) -> Holds<Rcode> {
        let (query, response) = (&self.pending.query, self.response);
        let end = truth::question_end(query);
        let is_same =
            response.get(..2) == query.get(..2) && response.get(12..end) == query.get(12..end);
        self.require(is_same, Law::OneResponse)?;
        let Ok(message) = Message::parse(response) else {
            return self
                .require(false, Law::OneResponse)
                .map(|()| Rcode::FORMERR);
        };
        let mut answers = 0;
        for record in message.records().map_while(Result::ok) {
            match (record.section, record.rtype) {
                (Section::Additional, Rtype::OPT) => {}
                (Section::Authority, Rtype::SOA) => self.check_soa(&record, expiry)?,
                _ => {
                    answers += 1;
                    let question = message.question();
                    let is_of_name =
                        question.is_some_and(|question| question.name.eq_ignore_case(&record.name));
                    self.require(is_of_name, Law::TrueData)?;
                    self.check_record(&record, expiry)?;
                }
            }
        }
        self.check_denial(&message, answers)?;
        let is_fair = !(self.pending.is_modest && self.is_calm);
        self.require(
            is_fair || message.rcode() != Rcode::SERVFAIL,
            Law::FairShare,
        )?;
        Ok(message.rcode())
    }

    fn check_record(&self, record: &Record<'_>, expiry: &Expiry) -> Holds {
        let Pending { name, rtype, .. } = *self.pending;
        let is_asked = record.section == Section::Answer && record.rtype == rtype;
        let is_native = truth::data(name, rtype).as_deref() == Some(record.rdata);
        let synthesised = truth::synthesised(name).filter(|_| rtype == Rtype::AAAA);
        let is_synthesised = synthesised.is_some_and(|it| it.octets() == record.rdata);
        self.require(is_asked && (is_native || is_synthesised), Law::TrueData)?;
        let has_native = truth::data(name, rtype).is_some();
        self.require(is_native || !has_native || !self.is_calm, Law::NativeFirst)?;
        if is_native {
            return self.check_ttl(record.ttl, expiry.of(name, rtype));
        }
        self.check_ttl(record.ttl, expiry.of(name, Rtype::A))?;
        if !self.is_calm {
            return Ok(());
        }
        // The TTL of the negative response for AAAA is a limit, too (RFC 6147 section 5.1.7).
        self.check_ttl(record.ttl, expiry.of(name, Rtype::AAAA))
    }

    /// Its negative response can be that for A, too.
    fn check_soa(&self, record: &Record<'_>, expiry: &Expiry) -> Holds {
        let Pending { name, rtype, .. } = *self.pending;
        let of_a = match rtype {
            Rtype::AAAA => expiry.of(name, Rtype::A),
            _ => 0,
        };
        self.check_ttl(record.ttl, expiry.of(name, rtype).max(of_a))
    }

    fn check_ttl(&self, ttl_s: u32, until: Nanos) -> Holds {
        // Seconds are rounded.
        let claimed = self.now + Nanos::from(ttl_s) * SECOND;
        self.require(claimed <= until + SECOND, Law::AgingTtl)
    }

    fn check_denial(&self, message: &Message<'_>, answers: usize) -> Holds {
        let Pending { name, rtype, .. } = *self.pending;
        let has_none = |rtype| truth::data(name, rtype).is_none();
        let is_missing = truth::is_missing(name);
        let is_empty = match (rtype, self.is_calm) {
            (Rtype::AAAA, true) => has_none(rtype) && has_none(Rtype::A),
            // Without a response for AAAA, an empty one for A is the answer (RFC 6147 section 5.1.6).
            (Rtype::AAAA, false) => has_none(Rtype::A),
            _ => has_none(rtype),
        };
        let is_true = match message.rcode() {
            Rcode::NOERROR => answers > 0 || message.tc() || is_empty && !is_missing,
            Rcode::NXDOMAIN => answers == 0 && is_missing,
            rcode => rcode == Rcode::SERVFAIL,
        };
        self.require(is_true, Law::TrueDenial)
    }
}
