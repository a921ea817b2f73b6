//! The complete rendered results: a change of any line is visible here.

pub(super) mod sample;
pub(crate) mod schemas;

use expect_test::expect_file;
use serde::Serialize;

use super::*;
use crate::authority::counts::{AuthorityCounts, FaultCounts};
use crate::procedure::certificate::repeat;
use crate::procedure::search::{Search, SearchEnd, SearchSpec, run};
use crate::procedure::selftest::{certify_at, confirm, propose};
use crate::procedure::simulated::{Simulated, threshold};
use crate::trial::achieved::Achieved;
use crate::trial::fault::TesterFault;
use crate::trial::result::{Answers, Outcome, Rtt, TrialResult};
use crate::trial::service::{By, Service};
use sample::{conditions, failed, faults};

fn as_json(object: impl Serialize) -> String {
    json::text(&object).unwrap()
}

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_trial_for_a_terminal() {
    expect_file!["testdata/trial_failed.txt"].assert_eq(&text::trial(&failed(), &conditions()));
}

#[test]
fn configured_faults_are_shown_beside_the_responses() {
    let mut result = failed();
    let counts = result.authority.as_mut().unwrap();
    counts.misbehaviour = Some(FaultCounts {
        delayed: 198_900,
        lost: 199,
        ..FaultCounts::default()
    });
    let told = text::trial(&result, &conditions());
    let (_, section) = told
        .split_once("Deliberate faults of the authority\n")
        .unwrap();
    let lines: Vec<_> = section.lines().take(2).map(str::trim).collect();
    assert!(lines[0].starts_with("delayed"), "{lines:?}");
    assert!(lines[0].contains("198,900") && lines[0].ends_with("replies that were held back"));
    assert!(
        lines[1].starts_with("lost") && lines[1].contains(" 199 "),
        "{lines:?}"
    );
}

#[test]
fn achieved_shares_are_shown_beside_the_configured_ones() {
    let counts = AuthorityCounts {
        aaaa: 1_010,
        a: 760,
        answered: 1_010,
        nodata: 757,
        other: 3,
        ..AuthorityCounts::default()
    };
    let mut result = TrialResult {
        outcome: Outcome::Passed,
        queries_sent: 2_000,
        authority: Some(counts),
        achieved: Achieved::by_counts((2_000, 2_000), &counts, true),
        answers: Answers {
            valid: 2_000,
            ..Answers::default()
        },
        ..failed()
    };
    let conditions = Conditions {
        aaaa_share: "25%".into(),
        cached_share: "50%".into(),
        cached_pattern: Some("stack distance 100".into()),
        ..conditions()
    };
    let text = text::trial(&result, &conditions);
    let expected = "
Achieved, as the authority saw it
  cached names                         49.5000 %  of the queries; asked for 50%
  names with an AAAA                   25.0495 %  of the names not cached; asked for 25%
  queries of the DUT                    0.8865    for each of the Measurer
";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("  cached names                stack distance 100\n"));
    let json = |result: &TrialResult| parsed(&as_json(json::trial(result, &conditions)));
    assert_eq!(json(&result)["achieved"]["cached_share"], 0.495);
    assert_eq!(json(&result)["achieved"]["amplification"], 0.8865);
    // A lost query does not count as cached.
    result.achieved = Achieved::by_counts((2_000, 2_000), &counts, false);
    assert!(json(&result)["achieved"]["cached_share"].is_null());
    // A DUT that retries cannot have a negative share; without an authority the share is unknown.
    result.achieved = Achieved::by_counts((1_000, 1_000), &counts, true);
    assert_eq!(json(&result)["achieved"]["cached_share"], 0.0);
    result.achieved = None;
    assert!(json(&result)["achieved"].is_null());
}

#[test]
fn a_silent_dut_beyond_the_certified_rate_for_a_terminal() {
    let silent = TrialResult {
        outcome: Outcome::Failed { shortfall: 41_000 },
        rate_qps: 30_000,
        queries_sent: 41_000,
        ended_early: true,
        answers: Answers {
            missing: 41_000,
            ..Answers::default()
        },
        authority: None,
        achieved: None,
        service: None,
        path: None,
        rtt: Rtt::default(),
        notes: Vec::new(),
        ..failed()
    };
    expect_file!["testdata/trial_silent_uncertified.txt"]
        .assert_eq(&text::trial(&silent, &conditions()));
}

