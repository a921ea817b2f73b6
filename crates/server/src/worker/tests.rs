//! Workers on the simulated network with an upstream that fails temporarily, and their log
//! messages.

use std::io;
use std::sync::{Arc, Mutex};

use dns64_transport::Link as _;
use dns64_transport::clock::ManualClock;
use dns64_transport::memory::{Impairment, MemoryLink, MemoryRelay, Network};

use super::*;
use crate::cache::Cache;
use crate::config;
use crate::engine::Seeds;
use crate::engine::rate_limit::RateLimiter;
use crate::health::UpstreamState;
use crate::mailbox::{GatewayMailbox, WorkerHandle};

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that `log` writes.
pub(super) fn logged(log: impl FnOnce()) -> Vec<String> {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, log);
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

const NONE: Impairment = Impairment {
    delay_ns: 0,
    jitter_ns: 0,
    loss_ppm: 0,
    duplicate_ppm: 0,
};

/// Time between two turns.
const STEP_NS: Nanos = SECOND / 20;

/// Two workers with one upstream, which share their upstream queries.
struct Pair {
    time: ManualClock,
    network: Network,
    health: Arc<Health>,
    workers: Vec<(Worker<MemoryRelay>, WorkerHandle)>,
    asked: u16,
    gateway: GatewayMailbox,
}

impl Pair {
    fn new(settings: &Settings) -> Self {
        let time = ManualClock::default();
        time.advance(1000 * SECOND);
        let network = Network::new(&time, 0);
        let health = Arc::new(Health::new(settings));
        let (gateway, mailbox) = GatewayHandle::new();
        let cache = Arc::new(Cache::new(&settings.cache, None));
        let mailboxes = (0..2).map(|_| WorkerHandle::new(Arc::new(|| {})));
        let (handles, mailboxes): (Vec<_>, Vec<_>) = mailboxes.unzip();
        let all: Arc<[_]> = handles.as_slice().into();
        let workers = (0..2).zip(handles.into_iter().zip(mailboxes));
        let workers = workers.map(|(index, (handle, letters))| {
            let listen: SocketAddr = ([192, 0, 2, 1 + index], 53).into();
            let mut relay = network.relay(listen, listen.ip(), NONE);
            set_servers(relay.upstreams(), settings);
            let seeds = Seeds {
                random: [index; 32],
                cookies: [0; 16],
            };
            let engine = Engine::new(settings, Arc::clone(&cache), Arc::default(), &seeds);
            let engine = engine.share(index.into(), &Arc::new(RateLimiter::new(1)));
            let (all, gateway, health) = (all.clone(), gateway.clone(), Arc::clone(&health));
            let worker = Worker::new(index.into(), engine, relay, letters, all, gateway, health);
            (worker, handle)
        });
        Self {
            workers: workers.collect(),
            time,
            network,
            health,
            asked: 0,
            gateway: mailbox,
        }
    }

    fn upstream(&self, address: &str) -> MemoryLink {
        self.network.server(address.parse().unwrap(), NONE)
    }

    fn state(&self) -> UpstreamState {
        self.health.states().next().unwrap().1
    }

    /// Sends a query for the name of this number to a worker.
    fn ask(&self, worker: usize, number: u16) {
        let query = ToWorker::Query {
            connection: number.into(),
            client: ([127, 0, 0, 1], 1024).into(),
            tls: false,
            message: query(number),
        };
        self.workers[worker].1.send(query).unwrap();
    }

    /// Runs both for a time span, and sends some of them a query for a new name in each turn.
    fn run(&mut self, span: Nanos, asked: &[usize], mut meanwhile: impl FnMut()) {
        let mut actions = Actions::default();
        for _ in 0..span / STEP_NS {
            self.time.advance(STEP_NS);
            for &worker in asked {
                self.asked += 1;
                self.ask(worker, self.asked);
            }
            for (worker, _) in &mut self.workers {
                let mut stage = Stage::Serving;
                worker
                    .turn(self.time.now(), &mut stage, &mut actions)
                    .unwrap();
            }
            meanwhile();
        }
    }
}

/// A query for an A record of a name of four letters.
fn query(number: u16) -> Vec<u8> {
    let name = format!("{number:04x}");
    let head = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04";
    [head, name.as_bytes(), b"\0\0\x01\0\x01"].concat()
}

pub(super) fn settings(server: &str) -> Settings {
    let text = format!("workers = 2\n[upstream]\nservers = [\"{server}\"]\n");
    let mut settings = config::parse(&text, "file").unwrap();
    // The simulated network checks every port in each turn: use as few as possible.
    settings.source_ports = 0;
    settings
}

