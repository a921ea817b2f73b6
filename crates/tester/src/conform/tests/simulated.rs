//! dns64d's engine between the client and the authority of the cases: in memory, on a manual clock, right or with one rule
//! broken.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use dns64_transport::Origin;
use dns64d::cache::Cache;
use dns64d::engine::actions::{Action, Actions, Client as Asking};
use dns64d::engine::{Engine, Seeds};
use dns64d::settings::Settings;

use super::super::client::{Back, Client};
use super::super::query::Query;
use super::super::script::Outgoing;
use super::*;

/// A rule that is broken.
pub(super) struct Mutant {
    pub(super) name: &'static str,
    /// Settings of dns64d, by table.
    pub(super) settings: &'static [(&'static str, &'static str)],
    /// What reaches dns64d of a query.
    pub(super) query: fn(&mut Query),
    /// What reaches the client of a response.
    pub(super) response: fn(&Query, Vec<u8>) -> Option<Vec<u8>>,
    /// What reaches dns64d of an answer to a question.
    pub(super) upstream: fn(&[u8], &mut Outgoing),
}

/// No rule.
pub(super) const RIGHT: Mutant = Mutant {
    name: "right",
    settings: &[],
    query: |_| {},
    response: |_, octets| Some(octets),
    upstream: |_, _| {},
};

pub(super) struct Simulated<'m> {
    pub(super) runs: Arc<Runs>,
    mutant: &'m Mutant,
    world: Mutex<World>,
}

struct World {
    engine: Engine,
    actions: Actions,
    now: Nanos,
    arriving: Vec<Arriving>,
    /// Number of the query.
    number: u16,
}

struct Arriving {
    at: Nanos,
    octets: Vec<u8>,
    way: Way,
}

enum Way {
    Port(usize, usize),
    Connection(u64),
}

pub(super) fn runs() -> Arc<Runs> {
    Arc::new(Runs::new(Name::from_str("test.").unwrap()))
}

pub(super) fn run(pref64: &str, number: u16) -> Run {
    Run {
        origin: format!("c{number}.test."),
        pref64: pref64.parse().unwrap(),
        number,
    }
}

/// Settings of dns64d with those of a mutant.
pub(super) fn settings(mutant: &Mutant, pref64: &str) -> Settings {
    let mut tables = BTreeMap::from([
        (
            "",
            "listen = [\"[::1]:53\"]\nworkers = 1\nallow = [\"::/0\"]\n".to_owned(),
        ),
        ("upstream", "servers = [\"192.0.2.53\"]\n".into()),
        ("dns64", format!("prefix = \"{pref64}\"\n")),
        ("cache", "size = \"4MiB\"\n".into()),
    ]);
    for (table, key) in mutant.settings {
        tables.get_mut(table).unwrap().push_str(key);
    }
    let table = |(name, keys): (&&str, &String)| match *name {
        "" => keys.clone(),
        name => format!("[{name}]\n{keys}"),
    };
    let text: String = tables.iter().map(table).collect();
    dns64d::config::parse(&text, "test").unwrap_or_else(|e| panic!("{e}"))
}

impl<'m> Simulated<'m> {
    pub(super) fn new(mutant: &'m Mutant, settings: &Settings) -> Self {
        let seeds = Seeds {
            random: [7; 32],
            cookies: [9; 16],
        };
        let cache = Arc::new(Cache::new(&settings.cache, None));
        let world = World {
            engine: Engine::new(settings, cache, Arc::default(), &seeds),
            actions: Actions::default(),
            now: 1000 * SECOND,
            arriving: Vec::new(),
            number: 0,
        };
        Self {
            runs: runs(),
            mutant,
            world: Mutex::new(world),
        }
    }

