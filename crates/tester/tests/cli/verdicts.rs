//! Faulty DUTs and their verdicts in `trial --json -`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::pref64::Pref64;
use dns64bench::machine::process::wait_until;
use dns64bench::namespace::parse_label;
use serde_json::Value;

use super::accounts::{CLASSES, answers, is_disturbed};
use super::busy::until;
use super::dut::{Dut, LOCALHOST};
use super::program::{assert_outcome, finish, measured, run, server, start};
use super::script::{At, Conduct, Fault};

/// Queries of a trial: 500 per second for 200 ms.
const QUERIES: u64 = 100;

/// Address and behaviour of the server under test.
type Subject = (IpAddr, Conduct);

/// Measures the subject in one trial; each attempt has a new server.
fn trial((at, conduct): Subject, timeout: &str, outcome: &str) -> Value {
    let measure = |address: SocketAddr| {
        let server = server(address);
        run(&format!(
            "trial {server} -Q 500 -l 200ms -t {timeout} --pref64 64:ff9b::/96 --json -"
        ))
    };
    let ran = measured(|| {
        let dut = Dut::start(at, conduct);
        measure(dut.address)
    });
    let json = assert_outcome(&ran, outcome);
    has_all_keys(&json);
    assert_eq!(json["queries_due"], QUERIES, "{json}");
    assert_eq!(json["queries_sent"], QUERIES, "{json}");
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

/// Asserts that every query ends in this class, with any delay, and that there are no duplicates.
fn earned(subject: Subject, timeout: &str, class: &str) -> Value {
    let outcome = if class == "valid" { "passed" } else { "failed" };
    let trial = trial(subject, timeout, outcome);
    let found: Vec<(&str, u64)> = CLASSES
        .into_iter()
        .chain(["duplicate"])
        .map(|class| (class, answers(&trial, class)))
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(found, [(class, QUERIES)], "{subject:?}: {trial}");
    trial
}

/// Like [`earned`]: all queries are missing, and the datagrams that arrived before the end are stray.
fn only_stray(subject: Subject) -> Value {
    until("did a datagram come before the end", || {
        let trial = earned(subject, BRISK, "missing");
        let stray = answers(&trial, "stray");
        assert!(stray <= QUERIES, "{trial}");
        (stray > 0).then_some(trial)
    })
}

const V4: IpAddr = LOCALHOST;
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// A first query arrives within this time even on a busy machine.
const WAIT_NS: Nanos = 120 * SECOND;

/// Timeout for servers that answer everything: longer than a busy machine delays a server.
const PATIENT: &str = "30s";

/// Timeout for servers with losses, for which the trial waits.
const BRISK: &str = "300ms";

#[test]
fn correct_server_passes() {
    for at in [V4, V6] {
        let trial = earned((at, Conduct::Good), PATIENT, "valid");
        assert_eq!(trial["server_is_here"], true, "{trial}");
        let doubts = trial["conditions"]["not_a_measurement"].to_string();
        assert!(doubts.contains("on the machine of the Tester"), "{trial}");
        assert!(trial["rtt_ns"]["max"].as_u64().unwrap() > 0, "{trial}");
        assert_eq!(answers(&trial, "stray"), 0, "{trial}");
    }
}

#[test]
fn each_faulty_answer_has_its_class() {
    for (at, conduct, class) in [
        (
            V6,
            Conduct::Faults(&[(Fault::WrongAddress, At::ALL)]),
            "wrong",
        ),
        (V4, Conduct::Faults(&[(Fault::Empty, At::ALL)]), "empty"),
        (V4, Conduct::Faults(&[(Fault::ServFail, At::ALL)]), "error"),
        (
            V6,
            Conduct::Faults(&[(Fault::Truncated, At::ALL)]),
            "truncated",
        ),
    ] {
        let trial = earned((at, conduct), PATIENT, class);
        assert_eq!(answers(&trial, "stray"), 0, "{trial}");
    }
}

#[test]
fn wrong_answer_is_told_with_the_expected_address() {
    let conduct = Conduct::Faults(&[(Fault::WrongAddress, At::ALL)]);
    let trial = earned((V4, conduct), PATIENT, "wrong");
    let first = &trial["first_wrong"];
    let address = |json: &Value| -> Ipv6Addr { json.as_str().unwrap().parse().unwrap() };
    let ipv4 =
        |json: &Value, pref64: &str| pref64.parse::<Pref64>().unwrap().extract(address(json));
    let embedded = ipv4(&first["received"], "2001:db8:64::/96");
    assert!(embedded.is_some(), "{trial}");
    assert_eq!(ipv4(&first["expected"][0], "64:ff9b::/96"), embedded);
    let label = first["name"].as_str().unwrap().split('.').next().unwrap();
    let named = parse_label(label.as_bytes().try_into().unwrap());
    assert_eq!(named, embedded, "{trial}");
    assert!(first["query"].as_u64().unwrap() < QUERIES, "{trial}");
}

#[test]
fn datagram_that_answers_nothing_is_stray_and_the_query_missing() {
    for at in [V4, V6] {
        only_stray((at, Conduct::Faults(&[(Fault::Garbage, At::ALL)])));
    }
}

#[test]
fn answer_from_another_address_is_stray_and_a_note_names_the_sender() {
    let other_address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    for (at, from) in [(V4, V4), (V4, other_address), (V6, V6)] {
        let trial = only_stray((at, Conduct::TrialsFrom(from)));
        let note = format!("datagrams came from {}", SocketAddr::new(from, 0));
        let note = note.trim_end_matches('0');
        assert!(trial["notes"].to_string().contains(note), "{trial}");
    }
}

#[test]
fn unanswered_query_is_missing_and_has_no_round_trip_time() {
    let subject = (V4, Conduct::Faults(&[(Fault::Silent, At::ALL)]));
    let trial = earned(subject, BRISK, "missing");
    assert_eq!(answers(&trial, "stray"), 0, "{trial}");
    assert!(trial["rtt_ns"]["p50"].is_null(), "{trial}");
}

/// The exact number is tested in simulated time.
#[test]
fn valid_answers_are_at_most_those_sent() {
    for (conduct, answered) in [(Conduct::DieAfter(40), 40), (Conduct::LoseEvery(7), 86)] {
        until("did an answer come in time", || {
            let trial = trial((V4, conduct), BRISK, "failed");
            let [valid, late, missing] =
                ["valid", "late", "missing"].map(|class| answers(&trial, class));
            assert_eq!(valid + late + missing, QUERIES, "{trial}");
            assert!(valid + late <= answered, "{trial}");
            (valid > 0).then_some(())
        });
    }
}

#[test]
fn server_that_stops_during_the_trial_fails() {
    let trial = until("was a server gone before its trial was over", || {
        let ran = measured(|| {
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
        let notes = ran.json()["notes"].to_string();
        let gone = notes.contains("or it has stopped");
        gone.then(|| assert_outcome(&ran, "failed"))
    });
    let [valid, late, missing] = ["valid", "late", "missing"].map(|class| answers(&trial, class));
    assert!(missing > 0, "{trial}");
    assert_eq!(valid + late + missing, 500, "{trial}");
}

#[test]
fn second_answer_is_a_duplicate_and_not_a_failure() {
    until("did a second answer come before the end", || {
        let trial = trial((V4, Conduct::Always(Fault::Twice)), PATIENT, "passed");
        assert_eq!(answers(&trial, "valid"), QUERIES, "{trial}");
        // The last duplicates may arrive after every query is decided and the trial is over.
        let duplicates = answers(&trial, "duplicate");
        assert!(duplicates <= QUERIES, "{trial}");
        assert_eq!(answers(&trial, "stray"), 0, "{trial}");
        (duplicates > 0).then_some(())
    });
}

#[test]
fn answer_after_the_timeout_is_late_and_not_valid() {
    const DELAY_NS: Nanos = 150_000_000;
    // The trial does not wait for the last answers longer than their timeout.
    let trial = until("did a late answer come before the end", || {
        let subject = (V4, Conduct::Late(DELAY_NS));
        let trial = trial(subject, "50ms", "failed");
        assert_eq!(answers(&trial, "valid"), 0, "{trial}");
        let in_no_other = answers(&trial, "late") + answers(&trial, "missing");
        assert_eq!(in_no_other, QUERIES, "{trial}");
        (answers(&trial, "late") > 0).then_some(trial)
    });
    let p50 = trial["rtt_ns"]["p50"].as_u64().unwrap();
    assert!(p50 >= DELAY_NS, "{trial}");
}

#[test]
fn growing_queue_of_a_server_is_detected() {
    until("did answers come in time and too late", || {
        let trial = trial((V4, Conduct::Queue(100)), "100ms", "failed");
        let [valid, late, missing] =
            ["valid", "late", "missing"].map(|class| answers(&trial, class));
        // Answer k leaves at the earliest 10 ms times k after the first query. Its query was sent 2 ms times k after
        // it, at most 10 ms late: after the 13th none can be in time.
        assert!(valid <= 13 || is_disturbed(&trial), "{trial}");
        assert_eq!(valid + late + missing, QUERIES, "{trial}");
        (valid > 0 && late > 0).then_some(())
    });
}
