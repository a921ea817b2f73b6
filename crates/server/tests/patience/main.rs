//! Tests the engine with slow, overloaded, silent and spoofed upstreams, in simulated time.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod world;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::{Rcode, Rtype};

use world::{Server, Told, World};

const MILLISECOND: Nanos = SECOND / 1000;

const SELECTIONS: [&str; 4] = ["fastest", "round-robin", "random", "failover"];

/// The outcomes of the queries that were sent within a period.
fn between(told: &[Told], from: Nanos, to: Nanos) -> Vec<&Told> {
    told.iter()
        .filter(|told| (from..to).contains(&told.asked_at))
        .collect()
}

fn assert_right(told: &[&Told]) {
    assert!(!told.is_empty());
    for told in told {
        assert_eq!(told.rcode, Some(Rcode::NOERROR), "{told:?}");
    }
}

/// The response time of this percentage of queries.
fn percentile(told: &[&Told], percent: usize) -> Nanos {
    let mut times: Vec<_> = told.iter().map(|told| told.took_ns).collect();
    times.sort_unstable();
    times[(times.len() * percent).div_ceil(100) - 1]
}

#[test]
fn slow_upstream_is_awaited_with_few_retries() {
    for latency in [900, 1500, 3000].map(|ms| ms * MILLISECOND) {
        for rtype in [Rtype::A, Rtype::AAAA] {
            let mut world = World::new("", vec![Server::taking(latency)]);
            world.load(0, 20, 10 * SECOND, rtype);
            world.run(30 * SECOND);
            let told = world.told();
            assert_right(&between(&told, 0, 10 * SECOND));
            // Once the round-trip time is known, there are hardly any retries.
            let questions = if rtype == Rtype::A { 200 } else { 400 };
            let asked = world.asked(0);
            assert!(asked < 3 * questions, "{asked} asked, {latency} ns {rtype}");
        }
    }
}

#[test]
fn responses_resume_after_a_burst_overloads_the_upstream() {
    for queue in [250, 100_000] {
        let server = Server {
            rate: Some(400),
            queue,
            ..Server::taking(5 * MILLISECOND)
        };
        let mut world = World::new("", vec![server]);
        world.load(0, 250, 40 * SECOND, Rtype::A);
        for i in 0..800 {
            world.ask_at(5 * SECOND + i, Rtype::A);
        }
        world.run(50 * SECOND);
        let told = world.told();
        assert_right(&between(&told, 0, 4 * SECOND));
        // At the latest 15 s after the burst.
        let later = between(&told, 20 * SECOND, 40 * SECOND);
        assert_right(&later);
        assert!(percentile(&later, 99) < 50 * MILLISECOND);
    }
}

#[test]
fn queries_during_an_outage_are_answered_soon_after_it() {
    let server = Server {
        silent: 5 * SECOND..8 * SECOND,
        ..Server::taking(5 * MILLISECOND)
    };
    let mut world = World::new("", vec![server]);
    world.load(0, 100, 15 * SECOND, Rtype::A);
    world.run(25 * SECOND);
    let told = world.told();
    assert_right(&between(&told, 0, 15 * SECOND));
    let after = between(&told, 8 * SECOND, 15 * SECOND);
    assert!(percentile(&after, 100) < 50 * MILLISECOND);
    let during = between(&told, 5 * SECOND, 8 * SECOND);
    for told in during {
        let answered = told.asked_at + told.took_ns;
        assert!(answered < 8 * SECOND + 376 * MILLISECOND, "{told:?}");
    }
    assert_eq!(world.turns(), ["down 0 no-answer", "up 0"]);
}

#[test]
fn recovered_upstream_does_not_get_all_queries_at_once() {
    let server = Server {
        silent: 5 * SECOND..8 * SECOND,
        // The buffer of one socket: it fills if responses arrive faster than they are read.
        rate: Some(20_000),
        queue: 100,
        ..Server::taking(5 * MILLISECOND)
    };
    let mut world = World::new("", vec![server]);
    world.load(0, 500, 15 * SECOND, Rtype::A);
    world.run(25 * SECOND);
    let told = world.told();
    assert_right(&between(&told, 0, 15 * SECOND));
    for told in between(&told, 5 * SECOND, 8 * SECOND) {
        let answered = told.asked_at + told.took_ns;
        assert!(answered < 8 * SECOND + 600 * MILLISECOND, "{told:?}");
    }
}

