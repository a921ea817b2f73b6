//! Queries to one upstream that wait for a connection, without sockets and clocks.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use dns64_transport::clock::Nanos;

/// Maximum number of queries to one upstream that wait, are in flight or whose response waits for a
/// worker. Each takes less than 1 KiB: 128 MiB for [`crate::settings::UPSTREAMS_MAX`] upstreams.
pub(in crate::gateway) const ASKS_MAX: usize = 4096;

/// Maximum number of connections to one upstream: 256 to all of them, a quarter of the 1,024
/// descriptors that a process may open by default.
pub(super) const CONNECTIONS_MAX: usize = 16;

/// Queries in flight on each connection before another is opened. A server should see few
/// connections (RFC 7766 section 6.2.2), but many forwarders answer the queries of one connection
/// sequentially, and eight recursions of 100 ms take as long as the timeout of [`crate::config`]
/// allows.
const SHARE: usize = 8;

/// Maximum number of queries in flight on one connection: half of [`ASKS_MAX`] on all of them.
const WINDOW_MAX: usize = 128;

/// Maximum number of connections without any response on which a query may be sent (RFC 7766
/// section 6.2.4: the query is retried when its connection closes).
const FRUITLESS_MAX: u8 = 2;

/// A query to an upstream.
#[derive(Debug)]
pub(super) struct Ask {
    /// See [`crate::mailbox::ToGateway::Ask`].
    pub worker: usize,
    pub exchange: u64,
    /// The time at which it has failed.
    pub deadline: Nanos,
    /// The message with its length prefix.
    pub framed: Vec<u8>,
    /// Number of connections that closed without any response while it was in flight on them.
    pub fruitless: u8,
    /// Whether a connection stalled while it was in flight on it.
    pub moved: bool,
    /// Its share of [`ASKS_MAX`].
    pub place: Place,
}

/// One of the [`ASKS_MAX`] places, or a slow connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Rc<Cell<usize>>);

