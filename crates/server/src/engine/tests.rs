//! Limits of the engine. `tests/dialogues` has all other tests.

use dns64_transport::clock::SECOND;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::Class;
use dns64_wire::message::{Message, Section};

use super::actions::Action;
use super::*;

/// A message with a question for A of `big.example` and `records` A records.
fn message(flags: Flags, id: u16, records: u16) -> Vec<u8> {
    let mut bytes = vec![0; 65_535];
    let mut message = Builder::new(&mut bytes, 65_535).unwrap();
    message.header(id, flags);
    let name = "big.example".parse().unwrap();
    message.question(&name, Rtype::A, Class::IN).unwrap();
    for i in 0..records {
        let [high, low] = i.to_be_bytes();
        let data = [192, 0, high, low];
        message
            .record(
                Section::Answer,
                Owner::Question,
                Rtype::A,
                Class::IN,
                60,
                &data,
            )
            .unwrap();
    }
    let len = message.finish();
    bytes.truncate(len);
    bytes
}

#[test]
fn thousands_of_clients_get_one_large_response_over_many_iterations() {
    let text = "allow = [\"::/0\", \"0.0.0.0/0\"]\n[upstream]\nservers = [\"192.0.2.53\"]\n";
    let settings = crate::config::parse(text, "test").unwrap();
    let seeds = Seeds {
        random: [1; 32],
        cookies: [2; 16],
    };
    let cache = Arc::new(Cache::new(&settings.cache, None));
    let mut engine = Engine::new(&settings, cache, Arc::default(), &seeds);
    let mut actions = Actions::default();
    let query = message(Flags::default().with_rd(true), 7, 0);
    for connection in 0..1000 {
        let client = Client::Tcp {
            connection,
            address: ([192, 0, 2, 1], 1024).into(),
            tls: false,
        };
        engine.on_query(client, &query, &mut [], 0, &mut actions);
    }
    let [
        Action::Ask {
            server,
            port,
            message: range,
        },
    ] = actions.list()
    else {
        panic!("one question for all: {:?}", actions.list());
    };
    let (server, port) = (*server, *port);
    let id = Message::parse(actions.message(range)).unwrap().id();
    let reply = message(Flags::default().with_qr(true), id, 4000);

    actions.clear();
    engine.on_reply(server, port, &reply, 1, &mut actions);
    let mut answered = 0;
    let mut turns = 0;
    while !engine.is_idle() {
        assert!(actions.octets() < (1 << 20) + 65_536);
        assert_eq!(engine.next_deadline(), Some(0), "there is more to do");
        answered += actions.list().len();
        turns += 1;
        actions.clear();
        engine.on_timer(1, &mut actions);
    }
    answered += actions.list().len();
    assert_eq!(answered, 1000);
    assert!(turns > 50, "{turns}");
    let port_is_old = Some(10 * SECOND);
    assert_eq!(engine.next_deadline(), port_is_old);
    let waited = engine.counts().waited.snapshot();
    assert_eq!((waited.count(), waited.sum_ns), (1000, 1000));
    assert_eq!(engine.counts().at_once.get(), 0);
    let again = Client::Tcp {
        connection: 0,
        address: ([192, 0, 2, 1], 1024).into(),
        tls: false,
    };
    engine.on_query(again, &query, &mut [], 2, &mut actions);
    assert_eq!(engine.counts().waited.snapshot(), waited);
    assert_eq!(engine.counts().at_once.get(), 1);
}

#[test]
fn upstream_timeout_cannot_exceed_the_deadline_of_a_query() {
    let accepts = |timeout_ns: Nanos| {
        let timeout_ms = timeout_ns / (SECOND / 1000);
        let text =
            format!("[upstream]\nservers = [\"192.0.2.53\"]\ntimeout = \"{timeout_ms}ms\"\n");
        crate::config::parse(&text, "test").is_ok()
    };
    assert!(accepts(DEADLINE_NS) && !accepts(DEADLINE_NS + SECOND / 1000));
}

/// A worker: an engine with its counters.
struct Worker(Engine, Arc<Counts>, Actions);

