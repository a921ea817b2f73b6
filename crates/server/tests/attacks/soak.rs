//! Runs a server for a given time under the load of another program, mixed with fuzzed packets from
//! clients and from an upstream.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::name::NameBuf;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::packets::{asked, honest, mutant, query, query_edns, response};
use super::upstream::Upstream;
use super::victim::{framed, resident, resolved_in_the_end, socket};

/// Number of packets between two pauses of a millisecond: at most 10,000 per second.
const BATCH: u32 = 10;

/// Interval of the lines in the report.
const REPORT_NS: Nanos = 10 * SECOND;

/// Limit in percent for the growth of the resident memory from the second to the last third of the
/// time: pages that the allocator keeps. The cache is full by then.
const GROWTH_MAX_PERCENT: u64 = 3;

/// The tested server, from environment variables.
struct Target {
    server: SocketAddr,
    upstream: SocketAddr,
    pid: u32,
    length_ns: Nanos,
}

impl Target {
    fn from_environment() -> Self {
        let value =
            |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
        Self {
            server: value("SOAK_SERVER").parse().unwrap(),
            upstream: value("SOAK_UPSTREAM").parse().unwrap(),
            pid: value("SOAK_PID").parse().unwrap(),
            length_ns: value("SOAK_SECONDS").parse::<Nanos>().unwrap() * SECOND,
        }
    }
}

/// A name of the authority of the load. The hostile upstream does not answer it correctly.
fn good(number: u32) -> NameBuf {
    let [_, b, c, d] = number.to_be_bytes();
    let name = format!("255-{b:03}-{c:03}-{d:03}.dns64perf.test");
    name.parse().unwrap()
}

/// An upstream that responds with mutants, rarely with a valid response, and sometimes not at all.
fn mad_upstream(address: SocketAddr) -> Upstream {
    let mut random = StdRng::seed_from_u64(1);
    Upstream::start_at(
        address,
        move |socket, question| {
            let is_good = asked(&question.message).0.as_wire().starts_with(b"\x0f255");
            let failure = response(&question.message, Rcode::SERVFAIL, &[]);
            let truth = honest(&question.message);
            let answers = match random.random_range(0..10) {
                _ if is_good => vec![failure],
                0 => Vec::new(),
                1 => vec![failure],
                2 => vec![truth],
                _ => vec![
                    mutant(&truth, &mut random),
                    mutant(&truth, &mut random),
                    truth,
                ],
            };
            for answer in answers {
                let _ = socket.send_to(&answer, question.from);
            }
        },
        honest,
    )
}

fn fuzzed(number: u32, random: &mut StdRng) -> Vec<u8> {
    let id = random.random();
    let name = good(number % 5000);
    let sound = match number % 3 {
        0 => query(id, &name, Rtype::AAAA),
        1 => query(id, &name, Rtype::HTTPS),
        _ => query_edns(id, &name, 4096, &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]),
    };
    mutant(&sound, random)
}

/// Repeats `step` in a thread until `stop` is set.
fn keep_on(stop: &Arc<AtomicBool>, mut step: impl FnMut() + Send + 'static) -> JoinHandle<()> {
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            step();
        }
    })
}

/// Sends fuzzed datagrams at the rate of [`BATCH`]; the responses are not read.
fn datagrams(target: &Target, stop: &Arc<AtomicBool>, sent: &Arc<AtomicU64>) -> JoinHandle<()> {
    let (server, sent) = (target.server, Arc::clone(sent));
    let mut random = StdRng::seed_from_u64(2);
    let client = socket(server, Duration::from_secs(1));
    let mut number = 0;
    keep_on(stop, move || {
        for _ in 0..BATCH {
            number += 1;
            let _ = client.send(&fuzzed(number, &mut random));
        }
        sent.fetch_add(BATCH.into(), Ordering::Relaxed);
        MonotonicClock.sleep(SECOND / 1000);
    })
}

/// Opens connections and sends a few fuzzed messages on each, cut off anywhere. Some connections
/// are left open.
fn connections(target: &Target, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let server = target.server;
    let mut random = StdRng::seed_from_u64(3);
    let mut left_behind = std::collections::VecDeque::new();
    let mut number = 0;
    keep_on(stop, move || {
        MonotonicClock.sleep(SECOND / 50);
        let Ok(mut stream) = TcpStream::connect(server) else {
            return;
        };
        let mut octets = Vec::new();
        for _ in 0..random.random_range(1..5) {
            number += 1;
            octets.extend(framed(&fuzzed(number, &mut random)));
        }
        octets.truncate(random.random_range(0..=octets.len()));
        let _ = stream.write_all(&octets);
        left_behind.push_back(stream);
        if left_behind.len() > random.random_range(0..60) {
            left_behind.pop_front();
        }
    })
}

fn mean(samples: &[u64]) -> u64 {
    samples.iter().sum::<u64>() / samples.len() as u64
}

#[test]
#[ignore = "takes minutes, and a server and a load that bench/soak starts"]
fn memory_stays_constant_under_load_with_fuzzed_packets() {
    let target = Target::from_environment();
    let upstream = mad_upstream(target.upstream);
    let stop = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicU64::new(0));
    let attackers = [
        datagrams(&target, &stop, &sent),
        connections(&target, &stop),
    ];
    let begun = MonotonicClock.now();
    let mut samples = Vec::new();
    let mut report_at = begun;
    while MonotonicClock.now() < begun + target.length_ns {
        MonotonicClock.sleep(SECOND / 2);
        samples.push(resident(target.pid));
        upstream.forget();
        let now = MonotonicClock.now();
        if now >= report_at {
            report_at += REPORT_NS;
            let (seconds, kib) = ((now - begun) / SECOND, samples[samples.len() - 1] / 1024);
            println!(
                "{seconds:4} s  {kib:6} KiB resident  {:9} fuzzed datagrams",
                sent.load(Ordering::Relaxed)
            );
            let number = u32::try_from(seconds).unwrap();
            let found = resolved_in_the_end(target.server, &good(1 << 20 | number));
            assert_eq!(found.len(), 1, "the name has its address");
        }
    }
    stop.store(true, Ordering::Relaxed);
    for attacker in attackers {
        attacker.join().unwrap();
    }
    let third = samples.len() / 3;
    let (second, last) = (
        mean(&samples[third..2 * third]),
        mean(&samples[2 * third..]),
    );
    let (second_kib, last_kib) = (second / 1024, last / 1024);
    println!("mean of the second third {second_kib} KiB, of the last {last_kib} KiB");
    assert!(
        last * 100 <= second * (100 + GROWTH_MAX_PERCENT),
        "the memory grows"
    );
}
