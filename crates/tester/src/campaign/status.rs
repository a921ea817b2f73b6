//! Where a campaign stands, for whoever watches it.
//!
//! A [`Status`] follows from the news of the journal's lines and from the events between them, so
//! that reading a journal again gives the picture of the process that wrote it.

use std::sync::Arc;

use dns64_transport::clock::Nanos;
use serde::Serialize;

use super::history::News;
use super::plan::Plan;
use super::state::State;
use super::tasks::Task;
use crate::procedure::Event;
use crate::procedure::search::SearchEnd;
use crate::quantity::Thousands;
use crate::statistics::quantile::median;
use crate::trial::result::{Outcome, TrialResult};

/// A picture of the campaign between two records. All moments are by the real-time clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Name of the plan.
    pub campaign: String,
    /// Directory of the journal.
    pub directory: String,
    /// Where the plan differs from what RFC 8219 asks.
    pub remarks: Vec<String>,
    /// When this process began.
    pub started_unix_ms: u64,
    /// What is being done.
    pub phase: Phase,
    /// The variant under way.
    pub variant: Option<String>,
    /// The cell under way, in words.
    pub cell: Option<String>,
    /// The run under way, and how many there are.
    pub run: Option<(u32, u32)>,
    /// The trial under way.
    pub trial: Option<TrialNow>,
    /// The last trials of the task under way, at most 16, in their order.
    pub tried: Vec<Tried>,
    /// Rates of the search under way: the highest that passed and the lowest that failed.
    pub passed_qps: Option<u64>,
    /// See `passed_qps`.
    pub failed_qps: Option<u64>,
    /// Rate for which the Tester is certified under the present conditions.
    pub certified_qps: Option<u64>,
    /// Tasks of the plan that are over and will not be done again.
    pub tasks_done: u64,
    /// Tasks of the plan.
    pub tasks: u64,
    /// Trials so far, those of earlier processes included.
    pub trials: u64,
    /// Of those, disturbed ones.
    pub invalid_trials: u64,
    /// Estimate of the time that is left.
    pub left_ns: Option<Nanos>,
    /// What was found so far, point by point, in the order in which the points were first done.
    pub found: Vec<Found>,
    /// The task that was over last.
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

/// What a campaign is busy with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Servers are being started, or rest.
    #[default]
    Preparing,
    /// The Tester is being certified.
    SelfTest,
    /// A search.
    Search,
    /// An overload curve.
    Overload,
    /// A soak.
    Soak,
    /// Over, or stopped.
    Over,
}

/// A trial under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TrialNow {
    /// Offered rate.
    pub rate_qps: u64,
    /// Its number in the task.
    pub number: u64,
    /// When it was called for.
    pub started_unix_ms: u64,
    /// Duration and timeout.
    pub length_ns: Nanos,
}

/// A trial that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// Its number in the task, from 1.
    pub number: u64,
    /// Offered rate.
    pub rate_qps: u64,
    /// "passed", "failed" or "invalid".
    pub outcome: &'static str,
}

/// How many trials of a task the status keeps: the page shows them without scrolling.
const TRIED_MAX: usize = 16;

/// Rates that the runs of one point found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Found {
    /// Name of the variant.
    pub variant: String,
    /// The cell, in words, with duration and timeout if they are not the plan's.
    pub cell: String,
    /// One rate for each finished run that has one.
    pub rates_qps: Vec<u64>,
    /// Their median; the mean of the middle two if their number is even.
    pub median_qps: f64,
}

/// A task that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Done {
    /// When its end was written down.
    pub at_unix_ms: u64,
    /// Name of the variant.
    pub variant: String,
    /// The cell, in words.
    pub cell: String,
    /// "run 3 of 20", "overload curve" or "soak".
    pub task: String,
    /// The rate that was found, if it was looked for and found.
    pub rate_qps: Option<u64>,
    /// Why there is none, or what is to be known of it.
    pub remark: Option<String>,
    /// How long it took, if it was not given up.
    pub took_ns: Option<Nanos>,
}

impl Status {
    /// A campaign of `tasks` tasks before its first line. `names` are variant and cell of each
    /// point, in words, in the order of the points.
    pub fn new(plan: &Plan, names: Vec<(String, String)>, tasks: u64, directory: String) -> Self {
        Self {
            campaign: plan.name.clone(),
            directory,
            remarks: plan
                .remarks()
                .into_iter()
                .map(|remark| remark.text)
                .collect(),
            tasks,
            names: names.into(),
            runs: plan.search.runs,
            ..Self::default()
        }
    }

