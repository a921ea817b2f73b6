//! An authority with deliberate faults: applies its [`Rules`] to the replies.

use std::sync::Arc;

use dns64_transport::clock::Nanos;
use dns64_transport::{Datagram, Link, LinkError};
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{HEADER_LEN, Message};
use dns64_wire::name::Name;

use super::answer::{Answered, Authority};
use super::behaviour::{Act, ReplyFault, Rules};
use super::counts::FaultCounts;
use super::ledger::{AnswerSlot, Recorder};
use super::pending::{PENDING_MAX, Pending};
use super::zone::Position;
use crate::load::transport::Protocol;

/// Applies the faults of one worker, or of the TCP connections.
#[derive(Debug)]
pub struct ContentFaults {
    rules: Arc<Rules>,
    counts: FaultCounts,
}

impl ContentFaults {
    /// Creates the faults for these rules.
    pub fn new(rules: Arc<Rules>) -> Self {
        let counts = FaultCounts::default();
        Self { rules, counts }
    }

    /// Returns the counters.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Alters the reply of `len` octets to `query` if its fault concerns the content, over either transport. Returns
    /// the new length and the remaining decision.
    pub(super) fn spoil(
        &mut self,
        suffix: &Name<'_>,
        query: &[u8],
        reply: &mut [u8],
        len: usize,
        transport: Protocol,
    ) -> (usize, Act) {
        let (n, rtype) = asked(query, suffix);
        let act = self.rules.act(n, rtype);
        let counts = &mut self.counts;
        let len = match act.fault {
            Some(ReplyFault::ServFail) => {
                counts.servfail += 1;
                without_records(reply, len, 0, Rcode::SERVFAIL)
            }
            Some(ReplyFault::Refused) => {
                counts.refused += 1;
                without_records(reply, len, 0, Rcode::REFUSED)
            }
            Some(ReplyFault::Truncated) if transport == Protocol::Udp => {
                counts.truncated += 1;
                without_records(reply, len, AA_AND_TC, Rcode::NOERROR)
            }
            _ => len,
        };
        (len, act)
    }
}

/// The authority of a worker with faults. A delayed reply is sent in a later turn.
#[derive(Debug)]
pub struct Faulty {
    faults: ContentFaults,
    pending: Pending,
}

impl Faulty {
    /// Allocates the memory for all delayed replies.
    pub fn new(rules: Arc<Rules>) -> Self {
        Self::with_room(rules, PENDING_MAX)
    }

    fn with_room(rules: Arc<Rules>, replies: usize) -> Self {
        Self {
            faults: ContentFaults::new(rules),
            pending: Pending::new(replies),
        }
    }

    /// Longest configured delay of the replies.
    pub fn delay_ns_max(&self) -> Nanos {
        self.faults.rules.delay_ns_max()
    }

    /// Returns the counters.
    pub fn counts(&self) -> FaultCounts {
        self.faults.counts()
    }

    /// Time at which the next delayed reply is due.
    pub fn next_due(&self) -> Option<Nanos> {
        self.pending.next_due()
    }

    /// Returns how long the worker may sleep: up to `limit_ns`, and early enough before the next due reply for the
    /// kernel's wake-up latency. 0 means not at all.
    pub fn sleep_ns(&self, now: Nanos, limit_ns: Nanos) -> Nanos {
        let free = |due: Nanos| due.saturating_sub(now).saturating_sub(WAKE_NS);
        self.next_due().map_or(limit_ns, free).min(limit_ns)
    }

    /// Excludes the replies that are delayed now from every ledger.
    pub fn forget_marks(&mut self) {
        self.pending.forget_marks();
    }

    /// Does a [`serve::turn`](super::serve::turn) and sends up to about `max` replies that are due. Returns the number
    /// of both.
    pub fn turn<L: Link>(
        &mut self,
        authority: &mut Authority,
        link: &mut L,
        max: usize,
        mut recorder: Option<&mut Recorder>,
    ) -> Result<usize, LinkError> {
        let taken = link.answer(max, |datagram, frame| {
            self.answer(authority, &datagram, frame, recorder.as_deref_mut())
        });
        if let Some(recorder) = &mut recorder {
            recorder.departed(link.departures());
        }
        let taken = taken?;
        let (now, mut left) = (link.now(), max.max(1));
        let sent = link.reply(|frame| {
            left = left.checked_sub(1)?;
            let (to, len, mark) = self.pending.take(now, frame)?;
            if let Some(recorder) = &mut recorder {
                recorder.leaves(mark);
            }
            Some((to, len))
        });
        if let Some(recorder) = recorder {
            recorder.departed(link.departures());
        }
        Ok(taken + sent?)
    }

