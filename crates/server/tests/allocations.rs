//! Counts the allocations of a query: none for a cached response, and for a new one only those of
//! its cache entry.

use std::sync::Arc;

use dns64_transport::Origin;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{Flags, Message, Section};
use dns64d::cache::Cache;
use dns64d::engine::actions::{Action, Actions, Client};
use dns64d::engine::{Engine, Seeds};

const OCTETS_MAX: usize = 512;

/// A query for the A record of a name.
fn query(number: usize) -> Vec<u8> {
    let name = format!("n{number}.example").parse().expect("sound");
    let mut octets = [0; OCTETS_MAX];
    let mut message = Builder::new(&mut octets, OCTETS_MAX).expect("room");
    message.header(7, Flags::default().with_rd(true));
    message.question(&name, Rtype::A, Class::IN).expect("room");
    let len = message.finish();
    octets[..len].to_vec()
}

/// The response to a query of the engine.
fn reply(question: &[u8]) -> Vec<u8> {
    let asked = Message::parse(question).expect("sound");
    let question = asked.question().expect("one");
    let name = question.name.to_buf();
    let mut octets = [0; OCTETS_MAX];
    let mut message = Builder::new(&mut octets, OCTETS_MAX).expect("room");
    message.header(asked.id(), Flags::default().with_qr(true).with_ra(true));
    message.question(&name, Rtype::A, Class::IN).expect("room");
    let (class, ttl_s, data) = (Class::IN, 300, [192, 0, 2, 1]);
    message
        .record(
            Section::Answer,
            Owner::Question,
            Rtype::A,
            class,
            ttl_s,
            &data,
        )
        .expect("room");
    let len = message.finish();
    octets[..len].to_vec()
}

struct Server {
    engine: Engine,
    actions: Actions,
    frame: Vec<u8>,
}

impl Server {
    fn new() -> Self {
        let text = "allow = [\"0.0.0.0/0\"]\n[upstream]\nservers = [\"192.0.2.53\"]\n\
            [cache]\nsize = \"1MiB\"\n";
        let settings = dns64d::config::parse(text, "test").expect("sound");
        let cache = Arc::new(Cache::new(&settings.cache, None));
        let seeds = Seeds {
            random: [1; 32],
            cookies: [2; 16],
        };
        Self {
            engine: Engine::new(&settings, cache, Arc::default(), &seeds),
            actions: Actions::default(),
            frame: vec![0; OCTETS_MAX],
        }
    }

    /// Passes a query to the engine; returns the length of an immediate response, and the
    /// allocations.
    fn ask(&mut self, query: &[u8]) -> (usize, u64) {
        let client = Client::Udp(Origin::new("192.0.2.9:4000".parse().expect("sound")));
        let mut len = 0;
        let counted = allocation_counter::measure(|| {
            self.actions.clear();
            self.engine.on_timer(1, &mut self.actions);
            let (frame, actions) = (&mut self.frame, &mut self.actions);
            len = self.engine.on_query(client, query, frame, 1, actions);
        });
        (len, counted.count_total)
    }

    /// Answers the query that the engine has sent; returns the allocations.
    fn answer(&mut self) -> u64 {
        let asked = self.actions.list().iter().find_map(|action| match action {
            Action::Ask {
                server,
                port,
                message,
            } => Some((*server, *port, reply(self.actions.message(message)))),
            _ => None,
        });
        let (server, port, reply) = asked.expect("a question");
        let counted = allocation_counter::measure(|| {
            let (engine, actions) = (&mut self.engine, &mut self.actions);
            engine.on_reply(server, port, &reply, 1, actions);
        });
        counted.count_total
    }
}

#[test]
fn cached_response_allocates_nothing() {
    let mut server = Server::new();
    server.ask(&query(1));
    server.answer();
    for _ in 0..3 {
        let (len, allocations) = server.ask(&query(1));
        assert!(len > 0, "the response is cached");
        assert_eq!(allocations, 0);
    }
}

/// Tables grow rarely, and less often the larger they are: most cache misses do not grow one.
#[test]
fn new_response_allocates_its_cache_entry_only() {
    let mut server = Server::new();
    let mut allocations: Vec<u64> = (0..2000)
        .map(|number| server.ask(&query(number)).1 + server.answer())
        .collect();
    allocations.sort_unstable();
    // The octets of the response with its properties.
    assert_eq!((allocations[0], allocations[1600]), (1, 1));
}