    /// Takes in the news of a line that was written at this moment.
    pub fn apply(&mut self, news: News<'_>, at_unix_ms: u64) {
        match news {
            News::Campaign => {}
            News::Session => {
                self.started_unix_ms = at_unix_ms;
                self.enter(Phase::Preparing);
                self.message = None;
            }
            News::SelfTest(certified_rate_qps) => {
                self.enter(Phase::Preparing);
                self.certified_qps = certified_rate_qps;
                let certified =
                    |qps| format!("the Tester is certified for {} queries/s", Thousands(qps));
                let failed = || "the Tester failed its self-test".to_owned();
                self.message = Some(certified_rate_qps.map_or_else(failed, certified));
            }
            News::Variant(facts) => {
                let version = facts.version.as_deref().unwrap_or("a server");
                self.message = Some(format!("{version} answers at {}", facts.server));
            }
            News::Started(task) => self.start(task),
            News::Trial(task, result) => self.learn(task, result),
            News::Finished(finished) => self.finish(
                finished.task,
                Done {
                    took_ns: Some(finished.took_ns),
                    rate_qps: finished.rate_qps,
                    remark: finished.end.as_ref().and_then(remark),
                    ..self.done(finished.task, at_unix_ms)
                },
            ),
            News::Abandoned(task, reason) => {
                let given_up = format!("given up: {reason}");
                self.message = Some(given_up.clone());
                let done = Done {
                    remark: Some(given_up),
                    ..self.done(task, at_unix_ms)
                };
                self.finish(task, done);
            }
            News::Stopped(reason) => self.end(format!("stopped: {reason}")),
            News::Complete => self.end("all tasks of the plan are done".to_owned()),
        }
    }

    /// Takes in what the lines so far add up to, and the estimate of the time that is left.
    pub fn count(&mut self, state: &State, left_ns: Option<Nanos>) {
        self.tasks_done = state.tasks_over() as u64;
        self.trials = state.trials;
        self.invalid_trials = state.invalid_trials;
        self.left_ns = left_ns;
    }

    /// Takes in an event of the search or self-test under way, at this moment by the real-time
    /// clock; its trials and their last answers take `length_ns`.
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

    /// Something else begins: no trial is under way or over, and there is no bracket.
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
        let (phase, run) = match task {
            Task::Search { run, .. } => (Phase::Search, Some((run, self.runs))),
            Task::Overload { .. } => (Phase::Overload, None),
            Task::Soak { .. } => (Phase::Soak, None),
        };
        self.enter(phase);
        self.run = run;
        let (variant, cell) = self.name(task);
        (self.variant, self.cell) = (Some(variant), Some(cell));
    }

    /// A trial is over. The bracket is that of a search that goes by what it has seen last: in a
    /// journal that is read again, no event tells it.
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

    fn finish(&mut self, task: Task, done: Done) {
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
            let rates: Vec<_> = found.rates_qps.iter().map(|&rate| rate as f64).collect();
            found.median_qps = median(&rates).unwrap_or(0.0);
        }
        self.last = Some(done);
    }

    /// The end of a task of which nothing is known yet.
    fn done(&self, task: Task, at_unix_ms: u64) -> Done {
        let (variant, cell) = self.name(task);
        Done {
            at_unix_ms,
            variant,
            cell,
            task: match task {
                Task::Search { run, .. } => format!("run {run} of {}", self.runs),
                Task::Overload { .. } | Task::Soak { .. } => task.to_string(),
            },
            rate_qps: None,
            remark: None,
            took_ns: None,
        }
    }

    /// Variant and cell of a task; empty if the plan has no such point.
    fn name(&self, task: Task) -> (String, String) {
        self.names.get(task.point()).cloned().unwrap_or_default()
    }
}

/// What is to be known of the end of a search, if it did not just find a rate.
fn remark(end: &SearchEnd) -> Option<String> {
    let remark = match end {
        SearchEnd::Found => return None,
        SearchEnd::LimitedByTester { .. } => "at least: the Tester is not certified for more",
        SearchEnd::LimitedByRequest { .. } => "at least: it passed at the max-rate of the plan",
        SearchEnd::NothingPasses => "fails at every rate",
        SearchEnd::TesterFault(fault) => return Some(format!("no result: {fault}")),
    };
    Some(remark.to_owned())
}

#[cfg(test)]
mod tests;
