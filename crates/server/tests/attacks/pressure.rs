//! More queries than the tables hold, and silent upstreams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, SECOND};
use dns64_wire::codes::{Rcode, Rtype};
use dns64d::answer::stored::FAILURE_TTL_S;

use super::packets::{addresses, asked, honest, name, number, query, rcode, synthesised};
use super::support::PATIENCE;
use super::upstream::Upstream;
use super::victim::{
    ask, ask_name, assert_resolves, figure, resident, socket, start, unless_busy, wait_until,
};

/// An upstream that can be switched to silence.
fn moody(silent: &Arc<AtomicBool>) -> Upstream {
    let silent = Arc::clone(silent);
    Upstream::start(
        move |socket, question| {
            if !silent.load(Ordering::Relaxed) {
                let _ = socket.send_to(&honest(&question.message), question.from);
            }
        },
        honest,
    )
}

#[test]
fn cached_names_are_served_while_upstream_is_silent() {
    unless_busy(|| {
        let silent = Arc::new(AtomicBool::new(false));
        let upstream = moody(&silent);
        let server = start(&upstream, "", "timeout = \"100ms\"\nattempts = 2");
        assert_resolves(server.dns, 1);
        silent.store(true, Ordering::Relaxed);
        // Each query waits as long as a client does.
        for number in 10..13 {
            let answer = ask_name(server.dns, &name(number), Rtype::AAAA);
            assert_eq!(rcode(&answer), Rcode::SERVFAIL);
            assert_resolves(server.dns, 1);
        }
        // The server does not retry a failed query for some time (RFC 9520).
        let begun = MonotonicClock.now();
        let times = upstream.times_asked("n10.example", Rtype::AAAA);
        for _ in 0..20 {
            let answer = ask_name(server.dns, &name(10), Rtype::AAAA);
            assert_eq!(rcode(&answer), Rcode::SERVFAIL);
        }
        let again = upstream.times_asked("n10.example", Rtype::AAAA);
        let whiles = usize::try_from((MonotonicClock.now() - begun) / FAILURE_TTL_NS).unwrap();
        assert!(
            times <= TIMES_MAX && again <= times + 2 * (1 + whiles),
            "{times} then {again} times in {whiles} times 5 s"
        );
        silent.store(false, Ordering::Relaxed);
        wait_until("the upstream is queried again", || {
            let answer = ask_name(server.dns, &name(30), Rtype::AAAA);
            addresses(&answer) == [synthesised(30)] || {
                assert_eq!(rcode(&answer), Rcode::SERVFAIL);
                false
            }
        });
        // The cached failures expire too.
        wait_until("the failed name resolves", || {
            let answer = ask_name(server.dns, &name(10), Rtype::AAAA);
            addresses(&answer) == [synthesised(10)]
        });
        server.ends();
    });
}

/// Two attempts, and another one after the client's retry 4 s later, while there is no response.
const TIMES_MAX: usize = 3;

/// TTL of a failure.
const FAILURE_TTL_NS: u64 = FAILURE_TTL_S as u64 * SECOND;

/// Number of names in the flood, and of queries that one worker holds.
const FLOOD: u16 = 5000;
const QUERIES_MAX: u16 = 500;

/// Limit for the growth of the resident memory: about 1 KiB for each query from a client and to an
/// upstream, the failures in the cache of 2 MiB, and the reserve of the allocator.
const GROWTH_MAX: u64 = 12 << 20;

