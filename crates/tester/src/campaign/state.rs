//! The state of a campaign: its next step, from its history.

use dns64_transport::clock::Nanos;

use super::history::{Forgotten, History, SelfTestHistory};
use super::plan::tasks::Task;
use super::record::CertificateConditions;
use crate::procedure::certificate::counted;
use crate::procedure::search::SearchEnd;
use crate::procedure::selftest::Meaning;
use crate::statistics::quantile::median;

/// History of a campaign for its driver, without results of earlier trials.
pub type State = History<Forgotten>;

/// Maximum number of attempts for a run in which the Tester was disturbed. It is repeated when everything else is done:
/// disturbances pass, and a missing run affects every figure of its point.
const ATTEMPTS_MAX: u32 = 3;

/// How long a certificate is valid: half a day. The neighbours of a shared machine and the temperature differ between
/// day and night, so a certificate of the evening says little about the morning. A new one takes minutes, a hundredth
/// of that.
pub const CERTIFICATE_AGE_MAX_MS: u64 = 12 * 60 * 60 * 1000;

impl<R> History<R> {
    /// The next task: the one in progress, or else the first of the plan that is not finished, or else the first
    /// disturbed search that may be repeated.
    pub fn next_task(&self) -> Option<Task> {
        if let Some(under_way) = &self.under_way {
            return Some(under_way.task);
        }
        let mut first = |attempts| self.open_tasks(attempts).next();
        [1, ATTEMPTS_MAX].into_iter().find_map(&mut first)
    }

    /// Tasks of the plan that have to run, for the first time or again.
    pub fn left(&self) -> Vec<Task> {
        self.open_tasks(ATTEMPTS_MAX).collect()
    }

    fn open_tasks(&self, attempts: u32) -> impl Iterator<Item = Task> {
        let tasks = self.plan.tasks.iter().copied();
        tasks.filter(move |task| self.is_open(*task, attempts))
    }

    /// Whether a task has no result, was not abandoned, and was disturbed in fewer than `attempts` attempts.
    fn is_open(&self, task: Task, attempts: u32) -> bool {
        self.tasks.get(&task).is_none_or(|history| {
            let finished = history.finished.as_ref();
            let is_valid = finished.is_some_and(|finished| !finished.is_disturbed());
            history.abandoned.is_none() && !is_valid && history.disturbed < attempts
        })
    }

    /// Number of tasks that are finished and will not be repeated.
    pub fn tasks_over(&self) -> usize {
        let tasks = self.tasks.keys();
        tasks
            .filter(|task| !self.is_open(**task, ATTEMPTS_MAX))
            .count()
    }

    /// Finished tasks, and the time of each; without disturbed searches.
    pub fn done(&self) -> Vec<(Task, Nanos)> {
        let finished = self
            .tasks
            .values()
            .filter_map(|task| task.finished.as_ref());
        let valid = finished.filter(|finished| !finished.is_disturbed());
        valid.map(|end| (end.task, end.took_ns)).collect()
    }

    /// Rates that the finished runs of a point found, in the order of the runs.
    pub fn rates_qps(&self, point: usize) -> Vec<u64> {
        let search = |run| Task::Search { point, run };
        let runs = self.tasks.range(search(0)..=search(u32::MAX));
        runs.filter_map(|(_, run)| run.finished.as_ref()?.rate_qps)
            .collect()
    }

    /// Their median, rounded down: overload and soak are relative to it.
    pub fn median_rate_qps(&self, point: usize) -> Option<u64> {
        let rates: Vec<f64> = self.rates_qps(point).iter().map(|&r| r as f64).collect();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a median of rates is one"
        )]
        median(&rates).map(|rate| rate as u64)
    }

    /// The rates of the self-tests under exactly these conditions that [count](counted) at this time, by the real-time
    /// clock. Their [`Certificate`](crate::procedure::certificate::Certificate) is the capacity of the Tester.
    pub fn self_test_rates(
        &self,
        conditions: &CertificateConditions,
        now_unix_ms: u64,
    ) -> Vec<u64> {
        counted(self.young_self_tests(conditions, now_unix_ms))
    }

    /// The self-tests under exactly these conditions that have not expired at this time.
    pub(super) fn young_self_tests(
        &self,
        conditions: &CertificateConditions,
        now_unix_ms: u64,
    ) -> impl Iterator<Item = Meaning> {
        let young = move |test: &&SelfTestHistory| {
            now_unix_ms.saturating_sub(test.at_unix_ms) <= CERTIFICATE_AGE_MAX_MS
        };
        let tests = self.self_tests.iter().filter(young).map(|test| &test.test);
        let tests = tests.filter(|test| *test.conditions == *conditions);
        tests.map(|test| Meaning::of(&test.end, test.certified_rate_qps))
    }

    /// Number of self-tests that a task of a point needs if the plan has `planned`. Each search that ended at the limit
    /// of the Tester adds one, because the limit then is the result, up to twice the planned number.
    pub fn self_tests_wanted(&self, planned: usize, point: usize) -> usize {
        planned.saturating_add(self.at_the_limit(point).min(planned))
    }

    /// Number of finished searches of a point that ended at the limit of the Tester.
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