#[test]
fn silent_upstream_beside_another_delays_only_the_first_second() {
    for selection in SELECTIONS {
        for dies in [0, 3 * SECOND] {
            let silent = Server {
                silent: dies..Nanos::MAX,
                ..Server::taking(2 * MILLISECOND)
            };
            let settings = format!("selection = \"{selection}\"");
            let mut world = World::new(&settings, vec![silent, Server::taking(5 * MILLISECOND)]);
            world.load(0, 200, 20 * SECOND, Rtype::A);
            world.run(30 * SECOND);
            let told = world.told();
            assert_right(&between(&told, 0, 20 * SECOND));
            let later = between(&told, dies + SECOND, 20 * SECOND);
            let p99 = percentile(&later, 99);
            assert!(p99 < 50 * MILLISECOND, "{selection}: {p99} ns");
        }
    }
}

#[test]
fn rare_queries_hardly_wait_for_a_dead_upstream() {
    for selection in SELECTIONS {
        let dead = Server {
            silent: 0..Nanos::MAX,
            ..Server::taking(0)
        };
        let settings = format!("selection = \"{selection}\"");
        let mut world = World::new(&settings, vec![dead, Server::taking(5 * MILLISECOND)]);
        for i in 0..40 {
            world.ask_at(i * 1500 * MILLISECOND, Rtype::A);
        }
        world.run(70 * SECOND);
        let told = world.told();
        assert_right(&between(&told, 0, 70 * SECOND));
        let slow = told.iter().filter(|t| t.took_ns > 50 * MILLISECOND);
        assert!(slow.count() <= 1, "{selection}");
    }
}

#[test]
fn unreachable_upstream_causes_no_delay() {
    let closed = Server {
        refuses: true,
        ..Server::taking(MILLISECOND)
    };
    let settings = "selection = \"failover\"";
    let mut world = World::new(settings, vec![closed, Server::taking(5 * MILLISECOND)]);
    world.load(0, 50, 5 * SECOND, Rtype::A);
    world.run(10 * SECOND);
    let told = world.told();
    let all = between(&told, 0, 5 * SECOND);
    assert_right(&all);
    assert!(percentile(&all, 100) < 20 * MILLISECOND);
    assert_eq!(world.turns(), ["down 0 no-answer"]);
}

#[test]
fn lossy_upstream_is_not_marked_down() {
    let lossy = Server {
        lose_every: Some(10),
        ..Server::taking(20 * MILLISECOND)
    };
    let mut world = World::new("", vec![lossy]);
    world.load(0, 200, 20 * SECOND, Rtype::A);
    world.run(20 * SECOND);
    assert_right(&between(&world.told(), 0, 19 * SECOND));
    assert!(world.turns().is_empty());
    let state = world.engine.upstream(0, 20 * SECOND).unwrap();
    assert!((30_000..200_000).contains(&state.loss_ppm), "{state:?}");
    let rtt_ns = state.rtt_ns.unwrap();
    assert!((19..22).contains(&(rtt_ns / MILLISECOND)), "{state:?}");
}

#[test]
fn query_slots_are_free_once_their_clients_are_answered() {
    let silent = Server {
        silent: 0..Nanos::MAX,
        ..Server::taking(0)
    };
    let mut world = World::with("queries-max = 20", "", vec![silent; 4]);
    for _ in 0..20 {
        world.ask_at(0, Rtype::AAAA);
    }
    for _ in 0..20 {
        world.ask_at(4600 * MILLISECOND, Rtype::AAAA);
    }
    world.run(20 * SECOND);
    for told in world.told() {
        assert_eq!(told.rcode, Some(Rcode::SERVFAIL));
        assert_eq!(told.took_ns, 4500 * MILLISECOND, "{told:?}");
    }
    assert_eq!(world.counts.refused_full.get(), 0);
}

