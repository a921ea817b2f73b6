//! The self-test of the Tester (RFC 8219 section 9.2.1).
//!
//! The Measurer queries the authority directly, which answers every AAAA query. A Tester that passes at 2(1 + delta)r
//! with a quarter of the timeout is certified for a DUT at rate r: the DUT may send two queries for each query that it
//! receives, and half of the timeout is left to the DUT.

use dns64_transport::clock::Nanos;

use super::search::{self, Search, SearchEnd, SearchSpec};
use super::{Event, Trials, observed};
use crate::trial::fault::TesterFault;
use crate::trial::result::{Outcome, TrialResult};

/// Runs the self-test for a DUT at `rate_qps`: one trial at [`self_test_rate`], repeated while it is disturbed.
///
/// # Errors
///
/// Errors of `trials` that prevent a trial from running.
pub fn certify_at<T: Trials>(
    rate_qps: u64,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<SelfTestResult, T::Error> {
    let mut done = Vec::new();
    let outcome = attempt(self_test_rate(rate_qps), trials, observer, &mut done)?;
    Ok(SelfTestResult {
        wanted_rate_qps: Some(rate_qps),
        ..SelfTestResult::of_one(rate_qps, outcome, done)
    })
}

/// Searches for the highest self-test rate that passes; `spec` contains self-test rates.
///
/// The Tester itself is under test: unlike in a search of a DUT, a rate that it does not achieve even after the repeats
/// counts as failed. The search only proposes a rate, which [`confirm`] then judges. A failed trial is therefore
/// repeated once, so that a momentary disturbance does not hide the capacity of the Tester.
///
/// # Errors
///
/// Errors of `trials` that prevent a trial from running.
pub fn propose<T: Trials>(
    spec: SearchSpec,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<SelfTestResult, T::Error> {
    let mut search = Search::new(SearchSpec {
        invalid_repeats: 0,
        ..spec
    });
    let mut done = Vec::new();
    let mut refused = Outcome::Failed { shortfall: 0 };
    while let Some(rate_qps) = search.next_rate() {
        let mut outcome = attempt(rate_qps, trials, observer, &mut done)?;
        if matches!(outcome, Outcome::Failed { .. }) {
            outcome = attempt(rate_qps, trials, observer, &mut done)?;
        }
        search.observe(&match is_refused(&outcome) {
            true => Outcome::Failed { shortfall: 0 },
            false => outcome.clone(),
        });
        observer(&Event::Bracket(search.bracket()));
        if outcome != Outcome::Passed {
            refused = outcome;
        }
    }
    if let Some(end) = search.finished() {
        observer(&Event::Finished(end));
    }
    let broken = matches!(search.finished(), Some(SearchEnd::TesterFault { .. }));
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

/// Confirms a rate that was proposed or found earlier: a trial at its self-test rate must pass. After each failure the
/// rate is lowered by [`LOWERED_BY_PCT`], in steps that double. A machine that has become much slower is thus detected
/// within five trials, and not refused.
///
/// # Errors
///
/// Errors of `trials` that prevent a trial from running.
pub fn confirm<T: Trials>(
    rate_qps: u64,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<SelfTestResult, T::Error> {
    let mut done = Vec::new();
    let mut steps = LOWERED_BY_PCT.into_iter();
    let mut rate_qps = rate_qps;
    loop {
        let outcome = attempt(self_test_rate(rate_qps), trials, observer, &mut done)?;
        let lower = steps.next().filter(|_| is_refused(&outcome));
        let lower = lower.map(|pct| rate_qps.saturating_mul(100 - pct) / 100);
        match lower.filter(|&lower| lower > 0) {
            Some(lower) => rate_qps = lower,
            None => return Ok(SelfTestResult::of_one(rate_qps, outcome, done)),
        }
    }
}

/// Result of a self-test.
#[derive(Clone, Debug)]
pub struct SelfTestResult {
    /// How it ended: passed if the Tester is certified, invalid if it did not achieve the rate or had a fault.
    pub end: Outcome,
    /// DUT rate that the self-test was run for; `None` if it searched for the highest.
    pub wanted_rate_qps: Option<u64>,
    /// Highest self-test rate that passed.
    pub passed_rate_qps: Option<u64>,
    /// Highest DUT rate for which this certifies the Tester.
    pub certified_rate_qps: Option<u64>,
    /// All trials in chronological order, at self-test rates.
    pub trials: Vec<TrialResult>,
}

impl SelfTestResult {
    /// Result of a self-test for a DUT at `rate_qps` whose last trial had this outcome.
    fn of_one(rate_qps: u64, outcome: Outcome, trials: Vec<TrialResult>) -> Self {
        let passed = outcome == Outcome::Passed;
        Self {
            end: outcome,
            wanted_rate_qps: None,
            passed_rate_qps: passed.then_some(self_test_rate(rate_qps)),
            certified_rate_qps: passed.then_some(rate_qps),
            trials,
        }
    }

    /// Returns what it contributes to a certificate.
    pub fn meaning(&self) -> Meaning {
        Meaning::of(&self.end, self.certified_rate_qps)
    }
}

/// Contribution of a self-test to a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It counts with this rate.
    Rate(u64),
    /// No rate passed.
    Nothing,
    /// It was disturbed and gives no result.
    Disturbed,
}

impl Meaning {
    /// Contribution of a self-test with this end and this certified rate.
    pub fn of(end: &Outcome, certified_rate_qps: Option<u64>) -> Self {
        match (end, certified_rate_qps) {
            (_, Some(rate_qps)) => Self::Rate(rate_qps),
            (Outcome::Invalid(fault), None) if !fault.kind().is_of_rate => Self::Disturbed,
            (_, None) => Self::Nothing,
        }
    }
}

/// Explains why a self-test with this end certified nothing.
pub fn why_uncertified(end: &Outcome) -> String {
    match end {
        Outcome::Passed => "no certificate was confirmed".to_owned(),
        Outcome::Failed { shortfall } => {
            format!("{shortfall} queries without a valid answer in time")
        }
        Outcome::Invalid(fault) => fault.to_string(),
    }
}

/// Returns the rate of the self-test for a DUT at `rate_qps`: 2(1 + delta)r with delta = 0.1, rounded up (Lencse et al.
/// 2017, section 5; Lencse, Pivoda and Shima 2021, section 2.1).
pub fn self_test_rate(rate_qps: u64) -> u64 {
    let rate = (u128::from(rate_qps) * SHARE.0).div_ceil(SHARE.1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Returns the highest DUT rate that a pass at `self_test_rate_qps` certifies: the inverse of [`self_test_rate`],
/// rounded down.
pub fn certified_rate(self_test_rate_qps: u64) -> u64 {
    let rate = u128::from(self_test_rate_qps) * SHARE.1 / SHARE.0;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Returns the rate by a literal reading of RFC 8219 section 9.2.1: 2(r + delta) with delta = 0.1 queries per second,
/// rounded up. It has no reserve and is only shown next to [`self_test_rate`].
pub fn literal_self_test_rate(rate_qps: u64) -> u64 {
    rate_qps.saturating_mul(2).saturating_add(1)
}

/// Returns the timeout of the self-test for a DUT with `timeout_ns`: a quarter (RFC 8219 section 9.2.1).
pub fn self_test_timeout(timeout_ns: Nanos) -> Nanos {
    timeout_ns / 4
}

/// Runs trials at one rate until one is valid or no repeats are left.
fn attempt<T: Trials>(
    rate_qps: u64,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
    done: &mut Vec<TrialResult>,
) -> Result<Outcome, T::Error> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let number = done.len() as u64 + 1;
        let result = match observed(trials, rate_qps, number, observer) {
            Ok(result) => result,
            Err(error) => match T::end(&error) {
                Some(TesterFault::Interrupted) => {
                    return Ok(Outcome::Invalid(TesterFault::Interrupted));
                }
                _ => return Err(error),
            },
        };
        let outcome = result.outcome.clone();
        let of = repeats(&result);
        done.push(result);
        match &outcome {
            Outcome::Invalid(fault) if attempt <= of => {
                observer(&Event::Repeat { fault, attempt, of });
            }
            _ => return Ok(outcome),
        }
    }
}

/// Returns the number of repeats of this trial's rate, if the trial is invalid.
fn repeats(trial: &TrialResult) -> u32 {
    match trial.outcome.fault() {
        Some(
            TesterFault::LateSchedule { .. }
            | TesterFault::RateError { .. }
            | TesterFault::CatchUpBurst { .. }
            | TesterFault::Disturbed { .. },
        ) => match trial.timing.is_behind() {
            // The Tester cannot achieve the rate; a repeat would not help.
            true => 0,
            // A momentary stall, independent of the rate.
            false => search::INVALID_REPEATS,
        },
        Some(TesterFault::Interrupted) => 0,
        _ => INVALID_REPEATS,
    }
}

/// Returns whether the rate was too high for the Tester.
fn is_refused(outcome: &Outcome) -> bool {
    *outcome != Outcome::Passed && Meaning::of(outcome, None) == Meaning::Nothing
}

/// 2(1 + delta) with delta = 0.1, the minimum of RFC 8219 section 9.2.1, as a fraction.
const SHARE: (u128, u128) = (11, 5);

/// Delta of [`self_test_rate`].
pub const DELTA: f64 = 0.1;

/// Repeats of an invalid trial of a self-test. Fewer than in a search of a DUT: a rate at which the Tester loses
/// datagrams twice should not be certified.
const INVALID_REPEATS: u32 = 1;

/// Steps by which a rate that does not pass is lowered, in per cent of the previous one.
pub const LOWERED_BY_PCT: [u64; 4] = [10, 20, 40, 80];

#[cfg(test)]
mod tests;
