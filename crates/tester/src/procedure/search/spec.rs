//! What a search is asked for, which rate follows from its bounds, and how it ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::goal::Goal;
use crate::quantity::{HIGHEST_RATE_QPS, Resolution, Thousands};
use crate::trial::fault::TesterFault;

/// Parameters of a search.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SearchSpec {
    /// Rate of the first trial; limited to the lower of `ceiling_qps` and `max_qps`.
    pub start_qps: u64,
    /// Maximum distance of the bounds of the result.
    pub resolution: Resolution,
    /// Rate for which the Tester is certified: no trial exceeds it.
    pub ceiling_qps: Option<u64>,
    /// Highest rate to try, set by the user.
    pub max_qps: Option<u64>,
    /// Lowest rate at which a trial has a query; galloping does not go lower. At least 1.
    pub lowest_qps: u64,
    /// Maximum number of repeats of a rate after an invalid trial.
    pub invalid_repeats: u32,
    /// First step of galloping, in queries per second, if `start_qps` is known to be close; each further step is twice
    /// as wide. `None` doubles or halves the rate.
    pub first_step_qps: Option<u64>,
    /// Bisects the range from 0 to this rate instead of galloping (Lencse and Bakai 2017, figure 3). The ends are
    /// assumed, not measured; `start_qps` and `first_step_qps` have no effect.
    pub fixed_range_qps: Option<u64>,
    /// Rate of a trial before the others, at low load; its first failure counts for nothing, because it may be chance. Below `start_qps`;
    /// no effect with a fixed range or goals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_load_qps: Option<u64>,
    /// Searches for the bounds of these goals instead (RFC 9971); `resolution` and `fixed_range_qps` have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Goal>,
}

impl SearchSpec {
    /// Creates a search from `start_qps` with the default resolution and repeats, without bounds.
    pub fn from_start(start_qps: u64) -> Self {
        Self {
            start_qps,
            resolution: Resolution::default(),
            ceiling_qps: None,
            max_qps: None,
            lowest_qps: 1,
            invalid_repeats: INVALID_REPEATS,
            first_step_qps: None,
            fixed_range_qps: None,
            low_load_qps: None,
            goals: Vec::new(),
        }
    }

    /// Begins at low load, if its rates leave room for that: what loses there is slow, or not fit to be measured (Lungaroni et al. 2024).
    #[must_use]
    pub fn from_low_load(self) -> Self {
        let rate_qps = low_load_qps(self.start_qps).max(self.lowest_qps);
        let is_strict = self.fixed_range_qps.is_none() && self.goals.is_empty();
        Self {
            low_load_qps: (is_strict && rate_qps < self.start_qps()).then_some(rate_qps),
            ..self
        }
    }

    /// Returns why the Tester is not fit for this search: its self-tests fail where the search would have its trial at low load.
    pub fn unfit(&self) -> Option<String> {
        let low_qps = low_load_qps(self.start_qps);
        let certified_qps = self
            .ceiling_qps
            .filter(|&ceiling_qps| ceiling_qps < low_qps)?;
        Some(format!(
            "the self-test of the Tester failed at low load: it certifies only {} queries/s, below 5 % of the first rate, {}; \
             find the cause with `dns64bench doctor`, or lower the start rate",
            Thousands(certified_qps),
            Thousands(self.start_qps),
        ))
    }

    /// Returns the highest rate of its trials.
    pub(super) fn limit_qps(&self) -> u64 {
        self.tester_limit_qps().min(self.wanted_limit_qps()).max(1)
    }

    fn wanted_limit_qps(&self) -> u64 {
        let max = self.max_qps.unwrap_or(u64::MAX);
        max.min(self.fixed_range_qps.unwrap_or(u64::MAX))
    }

    fn tester_limit_qps(&self) -> u64 {
        self.ceiling_qps.unwrap_or(HIGHEST_RATE_QPS)
    }

    /// Returns the bracket of these bounds.
    pub(super) fn bracket(&self, passed_qps: Option<u64>, failed_qps: Option<u64>) -> Bracket {
        Bracket {
            passed_qps,
            failed_qps,
            resolution_qps: self.resolution.qps(passed_qps.unwrap_or(0)),
        }
    }

    /// Returns the rate of the next trial between these bounds.
    pub(super) fn rate(&self, bracket: &Bracket) -> u64 {
        let limit = self.limit_qps();
        if self.fixed_range_qps.is_some() {
            let lower = bracket.passed_qps.unwrap_or(0);
            let upper = bracket.failed_qps.unwrap_or(limit);
            let middle = lower + upper.saturating_sub(lower) / 2;
            return middle.max(self.lowest_qps).clamp(1, limit);
        }
        match (bracket.passed_qps, bracket.failed_qps) {
            (None, None) => self.low_load_qps.unwrap_or_else(|| self.start_qps()),
            (Some(passed), None) if passed < self.start_qps() => self.start_qps(),
            (Some(passed), None) => self.above(passed).min(limit),
            (None, Some(failed)) => self.below(failed).max(self.lowest_qps),
            (Some(passed), Some(failed)) => passed + (failed - passed) / 2,
        }
    }

