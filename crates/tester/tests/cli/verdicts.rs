//! Bad DUTs and their verdicts, by `trial --json -`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dns64_transport::clock::{Nanos, SECOND};
use dns64bench::lab::process::wait_until;
use serde_json::Value;

use super::dut::{Conduct, Dut, LOCALHOST, closed_port};
use super::program::{finish, run, server, start, undisturbed};

/// Queries of a trial: 500 per second for 200 ms.
const QUERIES: u64 = 100;

/// The classes that a query can end in; duplicates and strays are datagrams beyond them.
const CLASSES: [&str; 7] = [
    "valid",
    "late",
    "wrong",
    "empty",
    "error",
    "truncated",
    "missing",
];

/// The server under test.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Dut(IpAddr, Conduct),
    Nobody(IpAddr),
}

/// Measures the subject by one trial, each attempt with a server of its own.
fn trial(subject: Subject, timeout: &str) -> Value {
    let measure = |address: SocketAddr| {
        let server = server(address);
        run(&format!(
            "trial {server} -Q 500 -l 200ms -t {timeout} --pref64 64:ff9b::/96 --json -"
        ))
    };
    let ran = undisturbed(|| match subject {
        Subject::Dut(at, conduct) => {
            let dut = Dut::start(at, conduct);
            measure(dut.address)
        }
        Subject::Nobody(at) => measure(closed_port(at)),
    });
    let json = ran.json();
    let code = match json["outcome"].as_str() {
        Some("passed") => 0,
        Some("failed") => 1,
        other => panic!("{subject:?} is {other:?}: {ran:?}"),
    };
    assert_eq!(ran.code, Some(code), "{subject:?}: {ran:?}");
    has_all_keys(&json);
    adds_up(&json);
    json
}

fn has_all_keys(trial: &Value) {
    for pointer in [
        "/outcome",
        "/invalid_because",
        "/rate_qps",
        "/duration_s",
        "/timeout_s",
        "/queries_due",
        "/queries_sent",
        "/answers/valid",
        "/answers/late",
        "/answers/wrong",
        "/answers/empty",
        "/answers/error",
        "/answers/truncated",
        "/answers/duplicate",
        "/answers/stray",
        "/answers/missing",
        "/rtt_ns/p50",
        "/rtt_ns/p99",
        "/rtt_ns/p999",
        "/rtt_ns/max",
        "/timing/lateness_ns_p50",
        "/timing/lateness_ns_p99",
        "/timing/lateness_ns_max",
        "/timing/bin_10ms_deviation_pct_max",
        "/timing/bin_100ms_deviation_pct_max",
        "/tester_drops",
        "/backend",
    ] {
        assert!(trial.pointer(pointer).is_some(), "no {pointer}: {trial}");
    }
}

/// Every query that was sent is in one class, and what is not valid is the shortfall.
fn adds_up(trial: &Value) {
    let sum: u64 = CLASSES.iter().map(|class| answers(trial, class)).sum();
    assert_eq!(trial["queries_due"], QUERIES, "{trial}");
    assert_eq!(trial["queries_sent"], QUERIES, "{trial}");
    assert_eq!(sum, QUERIES, "{trial}");
    let shortfall = QUERIES - answers(trial, "valid");
    assert_eq!(trial["shortfall"], shortfall, "{trial}");
    let outcome = if shortfall == 0 { "passed" } else { "failed" };
    assert_eq!(trial["outcome"], outcome, "{trial}");
}

fn answers(trial: &Value, class: &str) -> u64 {
    trial["answers"][class].as_u64().unwrap()
}

/// The classes named have these counts, and all others are empty.
fn earned(subject: Subject, timeout: &str, expected: &[(&str, u64)]) -> Value {
    let trial = trial(subject, timeout);
    let found: Vec<(&str, u64)> = CLASSES
        .into_iter()
        .chain(["duplicate", "stray"])
        .map(|class| (class, answers(&trial, class)))
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(found, expected, "{subject:?}: {trial}");
    trial
}

const V4: IpAddr = LOCALHOST;
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// A first query comes within this time even on a busy machine.
const WAIT_NS: Nanos = 20 * SECOND;

/// Longer than a busy machine holds a server up, for those that answer everything.
const PATIENT: &str = "1s";

/// For those whose losses are waited for.
const BRISK: &str = "300ms";

#[test]
fn a_server_that_answers_as_it_should_passes() {
    for at in [V4, V6] {
        let trial = earned(
            Subject::Dut(at, Conduct::Good),
            PATIENT,
            &[("valid", QUERIES)],
        );
        assert!(trial["rtt_ns"]["max"].as_u64().unwrap() > 0, "{trial}");
        assert!(trial["invalid_because"].is_null(), "{trial}");
    }
}

