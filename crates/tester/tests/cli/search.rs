//! Ends of searches. Trials that others disturb are repeated; if they are disturbed too often, the search ends. How far
//! it gets depends on the machine.

use serde_json::Value;

use super::accounts::assert_found_by_trials;
use super::dut::{Dut, LOCALHOST};
use super::program::{measured, run, server};
use super::script::{At, Conduct, Fault};

/// Runs a search that tries `expected` rates, or the first of them, and asserts its end if it tries all of them.
fn search(conduct: Conduct, flags: &str, expected: &[u64], ended: &str) -> Value {
    let ran = measured(|| {
        let dut = Dut::start(LOCALHOST, conduct);
        let subject = server(dut.address);
        run(&format!(
            "search {subject} {flags} --pref64 64:ff9b::/96 --json -"
        ))
    });
    let json = ran.json();
    for key in ["rate_qps", "resolution_qps", "trials", "certified_rate_qps"] {
        assert!(json.get(key).is_some(), "no {key}: {json}");
    }
    assert_found_by_trials(&json, ran.code);
    assert!(expected.starts_with(&rates(&json)), "{json:#}");
    if json["ended"] != "tester_fault" {
        assert_eq!(
            (rates(&json).as_slice(), &json["ended"]),
            (expected, &ended.into())
        );
    }
    json
}

/// Rates that were tried, without repetitions after a disturbance.
fn rates(search: &Value) -> Vec<u64> {
    let trials = search["trials"].as_array().unwrap();
    let mut rates: Vec<u64> = trials
        .iter()
        .map(|trial| trial["rate_qps"].as_u64().unwrap())
        .collect();
    rates.dedup();
    rates
}

#[test]
fn search_ends_at_the_highest_allowed_rate() {
    let flags = "-Q 200 --max-rate 800 -l 200ms -t 30s";
    let json = search(
        Conduct::Good,
        flags,
        &[10, 200, 400, 800],
        "limited_by_request",
    );
    assert!(json["certified_rate_qps"].is_null(), "{json}");
}

/// The first trial is at 5 % of the first rate, or at its lowest.
#[test]
fn search_ends_if_nothing_passes_at_low_load() {
    let flags = "-Q 16 -l 1s -t 100ms";
    let json = search(
        Conduct::Faults(&[(Fault::Silent, At::ALL)]),
        flags,
        &[1],
        "nothing_passes",
    );
    assert!(json["rate_qps"].is_null(), "{json}");
    if json["ended"] != "tester_fault" {
        assert_eq!(json["failed_qps"].as_u64(), rates(&json).last().copied());
    }
}

/// Below 5 queries per second, no query is due in 200 ms.
#[test]
fn search_ends_at_the_lowest_rate_of_a_short_trial() {
    let flags = "-Q 16 -l 200ms -t 100ms";
    search(
        Conduct::Faults(&[(Fault::Silent, At::ALL)]),
        flags,
        &[5],
        "nothing_passes",
    );
}

/// The exact limit of a server is tested in simulated time; here the result only has to match the trials.
#[test]
fn search_finds_the_rate_at_which_a_server_fails() {
    // Trials of 100 ms have one query at low load, and at most 50 with rates up to 500. The server stops in the third, if no trial is
    // repeated.
    let flags = "-Q 200 -l 100ms -t 2s --resolution 100";
    let ran = measured(|| {
        let dut = Dut::start(LOCALHOST, Conduct::DieAfter(50));
        let subject = server(dut.address);
        run(&format!(
            "search {subject} {flags} --pref64 64:ff9b::/96 --json -"
        ))
    });
    let json = ran.json();
    assert_found_by_trials(&json, ran.code);
    assert_eq!(rates(&json)[0], 10, "{json}");
    let rate = |key: &str| json[key].as_u64();
    if json["ended"] == "found" {
        assert!(rate("failed_qps").unwrap() - rate("rate_qps").unwrap() <= 100);
        assert_eq!(json["resolution_qps"], 100, "{json}");
    }
}
