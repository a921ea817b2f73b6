//! Runs a plan task by task and records the results.
//!
//! The driver knows neither sockets nor servers: a [`Bench`] runs the trials. All of its decisions follow from the plan
//! and the journal, so a resumed process continues as the earlier one would have.

use std::collections::BTreeMap;

use dns64_transport::clock::{Clock, Nanos};

use super::estimate::Estimator;
use super::facts::grave;
use super::journal::{Journal, unix_ms};
use super::plan::Plan;
use super::plan::tasks::{Point, Task, rates, search_spec};
use super::record::{CertificateConditions, Line, Record, SelfTest, Start, TaskEnd, VariantFacts};
use super::state::State;
use super::status::{Phase, Status};
use crate::conform::report::Conformance;
use crate::load::pace::Schedule;
use crate::procedure::Event;
use crate::procedure::certificate::{Certificate, DISTURBED_MAX};
use crate::procedure::search::SearchSpec;
use crate::procedure::selftest::{Meaning, SelfTestResult, why_uncertified};
use crate::trial::result::{Outcome, TrialResult};

/// Runs the trials of a campaign.
pub trait Bench {
    /// Sets up the hosts and other resources for the trials of `assignment`, unless they exist. Returns what a
    /// certificate of the Tester for them depends on; `None` if none is needed.
    fn prepare(
        &mut self,
        assignment: &Assignment,
    ) -> Result<Option<CertificateConditions>, BenchError>;

    /// Tests the conformance of the server of a point. `None` if the plan does not want it, or the server is not started in a
    /// lab on this machine. Calls `begins` before a test, which takes minutes.
    fn conform(
        &mut self,
        _point: &Point,
        _begins: &mut dyn FnMut(),
    ) -> Result<Option<Conformance>, BenchError> {
        Ok(None)
    }

    /// Runs a self-test for DUTs up to `max_qps`. It begins at the rate that an earlier one has certified, `near_qps`.
    /// `None` if there is no self-test server.
    fn self_test(
        &mut self,
        max_qps: Option<u64>,
        near_qps: Option<u64>,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTestResult>, BenchError>;

    /// Starts the servers, unless they run, for trials of a Tester that is certified up to this rate. Returns their
    /// facts.
    fn start(&mut self, certified_rate_qps: Option<u64>) -> Result<VariantFacts, BenchError>;

    /// Returns once how the server of [`start`](Self::start) started; `None` unless it is an authority that is
    /// measured.
    fn take_start(&mut self) -> Option<Start> {
        None
    }

    /// Runs one trial of this duration, identified by `number` and the assignment of [`prepare`](Self::prepare).
    fn trial(
        &mut self,
        rate_qps: u64,
        duration_ns: Nanos,
        number: u64,
    ) -> Result<TrialResult, BenchError>;

    /// Lets the servers rest.
    fn rest(&mut self, span_ns: Nanos);
}

/// A task for a bench, with the properties that all its trials share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The task.
    pub task: Task,
    /// Its point.
    pub point: Point,
    /// End a trial as soon as its failure is certain.
    pub stop_early: bool,
    /// Number of names that all its trials need together, if it is known in advance.
    pub names: Option<u64>,
}

/// Why a bench, or a whole campaign, cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BenchError {
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// This variant cannot be measured; others can.
    #[error("{0}")]
    Variant(String),
    /// Nothing can be measured.
    #[error("{0}")]
    Bench(String),
}

/// A variant is not tried again after this number of consecutive abandoned tasks: three failures in a row are not a
/// coincidence.
const ABANDONED_IN_ROW_MAX: u32 = 3;

/// A campaign in progress.
pub struct Campaign<'a, B, C> {
    plan: &'a Plan,
    state: State,
    estimator: Estimator<'a>,
    journal: Journal,
    bench: B,
    clock: C,
    watch: &'a mut dyn FnMut(&Status),
    status: Status,
    /// Facts of each variant that this process has recorded.
    facts: BTreeMap<usize, VariantFacts>,
}

