//! The search for the fastest rate that passes (RFC 8219 section 9.2).
//!
//! Galloping from the first rate finds a pass below and a fail above; strict bisection narrows the
//! two until they are within the resolution. Nothing is assumed about the DUT: both ends of the
//! answer have been seen, whatever the DUT does in between.
//!
//! The scripts of the papers bisect a fixed range instead, whose ends they do not try; that way of
//! searching is here for comparison.

use serde::{Deserialize, Serialize};

use super::{Event, Trials, observed};
pub use crate::quantity::{HIGHEST_RATE_QPS, Resolution};
use crate::trial::fault::TesterFault;
use crate::trial::result::{Outcome, TrialResult};

/// Runs `search` to its end.
///
/// # Errors
///
/// Whatever `trials` gives when it cannot run a trial; the observer has seen the trials before it.
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
        let result = observed(trials, search.rate(), number, observer)?;
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
        rate_qps: search.answer(),
        failed_qps: bracket.failed_qps,
        resolution_qps: bracket.resolution_qps,
        trials: done,
        certified_rate_qps: search.spec.ceiling_qps,
    })
}

/// What to search for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchSpec {
    /// Rate of the first trial; lowered to the lower of the two bounds below.
    pub start_qps: u64,
    /// How close the bounds of the answer must be.
    pub resolution: Resolution,
    /// The rate for which the Tester is certified: no trial goes beyond.
    pub ceiling_qps: Option<u64>,
    /// The highest rate that the user wants to be tried.
    pub max_qps: Option<u64>,
    /// The lowest rate at which a trial has a query: galloping goes no lower. At least 1.
    pub lowest_qps: u64,
    /// How often in a row a rate is tried again after an invalid trial.
    pub invalid_repeats: u32,
    /// First step of the galloping, in queries per second, when `start_qps` is known to be near;
    /// each further step is twice as wide. `None` to double or halve the rate.
    #[serde(default)]
    pub first_step_qps: Option<u64>,
    /// Instead of galloping, bisect the range from 0 to this rate (paper 002, figure 3). Its ends
    /// are assumed, not tried, and `start_qps` and `first_step_qps` are of no consequence.
    #[serde(default)]
    pub fixed_range_qps: Option<u64>,
}

impl SearchSpec {
    /// A search from `start_qps` with the default resolution and repeats, without bounds.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ended", rename_all = "snake_case")]
pub enum SearchEnd {
    /// A pass and a fail within the resolution: the pass is the answer.
    Found,
    /// The DUT passed at the highest rate for which the Tester is good: its own is higher.
    LimitedByTester {
        /// That rate; in a fixed range, one within the resolution of it.
        #[serde(rename = "limit_qps")]
        rate_qps: u64,
    },
    /// The DUT passed at the highest rate that was asked for: its own may be higher.
    LimitedByRequest {
        /// That rate; in a fixed range, one within the resolution of it.
        #[serde(rename = "limit_qps")]
        rate_qps: u64,
    },
    /// The DUT fails even at the lowest rate: 1 query per second, or 1 query per trial; in a fixed
    /// range, at the lowest rate that the resolution leads to.
    NothingPasses,
    /// One rate was invalid too often in a row: the Tester cannot go on.
    TesterFault(#[serde(with = "under_a_key")] TesterFault),
}

/// The fault beside the key `ended`.
mod under_a_key {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::trial::fault::TesterFault;

    #[derive(Serialize, Deserialize)]
    struct Form<F> {
        fault: F,
    }