impl Worker {
    /// The response to a query for A of `big.example`, and the number of queries to upstreams,
    /// which respond at once with one record of 60 s.
    fn ask(&mut self, id: u16, now_s: u64) -> (Vec<u8>, usize) {
        let Self(engine, _, actions) = self;
        let now = now_s * SECOND;
        actions.clear();
        let client = Client::Udp(dns64_transport::Origin::new(([192, 0, 2, 1], 1024).into()));
        let query = message(Flags::default().with_rd(true), id, 0);
        let mut frame = [0; dns64_transport::FRAME_BYTES];
        let len = engine.on_query(client, &query, &mut frame, now, actions);
        let mut answer = (len > 0).then(|| frame[..len].to_vec());
        let mut asked = 0;
        loop {
            let mut replies = Vec::new();
            for action in actions.list() {
                match action {
                    Action::Reply { message, .. } => {
                        answer = Some(actions.message(message).to_vec());
                    }
                    Action::Ask {
                        server,
                        port,
                        message: range,
                    } => {
                        let id = Message::parse(actions.message(range)).unwrap().id();
                        let reply = message(Flags::default().with_qr(true), id, 1);
                        replies.push((*server, *port, reply));
                    }
                    Action::ClosePort { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            if let Some(answer) = answer {
                return (answer, asked);
            }
            actions.clear();
            for (server, port, reply) in replies {
                asked += 1;
                engine.on_reply(server, port, &reply, now, actions);
            }
        }
    }
}

#[test]
fn response_cached_by_one_worker_is_used_by_all() {
    let text = "allow = [\"0.0.0.0/0\"]\n[upstream]\nservers = [\"192.0.2.53\"]\n";
    let settings = crate::config::parse(text, "test").unwrap();
    let cache = Arc::new(Cache::new(&settings.cache, None));
    let mut workers = [1, 2].map(|seed| {
        let seeds = Seeds {
            random: [seed; 32],
            cookies: [2; 16],
        };
        let counts = Arc::new(Counts::default());
        let engine = Engine::new(&settings, Arc::clone(&cache), Arc::clone(&counts), &seeds);
        Worker(engine, counts, Actions::default())
    });
    let ttl = |answer: &[u8]| {
        let record = Message::parse(answer).unwrap().records().next();
        record.unwrap().unwrap().ttl
    };
    // The first worker queries the upstream and renders the response; both send it from the cache.
    let asked: Vec<_> = [(0, 10), (1, 20), (0, 30), (1, 40)]
        .into_iter()
        .map(|(worker, now_s)| {
            let (answer, asked) = workers[worker].ask(7, now_s);
            (ttl(&answer), asked)
        })
        .collect();
    assert_eq!(asked, [(60, 1), (50, 0), (40, 0), (30, 0)]);
    let rendered = workers.each_ref().map(|worker| worker.1.rendered.get());
    assert_eq!(rendered, [1, 2]);
    cache.flush(None);
    assert_eq!(workers[1].ask(8, 40).1, 1);
}

#[test]
fn new_upstreams_start_without_old_round_trip_times() {
    let settings = |server: &str| {
        let text = format!("[upstream]\nservers = [\"{server}\"]\n");
        crate::config::parse(&text, "test").unwrap()
    };
    let seeds = Seeds {
        random: [1; 32],
        cookies: [2; 16],
    };
    let (first, second) = (settings("192.0.2.53"), settings("192.0.2.54"));
    let cache = Arc::new(Cache::new(&first.cache, None));
    let mut engine = Engine::new(&first, cache, Arc::default(), &seeds);
    engine.counts().upstream_rtt(0).observe(SECOND);
    let mut actions = Actions::default();
    engine.reload(&first, 0, &mut actions);
    let times = |engine: &Engine| engine.counts().upstream_rtt(0).snapshot();
    assert_eq!((times(&engine).count(), times(&engine).sum_ns), (1, SECOND));
    engine.reload(&second, 0, &mut actions);
    assert_eq!((times(&engine).count(), times(&engine).sum_ns), (0, 0));
}