/// Resources of a process.
pub struct Parts<B, C> {
    /// The lines so far.
    pub lines: Vec<Line>,
    /// Destination of the next ones.
    pub journal: Journal,
    /// Runs the trials.
    pub bench: B,
    /// Measures their durations.
    pub clock: C,
}

impl<'a, B: Bench, C: Clock> Campaign<'a, B, C> {
    /// Creates a campaign from the contents of its journal. `watch` receives the status, and then every change of it.
    pub fn new(
        plan: &'a Plan,
        parts: Parts<B, C>,
        directory: String,
        watch: &'a mut dyn FnMut(&Status),
    ) -> Self {
        let mut state = State::new(plan);
        let mut status = Status::new(plan, directory);
        for line in &parts.lines {
            state.apply(line);
            status.apply(line);
        }
        status.count(&state, None);
        Self {
            plan,
            state,
            estimator: Estimator::new(plan),
            journal: parts.journal,
            bench: parts.bench,
            clock: parts.clock,
            watch,
            status,
            facts: BTreeMap::new(),
        }
    }

    /// Runs the remaining tasks of the plan.
    ///
    /// # Errors
    ///
    /// The user interrupted it, no variant can be measured, or the journal cannot be written. The campaign can be
    /// resumed when the cause is removed.
    pub fn work(mut self) -> Result<(), BenchError> {
        (self.watch)(&self.status);
        while let Some(task) = self.state.next_task() {
            match self.task(task) {
                Err(BenchError::Variant(reason)) => {
                    self.record(Record::Abandoned { task, reason })?;
                }
                Err(end) => {
                    let reason = end.to_string();
                    let stopped = self.record(Record::Stopped { reason });
                    // After another error, writing the journal may be what failed.
                    if end == BenchError::Interrupted {
                        stopped?;
                    }
                    return Err(end);
                }
                Ok(()) => {}
            }
        }
        self.record(Record::Complete)
    }

    fn task(&mut self, task: Task) -> Result<(), BenchError> {
        let point = self.plan.points[task.point()];
        if self.state.abandoned_in_row(point.variant) >= ABANDONED_IN_ROW_MAX {
            let reason =
                format!("abandoned: the {ABANDONED_IN_ROW_MAX} tasks before had no result");
            return Err(BenchError::Variant(reason));
        }
        let base_rate_qps = self.base_rate(task)?;
        let assignment = self.assignment(task, point, base_rate_qps);
        let conformance = match self.state.conformance.get(point.variant) {
            Some(Some(_)) => None,
            _ => {
                let (status, watch) = (&mut self.status, &mut *self.watch);
                let name = &self.plan.variants[point.variant].name;
                self.bench.conform(&point, &mut || {
                    status.message = Some(format!("testing the conformance of {name}"));
                    watch(status);
                })?
            }
        };
        let conditions = self.bench.prepare(&assignment)?;
        let certified = match conditions {
            Some(conditions) if !self.plan.uncertified => {
                self.certified(task.point(), &conditions)?
            }
            Some(_) | None => None,
        };
        self.status.certified_qps = certified;
        let search = task.is_search().then(|| {
            let before = self.state.rates_qps(task.point());
            search_spec(self.plan, task, certified, &before)
        });
        if let Some(why) = search.as_ref().and_then(SearchSpec::unfit) {
            return Err(BenchError::Variant(why));
        }
        self.start(point, certified, conformance)?;
        let under_way = self.state.under_way.as_ref();
        if !under_way.is_some_and(|under_way| under_way.goes_on(certified)) {
            self.record(Record::Started {
                task,
                search,
                base_rate_qps,
            })?;
        }
        match task {
            Task::Search { .. } | Task::Goals { .. } => self.search(task),
            Task::Overload { .. } | Task::Soak { .. } => {
                self.rates(task, base_rate_qps.unwrap_or(0))
            }
        }
    }

