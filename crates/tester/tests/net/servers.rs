//! Trials and searches with each server. Rates are modest.

use dns64_transport::clock::{Nanos, SECOND};
use dns64bench::lab::profile::{Profile, ProfileRole, built_in_names};
use dns64bench::trial::fault::TesterFault;
use serde_json::Value;

use crate::accounts::{
    answers, assert_accounted, assert_found_by_trials, code_of, fault, is_disturbed,
};
use crate::busy::until;
use crate::machine::{Run, left_behind, turn};

/// Queries of a trial.
pub(crate) const QUERIES: u64 = 300;

/// Largest number of the Tester's own queries, which check whether the DUT answers.
const PROBES: u64 = 20;

/// No server retries earlier: Knot Resolver waits 20 ms longer than the previous response times
/// (`MINIMAL_TIMEOUT_ADDITION` of its selection.h), Unbound 50 ms (`RTT_MIN_TIMEOUT`).
const RETRY_NS: Nanos = SECOND / 50;

/// No server sends more upstream queries for one query: `max-sent-count` of unbound.conf(5).
const TRIES_MAX: u64 = 32;

/// Runs one trial of a correct server: all its answers are valid, and the trial is invalid only if others disturbed it.
/// Some queries were answered in time.
pub(crate) fn trial(arguments: &str) -> Run {
    until("has a server answered in time", || {
        let run = Run::of(&format!(
            "trial --lab netns --uncertified -Q 1k -l 300ms {arguments}"
        ));
        let json = &run.json;
        assert_eq!(run.code, code_of(json), "{json:#}");
        assert_accounted(json);
        assert_eq!(run.number("/queries_due"), QUERIES);
        let others = ["wrong", "empty", "truncated"].map(|class| answers(json, class));
        // A DUT that considers its authority down synthesises an AAAA for a name that has one, or answers without any.
        let of_authority = matches!(
            fault(json),
            Some(TesterFault::AuthorityDrops { .. } | TesterFault::AuthoritySlow { .. })
        );
        if others != [0; 3] && of_authority {
            return None;
        }
        assert_eq!(others, [0; 3], "{arguments}: {json:#}");
        let is_invalid = run.text("/outcome") == "invalid";
        assert_eq!(is_invalid, is_disturbed(json), "{arguments}: {json:#}");
        (answers(json, "valid") > 0).then_some(run)
    })
}

/// Largest number of queries for which a server may have retried at its authority: those without an answer at the
/// earliest retry.
fn slow(run: &Run) -> u64 {
    let unanswered = run.number("/queries_sent") - answered(run);
    if !run.json["notes"].as_array().unwrap().is_empty() {
        // The server was restarted, or lost the names that were queried beforehand.
        return QUERIES;
    }
    let within = |percentile: &str| run.number(&format!("/rtt_ns/{percentile}")) < RETRY_NS;
    let beyond = [("max", 0), ("p999", 1), ("p99", 10), ("p50", 500)];
    let beyond = beyond.into_iter().find(|(p, _)| within(p));
    unanswered + (QUERIES * beyond.map_or(1000, |(_, permille)| permille)).div_ceil(1000)
}

/// Number of answered queries, late ones included.
fn answered(run: &Run) -> u64 {
    answers(&run.json, "valid") + answers(&run.json, "late")
}

/// Asserts that the authority received `expected` queries: at least those that were answered, and more only for queries
/// that waited long enough for a retry.
pub(crate) fn assert_asked(run: &Run, rtype: &str, expected: u64, what: &str) {
    let asked = run.number(&format!("/authority/{rtype}"));
    let least = (expected + answered(run)).saturating_sub(QUERIES);
    let most = expected + PROBES + slow(run) * TRIES_MAX;
    assert!(
        (least..=most).contains(&asked),
        "{what}: {asked} times {rtype} instead of {expected}, at least {least}, at most {most}: {:#}",
        run.json
    );
}

/// Names of the installed built-in servers of a role.
fn installed_as(role: ProfileRole) -> Vec<&'static str> {
    built_in_names()
        .filter(|name| {
            let profile = Profile::built_in(name).unwrap();
            profile.role == role && profile.program(None).is_ok()
        })
        .collect()
}

/// Names of the installed built-in DNS64 servers.
fn installed() -> Vec<&'static str> {
    installed_as(ProfileRole::Dut)
}

