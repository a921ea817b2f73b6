//! The status of a campaign for observers.
//!
//! A [`Status`] follows from the lines of the journal and from the events between them, so that reading a
//! journal again gives the status of the process that wrote it.

use std::sync::Arc;

use dns64_transport::clock::Nanos;
use schemars::JsonSchema;
use serde::Serialize;
use strum::VariantArray;

use super::plan::Plan;
use super::plan::tasks::{Task, point_name};
use super::record::{Line, Record};
use super::state::State;
use crate::procedure::Event;
use crate::procedure::search::SearchEnd;
use crate::quantity::Thousands;
use crate::statistics::quantile::median;
use crate::trial::result::{Outcome, TrialResult};

/// Status of the campaign between two records. All times are by the real-time clock.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct Status {
    /// Name of the plan.
    pub campaign: String,
    /// Directory of the journal.
    pub directory: String,
    /// Deviations of the plan from RFC 8219.
    pub remarks: Vec<String>,
    /// Start of this process.
    pub started_unix_ms: u64,
    /// The current activity.
    pub phase: Phase,
    /// The current variant.
    pub variant: Option<String>,
    /// The current cell, in words.
    pub cell: Option<String>,
    /// The current run, and the number of runs.
    pub run: Option<(u32, u32)>,
    /// The current trial.
    pub trial: Option<TrialNow>,
    /// The last trials of the current task in order, at most 16.
    pub tried: Vec<Tried>,
    /// Rates of the current search: the highest that passed and the lowest that failed.
    pub passed_qps: Option<u64>,
    /// See `passed_qps`.
    pub failed_qps: Option<u64>,
    /// Rate for which the Tester is certified under the present conditions.
    pub certified_qps: Option<u64>,
    /// Tasks of the plan that are finished and will not be repeated.
    pub tasks_done: u64,
    /// Tasks of the plan.
    pub tasks: u64,
    /// Trials so far, including those of earlier processes.
    pub trials: u64,
    /// Disturbed ones among them.
    pub invalid_trials: u64,
    /// Estimated remaining time.
    pub left_ns: Option<Nanos>,
    /// Results so far, by point, in the order in which the points were first measured.
    pub found: Vec<Found>,
    /// The task that finished last.
    pub last: Option<Done>,
    /// The last remark or fault.
    pub message: Option<String>,
    /// Variant and cell of each point of the plan, in words.
    #[serde(skip)]
    pub names: Arc<[(String, String)]>,
    /// Searches of each point.
    #[serde(skip)]
    pub runs: u32,
}

/// Activity of a campaign.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, VariantArray, JsonSchema, Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Servers start or rest.
    #[default]
    Preparing,
    /// The Tester is being certified.
    SelfTest,
    /// A search.
    Search,
    /// A search for goals.
    Goals,
    /// An overload curve.
    Overload,
    /// A soak.
    Soak,
    /// Finished or stopped.
    Over,
}

impl From<Task> for Phase {
    fn from(task: Task) -> Self {
        match task {
            Task::Search { .. } => Self::Search,
            Task::Goals { .. } => Self::Goals,
            Task::Overload { .. } => Self::Overload,
            Task::Soak { .. } => Self::Soak,
        }
    }
}

/// The current trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct TrialNow {
    /// Offered rate.
    pub rate_qps: u64,
    /// Its number in the task.
    pub number: u64,
    /// Time of its request.
    pub started_unix_ms: u64,
    /// Duration and timeout.
    pub length_ns: Nanos,
}

/// A finished trial.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Tried {
    /// Its number in the task, from 1.
    pub number: u64,
    /// Offered rate.
    pub rate_qps: u64,
    /// "passed", "failed" or "invalid".
    pub outcome: &'static str,
}

/// Number of trials of a task that the status keeps: as many as the page shows without scrolling.
const TRIED_MAX: usize = 16;

/// Rates that the runs of one point found.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct Found {
    /// Name of the variant.
    pub variant: String,
    /// The cell, in words, with duration and timeout if they are not the plan's.
    pub cell: String,
    /// One rate for each finished run with a result.
    pub rates_qps: Vec<u64>,
    /// Their median; the mean of the middle two if their number is even.
    pub median_qps: f64,
    /// Whether a run ended at a limit, so that the true median may be higher.
    pub lower_bound: bool,
}

