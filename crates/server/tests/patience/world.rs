//! Simulates clients and upstreams around an engine, on a manual clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::{FRAME_BYTES, Origin};
use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Flags, Message, Section};
use dns64_wire::name::NameBuf;
use dns64d::cache::Cache;
use dns64d::counts::Counts;
use dns64d::engine::actions::{Action, Actions, Client};
use dns64d::engine::{Engine, Seeds};
use dns64d::health::Turn;

/// Prefix of the names that no upstream answers.
const DEAD: &[u8] = b"dead";

/// Behaviour of an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// Time from a query to its response.
    pub(crate) latency: Nanos,
    /// Responses per second; queries are processed in sequence.
    pub(crate) rate: Option<u64>,
    /// Capacity of the queue of waiting queries; further ones are lost.
    pub(crate) queue: u64,
    /// Period without responses.
    pub(crate) silent: Range<Nanos>,
    /// One in this many queries is lost.
    pub(crate) lose_every: Option<u64>,
    /// Period in which it answers with this code, without the time that an answer takes.
    pub(crate) fails: Option<(Rcode, Range<Nanos>)>,
    /// The network reports the port as unreachable.
    pub(crate) refuses: bool,
    /// Number of forged responses before each UDP response, with the IDs from 1 to this.
    pub(crate) guesses: u16,
}

impl Server {
    pub(crate) fn taking(latency: Nanos) -> Self {
        Self {
            latency,
            rate: None,
            queue: u64::MAX,
            silent: 0..0,
            lose_every: None,
            fails: None,
            refuses: false,
            guesses: 0,
        }
    }
}

/// The outcome of a query.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) asked_at: Nanos,
    pub(crate) took_ns: Nanos,
    pub(crate) rcode: Option<Rcode>,
    pub(crate) is_lie: bool,
    pub(crate) dead: bool,
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) counts: Arc<Counts>,
    servers: Vec<(Server, State)>,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    number: u64,
    told: BTreeMap<u16, Told>,
    clients: u16,
    turns: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct State {
    asked: u64,
    /// Time at which all queued queries are answered.
    free_at: Nanos,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Query {
        client: u16,
        /// Number of the name.
        name: u16,
        network: u8,
        dead: bool,
        rtype: u16,
    },
    Reply {
        server: usize,
        port: usize,
        message: Vec<u8>,
    },
    Connection {
        exchange: u64,
        message: Vec<u8>,
    },
    Unreachable {
        server: usize,
        port: usize,
    },
}

/// Start of the clock. At 0, an age that is too small would not be detected.
const BEGINNING: Nanos = 1000 * SECOND;

impl World {
    pub(crate) fn new(upstream: &str, servers: Vec<Server>) -> Self {
        Self::with("", upstream, servers)
    }

    /// Creates a world with settings at the top level and in `[upstream]`.
    pub(crate) fn with(top: &str, upstream: &str, servers: Vec<Server>) -> Self {
        let addresses: Vec<_> = (1..=servers.len())
            .map(|i| format!("\"192.0.2.{i}\""))
            .collect();
        let addresses = addresses.join(", ");
        let text = format!(
            "workers = 1\nallow = [\"0.0.0.0/0\"]\n{top}\n[upstream]\nservers = [{addresses}]\n{upstream}\n"
        );
        let settings = dns64d::config::parse(&text, "test").unwrap();
        let counts = Arc::new(Counts::default());
        let seeds = Seeds {
            random: [5; 32],
            cookies: [6; 16],
        };
        Self {
            engine: Engine::new(
                &settings,
                Arc::new(Cache::new(&settings.cache, None)),
                Arc::clone(&counts),
                &seeds,
            ),
            counts,
            servers: servers.into_iter().map(|s| (s, State::default())).collect(),
            now: 0,
            events: BinaryHeap::new(),
            number: 0,
            told: BTreeMap::new(),
            clients: 0,
            turns: Vec::new(),
        }
    }

    /// Schedules `rate` queries per second for this time span, each for another name.
    pub(crate) fn load(&mut self, from: Nanos, rate: u64, span: Nanos, rtype: Rtype) {
        let count = rate * span / SECOND;
        for i in 0..count {
            self.ask_at(from + i * SECOND / rate, rtype);
        }
    }