    pub(super) fn serialize<S: Serializer>(fault: &TesterFault, to: S) -> Result<S::Ok, S::Error> {
        Form { fault }.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TesterFault, D::Error> {
        Ok(Form::deserialize(from)?.fault)
    }
}

/// What a search knows about the DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    /// The highest rate that passed below `failed_qps`.
    pub passed_qps: Option<u64>,
    /// The lowest rate that failed above `passed_qps`.
    pub failed_qps: Option<u64>,
    /// The distance of the two at which the search ends.
    pub resolution_qps: u64,
}

impl Bracket {
    /// How many more trials the bisection takes at most, if none is invalid; `None` while
    /// galloping, which has no bound of its own.
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

/// What a search found.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// How it ended.
    pub end: SearchEnd,
    /// The fastest rate that passed: the answer if `end` is [`SearchEnd::Found`], a lower bound of
    /// it at either limit, `None` otherwise.
    pub rate_qps: Option<u64>,
    /// The lowest rate that failed above the pass.
    pub failed_qps: Option<u64>,
    /// Resolution at the answer.
    pub resolution_qps: u64,
    /// All trials in order, the invalid ones too.
    pub trials: Vec<TrialResult>,
    /// The rate for which the Tester is certified.
    pub certified_rate_qps: Option<u64>,
}

/// A search under way: says which rate to try next and learns from the outcome.
#[derive(Clone, Debug)]
pub struct Search {
    spec: SearchSpec,
    passed_qps: Option<u64>,
    failed_qps: Option<u64>,
    invalid_in_row: u32,
    end: Option<SearchEnd>,
}

impl Search {
    /// A search that has tried nothing yet. Rates below 1 query per second count as 1.
    pub fn new(spec: SearchSpec) -> Self {
        Self {
            spec,
            passed_qps: None,
            failed_qps: None,
            invalid_in_row: 0,
            end: None,
        }
    }

    /// The highest rate that it may try, for which the Tester is certified; `None` without a certificate.
    pub fn ceiling_qps(&self) -> Option<u64> {
        self.spec.ceiling_qps
    }

    /// The rate to try next, `None` when the search is over. The same until an outcome is
    /// observed.
    pub fn next_rate(&self) -> Option<u64> {
        self.end.is_none().then(|| self.rate())
    }

    /// Takes in the outcome of a trial at [`next_rate`](Self::next_rate). After the end it changes
    /// nothing.
    pub fn observe(&mut self, outcome: &Outcome) {
        let Some(rate) = self.next_rate() else { return };
        match outcome {
            Outcome::Passed => self.passed_qps = Some(rate),
            Outcome::Failed { .. } => self.failed_qps = Some(rate),
            Outcome::Invalid(fault) => {
                if self.invalid_in_row == self.spec.invalid_repeats {
                    self.end = Some(SearchEnd::TesterFault(fault.clone()));
                }
                self.invalid_in_row += 1;
                return;
            }
        }
        self.invalid_in_row = 0;
        self.end = self.settled();
    }

    /// How the search ended, `None` while it goes on.
    pub fn finished(&self) -> Option<&SearchEnd> {
        self.end.as_ref()
    }

    /// The fastest rate that passed, once the search is over and unless the Tester broke.
    pub fn answer(&self) -> Option<u64> {
        match self.end {
            None | Some(SearchEnd::TesterFault(_)) => None,
            Some(_) => self.passed_qps,
        }
    }

    /// What is known so far.
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

    /// The next rate of galloping up. With a first step the rates are `start + (2^k - 1) * step`: as
    /// far again beyond the last rate as that is from the start, and one step more.
    fn above(&self, passed: u64) -> u64 {
        match self.spec.first_step_qps {
            None => passed.saturating_mul(2),
            Some(step) => passed
                .saturating_add(passed.saturating_sub(self.start_qps()))
                .saturating_add(step.max(1)),
        }
    }

    /// The next rate of galloping down, in the same steps as long as those are narrower than half
    /// of the rate.
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

    /// How close a rate must be to an end that was not tried to be taken for it.
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

/// Where to begin and how far to step first, when `previous` runs of the same point have found
/// these rates; `None` if there are none.
///
/// The start is below all of them and the first step leads above all of them, by half of their
/// spread each: rates that a DUT passes and fails nearly always, so that the bisection in between
/// is as free as one of the whole range. To begin at their median and step by their scatter would
/// take two trials less, but then each run stays where the ones before were: the runs are no longer
/// independent, scatter less than the DUT does, and the error of their median doubles (simulated in
/// the tests). RFC 8219 section 9.2 asks for repetitions.
///
/// Where the runs agree, the bracket is four resolutions wide. One run says nothing about the
/// scatter; an eighth of its rate to either side holds most of what paper 002, section 4.3, does not
/// call too scattered.
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

/// How often a rate is tried again after an invalid trial: stalls of a virtual machine come some
/// seconds apart, so four trials in a row that were hit are not chance.
pub const INVALID_REPEATS: u32 = 3;

#[cfg(test)]
mod tests;
