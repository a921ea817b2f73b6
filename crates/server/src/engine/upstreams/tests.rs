//! Which upstream is queried, and which is down.

use super::*;
use crate::settings::Features;
use rand::SeedableRng as _;

const MILLISECOND: Nanos = 1_000_000;

fn upstreams(count: u8, selection: Selection) -> Upstreams {
    let list: Vec<Upstream> = (0..count)
        .map(|i| Upstream {
            address: ([192, 0, 2, i], 53).into(),
            timeout_ns: 800 * MILLISECOND,
            attempts: 2,
            features: Features {
                edns: true,
                cookies: true,
                randomise_case: false,
                tcp: true,
            },
            tls: None,
            outgoing: Default::default(),
        })
        .collect();
    let all = ServerSet {
        name: String::new(),
        domains: Vec::new(),
        servers: (0..list.len()).collect(),
        selection,
    };
    Upstreams::new(&list, [(0, &all)], [1; 16])
}

/// The order of the upstreams for one question until no attempts are left.
fn order(upstreams: &mut Upstreams) -> Vec<usize> {
    let mut random = StdRng::from_seed([3; 32]);
    let mut asked = Asked::default();
    let mut order = Vec::new();
    while let Some(server) = upstreams.choose(0, &asked, &mut random) {
        asked[server] += 1;
        order.push(server);
    }
    order
}

/// The upstream that is probed beside the last one.
fn probe(pair: &mut Upstreams, now: Nanos) -> Option<usize> {
    let mut asked = Asked::default();
    asked[1] = 1;
    pair.probe(0, &asked, now, &mut StdRng::from_seed([3; 32]))
}

fn first(upstreams: &mut Upstreams) -> usize {
    let mut random = StdRng::from_seed([3; 32]);
    let chosen = upstreams.choose(0, &Asked::default(), &mut random);
    chosen.unwrap()
}

#[test]
fn query_goes_to_every_upstream_before_a_retry() {
    for selection in [
        Selection::RoundRobin,
        Selection::Random,
        Selection::Fastest,
        Selection::Failover,
    ] {
        let order = order(&mut upstreams(3, selection));
        assert_eq!(order.len(), 6, "{selection:?}");
        for half in order.chunks(3) {
            let mut half = half.to_vec();
            half.sort_unstable();
            assert_eq!(half, [0, 1, 2], "{selection:?}");
        }
    }
}

#[test]
fn failover_selects_the_first_and_round_robin_the_next() {
    let mut failover = upstreams(3, Selection::Failover);
    assert_eq!(order(&mut failover), [0, 1, 2, 0, 1, 2]);
    let mut robin = upstreams(3, Selection::RoundRobin);
    let turns: Vec<_> = (0..5).map(|_| first(&mut robin)).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1]);
}

#[test]
fn fastest_gets_all_queries_and_others_some_as_well() {
    let mut fastest = upstreams(2, Selection::Fastest);
    fastest.answered(0, Some(30 * MILLISECOND), 0);
    fastest.answered(1, Some(2 * MILLISECOND), 0);
    let mut random = StdRng::from_seed([3; 32]);
    let mut probes = 0;
    for _ in 0..10_000 {
        let mut asked = Asked::default();
        assert_eq!(fastest.choose(0, &asked, &mut random), Some(1));
        asked[1] = 1;
        let probe = fastest.probe(0, &asked, 0, &mut random);
        assert_ne!(probe, Some(1));
        probes += u32::from(probe.is_some());
    }
    // One in 64: 156 expected.
    assert!((80..300).contains(&probes), "{probes}");
}

#[test]
fn failure_does_not_lower_the_round_trip_time() {
    let mut pair = upstreams(2, Selection::Fastest);
    pair.answered(0, Some(0), 0);
    pair.answered(1, Some(2 * MILLISECOND), 0);
    assert_eq!(first(&mut pair), 0);
    pair.timed_out(0, Fault::NoAnswer, MILLISECOND, 60 * MILLISECOND);
    for _ in 0..100 {
        assert_eq!(first(&mut pair), 1);
    }
    // Neither is one that has never responded.
    let mut pair = upstreams(2, Selection::Fastest);
    pair.timed_out(0, Fault::NoAnswer, MILLISECOND, 400 * MILLISECOND);
    pair.answered(1, Some(2 * MILLISECOND), 0);
    assert_eq!(first(&mut pair), 1);
}

#[test]
fn slow_query_does_not_count_as_timeout_if_others_are_answered() {
    let mut one = upstreams(1, Selection::Fastest);
    one.answered(0, Some(MILLISECOND), SECOND);
    for _ in 0..10 {
        assert_eq!(one.timed_out(0, Fault::NoAnswer, SECOND, 2 * SECOND), None);
    }
    assert!(!one.is_suspect(0));
    assert_eq!(
        one.timed_out(0, Fault::NoAnswer, SECOND + 1, 2 * SECOND),
        None
    );
    assert!(one.is_suspect(0));
}