#[test]
fn a_search_for_a_terminal() {
    let mut stalls = 1;
    let mut dut = Simulated(|rate| match (rate, stalls) {
        (15_000, 1) => {
            stalls = 0;
            Outcome::Invalid(TesterFault::NotSent { queries: 7 })
        }
        _ => threshold(14_321, rate),
    });
    let Ok(result) = run(
        Search::new(SearchSpec::from_start(10_000)),
        &mut dut,
        &mut |_| {},
    );
    expect_file!["testdata/search_found.txt"].assert_eq(&text::search(&result, &conditions()));
}

#[test]
fn search_limited_by_the_tester_shows_at_least() {
    let spec = SearchSpec {
        ceiling_qps: Some(25_000),
        ..SearchSpec::from_start(10_000)
    };
    let Ok(result) = run(
        Search::new(spec),
        &mut Simulated(|_| Outcome::Passed),
        &mut |_| {},
    );
    let conditions = Conditions {
        not_a_measurement: vec!["all roles share this host (loopback)".into()],
        ..conditions()
    };
    expect_file!["testdata/search_limited_loopback.txt"]
        .assert_eq(&text::search(&result, &conditions));
}

#[test]
fn search_that_the_tester_cannot_continue_shows_at_least() {
    let fault = TesterFault::NotSent { queries: 7 };
    let searched = |start_qps| {
        let outcome = |rate| match rate {
            ..=1_280_000 => Outcome::Passed,
            _ => Outcome::Invalid(fault.clone()),
        };
        let search = Search::new(SearchSpec::from_start(start_qps));
        let Ok(result) = run(search, &mut Simulated(outcome), &mut |_| {});
        let told = text::search(&result, &conditions());
        let json = parsed(&as_json(json::search(&result, &conditions())));
        assert_eq!(json["ended"], "tester_fault");
        assert_eq!(json["fault"]["not_sent"]["queries"], 7);
        (
            told.lines().next().unwrap().to_owned(),
            json["rate_qps"].clone(),
            json["lower_bound"].clone(),
        )
    };
    let (told, rate_qps, is_lower_bound) = searched(320_000);
    expect_test::expect!["AT LEAST 1,280,000 queries/s: it passed, and every trial at 2,560,000 queries/s was invalid: the kernel refused 7 queries; lower the rate or raise the socket buffers"].assert_eq(&told);
    assert_eq!((rate_qps, is_lower_bound), (1_280_000.into(), true.into()));
    let (told, rate_qps, is_lower_bound) = searched(2_560_000);
    expect_test::expect!["NO RESULT: every trial at 2,560,000 queries/s was invalid: the kernel refused 7 queries; lower the rate or raise the socket buffers"].assert_eq(&told);
    assert_eq!((rate_qps.is_null(), is_lower_bound), (true, false.into()));
}

#[test]
fn search_without_further_names_shows_at_least() {
    let search = Search::new(SearchSpec::from_start(500));
    let Ok(mut result) = run(
        search,
        &mut Simulated(|rate| threshold(700, rate)),
        &mut |_| {},
    );
    result.end = SearchEnd::TesterFault {
        fault: TesterFault::TooFewNames { left: 1, needed: 2 },
    };
    let told = text::search(&result, &conditions());
    expect_test::expect!["AT LEAST 700 queries/s: it passed, and a trial at the next rate needs 2 names, and the range has only 1 left; use a wider --namespace, or shorter trials"].assert_eq(told.lines().next().unwrap());
}

