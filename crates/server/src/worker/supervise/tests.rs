//! Workers on the simulated network with a clock that panics: each turn reads it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;

use dns64_transport::Link;
use dns64_transport::clock::ManualClock;
use dns64_transport::memory::{Impairment, Network};

use super::*;
use crate::cache::Cache;
use crate::config;
use crate::counts::Counts;
use crate::engine::Seeds;
use crate::health::Health;
use crate::mailbox::{GatewayHandle, ToWorker, WorkerHandle};

const NONE: Impairment = Impairment {
    delay_ns: 0,
    jitter_ns: 0,
    loss_ppm: 0,
    duplicate_ppm: 0,
};

/// A query for `. ANY`, which needs no upstream.
const QUERY: [u8; 17] = *b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\0\0\xff\0\x01";

/// Calls a function at each reading, with the number of readings so far.
struct Script<F> {
    time: ManualClock,
    asked: Cell<u64>,
    then: F,
}

impl<F: Fn(u64)> Clock for Script<F> {
    fn now(&self) -> Nanos {
        self.asked.set(self.asked.get() + 1);
        (self.then)(self.asked.get());
        self.time.now()
    }

    fn realtime_offset(&self) -> i64 {
        0
    }
}

/// Runs a worker with a script that can send it a query; returns how it ended, the number of responses and the
/// counters.
fn supervised(
    time: &ManualClock,
    then: impl Fn(u64, &dyn Fn(&[u8; 17]), &WorkerHandle),
) -> (Result<(), WorkerError>, usize, Arc<Counts>) {
    let listen: SocketAddr = "[2001:2::64]:53".parse().unwrap();
    let network = Network::new(time, 0);
    let relay = network.relay(listen, listen.ip(), NONE);
    let client = network.client("2001:2::c".parse().unwrap(), 1, listen, NONE);
    let client = std::cell::RefCell::new(client);
    let ask = |query: &[u8; 17]| {
        let write = |_, frame: &mut [u8]| {
            frame[..query.len()].copy_from_slice(query);
            query.len()
        };
        client.borrow_mut().send(0, 1, write).unwrap();
    };
    let settings = format!("allow = [\"::/0\"]\n{}", UPSTREAM);
    let settings = config::parse(&settings, "file").unwrap();
    let counts = Arc::new(Counts::default());
    let cache = Arc::new(Cache::new(&settings.cache, None));
    let renew = |settings: &Settings| {
        let seeds = Seeds {
            random: [0; 32],
            cookies: [0; 16],
        };
        Engine::new(settings, Arc::clone(&cache), Arc::clone(&counts), &seeds)
    };
    let (handle, mailbox) = WorkerHandle::new(Arc::new(|| {}));
    let (gateway, _) = GatewayHandle::new();
    let engine = renew(&settings);
    let health = Arc::new(Health::new(&settings));
    let mut worker = Worker::new(0, engine, relay, mailbox, Arc::default(), gateway, health);
    let clock = Script {
        time: time.clone(),
        asked: Cell::new(0),
        then: |asked| then(asked, &ask, &handle),
    };
    let ended = run(&mut worker, &clock, renew);
    let mut answers = 0;
    client.borrow_mut().receive(9, |_| answers += 1).unwrap();
    (ended, answers, counts)
}

const UPSTREAM: &str = "[upstream]\nservers = [\"2001:2::1\"]\n";

#[test]
fn worker_continues_to_answer_after_a_panic() {
    let (ended, answers, counts) =
        supervised(&ManualClock::default(), |asked, ask, handle| match asked {
            1 | 11 => ask(&QUERY),
            10 => panic!("a test"),
            20 => handle.send(ToWorker::Drain).unwrap(),
            _ => {}
        });
    ended.unwrap();
    assert_eq!(answers, 2);
    assert_eq!(counts.worker_panics.get(), 1);
    assert_eq!(counts.queries_udp.get(), 2, "counters continue");
}

#[test]
fn worker_that_panics_repeatedly_ends() {
    let (ended, _, counts) = supervised(&ManualClock::default(), |asked, _, _| {
        // Every second reading is by the supervisor.
        assert!(asked % 2 == 0, "a test");
    });
    let error = ended.unwrap_err();
    assert_eq!(error.to_string(), "more than 5 panics in 60 s");
    assert_eq!(counts.worker_panics.get(), 6);
}

#[test]
fn rare_panics_are_survived_indefinitely() {
    let time = ManualClock::default();
    let (ended, answers, counts) = supervised(&time, |asked, ask, handle| {
        time.advance(6 * SECOND);
        match asked {
            1..100 => assert!(asked % 2 == 0, "a test"),
            100 => ask(&QUERY),
            110 => handle.send(ToWorker::Drain).unwrap(),
            _ => {}
        }
    });
    ended.unwrap();
    assert_eq!((answers, counts.worker_panics.get()), (1, 50));
}

#[test]
fn worker_that_panicked_while_draining_still_ends() {
    let (ended, answers, counts) = supervised(&ManualClock::default(), |asked, ask, handle| {
        match asked {
            // The upstream never answers, so this query keeps the first engine busy.
            1 => ask(b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\0\0\x01\0\x01"),
            3 => handle.send(ToWorker::Drain).unwrap(),
            5 => panic!("a test"),
            _ => assert!(asked < 100, "it is still serving"),
        }
    });
    ended.unwrap();
    assert_eq!((answers, counts.worker_panics.get()), (0, 1));
}