    /// Lets time pass until there is a response to the last query, or until the end.
    fn until(&self, world: &mut World, end: Nanos) -> Option<Vec<u8>> {
        loop {
            if let Some(response) = self.act(world) {
                return Some(response);
            }
            let deadline = world.engine.next_deadline();
            let arrival = world.arriving.iter().map(|it| it.at).min();
            let next = deadline.into_iter().chain(arrival).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                world.now = world.now.max(end);
                return None;
            };
            world.now = world.now.max(next);
            let now = world.now;
            world.engine.on_timer(now, &mut world.actions);
            let all = std::mem::take(&mut world.arriving);
            let (arrived, later) = all.into_iter().partition(|it| it.at <= now);
            world.arriving = later;
            for Arriving { octets, way, .. } in arrived {
                let actions = &mut world.actions;
                match way {
                    Way::Port(server, port) => {
                        world.engine.on_reply(server, port, &octets, now, actions)
                    }
                    Way::Connection(exchange) => {
                        world
                            .engine
                            .on_connection(exchange, Ok(&octets), now, actions);
                    }
                }
            }
        }
    }

    /// Does what the engine has decided. Returns the response to the last query.
    fn act(&self, world: &mut World) -> Option<Vec<u8>> {
        let actions = std::mem::take(&mut world.actions);
        let mut response = None;
        for action in actions.list() {
            match action {
                Action::Reply { to, message, .. } if to.address().port() == world.number => {
                    response = Some(actions.message(message).to_vec());
                }
                Action::Ask {
                    server,
                    port,
                    message,
                } => {
                    let answers = self.answers(actions.message(message), false);
                    // A connected port takes nothing from another one.
                    let own = answers.into_iter().filter(|it| !it.other_port);
                    world.arriving.extend(own.map(|it| Arriving {
                        at: world.now + it.delay_ns,
                        octets: it.octets,
                        way: Way::Port(*server, *port),
                    }));
                }
                Action::AskConnection {
                    exchange, message, ..
                } => {
                    let answers = self.answers(actions.message(message), true);
                    world
                        .arriving
                        .extend(answers.into_iter().map(|it| Arriving {
                            at: world.now + it.delay_ns,
                            octets: it.octets,
                            way: Way::Connection(*exchange),
                        }));
                }
                _ => {}
            }
        }
        response
    }

    fn answers(&self, question: &[u8], tcp: bool) -> Vec<Outgoing> {
        let mut answers = self.runs.respond(question, tcp);
        for answer in &mut answers {
            (self.mutant.upstream)(question, answer);
        }
        answers
    }
}

impl Client for Simulated<'_> {
    fn ask(&self, query: &Query, id: u16, wait_ns: Nanos, _: Option<&Query>) -> Back {
        let mut world = self.world.lock().unwrap();
        let world = &mut *world;
        world.number += 1;
        let address = SocketAddr::new("2001:db8::1".parse().unwrap(), world.number);
        let client = match query.tcp {
            true => Asking::Tcp {
                connection: world.number.into(),
                address,
                tls: false,
            },
            false => Asking::Udp(Origin::new(address)),
        };
        let mut seen = query.clone();
        (self.mutant.query)(&mut seen);
        let mut frame = [0; 1232];
        let now = world.now;
        world.engine.on_timer(now, &mut world.actions);
        let length = world.engine.on_query(
            client,
            &seen.octets(id),
            &mut frame,
            now,
            &mut world.actions,
        );
        let response = match length {
            0 => self.until(world, now + wait_ns),
            length => Some(frame[..length].to_vec()),
        };
        // A connection tells by an empty message that there is no response.
        let response = response.filter(|it| !it.is_empty());
        let response = response.and_then(|it| (self.mutant.response)(query, it));
        response.map_or(Back::Nothing, Back::Response)
    }

    fn sleep(&self, span_ns: Nanos) {
        let mut world = self.world.lock().unwrap();
        let end = world.now + span_ns;
        while self.until(&mut world, end).is_some() {}
    }

    fn now(&self) -> Nanos {
        self.world.lock().unwrap().now
    }
}

/// The cases of level must and should that a server fails.
pub(super) fn failed(cases: &[Case], mutant: &Mutant, pref64: &str) -> Vec<String> {
    let known = Known {
        pref64: pref64.parse().unwrap(),
        forwards_all: true,
    };
    let own = cases.iter().zip(1..).filter(|(case, _)| {
        case.level != case::Level::Policy && case.needs.iter().all(|need| known.has(*need))
    });
    let settings = settings(mutant, pref64);
    let common = Simulated::new(mutant, &settings);
    let judged = own.map(|(case, number)| {
        let restarted = case.harms.then(|| Simulated::new(mutant, &settings));
        let server = restarted.as_ref().unwrap_or(&common);
        play::judged(case, || run(pref64, number), &server.runs, server, WAIT_NS)
    });
    let failed = judged.filter(|it| it.verdict != Verdict::Passed);
    failed.map(|it| it.id).collect()
}
