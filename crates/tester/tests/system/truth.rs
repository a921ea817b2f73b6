//! The Measurer against scripted DUTs: exact counts of answers, and search results.

use std::convert::Infallible;

use dns64_transport::clock::{Nanos, SECOND};
use dns64bench::procedure::Trials;
use dns64bench::procedure::search::{self, Search, SearchEnd, SearchSpec};
use dns64bench::trial::result::{Answers, Outcome, TrialResult};

use crate::script::{At, Conduct, Fault, truth};
use crate::trial::{MILLISECOND, PLAIN, Trial};

/// 100,000 queries per second, timeout 50 ms.
const FAST: Trial = Trial {
    rate_qps: 100_000,
    duration_ns: 100 * MILLISECOND,
    timeout_ns: 50 * MILLISECOND,
    ..PLAIN
};

/// Every class of bad answers.
const FAULTS: [Fault; 13] = [
    Fault::WrongAddress,
    Fault::ExtraAddress,
    Fault::Empty,
    Fault::ServFail,
    Fault::NxDomain,
    Fault::Truncated,
    Fault::Malformed,
    Fault::Garbage,
    Fault::WrongId,
    Fault::WrongQuestion,
    Fault::Twice,
    // After the timeout, and before the end of the trial.
    Fault::Late(55 * MILLISECOND),
    Fault::Silent,
];

/// More than the queries of any trial here.
const ONCE: u64 = 1 << 40;

/// Checks that the trial counts exactly the scripted faults.
fn assert_counted(trial: Trial, faults: Vec<(Fault, At)>) {
    let queries = trial.rate_qps * trial.duration_ns / SECOND;
    let expected = truth(&faults, queries);
    let told = format!("{faults:?}");
    let result = trial.against(Conduct::Faults(faults.leak()));
    assert_eq!(result.answers, expected, "{told}");
    assert_eq!(
        (result.queries_sent, result.undecided),
        (queries, 0),
        "{told}"
    );
    let outcome = match queries - expected.valid {
        0 => Outcome::Passed,
        shortfall => Outcome::Failed { shortfall },
    };
    assert_eq!(result.outcome, outcome, "{told}");
}

#[test]
fn each_class_of_bad_answers_is_counted_exactly() {
    for fault in FAULTS {
        for (first, every) in [(3, 10), (777, 1000), (7_654, ONCE)] {
            assert_counted(FAST, vec![(fault, At { first, every })]);
        }
    }
}

#[test]
fn mixed_classes_of_bad_answers_are_counted_exactly() {
    let places = (0..).step_by(7);
    for every in [130, 1000, ONCE] {
        let at = |first| At { first, every };
        let faults = FAULTS.into_iter().zip(places.clone().map(at));
        let long = Trial {
            duration_ns: SECOND,
            ..FAST
        };
        assert_counted(long, faults.collect());
    }
    // Every tenth query has one of three faults.
    for faults in FAULTS.windows(3) {
        let places = [4, 14, 24].map(|first| At { first, every: 30 });
        assert_counted(FAST, faults.iter().copied().zip(places).collect());
    }
}

#[test]
fn dut_without_faults_passes() {
    assert_counted(FAST, Vec::new());
    let answers = FAST.against(Conduct::Good).answers;
    let valid = 10_000;
    assert_eq!(
        answers,
        Answers {
            valid,
            ..truth(&[], valid)
        }
    );
}

/// Trials against a DUT with a new state in each.
struct Scripted {
    conduct: Conduct,
    trial: Trial,
}

impl Trials for Scripted {
    type Error = Infallible;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, Infallible> {
        let trial = Trial {
            rate_qps,
            stop_early: true,
            ..self.trial
        };
        Ok(trial.against(self.conduct))
    }
}

/// Returns the result of a search.
fn found(conduct: Conduct, duration_ns: Nanos, timeout_ns: Nanos) -> f64 {
    let trial = Trial {
        duration_ns,
        timeout_ns,
        ..PLAIN
    };
    let mut duts = Scripted { conduct, trial };
    let spec = SearchSpec::from_start(500);
    let Ok(result) = search::run(Search::new(spec), &mut duts, &mut |_| ());
    assert_eq!(result.end, SearchEnd::Found);
    result.rate_qps.unwrap() as f64
}

#[test]
fn short_queue_does_not_raise_result_of_search() {
    for (rate_qps, places) in [(2_000, 2), (20_000, 11)] {
        let conduct = Conduct::Bounded(rate_qps, places);
        let found = found(conduct, SECOND / 4, 250 * MILLISECOND);
        // A trial of a quarter of a second may leave the queue full.
        let expected = (rate_qps + 4 * places) as f64;
        let off_pct = 100.0 * (found / expected - 1.0).abs();
        assert!(off_pct < 1.0, "{found} and not {expected}: {off_pct:.2} %");
    }
}