    /// The properties that the trials of a task share. Only trials of searches by RFC 8219 end early: goals, an overload curve or a
    /// soak also measure how much the DUT still serves.
    fn assignment(&self, task: Task, point: Point, base_rate_qps: Option<u64>) -> Assignment {
        let search = matches!(task, Task::Search { .. });
        let names = match (task, &self.plan.soak) {
            (Task::Soak { .. }, Some(soak)) => {
                let rate_qps = soak.share.below(base_rate_qps.unwrap_or(0));
                Some(Schedule::new(rate_qps.max(1), soak.length_ns).queries())
            }
            _ => None,
        };
        Assignment {
            task,
            point,
            stop_early: search && self.plan.search.stop_early,
            names,
        }
    }

    /// The rate that overload and soak are relative to: the median of the rates that the searches found.
    fn base_rate(&self, task: Task) -> Result<Option<u64>, BenchError> {
        if task.is_search() {
            return Ok(None);
        }
        let missing = || BenchError::Variant("no search found a rate".to_owned());
        let median = self.state.median_rate_qps(task.point());
        median.map(Some).ok_or_else(missing)
    }

    /// The certified rate of the Tester under these conditions, from existing self-tests and, until there are enough,
    /// new ones.
    fn certified(
        &mut self,
        point: usize,
        conditions: &CertificateConditions,
    ) -> Result<Option<u64>, BenchError> {
        let planned = self.plan.self_tests;
        let wanted = self.state.self_tests_wanted(planned, point);
        let mut disturbed = 0;
        loop {
            let rates = self.state.self_test_rates(conditions, unix_ms());
            if rates.len() >= wanted {
                return Ok(Certificate::of(&rates).map(|certificate| certificate.rate_qps));
            }
            let near_qps = rates.first().copied();
            let Some((meaning, end)) = self.self_test(near_qps, conditions)? else {
                return Ok(None);
            };
            disturbed += usize::from(meaning == Meaning::Disturbed);
            if meaning == Meaning::Nothing || disturbed > DISTURBED_MAX {
                let why = why_uncertified(&end);
                let reason = format!("the self-test of the Tester failed: {why}");
                return Err(BenchError::Variant(reason));
            }
        }
    }

    /// Runs a self-test, which begins at the rate that an earlier one has certified, and records it; `None` if there is
    /// no self-test server.
    fn self_test(
        &mut self,
        near_qps: Option<u64>,
        conditions: &CertificateConditions,
    ) -> Result<Option<(Meaning, Outcome)>, BenchError> {
        self.status.enter(Phase::SelfTest);
        let (status, watch) = (&mut self.status, &mut *self.watch);
        // Its trials are at most as long as those of the task, and wait a quarter of the timeout.
        let length_ns = conditions.duration_ns + conditions.timeout_ns / 4;
        let max_qps = self.plan.search.method.max_qps();
        let result = self.bench.self_test(max_qps, near_qps, &mut |event| {
            status.observe(event, unix_ms(), length_ns);
            watch(status);
        })?;
        let Some(result) = result else {
            return Ok(None);
        };
        let told = (result.meaning(), result.end.clone());
        self.record(Record::SelfTest(SelfTest {
            conditions: Box::new(conditions.clone()),
            end: result.end,
            passed_rate_qps: result.passed_rate_qps,
            certified_rate_qps: result.certified_rate_qps,
            trials: result.trials,
        }))?;
        Ok(Some(told))
    }

    /// Starts the servers. Records their facts if they are new to this process, with their conformance if that is, and each
    /// start of an authority that is measured.
    fn start(
        &mut self,
        point: Point,
        certified_rate_qps: Option<u64>,
        conformance: Option<Conformance>,
    ) -> Result<(), BenchError> {
        let facts = self.bench.start(certified_rate_qps)?;
        self.refuse_another(point.variant, &facts)?;
        let known = self.facts.insert(point.variant, facts.clone());
        let start = self.bench.take_start();
        if known.as_ref() == Some(&facts) && start.is_none() && conformance.is_none() {
            return Ok(());
        }
        self.record(Record::Variant {
            variant: point.variant,
            start,
            conformance: conformance.map(Box::new),
            facts,
        })?;
        Ok(())
    }

