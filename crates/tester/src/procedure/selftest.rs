//! The self-test of the Tester (RFC 8219 section 9.2.1).
//!
//! The Measurer asks the authority itself, which answers every AAAA query. A Tester that does so at
//! 2(1 + delta)r within a quarter of the timeout is certified for a DUT at rate r: the DUT may send
//! two queries for each of its own, and half of the time is left to the DUT.

use dns64_transport::clock::Nanos;

use super::search::{Search, SearchEnd, SearchSpec};
use super::{Event, Trials, observed};
use crate::trial::result::{Outcome, TesterFault, TrialResult};

/// Runs the self-test for a DUT at `rate_qps`: one trial at [`self_test_rate`], repeated at most
/// `invalid_repeats` times while it is invalid.
///
/// # Errors
///
/// Whatever `trials` gives when it cannot run a trial.
pub fn certify_at<T: Trials>(
    rate_qps: u64,
    invalid_repeats: u32,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<SelfTestResult, T::Error> {
    let mut done = Vec::new();
    let self_test_rate_qps = self_test_rate(rate_qps);
    let outcome = attempt(
        self_test_rate_qps,
        invalid_repeats,
        trials,
        observer,
        &mut done,
    )?;
    let passed = outcome == Outcome::Passed;
    Ok(SelfTestResult {
        end: outcome,
        wanted_rate_qps: Some(rate_qps),
        passed_rate_qps: passed.then_some(self_test_rate_qps),
        certified_rate_qps: passed.then_some(rate_qps),
        trials: done,
    })
}

/// Searches for the highest self-test rate that passes; `spec` is in self-test rates.
///
/// Here the Tester is what is tested: unlike in a search of a DUT, a rate that it cannot keep even
/// after the repeats has failed.
///
/// # Errors
///
/// Whatever `trials` gives when it cannot run a trial.
pub fn certify<T: Trials>(
    spec: SearchSpec,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<SelfTestResult, T::Error> {
    let repeats = spec.invalid_repeats;
    let mut search = Search::new(SearchSpec {
        invalid_repeats: 0,
        ..spec
    });
    let mut done = Vec::new();
    let mut refused = Outcome::Failed { shortfall: 0 };
    while let Some(rate_qps) = search.next_rate() {
        let outcome = attempt(rate_qps, repeats, trials, observer, &mut done)?;
        search.observe(&match &outcome {
            Outcome::Invalid(fault) if is_of_capacity(fault) => Outcome::Failed { shortfall: 0 },
            other => other.clone(),
        });
        observer(&Event::Bracket(search.bracket()));
        if outcome != Outcome::Passed {
            refused = outcome;
        }
    }
    if let Some(end) = search.finished() {
        observer(&Event::Finished(end));
    }
    let broken = matches!(search.finished(), Some(SearchEnd::TesterFault(_)));
    let passed_rate_qps = search.bracket().passed_qps.filter(|_| !broken);
    let certified_rate_qps = passed_rate_qps.map(certified_rate).filter(|&rate| rate > 0);
    Ok(SelfTestResult {
        end: match certified_rate_qps {
            Some(_) => Outcome::Passed,
            None => refused,
        },
        wanted_rate_qps: None,
        passed_rate_qps,
        certified_rate_qps,
        trials: done,
    })
}

/// What a self-test found.
#[derive(Clone, Debug)]
pub struct SelfTestResult {
    /// How it ended: passed if the Tester is certified, invalid if it could not keep the rate or broke.
    pub end: Outcome,
    /// The rate of the DUT that the self-test was for; `None` if it looked for the highest.
    pub wanted_rate_qps: Option<u64>,
    /// The highest self-test rate that passed.
    pub passed_rate_qps: Option<u64>,
    /// The highest rate of a DUT for which this certifies the Tester.
    pub certified_rate_qps: Option<u64>,
    /// All trials in order, at self-test rates.
    pub trials: Vec<TrialResult>,
}

/// Why a self-test that ended so certified nothing.
pub fn why_uncertified(end: &Outcome) -> String {
    match end {
        Outcome::Passed => "no certificate was confirmed".to_owned(),
        Outcome::Failed { shortfall } => {
            format!("{shortfall} queries without a valid answer in time")
        }
        Outcome::Invalid(fault) => fault.to_string(),
    }
}

/// The rate at which the self-test for a DUT at `rate_qps` runs: 2(1 + delta)r with delta = 0.1,
/// rounded up (papers 000 section 5, 004 section 2.1).
pub fn self_test_rate(rate_qps: u64) -> u64 {
    let rate = (u128::from(rate_qps) * SHARE.0).div_ceil(SHARE.1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The highest rate of a DUT for which a pass at `self_test_rate_qps` certifies: the inverse of
/// [`self_test_rate`], rounded down.
pub fn certified_rate(self_test_rate_qps: u64) -> u64 {
    let rate = u128::from(self_test_rate_qps) * SHARE.1 / SHARE.0;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The words of RFC 8219 section 9.2.1 taken literally: 2(r + delta) with delta = 0.1 queries per
/// second, rounded up. That leaves no reserve, so it is only shown beside [`self_test_rate`].
pub fn literal_self_test_rate(rate_qps: u64) -> u64 {
    rate_qps.saturating_mul(2).saturating_add(1)
}

/// The timeout of the self-test for a DUT with `timeout_ns`: a quarter (RFC 8219 section 9.2.1).
pub fn self_test_timeout(timeout_ns: Nanos) -> Nanos {
    timeout_ns / 4
}

/// Runs trials at one rate until one is valid or the repeats are used up.
fn attempt<T: Trials>(
    rate_qps: u64,
    repeats: u32,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
    done: &mut Vec<TrialResult>,
) -> Result<Outcome, T::Error> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let number = done.len() as u64 + 1;
        let result = observed(trials, rate_qps, number, observer)?;
        let outcome = result.outcome.clone();
        done.push(result);
        match &outcome {
            Outcome::Invalid(fault) if attempt <= repeats => observer(&Event::Repeat {
                fault,
                attempt,
                of: repeats,
            }),
            _ => return Ok(outcome),
        }
    }
}

/// Whether a fault says that the rate was too much, so that a lower one may do.
fn is_of_capacity(fault: &TesterFault) -> bool {
    match fault {
        TesterFault::NotSent { .. }
        | TesterFault::LateSchedule { .. }
        | TesterFault::RateError { .. }
        | TesterFault::CatchUpBurst { .. }
        | TesterFault::Disturbed { .. }
        | TesterFault::ReceiveDrops { .. }
        | TesterFault::AuthorityDrops { .. }
        | TesterFault::AuthorityOverflow { .. }
        | TesterFault::NetworkLoss(_)
        | TesterFault::NetworkDelay(_)
        | TesterFault::AuthoritySlow { .. } => true,
        TesterFault::AuthorityDied { .. }
        | TesterFault::ClockStep { .. }
        | TesterFault::Link { .. } => false,
    }
}

/// 2(1 + delta) with delta = 0.1, the least that RFC 8219 section 9.2.1 allows, as a fraction.
const SHARE: (u128, u128) = (11, 5);

/// Delta of [`self_test_rate`].
pub const DELTA: f64 = 0.1;

/// Default of the repeats of an invalid self-test trial. Fewer than in a search of a DUT: a rate at
/// which the Tester is hit twice is better not certified.
pub const INVALID_REPEATS: u32 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::simulated::{Simulated, threshold};
    use super::*;

    fn late() -> TesterFault {
        TesterFault::LateSchedule {
            cause: None,
            lateness_ns: 20_000,
            limit_ns: 10_000,
        }
    }

    fn certified(spec: SearchSpec, tester: impl FnMut(u64) -> Outcome) -> SelfTestResult {
        let Ok(result) = certify(spec, &mut Simulated(tester), &mut |_| {});
        result
    }

    proptest! {
        #[test]
        fn a_rate_is_certified_by_its_own_self_test(rate in 1u64..1_000_000_000) {
            prop_assert_eq!(certified_rate(self_test_rate(rate)), rate);
            prop_assert!(certified_rate(self_test_rate(rate) - 1) < rate);
        }
    }

    #[test]
    fn the_self_test_runs_at_220_per_cent() {
        assert_eq!(self_test_rate(20_000), 44_000);
        assert_eq!(self_test_rate(1), 3);
        assert_eq!(literal_self_test_rate(20_000), 40_001);
        assert_eq!(self_test_timeout(1_000_000_000), 250_000_000);
        assert_eq!(self_test_rate(u64::MAX), u64::MAX);
    }

    #[test]
    fn one_pass_certifies_the_wanted_rate() {
        let mut tester = Simulated(|rate| threshold(44_000, rate));
        let Ok(result) = certify_at(20_000, INVALID_REPEATS, &mut tester, &mut |_| {});
        assert_eq!(result.end, Outcome::Passed);
        assert_eq!(result.certified_rate_qps, Some(20_000));
        let Ok(result) = certify_at(20_001, INVALID_REPEATS, &mut tester, &mut |_| {});
        assert_eq!(result.end, Outcome::Failed { shortfall: 3 });
        assert_eq!(result.certified_rate_qps, None);
    }

    #[test]
    fn a_disturbed_self_test_is_repeated() {
        let mut disturbed = 1;
        let mut tester = Simulated(|_| match disturbed {
            0 => Outcome::Passed,
            _ => {
                disturbed -= 1;
                Outcome::Invalid(late())
            }
        });
        let Ok(result) = certify_at(1000, 1, &mut tester, &mut |_| {});
        assert_eq!(result.end, Outcome::Passed);
        assert_eq!(result.trials.len(), 2);
    }

    #[test]
    fn a_rate_that_the_tester_cannot_keep_has_failed() {
        let result = certified(SearchSpec::from_start(1000), |rate| {
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
    fn an_authority_that_dies_certifies_nothing() {
        let died = TesterFault::AuthorityDied {
            status: "signal 9".into(),
        };
        let result = certified(SearchSpec::from_start(1000), |rate| {
            if rate > 2000 {
                Outcome::Invalid(died.clone())
            } else {
                Outcome::Passed
            }
        });
        assert_eq!(result.end, Outcome::Invalid(died));
        assert_eq!(result.certified_rate_qps, None);
    }

    #[test]
    fn a_silent_authority_certifies_nothing() {
        let result = certified(SearchSpec::from_start(1000), |rate| threshold(0, rate));
        assert_eq!(result.end, Outcome::Failed { shortfall: 1 });
        assert_eq!(result.certified_rate_qps, None);
    }
}
