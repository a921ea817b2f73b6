//! Faults on the Tester's side: the trial reports them, and gives no result about the DUT.

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::memory::Impairment;
use dns64bench::trial::fault::TesterFault;
use dns64bench::trial::result::{Answers, Outcome, TrialResult};
use proptest::prelude::*;

use crate::script::{Conduct, Fault};
use crate::trial::{MILLISECOND, Mishap, NONE, PLAIN, Trial};

/// A plain trial with this mishap at a time after its start.
fn befallen(at: Nanos, mishap: Mishap) -> Trial {
    Trial {
        mishap: Some((at, mishap)),
        ..PLAIN
    }
}

#[test]
fn stalled_sender_makes_trial_invalid() {
    // No query is answered, which is irrelevant here.
    let stall = befallen(100 * MILLISECOND, Mishap::Stall(SECOND / 2));
    match stall.against(Conduct::Always(Fault::Silent)).outcome {
        Outcome::Invalid(TesterFault::LateSchedule { lateness_ns, .. }) => {
            assert!(lateness_ns > 4 * SECOND / 10);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn stall_within_one_bin_is_caught_up() {
    let stall = befallen(100 * MILLISECOND, Mishap::Stall(9 * MILLISECOND));
    let result = stall.against(Conduct::Good);
    assert_eq!(result.outcome, Outcome::Passed);
    let lateness_ns = result.timing.lateness_ns_max;
    assert!((8 * MILLISECOND..10 * MILLISECOND).contains(&lateness_ns));
}

#[test]
fn link_failure_during_trial_is_fault_of_tester() {
    let result = befallen(SECOND / 2, Mishap::LinkFails).against(Conduct::Good);
    let error = "send failed: network down".to_owned();
    let fault = TesterFault::Link { error };
    assert_eq!(result.outcome, Outcome::Invalid(fault));
    assert_eq!(result.queries_sent, 1000);
    let Answers { valid, .. } = result.answers;
    assert_eq!(result.answers, Answers { valid, ..NONE });
    assert_eq!(valid + result.undecided, 1000);
}

#[test]
fn interrupted_trial_has_undecided_queries_and_no_failure() {
    let interrupted = befallen(SECOND / 2, Mishap::Interrupted);
    let result = interrupted.against(Conduct::Late(50 * MILLISECOND));
    assert!(result.ended_early);
    assert_eq!(result.outcome, Outcome::Failed { shortfall: 0 });
    assert_eq!(result.queries_due, 2000);
    // The queries of 500 ms were sent; the responses of the last 50.2 ms are in transit.
    assert_eq!((result.queries_sent, result.undecided), (1001, 101));
    assert_eq!(result.answers, Answers { valid: 900, ..NONE });
}

#[test]
fn step_of_real_time_clock_makes_trial_invalid() {
    let stepped = |step_ns| befallen(SECOND / 2, Mishap::ClockStep(step_ns)).against(Conduct::Good);
    for step_ns in [-SECOND.cast_signed(), 10_001] {
        let fault = TesterFault::ClockStep { step_ns };
        assert_eq!(stepped(step_ns).outcome, Outcome::Invalid(fault));
    }
    assert_eq!(stepped(10_000).outcome, Outcome::Passed);
}

fn any_conduct() -> impl Strategy<Value = Conduct> {
    prop_oneof![
        Just(Conduct::Good),
        Just(Conduct::Always(Fault::WrongAddress)),
        Just(Conduct::Always(Fault::Empty)),
        Just(Conduct::Always(Fault::ServFail)),
        Just(Conduct::Always(Fault::Truncated)),
        Just(Conduct::Always(Fault::Garbage)),
        Just(Conduct::Always(Fault::Twice)),
        Just(Conduct::Always(Fault::Silent)),
        (0..100 * MILLISECOND).prop_map(Conduct::Late),
        (0_u64..300).prop_map(Conduct::DieAfter),
        (100_u64..3000).prop_map(Conduct::Queue),
        (1_u64..100).prop_map(Conduct::LoseEvery),
    ]
}

fn any_mishap() -> impl Strategy<Value = Mishap> {
    prop_oneof![
        Just(Mishap::Interrupted),
        Just(Mishap::LinkFails),
        (0..100 * MILLISECOND).prop_map(Mishap::Stall),
        (-20_000_i64..20_000).prop_map(Mishap::ClockStep),
    ]
}

fn any_impairment() -> impl Strategy<Value = Impairment> {
    let jitter_ns = 0..60 * MILLISECOND;
    (jitter_ns, 0_u32..100_000, 0_u32..100_000).prop_map(|(jitter_ns, loss_ppm, duplicate_ppm)| {
        Impairment {
            delay_ns: 100_000,
            jitter_ns,
            loss_ppm,
            duplicate_ppm,
        }
    })
}

prop_compose! {
    fn any_trial()(
        rate_qps in 100_u64..2000,
        timeout_ns in MILLISECOND..100 * MILLISECOND,
        impairment in prop_oneof![Just(PLAIN.impairment), any_impairment()],
        stop_early in any::<bool>(),
        cached_share in prop_oneof![Just("0"), Just("0.5"), Just("1")],
        mishap in proptest::option::of((0..300 * MILLISECOND, any_mishap())),
    ) -> Trial {
        let duration_ns = 200 * MILLISECOND;
        Trial { rate_qps, duration_ns, timeout_ns, impairment, stop_early, cached_share, mishap, ..PLAIN }
    }
}

/// Number of queries with a known fate.
fn accounted_for(result: &TrialResult) -> u64 {
    let a = &result.answers;
    let answered = a.valid + a.late + a.wrong + a.empty + a.error + a.truncated;
    answered + a.missing + result.undecided
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_sent_query_is_counted_once(trial in any_trial(), conduct in any_conduct(), seed in 0_u64..100) {
        let result = trial.run(conduct, seed);
        prop_assert_eq!(accounted_for(&result), result.queries_sent);
        prop_assert!(result.queries_sent <= result.queries_due);
        prop_assert!(result.undecided == 0 || result.ended_early);
        prop_assert!(result.queries_sent == result.queries_due || result.ended_early || trial.mishap.is_some());
        match result.outcome {
            Outcome::Passed => prop_assert_eq!(result.answers.valid, result.queries_due),
            Outcome::Failed { shortfall } => {
                prop_assert_eq!(shortfall, result.queries_sent - result.answers.valid - result.undecided);
                prop_assert!(shortfall > 0 || result.ended_early);
            }
            Outcome::Invalid(_) => prop_assert!(trial.mishap.is_some(), "{:?}", result.outcome),
        }
    }
}