/// A finished task.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Done {
    /// Time at which its end was recorded.
    pub at_unix_ms: u64,
    /// Name of the variant.
    pub variant: String,
    /// The cell, in words.
    pub cell: String,
    /// "run 3 of 20", "overload curve" or "soak".
    pub task: String,
    /// The rate, if it is a search that found one.
    pub rate_qps: Option<u64>,
    /// Why there is none, or a remark on it.
    pub remark: Option<String>,
    /// Duration, if it was not abandoned.
    pub took_ns: Option<Nanos>,
}

impl Status {
    /// Creates the status of a campaign before its first line.
    pub fn new(plan: &Plan, directory: String) -> Self {
        let names = plan.points.iter().map(|point| point_name(plan, point));
        Self {
            campaign: plan.name.clone(),
            directory,
            remarks: plan
                .remarks()
                .into_iter()
                .map(|remark| remark.text)
                .collect(),
            tasks: plan.tasks.len() as u64,
            names: names.collect(),
            runs: plan.search.runs,
            ..Self::default()
        }
    }

    /// Applies the next line.
    pub fn apply(&mut self, line: &Line) {
        let at_unix_ms = line.at_unix_ms;
        match &line.record {
            Record::Campaign { .. } => {}
            Record::Session { .. } => {
                self.started_unix_ms = at_unix_ms;
                self.enter(Phase::Preparing);
                self.message = None;
            }
            Record::SelfTest(test) => {
                self.enter(Phase::Preparing);
                self.certified_qps = test.certified_rate_qps;
                let certified =
                    |qps| format!("the Tester is certified for {} queries/s", Thousands(qps));
                let failed = || "the Tester failed its self-test".to_owned();
                self.message = Some(self.certified_qps.map_or_else(failed, certified));
            }
            Record::Variant { facts, .. } => {
                let version = facts.program.version.as_deref().unwrap_or("a server");
                self.message = Some(format!("{version} answers at {}", facts.server));
            }
            Record::Started { task, .. } => self.start(*task),
            Record::Trial { task, result, .. } => self.learn(*task, result),
            Record::Finished(finished) => self.finish(
                finished.task,
                finished.end.as_ref().is_some_and(SearchEnd::is_lower_bound),
                Done {
                    took_ns: Some(finished.took_ns),
                    rate_qps: finished.rate_qps,
                    remark: finished.end.as_ref().and_then(remark),
                    ..self.done(finished.task, at_unix_ms)
                },
            ),
            Record::Abandoned { task, reason } => {
                let given_up = format!("given up: {reason}");
                self.message = Some(given_up.clone());
                let done = Done {
                    remark: Some(given_up),
                    ..self.done(*task, at_unix_ms)
                };
                self.finish(*task, false, done);
            }
            Record::Stopped { reason } => self.end(format!("stopped: {reason}")),
            Record::Complete => self.end("all tasks of the plan are done".to_owned()),
        }
    }

    /// Updates the totals of the lines so far and the estimate of the remaining time.
    pub fn count(&mut self, state: &State, left_ns: Option<Nanos>) {
        self.tasks_done = state.tasks_over() as u64;
        self.trials = state.trials;
        self.invalid_trials = state.invalid_trials;
        self.left_ns = left_ns;
    }

    /// Applies an event of the current search or self-test, at this time by the real-time clock. A trial with its last
    /// responses takes `length_ns`.
    pub fn observe(&mut self, event: &Event<'_>, now_unix_ms: u64, length_ns: Nanos) {
        match event {
            Event::TrialStarted { rate_qps, number } => {
                self.trial = Some(TrialNow {
                    rate_qps: *rate_qps,
                    number: *number,
                    started_unix_ms: now_unix_ms,
                    length_ns,
                });
            }
            Event::TrialFinished(_) => self.trial = None,
            Event::Bracket(bracket) => {
                self.passed_qps = bracket.passed_qps;
                self.failed_qps = bracket.failed_qps;
            }
            Event::Repeat { fault, attempt, of } => {
                self.message = Some(format!("repeat {attempt} of {of}: {fault}"));
            }
            Event::Finished(_) => {}
        }
    }

