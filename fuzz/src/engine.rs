//! Checks that hold for an engine, whatever clients, upstreams and the clock do. The fuzz target
//! `engine` and the test that replays its corpus use them.
//!
//! An input is an octet that selects the settings, and then events: see [`Run::event`].

#[path = "engine_input.rs"]
mod input;
#[path = "engine_model.rs"]
mod model;

use std::sync::Arc;
use std::sync::OnceLock;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::{FRAME_BYTES, Origin};
use dns64d::cache::Cache;
use dns64d::counts::Counts;
use dns64d::engine::actions::{Action, Actions, Client};
use dns64d::engine::{DEADLINE_NS, Engine, Seeds};
use dns64d::health::Turn;
use dns64d::mailbox::ConnectionFailed;
use dns64d::settings::Settings;

use input::Input;
use model::Model;

/// Settings with different behaviour of the engine. All caches are small, so that they become full.
const SETTINGS: [&str; 6] = [
    "forward-special = [\"2.0.192.in-addr.arpa\"]\n[upstream]\nservers = [\"192.0.2.53\"]\n[cache]\nsize = \"1MiB\"\n",
    "queries-max = 3\nany = \"forward\"\n[upstream]\nservers = [\"192.0.2.53\", \"192.0.2.54\"]\n\
     order = \"both\"\nrandomise-case = true\nselection = \"random\"\n[cache]\nsize = \"off\"\n",
    "udp-size = 4096\n[upstream]\nservers = [\"192.0.2.53\", \"192.0.2.54\", \"192.0.2.55\"]\n\
     order = \"delayed\"\ndelay = \"20ms\"\nselection = \"round-robin\"\nattempts = 2\n\
     [dns64]\nexclude-aaaa = [\"2000::/4\"]\nforce-domains = [\"force.example\"]\n\
     exclude-domains = [\"exclude.example\"]\nmark-synthesised = true\n\
     [cache]\nsize = \"1MiB\"\nserve-stale = \"1d\"\nprefetch = true\n",
    "any = \"refuse\"\n[upstream]\nservers = [\"192.0.2.53\"]\norder = \"both\"\nattempts = 1\n\
     [dns64]\nptr = \"local\"\nptr-name = \"nat64.example\"\nsynthesise-signed = \"always\"\nprefix = \"2001:db8::/32\"\n\
     [cache]\nsize = \"1MiB\"\nserve-stale = \"1h\"\nmin-ttl = \"60s\"\nmax-ttl = \"600s\"\n",
    "allow = [\"127.0.0.0/8\", \"10.0.0.0/9\"]\n[upstream]\nservers = [\"192.0.2.53\"]\n\
     [cache]\nsize = \"1MiB\"\nprefetch = true\n[rate-limit]\nresponses-per-second = 1\nburst = 4\n",
    "[upstream]\nservers = [\"192.0.2.53\", \"192.0.2.54\"]\nselection = \"failover\"\norder = \"delayed\"\n\
     delay = \"1ms\"\n[dns64]\nenabled = false\n[[view]]\nclients = [\"10.0.0.0/8\"]\n\
     dns64 = { enabled = true, exclude-aaaa = [\"::/0\"] }\n[cache]\nsize = \"1MiB\"\nserve-stale = \"1d\"\n",
];

/// Largest number of events in a run: more find nothing new and are slower.
const EVENTS_MAX: usize = 64;

/// Largest number of deadlines at the end of a run. Each query has four, each upstream query at
/// most 16 attempts on each of three servers with two deadlines each, and there are fewer of both
/// than events.
const DEADLINES_MAX: usize = 1 << 14;

/// All settings, parsed once.
fn settings() -> &'static [Settings] {
    static SETTINGS_READ: OnceLock<Vec<Settings>> = OnceLock::new();
    SETTINGS_READ.get_or_init(|| {
        let read = |text: &&str| {
            let more = "workers = 1\n";
            dns64d::config::parse(&format!("{more}{text}"), "fuzz").expect("a good configuration")
        };
        SETTINGS.iter().map(read).collect()
    })
}

/// Runs an engine with the events and panics if a property is violated.
pub(crate) fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut run = Run::new(input.choose(settings()));
    for _ in 0..EVENTS_MAX {
        if input.is_empty() {
            break;
        }
        run.event(&mut input);
    }
    run.wind_up();
}

struct Run {
    engine: Engine,
    cache: Arc<Cache>,
    counts: Arc<Counts>,
    actions: Actions,
    now: Nanos,
    model: Model,
}

impl Run {
    fn new(settings: &Settings) -> Self {
        let counts = Arc::new(Counts::default());
        let seeds = Seeds {
            random: [7; 32],
            cookies: [9; 16],
        };
        let now = 1000 * SECOND;
        let cache = Arc::new(Cache::new(&settings.cache, None));
        Self {
            engine: Engine::new(settings, Arc::clone(&cache), Arc::clone(&counts), &seeds),
            cache,
            counts,
            actions: Actions::default(),
            now,
            model: Model::new(settings),
        }
    }

