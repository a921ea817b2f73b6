//! Simultaneous queries to the engines of several workers.

use dns64_transport::Origin;
use dns64_transport::clock::SECOND;
use dns64_wire::message::{HEADER_LEN, Message};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::counts::Counts;
use crate::engine::Seeds;
use crate::engine::actions::{Action, Client};
use crate::settings::Settings;

const MILLISECOND: Nanos = SECOND / 1000;

/// Expiry of the claim of the worker that queried at the start.
const CLAIM_OVER: Nanos = SECOND;

/// A sent query: the port and the message.
type Sent = (usize, Vec<u8>);

/// Three workers with one upstream.
struct Workers {
    cache: Arc<Cache>,
    engines: Vec<Option<Engine>>,
    actions: Actions,
    /// The queries to upstreams and their workers.
    asked: Vec<(usize, Sent)>,
    /// Response code and TTL of the responses to clients, and their workers.
    answers: Vec<(usize, u16, Option<u32>)>,
    /// Pending outcomes for workers.
    letters: Vec<(usize, Arc<Outcome>)>,
}

fn settings(more: &str) -> Settings {
    let text = format!(
        "allow = [\"0.0.0.0/0\"]\n{more}\n[upstream]\nservers = [\"192.0.2.53\"]\nattempts = 1\n"
    );
    crate::config::parse(&text, "test").unwrap()
}

/// A query for A of a name of one letter.
fn query(name: u8) -> Vec<u8> {
    [
        b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01",
        &[name][..],
        b"\0\0\x01\0\x01",
    ]
    .concat()
}

/// The response to a query: with a record of this TTL, or a failure.
fn answer(question: &[u8], ttl_s: Option<u32>) -> Vec<u8> {
    let mut message = question[..HEADER_LEN + 7].to_vec();
    message[2] |= 0x80;
    message[10..12].fill(0);
    match ttl_s {
        Some(ttl_s) => {
            message[7] = 1;
            message.extend_from_slice(b"\xc0\x0c\0\x01\0\x01");
            message.extend_from_slice(&ttl_s.to_be_bytes());
            message.extend_from_slice(b"\0\x04\xc0\0\x02\x01");
        }
        None => message[3] |= 2,
    }
    message
}

/// The engine of a worker.
fn engine(settings: &Settings, cache: &Arc<Cache>, worker: u8) -> Engine {
    let seeds = Seeds {
        random: [worker; 32],
        cookies: [0; 16],
    };
    let engine = Engine::new(settings, Arc::clone(cache), Arc::default(), &seeds);
    engine.share(worker.into(), &Arc::new(RateLimiter::new(1)))
}

impl Workers {
    fn new(settings: &Settings) -> Self {
        let cache = Arc::new(Cache::new(&settings.cache, None));
        Self {
            engines: (0..3)
                .map(|worker| Some(engine(settings, &cache, worker)))
                .collect(),
            cache,
            actions: Actions::default(),
            asked: Vec::new(),
            answers: Vec::new(),
            letters: Vec::new(),
        }
    }

    /// Calls the engine of a worker, and records its actions.
    fn turn(&mut self, worker: usize, what: impl FnOnce(&mut Engine, &mut Actions)) {
        let actions = &mut self.actions;
        actions.clear();
        what(self.engines[worker].as_mut().unwrap(), actions);
        for action in actions.list() {
            match action {
                Action::Ask { port, message, .. } => {
                    let question = actions.message(message).to_vec();
                    self.asked.push((worker, (*port, question)));
                }
                Action::Reply { message, .. } => {
                    let message = Message::parse(actions.message(message)).unwrap();
                    let record = message.records().next();
                    let ttl = record.map(|record| record.unwrap().ttl);
                    self.answers.push((worker, message.rcode().0.into(), ttl));
                }
                Action::Tell { worker, outcome } => {
                    self.letters.push((*worker, Arc::clone(outcome)));
                }
                Action::ClosePort { .. } | Action::Servfail { .. } | Action::Turn { .. } => {}
                // Responses to queries of the previous engine look like guesses; TCP does not
                // respond.
                Action::AskConnection { .. } => {}
            }
        }
    }

    /// Sends a client's query to a worker; returns whether it is answered at once.
    fn query(&mut self, worker: usize, name: u8, now: Nanos) -> bool {
        let client = Client::Udp(Origin::new(([192, 0, 2, 1], 1024).into()));
        let mut frame = [0; dns64_transport::FRAME_BYTES];
        let mut len = 0;
        self.turn(worker, |engine, actions| {
            len = engine.on_query(client, &query(name), &mut frame, now, actions);
        });
        len > 0
    }

