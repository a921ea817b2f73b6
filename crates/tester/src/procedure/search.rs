//! The search for the highest rate that passes (RFC 8219 section 9.2).
//!
//! Galloping from the first rate finds a pass below and a fail above; bisection then narrows the bracket to the
//! resolution. It assumes nothing about the DUT: both ends of the final bracket were measured, whatever the DUT does in
//! between.
//!
//! The scripts of the papers bisect a fixed range instead, whose ends they do not measure. That method is available for
//! comparison.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Event, Trials, observed};
pub use crate::quantity::{HIGHEST_RATE_QPS, Resolution};
use crate::trial::fault::TesterFault;
use crate::trial::result::{Outcome, TrialResult};

/// Runs `search` to its end.
///
/// # Errors
///
/// Errors of `trials` that prevent a trial from running; the observer has received the earlier trials.
pub fn run<T: Trials>(
    mut search: Search,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<SearchResult, T::Error> {
    let mut done = Vec::new();
    let end = loop {
        if let Some(end) = search.finished() {
            break end.clone();
        }
        let number = done.len() as u64 + 1;
        let result = match observed(trials, search.rate(), number, observer) {
            Ok(result) => result,
            Err(error) => match T::end(&error) {
                Some(fault) if fault == TesterFault::Interrupted || search.passed_qps.is_some() => {
                    break SearchEnd::TesterFault(fault);
                }
                _ => return Err(error),
            },
        };
        search.observe(&result.outcome);
        match &result.outcome {
            Outcome::Invalid(fault) if search.finished().is_none() => observer(&Event::Repeat {
                fault,
                attempt: search.invalid_in_row,
                of: search.spec.invalid_repeats,
            }),
            Outcome::Invalid(_) => {}
            Outcome::Passed | Outcome::Failed { .. } => {
                observer(&Event::Bracket(search.bracket()));
            }
        }
        done.push(result);
    };
    observer(&Event::Finished(&end));
    let bracket = search.bracket();
    Ok(SearchResult {
        end,
        rate_qps: bracket.passed_qps,
        failed_qps: bracket.failed_qps,
        resolution_qps: bracket.resolution_qps,
        trials: done,
        certified_rate_qps: search.spec.ceiling_qps,
    })
}

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
        }
    }

    fn limit_qps(&self) -> u64 {
        self.tester_limit_qps().min(self.wanted_limit_qps()).max(1)
    }

    fn wanted_limit_qps(&self) -> u64 {
        let max = self.max_qps.unwrap_or(u64::MAX);
        max.min(self.fixed_range_qps.unwrap_or(u64::MAX))
    }

    fn tester_limit_qps(&self) -> u64 {
        self.ceiling_qps.unwrap_or(HIGHEST_RATE_QPS)
    }
}

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
    /// One rate was invalid too often in a row, or the user interrupted the search: it was aborted there. A rate that passed before is a lower bound.
    TesterFault(
        #[serde(with = "under_a_key")]
        #[schemars(with = "under_a_key::Form<TesterFault>")]
        TesterFault,
    ),
}

impl SearchEnd {
    /// Whether the user interrupted it.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Self::TesterFault(TesterFault::Interrupted))
    }

    /// Whether the limit of the DUT is not lower than a rate that passed, but may be higher than the resolution says.
    pub fn is_lower_bound(&self) -> bool {
        match self {
            Self::LimitedByTester { .. } | Self::LimitedByRequest { .. } | Self::TesterFault(_) => {
                true
            }
            Self::Found | Self::NothingPasses => false,
        }
    }
}

/// Serialises the fault next to the key `ended`.
mod under_a_key {
    use schemars::JsonSchema;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::trial::fault::TesterFault;

    #[derive(JsonSchema, Serialize, Deserialize)]
    pub(super) struct Form<F> {
        fault: F,
    }