#[test]
fn self_tests_for_a_terminal() {
    let mut tester = Simulated(|rate| threshold(44_000, rate));
    let Ok(one) = repeat(1, |_| certify_at(20_000, &mut tester, &mut |_| {}));
    expect_file!["testdata/selftest_at.txt"].assert_eq(&text::self_test(
        &one,
        1_000_000_000,
        &conditions(),
    ));
    let spec = SearchSpec {
        max_qps: Some(40_000),
        ..SearchSpec::from_start(10_000)
    };
    let Ok(highest) = repeat(3, |near_qps| match near_qps {
        None => propose(spec.clone(), &mut tester, &mut |_| {}),
        Some(near_qps) => confirm(near_qps, &mut tester, &mut |_| {}),
    });
    expect_file!["testdata/selftest_highest.txt"].assert_eq(&text::self_test(
        &highest,
        1_000_000_000,
        &conditions(),
    ));
}

#[test]
fn a_trial_as_json() {
    let text = as_json(json::trial(&failed(), &conditions()));
    expect_file!["testdata/trial_failed.json"].assert_eq(&text);
    assert_eq!(parsed(&text)["invalid_because"], serde_json::Value::Null);
}

/// Paths of all keys in a value, as in `answers.valid`.
fn keys(value: &serde_json::Value) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        found.push(key.clone());
        found.extend(keys(value).iter().map(|inner| format!("{key}.{inner}")));
    }
    found.sort();
    found
}

#[test]
fn json_of_a_trial_equals_the_journal_with_the_earlier_keys() {
    let result = failed();
    let mut told = parsed(&as_json(json::trial(&result, &conditions())));
    let told = told.as_object_mut().unwrap();
    assert!(told.remove("conditions").is_some() && told.remove("not_a_measurement").is_some());
    let form = serde_json::to_value(&result).unwrap();
    assert_eq!(serde_json::Value::from(told.clone()), form);
    // Keys that other programs rely on.
    for key in [
        "outcome",
        "invalid_because",
        "shortfall",
        "certified",
        "rate_qps",
        "duration_s",
        "timeout_s",
        "queries_due",
        "queries_sent",
        "undecided",
        "ended_early",
        "answers.valid",
        "rtt_ns.p50",
        "rtt_ns.p99",
        "rtt_ns.p999",
        "rtt_ns.max",
        "timing.lateness_ns_max",
        "tester_drops",
        "authority.aaaa",
        "achieved.cached_share",
        "backend",
        "notes",
        "form",
        "fault",
        "rtt_percentiles_ns",
        "resources.memory_bytes",
        "dut_exit",
    ] {
        assert!(keys(&form).contains(&key.to_owned()), "{key} is gone");
    }
    assert_eq!(form["form"], "trial/2");
}

#[test]
fn result_survives_serialisation() {
    let outcomes = faults().into_iter().map(Outcome::Invalid);
    for outcome in outcomes.chain([Outcome::Passed, Outcome::Failed { shortfall: 7 }]) {
        let result = TrialResult {
            outcome,
            duration_ns: 1_234_567_891,
            rtt_percentiles: vec![(99.9, 17), (100.0, 18)],
            dut_exit: Some("signal 11".into()),
            ..failed()
        };
        let form = serde_json::to_value(&result).unwrap();
        assert_eq!(serde_json::from_value::<TrialResult>(form).unwrap(), result);
    }
}

#[test]
fn an_invalid_trial_without_answers_is_still_json() {
    let mut result = TrialResult {
        outcome: Outcome::Invalid(TesterFault::Link {
            error: "sendmmsg failed: \"quoted\"\n".into(),
        }),
        answers: Answers::default(),
        rtt: Rtt::default(),
        ..failed()
    };
    result.timing.bin_10ms_deviation_pct_max = f64::NAN;
    result.timing.bin_100ms_deviation_pct_max = f64::INFINITY;
    let report = parsed(&as_json(json::trial(&result, &conditions())));
    assert_eq!(report["outcome"], "invalid");
    assert_eq!(report["invalid_because"], "sendmmsg failed: \"quoted\"\n");
    assert!(report["rtt_ns"]["p50"].is_null());
    assert!(report["timing"]["bin_10ms_deviation_pct_max"].is_null());
    assert!(report["timing"]["bin_100ms_deviation_pct_max"].is_null());
}