#[test]
fn flood_of_dead_names_does_not_block_other_clients() {
    // From the network of the flood, and from another.
    for network in [1, 2] {
        let mut world = World::with(
            "queries-max = 256",
            "",
            vec![Server::taking(20 * MILLISECOND)],
        );
        for i in 0..6000 {
            world.ask_dead_at(i * SECOND / 1000, 1);
        }
        for i in 0..50 {
            world.ask_from_at(network, SECOND + i * 80 * MILLISECOND, Rtype::AAAA);
        }
        world.run(20 * SECOND);
        let told = world.told();
        let live: Vec<_> = told.iter().filter(|told| !told.dead).collect();
        let right = live.iter().filter(|t| t.rcode == Some(Rcode::NOERROR));
        assert_eq!((live.len(), right.count()), (50, 50), "network {network}");
        assert!(world.counts.refused_full.get() > 0);
    }
}

#[test]
fn spoofed_responses_with_guessed_ids_are_not_accepted() {
    let server = Server {
        // Three in ten queries have such an ID.
        guesses: 20_000,
        ..Server::taking(50 * MILLISECOND)
    };
    let mut world = World::new("", vec![server]);
    world.load(0, 5, 6 * SECOND, Rtype::A);
    world.run(20 * SECOND);
    let told = world.told();
    assert_right(&between(&told, 0, 6 * SECOND));
    assert!(told.iter().all(|told| !told.is_lie));
    assert_eq!(world.counts.upstream_guessed.get(), 30);
}

/// Two upstreams, of which the first fails names in a period.
fn failing(selection: &str, rcode: Rcode, period: std::ops::Range<Nanos>) -> World {
    let useless = Server {
        fails: Some((rcode, period)),
        ..Server::taking(2 * MILLISECOND)
    };
    let settings = format!("selection = \"{selection}\"");
    World::new(&settings, vec![useless, Server::taking(5 * MILLISECOND)])
}

#[test]
fn upstream_that_fails_names_is_left_within_a_second() {
    for selection in SELECTIONS {
        for rcode in [Rcode::REFUSED, Rcode::SERVFAIL] {
            let mut world = failing(selection, rcode, 5 * SECOND..15 * SECOND);
            world.load(0, 20, 25 * SECOND, Rtype::A);
            world.run(6 * SECOND);
            let before = world.asked(0);
            world.run(15 * SECOND);
            // The probes, after 1, 2, 4 and 8 seconds.
            assert!(
                world.asked(0) - before < 6,
                "{selection}: {} probes",
                world.asked(0) - before
            );
            world.run(35 * SECOND);
            assert_right(&between(&world.told(), 0, 25 * SECOND));
            let reason = if rcode == Rcode::REFUSED {
                "refused"
            } else {
                "servfail"
            };
            assert_eq!(
                world.turns(),
                [format!("down 0 {reason}"), "up 0".to_owned()]
            );
        }
    }
}

#[test]
fn names_that_all_upstreams_fail_take_none_down() {
    let bogus = |latency| Server {
        fails: Some((Rcode::SERVFAIL, 0..Nanos::MAX)),
        ..Server::taking(latency)
    };
    let mut world = World::new("", vec![bogus(2 * MILLISECOND), bogus(3 * MILLISECOND)]);
    // Two names for a minute: the failures are cached for 5 s.
    for second in 0..60 {
        world.ask_name_at(second * SECOND, 1);
        world.ask_name_at(second * SECOND, 2);
    }
    world.run(70 * SECOND);
    assert_eq!(world.turns(), [""; 0]);
}

/// Unbound CVE-2026-42534: retransmissions renew the age of slow queries, so that they keep their slots.
#[test]
fn repeated_slow_queries_do_not_keep_fresh_ones_out() {
    let mut world = World::with(
        "queries-max = 256",
        "",
        vec![Server::taking(20 * MILLISECOND)],
    );
    for turn in 0..50 {
        for name in 0..256 {
            world.ask_dead_name_at(turn * 200 * MILLISECOND, 1, name);
        }
    }
    for i in 0..100 {
        world.ask_from_at(2, SECOND + i * 80 * MILLISECOND, Rtype::AAAA);
    }
    world.run(20 * SECOND);
    let told = world.told();
    let live = told.iter().filter(|told| !told.dead);
    let right = live
        .filter(|told| told.rcode == Some(Rcode::NOERROR))
        .count();
    assert!(right >= 99, "{right} of 100 fresh names");
}