    /// Begins another activity: clears the current trial, the finished trials and the bracket.
    pub fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.trial = None;
        self.tried.clear();
        self.passed_qps = None;
        self.failed_qps = None;
    }

    fn end(&mut self, message: String) {
        self.enter(Phase::Over);
        self.message = Some(message);
    }

    fn start(&mut self, task: Task) {
        self.enter(task.into());
        self.run = task.run().map(|run| (run, self.runs));
        let (variant, cell) = self.name(task);
        (self.variant, self.cell) = (Some(variant), Some(cell));
    }

    /// Applies a finished trial. The bracket follows the latest outcomes, as in a search: a journal that is read again
    /// has no events.
    fn learn(&mut self, task: Task, result: &TrialResult) {
        self.trial = None;
        let rate_qps = result.rate_qps;
        self.remember(result);
        match &result.outcome {
            Outcome::Invalid(fault) => self.message = Some(fault.to_string()),
            _ if !matches!(task, Task::Search { .. }) => {}
            Outcome::Passed => {
                self.passed_qps = self.passed_qps.max(Some(rate_qps));
                self.failed_qps = self.failed_qps.filter(|failed| *failed > rate_qps);
            }
            Outcome::Failed { .. } => {
                let failed_qps = self.failed_qps.unwrap_or(rate_qps).min(rate_qps);
                self.failed_qps = Some(failed_qps);
                self.passed_qps = self.passed_qps.filter(|passed| *passed < rate_qps);
            }
        }
    }

    fn remember(&mut self, result: &TrialResult) {
        if self.tried.len() == TRIED_MAX {
            self.tried.remove(0);
        }
        self.tried.push(Tried {
            number: self.tried.last().map_or(0, |tried| tried.number) + 1,
            rate_qps: result.rate_qps,
            outcome: result.outcome.word(),
        });
    }

    fn finish(&mut self, task: Task, is_limited: bool, done: Done) {
        self.trial = None;
        if let (Task::Search { .. }, Some(rate_qps)) = (task, done.rate_qps) {
            let same = |f: &Found| f.variant == done.variant && f.cell == done.cell;
            let known = self.found.iter().position(same);
            let place = known.unwrap_or(self.found.len());
            if known.is_none() {
                self.found.push(Found {
                    variant: done.variant.clone(),
                    cell: done.cell.clone(),
                    ..Found::default()
                });
            }
            let found = &mut self.found[place];
            found.rates_qps.push(rate_qps);
            found.lower_bound |= is_limited;
            let rates: Vec<_> = found.rates_qps.iter().map(|&rate| rate as f64).collect();
            found.median_qps = median(&rates).unwrap_or(0.0);
        }
        self.last = Some(done);
    }

    /// The end of a task, without details yet.
    fn done(&self, task: Task, at_unix_ms: u64) -> Done {
        let (variant, cell) = self.name(task);
        Done {
            at_unix_ms,
            variant,
            cell,
            task: match task.run() {
                Some(_) => format!("{task} of {}", self.runs),
                None => task.to_string(),
            },
            rate_qps: None,
            remark: None,
            took_ns: None,
        }
    }

    /// Variant and cell of a task; empty if the plan does not have the point.
    fn name(&self, task: Task) -> (String, String) {
        self.names.get(task.point()).cloned().unwrap_or_default()
    }
}

/// Remark on the end of a search, unless it simply found a rate.
fn remark(end: &SearchEnd) -> Option<String> {
    let remark = match end {
        SearchEnd::Found => return None,
        SearchEnd::LimitedByTester { .. } => "at least: the Tester is not certified for more",
        SearchEnd::LimitedByRequest { .. } => "at least: it passed at the max-rate of the plan",
        SearchEnd::NothingPasses => "fails at every rate",
        SearchEnd::TooWide { .. } => "the interval is too wide",
        SearchEnd::TesterFault { fault } => return Some(format!("disturbed: {fault}")),
    };
    Some(remark.to_owned())
}

#[cfg(test)]
mod tests;