/// Names of the installed built-in authorities.
fn authorities() -> Vec<&'static str> {
    let installed = installed_as(ProfileRole::Authority);
    for expected in [
        "nsd",
        "bind-authority",
        "knot",
        "knot-xdp",
        "pdns-authoritative",
        "yadifa",
    ] {
        assert!(installed.contains(&expected), "{expected}: {installed:?}");
    }
    installed
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn server_in_a_lab_sends_two_queries_for_each_query() {
    let _turn = turn();
    let run = trial("--dut unbound");
    assert_asked(&run, "aaaa", QUERIES, "unbound");
    assert_asked(&run, "a", QUERIES, "unbound");
    // Every answered name was queried at the authority, and these queries were timed.
    let names = |key: &str| run.number(&format!("/path/answered/{key}"));
    assert_eq!(names("names"), answers(&run.json, "valid"));
    for never in ["unasked", "aaaa_only", "untimed"] {
        assert_eq!(names(never), 0, "{never}: {:#}", run.json);
    }
    assert!(run.number("/path/authority/p50_ns") < run.number("/rtt_ns/max"));
    assert!(run.text("/conditions/dut").starts_with("unbound (Version "));
    assert_eq!(run.text("/conditions/lab"), "netns");
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn every_installed_server_answers_correctly() {
    let _turn = turn();
    let servers = installed();
    for expected in ["dns64d", "unbound"] {
        assert!(servers.contains(&expected), "{expected}: {servers:?}");
    }
    for name in servers {
        let run = trial(&format!("--dut {name}"));
        assert_asked(&run, "aaaa", QUERIES, name);
        assert_asked(&run, "a", QUERIES, name);
        let dut = run.text("/conditions/dut");
        let names_server = dut.to_ascii_lowercase().starts_with(name);
        assert!(names_server && !dut.contains("unknown"), "{dut}");
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn mix_of_types_with_edns_is_answered_by_type() {
    let _turn = turn();
    let run = trial(
        "--dut dns64d --edns do --types AAAA=60%,A=30%,HTTPS=10% --addresses 2 --cname-share 20%",
    );
    for (place, rtype, percent) in [(0, "AAAA", 60), (1, "A", 30), (2, "HTTPS", 10)] {
        assert_eq!(run.text(&format!("/types/{place}/type")), rtype);
        assert_eq!(
            run.number(&format!("/types/{place}/sent")),
            QUERIES * percent / 100
        );
    }
    assert_asked(&run, "aaaa", QUERIES * 60 / 100, "AAAA of clients");
    assert_asked(&run, "a", QUERIES * 90 / 100, "A of dns64d and of clients");
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn names_with_an_aaaa_record_are_queried_once() {
    let _turn = turn();
    for name in installed() {
        let run = trial(&format!("--dut {name} --aaaa-share 50%"));
        assert_asked(&run, "aaaa", QUERIES, name);
        assert_asked(&run, "a", QUERIES / 2, name);
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn cached_share_does_not_reach_the_authority() {
    let _turn = turn();
    for name in installed() {
        if !Profile::built_in(name).unwrap().caches {
            continue;
        }
        // The Tester selects the repeated names: two servers suffice to show it.
        let patterns: &[&str] = match name {
            "dns64d" | "unbound" => &["one-name", "stack:100", "window:500", "zipf:500,0.9"],
            _ => &["one-name"],
        };
        for pattern in patterns {
            let repeated = format!("--cached-share 50% --cached-pattern {pattern}");
            let run = trial(&format!("--dut {name} {repeated}"));
            assert_asked(&run, "aaaa", QUERIES / 2, name);
            assert_asked(&run, "a", QUERIES / 2, name);
        }
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn ipv6_upstream_is_used_like_an_ipv4_upstream() {
    let _turn = turn();
    for name in ["dns64d", "unbound"] {
        let run = trial(&format!("--dut {name} --upstream-family ipv6"));
        assert_eq!(run.text("/conditions/upstream_family"), "IPv6");
        assert_asked(&run, "a", QUERIES, "A over IPv6");
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn two_devices_suffice_for_a_trial() {
    let _turn = turn();
    for name in ["dns64d", "unbound"] {
        let run = trial(&format!("--dut {name} --setup two-device"));
        assert_eq!(run.text("/conditions/setup"), "two-device");
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn nsd_is_an_authority_and_a_server_is_restarted() {
    let _turn = turn();
    for name in ["dns64d", "unbound"] {
        let run = trial(&format!(
            "--dut {name} --authority nsd --namespace 10.0.0.0/16 --restart"
        ));
        assert_eq!(run.text("/conditions/authority"), "nsd");
        // Only the built-in authority has counters.
        assert_eq!(run.json["authority"], Value::Null);
    }
}

/// A sample of the zone is compared at each start, so a run that has started had the correct zone.
#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn every_installed_authority_answers_a_self_test_and_a_dut_correctly() {
    let _turn = turn();
    for name in authorities() {
        until("has an authority answered in time", || {
            let run = Run::of(&format!(
                "selftest --lab netns --authority {name} --self-tests 1 -Q 500 -l 300ms"
            ));
            let trials = run.trials();
            for trial in trials {
                assert_accounted(trial);
                for class in ["wrong", "empty", "truncated", "error"] {
                    assert_eq!(answers(trial, class), 0, "{name}: {trial:#}");
                }
            }
            trials
                .iter()
                .find(|trial| answers(trial, "valid") > 0)
                .map(drop)
        });
        // FakeDNS chooses the names with an AAAA record at random.
        let share = if name == "fakedns" { "0" } else { "50%" };
        let run = trial(&format!(
            "--dut unbound --authority {name} --aaaa-share {share}"
        ));
        assert_eq!(run.text("/conditions/authority"), name);
        // Without a flag for the number of names, 300 and the 64 reserved ones need 2^9.
        let names = run.text("/conditions/namespace");
        assert!(names.starts_with("10.0.0.0/23, "), "{name}: {names}");
    }
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// Whether it certifies the Tester depends on the machine.
#[test]
#[ignore = "needs root: run by .ci/run net"]
fn self_test_runs_at_220_per_cent_and_certifies_the_passed_rate() {
    let _turn = turn();
    let run = Run::of("selftest --lab netns -Q 1k -l 300ms");
    let trials = run.trials();
    for trial in trials {
        assert_accounted(trial);
        assert_eq!(trial["rate_qps"], 2200, "{trial:#}");
        assert_eq!(trial["segmentation"], false, "{trial:#}");
        assert_eq!(answers(trial, "wrong") + answers(trial, "empty"), 0);
    }
    assert_eq!(run.number("/self_test_rate_qps"), 2200);
    let passed = run.text("/outcome") == "passed";
    assert_eq!(passed, trials.last().unwrap()["outcome"] == "passed");
    assert_eq!(run.code, Some(if passed { 0 } else { 3 }));
    let certified = run.json["certified_rate_qps"].as_u64();
    assert_eq!(certified, passed.then_some(1000), "{:#}", run.json);
    if passed {
        let certificate = &run.json["conditions"]["certificate"];
        assert_eq!(certificate["self_tests"], 3, "{:#}", run.json);
    }
}

/// With AF_XDP the kernel counters of both hosts do not change. Still, each query is accounted for, and no answered
/// query is attributed to the Tester.
#[test]
#[ignore = "needs root: run by .ci/run net"]
fn self_test_over_af_xdp_accounts_for_every_query() {
    let _turn = turn();
    until("has an authority answered in time", || {
        let run = Run::of("selftest --lab netns --self-tests 1 -Q 1k -l 300ms");
        let trials = run.trials();
        assert_eq!(run.text("/conditions/backend"), "xdp");
        for trial in trials {
            assert_accounted(trial);
            assert_eq!(trial["backend"], "xdp (copy)", "{trial:#}");
            assert_eq!(answers(trial, "wrong") + answers(trial, "empty"), 0);
            let asked = trial["authority"]["aaaa"].as_u64();
            assert!(asked >= Some(answers(trial, "valid")), "{trial:#}");
        }
        let is_answered = |trial: &Value| answers(trial, "valid") > 0;
        trials.iter().any(is_answered).then_some(())
    });
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// The DUT's sockets remain those of the kernel. A setup whose self-test has no link is measured over sockets.
#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn dut_is_measured_over_af_xdp_where_it_can_be() {
    let _turn = turn();
    let run = trial("--dut dns64d --setup two-device");
    assert_eq!(run.text("/conditions/backend"), "socket");
    let run = trial("--dut dns64d");
    assert_eq!(run.text("/backend"), "xdp (copy)");
    assert_eq!(run.text("/conditions/authority_backend"), "xdp");
    assert_eq!(run.json["conditions"]["segmentation"], false);
    let losses = run.json["losses"].to_string();
    assert!(!losses.contains("did not arrive"), "{losses}");
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn dut_is_measured_over_tcp() {
    let _turn = turn();
    // Unbound accepts 10 connections in each thread.
    let run = trial("--dut unbound --transport tcp -c 4");
    assert_eq!(run.text("/backend"), "tcp");
    assert_eq!(run.number("/connections/before_trial"), 4);
    assert_asked(&run, "aaaa", QUERIES, "unbound");
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn search_stops_at_the_requested_rate() {
    let _turn = turn();
    let run = until("was the Tester certified", || {
        let run = Run::of("search --lab netns --dut unbound -l 300ms --max-rate 2k");
        let refused = run
            .text("/error")
            .contains("the self-test of the Tester failed");
        (!refused).then_some(run)
    });
    assert_found_by_trials(&run.json, run.code);
    for trial in run.trials() {
        assert!(trial["rate_qps"].as_u64() <= Some(2000), "{trial:#}");
        assert_eq!(answers(trial, "wrong") + answers(trial, "empty"), 0);
    }
    let certified = run.number("/certified_rate_qps");
    let rate = run.json["rate_qps"]
        .as_u64()
        .max(run.json["failed_qps"].as_u64());
    let is_certified = rate.unwrap_or(0) <= certified;
    assert_eq!(run.json["certified"], is_certified, "{:#}", run.json);
    if run.text("/ended") == "limited_by_request" {
        assert_eq!((run.number("/rate_qps"), run.code), (2000, Some(0)));
    }
}