    /// Schedules a query from network 1 for a new name.
    pub(crate) fn ask_at(&mut self, at: Nanos, rtype: Rtype) {
        self.ask_from_at(1, at, rtype);
    }

    pub(crate) fn ask_from_at(&mut self, network: u8, at: Nanos, rtype: Rtype) {
        self.query(at, network, false, None, rtype);
    }

    /// Schedules a query for A of the name with this number.
    pub(crate) fn ask_name_at(&mut self, at: Nanos, name: u16) {
        self.query(at, 1, false, Some(name), Rtype::A);
    }

    /// Schedules a query for a name that no upstream answers.
    pub(crate) fn ask_dead_at(&mut self, at: Nanos, network: u8) {
        self.query(at, network, true, None, Rtype::A);
    }

    /// The same for the name with this number.
    pub(crate) fn ask_dead_name_at(&mut self, at: Nanos, network: u8, name: u16) {
        self.query(at, network, true, Some(name), Rtype::A);
    }

    fn query(&mut self, at: Nanos, network: u8, dead: bool, name: Option<u16>, rtype: Rtype) {
        self.clients += 1;
        let event = Event::Query {
            client: self.clients,
            name: name.unwrap_or(self.clients),
            network,
            dead,
            rtype: rtype.0,
        };
        self.at(at, event);
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// The outcomes of all queries.
    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.values().cloned().collect()
    }

    /// Number of queries to an upstream.
    pub(crate) fn asked(&self, server: usize) -> u64 {
        self.servers[server].1.asked
    }

    /// The upstreams that went down and up, in order.
    pub(crate) fn turns(&self) -> &[String] {
        &self.turns
    }

    /// Runs the simulation until this time.
    pub(crate) fn run(&mut self, until: Nanos) {
        let mut actions = Actions::default();
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let deadline = self.engine.next_deadline();
            let deadline = deadline.map(|at| at.saturating_sub(BEGINNING));
            let next = event.into_iter().chain(deadline).min();
            let Some(next) = next.map(|at| at.max(self.now)).filter(|at| *at <= until) else {
                return;
            };
            self.now = next;
            let now = BEGINNING + next;
            self.engine.on_timer(now, &mut actions);
            if event.is_some_and(|at| at <= next)
                && let Some(Reverse((.., event))) = self.events.pop()
            {
                self.happen(event, now, &mut actions);
            }
            self.settle(&actions);
            actions.clear();
        }
    }

    fn happen(&mut self, event: Event, now: Nanos, actions: &mut Actions) {
        match event {
            Event::Query {
                client,
                name,
                network,
                dead,
                rtype,
            } => {
                let told = Told {
                    asked_at: self.now,
                    took_ns: Nanos::MAX,
                    rcode: None,
                    is_lie: false,
                    dead,
                };
                self.told.insert(client, told);
                let peer = SocketAddr::from(([10, 0, network, 1], client));
                let message = query(client, name, dead, Rtype(rtype));
                let client = Client::Udp(Origin::new(peer));
                let mut frame = [0; FRAME_BYTES];
                let engine = &mut self.engine;
                let len = engine.on_query(client, &message, &mut frame, now, actions);
                if len > 0 {
                    self.heard(client.address().port(), &frame[..len]);
                }
            }
            Event::Reply {
                server,
                port,
                message,
            } => self.engine.on_reply(server, port, &message, now, actions),
            Event::Connection { exchange, message } => {
                let message = Ok(message.as_slice());
                self.engine.on_connection(exchange, message, now, actions);
            }
            Event::Unreachable { server, port } => {
                self.engine.on_unreachable(server, port, now, actions);
            }
        }
    }

    fn heard(&mut self, client: u16, message: &[u8]) {
        let message = Message::parse(message).unwrap();
        let told = self.told.get_mut(&client).unwrap();
        assert_eq!(told.rcode, None, "answered twice");
        told.rcode = Some(message.rcode());
        told.took_ns = self.now - told.asked_at;
        let mut records = message.records().map_while(Result::ok);
        told.is_lie = records.any(|record| record.rdata == LIE);
    }

    fn settle(&mut self, actions: &Actions) {
        for action in actions.list() {
            match action {
                Action::Reply { to, message, .. } => {
                    self.heard(to.address().port(), actions.message(message));
                }
                Action::Ask {
                    server,
                    port,
                    message,
                } => self.asked_of(*server, *port, actions.message(message)),
                Action::AskConnection {
                    server,
                    exchange,
                    message,
                    ..
                } => {
                    let event = Event::Connection {
                        exchange: *exchange,
                        message: answer(actions.message(message), TRUTH),
                    };
                    self.at(self.now + 2 * self.servers[*server].0.latency, event);
                }
                Action::Turn { server, turn } => match turn {
                    Turn::Down(fault) => self.turns.push(format!("down {server} {}", fault.name())),
                    Turn::Up { .. } => self.turns.push(format!("up {server}")),
                    Turn::Lacks(_) => {}
                },
                Action::ClosePort { .. } | Action::Servfail { .. } | Action::Tell { .. } => {}
            }
        }
    }

    fn asked_of(&mut self, number: usize, port: usize, message: &[u8]) {
        let now = self.now;
        let (server, state) = &mut self.servers[number];
        state.asked += 1;
        let latency = server.latency;
        if server.refuses {
            let event = Event::Unreachable {
                server: number,
                port,
            };
            return self.at(now + latency, event);
        }
        let is_dead = message[13..].starts_with(DEAD);
        let is_lost = server
            .lose_every
            .is_some_and(|n| state.asked.is_multiple_of(n));
        if server.silent.contains(&now) || is_dead || is_lost {
            return;
        }
        let service = server.rate.map_or(0, |rate| SECOND / rate);
        let free_at = state.free_at.max(now);
        if service > 0 && (free_at - now) / service >= server.queue {
            return;
        }
        state.free_at = free_at + service;
        let at = state.free_at + latency;
        let mut truth = answer(message, TRUTH);
        if let Some((rcode, period)) = &server.fails
            && period.contains(&now)
        {
            truth[3] |= rcode.0;
        }
        for guess in 1..=server.guesses {
            let mut lie = answer(message, LIE);
            lie[..2].copy_from_slice(&guess.to_be_bytes());
            self.at(
                now + latency / 2,
                Event::Reply {
                    server: number,
                    port,
                    message: lie,
                },
            );
        }
        self.at(
            at,
            Event::Reply {
                server: number,
                port,
                message: truth,
            },
        );
    }
}

