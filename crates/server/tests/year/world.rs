//! The simulation: events in order of time, and the engines between clients and upstreams.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use dns64_transport::clock::{Nanos, SECOND};
use dns64d::cache::{Cache, Outcome, choose_hash_key};
use dns64d::counts::Counts;
use dns64d::engine::actions::{Action, Actions};
use dns64d::engine::rate_limit::RateLimiter;
use dns64d::engine::{Engine, Seeds};
use dns64d::framed::Held;
use dns64d::mailbox::ConnectionFailed;
use dns64d::settings::Settings;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::clients::Clients;
use super::connections::Connection;
use super::faults::{Fault, Planted};
use super::laws::{Expiry, Holds, Law, require};
use super::operator;
use super::truth;
use super::upstreams::{Mode, SERVERS, Sent, over_connection, over_udp};

pub(crate) const WORKERS: usize = 2;

/// At 0, an age that is too small would not be detected.
const BEGINNING: Nanos = 1000 * SECOND;

/// Upstreams are healthy for this long before the world counts as calm: one that was down is tried again within 30 s.
const CONVALESCENCE_NS: Nanos = 60 * SECOND;

/// After the last query: nothing is asked from the first time to the second. Questions end after 10 s.
const QUIET_AFTER_NS: Nanos = 20 * SECOND;
const END_AFTER_NS: Nanos = 80 * SECOND;

/// The way of a question to an upstream, and of its response back.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Port { server: usize, port: usize },
    Connection { exchange: u64 },
}

pub(crate) enum Event {
    /// Clients ask.
    Load,
    /// An upstream changes its behaviour.
    Change {
        server: usize,
    },
    /// The operator, or the machine, does something.
    Operate,
    /// What an upstream sent arrives.
    Arrival {
        worker: usize,
        way: Way,
        sent: Sent,
    },
    /// A message from another worker arrives.
    Outcome {
        worker: usize,
        outcome: Arc<Outcome>,
    },
    /// A client writes to its connection, or reads from it.
    Write {
        network: u8,
    },
    Read {
        network: u8,
    },
    /// A response that a planted fault holds back.
    Late {
        key: u32,
        response: Vec<u8>,
    },
    /// A question that a planted fault repeats.
    Again {
        worker: usize,
    },
}

struct Timed {
    at: Nanos,
    number: u64,
    event: Event,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    /// The earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

pub(crate) struct World {
    pub(crate) random: StdRng,
    pub(crate) now: Nanos,
    events: BinaryHeap<Timed>,
    number: u64,
    pub(crate) settings: Settings,
    pub(crate) cache: Arc<Cache>,
    limiter: Arc<RateLimiter>,
    pub(crate) engines: Vec<Engine>,
    pub(crate) counts: Vec<Arc<Counts>>,
    actions: Actions,
    pub(crate) modes: [Mode; SERVERS],
    /// How often an upstream began to behave badly.
    pub(crate) bad_modes: usize,
    /// Since when all upstreams are healthy and nothing was disturbed.
    pub(crate) healthy_since: Option<Nanos>,
    pub(crate) clients: Clients,
    /// By network.
    pub(crate) connections: BTreeMap<u8, Connection>,
    pub(crate) held: Held,
    pub(crate) expiry: Expiry,
    pub(crate) planted: Planted,
    pub(crate) digest: u64,
    /// How often what happened.
    seen: BTreeMap<&'static str, u64>,
}

impl World {
    pub(crate) fn new(seed: u64, fault: Option<Fault>) -> Self {
        // What the cache evicts depends on it.
        choose_hash_key([6, 4]);
        let planted = Planted::new(fault);
        let settings = operator::settings(&planted, "fastest", "aaaa-then-a", false);
        let mut world = Self {
            random: StdRng::seed_from_u64(seed),
            now: BEGINNING,
            events: BinaryHeap::new(),
            number: 0,
            cache: Arc::new(Cache::new(&settings.cache, None)),
            settings,
            limiter: Arc::new(RateLimiter::new(seed)),
            engines: Vec::new(),
            counts: (0..WORKERS).map(|_| Arc::default()).collect(),
            actions: Actions::default(),
            modes: [Mode::Healthy; SERVERS],
            bad_modes: 0,
            healthy_since: Some(BEGINNING),
            clients: Clients::default(),
            connections: BTreeMap::new(),
            held: Held::default(),
            expiry: Expiry::default(),
            planted,
            digest: 0xcbf2_9ce4_8422_2325,
            seen: BTreeMap::new(),
        };
        for worker in 0..WORKERS {
            let engine = world.engine(worker);
            world.engines.push(engine);
        }
        world.after(600 * SECOND, Event::Operate);
        for server in 0..SERVERS {
            world.after(300 * SECOND, Event::Change { server });
        }
        world
    }

