//! The self-test of the Tester (RFC 8219 section 9.2.1).
//!
//! The Measurer asks the authority itself, which answers every AAAA query. A Tester that does so at
//! 2(1 + delta)r within a quarter of the timeout is certified for a DUT at rate r: the DUT may send
//! two queries for each of its own, and half of the time is left to the DUT.

use dns64_transport::clock::Nanos;

use super::search::{self, Search, SearchEnd, SearchSpec};
use super::{Event, Trials, observed};
use crate::trial::fault::TesterFault;
use crate::trial::result::{Outcome, TrialResult};

/// Runs the self-test for a DUT at `rate_qps`: one trial at [`self_test_rate`], repeated while it is
/// disturbed.
///
/// # Errors
///
/// Whatever `trials` gives when it cannot run a trial.
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

/// Searches for the highest self-test rate that passes; `spec` is in self-test rates.
///
/// Here the Tester is what is tested: unlike in a search of a DUT, a rate that it cannot keep even
/// after the repeats has failed. The search only proposes a rate, which [`confirm`] then judges, so a
/// failure is tried once more: what hit the Tester for a moment must not hide what it can do.
///
/// # Errors
///
/// Whatever `trials` gives when it cannot run a trial.
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

/// Judges a rate that was proposed, or found before: a trial at its self-test rate must pass. While
/// it does not, the rate is lowered by [`LOWERED_BY_PCT`], each step twice as wide as the one
/// before, so that a machine that has become much slower is found out by five trials, and not
/// refused.
///
/// # Errors
///
/// Whatever `trials` gives when it cannot run a trial.
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

impl SelfTestResult {
    /// Of a self-test whose last trial, for a DUT at `rate_qps`, had this outcome.
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

    /// What it means for a certificate.
    pub fn meaning(&self) -> Meaning {
        Meaning::of(&self.end, self.certified_rate_qps)
    }
}

/// What a self-test means for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It counts with this rate.
    Rate(u64),
    /// No rate passed.
    Nothing,
    /// It was disturbed and says nothing.
    Disturbed,
}

impl Meaning {
    /// Of a self-test that ended so and certified this rate.
    pub fn of(end: &Outcome, certified_rate_qps: Option<u64>) -> Self {
        match (end, certified_rate_qps) {
            (_, Some(rate_qps)) => Self::Rate(rate_qps),
            (Outcome::Invalid(fault), None) if !is_of_capacity(fault) => Self::Disturbed,
            (_, None) => Self::Nothing,
        }
    }
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

/// How often a rate is tried again after this trial, if it is invalid.
fn repeats(trial: &TrialResult) -> u32 {
    match trial.outcome.fault() {
        Some(
            TesterFault::LateSchedule { .. }
            | TesterFault::RateError { .. }
            | TesterFault::CatchUpBurst { .. }
            | TesterFault::Disturbed { .. },
        ) => match trial.timing.is_behind() {
            // It does not keep the rate, and will not.
            true => 0,
            // It was stopped for a moment, at this rate as at any other.
            false => search::INVALID_REPEATS,
        },
        _ => INVALID_REPEATS,
    }
}

/// Whether a trial says that its rate was too much for the Tester.
fn is_refused(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Passed => false,
        Outcome::Failed { .. } => true,
        Outcome::Invalid(fault) => is_of_capacity(fault),
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
        | TesterFault::HostLate { .. }
        | TesterFault::HostClock { .. }
        | TesterFault::Link { .. } => false,
    }
}

/// 2(1 + delta) with delta = 0.1, the least that RFC 8219 section 9.2.1 allows, as a fraction.
const SHARE: (u128, u128) = (11, 5);

/// Delta of [`self_test_rate`].
pub const DELTA: f64 = 0.1;

/// Repeats of an invalid trial of a self-test. Fewer than in a search of a DUT: a rate at which the
/// Tester loses datagrams twice is better not certified.
const INVALID_REPEATS: u32 = 1;

/// By how much a rate that does not pass is lowered, step by step, in per cent of the one before.
pub const LOWERED_BY_PCT: [u64; 4] = [10, 20, 40, 80];

#[cfg(test)]
mod tests;