    pub(super) fn serialize<S: Serializer>(fault: &TesterFault, to: S) -> Result<S::Ok, S::Error> {
        Form { fault }.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TesterFault, D::Error> {
        Ok(Form::deserialize(from)?.fault)
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

/// Result of a search.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// How it ended.
    pub end: SearchEnd,
    /// Highest rate that passed, if any did: the result if `end` is [`SearchEnd::Found`], otherwise a lower bound.
    pub rate_qps: Option<u64>,
    /// Lowest rate that failed above the pass.
    pub failed_qps: Option<u64>,
    /// Resolution at the result.
    pub resolution_qps: u64,
    /// All trials in chronological order, including invalid ones.
    pub trials: Vec<TrialResult>,
    /// Rate for which the Tester is certified.
    pub certified_rate_qps: Option<u64>,
}

impl SearchResult {
    /// Whether a rate passed, and the limit of the DUT may be higher than the resolution says.
    pub fn is_lower_bound(&self) -> bool {
        self.rate_qps.is_some() && self.end.is_lower_bound()
    }
}

/// A search in progress: returns the next rate and takes its outcome.
#[derive(Clone, Debug)]
pub struct Search {
    spec: SearchSpec,
    passed_qps: Option<u64>,
    failed_qps: Option<u64>,
    invalid_in_row: u32,
    end: Option<SearchEnd>,
}

impl Search {
    /// Creates a search without trials. Rates below 1 query per second count as 1.
    pub fn new(spec: SearchSpec) -> Self {
        Self {
            spec,
            passed_qps: None,
            failed_qps: None,
            invalid_in_row: 0,
            end: None,
        }
    }

    /// Returns the certified rate, which no trial exceeds; `None` without a certificate.
    pub fn ceiling_qps(&self) -> Option<u64> {
        self.spec.ceiling_qps
    }

    /// Returns the next rate; `None` when the search is over. It does not change until an outcome is observed.
    pub fn next_rate(&self) -> Option<u64> {
        self.end.is_none().then(|| self.rate())
    }

    /// Records the outcome of a trial at [`next_rate`](Self::next_rate). Has no effect after the end.
    pub fn observe(&mut self, outcome: &Outcome) {
        let Some(rate) = self.next_rate() else { return };
        match outcome {
            Outcome::Passed => self.passed_qps = Some(rate),
            Outcome::Failed { .. } => self.failed_qps = Some(rate),
            Outcome::Invalid(fault) => {
                let is_over = self.invalid_in_row == self.spec.invalid_repeats;
                if is_over || outcome.is_interrupted() {
                    self.end = Some(SearchEnd::TesterFault(fault.clone()));
                }
                self.invalid_in_row += 1;
                return;
            }
        }
        self.invalid_in_row = 0;
        self.end = self.settled();
    }

    /// Returns how the search ended; `None` while it is in progress.
    pub fn finished(&self) -> Option<&SearchEnd> {
        self.end.as_ref()
    }

    /// Returns the highest rate that passed, if the search is over and need not be repeated because of a fault of the
    /// Tester.
    pub fn answer(&self) -> Option<u64> {
        match self.end {
            None | Some(SearchEnd::TesterFault(_)) => None,
            Some(_) => self.passed_qps,
        }
    }

    /// Returns the current bounds.
    pub fn bracket(&self) -> Bracket {
        Bracket {
            passed_qps: self.passed_qps,
            failed_qps: self.failed_qps,
            resolution_qps: self.spec.resolution.qps(self.passed_qps.unwrap_or(0)),
        }
    }

    fn rate(&self) -> u64 {
        let limit = self.spec.limit_qps();
        if self.spec.fixed_range_qps.is_some() {
            let lower = self.passed_qps.unwrap_or(0);
            let upper = self.failed_qps.unwrap_or(limit);
            let middle = lower + upper.saturating_sub(lower) / 2;
            return middle.max(self.spec.lowest_qps).clamp(1, limit);
        }
        match (self.passed_qps, self.failed_qps) {
            (None, None) => self.start_qps(),
            (Some(passed), None) => self.above(passed).min(limit),
            (None, Some(failed)) => self.below(failed).max(self.spec.lowest_qps),
            (Some(passed), Some(failed)) => passed + (failed - passed) / 2,
        }
    }

    fn start_qps(&self) -> u64 {
        self.spec.start_qps.clamp(1, self.spec.limit_qps())
    }

    /// Returns the next rate of galloping upwards. With a first step the rates are `start + (2^k - 1) * step`: the
    /// distance from the start doubles, plus one step.
    fn above(&self, passed: u64) -> u64 {
        match self.spec.first_step_qps {
            None => passed.saturating_mul(2),
            Some(step) => passed
                .saturating_add(passed.saturating_sub(self.start_qps()))
                .saturating_add(step.max(1)),
        }
    }

    /// Returns the next rate of galloping downwards, in the same steps while they are narrower than half of the rate.
    fn below(&self, failed: u64) -> u64 {
        let half = failed / 2;
        match self.spec.first_step_qps {
            None => half,
            Some(step) => failed
                .saturating_sub(self.start_qps().saturating_sub(failed))
                .saturating_sub(step.max(1))
                .max(half),
        }
    }

    fn settled(&self) -> Option<SearchEnd> {
        match (self.passed_qps, self.failed_qps) {
            (Some(passed), Some(failed)) => {
                (failed - passed <= self.spec.resolution.qps(passed)).then_some(SearchEnd::Found)
            }
            (Some(passed), None) => {
                let left = self.spec.limit_qps().saturating_sub(passed);
                (left <= self.assumed_within(passed)).then(|| self.limited(passed))
            }
            (None, Some(failed)) if failed <= self.spec.lowest_qps.max(self.assumed_within(0)) => {
                Some(SearchEnd::NothingPasses)
            }
            (None, Some(_) | None) => None,
        }
    }

    /// Returns the distance within which a rate counts as an end of the range that was not measured.
    fn assumed_within(&self, passed_qps: u64) -> u64 {
        match self.spec.fixed_range_qps {
            Some(_) => self.spec.resolution.qps(passed_qps),
            None => 0,
        }
    }

    fn limited(&self, rate_qps: u64) -> SearchEnd {
        if self.spec.wanted_limit_qps() <= self.spec.tester_limit_qps() {
            SearchEnd::LimitedByRequest { rate_qps }
        } else {
            SearchEnd::LimitedByTester { rate_qps }
        }
    }
}

/// Returns the start and the first step of a search, derived from the results of `previous` runs of the same point;
/// `None` without runs.
///
/// The start is below all results and the first step ends above all of them, each by half of their spread. A DUT nearly
/// always passes the one and fails the other, so the bisection in between is as unbiased as one of the whole range. A
/// start at the median with steps of the scatter would save two trials, but each run would stay near the earlier ones:
/// the runs would not be independent, would scatter less than the DUT does, and the error of their median would double
/// (simulated in the tests). RFC 8219 section 9.2 requires repetitions.
///
/// If the runs agree, the bracket is four resolutions wide. A single run has no scatter; an eighth of its rate on
/// either side covers most DUTs whose scatter Lencse and Bakai 2017, section 4.3, accept.
pub fn reuse(previous: &[u64], resolution: Resolution) -> Option<(u64, u64)> {
    let (least, most) = (*previous.iter().min()?, *previous.iter().max()?);
    let margin = match previous {
        [rate] => rate / 8,
        _ => (most - least) / 2,
    };
    let margin = margin.max(resolution.qps(most).saturating_mul(2));
    let start = least.saturating_sub(margin).max(1);
    Some((start, most.saturating_add(margin) - start))
}

/// Number of repeats after an invalid trial: stalls of a virtual machine are some seconds apart, so four disturbed
/// trials in a row are not chance.
pub const INVALID_REPEATS: u32 = 3;

#[cfg(test)]
mod tests;
