//! One connection to an upstream without its socket and clock: many queries in flight, responses in any order (RFC 7766
//! section 6.2.1.1).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use dns64_transport::clock::Nanos;

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
}

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
}

#[derive(Debug)]
struct Asked {
    ask: Ask,
    /// Number of responses on the connection before this query.
    before: usize,
}

impl Pipe {
    /// Adds a query. If its ID is in use on the connection, it is replaced by one of `ids`.
    pub(super) fn ask(&mut self, ask: Ask, mut ids: impl FnMut() -> u16) {
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
    pub(super) fn answer(&mut self) -> Result<Option<(Ask, Vec<u8>)>, Broken> {
        while let Some(mut message) = self.message()? {
            let Entry::Occupied(asked) = self.asked.entry(id(&message)) else {
                return Err(Broken::WrongId);
            };
            self.answers += 1;
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

    /// The earliest deadline of a query.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let asked = self.asked.values().flatten();
        asked.map(|asked| asked.ask.deadline).min()
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
        pipe.ask(ask(&queue, 1, 7, 10), || unreachable!());
        pipe.ask(ask(&queue, 2, 7, 10), || ids.next().unwrap());
        let questions = sent(&mut pipe);
        assert_eq!([id(&questions[0][2..]), id(&questions[1][2..])], [7, 9]);
        pipe.inbox().extend_from_slice(&questions[1]);
        pipe.inbox().extend_from_slice(&questions[0]);
        for exchange in [2, 1] {
            let (ask, message) = pipe.answer().unwrap().unwrap();
            assert_eq!((ask.exchange, id(&message)), (exchange, 7));
        }
        assert!(pipe.answer().unwrap().is_none());
        assert_eq!((pipe.in_flight(), pipe.answers()), (0, 2));
    }

    #[test]
    fn unexpected_response_breaks_the_connection() {
        let queue = Queue::new();
        let mut pipe = Pipe::default();
        pipe.ask(ask(&queue, 1, 7, 10), || 0);
        let question = sent(&mut pipe).remove(0);
        pipe.inbox().extend_from_slice(&question);
        pipe.inbox().extend_from_slice(&question);
        assert!(pipe.answer().unwrap().is_some());
        assert_eq!(pipe.answer().unwrap_err(), Broken::WrongId);
        let mut short = Pipe::default();
        short.inbox().extend_from_slice(&[0, 11]);
        assert_eq!(short.answer().unwrap_err(), Broken::Ended);
    }

    #[test]
    fn late_response_is_ignored_and_silence_ends_the_connection() {
        let queue = Queue::new();
        let mut pipe = Pipe::default();
        pipe.ask(ask(&queue, 1, 1, 10), || 0);
        pipe.ask(ask(&queue, 2, 2, 20), || 0);
        pipe.ask(ask(&queue, 3, 3, 30), || 0);
        let questions = sent(&mut pipe);
        pipe.inbox().extend_from_slice(&questions[1]);
        assert_eq!(pipe.answer().unwrap().unwrap().0.exchange, 2);
        assert!(pipe.expired(9).unwrap().is_none());
        assert_eq!(pipe.expired(10).unwrap().unwrap().exchange, 1);
        assert_eq!((pipe.in_flight(), pipe.deadline()), (1, Some(30)));
        // The late response to the first query shows the third that the connection is alive.
        pipe.inbox().extend_from_slice(&questions[0]);
        assert!(pipe.answer().unwrap().is_none());
        assert_eq!(pipe.expired(30).unwrap().unwrap().exchange, 3);
        pipe.ask(ask(&queue, 4, 4, 40), || 0);
        assert_eq!(pipe.expired(40).unwrap_err(), Broken::Ended);
        let left = pipe.into_asks();
        assert_eq!(left.iter().map(|a| a.exchange).collect::<Vec<_>>(), [4]);
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
                pipe.ask(ask(&queue, exchange, id, 10), || random.next().unwrap());
            }
            let mut answers: Vec<_> = sent(&mut pipe).into_iter().zip(0_u64..).collect();
            answers.sort_by_key(|(_, exchange)| exchange.wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ u64::from(seed) << 1));
            let mut got = Vec::new();
            let octets = answers.iter().flat_map(|(answer, _)| answer.clone()).collect::<Vec<_>>();
            for piece in octets.chunks(cut) {
                pipe.inbox().extend_from_slice(piece);
                while let Some((ask, message)) = pipe.answer().unwrap() {
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