    /// A new engine of a worker.
    pub(crate) fn engine(&mut self, worker: usize) -> Engine {
        let seeds = Seeds {
            random: self.random.random(),
            cookies: [6; 16],
        };
        let (cache, counts) = (Arc::clone(&self.cache), Arc::clone(&self.counts[worker]));
        Engine::new(&self.settings, cache, counts, &seeds).share(worker, &self.limiter)
    }

    pub(crate) fn after(&mut self, delay: Nanos, event: Event) {
        self.number += 1;
        let (at, number) = (self.now + delay, self.number);
        self.events.push(Timed { at, number, event });
    }

    pub(crate) fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// Whether upstreams have been healthy for a while.
    pub(crate) fn is_calm(&self) -> bool {
        let since = self.healthy_since;
        since.is_some_and(|since| self.now >= since + CONVALESCENCE_NS)
    }

    /// Runs until clients have asked this many more queries, and nothing happens any more.
    pub(crate) fn run(&mut self, queries: u64) -> Holds {
        self.clients.goal = self.clients.queries + queries;
        self.after(0, Event::Load);
        loop {
            let deadline = self.next_deadline();
            let event = self.events.peek().map(|timed| timed.at);
            let timer = deadline.filter(|(at, _)| event.is_none_or(|event| *at <= event));
            let next = timer.map(|(at, _)| at).or(event);
            let end = self.clients.last_query_at + END_AFTER_NS;
            let is_over = self.clients.are_done() && next.is_none_or(|at| at > end);
            let Some(next) = next.filter(|_| !is_over) else {
                return self.end();
            };
            self.now = self.now.max(next);
            if let Some((_, worker)) = timer {
                self.turn(worker)?;
            } else if let Some(Timed { event, .. }) = self.events.pop() {
                self.happen(event)?;
            }
        }
    }

    /// The first deadline of a worker whose timers run.
    fn next_deadline(&self) -> Option<(Nanos, usize)> {
        let workers = (0..WORKERS).filter(|worker| !self.sleeps(*worker));
        let deadlines = workers.filter_map(|worker| {
            let at = self.engines[worker].next_deadline()?;
            Some((at, worker))
        });
        deadlines.min()
    }

    fn sleeps(&self, worker: usize) -> bool {
        worker == 1 && self.planted.is(Fault::SleepingTimers)
    }

    /// Calls an engine, and does what it wants.
    pub(crate) fn call(
        &mut self,
        worker: usize,
        what: impl FnOnce(&mut Engine, Nanos, &mut Actions),
    ) -> Holds {
        let mut actions = std::mem::take(&mut self.actions);
        what(&mut self.engines[worker], self.now, &mut actions);
        let holds = actions
            .list()
            .iter()
            .try_for_each(|action| self.settle(worker, action, &actions));
        actions.clear();
        self.actions = actions;
        holds
    }

    /// The turn of a worker after messages, or without one.
    pub(crate) fn turn(&mut self, worker: usize) -> Holds {
        if self.sleeps(worker) {
            return Ok(());
        }
        self.call(worker, Engine::on_timer)
    }

    fn happen(&mut self, event: Event) -> Holds {
        match event {
            Event::Load => self.load(),
            Event::Change { server } => {
                self.change(server);
                Ok(())
            }
            Event::Operate => self.operate(),
            Event::Arrival { worker, way, sent } => self.arrive(worker, way, sent),
            Event::Outcome { worker, outcome } => {
                self.call(worker, |engine, now, actions| {
                    engine.on_outcome(&outcome, now, actions);
                })?;
                self.turn(worker)
            }
            Event::Write { network } => self.write(network),
            Event::Read { network } => self.read(network),
            Event::Late { key, response } => self.heard(key, &response),
            Event::Again { worker } => {
                self.after(SECOND, Event::Again { worker });
                self.is_asked()
            }
        }
    }

