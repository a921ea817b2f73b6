//! One connection to an upstream without its socket and clock: many queries in flight, responses in any order (RFC 7766
//! section 6.2.1.1).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use dns64_transport::clock::{Nanos, SECOND};

use super::queue::Ask;
use crate::gateway::LENGTH_LEN;

/// A message has at least a header (RFC 1035 section 4.1.1).
pub(super) const HEADER_LEN: usize = 12;

/// Maximum number of failed queries on one connection whose late response is still accepted. With more of them the
/// upstream leaves most queries unanswered, and the connection is closed.
const LATE_MAX: usize = 256;

/// Reason why a connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// It was closed or reset, is silent, or sends data that is not DNS.
    Ended,
    /// A response has an ID that no query has.
    WrongId,
    /// It has not answered for [`STALL_NS`], although it could.
    Stalled,
}

/// Time without a response after which a connection gets no more queries: its minimum before TCP sends a lost segment
/// again on Linux, and longer than most recursions take. A server may answer one query after the other.
const SLOW_NS: Nanos = SECOND / 5;

/// Time without a response after which a connection is given up: its queries have another second or two on the next
/// one before clients give up. RFC 6298 section 2 takes as long for a lost SYN.
const STALL_NS: Nanos = SECOND;

/// The state of one connection.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// By the ID on the wire. `None`: the query has failed, and its response will be ignored.
    asked: HashMap<u16, Option<Asked>>,
    late: usize,
    /// Data to send.
    outbox: Vec<u8>,
    written: usize,
    inbox: Vec<u8>,
    /// Number of responses so far.
    answers: usize,
    /// Number of queries so far.
    questions: usize,
    /// Time of the last response, or of the first query that has been sent since all were answered.
    waits_since: Nanos,
}

#[derive(Debug)]
struct Asked {
    ask: Ask,
    /// Number of responses on the connection before this query.
    before: usize,
}

impl Pipe {
    /// Adds a query. If its ID is in use on the connection, it is replaced by one of `ids`.
    pub(super) fn ask(&mut self, ask: Ask, now: Nanos, mut ids: impl FnMut() -> u16) {
        if self.in_flight() == 0 {
            self.waits_since = now;
        }
        let own = id(&ask.framed[LENGTH_LEN..]);
        let mut wire = own;
        while self.asked.contains_key(&wire) {
            wire = ids();
        }
        // The length and the message are sent in one piece (RFC 7766 section 8).
        let at = self.outbox.len() + LENGTH_LEN;
        self.outbox.extend_from_slice(&ask.framed);
        self.outbox[at..][..2].copy_from_slice(&wire.to_be_bytes());
        let before = self.answers;
        self.asked.insert(wire, Some(Asked { ask, before }));
        self.questions += 1;
    }

    /// Number of queries in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.asked.len() - self.late
    }

    /// Number of responses so far.
    pub(super) fn answers(&self) -> usize {
        self.answers
    }

    /// Number of queries so far.
    pub(super) fn questions(&self) -> usize {
        self.questions
    }

    /// The data to send next; empty if there is none.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.outbox[self.written..]
    }

    /// Marks `len` octets of [`Pipe::unsent`] as sent.
    pub(super) fn sent(&mut self, len: usize) {
        self.written += len;
        if self.written == self.outbox.len() {
            self.outbox.clear();
            self.written = 0;
        }
    }

    /// The buffer for received data.
    pub(super) fn inbox(&mut self) -> &mut Vec<u8> {
        &mut self.inbox
    }

    /// The next complete response, with its query and the original ID of the query.
    pub(super) fn answer(&mut self, now: Nanos) -> Result<Option<(Ask, Vec<u8>)>, Broken> {
        while let Some(mut message) = self.message()? {
            let Entry::Occupied(asked) = self.asked.entry(id(&message)) else {
                return Err(Broken::WrongId);
            };
            self.answers += 1;
            self.waits_since = now;
            let Some(Asked { ask, .. }) = asked.remove() else {
                self.late -= 1;
                continue;
            };
            message[..2].copy_from_slice(&ask.framed[LENGTH_LEN..][..2]);
            return Ok(Some((ask, message)));
        }
        Ok(None)
    }

    /// Takes a complete message out of the inbox.
    fn message(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let Some((length, rest)) = self.inbox.split_first_chunk::<LENGTH_LEN>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes(*length));
        if length < HEADER_LEN {
            return Err(Broken::Ended);
        }
        let Some(message) = rest.get(..length).map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        self.inbox.drain(..LENGTH_LEN + length);
        Ok(Some(message))
    }

    /// The time at which a query expires, or the connection becomes slow or stalls.
    pub(super) fn deadline(&self, now: Nanos) -> Option<Nanos> {
        let asked = self.asked.values().flatten();
        let slow_at = self.waits_since + SLOW_NS;
        let slow_at = Some(slow_at).filter(|at| self.in_flight() > 0 && *at > now);
        asked
            .map(|asked| asked.ask.deadline)
            .chain(slow_at)
            .chain(self.stalls_at())
            .min()
    }

    /// Whether it has not answered for a while, so that other queries would have to wait.
    pub(super) fn is_slow(&self, now: Nanos) -> bool {
        self.in_flight() > 0 && now >= self.waits_since + SLOW_NS
    }

    /// The time at which it stalls, if others may answer its queries sooner: it has had a response, or several queries
    /// wait for each other; and some of them have not been given back by another connection before.
    fn stalls_at(&self) -> Option<Nanos> {
        let may_be_at_fault = self.answers > 0 || self.in_flight() > 1;
        let mut waiting = self.asked.values().flatten();
        let stalls = may_be_at_fault && waiting.any(|asked| !asked.ask.moved);
        stalls.then(|| self.waits_since + STALL_NS)
    }

    /// Whether it has stalled.
    pub(super) fn has_stalled(&self, now: Nanos) -> bool {
        self.stalls_at().is_some_and(|at| at <= now)
    }

    /// A query whose deadline has passed.
    ///
    /// # Errors
    ///
    /// The connection has been silent since the query was sent, or too many responses are late. The query is among
    /// those of [`Pipe::into_asks`].
    pub(super) fn expired(&mut self, now: Nanos) -> Result<Option<Ask>, Broken> {
        let is_over = |asked: &Option<Asked>| asked.as_ref().is_some_and(|a| a.ask.deadline <= now);
        let Some(over) = self.asked.values_mut().find(|asked| is_over(asked)) else {
            return Ok(None);
        };
        let silent = over.as_ref().is_some_and(|a| a.before == self.answers);
        if silent || self.late >= LATE_MAX {
            return Err(Broken::Ended);
        }
        self.late += 1;
        Ok(over.take().map(|asked| asked.ask))
    }

    /// The unanswered queries.
    pub(super) fn into_asks(self) -> Vec<Ask> {
        let asked = self.asked.into_values().flatten();
        asked.map(|asked| asked.ask).collect()
    }
}

