use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use expect_test::expect;
use serde_json::Value;

use super::*;
use crate::campaign::state::State;
use crate::campaign::status::{Found, Phase, TrialNow, Tried};
use crate::report::campaign::tests::sample::small;
use crate::report::tests::schemas;

const NOW_UNIX_MS: u64 = 1_767_323_045_678;

fn status() -> Status {
    Status {
        campaign: "quick \"one\"".into(),
        directory: "/srv/quick".into(),
        remarks: vec!["other than RFC 8219 section 9.2 asks: 3 searches instead of 20".into()],
        started_unix_ms: 1_767_320_000_500,
        phase: Phase::Search,
        variant: Some("unbound".into()),
        cell: Some("AAAA 50 %, cached 0 %".into()),
        run: Some((3, 20)),
        trial: Some(TrialNow {
            rate_qps: 15_000,
            number: 4,
            started_unix_ms: NOW_UNIX_MS - 1000,
            length_ns: 61_000_000_000,
        }),
        tried: vec![Tried {
            number: 3,
            rate_qps: 20_000,
            outcome: "failed",
        }],
        passed_qps: Some(10_000),
        failed_qps: Some(20_000),
        certified_qps: Some(80_000),
        tasks_done: 12,
        tasks: 60,
        trials: 143,
        invalid_trials: 2,
        left_ns: Some(7_507_000_000_000),
        found: vec![Found {
            variant: "unbound".into(),
            cell: "AAAA 0 %, cached 0 %".into(),
            rates_qps: vec![21_480, 21_501],
            median_qps: 21_490.5,
            lower_bound: false,
        }],
        message: Some("repeat 1 of 3: the <Tester> was held up".into()),
        ..Status::default()
    }
}

fn live(status: Status) -> (Live, Arc<Mutex<Status>>) {
    let status = Arc::new(Mutex::new(status));
    let listen = "127.0.0.1:0".parse().unwrap();
    let live = Live::start(listen, Arc::clone(&status), || NOW_UNIX_MS).unwrap();
    (live, status)
}

/// Sends a request and returns the head and the body of the response.
fn ask(live: &Live, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(live.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn get(live: &Live, path: &str) -> (String, String) {
    ask(
        live,
        &format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", live.address()),
    )
}

#[test]
fn the_status_is_served_as_json_and_follows_the_campaign() {
    let (live, shared) = live(status());
    let (head, body) = get(&live, "/status.json");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"),
        "{head}"
    );
    let json: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["tester"], crate::PROGRAM);
    assert_eq!(json["now_unix_ms"], NOW_UNIX_MS);
    assert_eq!(json["campaign"], "quick \"one\"");
    assert_eq!(
        json["remarks"],
        serde_json::json!(["other than RFC 8219 section 9.2 asks: 3 searches instead of 20"])
    );
    assert_eq!(json["phase"], "search");
    assert_eq!(json["run"], serde_json::json!([3, 20]));
    assert_eq!(json["trial"]["rate_qps"], 15_000);
    assert_eq!(
        json["tried"],
        serde_json::json!([{"number": 3, "rate_qps": 20_000, "outcome": "failed"}])
    );
    assert_eq!(json["found"][0]["median_qps"], 21_490.5);
    assert_eq!(json["last"], Value::Null);
    shared.lock().unwrap().tasks_done = 13;
    let json: Value = serde_json::from_str(&get(&live, "/status.json").1).unwrap();
    assert_eq!(json["tasks_done"], 13);
}

/// The first deviation of `/status.json` of this status from its schema.
fn fault_of(status: &Status) -> Option<String> {
    let picture = Picture {
        tester: crate::PROGRAM,
        now_unix_ms: NOW_UNIX_MS,
        status,
    };
    schemas::fault(&schemas::STATUS, &serde_json::to_value(picture).unwrap())
}

#[test]
fn status_matches_its_schema_after_each_line() {
    assert_eq!(fault_of(&status()), None);
    let (plan, lines) = small();
    let mut state = State::new(&plan);
    let mut status = Status::new(&plan, "small".into());
    let (mut phases, mut tried) = (BTreeSet::new(), 0);
    for line in &lines {
        state.apply(line);
        status.apply(line);
        status.count(&state, Some(1));
        assert_eq!(fault_of(&status), None, "{line:?}");
        phases.insert(format!("{:?}", status.phase));
        tried = tried.max(status.tried.len());
    }
    assert_eq!(
        phases.into_iter().collect::<Vec<_>>(),
        ["Over", "Overload", "Preparing", "Search", "Soak"]
    );
    assert!(tried > 1 && status.last.is_some() && !status.found.is_empty());
}

