//! Runs one stage of a hot path repeatedly: `stages STAGE COUNT`. For callgrind (`.ci/budget`), which counts
//! instructions instead of time.

use std::hint::black_box;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use dns64_measure::authority::answer::Authority;
use dns64_measure::authority::zone::ZoneConfig;
use dns64_measure::load::generator::Generator;
use dns64_measure::load::ledger::{Fate, Ledger};
use dns64_measure::load::names::{NameSource, Names};
use dns64_measure::load::query::{Edns, QueryTemplate};
use dns64_measure::load::transport::{Protocol, Transport};
use dns64_measure::namespace::{AskedName, DEFAULT_NAMESPACE, Pattern, Share, Zone};
use dns64_measure::trial::TrialSpec;
use dns64_transport::clock::{Clock, ManualClock, Nanos, SECOND};
use dns64_transport::{Carrier, Counters, Datagram, FRAME_BYTES, Link, LinkError, Origin};
use dns64d::cache::Cache;
use dns64d::counts::Counts;
use dns64d::engine::actions::{Action, Actions, Client};
use dns64d::engine::{Engine, Seeds};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (stage, count) = (arguments.next(), arguments.next());
    let count = count.and_then(|count| count.parse().ok());
    match (stage.as_deref(), count) {
        (Some("authority"), Some(count)) => authority(count),
        (Some("self-test"), Some(count)) => self_test(count),
        (Some("cached"), Some(count)) => Server::new().cached(count),
        (Some("uncached"), Some(count)) => Server::new().uncached(count),
        // `cargo bench` passes no stage.
        (None | Some("--bench"), _) => {}
        (stage, _) => {
            panic!("stages authority|self-test|cached|uncached COUNT, and not {stage:?}")
        }
    }
}

fn built_in(self_test: bool) -> Authority {
    Authority::new(ZoneConfig {
        zone: Zone::default(),
        self_test,
        ttl_s: 3600,
        negative_ttl_s: 3600,
    })
}

/// AAAA queries for names without AAAA records.
fn authority(count: u64) {
    let (mut authority, template) = (
        built_in(false),
        QueryTemplate::new(&Zone::default().suffix, Edns::None),
    );
    let (mut query, mut reply) = (vec![0; FRAME_BYTES], vec![0; FRAME_BYTES]);
    for i in 0..count {
        let len = template.write(0, AskedName::aaaa(DEFAULT_NAMESPACE.address(i)), &mut query);
        let answered = authority.answer(&query[..len], &mut reply, Protocol::Udp);
        black_box(&reply[..answered.len]);
    }
    assert_eq!(authority.counts().queries(), count);
}

/// Queries of the Measurer, answered by the authority and classified.
fn self_test(count: u64) {
    let server = "[2001:db8::53]:53".parse().expect("an address");
    let spec = TrialSpec::preliminary(
        server,
        Transport::default(),
        100_000,
        count,
        names(count),
        SECOND,
    );
    let clock = ManualClock::default();
    let mut link = Loop::new(server, &clock);
    let mut generator = Generator::new(spec.shard(0, 1), PORTS, Ledger::default());
    generator.begin(0);
    while let Ok(ControlFlow::Continue(())) = generator.turn(&mut link, &clock) {
        clock.advance_to(generator.idle_until().max(clock.now() + 1));
    }
    let finished = generator.finish();
    let last = finished.ledger.entries().last().expect("an entry");
    assert_eq!(last.fate, Fate::Valid);
    assert_eq!(finished.tally.stray, 0);
}

const PORTS: usize = 4;

fn names(count: u64) -> Names {
    let source = NameSource::new(
        DEFAULT_NAMESPACE,
        Zone::default(),
        Share::NONE,
        Pattern::OneName,
    );
    let names = source.expect("a namespace").take(count, None);
    names.expect("enough names")
}

/// A link with a built-in authority: queries are answered when they are sent.
struct Loop {
    server: SocketAddr,
    clock: ManualClock,
    authority: Authority,
    query: Box<[u8]>,
    /// Port and length of each pending reply.
    waiting: Vec<(usize, usize)>,
    replies: Box<[[u8; REPLY_BYTES]]>,
    sweeps: u64,
}

/// Buffer size of one reply; there are as many buffers as queries in one turn.
const REPLY_BYTES: usize = 512;
const REPLIES: usize = 512;

impl Loop {
    fn new(server: SocketAddr, clock: &ManualClock) -> Self {
        Self {
            server,
            clock: clock.clone(),
            authority: built_in(true),
            query: vec![0; FRAME_BYTES].into(),
            waiting: Vec::with_capacity(REPLIES),
            replies: vec![[0; REPLY_BYTES]; REPLIES].into(),
            sweeps: 0,
        }
    }
}

impl Link for Loop {
    fn ports(&self) -> usize {
        PORTS
    }

