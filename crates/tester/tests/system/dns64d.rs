//! dns64d between the Measurer and simulated authorities, with exact counts of queries and responses.

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::memory::Impairment;
use dns64bench::load::query::Edns;
use dns64bench::namespace::NameRecords;
use dns64bench::trial::result::{Answers, Outcome};

use crate::trial::{MILLISECOND, NONE};
use crate::whole::{Event, LOAD, Load, PLAIN, SETUP, Setup, Whole};

const ALL_VALID: Answers = Answers {
    valid: 2000,
    ..NONE
};

#[test]
fn every_query_causes_two_upstream_queries() {
    let mut whole = Whole::new(SETUP);
    let result = whole.trial(LOAD, &[]);
    assert_eq!(result.outcome, Outcome::Passed);
    assert_eq!(result.answers, ALL_VALID);
    let asked = whole.asked();
    assert_eq!((asked.aaaa, asked.a, asked.other), (2000, 2000, 0));
    let counts = &whole.counts;
    assert_eq!(counts.synthesised_aaaa.get(), 2000);
    assert_eq!(counts.responses_noerror.get(), 2000);
    assert_eq!(whole.cache.entries(), 4000);
    // One round trip on the first link, two on the second.
    assert_eq!(result.rtt.p50.unwrap() / 1000, 600);
    whole.assert_idle();
}

#[test]
fn names_with_own_aaaa_cause_one_upstream_query() {
    for (aaaa_share, a) in [("0.5", 1000), ("1", 0)] {
        let mut whole = Whole::new(Setup {
            aaaa_share,
            ..SETUP
        });
        assert_eq!(whole.trial(LOAD, &[]).answers, ALL_VALID);
        let asked = whole.asked();
        assert_eq!((asked.aaaa, asked.a, asked.other), (2000, a, 0));
        assert_eq!(whole.counts.synthesised_aaaa.get(), a);
        whole.assert_idle();
    }
}

#[test]
fn mix_of_types_is_sent_exactly_and_judged_by_type() {
    for (aaaa_share, cached_share, edns) in [
        ("0", "0", Edns::Plain),
        ("0.5", "0", Edns::Do),
        ("0.5", "0.5", Edns::Cookie),
    ] {
        let mut whole = Whole::new(Setup {
            aaaa_share,
            cached_share,
            types: "AAAA=60%,A=30%,HTTPS=10%",
            edns,
            ..SETUP
        });
        let result = whole.trial(LOAD, &[]);
        assert_eq!((result.answers, &result.first_wrong), (ALL_VALID, &None));
        let found = result.types.iter();
        let found: Vec<_> = found
            .map(|it| (it.rtype.as_str(), it.sent, it.valid))
            .collect();
        let expected = [("AAAA", 1200, 1200), ("A", 600, 600), ("HTTPS", 200, 200)];
        assert_eq!(found, expected, "{aaaa_share}, {cached_share}");
        // The one cached name is queried upstream once for each type.
        let (part, one) = if cached_share == "0" { (1, 0) } else { (2, 1) };
        let own = if aaaa_share == "0" { 1 } else { 2 };
        let asked = whole.asked();
        let synthesised = 1200 / part / own;
        assert_eq!(asked.aaaa, 1200 / part + one);
        assert_eq!(asked.a, synthesised + 600 / part + one);
        assert_eq!(asked.other, 200 / part + one);
        assert_eq!(result.aaaa(), (1200, 1200));
        whole.assert_idle();
    }
}

#[test]
fn aliases_and_several_addresses_are_synthesised_completely() {
    for (aaaa_share, types) in [("0", "AAAA"), ("0.5", "AAAA=60%,A=30%,HTTPS=10%")] {
        let mut whole = Whole::new(Setup {
            aaaa_share,
            types,
            edns: Edns::Plain,
            records: NameRecords {
                cname_share: "0.3".parse().unwrap(),
                cname_length: 3,
                addresses: 4,
            },
            ..SETUP
        });
        let result = whole.trial(LOAD, &[]);
        assert_eq!((result.answers, &result.first_wrong), (ALL_VALID, &None));
        whole.assert_idle();
    }
}