#[test]
fn flood_of_unanswered_names_is_bounded() {
    unless_busy(|| {
        let silent = Arc::new(AtomicBool::new(false));
        let upstream = moody(&silent);
        let in_upstream = "timeout = \"1s\"\nattempts = 1";
        let server = start(
            &upstream,
            &format!("queries-max = {QUERIES_MAX}"),
            in_upstream,
        );
        assert_resolves(server.dns, 1);
        silent.store(true, Ordering::Relaxed);
        let before = resident(server.child.id());
        let mut largest = before;
        let client = socket(server.dns, Duration::from_millis(1));
        let mut answer = [0; 512];
        let mut failed = 0;
        let mut look = |failed: &mut u32| {
            while let Ok(len) = client.recv(&mut answer) {
                assert_eq!(rcode(&answer[..len]), Rcode::SERVFAIL);
                *failed += 1;
            }
        };
        for id in 0..FLOOD {
            let question = query(id, &name(100_000 + u32::from(id)), Rtype::AAAA);
            client.send(&question).unwrap();
            if id % 50 == 0 {
                look(&mut failed);
            }
            if id % 500 == 0 {
                assert_resolves(server.dns, 1);
                largest = largest.max(resident(server.child.id()));
            }
        }
        // The other queries fail at their deadlines. The server is not responsible for datagrams
        // that a busy machine loses in either direction.
        wait_until("all queries have failed", || {
            look(&mut failed);
            failed > 0 && figure(&server, "queries_waiting") == 0
        });
        largest = largest.max(resident(server.child.id()));
        assert!(
            largest <= before + GROWTH_MAX,
            "resident: {before} then {largest} octets"
        );
        // A response that is too late because the machine stalled is not sent.
        let ends = ["responses.SERVFAIL", "responses.NOERROR", "dropped.late"];
        let ended = || ends.iter().map(|end| figure(&server, end)).sum::<u64>();
        wait_until("every query is counted", || {
            ended() == figure(&server, "queries.udp")
        });
        let taken = figure(&server, "queries.udp");
        assert!(taken > u64::from(QUERIES_MAX) && figure(&server, "refused.full") > 0);
        silent.store(false, Ordering::Relaxed);
        assert_resolves(server.dns, 2);
        server.ends();
    });
}

/// Responses that can be delayed for long allow a pulse of traffic (DNSBomb, CVE-2024-33655).
#[test]
fn delayed_responses_are_not_sent_in_a_pulse() {
    unless_busy(|| {
        let mut held = Vec::new();
        let mut released = false;
        let upstream = Upstream::start(
            move |socket, question| {
                let number = number(&asked(&question.message).0);
                match number {
                    Some(100..) if !released => held.push(question.clone()),
                    // This name releases all delayed responses.
                    Some(99) => {
                        released = true;
                        for question in held.drain(..) {
                            let _ = socket.send_to(&honest(&question.message), question.from);
                        }
                        let _ = socket.send_to(&honest(&question.message), question.from);
                    }
                    _ => {
                        let _ = socket.send_to(&honest(&question.message), question.from);
                    }
                }
            },
            honest,
        );
        let server = start(&upstream, "", "timeout = \"4500ms\"\nattempts = 2");
        let client = socket(server.dns, PATIENCE);
        for id in 0..50 {
            let question = query(id, &name(100 + u32::from(id)), Rtype::A);
            client.send(&question).unwrap();
        }
        wait_until("all queries wait", || {
            figure(&server, "queries_waiting") == 50
        });
        let late = || figure(&server, "dropped.late");
        wait_until("all queries have failed", || {
            figure(&server, "responses.SERVFAIL") + late() == 50
        });
        assert_eq!(late(), 0);
        let mut answer = [0; 512];
        for _ in 0..50 {
            let len = client.recv(&mut answer).unwrap();
            assert_eq!(rcode(&answer[..len]), Rcode::SERVFAIL);
        }
        ask_name(server.dns, &name(99), Rtype::A);
        wait_until("no query waits", || figure(&server, "queries_waiting") == 0);
        client
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        assert!(client.recv(&mut answer).is_err(), "a second response");
        // The late responses were cached nevertheless, from the second attempt.
        let at_once = ask(server.dns, &query(1, &name(100), Rtype::A));
        assert_eq!(rcode(&at_once), Rcode::NOERROR);
        assert_eq!(upstream.times_asked("n100.example", Rtype::A), 2);
        server.ends();
    });
}
