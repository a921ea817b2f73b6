//! Combines several self-tests into one certificate: a low percentile of their rates.
//!
//! One self-test shows what the Tester achieved once; the best of several shows what it achieves undisturbed. A
//! certificate needs the rate that the Tester achieves nearly always: the 1st percentile (RFC 2330 section 11.3), which
//! is the lowest rate for up to 100 self-tests. More self-tests never raise it by chance.
//!
//! A self-test that was disturbed independently of the rate gives no result and is repeated, and so is one far below the
//! others before it counts. A self-test in which no
//! rate passed discards the earlier ones: the machine has changed, and only later self-tests count.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::selftest::{Meaning, SelfTestResult};
use crate::quantity::Thousands;
use crate::statistics::quantile::percentile;
use crate::trial::result::{Outcome, TrialResult};

/// Percentile of the self-tests that counts: RFC 8219 section 9.2 reports the 1st percentile for a DUT too.
const PERCENT: f64 = 1.0;

/// Maximum number of disturbed self-tests that are repeated: an authority that has exited or a clock that was set three
/// times will do so a fourth time.
pub const DISTURBED_MAX: usize = 2;

/// Certificate from several self-tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Certificate {
    /// Highest rate of a DUT for which it is valid.
    pub rate_qps: u64,
    /// Number of its self-tests.
    pub self_tests: usize,
    /// Lowest rate of a self-test.
    pub least_qps: u64,
    /// Highest rate of a self-test.
    pub most_qps: u64,
}

impl Certificate {
    /// Returns the certificate from self-tests with these rates; `None` without rates.
    pub fn of(rates_qps: &[u64]) -> Option<Self> {
        let rates: Vec<f64> = rates_qps.iter().map(|&rate| rate as f64).collect();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a percentile is one of the rates"
        )]
        let rate_qps = percentile(&rates, PERCENT)? as u64;
        Some(Self {
            rate_qps,
            self_tests: rates_qps.len(),
            least_qps: *rates_qps.iter().min()?,
            most_qps: *rates_qps.iter().max()?,
        })
    }
}

/// `75,000 queries/s: lowest of 3 self-tests, 75,000 to 82,000`
impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} queries/s: ", Thousands(self.rate_qps))?;
        let tests = Thousands(self.self_tests as u64);
        match (self.self_tests, self.rate_qps == self.least_qps) {
            (1, _) => return f.write_str("one self-test"),
            (_, true) if self.least_qps == self.most_qps => {
                return write!(f, "each of {tests} self-tests");
            }
            (_, true) => write!(f, "lowest of {tests} self-tests")?,
            (_, false) => write!(f, "1st percentile of {tests} self-tests")?,
        }
        let (least, most) = (Thousands(self.least_qps), Thousands(self.most_qps));
        write!(f, ", {least} to {most}")
    }
}

/// Returns the rates of the self-tests that count. The self-tests are in chronological order.
///
/// One that is far below those before it is repeated: it counts if the next one is low as well. If not, it was chance,
/// and every later one counts.
pub fn counted(self_tests: impl IntoIterator<Item = Meaning>) -> Vec<u64> {
    let mut rates_qps: Vec<u64> = Vec::new();
    let (mut unconfirmed, mut had_chance) = (None, false);
    for meaning in self_tests {
        let rate_qps = match meaning {
            Meaning::Rate(rate_qps) => rate_qps,
            Meaning::Nothing => {
                rates_qps.clear();
                (unconfirmed, had_chance) = (None, false);
                continue;
            }
            Meaning::Disturbed => continue,
        };
        let highest = rates_qps.iter().copied().max().unwrap_or(0);
        let is_low = u128::from(rate_qps) * 100 < u128::from(highest) * LOW_PCT;
        match unconfirmed.take() {
            None if is_low && !had_chance => {
                unconfirmed = Some(rate_qps);
                continue;
            }
            Some(low_qps) if is_low => rates_qps.push(low_qps),
            Some(_) => had_chance = true,
            None => {}
        }
        rates_qps.push(rate_qps);
    }
    rates_qps
}

/// A self-test below this share of the highest one before it, in per cent, is repeated: it lowered its rate more than
/// once ([`LOWERED_BY_PCT`](super::selftest::LOWERED_BY_PCT)).
const LOW_PCT: u128 = 80;

/// Consecutive self-tests, in chronological order.
#[derive(Clone, Debug)]
pub struct SelfTests {
    /// All self-tests, including disturbed ones. At least one.
    pub all: Vec<SelfTestResult>,
}

/// Runs self-tests until `wanted` of them (at least one) count, no rate passes in one, too many were disturbed, or the
/// user interrupts one.
/// `self_test` gets the rate that the first one certified as its starting point.
///
/// # Errors
///
/// Errors of `self_test`.
pub fn repeat<E>(
    wanted: usize,
    mut self_test: impl FnMut(Option<u64>) -> Result<SelfTestResult, E>,
) -> Result<SelfTests, E> {
    let mut all: Vec<SelfTestResult> = Vec::new();
    let mut disturbed = 0;
    loop {
        let rates_qps = counted(all.iter().map(SelfTestResult::meaning));
        if !all.is_empty() && rates_qps.len() >= wanted {
            break;
        }
        let result = self_test(rates_qps.first().copied())?;
        let meaning = result.meaning();
        let is_over = result.end.is_interrupted();
        all.push(result);
        disturbed += usize::from(meaning == Meaning::Disturbed);
        if is_over || meaning == Meaning::Nothing || disturbed > DISTURBED_MAX {
            break;
        }
    }
    Ok(SelfTests { all })
}

impl SelfTests {
    /// Returns their combined certificate; `None` if the last self-test certified nothing.
    pub fn certificate(&self) -> Option<Certificate> {
        self.last().certified_rate_qps?;
        Certificate::of(&counted(self.all.iter().map(SelfTestResult::meaning)))
    }

    /// Returns the outcome of the last self-test.
    pub fn end(&self) -> &Outcome {
        &self.last().end
    }

    /// Returns the DUT rate that they were run for; `None` if they searched for the highest.
    pub fn wanted_rate_qps(&self) -> Option<u64> {
        self.last().wanted_rate_qps
    }

    /// Returns the self-test rate that passed in all of them, if they certify one.
    pub fn passed_rate_qps(&self) -> Option<u64> {
        let certified = self.certificate()?.rate_qps;
        let of_it = |test: &&SelfTestResult| test.certified_rate_qps == Some(certified);
        self.all.iter().find(of_it)?.passed_rate_qps
    }

    /// Returns the trials of all self-tests.
    pub fn trials(&self) -> Vec<TrialResult> {
        let trials = self.all.iter().flat_map(|test| &test.trials);
        trials.cloned().collect()
    }

    fn last(&self) -> &SelfTestResult {
        self.all.last().expect("at least one")
    }
}

#[cfg(test)]
mod tests;