    fn arrive(&mut self, worker: usize, way: Way, sent: Sent) -> Holds {
        let message = match sent {
            Sent::Truth(mut reply) => {
                let (name, rtype) = truth::asked(&reply);
                self.expiry.sent(name, rtype, self.now);
                self.planted.falsify(&mut reply);
                Some(reply)
            }
            Sent::Other(reply) => Some(reply),
            Sent::Failure => None,
        };
        self.call(worker, |engine, now, actions| match (way, &message) {
            (Way::Port { server, port }, Some(message)) => {
                engine.on_reply(server, port, message, now, actions);
            }
            (Way::Port { server, port }, None) => {
                engine.on_unreachable(server, port, now, actions);
            }
            (Way::Connection { exchange }, message) => {
                let message = message.as_deref().ok_or(ConnectionFailed::Unanswered);
                engine.on_connection(exchange, message, now, actions);
            }
        })?;
        self.turn(worker)
    }

    /// Does what an engine wants.
    fn settle(&mut self, worker: usize, action: &Action, actions: &Actions) -> Holds {
        match action {
            Action::Reply { to, message, .. } => self.respond(*to, actions.message(message)),
            Action::Ask {
                server,
                port,
                message,
            } => self.ask_upstream(worker, *server, *port, actions.message(message)),
            Action::AskConnection {
                server,
                exchange,
                message,
                ..
            } => {
                self.note("questions over connections");
                let question = actions.message(message);
                let mode = self.modes[*server];
                let (after, sent) = over_connection(mode, question, &mut self.random);
                let exchange = *exchange;
                let way = Way::Connection { exchange };
                self.after(after, Event::Arrival { worker, way, sent });
                self.is_asked()
            }
            Action::Tell { worker, outcome } => {
                // Some mailboxes are full.
                if self.random.random_range(0..100) > 0 {
                    self.note("outcomes of other workers");
                    let (worker, outcome) = (*worker, Arc::clone(outcome));
                    let delay = self.random.random_range(0..2_000_000);
                    self.after(delay, Event::Outcome { worker, outcome });
                }
                Ok(())
            }
            Action::Turn { .. } => {
                self.note("upstreams that went down or came back");
                Ok(())
            }
            // Ports and the log.
            _ => Ok(()),
        }
    }

    fn ask_upstream(
        &mut self,
        worker: usize,
        server: usize,
        port: usize,
        question: &[u8],
    ) -> Holds {
        self.note("questions");
        let way = Way::Port { server, port };
        for (after, mut sent) in over_udp(self.modes[server], question, &mut self.random) {
            if let Sent::Other(forged) = &mut sent
                && forged.ends_with(&truth::POISON)
                && self.planted.strikes(Fault::GuessedId)
            {
                forged[..2].copy_from_slice(&question[..2]);
            }
            self.after(after, Event::Arrival { worker, way, sent });
        }
        if self.planted.strikes_first(Fault::EndlessQuestion) {
            self.after(SECOND, Event::Again { worker });
        }
        self.is_asked()
    }

    /// An upstream is asked now.
    fn is_asked(&self) -> Holds {
        let quiet_from = self.clients.last_query_at + QUIET_AFTER_NS;
        let is_late = self.clients.are_done() && self.now > quiet_from;
        require(!is_late, Law::Quiet, || {
            format!("a question at {}", self.now)
        })
    }

    fn end(&mut self) -> Holds {
        self.is_bounded()?;
        self.all_are_answered_or_counted()
    }

    pub(crate) fn summary(&self) -> String {
        let days = self.now / SECOND / 86_400;
        let (clients, bad_modes, seen) = (&self.clients, self.bad_modes, &self.seen);
        format!("{days} days, {clients}, {bad_modes} disturbed upstreams, {seen:?}")
    }

    /// Whether each kind of event happened.
    pub(crate) fn has_seen_everything(&self) -> bool {
        let all = [
            "SERVFAIL",
            "answers at once",
            "answers later",
            "connections with unread responses",
            "flushes",
            "idle connections",
            "jumps of the clock",
            "outcomes of other workers",
            "questions",
            "questions over connections",
            "reloads",
            "restarts",
            "upstreams that went down or came back",
        ];
        let is_seen = |what: &&str| self.seen.contains_key(what);
        all.iter().all(is_seen) && self.bad_modes >= Mode::BAD.len()
    }
}
