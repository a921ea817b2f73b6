//! dns64d behind an authority with injected faults.

use dns64_transport::clock::SECOND;
use dns64bench::authority::counts::FaultCounts;
use dns64bench::trial::result::{Answers, Outcome, TrialResult};

use crate::trial::{MILLISECOND, NONE};
use crate::whole::{LOAD, Load, SETUP, Setup, Whole};

/// Runs a trial of 2,000 queries, with Measurer and authority on one core.
fn behind(behaviour: &'static str) -> (TrialResult, FaultCounts) {
    let mut whole = Whole::new(Setup {
        one_core: true,
        behaviour,
        ..SETUP
    });
    let result = whole.trial(LOAD, &[]);
    let counts = result.authority.unwrap().misbehaviour.unwrap_or_default();
    (result, counts)
}

#[test]
fn dut_with_sequential_queries_waits_for_delay_twice() {
    let (ideal, counts) = behind("none");
    assert_eq!(counts, FaultCounts::default());
    assert_eq!(ideal.rtt.max.unwrap() / 1000, 600);
    let (delayed, counts) = behind("delay=5ms");
    assert_eq!(delayed.outcome, Outcome::Passed);
    // A missing AAAA, then an A.
    assert_eq!(counts.delayed, 4000);
    let rtt = |result: &TrialResult| [result.rtt.p50, result.rtt.max].map(Option::unwrap);
    for (delayed, ideal) in rtt(&delayed).into_iter().zip(rtt(&ideal)) {
        let more_ns = delayed - ideal;
        // Histograms have three significant digits.
        assert!(more_ns.abs_diff(10 * MILLISECOND) < 10_000, "{more_ns}");
    }
    assert!(delayed.timing.lateness_ns_max <= ideal.timing.lateness_ns_max);
}

#[test]
fn jitter_changes_round_trips_within_its_spread() {
    let (result, _) = behind("delay=5ms+-1ms");
    assert_eq!(result.outcome, Outcome::Passed);
    let [least, most] = [0, 15].map(|at| {
        let known = &result.rtt_percentiles;
        let first = known
            .iter()
            .find(|(pct, _)| *pct >= f64::from(at) * 100.0 / 15.0);
        first.unwrap().1
    });
    // Twice 4 to 6 ms plus 0.6 ms, rounded up to steps of 0.1 ms.
    assert!((8_500_000..9_400_000).contains(&least), "{least}");
    assert!((12_000_000..12_900_000).contains(&most), "{most}");
}

#[test]
fn faults_of_authority_reach_client_through_dut() {
    // 20 AAAA and 20 A of 2,000 names each are always refused, for different names.
    let (result, counts) = behind("servfail=1%");
    let Answers { valid, error, .. } = result.answers;
    assert_eq!(
        result.answers,
        Answers {
            valid,
            error,
            ..NONE
        }
    );
    // RFC 6147 section 5.1.2: a server may query A although AAAA fails, so not each AAAA has an effect.
    assert!((20..=40).contains(&error), "{error}");
    assert!(counts.servfail >= 40, "{counts:?}");
    assert_eq!(result.outcome, Outcome::Failed { shortfall: error });
}

#[test]
fn reordered_and_duplicated_replies_change_no_answer() {
    let (result, counts) = behind("delay=1ms,reorder=10%:3ms,duplicate=10%");
    assert_eq!(result.outcome, Outcome::Passed);
    assert_eq!(
        result.answers,
        Answers {
            valid: 2000,
            ..NONE
        }
    );
    assert_eq!((counts.reordered, counts.duplicated), (400, 400));
    let slow = result.rtt.max.unwrap();
    assert!((5_500_000..=8_700_000).contains(&slow), "{slow}");
}

#[test]
fn delayed_replies_survive_their_trial() {
    let mut whole = Whole::new(Setup {
        one_core: true,
        behaviour: "delay=2ms,duplicate=1%",
        ..SETUP
    });
    for trials in 1..=2 {
        let load = Load {
            duration_ns: SECOND / 2,
            ..LOAD
        };
        // The counters of the authority continue from trial to trial.
        let result = whole.trial(load, &[]);
        let faults = result.authority.unwrap().misbehaviour.unwrap();
        let expected = (2000 * trials, 20 * trials);
        assert_eq!((faults.delayed, faults.duplicated), expected);
        whole.rest(SECOND);
    }
    whole.assert_idle();
}