    /// Sends the upstream's response to the oldest query.
    fn answer(&mut self, ttl_s: Option<u32>, now: Nanos) {
        let (worker, (port, question)) = self.asked.remove(0);
        let message = answer(&question, ttl_s);
        self.turn(worker, |engine, actions| {
            engine.on_reply(0, port, &message, now, actions);
        });
    }

    fn on_timer(&mut self, worker: usize, now: Nanos) {
        self.turn(worker, |engine, actions| engine.on_timer(now, actions));
    }

    fn reload(&mut self, worker: usize, settings: &Settings, now: Nanos) {
        self.turn(worker, |engine, actions| {
            engine.reload(settings, now, actions);
        });
    }

    /// Delivers the pending outcomes, and those that follow from them.
    fn deliver(&mut self, now: Nanos) {
        while let Some((worker, outcome)) = self.letters.pop() {
            self.turn(worker, |engine, actions| {
                engine.on_outcome(&outcome, now, actions);
            });
        }
    }

    fn counts(&self, worker: usize) -> &Counts {
        self.engines[worker].as_ref().unwrap().counts()
    }

    /// The workers that sent queries, in order.
    fn askers(&self) -> Vec<usize> {
        self.asked.iter().map(|(worker, _)| *worker).collect()
    }

    /// The responses to clients by worker.
    fn answers(&self) -> Vec<(usize, u16, Option<u32>)> {
        let mut answers = self.answers.clone();
        answers.sort_unstable();
        answers
    }
}

#[test]
fn equal_queries_of_several_workers_share_one_upstream_query() {
    let mut workers = Workers::new(&settings(""));
    for worker in 0..3 {
        assert!(!workers.query(worker, b'a', 0));
        workers.on_timer(worker, 0);
    }
    assert_eq!(workers.askers(), [0]);
    let figures = |worker| {
        let counts = workers.counts(worker);
        (counts.coalesced.get(), counts.lookups_in_flight.get())
    };
    assert_eq!([0, 1, 2].map(figures), [(0, 1), (1, 0), (1, 0)]);
    workers.answer(Some(60), 5 * MILLISECOND);
    workers.deliver(5 * MILLISECOND);
    let all = [0, 1, 2].map(|worker| (worker, 0, Some(60)));
    assert_eq!(workers.answers(), all);
    let engines: Vec<_> = workers.engines.iter().flatten().collect();
    assert!(engines.iter().all(|engine| engine.is_idle()));
    let deadlines: Vec<_> = engines.iter().map(|e| e.next_deadline()).collect();
    let port_is_old = Some(10 * SECOND);
    assert_eq!(deadlines, [port_is_old, None, None]);
    assert!(workers.query(1, b'a', SECOND));
}

#[test]
fn failures_and_uncached_responses_are_sent_to_waiting_workers() {
    for (ttl_s, rcode) in [(Some(0), 0), (None, 2)] {
        let mut workers = Workers::new(&settings(""));
        for worker in [0, 1] {
            workers.query(worker, b'a', 0);
        }
        workers.answer(ttl_s, 5 * MILLISECOND);
        workers.deliver(5 * MILLISECOND);
        assert_eq!(workers.answers(), [(0, rcode, ttl_s), (1, rcode, ttl_s)]);
        assert_eq!(workers.askers(), [0; 0]);
    }
}

#[test]
fn stale_outcome_is_for_waiting_workers_only() {
    let mut workers = Workers::new(&settings("[cache]\nserve-stale = \"1h\""));
    workers.query(0, b'a', 0);
    workers.answer(Some(1), 0);
    let (asked, over) = (10 * SECOND, 10 * SECOND + CLAIM_OVER);
    for worker in 0..3 {
        assert!(!workers.query(worker, b'a', asked));
    }
    workers.on_timer(1, over);
    assert_eq!(workers.askers(), [0, 1]);
    workers.answer(None, over);
    workers.deliver(over);
    let mut expected = vec![(0, 0, Some(1)), (0, 0, Some(30))];
    assert_eq!(workers.answers(), expected);
    workers.answer(Some(60), over);
    workers.deliver(over);
    expected.extend([(1, 0, Some(60)), (2, 0, Some(60))]);
    assert_eq!(workers.answers(), expected);
}