    fn send(
        &mut self,
        port: usize,
        n: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        for i in 0..n {
            let len = fill(i, &mut self.query);
            let (query, reply) = (&self.query[..len], &mut self.replies[self.waiting.len()]);
            let answered = self.authority.answer(query, reply, Protocol::Udp);
            self.waiting.push((port, answered.len));
        }
        Ok(n)
    }

    /// Passes on all replies, regardless of the generator's limit: none is left for the next turn.
    fn receive(
        &mut self,
        _: usize,
        mut each: impl FnMut(Datagram<'_>),
    ) -> Result<usize, LinkError> {
        let (total, now) = (self.waiting.len(), self.clock.now());
        for ((port, len), reply) in self.waiting.drain(..).zip(&self.replies) {
            each(Datagram::new(port, self.server, &reply[..len], now));
        }
        self.sweeps += 1;
        Ok(total)
    }

    fn sweeps(&self) -> u64 {
        self.sweeps
    }

    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn wait(&mut self, _: Nanos) -> Result<(), LinkError> {
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        Ok(Counters::default())
    }

    fn carrier(&self) -> Carrier {
        Carrier::Memory
    }
}

/// The engine of dns64d with the authority as its upstream.
struct Server {
    engine: Engine,
    authority: Authority,
    template: QueryTemplate,
    /// Actions of the engine, current and previous.
    actions: [Actions; 2],
    client: Origin,
    query: Vec<u8>,
    frame: Vec<u8>,
    now: Nanos,
}

const SETTINGS: &str = "allow = [\"::/0\"]\n[upstream]\nservers = [\"192.0.2.53\"]\n\
    [dns64]\nprivate-addresses = true\n[cache]\nsize = \"64MiB\"\n";

/// Time between two queries: 1 M/s.
const STEP_NS: Nanos = 1_000;

/// Names queried slowly beforehand, from which the engine learns that its upstream has no cookies: three are needed.
const FIRST: u64 = 4;

impl Server {
    fn new() -> Self {
        let settings = dns64d::config::parse(SETTINGS, "stages").expect("settings");
        let cache = Arc::new(Cache::new(&settings.cache, None));
        let seeds = Seeds {
            random: [1; 32],
            cookies: [7; 16],
        };
        Self {
            engine: Engine::new(&settings, cache, Arc::new(Counts::default()), &seeds),
            authority: built_in(false),
            template: QueryTemplate::new(&Zone::default().suffix, Edns::None),
            actions: Default::default(),
            client: Origin::new("[2001:db8::1]:4000".parse().expect("an address")),
            query: vec![0; FRAME_BYTES],
            frame: vec![0; FRAME_BYTES],
            now: SECOND,
        }
    }

    /// Repeats the same query.
    fn cached(&mut self, count: u64) {
        for _ in 0..count {
            self.query(0);
        }
        // The first query is a miss, and the second finds the two answers behind the first response.
        assert!(self.engine.counts().rendered.get() + 2 >= count);
    }

    /// Queries a new name each time: the query, upstream queries for AAAA and A with their responses, and the response.
    fn uncached(&mut self, count: u64) {
        for i in 0..FIRST {
            self.now += 2 * SECOND;
            self.query(i);
        }
        for i in FIRST..FIRST + count {
            self.query(i);
        }
        assert_eq!(self.authority.counts().queries(), 2 * (FIRST + count));
    }

    fn query(&mut self, i: u64) {
        let address = DEFAULT_NAMESPACE.address(i);
        let len = self
            .template
            .write(7, AskedName::aaaa(address), &mut self.query);
        self.now += STEP_NS;
        let client = Client::Udp(self.client);
        let (query, frame) = (&self.query[..len], &mut self.frame);
        let (engine, [actions, _]) = (&mut self.engine, &mut self.actions);
        actions.clear();
        engine.on_timer(self.now, actions);
        let mut answered = engine.on_query(client, query, frame, self.now, actions);
        while answered == 0 {
            answered = self.answer_questions();
        }
        black_box(answered);
    }

    /// Answers the upstream queries of the engine. Returns the octets of the response to the client, if it is among the
    /// actions; otherwise 0.
    fn answer_questions(&mut self) -> usize {
        self.actions.swap(0, 1);
        let (frame, [next, asked]) = (&mut self.frame, &mut self.actions);
        next.clear();
        let mut responded = 0;
        for action in asked.list() {
            match action {
                Action::Ask {
                    server,
                    port,
                    message,
                } => {
                    let question = asked.message(message);
                    let answered = self.authority.answer(question, frame, Protocol::Udp);
                    let reply = &frame[..answered.len];
                    self.engine.on_reply(*server, *port, reply, self.now, next);
                }
                Action::Reply { message, .. } => responded = message.len(),
                _ => {}
            }
        }
        assert!(
            responded > 0 || !next.list().is_empty(),
            "the engine waits for nothing"
        );
        responded
    }
}