#[test]
fn concurrent_queries_for_one_name_share_upstream_queries() {
    for (cached_share, fresh) in [("0.5", 1000), ("1", 0)] {
        let mut whole = Whole::new(Setup {
            cached_share,
            ..SETUP
        });
        assert_eq!(whole.trial(LOAD, &[]).answers, ALL_VALID);
        let asked = whole.asked();
        assert_eq!((asked.aaaa, asked.a), (fresh + 1, fresh + 1));
        let before = whole.counts.cache_hits.get();
        assert_eq!(whole.trial(LOAD, &[]).answers, ALL_VALID);
        let asked = whole.asked();
        assert_eq!((asked.aaaa, asked.a), (2 * fresh + 1, 2 * fresh + 1));
        // Both of its parts, each time.
        assert_eq!(
            whole.counts.cache_hits.get() - before,
            2 * (2000 - fresh),
            "{cached_share}"
        );
        whole.assert_idle();
    }
}

/// 1 % of the upstream queries and of their responses lost, 1 % of both duplicated, and all reordered.
const ROUGH: Setup = Setup {
    upstream_keys: "timeout = \"100ms\"\nattempts = 5",
    answers: Impairment {
        delay_ns: 100_000,
        jitter_ns: 20 * MILLISECOND,
        loss_ppm: 10_000,
        duplicate_ppm: 10_000,
    },
    lose_every: 100,
    ..SETUP
};

#[test]
fn upstream_losses_reordering_and_duplicates_cost_retries_but_no_answers() {
    let run = |seed| {
        let mut whole = Whole::new(Setup { seed, ..ROUGH });
        let result = whole.trial(LOAD, &[]);
        assert_eq!(result.answers, ALL_VALID);
        // Duplicates may arrive after the last response.
        whole.rest(SECOND);
        let (asked, unheard) = (whole.asked(), whole.unheard());
        let counts = &whole.counts;
        let timeouts = counts.upstream_timeout.get();
        let sent = counts.upstream_udp.get();
        // Retries follow a timeout; so do datagrams lost after the response is known.
        assert!((4000..=4000 + timeouts).contains(&sent), "{sent}");
        assert_eq!(asked.queries() + unheard, sent);
        assert_eq!(counts.upstream_answers.get(), 4000);
        assert_eq!(unheard, sent / 100);
        assert!(timeouts > unheard + 10, "responses were lost as well");
        // No duplicate is accepted as a response to another query.
        assert!(counts.rejected_unknown.get() > 10);
        assert_eq!(counts.lookups_failed.get(), 0);
        whole.assert_idle();
        let figures = whole.counts.figures();
        let figures = figures.into_iter().map(|figure| figure.value);
        (figures.collect::<Vec<_>>(), result.rtt.p99)
    };
    let [first, again, other] = [1, 1, 2].map(run);
    assert_eq!(first, again, "same seed, same run");
    assert_ne!(first, other, "different seed, different run");
}

#[test]
fn duplicated_and_reordered_upstream_queries_are_harmless() {
    let relayed = Impairment {
        jitter_ns: 20 * MILLISECOND,
        duplicate_ppm: 10_000,
        ..PLAIN
    };
    let mut whole = Whole::new(Setup { relayed, ..SETUP });
    let result = whole.trial(LOAD, &[]);
    let duplicate = result.answers.duplicate;
    assert_eq!(
        result.answers,
        Answers {
            duplicate,
            ..ALL_VALID
        }
    );
    let asked = whole.asked().queries();
    assert_eq!(whole.counts.upstream_udp.get(), 4000);
    whole.rest(SECOND);
    // Each copy of an upstream query has a response, the second of which is unexpected.
    assert!(asked > 4010, "{asked}");
    assert_eq!(whole.counts.rejected_unknown.get(), asked - 4000);
    whole.assert_idle();
}

#[test]
fn only_losses_before_dns64d_are_missing() {
    let queries = Impairment {
        jitter_ns: 5 * MILLISECOND,
        loss_ppm: 10_000,
        duplicate_ppm: 10_000,
        ..PLAIN
    };
    for seed in 0..2 {
        let mut whole = Whole::new(Setup {
            seed,
            queries,
            ..SETUP
        });
        let answers = whole.trial(LOAD, &[]).answers;
        let taken = whole.counts.queries_udp.get();
        let Answers {
            valid,
            missing,
            duplicate,
            ..
        } = answers;
        assert_eq!(
            answers,
            Answers {
                valid,
                missing,
                duplicate,
                ..NONE
            }
        );
        assert_eq!(valid + missing, 2000);
        // Each datagram that arrived is answered, including the second copy of a query.
        assert_eq!(valid + duplicate, taken);
        assert!(missing > 5 && duplicate > 5, "{answers:?}");
        // A copy never causes an upstream query.
        assert_eq!(whole.asked().queries(), 2 * valid);
        whole.assert_idle();
    }
}

