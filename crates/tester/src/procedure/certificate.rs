//! What several self-tests certify together: a low percentile of what each of them found.
//!
//! One self-test tells what the Tester kept once, and the best of several what it keeps when nobody
//! disturbs it. A measurement is made when it is made, so what counts is the rate that the Tester
//! keeps nearly always: the 1st percentile (RFC 2330 section 11.3), which with up to 100 self-tests
//! is the lowest. More of them never raise it by luck.
//!
//! A self-test that was disturbed by what no rate changes says nothing and is made again. One in
//! which no rate passed ends what was certified before it: the machine is not the one that it was, and
//! only the self-tests after it count.

use std::fmt;

use serde::Serialize;

use super::selftest::{Meaning, SelfTestResult};
use crate::quantity::Thousands;
use crate::statistics::quantile::percentile;
use crate::trial::result::{Outcome, TrialResult};

/// Self-tests of a certificate, unless asked otherwise. Each after the first costs one whole trial.
/// Three passes in a row refuse a rate that fails in two trials of three with a certainty of 96 %
/// (1 - (1/3)^3).
pub const SELF_TESTS_DEFAULT: u16 = 3;

/// The percentile of the self-tests that counts: RFC 8219 section 9.2 reports a DUT with its 1st
/// percentile too.
const PERCENT: f64 = 1.0;

/// Disturbed self-tests that are made again: an authority that has ended, or a clock that was set,
/// for the third time will be so for the fourth.
pub const DISTURBED_MAX: usize = 2;

/// The certificate of several self-tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Certificate {
    /// For DUTs up to this rate.
    pub rate_qps: u64,
    /// Self-tests that it follows from.
    pub self_tests: usize,
    /// The lowest rate of one of them.
    pub least_qps: u64,
    /// The highest.
    pub most_qps: u64,
}

impl Certificate {
    /// What self-tests with these rates certify; `None` if there are none.
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

/// The rates of those that count, of self-tests in their order.
pub fn counted(self_tests: impl IntoIterator<Item = Meaning>) -> Vec<u64> {
    let mut rates_qps = Vec::new();
    for meaning in self_tests {
        match meaning {
            Meaning::Rate(rate_qps) => rates_qps.push(rate_qps),
            Meaning::Nothing => rates_qps.clear(),
            Meaning::Disturbed => {}
        }
    }
    rates_qps
}

/// Self-tests in a row, in their order.
#[derive(Clone, Debug)]
pub struct SelfTests {
    /// All of them, disturbed ones too. At least one.
    pub all: Vec<SelfTestResult>,
}

/// Runs self-tests until `wanted` of them, at least one, count, one has found that no rate passes,
/// or too many were disturbed. `self_test` gets the rate that the first of them has certified, to
/// begin there.
///
/// # Errors
///
/// Whatever `self_test` gives.
pub fn repeat<E>(
    wanted: usize,
    mut self_test: impl FnMut(Option<u64>) -> Result<SelfTestResult, E>,
) -> Result<SelfTests, E> {
    let mut all = Vec::new();
    let (mut near_qps, mut counted, mut disturbed) = (None, 0, 0);
    loop {
        let result = self_test(near_qps)?;
        let meaning = result.meaning();
        all.push(result);
        match meaning {
            Meaning::Rate(rate_qps) => {
                near_qps = near_qps.or(Some(rate_qps));
                counted += 1;
            }
            Meaning::Nothing => break,
            Meaning::Disturbed => disturbed += 1,
        }
        if counted >= wanted || disturbed > DISTURBED_MAX {
            break;
        }
    }
    Ok(SelfTests { all })
}

impl SelfTests {
    /// What they certify together; `None` if the last of them certified nothing.
    pub fn certificate(&self) -> Option<Certificate> {
        self.last().certified_rate_qps?;
        Certificate::of(&counted(self.all.iter().map(SelfTestResult::meaning)))
    }

    /// How they ended: as the last of them did.
    pub fn end(&self) -> &Outcome {
        &self.last().end
    }

    /// The rate of the DUT that they were for; `None` if they looked for the highest.
    pub fn wanted_rate_qps(&self) -> Option<u64> {
        self.last().wanted_rate_qps
    }

    /// The self-test rate that passed in all of them, if they certify one.
    pub fn passed_rate_qps(&self) -> Option<u64> {
        let certified = self.certificate()?.rate_qps;
        let of_it = |test: &&SelfTestResult| test.certified_rate_qps == Some(certified);
        self.all.iter().find(of_it)?.passed_rate_qps
    }

    /// All their trials.
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
