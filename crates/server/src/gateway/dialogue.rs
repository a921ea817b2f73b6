//! One connection of a client without its socket and clock: what has come, what is under way, what
//! has to leave, and when it has lasted too long.

use std::collections::VecDeque;

use dns64_transport::clock::{Nanos, SECOND};

use super::LENGTH_LEN;
use super::places::Standing;
use crate::framed::Framed;
use crate::settings::TcpSettings;

/// A message without a whole header is no message (RFC 1035 section 4.1.1).
const HEADER_LEN: usize = 12;

/// While more octets than this wait to leave, no further query is taken: one answer of the largest
/// size (RFC 1035 section 4.2.2).
const UNSENT_PAUSE: usize = 65_535;

/// A connection with more octets than this that wait to leave is closed: its client does not read.
const UNSENT_MAX: usize = 16 * UNSENT_PAUSE;

/// A worker answers each query, if only with SERVFAIL, well within this time; a connection that
/// waits longer has lost its answer. Twice the 5 s after which stub resolvers give up (resolv.conf(5)),
/// and again twice for upstreams that are slow.
const ANSWER_NS: Nanos = 20 * SECOND;

/// Why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client closed or reset it, and had all its answers if it could have them.
    Client,
    /// No whole query came for too long.
    Idle,
    /// The client did not read its answers.
    Unread,
    /// A worker did not answer.
    Unanswered,
    /// What came is no DNS.
    Format,
    /// It made room for another.
    Full,
    /// The server ends.
    Drain,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Dialogue {
    limits: TcpSettings,
    /// What has come and is not yet handed over.
    inbox: Vec<u8>,
    /// Answers with their lengths, and how much of the first has left.
    outbox: VecDeque<Framed>,
    written: usize,
    unsent: usize,
    /// Queries that a worker has.
    under_way: usize,
    /// When the last whole query came or the last whole answer left.
    last: Nanos,
    /// When the last whole answer left, or the first query after all answers came.
    progress: Nanos,
    /// When the first answer of the outbox became the first.
    first_since: Nanos,
    /// The client sends no more.
    ended: bool,
    /// No query is taken any more.
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

    /// Where what comes is put.
    pub fn inbox(&mut self) -> &mut Vec<u8> {
        &mut self.inbox
    }

    /// The client sends no more. It may still read.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// No query is taken any more.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// The next whole query, if there is one and it may be worked on now.
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

    /// The query that [`Dialogue::query`] gave is under way.
    pub fn taken(&mut self, len: usize, now: Nanos) {
        self.inbox.drain(..LENGTH_LEN + len);
        if self.inbox.is_empty() {
            // What a large query needed is not kept for the small ones that follow.
            self.inbox = Vec::new();
        }
        if self.is_quiet() {
            self.progress = now;
        }
        self.under_way += 1;
        self.last = now;
    }

    /// A worker is done with a query: the answer with its length, empty if there is none.
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

    /// What has to leave next.
    pub fn unsent(&self) -> Option<&[u8]> {
        self.outbox.front().map(|first| &first[self.written..])
    }

    /// So many octets of [`Dialogue::unsent`] have left.
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

    /// Whether more queries are to be read.
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

    /// Whether answers are to come, and since when there has been no progress.
    pub(super) fn standing(&self) -> Standing {
        Standing {
            busy: !self.is_quiet(),
            since: self.progress,
        }
    }

    /// When it has lasted too long, and why.
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

    /// Whether it is over, and why. To be asked once all queries that there are were taken.
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
    fn a_query_is_whole_or_waits() {
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
    fn a_length_that_holds_no_header_is_refused_before_the_rest_comes() {
        let mut dialogue = Dialogue::new(LIMITS, 0);
        dialogue.inbox().extend([0, 11]);
        assert_eq!(dialogue.query(), Err(Closed::Format));
    }

    #[test]
    fn a_full_pipeline_reads_on_once_an_answer_has_left() {
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
        assert_eq!(dialogue.query(), Ok(None), "the answer has not left");
        dialogue.sent(31, 6);
        assert_eq!(dialogue.query(), Ok(None), "an octet is missing");
        dialogue.sent(1, 7);
        assert!(dialogue.query().unwrap().is_some());
    }

    #[test]
    fn bytes_that_make_no_query_do_not_keep_it_open() {
        let mut dialogue = Dialogue::new(LIMITS, 0);
        dialogue.inbox().extend([1, 0, 7, 7]);
        assert_eq!(dialogue.over(SECOND - 1), None);
        dialogue.inbox().push(7);
        assert_eq!(dialogue.over(SECOND), Some(Closed::Idle));
    }

    #[test]
    fn a_query_under_way_is_no_idleness_but_has_an_end() {
        let mut dialogue = Dialogue::new(LIMITS, 0);
        dialogue.inbox().extend_from_slice(&framed(12));
        dialogue.taken(12, 0);
        dialogue.inbox().extend_from_slice(&framed(12));
        dialogue.taken(12, SECOND);
        let busy = |since| Standing { busy: true, since };
        // A further query is no progress.
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
    fn a_half_closed_connection_lasts_until_its_answers_have_left() {
        let mut dialogue = Dialogue::new(LIMITS, 0);
        dialogue.inbox().extend_from_slice(&framed(12));
        dialogue.end();
        assert_eq!(dialogue.over(0), None, "a query waits");
        dialogue.taken(12, 0);
        assert_eq!(dialogue.over(0), None, "an answer is under way");
        dialogue.answered(Held::default().frame(&[]).unwrap(), 0);
        assert_eq!(dialogue.over(0), Some(Closed::Client), "there is none");
    }

    #[test]
    fn a_client_that_does_not_read_fills_a_bounded_queue() {
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
    fn draining_ends_it_with_the_last_answer() {
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
