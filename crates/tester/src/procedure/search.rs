//! The search for the highest rate that passes (RFC 8219 section 9.2).
//!
//! Galloping from the first rate finds a pass below and a fail above; bisection then narrows the bracket to the
//! resolution. It assumes nothing about the DUT: both ends of the final bracket were measured, whatever the DUT does in
//! between.
//!
//! The scripts of the papers bisect a fixed range instead, whose ends they do not measure. That method is available for
//! comparison. With goals a search finds the bounds of each of them instead, after RFC 9971.

mod goals;
mod spec;
mod stairs;

use dns64_transport::clock::Nanos;

use super::goal::Tried;
use super::{Event, Trials, observed};
use crate::load::pace::Schedule;
pub use crate::quantity::{HIGHEST_RATE_QPS, Resolution};
use crate::trial::fault::TesterFault;
use crate::trial::result::{Outcome, TrialResult};
pub use goals::GoalResult;
use goals::Loads;
pub use spec::{Bracket, INVALID_REPEATS, SearchEnd, SearchSpec};
use stairs::Stairs;

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
        let Some((rate_qps, duration_ns)) = search.next() else {
            break search.end.clone().unwrap_or(SearchEnd::NothingPasses);
        };
        if let Some(duration_ns) = duration_ns {
            trials.set_duration(duration_ns);
        }
        let number = done.len() as u64 + 1;
        let result = match observed(trials, rate_qps, number, observer) {
            Ok(result) => result,
            Err(error) => match T::end(&error) {
                Some(fault) if fault == TesterFault::Interrupted || search.has_pass() => {
                    break SearchEnd::TesterFault { fault };
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
        goals: search.goals(),
        trials: done,
        certified_rate_qps: search.spec.ceiling_qps,
    })
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
    /// Results of the goals, in their order; without any other result of this search.
    pub goals: Vec<GoalResult>,
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
    /// What goals are judged by.
    loads: Loads,
    /// The search for the interval, if that is the first goal.
    stairs: Option<Stairs>,
    invalid_in_row: u32,
    /// Whether a trial at low load has failed.
    lost_at_low_load: bool,
    end: Option<SearchEnd>,
}

impl Search {
    /// Creates a search without trials. Rates below 1 query per second count as 1.
    pub fn new(spec: SearchSpec) -> Self {
        Self {
            stairs: Stairs::new(&spec),
            spec,
            passed_qps: None,
            failed_qps: None,
            loads: Loads::default(),
            invalid_in_row: 0,
            lost_at_low_load: false,
            end: None,
        }
    }

    /// Returns the certified rate, which no trial exceeds; `None` without a certificate.
    pub fn ceiling_qps(&self) -> Option<u64> {
        self.spec.ceiling_qps
    }

    /// Returns the rate of the next trial, and its duration if it has one of its own; `None` when the search is over. They do not
    /// change until an outcome is observed.
    pub fn next(&self) -> Option<(u64, Option<Nanos>)> {
        if self.end.is_some() {
            return None;
        }
        if self.spec.goals.is_empty() {
            return Some((self.spec.rate(&self.bracket()), None));
        }
        let climbed = self.stairs.as_ref().and_then(Stairs::next);
        let (rate_qps, duration_ns) = climbed.or_else(|| self.loads.next(&self.spec))?;
        Some((rate_qps, Some(duration_ns)))
    }

    /// Returns the rate of the next trial.
    pub fn next_rate(&self) -> Option<u64> {
        self.next().map(|(rate_qps, _)| rate_qps)
    }

    /// Records the outcome of the trial that is [`next`](Self::next). Has no effect after the end.
    pub fn observe(&mut self, outcome: &Outcome) {
        let Some((rate_qps, duration_ns)) = self.next() else {
            return;
        };
        if let Outcome::Invalid(fault) = outcome {
            let is_over = self.invalid_in_row == self.spec.invalid_repeats;
            if is_over || outcome.is_interrupted() {
                self.end = Some(SearchEnd::TesterFault {
                    fault: fault.clone(),
                });
            }
            self.invalid_in_row += 1;
            return;
        }
        self.invalid_in_row = 0;
        self.end = match duration_ns {
            Some(duration_ns) => {
                let queries = Schedule::new(rate_qps, duration_ns).queries().max(1);
                let trial = Tried {
                    duration_ns,
                    queries,
                    lost: outcome.shortfall().min(queries),
                };
                if let Some(stairs) = &mut self.stairs {
                    stairs.observe(&trial);
                }
                self.loads.add(rate_qps, trial);
                self.end_of_goals()
            }
            None => {
                let is_low_load = self.spec.low_load_qps == Some(rate_qps);
                match outcome {
                    Outcome::Passed => self.passed_qps = Some(rate_qps),
                    // Once may be chance.
                    _ if is_low_load && !self.lost_at_low_load => self.lost_at_low_load = true,
                    _ => self.failed_qps = Some(rate_qps),
                }
                self.spec.settled(&self.bracket())
            }
        };
    }

    /// Returns how the search ended; `None` while it is in progress.
    pub fn finished(&self) -> Option<&SearchEnd> {
        self.end.as_ref()
    }

    /// Returns the highest rate that passed, if the search is over and need not be repeated because of a fault of the
    /// Tester.
    pub fn answer(&self) -> Option<u64> {
        match self.end {
            None | Some(SearchEnd::TesterFault { .. }) => None,
            Some(_) => self.passed_qps,
        }
    }

    /// Returns the current bounds; none with goals.
    pub fn bracket(&self) -> Bracket {
        self.spec.bracket(self.passed_qps, self.failed_qps)
    }

    /// Returns the results of the goals so far, in their order.
    pub fn goals(&self) -> Vec<GoalResult> {
        let interval = self.stairs.as_ref().map(Stairs::result);
        let others = self.loads.results(&self.spec);
        interval.into_iter().chain(others).collect()
    }

    /// Returns how the search for goals ended: as that of the first without a regular result; `None` if a goal needs another trial.
    fn end_of_goals(&self) -> Option<SearchEnd> {
        if self.next().is_some() {
            return None;
        }
        let ends = self.goals().into_iter().filter_map(|goal| goal.end);
        let irregular = ends.into_iter().find(|end| *end != SearchEnd::Found);
        Some(irregular.unwrap_or(SearchEnd::Found))
    }

    /// Whether a rate passed, or is a lower bound of a goal.
    fn has_pass(&self) -> bool {
        self.passed_qps.is_some() || self.goals().iter().any(|goal| goal.lower_qps.is_some())
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

#[cfg(test)]
mod tests;