/// 500 queries per second for `duration_ns`, with enough time for every retry.
const fn steady(duration_ns: Nanos) -> Load {
    Load {
        rate_qps: 500,
        duration_ns,
        timeout_ns: 2 * SECOND,
    }
}

fn dies(which: usize) -> impl Fn(&mut Whole) {
    move |whole| whole.upstreams[which].dead = true
}

fn returns(which: usize) -> impl Fn(&mut Whole) {
    move |whole| whole.upstreams[which].dead = false
}

#[test]
fn failover_answers_all_queries_and_returns_to_recovered_upstream() {
    let mut whole = Whole::new(Setup {
        upstreams: 2,
        upstream_keys: "timeout = \"200ms\"\nattempts = 2\nselection = \"failover\"",
        ..SETUP
    });
    let before = whole.trial(steady(2 * SECOND), &[]);
    assert_eq!(before.answers.valid, 1000);
    let [first, second] = [0, 1].map(|i| whole.upstreams[i].heard());
    assert_eq!((first, second), (2000, 0), "the first in order is used");

    let events: [Event<'_>; 2] = [(0, &dies(0)), (2 * SECOND, &returns(0))];
    let during = whole.trial(steady(8 * SECOND), &events);
    assert_eq!(
        during.answers,
        Answers {
            valid: 4000,
            ..NONE
        }
    );
    // No upstream query waits for more than one timeout.
    assert!(during.rtt.max.unwrap() < 402 * MILLISECOND, "{during:?}");
    let lost = whole.upstreams[0].lost;
    assert_eq!(whole.counts.upstream_timeout.get(), lost);
    // AAAA and A of the 51 ms until the first timeout, and then single probes.
    assert!((50..105).contains(&lost), "{lost}");
    // After 2 s of silence it is unused for one second; the queries of the remaining 5 s are answered there.
    let again = whole.upstreams[0].heard() - first;
    assert!((2 * 2450..=2 * 2550).contains(&again), "{again}");
    assert!(again + whole.upstreams[1].heard() >= 8000);
    whole.assert_idle();
}

#[test]
fn waiting_clients_are_served_when_upstreams_recover() {
    let mut whole = Whole::new(Setup {
        upstreams: 2,
        upstream_keys: "timeout = \"100ms\"\nattempts = 1",
        ..SETUP
    });
    let die = |whole: &mut Whole| whole.upstreams.iter_mut().for_each(|u| u.dead = true);
    let back = |whole: &mut Whole| whole.upstreams.iter_mut().for_each(|u| u.dead = false);
    let events: [Event<'_>; 2] = [(SECOND, &die), (3 * SECOND, &back)];
    let result = whole.trial(steady(6 * SECOND), &events);
    // All open queries are retried one after the other when an upstream responds. The first two have then waited for 2
    // s and are late.
    assert_eq!(
        result.answers,
        Answers {
            valid: 2998,
            late: 2,
            ..NONE
        }
    );
    let counts = &whole.counts;
    assert_eq!(counts.responses_servfail.get(), 0);
    assert_eq!(counts.lookups_failed.get(), 0);
    assert_eq!(counts.upstream_timeout.get(), whole.unheard());
    whole.assert_idle();
    let after = whole.trial(steady(SECOND), &[]);
    assert_eq!(after.answers.valid, 500);
}

#[test]
fn full_table_refuses_misses_and_answers_hits() {
    let mut whole = Whole::new(Setup {
        queries_max: 100,
        cached_share: "0.5",
        relayed: Impairment {
            delay_ns: 50 * MILLISECOND,
            ..PLAIN
        },
        answers: Impairment {
            delay_ns: 50 * MILLISECOND,
            ..PLAIN
        },
        ..SETUP
    });
    // Few enough to find room; one of them is for the cached name.
    let few = Load {
        rate_qps: 10,
        ..LOAD
    };
    assert_eq!(whole.trial(few, &[]).answers.valid, 10);
    let hits = whole.counts.cache_hits.get();
    let result = whole.trial(LOAD, &[]);
    // 1,000 fresh names in one second need 100 places for 200 ms each: five rounds of 100.
    let error = 500;
    assert_eq!(
        result.answers,
        Answers {
            valid: 2000 - error,
            error,
            ..NONE
        }
    );
    let counts = &whole.counts;
    assert_eq!(counts.refused_full.get(), error);
    assert_eq!(counts.responses_servfail.get(), error);
    // The cached name: both of its parts, each time.
    assert_eq!(counts.cache_hits.get() - hits, 2 * 1000);
    whole.assert_idle();
}