#[test]
fn without_response_one_more_worker_queries_each_second() {
    let mut workers = Workers::new(&settings(""));
    for worker in 0..3 {
        workers.query(worker, b'a', 0);
    }
    for (now, askers) in [
        (CLAIM_OVER - 1, &[0][..]),
        (CLAIM_OVER, &[0, 1]),
        (2 * CLAIM_OVER - 1, &[0, 1]),
        (2 * CLAIM_OVER, &[0, 1, 2]),
    ] {
        for worker in [1, 2] {
            workers.on_timer(worker, now);
        }
        assert_eq!(workers.askers(), askers);
    }
    // The first response answers all.
    workers.asked.swap(0, 1);
    workers.answer(Some(60), 3 * SECOND);
    workers.deliver(3 * SECOND);
    let all = [0, 1, 2].map(|worker| (worker, 0, Some(60)));
    assert_eq!(workers.answers(), all);
    let rejected = |workers: &Workers| workers.counts(0).rejected_late.get();
    assert_eq!(rejected(&workers), 0);
    workers.answer(Some(60), 3 * SECOND);
    assert_eq!(rejected(&workers), 1);
    assert_eq!(workers.letters.len(), 0);
}

#[test]
fn lost_outcome_delays_no_client_beyond_the_claim() {
    let mut workers = Workers::new(&settings(""));
    for worker in [0, 1] {
        workers.query(worker, b'a', 0);
    }
    workers.answer(Some(0), 5 * MILLISECOND);
    assert_eq!(workers.letters.len(), 1);
    workers.letters.clear();
    let waiting = workers.engines[1].as_ref().unwrap();
    assert_eq!(waiting.next_deadline(), Some(CLAIM_OVER));
    workers.on_timer(1, CLAIM_OVER);
    assert_eq!(workers.askers(), [1]);
    workers.answer(Some(0), CLAIM_OVER);
    assert_eq!(workers.answers(), [(0, 0, Some(0)), (1, 0, Some(0))]);
}

#[test]
fn ended_engine_delays_no_client_beyond_the_claim() {
    let mut workers = Workers::new(&settings(""));
    for worker in [0, 1] {
        workers.query(worker, b'a', 0);
    }
    workers.engines[0] = None;
    // A later query does not wait.
    workers.query(2, b'a', 5 * MILLISECOND);
    assert_eq!(workers.askers(), [0, 2]);
    workers.on_timer(1, CLAIM_OVER);
    assert_eq!(workers.askers(), [0, 2], "the claim is that of 2 now");
    workers.asked.remove(0);
    workers.answer(Some(60), CLAIM_OVER);
    workers.deliver(CLAIM_OVER);
    assert_eq!(workers.answers(), [(1, 0, Some(60)), (2, 0, Some(60))]);
}

/// Lets worker 0 query a question for which only worker 1 has waiting clients, and returns the
/// time: the client of worker 0 was evicted by another query.
fn abandoned(workers: &mut Workers) -> Nanos {
    workers.query(0, b'a', 0);
    workers.query(1, b'a', 0);
    let now = 300 * MILLISECOND;
    workers.query(0, b'b', now);
    assert_eq!(workers.answers(), [(0, 2, None)]);
    assert_eq!(workers.askers(), [0, 0]);
    now
}

#[test]
fn evicted_lookup_is_continued_by_the_waiting_worker() {
    let mut workers = Workers::new(&settings("queries-max = 1"));
    let now = abandoned(&mut workers) + 300 * MILLISECOND;
    workers.query(0, b'c', now);
    assert_eq!(workers.askers(), [0, 0, 0]);
    workers.deliver(now);
    assert_eq!(workers.askers(), [0, 0, 0, 1]);
}

#[test]
fn new_upstreams_are_queried_by_one_worker() {
    let other = Settings {
        upstreams: crate::config::parse("[upstream]\nservers = [\"192.0.2.54\"]\n", "test")
            .unwrap()
            .upstreams,
        ..settings("")
    };
    let mut workers = Workers::new(&settings(""));
    for worker in 0..3 {
        workers.query(worker, b'a', 0);
    }
    for worker in [1, 0, 2] {
        workers.reload(worker, &other, MILLISECOND);
    }
    workers.deliver(MILLISECOND);
    assert_eq!(workers.askers(), [0, 0]);

    // A lookup without waiting clients at its worker is not queried again there.
    let mut workers = Workers::new(&settings("queries-max = 1"));
    let now = abandoned(&mut workers);
    for worker in [1, 0] {
        workers.reload(worker, &other, now);
    }
    workers.deliver(now);
    assert_eq!(workers.askers(), [0, 0, 0, 1]);
}

