//! A DUT with known faults on a socket: every class of answers at once, counted exactly.

use serde_json::Value;

use super::accounts::{answers, assert_accounted, number};
use super::busy::until;
use super::dut::{Dut, LOCALHOST};
use super::program::{measured, run, server};
use super::script::{At, Conduct, Fault, truth};

/// The faults with their positions, one in 60 each. None depends on time, because a busy machine adds delays.
const FAULTS: [(Fault, At); 12] = {
    const fn at(first: u64) -> At {
        At { first, every: 60 }
    }
    [
        (Fault::WrongAddress, at(0)),
        (Fault::ExtraAddress, at(5)),
        (Fault::Empty, at(10)),
        (Fault::ServFail, at(15)),
        (Fault::NxDomain, at(20)),
        (Fault::Truncated, at(25)),
        (Fault::Malformed, at(30)),
        (Fault::Garbage, at(35)),
        (Fault::WrongId, at(40)),
        (Fault::WrongQuestion, at(45)),
        (Fault::Twice, at(50)),
        (Fault::Silent, at(55)),
    ]
};

/// This many queries fit the receive buffer of a server that gets no CPU time: about 270 in the usual 208 KiB.
const QUERIES: u64 = 240;

/// Options for this number of queries, whose answers may take seconds on a busy machine.
const LOAD: &str = "-Q 1200 -l 200ms -t 5s --pref64 64:ff9b::/96 --json -";

#[test]
fn answers_of_every_class_are_counted_exactly() {
    let expected = truth(&FAULTS, QUERIES);
    let trial = until("did all datagrams of a trial arrive in time", || {
        let mut seen = 0;
        let ran = measured(|| {
            let dut = Dut::start(LOCALHOST, Conduct::Faults(&FAULTS));
            let ran = run(&format!("trial {} {LOAD}", server(dut.address)));
            seen = dut.seen_in_trials();
            ran
        });
        let trial = ran.json();
        assert_accounted(&trial);
        // Queries that the server did not receive in time are missing or late, and nothing else.
        assert_at_most(&trial, &serde_json::to_value(expected).unwrap());
        let whole = seen == QUERIES && number(&trial, "tester_drops") == 0;
        let in_time = answers(&trial, "late") == 0;
        let over = answers(&trial, "stray") == expected.stray;
        (whole && in_time && over).then_some(trial)
    });
    assert_eq!(trial["answers"], serde_json::to_value(expected).unwrap());
}

/// Asserts that no class has more answers than the DUT sent of it, except those for answers that did not come in time.
fn assert_at_most(trial: &Value, expected: &Value) {
    for (class, most) in expected.as_object().unwrap() {
        let most = most.as_u64().unwrap();
        if !["late", "missing"].contains(&class.as_str()) {
            assert!(answers(trial, class) <= most, "{class}: {trial:#}");
        }
    }
}
