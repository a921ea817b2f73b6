use std::convert::Infallible;

use proptest::prelude::*;

use super::super::simulated::{Simulated, result, threshold};
use super::*;

fn late() -> TesterFault {
    TesterFault::LateSchedule {
        cause: None,
        lateness_ns: 20_000,
        limit_ns: 10_000,
    }
}

/// A Tester whose trial result, with all its figures, is a function of the rate.
struct Scripted<F>(F);

impl<F: FnMut(u64) -> TrialResult> Trials for Scripted<F> {
    type Error = Infallible;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, Infallible> {
        Ok((self.0)(rate_qps))
    }
}

fn proposed(tester: impl FnMut(u64) -> Outcome) -> SelfTestResult {
    let spec = SearchSpec::from_start(1000);
    let Ok(result) = propose(spec, &mut Simulated(tester), &mut |_| {});
    result
}

fn confirmed(rate_qps: u64, tester: impl FnMut(u64) -> Outcome) -> SelfTestResult {
    let Ok(result) = confirm(rate_qps, &mut Simulated(tester), &mut |_| {});
    result
}

fn rates(result: &SelfTestResult) -> Vec<u64> {
    result.trials.iter().map(|trial| trial.rate_qps).collect()
}

proptest! {
    #[test]
    fn rate_is_certified_by_its_self_test_rate(rate in 1u64..1_000_000_000) {
        prop_assert_eq!(certified_rate(self_test_rate(rate)), rate);
        prop_assert!(certified_rate(self_test_rate(rate) - 1) < rate);
    }

    #[test]
    fn confirmed_rate_has_passed(limit_qps in 0u64..300_000, rate_qps in 1_000u64..200_000) {
        let result = confirmed(rate_qps, |rate| threshold(limit_qps, rate));
        match result.certified_rate_qps {
            Some(certified) => prop_assert!(self_test_rate(certified) <= limit_qps && certified <= rate_qps),
            // A twelfth of the rate is tried before the certificate is refused.
            None => prop_assert!(limit_qps < self_test_rate(rate_qps / 11)),
        }
        prop_assert!(result.trials.len() <= 5);
    }
}

#[test]
fn self_test_runs_at_220_per_cent() {
    assert_eq!(self_test_rate(20_000), 44_000);
    assert_eq!(self_test_rate(1), 3);
    assert_eq!(literal_self_test_rate(20_000), 40_001);
    assert_eq!(self_test_timeout(1_000_000_000), 250_000_000);
    assert_eq!(self_test_rate(u64::MAX), u64::MAX);
}

#[test]
fn one_pass_certifies_wanted_rate() {
    let mut tester = Simulated(|rate| threshold(44_000, rate));
    let Ok(result) = certify_at(20_000, &mut tester, &mut |_| {});
    assert_eq!(result.end, Outcome::Passed);
    assert_eq!(result.certified_rate_qps, Some(20_000));
    let Ok(result) = certify_at(20_001, &mut tester, &mut |_| {});
    assert_eq!(result.end, Outcome::Failed { shortfall: 3 });
    assert_eq!(result.certified_rate_qps, None);
    assert_eq!(result.trials.len(), 1, "no repeat after a failure");
}

#[test]
fn stalled_trial_is_repeated_but_slow_sender_is_not() {
    let stalls = |stalled: usize, median_ns| {
        let mut left = stalled;
        let mut tester = Scripted(move |rate| {
            let outcome = match left {
                0 => Outcome::Passed,
                _ => Outcome::Invalid(late()),
            };
            left = left.saturating_sub(1);
            let mut result = result(rate, outcome);
            result.timing.lateness_ns_p50 = median_ns;
            result
        });
        let Ok(result) = certify_at(1000, &mut tester, &mut |_| {});
        (result.certified_rate_qps, result.trials.len())
    };
    assert_eq!(stalls(3, 5_000), (Some(1000), 4));
    assert_eq!(stalls(4, 5_000), (None, 4));
    assert_eq!(stalls(1, 10_000_000), (None, 1));
}

#[test]
fn rate_that_loses_datagrams_twice_is_refused() {
    let mut tester = Simulated(|_| Outcome::Invalid(TesterFault::ReceiveDrops { datagrams: 1 }));
    let Ok(result) = certify_at(1000, &mut tester, &mut |_| {});
    assert_eq!(
        (result.trials.len(), result.meaning()),
        (2, Meaning::Nothing)
    );
}

#[test]
fn rate_above_tester_capacity_fails() {
    let result = proposed(|rate| {
        if rate > 220_000 {
            Outcome::Invalid(late())
        } else {
            Outcome::Passed
        }
    });
    assert_eq!(result.end, Outcome::Passed);
    let passed = result.passed_rate_qps.unwrap();
    assert!((219_780..=220_000).contains(&passed), "{passed}");
    assert_eq!(result.certified_rate_qps, Some(certified_rate(passed)));
}

#[test]
fn chance_failure_does_not_lower_proposed_rate() {
    let mut failed = false;
    let result = proposed(|rate| match rate {
        // A single failure at a rate that the Tester achieves.
        64_000 if !std::mem::replace(&mut failed, true) => Outcome::Failed { shortfall: 1 },
        rate => threshold(220_000, rate),
    });
    assert!(result.passed_rate_qps.unwrap() > 219_000);
    assert!(failed);
}

#[test]
fn failing_rate_is_lowered_in_growing_steps() {
    let silent = confirmed(100_000, |rate| threshold(0, rate));
    let lowered = [100_000, 90_000, 72_000, 43_200, 8_640];
    assert_eq!(rates(&silent), lowered.map(self_test_rate));
    assert_eq!(silent.meaning(), Meaning::Nothing);
    let slower = confirmed(100_000, |rate| threshold(self_test_rate(80_000), rate));
    assert_eq!(slower.meaning(), Meaning::Rate(72_000));
    assert_eq!(
        rates(&slower),
        lowered[..3]
            .iter()
            .map(|&rate| self_test_rate(rate))
            .collect::<Vec<_>>()
    );
    let same = confirmed(100_000, |_| Outcome::Passed);
    assert_eq!(
        (same.meaning(), same.trials.len()),
        (Meaning::Rate(100_000), 1)
    );
}

#[test]
fn authority_exit_certifies_nothing_and_does_not_lower_rate() {
    let died = TesterFault::AuthorityDied {
        status: "signal 9".into(),
    };
    let result = proposed(|rate| {
        if rate > 2000 {
            Outcome::Invalid(died.clone())
        } else {
            Outcome::Passed
        }
    });
    assert_eq!(result.end, Outcome::Invalid(died.clone()));
    assert_eq!(result.meaning(), Meaning::Disturbed);
    let result = confirmed(1000, |_| Outcome::Invalid(died.clone()));
    assert_eq!(rates(&result), [2200; 2]);
    assert_eq!(result.meaning(), Meaning::Disturbed);
}

#[test]
fn silent_authority_certifies_nothing() {
    let result = proposed(|rate| threshold(0, rate));
    assert_eq!(result.end, Outcome::Failed { shortfall: 1 });
    assert_eq!(result.meaning(), Meaning::Nothing);
}