    /// Writes an undelayed reply into `frame` and returns its length, 0 for none.
    fn answer(
        &mut self,
        authority: &mut Authority,
        datagram: &Datagram<'_>,
        frame: &mut [u8],
        recorder: Option<&mut Recorder>,
    ) -> usize {
        let query = datagram.payload;
        let Answered { len, asked } = authority.answer(query, frame, Protocol::Udp);
        let mark = recorder.as_ref().map(|r| r.arrived(asked, datagram.at));
        let mark = mark.unwrap_or(AnswerSlot::NOWHERE);
        if len == 0 {
            return 0;
        }
        let suffix = authority.suffix();
        let spoiled = self.faults.spoil(&suffix, query, frame, len, Protocol::Udp);
        let (len, Act { fault, delay_ns }) = spoiled;
        let counts = &mut self.faults.counts;
        let copies = match fault {
            Some(ReplyFault::Lost) => {
                counts.lost += 1;
                return 0;
            }
            Some(ReplyFault::Duplicated) => 2,
            _ => 1,
        };
        if delay_ns == 0 && copies == 1 {
            if let Some(recorder) = recorder {
                recorder.leaves(mark);
            }
            return len;
        }
        let due = datagram.at + delay_ns;
        for _ in 0..copies {
            if !self
                .pending
                .keep(due, datagram.origin(), mark, &frame[..len])
            {
                counts.overflowed += 1;
                return 0;
            }
        }
        counts.delayed += u64::from(delay_ns > 0);
        counts.reordered += u64::from(fault == Some(ReplyFault::Reordered));
        counts.duplicated += u64::from(fault == Some(ReplyFault::Duplicated));
        0
    }
}

/// Wake-up latency: the kernel's timer slack of 50 us (prctl(2)), and the wake-up itself.
const WAKE_NS: Nanos = 150_000;

/// Returns the number and the type that a query asks for; no number if the name has none.
fn asked(query: &[u8], suffix: &Name<'_>) -> (Option<u32>, Rtype) {
    let question = Message::parse(query)
        .ok()
        .and_then(|query| query.question());
    let Some(question) = question else {
        return (None, Rtype(0));
    };
    match Position::of(&question.name, suffix) {
        Some(Position::Host(address, _)) => (Some(address.into()), question.rtype),
        _ => (None, question.rtype),
    }
}

/// Reduces a reply to header, question and OPT. Sets this RCODE and, of the bits AA and TC, those of `flags`. Returns
/// its new length. The OPT record of our replies is their last record and has no options.
fn without_records(reply: &mut [u8], len: usize, flags: u8, rcode: Rcode) -> usize {
    let question = Message::parse(&reply[..len])
        .ok()
        .and_then(|reply| reply.question());
    let Some(question) = question else {
        return len;
    };
    let mut end = HEADER_LEN + question.name.wire_len() + TYPE_AND_CLASS;
    let has_opt = reply[ARCOUNT_LOW] > 0;
    if has_opt {
        reply.copy_within(len - OPT_LEN..len, end);
        end += OPT_LEN;
    }
    reply[2] = reply[2] & !AA_AND_TC | flags & (reply[2] | TC);
    reply[3] = reply[3] & 0xf0 | rcode.0;
    // ANCOUNT, NSCOUNT.
    reply[6..10].fill(0);
    end
}

/// Bits of the third octet of the header (RFC 1035 section 4.1.1).
const TC: u8 = 0x02;
const AA_AND_TC: u8 = 0x04 | TC;

/// Low octet of ARCOUNT, which is 0 or 1 in our replies.
const ARCOUNT_LOW: usize = 11;

/// Length of a question after its name.
const TYPE_AND_CLASS: usize = 4;

/// Length of an OPT record without options (RFC 6891 section 6.1.2).
const OPT_LEN: usize = 11;

#[cfg(test)]
mod tests;