#[test]
fn silent_upstream_is_probed_at_growing_intervals() {
    let mut pair = upstreams(2, Selection::Failover);
    let down = (0..TIMEOUTS_MAX).filter_map(|_| pair.unreachable(0, SECOND));
    assert_eq!(down.collect::<Vec<_>>(), [Turn::Down(Fault::NoAnswer)]);
    assert_eq!(pair.state(0, SECOND).unwrap().down_since, Some(SECOND));
    assert_eq!(first(&mut pair), 1);
    assert_eq!(probe(&mut pair, SECOND + 1), None, "held for a second");
    assert_eq!(probe(&mut pair, 2 * SECOND), Some(0));
    assert_eq!(probe(&mut pair, 2 * SECOND), None, "one at a time");
    assert_eq!(pair.unreachable(0, 3 * SECOND), None);
    assert_eq!(probe(&mut pair, 4 * SECOND), None, "held for two seconds");
    assert_eq!(probe(&mut pair, 5 * SECOND), Some(0));
    let up = pair.answered(0, Some(MILLISECOND), 5 * SECOND);
    let after_ns = 4 * SECOND;
    assert_eq!(up, Some(Turn::Up { after_ns }));
    assert_eq!(pair.answered(0, Some(MILLISECOND), 5 * SECOND), None);
    assert_eq!(first(&mut pair), 0, "it is back");
    assert_eq!(probe(&mut pair, 5 * SECOND), None);
}

#[test]
fn upstream_is_down_after_three_timeouts_and_two_seconds() {
    let mut one = upstreams(1, Selection::Failover);
    for at in [100, 200, 300, 1999] {
        let turn = one.timed_out(0, Fault::NoAnswer, 0, at * MILLISECOND);
        assert_eq!((turn, one.is_down(0)), (None, false));
    }
    let turn = one.timed_out(0, Fault::NoAnswer, SECOND, 2 * SECOND);
    assert_eq!(turn, Some(Turn::Down(Fault::NoAnswer)));
}

#[test]
fn queries_in_flight_at_an_outage_do_not_extend_the_hold() {
    let mut pair = upstreams(2, Selection::Failover);
    for late in 0..100 {
        pair.unreachable(0, SECOND + late);
    }
    assert_eq!(probe(&mut pair, 2 * SECOND), None);
    assert_eq!(probe(&mut pair, 2 * SECOND + 2), Some(0), "a second later");
}

#[test]
fn upstreams_that_are_all_down_are_still_queried() {
    for (count, questions) in [(1, 2), (2, 4)] {
        let mut dead = upstreams(count, Selection::Fastest);
        for server in 0..usize::from(count) {
            for _ in 0..20 {
                dead.unreachable(server, 0);
            }
        }
        assert_eq!(order(&mut dead).len(), questions);
    }
}

/// The answers of upstream 0 for the names `names`, all REFUSED.
fn refuse(
    upstreams: &mut Upstreams,
    names: std::ops::Range<u64>,
    contradicted: bool,
) -> Option<Turn> {
    let mut turns = Vec::new();
    for name in names {
        upstreams.answered(0, Some(MILLISECOND), SECOND);
        let (counts, turn) = upstreams.failed_name(0, name, Fault::Refused, SECOND);
        turns.extend(turn);
        if counts && contradicted {
            turns.extend(upstreams.contradicted(0, SECOND));
        }
    }
    assert!(turns.len() <= 1, "{turns:?}");
    turns.pop()
}

#[test]
fn upstream_that_fails_what_another_answers_is_down_after_three_names() {
    for selection in [
        Selection::Fastest,
        Selection::RoundRobin,
        Selection::Random,
        Selection::Failover,
    ] {
        let mut pair = upstreams(2, selection);
        pair.answered(1, Some(30 * MILLISECOND), SECOND);
        assert_eq!(refuse(&mut pair, 1..3, true), None);
        assert_eq!(
            refuse(&mut pair, 3..4, true),
            Some(Turn::Down(Fault::Refused))
        );
        assert_eq!(refuse(&mut pair, 4..100, true), None);
        for _ in 0..100 {
            assert_eq!(first(&mut pair), 1);
        }
    }
}

#[test]
fn name_that_all_upstreams_fail_takes_none_down() {
    let mut pair = upstreams(2, Selection::Failover);
    for _ in 0..1000 {
        assert_eq!(refuse(&mut pair, 1..9, false), None);
    }
    assert!(!pair.is_down(0));
    // Many names in a row do.
    let mut one = upstreams(1, Selection::Failover);
    assert_eq!(refuse(&mut one, 1..15, false), None);
    assert_eq!(
        refuse(&mut one, 15..16, false),
        Some(Turn::Down(Fault::Refused))
    );
    // Not with answers between them.
    let mut one = upstreams(1, Selection::Failover);
    for name in 0..1000 {
        assert_eq!(refuse(&mut one, 3 * name..3 * name + 3, false), None);
        assert_eq!(one.useful(0, SECOND), None);
    }
}

