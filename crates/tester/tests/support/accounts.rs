//! Invariants of every measurement, on machines with any load: each query is accounted for, and outcome and exit code
//! follow from the counts.
//!
//! Whether a trial passes depends on the other load of the machine. Tests that need a certain outcome simulate the
//! time: `tests/system`.

use dns64bench::trial::fault::TesterFault;
use dns64bench::trial::place::Source;
use serde_json::Value;

/// Classes of a query; duplicates and strays are additional datagrams.
pub(crate) const CLASSES: [&str; 7] = [
    "valid",
    "late",
    "wrong",
    "empty",
    "error",
    "truncated",
    "missing",
];

/// Returns the queries of one class.
pub(crate) fn answers(trial: &Value, class: &str) -> u64 {
    number(&trial["answers"], class)
}

/// Asserts the number of queries of a trial; returns whether each had a valid answer.
pub(crate) fn all_answered(trial: &Value, due: u64) -> bool {
    assert_eq!(number(trial, "queries_due"), due, "{trial:#}");
    answers(trial, "valid") == due
}

/// Returns a required number.
pub(crate) fn number(object: &Value, key: &str) -> u64 {
    let number = object[key].as_u64();
    number.unwrap_or_else(|| panic!("no {key}: {object:#}"))
}

/// Returns the fault of a trial or a search, if it is void.
pub(crate) fn fault(measurement: &Value) -> Option<TesterFault> {
    serde_json::from_value(measurement["fault"].clone()).unwrap()
}

/// Returns whether a trial or a search is void because of other programs: the Tester or the authority was delayed, a
/// buffer or the queue of a link overflowed, or the clock was set. They cause no loss inside a host.
pub(crate) fn is_disturbed(measurement: &Value) -> bool {
    fault(measurement).is_some_and(|fault| {
        !matches!(
            fault,
            TesterFault::NetworkLoss(Source { link: None, .. })
                | TesterFault::NetworkDelay(Source { link: None, .. })
                | TesterFault::AuthorityOverflow { .. }
                | TesterFault::TooFewNames { .. }
                | TesterFault::AuthorityDied { .. }
                | TesterFault::HostLate { .. }
                | TesterFault::HostClock { .. }
                | TesterFault::Link { .. }
        )
    })
}

/// Checks that each query that was due is accounted for, and that the outcome follows.
pub(crate) fn assert_accounted(trial: &Value) {
    let [due, sent, undecided] =
        ["queries_due", "queries_sent", "undecided"].map(|key| number(trial, key));
    let classes: u64 = CLASSES.iter().map(|class| answers(trial, class)).sum();
    assert_eq!(classes + undecided, sent, "{trial:#}");
    if trial["ended_early"] == false {
        assert_eq!(sent + not_taken(trial), due, "{trial:#}");
    }
    assert!(sent <= due, "{trial:#}");
    let valid = answers(trial, "valid");
    assert_placed(trial, classes - valid + not_taken(trial));
    let shortfall = sent - answers(trial, "valid") - undecided;
    let is_whole = trial["ended_early"] == false;
    match trial["outcome"].as_str() {
        Some("passed") => {
            assert!(all_answered(trial, due) && is_whole, "{trial:#}");
        }
        Some("failed") => assert!(shortfall > 0 || !is_whole, "{trial:#}"),
        Some("invalid") => assert!(trial["invalid_because"].is_string(), "{trial:#}"),
        _ => panic!("no outcome: {trial:#}"),
    }
    if trial["outcome"] != "invalid" {
        assert_eq!(trial["shortfall"], shortfall, "{trial:#}");
        assert!(trial["invalid_because"].is_null(), "{trial:#}");
    }
    let with_rtt = classes - answers(trial, "missing");
    assert_eq!(trial["rtt_ns"]["max"].is_null(), with_rtt == 0, "{trial:#}");
}

/// Checks that each query without a valid answer has one place or is undecided.
fn assert_placed(trial: &Value, queries: u64) {
    let losses = &trial["losses"];
    let places = losses["places"].as_array().unwrap();
    let placed: u64 = places.iter().map(|placed| number(placed, "low")).sum();
    assert_eq!(number(losses, "queries"), queries, "{trial:#}");
    let undecided = number(losses, "undecided");
    assert_eq!(placed + undecided, queries, "{trial:#}");
}

/// Returns the queries that were due and not sent, according to the trial.
fn not_taken(trial: &Value) -> u64 {
    let places = trial["losses"]["places"].as_array();
    let not_sent = places.and_then(|places| places.iter().find(|p| p["place"] == "not_sent"));
    not_sent.map_or(0, |placed| number(placed, "low"))
}

/// Checks that each trial of a search is accounted for, and that its rate, its end and the exit code follow.
pub(crate) fn assert_found_by_trials(search: &Value, code: Option<i32>) {
    let trials = search["trials"].as_array().unwrap();
    trials.iter().for_each(assert_accounted);
    let at = |rate: &Value, outcome: &str| {
        trials
            .iter()
            .any(|trial| trial["rate_qps"] == *rate && trial["outcome"] == outcome)
    };
    let (rate, failed) = (&search["rate_qps"], &search["failed_qps"]);
    assert!(rate.is_null() || at(rate, "passed"), "{search:#}");
    assert!(failed.is_null() || at(failed, "failed"), "{search:#}");
    let known = (!rate.is_null(), !failed.is_null());
    let expected = match search["ended"].as_str() {
        Some("found") => (0, known == (true, true)),
        Some("limited_by_request") => (0, known.0),
        Some("limited_by_tester") => (3, known.0),
        Some("nothing_passes") => (1, known == (false, true)),
        Some("tester_fault") => (3, is_disturbed(search)),
        _ => panic!("no end: {search:#}"),
    };
    assert_eq!((code, true), (Some(expected.0), expected.1), "{search:#}");
}

/// Returns the exit code of a trial with this outcome.
pub(crate) fn code_of(trial: &Value) -> Option<i32> {
    match trial["outcome"].as_str()? {
        "passed" => Some(0),
        "failed" => Some(1),
        _ => Some(3),
    }
}
