//! The rates of a search with goals (RFC 9971): which trial is next, and the bounds of the goals.
//!
//! The goals are in focus one after the other, each first with its short trials if it has some. A goal begins where the one before
//! ended, gallops and bisects as a strict search does, and repeats a rate until that is classified. All trials count for all goals.

use std::collections::BTreeMap;

use dns64_transport::clock::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::goal::{Bound, Goal, Tried};
use super::spec::{Bracket, SearchEnd, SearchSpec};

/// Result of a goal (RFC 9971 section 4.8). It is regular if its end is [`SearchEnd::Found`].
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// How the search for it ended; nothing if it was cut off before.
    #[serde(flatten)]
    pub end: Option<SearchEnd>,
    /// Relevant lower bound, or lower end of the interval: the highest rate below the relevant upper bound that achieves the goal.
    pub lower_qps: Option<u64>,
    /// Relevant upper bound, or upper end of the interval: the lowest rate that misses the goal.
    pub upper_qps: Option<u64>,
    /// Conditional throughput at the relevant lower bound, rounded down, or the rate in the interval.
    pub throughput_qps: Option<u64>,
}

/// The valid trials of a search, by rate.
#[derive(Clone, Debug, Default)]
pub(super) struct Loads(BTreeMap<u64, Vec<Tried>>);

impl Loads {
    /// Adds a trial at this rate.
    pub(super) fn add(&mut self, rate_qps: u64, trial: Tried) {
        self.0.entry(rate_qps).or_default().push(trial);
    }

    /// Returns rate and duration of the next trial; `None` if every goal has its result.
    pub(super) fn next(&self, spec: &SearchSpec) -> Option<(u64, Nanos)> {
        let mut near_qps = None;
        let goals = spec.goals.iter().filter(|goal| !goal.is_interval);
        goals.flat_map(stages).find_map(|goal| {
            let spec = focused(spec, &goal, near_qps);
            let bracket = self.bracket(&spec, &goal);
            near_qps = bracket.passed_qps.or(bracket.failed_qps).or(near_qps);
            let is_settled = spec.settled(&bracket).is_some();
            (!is_settled).then(|| (rate(&spec, &bracket), goal.trial_ns))
        })
    }

    /// Returns the results of the goals so far, without that of an interval.
    pub(super) fn results(&self, spec: &SearchSpec) -> Vec<GoalResult> {
        let result = |goal: &Goal| {
            let spec = focused(spec, goal, None);
            let bracket = self.bracket(&spec, goal);
            let throughput_qps = |rate_qps| {
                let trials = self.0.get(&rate_qps)?;
                Some(goal.throughput_qps(rate_qps, trials))
            };
            GoalResult {
                goal: *goal,
                end: spec.settled(&bracket),
                lower_qps: bracket.passed_qps,
                upper_qps: bracket.failed_qps,
                throughput_qps: bracket.passed_qps.and_then(throughput_qps),
            }
        };
        let goals = spec.goals.iter().filter(|goal| !goal.is_interval);
        goals.map(result).collect()
    }

    /// Returns the relevant bounds of a goal (RFC 9971 sections 4.8.1 and 4.8.2).
    fn bracket(&self, spec: &SearchSpec, goal: &Goal) -> Bracket {
        let bounds = self.0.iter();
        let bounds = bounds.filter_map(|(rate, trials)| Some((*rate, goal.bound(trials)?)));
        let of = |wanted| bounds.clone().filter(move |(_, bound)| *bound == wanted);
        let upper = of(Bound::Upper).next().map(|(rate, _)| rate);
        let lower = of(Bound::Lower).map(|(rate, _)| rate);
        let lower = lower.take_while(|rate| upper.is_none_or(|upper| *rate < upper));
        spec.bracket(lower.last(), upper)
    }
}

/// The goal, after a coarse one of its shortest trials, one for each rate, if they are shorter than the others.
fn stages(goal: &Goal) -> impl Iterator<Item = Goal> {
    let coarse = Goal {
        trial_ns: goal.initial_ns,
        sum_ns: goal.initial_ns,
        ..*goal
    };
    let coarse = (goal.initial_ns < goal.trial_ns).then_some(coarse);
    coarse.into_iter().chain([*goal])
}

/// The search for one goal, from near the result of the goal before.
pub(super) fn focused(spec: &SearchSpec, goal: &Goal, near_qps: Option<u64>) -> SearchSpec {
    let step_qps = near_qps.map(|near_qps| goal.width.qps(near_qps));
    SearchSpec {
        start_qps: near_qps.unwrap_or(spec.start_qps),
        first_step_qps: step_qps.or(spec.first_step_qps),
        resolution: goal.width,
        fixed_range_qps: None,
        goals: Vec::new(),
        ..spec.clone()
    }
}

/// The first rate, where the trials of other goals have left only one bound, on this side of it; otherwise as a strict search.
fn rate(spec: &SearchSpec, bracket: &Bracket) -> u64 {
    let start_qps = spec.start_qps().max(spec.lowest_qps);
    let is_ahead = match (bracket.passed_qps, bracket.failed_qps) {
        (Some(passed), None) => passed < start_qps,
        (None, Some(failed)) => start_qps < failed,
        _ => false,
    };
    match is_ahead {
        true => start_qps,
        false => spec.rate(bracket),
    }
}