#[test]
fn failing_upstream_is_probed_until_it_is_useful() {
    let mut pair = upstreams(2, Selection::Failover);
    refuse(&mut pair, 1..4, true);
    assert_eq!(probe(&mut pair, 2 * SECOND - 1), None);
    assert_eq!(probe(&mut pair, 2 * SECOND), Some(0));
    pair.failed_name(0, 9, Fault::Servfail, 2 * SECOND);
    assert_eq!(
        probe(&mut pair, 4 * SECOND - 1),
        None,
        "held for two seconds"
    );
    assert_eq!(
        pair.state(0, SECOND).unwrap().heard_at,
        None,
        "nothing of use"
    );
    let mut at = 4 * SECOND;
    let up = loop {
        assert_eq!(probe(&mut pair, at), Some(0));
        assert_eq!(pair.answered(0, Some(MILLISECOND), at), None);
        if let Some(up) = pair.useful(0, at) {
            break up;
        }
        assert_eq!(first(&mut pair), 1);
        at += MILLISECOND;
    };
    let after_ns = at - SECOND;
    assert_eq!(up, Turn::Up { after_ns });
    assert!(at < 5 * SECOND);
    assert_eq!(first(&mut pair), 0, "it is back");
}

#[test]
fn timeout_doubles_with_each_retry_up_to_its_limit() {
    let mut one = upstreams(1, Selection::Fastest);
    one.answered(0, Some(100 * MILLISECOND), 0);
    let waits = [0, 1, 2, 3, u8::MAX].map(|n| one.timeout_ns(0, n) / MILLISECOND);
    assert_eq!(waits, [300, 600, 800, 800, 800]);
}

#[test]
fn loss_is_smoothed() {
    let mut one = upstreams(1, Selection::Fastest);
    for i in 0..1000 {
        if i % 4 == 0 {
            one.late(0);
        } else {
            one.answered(0, None, 0);
        }
    }
    let loss = one.state(0, 0).unwrap().loss_ppm;
    assert!((200_000..300_000).contains(&loss), "{loss}");
}

#[test]
fn each_set_is_chosen_from_by_its_own_policy() {
    let list: Vec<Upstream> = upstreams(4, Selection::Random)
        .list
        .iter()
        .map(|state| state.upstream.clone())
        .collect();
    let set = |servers: &[usize], selection| ServerSet {
        name: String::new(),
        domains: Vec::new(),
        servers: servers.to_vec(),
        selection,
    };
    let sets = [
        set(&[0, 1], Selection::RoundRobin),
        set(&[3, 1], Selection::Failover),
        set(&[2, 3], Selection::RoundRobin),
    ];
    let mut upstreams = Upstreams::new(&list, [0, 7, 9].into_iter().zip(&sets), [1; 16]);
    let mut random = StdRng::from_seed([3; 32]);
    let mut first =
        |upstreams: &mut Upstreams, set| upstreams.choose(set, &Asked::default(), &mut random);
    // The turns of one do not move those of another.
    for turn in 0..4 {
        assert_eq!(first(&mut upstreams, 0), Some(turn % 2));
        assert_eq!(first(&mut upstreams, 7), Some(3), "the first in its order");
        assert_eq!(first(&mut upstreams, 9), Some(2 + turn % 2));
    }
    assert_eq!(first(&mut upstreams, 8), None, "there is none");
    assert_eq!(upstreams.sets_of(1).collect::<Vec<_>>(), [0, 7]);
    // Never one of another set, whatever has failed.
    let mut asked = Asked::default();
    asked[3] = u8::MAX;
    assert_eq!(upstreams.choose(7, &asked, &mut random), Some(1));
    asked[1] = u8::MAX;
    assert_eq!(upstreams.choose(7, &asked, &mut random), None);
}

#[test]
fn closed_upstream_is_neither_chosen_nor_probed() {
    for selection in [
        Selection::RoundRobin,
        Selection::Failover,
        Selection::Fastest,
    ] {
        let mut pair = upstreams(2, selection);
        pair.close(1);
        assert_eq!(order(&mut pair), [1, 1]);
        assert_eq!(probe(&mut pair, 0), None);
        pair.close(3);
        assert!(order(&mut pair).is_empty());
        pair.close(0);
        assert_eq!(order(&mut pair).len(), 4);
    }
    let mut one = upstreams(1, Selection::Fastest);
    one.close(1);
    assert!(order(&mut one).is_empty());
}
