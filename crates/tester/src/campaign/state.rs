//! Where a campaign stands: what its journal adds up to.
//!
//! A process that goes on takes in the lines of the ones before it, and then its own as it writes
//! them, by the same function; so it does what the first one would have done.

use std::collections::BTreeMap;

use dns64_transport::clock::Nanos;

use super::plan::Plan;
use super::record::{CertificateConditions, Line, Record};
use super::tasks::{Task, points};
use crate::procedure::search::{INVALID_REPEATS, Search, SearchEnd, SearchSpec};
use crate::statistics::summary::median;
use crate::trial::result::{Outcome, TrialResult};

/// What the lines so far add up to.
#[derive(Clone, Debug)]
pub struct State {
    /// The variant of each point.
    variant_of: Vec<usize>,
    over: BTreeMap<Task, Over>,
    under_way: Option<UnderWay>,
    /// By point and run.
    rates_qps: BTreeMap<usize, BTreeMap<u32, u64>>,
    certificates: Vec<(CertificateConditions, Option<u64>)>,
    trials: u64,
    invalid_trials: u64,
    /// Of searches, overload curves and soaks.
    spent: [Spent; 3],
    /// By variant.
    abandoned_in_row: BTreeMap<usize, u32>,
    is_complete: bool,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// With this rate, if it was looked for and found.
    Finished {
        /// The fastest that passed.
        rate_qps: Option<u64>,
    },
    /// The Tester was disturbed until the search gave up, so many times in all.
    Disturbed {
        /// Searches of this task that ended so.
        times: u32,
    },
    /// It was given up.
    Abandoned,
}

/// A run in which the Tester was disturbed is done again when everything else is done, until there
/// were this many attempts: what disturbs a machine passes, and a run that is missing shows in every
/// figure of its point.
const ATTEMPTS_MAX: u32 = 3;

/// A task between its beginning and its end.
#[derive(Clone, Debug)]
pub struct UnderWay {
    /// Which.
    pub task: Task,
    /// The search, which has learnt from the trials so far; `None` for other tasks. It may be at its
    /// end.
    pub search: Option<Search>,
    /// The rate that overload and soak are relative to.
    pub base_rate_qps: Option<u64>,
    /// Trials so far, invalid ones too: the next has this number and one.
    pub trials: u64,
    /// Factors of the overload curve or segments of the soak that need no trial any more. An invalid
    /// trial of a factor is repeated up to [`INVALID_REPEATS`] times; a segment is not, since its
    /// load has been on the DUT.
    pub steps: usize,
    /// Invalid trials since the last valid one or the last step.
    pub invalid_in_row: u32,
    /// What its trials took, rests and starts included, interruptions not.
    pub took_ns: Nanos,
}

/// How long finished tasks took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// How many.
    pub tasks: u64,
    /// In all.
    pub total_ns: Nanos,
}

impl State {
    /// The state of a campaign by this plan of which nothing has been done.
    pub fn new(plan: &Plan) -> Self {
        Self {
            variant_of: points(plan).iter().map(|point| point.variant).collect(),
            over: BTreeMap::new(),
            under_way: None,
            rates_qps: BTreeMap::new(),
            certificates: Vec::new(),
            trials: 0,
            invalid_trials: 0,
            spent: [Spent::default(); 3],
            abandoned_in_row: BTreeMap::new(),
            is_complete: false,
        }
    }

    /// Takes in the next line.
    ///
    /// A trial that is not the one which its search asks for, as one of another version of the
    /// program may be, teaches the search nothing: the task has to begin anew.
    pub fn apply(&mut self, line: &Line) {
        match &line.record {
            Record::Campaign { .. }
            | Record::Session { .. }
            | Record::Variant { .. }
            | Record::Stopped { .. } => {}
            Record::SelfTest {
                conditions,
                certified_rate_qps,
                ..
            } => self
                .certificates
                .push((conditions.clone(), *certified_rate_qps)),
            Record::Started {
                task,
                search,
                base_rate_qps,
            } => self.under_way = Some(UnderWay::new(*task, search.clone(), *base_rate_qps)),
            Record::Trial {
                task,
                took_ns,
                result,
                ..
            } => self.count(*task, *took_ns, result),
            Record::Finished {
                task,
                end,
                rate_qps,
                took_ns,
                ..
            } => self.finish(*task, end.as_ref(), *rate_qps, *took_ns),
            Record::Abandoned { task, .. } => {
                *self
                    .abandoned_in_row
                    .entry(self.variant(*task))
                    .or_default() += 1;
                self.end(*task, Over::Abandoned);
            }
            Record::Complete => self.is_complete = true,
        }
    }

    /// What to do next: the task under way, or else the first of `tasks` that is not over, or else
    /// the first search that was disturbed and may be done again.
    pub fn next_task(&self, tasks: &[Task]) -> Option<Task> {
        if let Some(under_way) = &self.under_way {
            return Some(under_way.task);
        }
        let open = |task: &&Task| !self.over.contains_key(*task);
        let again = |task: &&Task| matches!(self.over.get(*task), Some(Over::Disturbed { times }) if *times < ATTEMPTS_MAX);
        let first = tasks.iter().find(open);
        first.or_else(|| tasks.iter().find(again)).copied()
    }