    /// Refuses changed facts.
    fn refuse_another(&self, variant: usize, facts: &VariantFacts) -> Result<(), BenchError> {
        let before = self.state.variants.get(variant).and_then(|all| all.last());
        let Some(grave) = before.and_then(|before| grave(before, facts)) else {
            return Ok(());
        };
        Err(BenchError::Bench(format!(
            "{} has changed since the campaign began: {grave}; restore it and continue with `dns64bench resume`, or \
             run the plan in a new directory",
            self.plan.variants[variant].name,
        )))
    }

    fn search(&mut self, task: Task) -> Result<(), BenchError> {
        while let Some(search) = self
            .state
            .under_way
            .as_ref()
            .and_then(|u| u.search.as_ref())
        {
            let bracket = search.bracket();
            if let Some(end) = search.finished().cloned() {
                let end = TaskEnd {
                    end: Some(end),
                    rate_qps: search.answer(),
                    failed_qps: bracket.failed_qps,
                    goals: search.goals(),
                    ..TaskEnd::of(task)
                };
                return self.finish(end);
            }
            let Some((rate_qps, duration_ns)) = search.next() else {
                break;
            };
            self.observe(task, &Event::Bracket(bracket));
            if let Some(exit) = self.trial(task, rate_qps, duration_ns)? {
                let reason = format!("the DUT ended in the trial at {rate_qps} qps: {exit}");
                return Err(BenchError::Variant(reason));
            }
        }
        Ok(())
    }

    /// Runs the trials of an overload curve or a soak: their rates do not depend on outcomes.
    fn rates(&mut self, task: Task, base_rate_qps: u64) -> Result<(), BenchError> {
        let rates = rates(self.plan, task, base_rate_qps);
        while let Some(under_way) = self.state.under_way.as_ref()
            && let Some(&rate_qps) = rates.get(under_way.steps)
        {
            self.trial(task, rate_qps.max(1), None)?;
        }
        self.finish(TaskEnd::of(task))
    }

    fn finish(&mut self, end: TaskEnd) -> Result<(), BenchError> {
        let took_ns = self.state.under_way.as_ref().map_or(0, |task| task.took_ns);
        self.record(Record::Finished(TaskEnd { took_ns, ..end }))?;
        Ok(())
    }

    /// Runs one trial, of the duration of its point unless it has one of its own, and records it. Returns how the DUT exited during the
    /// trial, if it did.
    fn trial(
        &mut self,
        task: Task,
        rate_qps: u64,
        duration_ns: Option<Nanos>,
    ) -> Result<Option<String>, BenchError> {
        let duration_ns = duration_ns.unwrap_or(self.plan.points[task.point()].duration_ns);
        let began = self.clock.now();
        let number = self.state.under_way.as_ref().map_or(0, |task| task.trials) + 1;
        self.observe(task, &Event::TrialStarted { rate_qps, number });
        if number > 1 && self.plan.search.settle_ns > 0 {
            self.bench.rest(self.plan.search.settle_ns);
        }
        let result = self.bench.trial(rate_qps, duration_ns, number)?;
        let exit = result.dut_exit.clone();
        self.record(Record::Trial {
            task,
            number,
            took_ns: self.clock.now() - began,
            result,
        })?;
        Ok(exit)
    }

    /// Writes a record and applies it as a resumed process would.
    fn record(&mut self, record: Record) -> Result<(), BenchError> {
        // A trial must not run if it cannot be recorded.
        let line = self.journal.append(record);
        let line = line.map_err(|error| BenchError::Bench(error.to_string()))?;
        self.state.apply(&line);
        self.status.apply(&line);
        let left_ns = self
            .estimator
            .left_ns(&self.state.done(), &self.state.left());
        self.status.count(&self.state, Some(left_ns));
        (self.watch)(&self.status);
        Ok(())
    }

    fn observe(&mut self, task: Task, event: &Event<'_>) {
        let point = &self.plan.points[task.point()];
        let length_ns = point.duration_ns + point.timeout_ns;
        self.status.observe(event, unix_ms(), length_ns);
        (self.watch)(&self.status);
    }
}

#[cfg(test)]
mod tests;