#[test]
fn a_search_as_json() {
    let mut dut = Simulated(|rate| threshold(1, rate));
    let Ok(mut result) = run(
        Search::new(SearchSpec::from_start(1)),
        &mut dut,
        &mut |_| {},
    );
    for trial in &mut result.trials {
        trial.certified = Some(true);
    }
    let text = as_json(json::search(&result, &conditions()));
    expect_file!["testdata/search_found.json"].assert_eq(&text);
    assert_eq!(parsed(&text)["trials"][1]["outcome"], "failed");
}

#[test]
fn a_search_without_result_as_json() {
    let mut dut = Simulated(|_| Outcome::Invalid(TesterFault::ClockStep { step_ns: -5 }));
    let Ok(result) = run(
        Search::new(SearchSpec::from_start(9)),
        &mut dut,
        &mut |_| {},
    );
    let report = parsed(&as_json(json::search(&result, &conditions())));
    assert_eq!(report["ended"], "tester_fault");
    assert!(report["rate_qps"].is_null());
    assert!(
        report["invalid_because"]
            .as_str()
            .is_some_and(|why| why.contains("-5 ns"))
    );
}

#[test]
fn a_self_test_as_json() {
    let mut tester = Simulated(|rate| threshold(43_999, rate));
    let Ok(result) = repeat(3, |_| certify_at(20_000, &mut tester, &mut |_| {}));
    let text = as_json(json::self_test(&result, 1_000_000_000, &conditions()));
    expect_file!["testdata/selftest_failed.json"].assert_eq(&text);
    assert_eq!(parsed(&text)["self_test_timeout_s"], 0.25);
}

#[test]
fn search_of_a_dut_with_queue_shows_the_sustainable_rate() {
    let mut dut = Simulated(|rate| threshold(2_000, rate));
    let Ok(mut result) = run(
        Search::new(SearchSpec::from_start(1_000)),
        &mut dut,
        &mut |_| {},
    );
    let passed = result.trials.iter_mut().find(|t| t.rate_qps == 2_000);
    passed.unwrap().service = Some(Service {
        slope_ns_per_s: 250e6,
        service_rate_qps: 1_600.4,
        by: By::Delay,
        stores_queries: true,
        sustainable_qps: 1_600,
    });
    let text = text::search(&result, &conditions());
    let note = "  - the answers' delay grew by 250 ms/s: the DUT stores queries; it serves 1,600 queries/s, \
                and 2,000 is the rate of a trial of 1 s, not one that it sustains\n";
    assert!(text.contains(note), "{text}");
    assert!(
        text.contains("  if it stores, equation (1)  1,000 queries/s\n"),
        "{text}"
    );
    let json = parsed(&as_json(json::search(&result, &conditions())));
    assert_eq!(json["calculated_qps"], 1_000.0);
    assert_eq!(json["service"]["sustainable_qps"], 1_600);
}

#[test]
fn counts_have_commas() {
    let text = [0, 999, 1000, 1_234_567].map(|n| Thousands(n).to_string());
    assert_eq!(text, ["0", "999", "1,000", "1,234,567"]);
    assert_eq!(format!("{:>7}|", Thousands(1000)), "  1,000|");
}

#[test]
fn spans_take_the_largest_unit() {
    let text = [
        0,
        999,
        1_000,
        10_500,
        250_000_000,
        1_000_000_000,
        60_000_000_000,
    ]
    .map(|ns| Span(ns).to_string());
    assert_eq!(
        text,
        ["0 ns", "999 ns", "1 us", "10.5 us", "250 ms", "1 s", "60 s"]
    );
}

#[test]
fn an_uncertified_rate_is_watermarked() {
    let mut conditions = Conditions {
        certified_rate_qps: Some(1000),
        ..Conditions::default()
    };
    assert!(conditions.watermarks(1000).is_empty());
    assert_eq!(conditions.watermarks(1001).len(), 1);
    conditions.certified_rate_qps = None;
    conditions.not_a_measurement.push("loopback".to_owned());
    assert_eq!(
        conditions.watermarks(1),
        [
            "loopback",
            "the Tester is not certified (RFC 8219 section 9.2.1)"
        ]
    );
}