    /// The task that has begun and is not over.
    pub fn under_way(&self) -> Option<&UnderWay> {
        self.under_way.as_ref()
    }

    /// How a task ended; `None` while it is not over.
    pub fn over(&self, task: Task) -> Option<Over> {
        self.over.get(&task).copied()
    }

    /// How many tasks are over.
    pub fn tasks_over(&self) -> usize {
        self.over.len()
    }

    /// The rates that the finished runs of a point have found, in the order of the runs.
    pub fn rates_qps(&self, point: usize) -> Vec<u64> {
        let runs = self.rates_qps.get(&point);
        runs.map_or_else(Vec::new, |runs| runs.values().copied().collect())
    }

    /// Their median, rounded down: what overload and soak are relative to.
    pub fn median_rate_qps(&self, point: usize) -> Option<u64> {
        #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52")]
        let rates: Vec<f64> = self.rates_qps(point).iter().map(|&r| r as f64).collect();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a median of rates is one"
        )]
        median(&rates).map(|rate| rate as u64)
    }

    /// The highest rate for which a self-test under exactly these conditions has certified the
    /// Tester, and how many self-tests there were; `None` if there was none, or if all failed.
    pub fn certificate(&self, conditions: &CertificateConditions) -> (Option<u64>, usize) {
        let equal = self.certificates.iter().filter(|(c, _)| c == conditions);
        let rates: Vec<Option<u64>> = equal.map(|(_, rate_qps)| *rate_qps).collect();
        (rates.iter().copied().flatten().max(), rates.len())
    }

    /// All trials of tasks, invalid ones too; those of self-tests are not.
    pub fn trials(&self) -> u64 {
        self.trials
    }

    /// Those of them that were disturbed.
    pub fn invalid_trials(&self) -> u64 {
        self.invalid_trials
    }

    /// How long the finished tasks of the kind of this one took.
    pub fn spent(&self, like: Task) -> Spent {
        self.spent[kind(like)]
    }

    /// How many tasks of a variant were given up since one of it was finished.
    pub fn abandoned_in_row(&self, variant: usize) -> u32 {
        self.abandoned_in_row.get(&variant).copied().unwrap_or(0)
    }

    /// Whether the journal says that everything was done.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn count(&mut self, task: Task, took_ns: Nanos, result: &TrialResult) {
        self.trials += 1;
        if let Outcome::Invalid(_) = result.outcome {
            self.invalid_trials += 1;
        }
        let under_way = self.under_way.take_if(|under_way| under_way.task == task);
        if let Some(mut under_way) = under_way
            && under_way.learn(took_ns, result)
        {
            self.under_way = Some(under_way);
        }
    }

    fn finish(
        &mut self,
        task: Task,
        end: Option<&SearchEnd>,
        rate_qps: Option<u64>,
        took_ns: Nanos,
    ) {
        if let (Task::Search { point, run }, Some(rate_qps)) = (task, rate_qps) {
            let runs = self.rates_qps.entry(point).or_default();
            runs.insert(run, rate_qps);
        }
        let spent = &mut self.spent[kind(task)];
        spent.tasks += 1;
        spent.total_ns += took_ns;
        self.abandoned_in_row.remove(&self.variant(task));
        let before = match self.over(task) {
            Some(Over::Disturbed { times }) => times,
            _ => 0,
        };
        let over = match end {
            Some(SearchEnd::TesterFault(_)) => Over::Disturbed { times: before + 1 },
            _ => Over::Finished { rate_qps },
        };
        self.end(task, over);
    }

    fn end(&mut self, task: Task, over: Over) {
        self.under_way.take_if(|under_way| under_way.task == task);
        self.over.insert(task, over);
    }

    /// A point that the plan does not have is of a variant that it does not have.
    fn variant(&self, task: Task) -> usize {
        let variant = self.variant_of.get(task.point());
        variant.copied().unwrap_or(usize::MAX)
    }
}

impl UnderWay {
    fn new(task: Task, search: Option<SearchSpec>, base_rate_qps: Option<u64>) -> Self {
        Self {
            task,
            search: search.map(Search::new),
            base_rate_qps,
            trials: 0,
            steps: 0,
            invalid_in_row: 0,
            took_ns: 0,
        }
    }

    /// Takes in a trial, or says that it is none of this search.
    fn learn(&mut self, took_ns: Nanos, result: &TrialResult) -> bool {
        if let Some(search) = &mut self.search {
            if search.next_rate() != Some(result.rate_qps) {
                return false;
            }
            search.observe(&result.outcome);
        }
        self.trials += 1;
        self.took_ns += took_ns;
        let invalid = matches!(result.outcome, Outcome::Invalid(_));
        let repeated = matches!(self.task, Task::Overload { .. });
        if invalid && repeated && self.invalid_in_row < INVALID_REPEATS {
            self.invalid_in_row += 1;
        } else {
            self.invalid_in_row = 0;
            self.steps += 1;
        }
        true
    }
}

fn kind(task: Task) -> usize {
    match task {
        Task::Search { .. } => 0,
        Task::Overload { .. } => 1,
        Task::Soak { .. } => 2,
    }
}

#[cfg(test)]
mod tests;
