//! Conformance of installed servers.

use serde_json::Value;

use crate::machine::{command, left_behind, output, turn};

/// The report of a run, and its exit code.
fn report(flags: &str) -> (Value, Option<i32>) {
    let run = output(command(&format!("conform --seed 1 --format json {flags}")));
    let report = serde_json::from_slice(&run.stdout);
    let why = || String::from_utf8_lossy(&run.stderr).into_owned();
    (
        report.unwrap_or_else(|error| panic!("{error}: {}", why())),
        run.status.code(),
    )
}

/// Names of cases of level must by verdict.
fn must<'r>(report: &'r Value, verdict: &str) -> Vec<&'r str> {
    let cases = report["cases"].as_array().unwrap().iter();
    let those = cases.filter(|it| it["verdict"] == verdict && it["level"] == "must");
    those.map(|it| it["id"].as_str().unwrap()).collect()
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn dns64d_fails_no_must_of_rfc_6147() {
    let _turn = turn();
    // Of the others, the engine is judged in memory.
    let (report, code) = report("--dut dns64d --case rfc6147");
    assert_eq!(must(&report, "failed"), Vec::<&str>::new());
    assert_eq!(must(&report, "not-known"), Vec::<&str>::new());
    assert!(must(&report, "passed").len() > 50, "{report}");
    assert_eq!(code, Some(0));
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and Unbound: run by .ci/run net"]
fn unbound_fails_the_clause_of_the_ttl() {
    let _turn = turn();
    let (report, code) = report("--dut unbound --case rfc6147-5.1.7-ttl --load 500");
    // Unbound gives a synthesised record the TTL of the A record.
    let failed = must(&report, "failed");
    assert!(failed.contains(&"rfc6147-5.1.7-ttl-soa"), "{failed:?}");
    assert!(must(&report, "passed").contains(&"rfc6147-5.1.7-ttl-a"));
    assert!(
        report["loads"][0]["sent_qps"].as_u64() > Some(0),
        "{report}"
    );
    let mut cases = report["cases"].as_array().unwrap().iter();
    assert!(cases.all(|it| it["under_load"].as_array().unwrap().len() == 1));
    assert_eq!(code, Some(1));
}