/// Address in correct and in forged responses.
const TRUTH: [u8; 4] = [192, 0, 2, 1];
const LIE: [u8; 4] = [192, 0, 2, 66];

/// A query of a client, for the name with this number.
fn query(client: u16, name: u16, dead: bool, rtype: Rtype) -> Vec<u8> {
    let prefix = if dead { "dead" } else { "live" };
    let name: NameBuf = format!("{prefix}{name}.example").parse().unwrap();
    let mut bytes = [0; 512];
    let mut builder = Builder::new(&mut bytes, 512).unwrap();
    builder.header(client, Flags::default().with_rd(true));
    builder.question(&name, rtype, Class::IN).unwrap();
    let len = builder.finish();
    bytes[..len].to_vec()
}

/// The response of an upstream: an A record, or NODATA for AAAA.
fn answer(question: &[u8], address: [u8; 4]) -> Vec<u8> {
    let asked = Message::parse(question).unwrap();
    let of = asked.question().unwrap();
    let mut bytes = [0; 512];
    let mut builder = Builder::new(&mut bytes, 512).unwrap();
    builder.header(asked.id(), Flags::default().with_qr(true).with_rd(true));
    builder.question_raw(&of).unwrap();
    if of.rtype == Rtype::A {
        let section = Section::Answer;
        builder
            .record(section, Owner::Question, Rtype::A, Class::IN, 300, &address)
            .unwrap();
    } else {
        // MNAME and RNAME are the root, MINIMUM is 60 s.
        let mut soa = [0; 22];
        soa[21] = 60;
        let section = Section::Authority;
        builder
            .record(section, Owner::Question, Rtype::SOA, Class::IN, 300, &soa)
            .unwrap();
    }
    let len = builder.finish();
    bytes[..len].to_vec()
}
