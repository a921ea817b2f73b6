//! One client connection without its socket and clock: received data, pending queries, data to send, and timeouts.

use std::collections::VecDeque;

use dns64_transport::clock::{Nanos, SECOND};

use super::LENGTH_LEN;
use super::places::Standing;
use crate::framed::Framed;
use crate::settings::TcpSettings;

/// Minimum length of a message: its header (RFC 1035 section 4.1.1).
const HEADER_LEN: usize = 12;

/// While more octets than this wait to be sent, no further query is accepted: one response of maximum size (RFC 1035
/// section 4.2.2).
const UNSENT_PAUSE: usize = 65_535;

/// A connection with more unsent octets than this is closed, because its client does not read.
const UNSENT_MAX: usize = 16 * UNSENT_PAUSE;

/// A worker answers each query, at least with SERVFAIL, well within this time; a connection that waits longer has lost
/// its response. Twice the 5 s timeout of stub resolvers (resolv.conf(5)), doubled again for slow upstreams.
const ANSWER_NS: Nanos = 20 * SECOND;

/// Reason why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client closed or reset it, after all responses that it could receive.
    Client,
    /// No complete query arrived for too long.
    Idle,
    /// The client did not read its responses.
    Unread,
    /// A worker did not answer.
    Unanswered,
    /// The received data is not DNS.
    Format,
    /// Its TLS handshake failed, or did not end in time.
    Tls,
    /// It was evicted for another.
    Full,
    /// The server shuts down.
    Drain,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Dialogue {
    limits: TcpSettings,
    /// Received data that was not passed on yet.
    inbox: Vec<u8>,
    /// Responses with their lengths, and the number of sent octets of the first.
    outbox: VecDeque<Framed>,
    written: usize,
    unsent: usize,
    /// Number of queries that a worker is processing.
    under_way: usize,
    /// Time of the last complete query or of the last complete response.
    last: Nanos,
    /// Time of the last complete response, or of the first query after all responses.
    progress: Nanos,
    /// Time since which the first response of the outbox is the first.
    first_since: Nanos,
    /// Whether the client sends no more.
    ended: bool,
    /// Whether no more queries are accepted.
    draining: bool,
}

impl Dialogue {
    pub fn new(limits: TcpSettings, now: Nanos) -> Self {
        Self {
            limits,
            inbox: Vec::new(),
            outbox: VecDeque::new(),
            written: 0,
            unsent: 0,
            under_way: 0,
            last: now,
            progress: now,
            first_since: now,
            ended: false,
            draining: false,
        }
    }

    /// The buffer for received data.
    pub fn inbox(&mut self) -> &mut Vec<u8> {
        &mut self.inbox
    }