    /// Returns the rate of the first trial.
    pub(super) fn start_qps(&self) -> u64 {
        self.start_qps.clamp(1, self.limit_qps())
    }

    /// Returns the next rate of galloping upwards. With a first step the rates are `start + (2^k - 1) * step`: the
    /// distance from the start doubles, plus one step.
    fn above(&self, passed: u64) -> u64 {
        match self.first_step_qps {
            None => passed.saturating_mul(2),
            Some(step) => passed
                .saturating_add(passed.saturating_sub(self.start_qps()))
                .saturating_add(step.max(1)),
        }
    }

    /// Returns the next rate of galloping downwards, in the same steps while they are narrower than half of the rate.
    fn below(&self, failed: u64) -> u64 {
        let half = failed / 2;
        match self.first_step_qps {
            None => half,
            Some(step) => failed
                .saturating_sub(self.start_qps().saturating_sub(failed))
                .saturating_sub(step.max(1))
                .max(half),
        }
    }

    /// Returns how a search with these bounds ends; `None` if it needs another trial.
    pub(super) fn settled(&self, bracket: &Bracket) -> Option<SearchEnd> {
        match (bracket.passed_qps, bracket.failed_qps) {
            (Some(passed), Some(failed)) => {
                (failed - passed <= bracket.resolution_qps).then_some(SearchEnd::Found)
            }
            (Some(passed), None) => {
                let left = self.limit_qps().saturating_sub(passed);
                (left <= self.assumed_within(bracket)).then(|| self.limited(passed))
            }
            (None, Some(failed)) if failed <= self.lowest_qps.max(self.assumed_within(bracket)) => {
                Some(SearchEnd::NothingPasses)
            }
            (None, Some(_) | None) => None,
        }
    }

    /// Returns the distance within which a rate counts as an end of the range that was not measured.
    fn assumed_within(&self, bracket: &Bracket) -> u64 {
        match self.fixed_range_qps {
            Some(_) => bracket.resolution_qps,
            None => 0,
        }
    }

    fn limited(&self, rate_qps: u64) -> SearchEnd {
        if self.wanted_limit_qps() <= self.tester_limit_qps() {
            SearchEnd::LimitedByRequest { rate_qps }
        } else {
            SearchEnd::LimitedByTester { rate_qps }
        }
    }
}

/// Current bounds of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    /// Highest rate that passed below `failed_qps`.
    pub passed_qps: Option<u64>,
    /// Lowest rate that failed above `passed_qps`.
    pub failed_qps: Option<u64>,
    /// Distance of the two at which the search ends.
    pub resolution_qps: u64,
}

impl Bracket {
    /// Returns the maximum number of remaining trials of the bisection, without repeats; `None` while galloping, which
    /// is unbounded.
    pub fn trials_left(&self) -> Option<u32> {
        let mut width = self.failed_qps?.checked_sub(self.passed_qps?)?;
        let mut trials = 0;
        while width > self.resolution_qps {
            width = width.div_ceil(2);
            trials += 1;
        }
        Some(trials)
    }
}

/// Returns the rate of a trial at low load: 5 % of a first estimate of the rate.
fn low_load_qps(estimate_qps: u64) -> u64 {
    (estimate_qps / 20).max(1)
}

/// Number of repeats after an invalid trial: stalls of a virtual machine are some seconds apart, so four disturbed
/// trials in a row are not chance.
pub const INVALID_REPEATS: u32 = 3;

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(tag = "ended", rename_all = "snake_case")]
pub enum SearchEnd {
    /// A pass and a fail within the resolution; the result is the rate that passed.
    Found,
    /// The DUT passed at the certified rate of the Tester: its limit is higher.
    LimitedByTester {
        /// The certified rate; with a fixed range, a rate within the resolution of it.
        #[serde(rename = "limit_qps")]
        rate_qps: u64,
    },
    /// The DUT passed at the highest requested rate: its limit may be higher.
    LimitedByRequest {
        /// The requested rate; with a fixed range, a rate within the resolution of it.
        #[serde(rename = "limit_qps")]
        rate_qps: u64,
    },
    /// The DUT failed even at the lowest rate: 1 query per second, or 1 query per trial; with a fixed range, the lowest
    /// rate of the bisection.
    NothingPasses,
    /// The trials that an interval goal allows have not made its interval narrow enough.
    TooWide {
        /// About how many trials would; nothing if no number is known to.
        trials: Option<u64>,
    },
    /// One rate was invalid too often in a row, or the user interrupted the search: it was aborted there. A rate that passed before is a lower bound.
    TesterFault {
        /// The fault of the last trial.
        fault: TesterFault,
    },
}

impl SearchEnd {
    /// Whether the user interrupted it.
    pub fn is_interrupted(&self) -> bool {
        matches!(
            self,
            Self::TesterFault {
                fault: TesterFault::Interrupted
            }
        )
    }

    /// Whether the limit of the DUT is not lower than a rate that passed, but may be higher than the resolution says.
    pub fn is_lower_bound(&self) -> bool {
        match self {
            Self::LimitedByTester { .. }
            | Self::LimitedByRequest { .. }
            | Self::TesterFault { .. } => true,
            Self::Found | Self::NothingPasses | Self::TooWide { .. } => false,
        }
    }
}
