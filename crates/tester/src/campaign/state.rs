//! Where a campaign stands: what its history says about the next step.

use dns64_transport::clock::Nanos;

use super::history::{Forgotten, History};
use super::record::CertificateConditions;
use super::tasks::Task;
use crate::statistics::quantile::median;

/// The history of a campaign for its driver, which needs no results of earlier trials.
pub type State = History<Forgotten>;

/// A run in which the Tester was disturbed is done again when everything else is done, until there
/// were this many attempts: what disturbs a machine passes, and a run that is missing shows in every
/// figure of its point.
const ATTEMPTS_MAX: u32 = 3;

impl<R> History<R> {
    /// What to do next: the task under way, or else the first of `tasks` that is not over, or else
    /// the first search that was disturbed and may be done again.
    pub fn next_task(&self, tasks: &[Task]) -> Option<Task> {
        if let Some(under_way) = &self.under_way {
            return Some(under_way.task);
        }
        let first = |attempts| tasks.iter().find(|task| self.is_open(**task, attempts));
        [1, ATTEMPTS_MAX].into_iter().find_map(first).copied()
    }

    /// Whether a task has yet to be done, for the first time or again.
    pub fn is_left(&self, task: Task) -> bool {
        self.is_open(task, ATTEMPTS_MAX)
    }

    /// Whether a task has neither a result nor been given up, and was disturbed in less than so many
    /// attempts.
    fn is_open(&self, task: Task, attempts: u32) -> bool {
        self.tasks.get(&task).is_none_or(|history| {
            let finished = history.finished.as_ref();
            let is_valid = finished.is_some_and(|finished| !finished.is_disturbed());
            history.abandoned.is_none() && !is_valid && history.disturbed < attempts
        })
    }

    /// How many tasks are over and will not be done again.
    pub fn tasks_over(&self) -> usize {
        let tasks = self.tasks.keys();
        tasks.filter(|task| !self.is_left(**task)).count()
    }

    /// Tasks with a result, and how long each took; searches that were disturbed have none.
    pub fn done(&self) -> Vec<(Task, Nanos)> {
        let finished = self
            .tasks
            .values()
            .filter_map(|task| task.finished.as_ref());
        let valid = finished.filter(|finished| !finished.is_disturbed());
        valid.map(|end| (end.task, end.took_ns)).collect()
    }

    /// The rates that the finished runs of a point have found, in the order of the runs.
    pub fn rates_qps(&self, point: usize) -> Vec<u64> {
        let search = |run| Task::Search { point, run };
        let runs = self.tasks.range(search(0)..=search(u32::MAX));
        runs.filter_map(|(_, run)| run.finished.as_ref()?.rate_qps)
            .collect()
    }

    /// Their median, rounded down: what overload and soak are relative to.
    pub fn median_rate_qps(&self, point: usize) -> Option<u64> {
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
        let tests = || {
            self.self_tests
                .iter()
                .filter(|test| test.conditions == *conditions)
        };
        let best = tests().filter_map(|test| test.certified_rate_qps).max();
        (best, tests().count())
    }
}

#[cfg(test)]
mod tests;
