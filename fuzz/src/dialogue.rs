//! Checks that hold for the TCP connection of a client, whatever the client, the worker and the
//! clock do. The fuzz target `dialogue` and the test that replays its corpus use them.
//!
//! An input is an octet for the limits, one for the number of events, two octets for each event,
//! and then the data of the client.

use std::collections::VecDeque;

use dns64_transport::clock::{Nanos, SECOND};
use dns64d::framed::Held;
use dns64d::gateway::dialogue::{Closed, Dialogue};
use dns64d::settings::TcpSettings;

/// Octets per read, and limit for those that wait besides an incomplete message.
const CHUNK_LEN: usize = 16 * 1024;

/// Length of the longest message with its length field.
const FRAME_MAX: usize = 2 + 65_535;

/// Length of the shortest message: a header (RFC 1035 section 4.1.1).
const HEADER_LEN: usize = 12;

/// Runs a dialogue with the events and panics if a property is violated.
pub(crate) fn check(bytes: &[u8]) {
    let [limits, events, rest @ ..] = bytes else {
        return;
    };
    let (events, stream) = rest.split_at(rest.len().min(2 * usize::from(*events)));
    let mut run = Run::new(usize::from(limits % 16) + 1, stream);
    for event in events.chunks(2) {
        let [kind, amount] = *event else { break };
        run.event(kind, usize::from(amount));
        if run.hand_over().is_err() || run.is_over() {
            return;
        }
    }
    run.wind_up();
}

/// A dialogue and its expected state.
struct Run<'a> {
    dialogue: Dialogue,
    held: Held,
    now: Nanos,
    pipeline_max: usize,
    /// Data that the client has not sent yet.
    to_come: &'a [u8],
    /// Data that the client has sent and the worker has not received.
    sent: VecDeque<u8>,
    under_way: usize,
    /// Responses to be sent, in order.
    answers: VecDeque<Vec<u8>>,
    given: u8,
    ended: bool,
    draining: bool,
}

impl<'a> Run<'a> {
    fn new(pipeline_max: usize, to_come: &'a [u8]) -> Self {
        let limits = TcpSettings {
            connections_max: 1,
            per_client_max: 1,
            idle_ns: 10 * SECOND,
            pipeline_max,
        };
        Self {
            dialogue: Dialogue::new(limits, 0),
            held: Held::default(),
            now: 0,
            pipeline_max,
            to_come,
            sent: VecDeque::new(),
            under_way: 0,
            answers: VecDeque::new(),
            given: 0,
            ended: false,
            draining: false,
        }
    }

    fn event(&mut self, kind: u8, amount: usize) {
        match kind % 8 {
            0..3 => self.receive(amount * amount),
            3 => self.answer(amount * amount),
            4 | 5 => self.send(amount * amount),
            6 => self.now += amount as Nanos * SECOND / 16,
            _ if amount < 4 => {
                self.draining = true;
                self.dialogue.drain();
            }
            _ if amount < 8 => {
                self.ended = true;
                self.dialogue.end();
            }
            // No response.
            _ => self.answer(0),
        }
    }

    /// Receives octets from the client, if the dialogue reads.
    fn receive(&mut self, len: usize) {
        assert!(!(self.ended && self.dialogue.wants_queries()));
        if !self.dialogue.wants_queries() {
            return;
        }
        let (come, rest) = self
            .to_come
            .split_at(len.clamp(1, CHUNK_LEN).min(self.to_come.len()));
        self.to_come = rest;
        self.sent.extend(come);
        self.dialogue.inbox().extend_from_slice(come);
    }

    /// Passes a response of the worker, or none.
    fn answer(&mut self, len: usize) {
        if self.under_way == 0 {
            return;
        }
        self.under_way -= 1;
        self.given = self.given.wrapping_add(1);
        let framed = self.held.frame(&vec![self.given; len]).expect("room");
        if !framed.is_empty() {
            self.answers.push_back(framed.to_vec());
        }
        self.dialogue.answered(framed, self.now);
    }

    /// Sends octets of responses, if there are any.
    fn send(&mut self, len: usize) {
        let first = self.answers.front().map(Vec::as_slice);
        assert_eq!(self.dialogue.unsent(), first, "answers in their order");
        let Some(first) = self.answers.front_mut() else {
            return;
        };
        let len = len.clamp(1, first.len());
        first.drain(..len);
        if first.is_empty() {
            self.answers.pop_front();
        }
        self.dialogue.sent(len, self.now);
    }

    /// Passes the available queries to the worker. It gets each query once, complete and in order.
    fn hand_over(&mut self) -> Result<(), Closed> {
        loop {
            let expected = expected(self.sent.make_contiguous());
            let query = match (self.dialogue.query(), expected) {
                (Err(reason), Err(())) => return Err(reason),
                (Ok(query), Ok(expected)) => {
                    assert!(query.is_none() || query == expected);
                    query.map(<[u8]>::len)
                }
                (got, expected) => panic!("{got:?} instead of {expected:?}"),
            };
            let Some(len) = query else { break };
            self.sent.drain(..2 + len);
            self.dialogue.taken(len, self.now);
            self.under_way += 1;
            let in_hand = self.under_way + self.answers.len();
            assert!(!self.draining && in_hand <= self.pipeline_max);
        }
        assert!(self.dialogue.inbox().len() < FRAME_MAX + CHUNK_LEN);
        Ok(())
    }

    /// Whether the connection is closed, for a valid reason.
    fn is_over(&self) -> bool {
        let (deadline, late) = self.dialogue.deadline();
        let quiet = self.under_way == 0 && self.answers.is_empty();
        let unsent: usize = self.answers.iter().map(Vec::len).sum();
        match self.dialogue.over(self.now) {
            None => assert!(self.now < deadline && !(quiet && self.draining)),
            Some(Closed::Unread) => assert!(unsent > 0),
            Some(Closed::Unanswered) => assert!(self.under_way > 0 && self.answers.is_empty()),
            Some(Closed::Idle) => assert!(quiet && late == Closed::Idle),
            Some(Closed::Drain) => assert!(quiet && self.draining),
            Some(Closed::Client) => assert!(quiet && self.ended),
            Some(reason) => panic!("{reason:?}"),
        }
        self.dialogue.over(self.now).is_some()
    }

    /// Answers all pending queries, sends all responses, and waits until the connection is idle.
    fn wind_up(mut self) {
        while self.under_way > 0 || !self.answers.is_empty() {
            self.answer(1);
            self.send(FRAME_MAX);
            if self.hand_over().is_err() || self.is_over() {
                return;
            }
        }
        self.now = self.dialogue.deadline().0;
        assert!(self.is_over(), "the connection stays open");
    }
}

/// The query at the start of the octets, if it is complete; an error if they cannot be one.
fn expected(octets: &[u8]) -> Result<Option<&[u8]>, ()> {
    match octets {
        [high, low, rest @ ..] => match usize::from(u16::from_be_bytes([*high, *low])) {
            0..HEADER_LEN => Err(()),
            length => Ok(rest.get(..length)),
        },
        _ => Ok(None),
    }
}