    /// Notes that the client sends no more. It may still read.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Stops accepting queries.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// The next complete query, if there is one and it may be processed now.
    pub fn query(&self) -> Result<Option<&[u8]>, Closed> {
        let Some((length, rest)) = self.inbox.split_first_chunk::<LENGTH_LEN>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes(*length));
        if length < HEADER_LEN {
            return Err(Closed::Format);
        }
        Ok(rest.get(..length).filter(|_| self.has_room()))
    }

    /// Marks the query returned by [`Dialogue::query`] as in progress.
    pub fn taken(&mut self, len: usize, now: Nanos) {
        self.inbox.drain(..LENGTH_LEN + len);
        if self.inbox.is_empty() {
            // The memory of a large query is not kept for the small ones that follow.
            self.inbox = Vec::new();
        }
        if self.is_quiet() {
            self.progress = now;
        }
        self.under_way += 1;
        self.last = now;
    }

    /// Adds the response of a worker, with its length prefix; empty for no response.
    pub fn answered(&mut self, framed: Framed, now: Nanos) {
        self.under_way = self.under_way.saturating_sub(1);
        if framed.is_empty() {
            return;
        }
        if self.outbox.is_empty() {
            self.first_since = now;
        }
        self.unsent += framed.len();
        self.outbox.push_back(framed);
    }

    /// The data to send next.
    pub fn unsent(&self) -> Option<&[u8]> {
        self.outbox.front().map(|first| &first[self.written..])
    }

    /// Marks `len` octets of [`Dialogue::unsent`] as sent.
    pub fn sent(&mut self, len: usize, now: Nanos) {
        self.written += len;
        self.unsent -= len;
        if self
            .outbox
            .front()
            .is_some_and(|first| first.len() <= self.written)
        {
            self.outbox.pop_front();
            self.written = 0;
            self.last = now;
            self.progress = now;
            self.first_since = now;
        }
    }

    /// Whether more queries should be read.
    pub fn wants_queries(&self) -> bool {
        !self.ended && self.has_room()
    }

    fn has_room(&self) -> bool {
        !self.draining
            && self.unsent <= UNSENT_PAUSE
            && self.under_way + self.outbox.len() < self.limits.pipeline_max
    }

    fn is_quiet(&self) -> bool {
        self.under_way == 0 && self.outbox.is_empty()
    }

    /// Whether responses are pending, and the time of the last progress.
    pub(super) fn standing(&self) -> Standing {
        Standing {
            busy: !self.is_quiet(),
            since: self.progress,
        }
    }

    /// The deadline of the connection, and the reason for closing it then.
    pub fn deadline(&self) -> (Nanos, Closed) {
        let idle_ns = self.limits.idle_ns;
        if !self.outbox.is_empty() {
            (self.first_since.saturating_add(idle_ns), Closed::Unread)
        } else if self.under_way > 0 {
            let answer_ns = idle_ns.max(ANSWER_NS);
            (self.last.saturating_add(answer_ns), Closed::Unanswered)
        } else {
            (self.last.saturating_add(idle_ns), Closed::Idle)
        }
    }

    /// Whether and why the connection has ended. To be called after all available queries were taken.
    pub fn over(&self, now: Nanos) -> Option<Closed> {
        let (deadline, reason) = self.deadline();
        if self.unsent > UNSENT_MAX {
            Some(Closed::Unread)
        } else if now >= deadline {
            Some(reason)
        } else if self.is_quiet() && self.draining {
            Some(Closed::Drain)
        } else if self.is_quiet() && self.ended && !matches!(self.query(), Ok(Some(_))) {
            Some(Closed::Client)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framed::Held;

    const LIMITS: TcpSettings = TcpSettings {
        connections_max: 1,
        per_client_max: 1,
        idle_ns: SECOND,
        pipeline_max: 2,
    };

    fn framed(len: usize) -> Framed {
        Held::default().frame(&vec![7; len]).unwrap()
    }

    #[test]
    fn incomplete_query_waits() {
        let mut dialogue = Dialogue::new(LIMITS, 0);
        for &byte in framed(12).iter() {
            assert_eq!(dialogue.query(), Ok(None));
            dialogue.inbox().push(byte);
        }
        assert_eq!(dialogue.query(), Ok(Some(&[7; 12][..])));
        dialogue.taken(12, 0);
        assert_eq!(dialogue.query(), Ok(None));
    }

    #[test]
    fn length_below_a_header_is_refused_immediately() {
        let mut dialogue = Dialogue::new(LIMITS, 0);
        dialogue.inbox().extend([0, 11]);
        assert_eq!(dialogue.query(), Err(Closed::Format));
    }

    #[test]
    fn full_pipeline_resumes_after_a_response_was_sent() {
        let mut dialogue = Dialogue::new(LIMITS, 0);
        for _ in 0..3 {
            dialogue.inbox().extend_from_slice(&framed(20));
        }
        for _ in 0..2 {
            assert!(dialogue.query().unwrap().is_some());
            dialogue.taken(20, 0);
        }
        assert_eq!(dialogue.query(), Ok(None));
        assert!(!dialogue.wants_queries());
        dialogue.answered(framed(30), 5);
        assert_eq!(dialogue.query(), Ok(None), "the answer is unsent");
        dialogue.sent(31, 6);
        assert_eq!(dialogue.query(), Ok(None), "an octet is missing");
        dialogue.sent(1, 7);
        assert!(dialogue.query().unwrap().is_some());
    }

    #[test]
    fn incomplete_queries_do_not_keep_the_connection_open() {
        let mut dialogue = Dialogue::new(LIMITS, 0);
        dialogue.inbox().extend([1, 0, 7, 7]);
        assert_eq!(dialogue.over(SECOND - 1), None);
        dialogue.inbox().push(7);
        assert_eq!(dialogue.over(SECOND), Some(Closed::Idle));
    }

    #[test]
    fn pending_query_is_not_idle_but_has_a_timeout() {
        let mut dialogue = Dialogue::new(LIMITS, 0);
        dialogue.inbox().extend_from_slice(&framed(12));
        dialogue.taken(12, 0);
        dialogue.inbox().extend_from_slice(&framed(12));
        dialogue.taken(12, SECOND);
        let busy = |since| Standing { busy: true, since };
        // A further query is not progress.
        assert_eq!(dialogue.standing(), busy(0));
        assert_eq!(dialogue.over(2 * SECOND), None);
        assert_eq!(dialogue.over(SECOND + ANSWER_NS), Some(Closed::Unanswered));
        dialogue.answered(framed(12), 2 * SECOND);
        assert_eq!(dialogue.over(3 * SECOND), Some(Closed::Unread));
        dialogue.sent(14, 3 * SECOND);
        assert_eq!(dialogue.standing(), busy(3 * SECOND));
        dialogue.answered(Held::default().frame(&[]).unwrap(), 4 * SECOND);
        let idle = Standing {
            busy: false,
            since: 3 * SECOND,
        };
        assert_eq!(dialogue.standing(), idle);
        assert_eq!(dialogue.over(3 * SECOND), None);
    }

    #[test]
    fn half_closed_connection_remains_until_its_responses_are_sent() {
        let mut dialogue = Dialogue::new(LIMITS, 0);
        dialogue.inbox().extend_from_slice(&framed(12));
        dialogue.end();
        assert_eq!(dialogue.over(0), None, "a query waits");
        dialogue.taken(12, 0);
        assert_eq!(dialogue.over(0), None, "an answer is unsent");
        dialogue.answered(Held::default().frame(&[]).unwrap(), 0);
        assert_eq!(dialogue.over(0), Some(Closed::Client), "there is no answer");
    }

    #[test]
    fn client_that_does_not_read_fills_a_bounded_queue() {
        let limits = TcpSettings {
            pipeline_max: 1000,
            ..LIMITS
        };
        let mut dialogue = Dialogue::new(limits, 0);
        for _ in 0..2 {
            dialogue.answered(framed(60_000), 0);
        }
        assert!(!dialogue.wants_queries());
        assert_eq!(dialogue.over(0), None);
        for _ in 0..16 {
            dialogue.answered(framed(65_535), 0);
        }
        assert_eq!(dialogue.over(0), Some(Closed::Unread));
    }

    #[test]
    fn draining_ends_the_connection_after_the_last_response() {
        let mut dialogue = Dialogue::new(LIMITS, 0);
        dialogue
            .inbox()
            .extend([&framed(12)[..], &framed(12)].concat());
        dialogue.taken(12, 0);
        dialogue.drain();
        assert_eq!(dialogue.query(), Ok(None));
        assert_eq!(dialogue.over(0), None);
        dialogue.answered(framed(12), 0);
        dialogue.sent(14, 0);
        assert_eq!(dialogue.over(0), Some(Closed::Drain));
    }
}