impl Place {
    fn of(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The waiting queries, ordered by deadline, and the number of connections.
#[derive(Debug)]
pub(super) struct Queue {
    asks: Rc<Cell<usize>>,
    waiting: BTreeMap<(Nanos, u64), Ask>,
    /// Distinguishes queries with the same deadline.
    next: u64,
    /// Number of queries that the upstream answers on one connection before it closes it.
    window: usize,
    connections: usize,
    /// How many of them are slow, and get no queries for now.
    slow: Rc<Cell<usize>>,
    /// Number of connections in a row that stalled after their first response, and had no other.
    single: usize,
}

/// Number of such connections from which on each connection gets one query: the server ignores others. One can also
/// stall because of a name.
const SINGLE_MAX: usize = 2;

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            asks: Rc::default(),
            waiting: BTreeMap::new(),
            next: 0,
            window: WINDOW_MAX,
            connections: 0,
            slow: Rc::default(),
            single: 0,
        }
    }

    /// Reserves a place for another query, if one is free.
    pub(super) fn place(&self) -> Option<Place> {
        (self.asks.get() < ASKS_MAX).then(|| Place::of(&self.asks))
    }

    /// Counts a connection as slow.
    pub(super) fn slow(&self) -> Place {
        Place::of(&self.slow)
    }

    /// Enqueues a query.
    pub(super) fn push(&mut self, ask: Ask) {
        self.waiting.insert((ask.deadline, self.next), ask);
        self.next += 1;
    }

    /// The next query for a connection that has had `questions` queries, of which `in_flight` are not answered.
    pub(super) fn pop(&mut self, in_flight: usize, questions: usize) -> Option<Ask> {
        let share = SHARE.max(self.asks.get().div_ceil(CONNECTIONS_MAX));
        if in_flight >= share.min(self.window) || self.is_used_up(questions) {
            return None;
        }
        self.waiting.pop_first().map(|(_, ask)| ask)
    }

    /// A query whose deadline has passed.
    pub(super) fn expired(&mut self, now: Nanos) -> Option<Ask> {
        let first = self.waiting.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// The earliest deadline of the waiting queries.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether a connection that has had this number of queries gets no more: the server ignores others, or the next
    /// query waits for a connection of its own.
    pub(super) fn is_used_up(&self, questions: usize) -> bool {
        let next = self.waiting.first_key_value();
        questions > 0 && (self.single >= SINGLE_MAX || next.is_some_and(|(_, ask)| ask.moved))
    }

    /// Counts one more connection, if the queries need it.
    pub(super) fn open(&mut self) -> bool {
        let fast = self.connections - self.slow.get();
        let needed = self.asks.get() > fast * SHARE.min(self.window);
        let open = needed && !self.waiting.is_empty() && self.connections < CONNECTIONS_MAX;
        self.connections += usize::from(open);
        open
    }

    /// Counts a closed connection. Returns whether it was the last.
    pub(super) fn close(&mut self) -> bool {
        self.connections -= 1;
        self.connections == 0
    }

    /// Adjusts the window to the number of responses of a connection so far: a connection that
    /// answers gets more queries.
    pub(super) fn answered(&mut self, answers: usize) {
        if answers > 1 {
            self.single = 0;
        }
        if answers >= 2 * self.window {
            self.window = WINDOW_MAX.min(2 * self.window);
        }
    }

    /// Takes back the queries of a connection that stalled after this number of responses. Each waits for a connection
    /// of its own, so that none waits for another that takes long or is ignored: a moved query does not stall again.
    pub(super) fn stalled(&mut self, left: Vec<Ask>, answers: usize) {
        self.window = 1;
        self.single += usize::from(answers == 1);
        for ask in left {
            self.push(Ask { moved: true, ..ask });
        }
    }

    /// Handles the end of a connection with this number of responses and with these queries
    /// unanswered. Returns the queries that have failed; the others wait for another connection.
    pub(super) fn unanswered(&mut self, left: Vec<Ask>, answers: usize) -> Vec<Ask> {
        if left.len() > 1 {
            // The upstream answers only this number on each connection, possibly one at a time.
            self.window = answers.clamp(1, WINDOW_MAX);
        }
        let mut failed = Vec::new();
        for mut ask in left {
            ask.fruitless += u8::from(answers == 0);
            if ask.fruitless < FRUITLESS_MAX {
                self.push(ask);
            } else {
                failed.push(ask);
            }
        }
        failed
    }

    /// Fails all waiting queries, because the upstream is unreachable.
    pub(super) fn fail_all(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.waiting).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut Queue, exchange: u64, deadline: Nanos) {
        let ask = Ask {
            worker: 0,
            exchange,
            deadline,
            framed: vec![0; 14],
            fruitless: 0,
            moved: false,
            place: queue.place().unwrap(),
        };
        queue.push(ask);
    }

    fn numbers(asks: &[Ask]) -> Vec<u64> {
        asks.iter().map(|ask| ask.exchange).collect()
    }

    #[test]
    fn earliest_deadline_is_first_and_expires_first() {
        let mut queue = Queue::new();
        for (exchange, deadline) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            push(&mut queue, exchange, deadline);
        }
        assert_eq!(queue.deadline(), Some(10));
        assert!(queue.expired(9).is_none());
        assert_eq!(queue.expired(10).unwrap().exchange, 2);
        assert_eq!(queue.pop(0, 0).unwrap().exchange, 4);
        assert!(queue.pop(SHARE, 0).is_none(), "its share is used up");
        assert_eq!(numbers(&queue.fail_all()), [3, 1]);
        assert_eq!(queue.deadline(), None);
    }

    #[test]
    fn queries_are_spread_over_connections_opened_as_needed() {
        let mut queue = Queue::new();
        let mut opened = Vec::new();
        for asks in 1..=ASKS_MAX {
            push(&mut queue, 0, 0);
            if queue.open() {
                opened.push(asks);
            }
        }
        assert!(queue.place().is_none(), "the queue is full");
        assert_eq!(opened[..3], [1, SHARE + 1, 2 * SHARE + 1]);
        assert_eq!(opened.len(), CONNECTIONS_MAX);
        let taken = (0..ASKS_MAX).map_while(|in_flight| queue.pop(in_flight, 0));
        let taken: Vec<_> = taken.collect();
        assert_eq!(taken.len(), WINDOW_MAX);
        drop(taken);
        drop(queue.fail_all());
        assert!(queue.place().is_some());
        for left in (0..CONNECTIONS_MAX).rev() {
            assert_eq!(queue.close(), left == 0);
        }
    }

    #[test]
    fn query_fails_after_two_connections_without_a_response() {
        let mut queue = Queue::new();
        push(&mut queue, 1, 10);
        for _ in 0..5 {
            let ask = queue.pop(0, 0).unwrap();
            assert!(queue.unanswered(vec![ask], 3).is_empty(), "others replied");
        }
        let ask = queue.pop(0, 0).unwrap();
        assert!(queue.unanswered(vec![ask], 0).is_empty());
        let ask = queue.pop(0, 0).unwrap();
        assert_eq!(numbers(&queue.unanswered(vec![ask], 0)), [1]);
    }

    #[test]
    fn window_is_the_number_of_responses_before_a_connection_closes() {
        let mut queue = Queue::new();
        for exchange in 0..20 {
            push(&mut queue, exchange, 10);
        }
        let mut close_after = |answers| {
            let mut asked = Vec::new();
            while let Some(ask) = queue.pop(asked.len(), 0) {
                asked.push(ask);
            }
            let left = asked.split_off(answers);
            asked.into_iter().for_each(|ask| queue.push(ask));
            queue.answered(answers);
            queue.unanswered(left, answers);
            queue.window
        };
        assert_eq!(close_after(1), 1);
        assert_eq!(close_after(1), 1, "unchanged");
        // Responses of connections that stay open.
        for (answers, window) in [(1, 1), (2, 2), (3, 2), (4, 4), (1000, 8)] {
            queue.answered(answers);
            assert_eq!(queue.window, window);
        }
    }

    #[test]
    fn slow_connection_takes_no_queries_and_another_is_opened() {
        let mut queue = Queue::new();
        push(&mut queue, 1, 10);
        assert!(queue.open() && !queue.open());
        let held = queue.pop(0, 0).unwrap();
        let slow = queue.slow();
        assert!(!queue.open(), "no query waits");
        push(&mut queue, 2, 10);
        assert!(queue.open(), "the slow one does not count");
        drop((slow, held));
        assert!(!queue.open());
    }

    #[test]
    fn queries_of_a_stalled_connection_get_one_each() {
        let mut queue = Queue::new();
        for exchange in [1, 2, 3] {
            push(&mut queue, exchange, 10);
        }
        let left = (0..3).filter_map(|in_flight| queue.pop(in_flight, 0));
        let left: Vec<_> = left.collect();
        queue.stalled(left, 1);
        for _ in 0..3 {
            assert!(queue.is_used_up(1) && queue.pop(0, 1).is_none());
            assert!(queue.pop(0, 0).unwrap().moved);
        }
        push(&mut queue, 4, 10);
        assert!(queue.pop(0, 1).is_some(), "a name can take long");
    }

    #[test]
    fn connection_gets_one_query_if_two_have_ignored_the_second() {
        let mut queue = Queue::new();
        let mut ignore_second = |answers| {
            queue.answered(answers);
            queue.stalled(Vec::new(), 1);
            queue.is_used_up(1)
        };
        assert_eq!([1, 2, 1].map(&mut ignore_second), [false, false, true]);
        push(&mut queue, 1, 10);
        assert!(queue.pop(0, 1).is_none() && queue.pop(0, 0).is_some());
    }
}