#[test]
fn expiring_response_is_refreshed_by_one_worker() {
    let mut workers = Workers::new(&settings("[cache]\nprefetch = true"));
    workers.query(0, b'a', 0);
    workers.answer(Some(60), 0);
    for worker in 0..3 {
        assert!(workers.query(worker, b'a', 57 * SECOND));
    }
    assert_eq!(workers.askers(), [0]);
    workers.answer(Some(60), 57 * SECOND);
    assert_eq!(workers.letters.len(), 0, "nobody waits for it");
    assert_eq!(workers.cache.entries(), 1);
}

/// Interval of the iterations of workers. With longer ones, a response could be half a second late,
/// which is not sent.
const STEP_NS: Nanos = 50 * MILLISECOND;

/// An event for three workers.
#[derive(Clone, Debug)]
enum Event {
    Query {
        worker: u8,
        name: u8,
    },
    Answer {
        which: Index,
        ttl_s: Option<u32>,
    },
    /// An outcome is delivered or lost.
    Letter {
        which: Index,
        lost: bool,
    },
    Time {
        steps: u64,
    },
    Reload {
        worker: u8,
        other: bool,
    },
    Panic {
        worker: u8,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let (worker, which) = (0..3_u8, any::<Index>());
    let ttl_s = prop_oneof![Just(None), Just(Some(0)), Just(Some(60))];
    prop_oneof![
        6 => (worker.clone(), b'a'..b'e').prop_map(|(worker, name)| Event::Query { worker, name }),
        2 => (which.clone(), ttl_s).prop_map(|(which, ttl_s)| Event::Answer { which, ttl_s }),
        2 => (which, prop::bool::weighted(0.2)).prop_map(|(which, lost)| Event::Letter { which, lost }),
        3 => (1..14_u64).prop_map(|steps| Event::Time { steps }),
        1 => (worker.clone(), any::<bool>()).prop_map(|(worker, other)| Event::Reload { worker, other }),
        1 => worker.prop_map(|worker| Event::Panic { worker }),
    ]
}

/// Two settings with different upstreams and few slots.
fn two_settings() -> [Settings; 2] {
    let first = settings("queries-max = 2");
    let mut other = first.clone();
    other.upstreams[0].address.set_port(5353);
    [first, other]
}

impl Workers {
    /// Applies an event.
    fn play(
        &mut self,
        event: &Event,
        settings: &[Settings; 2],
        waiting: &mut [i64; 3],
        now: &mut Nanos,
    ) {
        match event {
            Event::Query { worker, name } => {
                let worker = usize::from(*worker);
                waiting[worker] += i64::from(!self.query(worker, *name, *now));
            }
            Event::Answer { which, ttl_s } => {
                if !self.asked.is_empty() {
                    let count = self.asked.len();
                    self.asked.swap(0, which.index(count));
                    self.answer(*ttl_s, *now);
                }
            }
            Event::Letter { which, lost } => {
                if !self.letters.is_empty() {
                    let count = self.letters.len();
                    let (worker, outcome) = self.letters.swap_remove(which.index(count));
                    if !lost {
                        self.turn(worker, |engine, actions| {
                            engine.on_outcome(&outcome, *now, actions)
                        });
                    }
                }
            }
            Event::Time { steps } => {
                for _ in 0..*steps {
                    *now += STEP_NS;
                    for worker in 0..3 {
                        self.on_timer(worker, *now);
                    }
                }
            }
            Event::Reload { worker, other } => {
                self.reload((*worker).into(), &settings[usize::from(*other)], *now);
            }
            Event::Panic { worker } => {
                let index = usize::from(*worker);
                waiting[index] = 0;
                let new = engine(&settings[0], &self.cache, *worker);
                self.engines[index] = Some(new);
            }
        }
        for (worker, ..) in self.answers.drain(..) {
            waiting[worker] -= 1;
        }
    }
}

proptest! {
    /// Whatever is lost: every client has its response after 4.5 s, and no claim outlives its
    /// lookup.
    #[test]
    fn every_query_is_answered_and_no_claim_is_left(events in prop::collection::vec(event(), 0..80)) {
        let settings = two_settings();
        let mut workers = Workers::new(&settings[0]);
        let (mut waiting, mut now) = ([0; 3], 1000 * SECOND);
        for event in events {
            workers.play(&event, &settings, &mut waiting, &mut now);
        }
        for (seconds, claims_max) in [(5, usize::MAX), (15, 0)] {
            let time = Event::Time { steps: seconds * SECOND / STEP_NS };
            workers.play(&time, &settings, &mut waiting, &mut now);
            prop_assert_eq!(waiting, [0; 3]);
            prop_assert!(workers.cache.in_flight().len() <= claims_max);
        }
        for engine in workers.engines.iter().flatten() {
            prop_assert_eq!(engine.next_deadline(), None);
        }
    }
}
