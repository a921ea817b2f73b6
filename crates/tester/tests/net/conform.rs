//! Conformance of installed servers.

use std::fs;
use std::path::Path;

use dns64bench::campaign::journal;
use dns64bench::campaign::record::Record;
use dns64bench::conform::report::Verdict;
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

#[test]
#[ignore = "needs root and Python: run by .ci/run net"]
fn case_that_ends_the_server_fails_and_the_others_are_judged() {
    let _turn = turn();
    let file = |name| format!("{}/tests/net/conform/{name}", env!("CARGO_MANIFEST_DIR"));
    let (mortal, few) = (file("mortal.toml"), file("few.toml"));
    let (report, code) = report(&format!("--dut {mortal} --case {few}"));
    let cases = report["cases"].as_array().unwrap();
    let ended = |it: &&Value| {
        it["faults"]
            .to_string()
            .contains("the server ended (signal: 6")
    };
    let ended: Vec<&Value> = cases.iter().filter(ended).collect();
    let ids: Vec<&str> = ended.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["rfc6147-5.1-class"], "{report}");
    assert_eq!(ended[0]["verdict"], "failed");
    assert_eq!(must(&report, "passed").len(), cases.len() - 1, "{report}");
    assert_eq!(code, Some(1));
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// A search, and the cases before it.
const PLAN: &str = r#"
name = "conformance"
[tester]
lab = "netns"
backend = "socket"
uncertified = true
[trial]
duration = "300ms"
timeout = "200ms"
[search]
runs = 1
resolution = "50%"
start-rate = "1k"
max-rate = "2k"
[conformance]
level = "must"
[[dut]]
profile = "dns64d"
"#;

#[test]
#[ignore = "needs root and dns64d: run by .ci/run net"]
fn campaign_records_the_verdicts_and_its_report_has_them() {
    let _turn = turn();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance");
    let _absent = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let (plan, results) = (directory.join("plan.toml"), directory.join("results"));
    fs::write(&plan, PLAN).unwrap();
    let run = |arguments: &str| output(command(arguments));
    let (plan, path) = (plan.to_str().unwrap(), results.to_str().unwrap());
    let ran = run(&format!("run -q -o {path} {plan}"));
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let lines = journal::read(&results).unwrap().lines;
    let found = lines.iter().find_map(|line| match &line.record {
        Record::Variant { conformance, .. } => conformance.clone(),
        _ => None,
    });
    let found = found.unwrap();
    assert_eq!(found.incomplete, None);
    assert!(found.musts(Verdict::Passed).count() > 100, "{found:?}");
    assert!(found.is_met(), "{found:?}");
    let report = fs::read_to_string(results.join("report/results.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let told = &report["variants"][0]["conformance"];
    assert_eq!(told, &serde_json::to_value(&found).unwrap());
    assert_eq!(run(&format!("verify {path}")).status.code(), Some(0));
    assert_eq!(left_behind(), Vec::<String>::new());
}
