//! How searches end.

use serde_json::Value;

use super::dut::{Conduct, Dut, LOCALHOST};
use super::program::{Ran, run, server, undisturbed};

fn search(conduct: Conduct, flags: &str) -> (Ran, Value) {
    let ran = undisturbed(|| {
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
    (ran, json)
}

/// The rates that were tried, without those that were tried again after a disturbance.
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
fn a_search_ends_at_the_highest_rate_that_was_asked_for() {
    let flags = "-Q 200 --max-rate 800 -l 200ms -t 1s";
    let (ran, json) = search(Conduct::Good, flags);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(json["ended"], "limited_by_request", "{json}");
    assert_eq!(json["rate_qps"], 800, "{json}");
    assert_eq!(rates(&json), [200, 400, 800], "{json}");
    assert!(json["certified_rate_qps"].is_null(), "{json}");
}

#[test]
fn a_search_ends_when_nothing_passes() {
    let (ran, json) = search(Conduct::DieAfter(3), "-Q 16 -l 1s -t 100ms");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(json["ended"], "nothing_passes", "{json}");
    assert!(json["rate_qps"].is_null(), "{json}");
    assert_eq!(json["failed_qps"], 1, "{json}");
    assert_eq!(rates(&json), [16, 8, 4, 2, 1], "{json}");
}

/// Below 5 queries per second no query falls into 200 ms.
#[test]
fn a_search_ends_at_the_lowest_rate_that_a_short_trial_can_have() {
    let (ran, json) = search(Conduct::Silent, "-Q 16 -l 200ms -t 100ms");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(json["ended"], "nothing_passes", "{json}");
    assert_eq!(rates(&json), [16, 8, 5], "{json}");
}

#[test]
fn a_search_finds_where_a_server_begins_to_fail() {
    // Trials of 100 ms with rates up to 500 have at most 50 queries, and the server is gone after
    // the 20 of the first trial and 30 of the second.
    let flags = "-Q 200 -l 100ms -t 300ms --resolution 100";
    let (ran, json) = search(Conduct::DieAfter(50), flags);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(json["ended"], "found", "{json}");
    assert_eq!(json["rate_qps"], 200, "{json}");
    assert_eq!(json["failed_qps"], 300, "{json}");
    assert_eq!(json["resolution_qps"], 100, "{json}");
}