#[test]
fn metrics_match_the_expected_text() {
    let (live, _) = live(status());
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let (head, body) = ask(&live, &format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n"));
    assert!(
        head.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    let lines: Vec<_> = body
        .lines()
        .filter(|line| !line.starts_with("# HELP"))
        .collect();
    expect![[r##"
        # TYPE dns64bench_campaign info
        dns64bench_campaign_info{version="0.1.0",campaign="quick \"one\""} 1
        # TYPE dns64bench_campaign_trials counter
        dns64bench_campaign_trials_total 143
        # TYPE dns64bench_campaign_invalid_trials counter
        dns64bench_campaign_invalid_trials_total 2
        # TYPE dns64bench_campaign_started_time_seconds gauge
        dns64bench_campaign_started_time_seconds 1767320000.5
        # TYPE dns64bench_campaign_tasks gauge
        dns64bench_campaign_tasks 60.0
        # TYPE dns64bench_campaign_tasks_done gauge
        dns64bench_campaign_tasks_done 12.0
        # TYPE dns64bench_campaign_left_seconds gauge
        dns64bench_campaign_left_seconds 7507.0
        # TYPE dns64bench_campaign_offered_qps gauge
        dns64bench_campaign_offered_qps 15000.0
        # TYPE dns64bench_campaign_passed_qps gauge
        dns64bench_campaign_passed_qps 10000.0
        # TYPE dns64bench_campaign_failed_qps gauge
        dns64bench_campaign_failed_qps 20000.0
        # TYPE dns64bench_campaign_certified_qps gauge
        dns64bench_campaign_certified_qps 80000.0
        # TYPE dns64bench_campaign_phase gauge
        dns64bench_campaign_phase{phase="preparing"} 0
        dns64bench_campaign_phase{phase="self_test"} 0
        dns64bench_campaign_phase{phase="search"} 1
        dns64bench_campaign_phase{phase="goals"} 0
        dns64bench_campaign_phase{phase="overload"} 0
        dns64bench_campaign_phase{phase="soak"} 0
        dns64bench_campaign_phase{phase="over"} 0
        # TYPE dns64bench_campaign_found_qps gauge
        dns64bench_campaign_found_qps{variant="unbound",cell="AAAA 0 %, cached 0 %"} 21490.5
        # TYPE dns64bench_campaign_found_runs gauge
        dns64bench_campaign_found_runs{variant="unbound",cell="AAAA 0 %, cached 0 %"} 2
        # EOF"##]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn browsers_and_older_collectors_get_the_prometheus_format() {
    let (live, _) = live(status());
    let (head, body) = get(&live, "/metrics");
    assert!(
        head.contains("\r\nContent-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(body.contains(
        "\n# TYPE dns64bench_campaign_trials_total counter\ndns64bench_campaign_trials_total 143\n"
    ));
}

#[test]
#[ignore = "needs promtool: run by .ci/run rules"]
fn promtool_finds_no_fault_in_the_metrics() {
    for status in [status(), Status::default()] {
        let page = Format::Text.page(metrics::text(status));
        let mut promtool = Command::new("promtool");
        promtool
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = promtool.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(page.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.is_empty(), "{told}\n{page}");
    }
}

/// Names of the metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    words
        .filter(|word| word.starts_with("dns64bench_"))
        .collect()
}

#[test]
fn dashboard_and_alerts_use_exactly_the_existing_metrics() {
    let page = metrics::text(status());
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let exported: BTreeSet<_> = samples.flat_map(named).collect();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let expressions = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap());
    let shown: BTreeSet<_> = expressions.flat_map(named).collect();
    assert_eq!(shown, exported);
    let docs = include_str!("../../../../../../docs/live.md");
    let (_, alert) = docs.split_once("- alert: ").unwrap();
    assert!(named(alert).is_subset(&exported), "{alert}");
    assert!(named(DASHBOARD).is_subset(&exported));
}

const DASHBOARD: &str = include_str!("../../../../dist/dns64bench-dashboard.json");

#[test]
fn unknown_value_has_no_metric() {
    let text = metrics::text(Status::default());
    for name in ["offered", "passed", "failed", "certified", "left", "found"] {
        assert!(
            !text.contains(&format!("dns64bench_campaign_{name}")),
            "{name}"
        );
    }
    assert!(text.contains("dns64bench_campaign_tasks 0.0\n"));
}

#[test]
fn every_metric_is_documented_with_its_type() {
    let docs = include_str!("../../../../../../docs/live.md");
    let text = metrics::text(status());
    let mut seen = 0;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("# TYPE ") else {
            continue;
        };
        let (name, kind) = rest.split_once(' ').unwrap();
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let row = docs
            .lines()
            .find(|row| row.starts_with(&format!("| `{name}{suffix}")));
        let row = row.unwrap_or_else(|| panic!("{name}{suffix} is not in docs/live.md"));
        assert_eq!(row.split('|').nth(2).map(str::trim), Some(kind), "{row}");
        seen += 1;
    }
    let rows = docs
        .lines()
        .filter(|row| row.starts_with("| `dns64bench_"))
        .count();
    assert_eq!(seen, rows, "docs/live.md has metrics that are not there");
}

#[test]
fn page_loads_nothing_from_elsewhere() {
    let (live, _) = live(status());
    let (head, body) = get(&live, "/");
    assert!(
        head.contains("Content-Type: text/html; charset=utf-8"),
        "{head}"
    );
    assert!(
        head.contains("Content-Security-Policy: default-src 'none'"),
        "{head}"
    );
    assert!(body.starts_with("<!doctype html>"));
    assert!(!body.contains("http://") && !body.contains("https://") && !body.contains("//"));
    // Names from the plan and texts of servers are text, never markup.
    assert!(!body.contains("innerHTML"));
}

#[test]
fn other_paths_methods_and_names_are_refused() {
    let (live, _) = live(status());
    for (request, status) in [
        ("GET /favicon.ico HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: rebind.example\r\n\r\n", "421"),
    ] {
        let (head, _) = ask(&live, request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
}

#[test]
fn silent_clients_do_not_block_others() {
    let (live, _) = live(status());
    let silent: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(live.address()).unwrap())
        .collect();
    assert!(get(&live, "/status.json").0.starts_with("HTTP/1.1 200 OK"));
    drop(silent);
}

#[test]
fn an_address_in_use_is_named_with_a_remedy() {
    let (first, _) = live(status());
    let other = Arc::new(Mutex::new(Status::default()));
    let error = Live::start(first.address(), Arc::clone(&other), || 0).unwrap_err();
    let text = format!(
        "cannot serve the live page at {}: the address is in use; give another port, or stop the program that uses \
         it (`ss -ltnp` names it)",
        first.address()
    );
    assert_eq!(error.to_string(), text);
    // After the drop the port is free.
    let address = first.address();
    drop(first);
    Live::start(address, other, || 0).unwrap();
}