/// Answers the waiting queries with empty responses; returns their number.
fn answer(upstream: &mut MemoryLink) -> usize {
    let mut answered = 0;
    let answers = upstream.answer(usize::MAX, |question, frame| {
        answered += 1;
        let len = copy(question.payload, frame);
        frame[2] |= 0x80;
        len
    });
    answers.unwrap();
    answered
}

#[test]
fn outage_seen_by_all_workers_is_logged_once() {
    let mut pair = Pair::new(&settings("192.0.2.53"));
    let lines = logged(|| pair.run(5 * SECOND, &[0, 1], || {}));
    assert_eq!(lines.len(), 1, "{lines:?}");
    let down = "WARN upstream 192.0.2.53 is down: no response, or ICMP errors";
    assert_eq!(lines[0], down);
    assert!(pair.state().down_since.is_some());
    assert!(pair.state().loss_ppm > 500_000, "{:?}", pair.state());

    // The upstream answers again, and only the second worker has queries.
    let mut upstream = pair.upstream("192.0.2.53:53");
    let lines = logged(|| {
        pair.run(40 * SECOND, &[1], || {
            answer(&mut upstream);
        })
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    let up = lines[0].strip_prefix("INFO upstream 192.0.2.53 is up again after ");
    assert!(up.is_some_and(|rest| rest.ends_with(" s")), "{lines:?}");
    assert_eq!(pair.state().down_since, None);
    assert!(pair.state().rtt_ns.is_some());
    // The first worker notices later.
    assert_eq!(
        logged(|| pair.run(40 * SECOND, &[0], || {
            answer(&mut upstream);
        })),
        [""; 0]
    );
}

#[test]
fn outage_before_a_reload_does_not_count_for_the_new_upstreams() {
    let mut pair = Pair::new(&settings("192.0.2.53"));
    let lines = logged(|| pair.run(5 * SECOND, &[0, 1], || {}));
    assert_eq!(lines.len(), 1, "{lines:?}");
    let in_force = InForce::new(settings("192.0.2.54"));
    pair.health = Arc::clone(&in_force.health);
    let mut upstream = pair.upstream("192.0.2.54:53");
    // First while the second worker still queries the old upstream, then after it.
    for reloaded in 0..2 {
        let letter = ToWorker::Reload(in_force.clone());
        pair.workers[reloaded].1.send(letter).unwrap();
        let lines = logged(|| {
            pair.run(2 * SECOND, &[0, 1], || {
                answer(&mut upstream);
            })
        });
        assert_eq!(lines, [""; 0]);
        let state = pair.state();
        assert!(
            state.rtt_ns.is_some() && state.down_since.is_none(),
            "{state:?}"
        );
    }
}

#[test]
fn simultaneous_equal_queries_to_two_workers_cause_one_upstream_query() {
    let mut pair = Pair::new(&settings("192.0.2.53"));
    let mut upstream = pair.upstream("192.0.2.53:53");
    for (number, turns) in [(1, [0, 1]), (2, [1, 0])] {
        for worker in turns {
            pair.ask(worker, number);
        }
        let mut questions = 0;
        pair.run(4 * STEP_NS, &[], || questions += answer(&mut upstream));
        assert_eq!(questions, 1);
        for _ in turns {
            let Ok(ToGateway::Reply { connection, .. }) = pair.gateway.try_recv() else {
                panic!("a client waits for {number}");
            };
            assert_eq!(connection, u64::from(number));
        }
    }
}

#[test]
fn worker_with_a_full_mailbox_does_not_block_others() {
    let mut pair = Pair::new(&settings("192.0.2.53"));
    let mut upstream = pair.upstream("192.0.2.53:53");
    for worker in [0, 1] {
        pair.ask(worker, 1);
    }
    pair.run(STEP_NS, &[], || {});
    // The second worker waits for the first one's upstream query, and is not run any more.
    let (_second, handle) = pair.workers.pop().unwrap();
    while handle.send(ToWorker::Drain).is_ok() {}
    let mut questions = 0;
    pair.run(4 * STEP_NS, &[], || questions += answer(&mut upstream));
    pair.ask(0, 2);
    pair.run(4 * STEP_NS, &[], || questions += answer(&mut upstream));
    let answered = std::iter::from_fn(|| pair.gateway.try_recv().ok());
    assert_eq!((questions, answered.count()), (2, 2));
}
