//! Where a campaign stands: what its history says about the next step.

use dns64_transport::clock::Nanos;

use super::history::{Forgotten, History, SelfTestHistory};
use super::record::CertificateConditions;
use super::tasks::Task;
use crate::procedure::certificate::counted;
use crate::procedure::search::SearchEnd;
use crate::procedure::selftest::Meaning;
use crate::statistics::quantile::median;

/// The history of a campaign for its driver, which needs no results of earlier trials.
pub type State = History<Forgotten>;

/// A run in which the Tester was disturbed is done again when everything else is done, until there
/// were this many attempts: what disturbs a machine passes, and a run that is missing shows in every
/// figure of its point.
const ATTEMPTS_MAX: u32 = 3;

/// How long a certificate holds: half a day. The neighbours of a shared machine are not the same by
/// day and by night, and neither is the temperature, so a certificate of the evening says little about
/// the morning. A new one takes minutes, a hundredth of that.
pub const CERTIFICATE_AGE_MAX_MS: u64 = 12 * 60 * 60 * 1000;

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

    /// The rates of the self-tests under exactly these conditions that count at this moment, by the
    /// real-time clock: those that are young enough, were not disturbed, and came after the last in
    /// which no rate passed. Their [`Certificate`](crate::procedure::certificate::Certificate) is what
    /// the Tester is good for.
    pub fn self_test_rates(
        &self,
        conditions: &CertificateConditions,
        now_unix_ms: u64,
    ) -> Vec<u64> {
        let young = |test: &&SelfTestHistory| {
            now_unix_ms.saturating_sub(test.at_unix_ms) <= CERTIFICATE_AGE_MAX_MS
        };
        let tests = self.self_tests.iter().filter(young).map(|test| &test.test);
        counted(
            tests
                .filter(|test| *test.conditions == *conditions)
                .map(|test| Meaning::of(&test.end, test.certified_rate_qps)),
        )
    }

    /// How many self-tests a task of a point asks for where the plan wants `planned`. A search that ended at
    /// the limit of the Tester makes that a result: each has it tested once more, until there were twice
    /// as many.
    pub fn self_tests_wanted(&self, planned: usize, point: usize) -> usize {
        planned.saturating_add(self.at_the_limit(point).min(planned))
    }

    /// How many finished searches of a point have ended at the limit of the Tester.
    fn at_the_limit(&self, point: usize) -> usize {
        let search = |run| Task::Search { point, run };
        let runs = self.tasks.range(search(0)..=search(u32::MAX));
        let ends = runs.filter_map(|(_, run)| run.finished.as_ref()?.end.as_ref());
        ends.filter(|end| matches!(end, SearchEnd::LimitedByTester { .. }))
            .count()
    }
}

#[cfg(test)]
mod tests;