#[test]
fn what_is_answered_instead_has_a_class_of_its_own() {
    for (at, conduct, class) in [
        (V4, Conduct::WrongPrefix, "wrong"),
        (V6, Conduct::WrongPrefix, "wrong"),
        (V4, Conduct::Empty, "empty"),
        (V4, Conduct::Fail, "error"),
        (V6, Conduct::Truncate, "truncated"),
    ] {
        earned(Subject::Dut(at, conduct), PATIENT, &[(class, QUERIES)]);
    }
}

#[test]
fn what_answers_nothing_is_stray_and_leaves_the_query_missing() {
    for at in [V4, V6] {
        let expected = [("missing", QUERIES), ("stray", QUERIES)];
        earned(Subject::Dut(at, Conduct::Garbage), BRISK, &expected);
    }
}

#[test]
fn an_answer_from_elsewhere_is_stray_and_the_report_names_the_sender() {
    let other_address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    for (at, from) in [(V4, V4), (V4, other_address), (V6, V6)] {
        let expected = [("missing", QUERIES), ("stray", QUERIES)];
        let trial = earned(Subject::Dut(at, Conduct::From(from)), BRISK, &expected);
        let note = format!("datagrams came from {}", SocketAddr::new(from, 0));
        let note = note.trim_end_matches('0');
        assert!(trial["notes"].to_string().contains(note), "{trial}");
    }
}

#[test]
fn silence_is_missing_and_has_no_round_trip_time() {
    let subject = Subject::Dut(V4, Conduct::Silent);
    let trial = earned(subject, BRISK, &[("missing", QUERIES)]);
    assert!(trial["rtt_ns"]["p50"].is_null(), "{trial}");
}

#[test]
fn a_closed_port_is_missing_answers_and_a_remark() {
    for at in [V4, V6] {
        let trial = earned(Subject::Nobody(at), BRISK, &[("missing", QUERIES)]);
        let notes = trial["notes"].to_string();
        assert!(notes.contains("ICMP errors came back"), "{trial}");
    }
}

#[test]
fn losses_are_counted_to_the_query() {
    for (conduct, valid) in [(Conduct::DieAfter(40), 40), (Conduct::LoseEvery(7), 86)] {
        let expected = [("valid", valid), ("missing", QUERIES - valid)];
        earned(Subject::Dut(V4, conduct), BRISK, &expected);
    }
}

#[test]
fn a_server_that_is_gone_in_mid_trial_has_failed() {
    let ran = undisturbed(|| {
        let dut = Dut::start(V4, Conduct::Good);
        let line = format!(
            "trial {} -Q 500 -l 1s -t 300ms --pref64 64:ff9b::/96 --json -",
            server(dut.address)
        );
        let child = start(&line);
        assert!(wait_until(WAIT_NS, || dut.seen() >= 50));
        drop(dut);
        finish(child, &line)
    });
    let trial = ran.json();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(trial["outcome"], "failed", "{trial}");
    let (valid, missing) = (answers(&trial, "valid"), answers(&trial, "missing"));
    assert!(valid >= 49 && missing > 0, "{trial}");
    assert_eq!(valid + missing, 500, "{trial}");
    assert!(
        trial["notes"].to_string().contains("or it has stopped"),
        "{trial}"
    );
}

#[test]
fn a_second_answer_is_a_duplicate_and_no_failure() {
    let trial = trial(Subject::Dut(V4, Conduct::Twice), PATIENT);
    assert_eq!(answers(&trial, "valid"), QUERIES, "{trial}");
    // The very last one may come when all is decided and nobody listens any more.
    let duplicates = answers(&trial, "duplicate");
    assert!((QUERIES - 1..=QUERIES).contains(&duplicates), "{trial}");
    assert_eq!(answers(&trial, "stray"), 0, "{trial}");
}

#[test]
fn an_answer_after_the_timeout_is_late_and_not_valid() {
    const DELAY_NS: Nanos = 150_000_000;
    let trial = trial(Subject::Dut(V4, Conduct::Late(DELAY_NS)), "50ms");
    assert_eq!(answers(&trial, "valid"), 0, "{trial}");
    // Nobody waits for the last answers longer than for their timeout.
    assert!(answers(&trial, "late") >= QUERIES / 4, "{trial}");
    let in_no_other = answers(&trial, "late") + answers(&trial, "missing");
    assert_eq!(in_no_other, QUERIES, "{trial}");
    assert!(
        trial["rtt_ns"]["p50"].as_u64().unwrap() >= DELAY_NS,
        "{trial}"
    );
}

#[test]
fn a_queue_without_end_hides_nothing() {
    let trial = trial(Subject::Dut(V4, Conduct::Queue(100)), "100ms");
    // Answer k leaves 10 ms times k after the first query at the earliest, and its query was sent
    // 2 ms times k after it, by at most 10 ms late: beyond the 13th none can be in time.
    let (valid, late) = (answers(&trial, "valid"), answers(&trial, "late"));
    assert!((1..=13).contains(&valid) && late > 0, "{trial}");
    let in_no_other = valid + late + answers(&trial, "missing");
    assert_eq!(in_no_other, QUERIES, "{trial}");
}