    /// Runs one event, which an octet selects.
    fn event(&mut self, input: &mut Input<'_>) {
        self.actions.clear();
        match input.octet() % 12 {
            0..3 => {
                let message = input.query();
                self.query(input, &message);
            }
            3 => {
                let message = input.raw();
                self.query(input, &message);
            }
            4 => self.reply(input, 1),
            5 => {
                // After the deadline of all queries, perhaps before a timer has run.
                self.now += DEADLINE_NS;
                if input.octet() & 1 == 0 {
                    self.engine.on_timer(self.now, &mut self.actions);
                    self.settle();
                    self.model.check_places(self.now, &self.counts);
                    self.actions.clear();
                }
                self.reply(input, 1);
            }
            6 => self.reply(input, 2),
            7 if input.octet() & 3 == 0 => self.unreachable(input),
            7 => self.connection(input),
            8 => {
                let (server, port) = (input.octet() % 3, input.octet() % 64);
                let message = input.raw();
                self.model.heard(&message);
                let server = usize::from(server) % self.engine.settings().upstreams.len();
                let (now, actions) = (self.now, &mut self.actions);
                self.engine
                    .on_reply(server, port.into(), &message, now, actions);
            }
            9 | 10 => {
                // From 1 ms to an hour.
                let step = input.octet();
                let unit = [1_000_000, 30_000_000, SECOND, 15 * SECOND][usize::from(step % 4)];
                self.now += unit * Nanos::from(step);
                self.engine.on_timer(self.now, &mut self.actions);
                // Every query that is older than the deadline has its response, and its slot is
                // free.
                self.settle();
                self.model.check_places(self.now, &self.counts);
                return;
            }
            _ => {
                let settings = input.choose(settings());
                self.model.reloaded(settings);
                self.engine.reload(settings, self.now, &mut self.actions);
                if input.octet() == 0 {
                    self.cache.flush(None);
                }
            }
        }
        self.settle();
    }

    fn query(&mut self, input: &mut Input<'_>, message: &[u8]) {
        let kind = input.octet();
        let address = self.model.next_client(kind);
        let client = if kind & 1 == 0 {
            Client::Udp(Origin::new(address))
        } else {
            Client::Tcp {
                connection: address.port().into(),
                address,
                tls: kind & 2 != 0,
            }
        };
        let settings = self.engine.settings();
        self.model.asked(client, message, self.now, settings);
        let (now, actions) = (self.now, &mut self.actions);
        let mut frame = [0; FRAME_BYTES];
        let len = self
            .engine
            .on_query(client, message, &mut frame, now, actions);
        if len > 0 {
            self.model.answered(client, &frame[..len]);
        }
    }

    /// Sends a response to a UDP query, which may be finished, this many times.
    fn reply(&mut self, input: &mut Input<'_>, times: usize) {
        let Some((server, port, question)) = input.choose_from_end(&self.model.datagrams) else {
            return;
        };
        let (server, port) = (*server, *port);
        let message = input.response_to(question);
        self.model.heard(&message);
        for _ in 0..times {
            let (now, actions) = (self.now, &mut self.actions);
            self.engine.on_reply(server, port, &message, now, actions);
        }
    }

    /// Reports an upstream as unreachable, for a query that may be finished.
    fn unreachable(&mut self, input: &mut Input<'_>) {
        if let Some((server, port, _)) = input.choose_from_end(&self.model.datagrams) {
            let (now, actions) = (self.now, &mut self.actions);
            self.engine.on_unreachable(*server, *port, now, actions);
        }
    }

    fn connection(&mut self, input: &mut Input<'_>) {
        let Some((exchange, question)) = input.choose_from_end(&self.model.connections) else {
            return;
        };
        let (exchange, message) = (*exchange, input.response_to(question));
        self.model.heard(&message);
        let message = if input.octet() & 3 == 0 {
            Err(ConnectionFailed::Unanswered)
        } else {
            Ok(message.as_slice())
        };
        let (now, actions) = (self.now, &mut self.actions);
        self.engine.on_connection(exchange, message, now, actions);
    }

    /// Checks and records the actions of the engine.
    fn settle(&mut self) {
        for action in self.actions.list() {
            match action {
                Action::Reply { to, message, .. } => {
                    self.model.answered(*to, self.actions.message(message));
                }
                Action::Ask {
                    server,
                    port,
                    message,
                } => {
                    let message = self.actions.message(message);
                    self.model.sent(*server, *port, message);
                }
                Action::AskConnection {
                    server,
                    exchange,
                    message,
                    ..
                } => {
                    let message = self.actions.message(message);
                    self.model.sent_connection(*server, *exchange, message);
                }
                Action::ClosePort { server, port } => self.model.closed_port(*server, *port),
                // It only reports a response.
                Action::Servfail { .. } => {}
                Action::Tell { worker, .. } => panic!("there is no worker {worker}"),
                Action::Turn { server, turn } => match turn {
                    Turn::Down(_) => self.model.turned(*server, true),
                    Turn::Up { .. } => self.model.turned(*server, false),
                    Turn::Lacks(_) => {}
                },
            }
        }
        self.model.check_bounds(&self.counts, &self.cache);
    }

    /// Advances the clock until no timer is left: by then all queries must be answered.
    fn wind_up(&mut self) {
        for _ in 0..DEADLINES_MAX {
            let Some(deadline) = self.engine.next_deadline() else {
                break;
            };
            self.now = self.now.max(deadline);
            self.actions.clear();
            self.engine.on_timer(self.now, &mut self.actions);
            self.settle();
        }
        assert_eq!(self.engine.next_deadline(), None, "deadlines without end");
        assert!(self.engine.is_idle(), "a query waits without a timer");
        self.actions.clear();
        self.engine.on_timer(self.now, &mut self.actions);
        assert_eq!(self.counts.lookups_in_flight.get(), 0);
        self.model.check_all_answered(&self.counts);
    }
}