/// The ID of a message.
fn id(message: &[u8]) -> u16 {
    message
        .first_chunk()
        .map_or(0, |id| u16::from_be_bytes(*id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::framed::framed;
    use crate::gateway::upstream::queue::Queue;

    fn ask(queue: &Queue, exchange: u64, id: u16, deadline: Nanos) -> Ask {
        let mut message = id.to_be_bytes().to_vec();
        message.resize(HEADER_LEN + 4, 1);
        Ask {
            worker: 0,
            exchange,
            deadline,
            framed: framed(&message).unwrap(),
            fruitless: 0,
            moved: false,
            place: queue.place().unwrap(),
        }
    }

    /// The messages that would be sent now.
    fn sent(pipe: &mut Pipe) -> Vec<Vec<u8>> {
        let octets = pipe.unsent().to_vec();
        pipe.sent(octets.len());
        octets
            .chunks(LENGTH_LEN + HEADER_LEN + 4)
            .map(<[u8]>::to_vec)
            .collect()
    }

    #[test]
    fn equal_ids_are_replaced_on_the_wire_and_restored() {
        let queue = Queue::new();
        let mut pipe = Pipe::default();
        let mut ids = [7, 9].into_iter();
        pipe.ask(ask(&queue, 1, 7, 10), 0, || unreachable!());
        pipe.ask(ask(&queue, 2, 7, 10), 0, || ids.next().unwrap());
        let questions = sent(&mut pipe);
        assert_eq!([id(&questions[0][2..]), id(&questions[1][2..])], [7, 9]);
        pipe.inbox().extend_from_slice(&questions[1]);
        pipe.inbox().extend_from_slice(&questions[0]);
        for exchange in [2, 1] {
            let (ask, message) = pipe.answer(0).unwrap().unwrap();
            assert_eq!((ask.exchange, id(&message)), (exchange, 7));
        }
        assert!(pipe.answer(0).unwrap().is_none());
        assert_eq!((pipe.in_flight(), pipe.answers()), (0, 2));
    }

    #[test]
    fn unexpected_response_breaks_the_connection() {
        let queue = Queue::new();
        let mut pipe = Pipe::default();
        pipe.ask(ask(&queue, 1, 7, 10), 0, || 0);
        let question = sent(&mut pipe).remove(0);
        pipe.inbox().extend_from_slice(&question);
        pipe.inbox().extend_from_slice(&question);
        assert!(pipe.answer(0).unwrap().is_some());
        assert_eq!(pipe.answer(0).unwrap_err(), Broken::WrongId);
        let mut short = Pipe::default();
        short.inbox().extend_from_slice(&[0, 11]);
        assert_eq!(short.answer(0).unwrap_err(), Broken::Ended);
    }

    #[test]
    fn late_response_is_ignored_and_silence_ends_the_connection() {
        let queue = Queue::new();
        let mut pipe = Pipe::default();
        pipe.ask(ask(&queue, 1, 1, 10), 0, || 0);
        pipe.ask(ask(&queue, 2, 2, 20), 0, || 0);
        pipe.ask(ask(&queue, 3, 3, 30), 0, || 0);
        let questions = sent(&mut pipe);
        pipe.inbox().extend_from_slice(&questions[1]);
        assert_eq!(pipe.answer(0).unwrap().unwrap().0.exchange, 2);
        assert!(pipe.expired(9).unwrap().is_none());
        assert_eq!(pipe.expired(10).unwrap().unwrap().exchange, 1);
        assert_eq!((pipe.in_flight(), pipe.deadline(SECOND)), (1, Some(30)));
        // The late response to the first query shows the third that the connection is alive.
        pipe.inbox().extend_from_slice(&questions[0]);
        assert!(pipe.answer(0).unwrap().is_none());
        assert_eq!(pipe.expired(30).unwrap().unwrap().exchange, 3);
        pipe.ask(ask(&queue, 4, 4, 40), 0, || 0);
        assert_eq!(pipe.expired(40).unwrap_err(), Broken::Ended);
        let left = pipe.into_asks();
        assert_eq!(left.iter().map(|a| a.exchange).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn connection_that_ignores_all_but_the_first_query_stalls() {
        let queue = Queue::new();
        let mut pipe = Pipe::default();
        let deadline = 9 * SECOND;
        pipe.ask(ask(&queue, 1, 1, deadline), 0, || 0);
        let question = sent(&mut pipe).remove(0);
        assert_eq!(pipe.deadline(0), Some(SLOW_NS));
        assert!(pipe.is_slow(SLOW_NS) && !pipe.is_slow(SLOW_NS - 1));
        assert!(
            !pipe.has_stalled(deadline),
            "a slow recursion, not the connection"
        );
        pipe.inbox().extend_from_slice(&question);
        assert!(pipe.answer(SECOND).unwrap().is_some());
        assert!(!pipe.is_slow(deadline), "nothing is in flight");
        pipe.ask(ask(&queue, 2, 2, deadline), 2 * SECOND, || 0);
        assert!(!pipe.is_slow(2 * SECOND));
        let stalls_at = 2 * SECOND + STALL_NS;
        assert_eq!(pipe.deadline(2 * SECOND + SLOW_NS), Some(stalls_at));
        assert!(pipe.has_stalled(stalls_at) && !pipe.has_stalled(stalls_at - 1));
    }

    #[test]
    fn queries_that_wait_for_each_other_stall_once() {
        let queue = Queue::new();
        let mut pipe = Pipe::default();
        pipe.ask(ask(&queue, 1, 1, 9 * SECOND), 0, || 0);
        pipe.ask(ask(&queue, 2, 2, 9 * SECOND), SECOND / 10, || 0);
        assert!(pipe.has_stalled(STALL_NS) && !pipe.has_stalled(STALL_NS - 1));
        let mut next = Pipe::default();
        for ask in pipe.into_asks() {
            next.ask(Ask { moved: true, ..ask }, STALL_NS, || 0);
        }
        assert!(
            !next.has_stalled(9 * SECOND),
            "they wait until their deadline"
        );
    }

    #[test]
    fn queries_that_time_out_do_not_use_up_the_ids() {
        let queue = Queue::new();
        let mut pipe = Pipe::default();
        let mut failed = 0;
        let broken = loop {
            let now = failed;
            pipe.ask(ask(&queue, 1, 1, now), now, rand::random);
            pipe.ask(ask(&queue, 2, 2, now + 1), now, rand::random);
            let questions = sent(&mut pipe);
            pipe.inbox().extend_from_slice(&questions[1]);
            assert!(pipe.answer(now).unwrap().is_some());
            match pipe.expired(now) {
                Ok(Some(_)) => failed += 1,
                Ok(None) => panic!("the first has a deadline"),
                Err(broken) => break broken,
            }
        };
        assert_eq!((broken, failed), (Broken::Ended, LATE_MAX as u64));
    }

    proptest! {
        /// Responses arrive in any order and in arbitrary pieces: each query gets its own response, once.
        #[test]
        fn each_query_gets_its_own_response(
            ids in prop::collection::vec(0_u16..5, 1..40),
            seed in any::<u16>(),
            cut in 1_usize..40,
        ) {
            let queue = Queue::new();
            let mut pipe = Pipe::default();
            // Each ID once, in an order that depends on the seed.
            let mut random = (0..).map(|n: u16| n ^ seed);
            for (&id, exchange) in ids.iter().zip(0..) {
                pipe.ask(ask(&queue, exchange, id, 10), 0, || random.next().unwrap());
            }
            let mut answers: Vec<_> = sent(&mut pipe).into_iter().zip(0_u64..).collect();
            answers.sort_by_key(|(_, exchange)| exchange.wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ u64::from(seed) << 1));
            let mut got = Vec::new();
            let octets = answers.iter().flat_map(|(answer, _)| answer.clone()).collect::<Vec<_>>();
            for piece in octets.chunks(cut) {
                pipe.inbox().extend_from_slice(piece);
                while let Some((ask, message)) = pipe.answer(0).unwrap() {
                    prop_assert_eq!(id(&message), ids[usize::try_from(ask.exchange).unwrap()]);
                    got.push(ask.exchange);
                }
            }
            let asked: Vec<_> = answers.into_iter().map(|(_, exchange)| exchange).collect();
            prop_assert_eq!(got, asked);
            prop_assert!(pipe.into_asks().is_empty());
        }
    }
}
