//! The contents of a journal, sorted by subject.
//!
//! No decision interprets records elsewhere. The driver gets its next task from the history
//! ([`State`](super::state::State)), and the analysis of a report reads the whole; the status of a campaign only tells of the
//! lines. A resumed process applies the earlier lines and then its own with the same function, so it continues
//! exactly as the first would have.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use dns64_transport::clock::Nanos;

use super::names::UsedNames;
use super::plan::tasks::{Point, Task, rates};
use super::plan::{Laboratory, Plan};
use super::record::{Environment, Line, Record, SelfTest, Start, TaskEnd, VariantFacts};
use crate::conform::report::Conformance;
use crate::hash::sha256_u64;
use crate::lab::LabKind;
use crate::load::pace::Schedule;
use crate::procedure::search::{INVALID_REPEATS, Search, SearchSpec};
use crate::trial::result::TrialResult;

/// The contents of the lines so far. `R` is the part of each trial's result that is kept: a report reads all results in
/// place, a driver needs none after its search has observed them ([`Forgotten`]).
#[derive(Clone, Debug)]
pub struct History<R> {
    /// Program and version that began the campaign.
    pub tester: String,
    /// SHA-256 of the text of the plan, in hexadecimal.
    pub plan_sha256: String,
    /// Command line.
    pub command: Vec<String>,
    /// Kind of lab, if a server is started and the journal records it.
    pub lab: Option<LabKind>,
    /// Facts of each variant, at each recorded start.
    pub variants: Vec<Vec<VariantFacts>>,
    /// Starts of each variant that is an authority, in order.
    pub starts: Vec<Vec<Start>>,
    /// Conformance of each variant, if it was tested.
    pub conformance: Vec<Option<Conformance>>,
    /// Tasks that were begun or abandoned.
    pub tasks: BTreeMap<Task, TaskHistory<R>>,
    /// Processes in order.
    pub sessions: Vec<SessionHistory>,
    /// Self-tests in order.
    pub self_tests: Vec<SelfTestHistory>,
    /// Whether all tasks of the plan are done.
    pub complete: bool,
    /// Trials of tasks, including invalid ones and those of earlier attempts; without those of self-tests.
    pub trials: u64,
    /// Invalid ones among them.
    pub invalid_trials: u64,
    /// The task in progress.
    pub under_way: Option<UnderWay>,
    /// Names that were queried at running servers.
    pub names: UsedNames,
    /// The plan of the campaign.
    pub plan: Plan,
    /// Number of tasks abandoned in a row, by variant.
    abandoned_in_row: BTreeMap<usize, u32>,
}

/// Keeps nothing of a result.
#[derive(Clone, Copy, Debug)]
pub struct Forgotten;

impl From<&TrialResult> for Forgotten {
    fn from(_: &TrialResult) -> Self {
        Self
    }
}

/// History for a report: the results of all trials, borrowed from the lines.
pub type Recorded<'l> = History<&'l TrialResult>;

/// All records of a task.
#[derive(Clone, Debug)]
pub struct TaskHistory<R> {
    /// How the last attempt selected its rates, if it is a search.
    pub search: Option<SearchSpec>,
    /// The rate that overload and soak are relative to.
    pub base_rate_qps: Option<u64>,
    /// Trials of the last attempt.
    pub trials: Vec<TrialHistory<R>>,
    /// Trials of earlier attempts, which are ignored.
    pub earlier: Vec<TrialHistory<R>>,
    /// How the last attempt ended.
    pub finished: Option<TaskEnd>,
    /// Reason if it was abandoned.
    pub abandoned: Option<String>,
    /// Attempts that ended because the Tester was disturbed.
    pub disturbed: u32,
}

impl<R> Default for TaskHistory<R> {
    fn default() -> Self {
        Self {
            search: None,
            base_rate_qps: None,
            trials: Vec::new(),
            earlier: Vec::new(),
            finished: None,
            abandoned: None,
            disturbed: 0,
        }
    }
}

impl<R> TaskHistory<R> {
    /// Time in its trials, earlier attempts included, by the monotonic clock.
    pub fn took_ns(&self) -> Nanos {
        let all = self.all_trials();
        all.fold(0, |sum, t| sum.saturating_add(t.took_ns))
    }

    /// Its trials, those of earlier attempts first.
    pub fn all_trials(&self) -> impl Iterator<Item = &TrialHistory<R>> {
        self.earlier.iter().chain(&self.trials)
    }

    /// Begins another attempt.
    fn begin(&mut self, search: Option<&SearchSpec>, base_rate_qps: Option<u64>) {
        self.earlier.append(&mut self.trials);
        self.search = search.cloned();
        self.base_rate_qps = base_rate_qps;
        self.finished = None;
        self.abandoned = None;
    }
}

/// A trial of a task.
#[derive(Clone, Copy, Debug)]
pub struct TrialHistory<R> {
    /// Time from its request to its end.
    pub took_ns: Nanos,
    /// Kept part of its result.
    pub result: R,
}

/// A process that worked on the campaign.
#[derive(Clone, Debug)]
pub struct SessionHistory {
    /// Start time, by the real-time clock.
    pub began_unix_ms: u64,
    /// Octets of an incomplete line that it found at the end of the journal and cut off.
    pub torn_bytes: u64,
    /// Its machine.
    pub environment: Environment,
    /// Program and version; empty if the program did not record its identity. A program that does records all figures
    /// of a trial that this version knows.
    pub tester: String,
    /// SHA-256 of the program, if it could be read.
    pub tester_sha256: Option<String>,
    /// Why it stopped, if recorded.
    pub ended: Option<String>,
}

/// A self-test that was recorded.
#[derive(Clone, Debug)]
pub struct SelfTestHistory {
    /// End time, by the real-time clock.
    pub at_unix_ms: u64,
    /// Its result.
    pub test: SelfTest,
}

/// A task in progress.
#[derive(Clone, Debug)]
pub struct UnderWay {
    /// The task.
    pub task: Task,
    /// The search with the outcomes of the trials so far; `None` for other tasks. It may be finished.
    pub search: Option<Search>,
    /// The rate that overload and soak are relative to.
    pub base_rate_qps: Option<u64>,
    /// Trials so far, including invalid ones: the number of the next trial is one more.
    pub trials: u64,
    /// Finished factors of the overload curve or segments of the soak. An invalid trial of a factor is repeated up to
    /// [`INVALID_REPEATS`] times; a segment is not repeated, since its load has already reached the DUT.
    pub steps: usize,
    /// Invalid trials since the last valid one or the last step.
    pub invalid_in_row: u32,
    /// Time of its trials, including rests and starts, without interruptions.
    pub took_ns: Nanos,
}

impl<R> History<R> {
    /// Creates the history of a campaign that has not begun.
    pub fn new(plan: &Plan) -> Self {
        Self {
            tester: String::new(),
            plan_sha256: String::new(),
            command: Vec::new(),
            lab: None,
            variants: vec![Vec::new(); plan.variants.len()],
            starts: vec![Vec::new(); plan.variants.len()],
            conformance: vec![None; plan.variants.len()],
            tasks: BTreeMap::new(),
            sessions: Vec::new(),
            self_tests: Vec::new(),
            complete: false,
            trials: 0,
            invalid_trials: 0,
            under_way: None,
            names: UsedNames::default(),
            plan: plan.clone(),
            abandoned_in_row: BTreeMap::new(),
        }
    }

    /// Tasks of a variant that were abandoned since the last finished one.
    pub fn abandoned_in_row(&self, variant: usize) -> u32 {
        self.abandoned_in_row.get(&variant).copied().unwrap_or(0)
    }

    /// Where the roles run: on the hosts of the plan, or in the kind of lab that was selected at first.
    pub fn laboratory(&self) -> Laboratory<'_> {
        match (self.plan.laboratory(), self.lab) {
            (Laboratory::Here(_), Some(kind)) => Laboratory::Here(kind),
            (planned, _) => planned,
        }
    }

    /// Tasks of these points.
    fn tasks_of(&self, wanted: impl Fn(&Point) -> bool) -> impl Iterator<Item = &TaskHistory<R>> {
        let point = |task: &Task| self.plan.points.get(task.point());
        let tasks = self.tasks.iter();
        let tasks = tasks.filter(move |(task, _)| point(task).is_some_and(&wanted));
        tasks.map(|(_, history)| history)
    }

    /// Variant of a task; `None` if the plan does not have its point.
    fn variant(&self, task: Task) -> Option<usize> {
        Some(self.plan.points.get(task.point())?.variant)
    }

    /// The running server that a task queries, if any.
    fn server(&self, task: Task) -> Option<SocketAddr> {
        self.plan.variants[self.variant(task)?].subject.server()
    }

    /// Rate of the next trial of the task in progress, if there is one.
    pub fn next_rate(&self) -> Option<u64> {
        let under_way = self.under_way.as_ref()?;
        match &under_way.search {
            Some(search) => search.next_rate(),
            None => {
                let base_rate_qps = under_way.base_rate_qps.unwrap_or(0);
                let rates = rates(&self.plan, under_way.task, base_rate_qps);
                rates.get(under_way.steps).copied()
            }
        }
    }

    /// Accounts for the names of a trial that may have been cut off when a process or a task ended: no record has them.
    fn trial_was_cut_off(&mut self) {
        let Some(under_way) = &self.under_way else {
            return;
        };
        let task = under_way.task;
        if let (Some(server), Some(rate_qps)) = (self.server(task), self.next_rate()) {
            let point = &self.plan.points[task.point()];
            let queries = Schedule::new(rate_qps, point.duration_ns).queries();
            // The working set precedes the first fresh name.
            let names = queries.saturating_add(point.cell.pattern.working_set());
            self.names.cut_off(server, point.cidr, names);
        }
    }

    fn session(&mut self, session: SessionHistory) {
        self.trial_was_cut_off();
        self.sessions.push(session);
    }

    fn session_ended(&mut self, how: &str) {
        if let Some(session) = self.sessions.last_mut() {
            session.ended = Some(how.to_owned());
        }
    }

    /// Records the facts of a variant, and its start if known. The facts are kept once for equal starts in a row.
    fn variant_started(
        &mut self,
        variant: usize,
        start: Option<Start>,
        conformance: Option<&Conformance>,
        facts: &VariantFacts,
    ) {
        let seen = self.variants.get_mut(variant);
        if let Some(seen) = seen.filter(|seen| seen.last() != Some(facts)) {
            seen.push(facts.clone());
        }
        if let Some(starts) = self.starts.get_mut(variant) {
            starts.extend(start);
        }
        if let (Some(found), Some(of)) = (conformance, self.conformance.get_mut(variant)) {
            *of = Some(found.clone());
        }
    }

    fn start(&mut self, task: Task, search: Option<&SearchSpec>, base_rate_qps: Option<u64>) {
        let history = self.tasks.entry(task).or_default();
        history.begin(search, base_rate_qps);
        self.under_way = Some(UnderWay {
            task,
            search: search.cloned().map(Search::new),
            base_rate_qps,
            trials: 0,
            steps: 0,
            invalid_in_row: 0,
            took_ns: 0,
        });
    }

    fn finish(&mut self, finished: &TaskEnd) {
        let variant = self.variant(finished.task);
        variant.and_then(|variant| self.abandoned_in_row.remove(&variant));
        let history = self.closed(finished.task);
        history.disturbed += u32::from(finished.is_disturbed());
        history.finished = Some(finished.clone());
    }

    fn abandon(&mut self, task: Task, reason: &str) {
        self.trial_was_cut_off();
        if let Some(variant) = self.variant(task) {
            *self.abandoned_in_row.entry(variant).or_default() += 1;
        }
        self.closed(task).abandoned = Some(reason.to_owned());
    }

    /// Ends the task in progress if it is this one, and returns its history.
    fn closed(&mut self, task: Task) -> &mut TaskHistory<R> {
        self.under_way.take_if(|under_way| under_way.task == task);
        self.tasks.entry(task).or_default()
    }
}

impl<'l> Recorded<'l> {
    /// Results of the trials of these points, without those of earlier attempts and those for goals.
    pub fn trials_of(
        &self,
        wanted: impl Fn(&Point) -> bool,
    ) -> impl Iterator<Item = &'l TrialResult> {
        let tasks = self.tasks_of(wanted);
        tasks
            .filter(|task| task.search.as_ref().is_none_or(|it| it.goals.is_empty()))
            .flat_map(|task| &task.trials)
            .map(|trial| trial.result)
    }

    /// Results of all trials of these points.
    pub fn all_trials_of(
        &self,
        wanted: impl Fn(&Point) -> bool,
    ) -> impl Iterator<Item = &'l TrialResult> {
        let tasks = self.tasks_of(wanted);
        tasks
            .flat_map(TaskHistory::all_trials)
            .map(|trial| trial.result)
    }
}

impl<'l, R: From<&'l TrialResult>> History<R> {
    /// Creates the history of all these lines.
    pub fn of(plan: &Plan, lines: &'l [Line]) -> Self {
        let mut history = Self::new(plan);
        for line in lines {
            history.apply(line);
        }
        history
    }

    /// Applies the next line.
    ///
    /// A trial that the search did not request, for example from another version of the program, is not applied to the
    /// search: the task must restart.
    pub fn apply(&mut self, line: &'l Line) {
        match &line.record {
            Record::Campaign {
                tester,
                plan_sha256,
                command,
                lab,
                ..
            } => {
                self.tester.clone_from(tester);
                self.plan_sha256.clone_from(plan_sha256);
                self.command.clone_from(command);
                self.lab = *lab;
                let begun = format!("{plan_sha256} {}", line.at_unix_ms);
                self.names = UsedNames::new(sha256_u64(begun.as_bytes()));
            }
            Record::Session {
                environment,
                torn_bytes,
                tester,
                tester_sha256,
            } => self.session(SessionHistory {
                began_unix_ms: line.at_unix_ms,
                torn_bytes: *torn_bytes,
                environment: (**environment).clone(),
                tester: tester.clone(),
                tester_sha256: tester_sha256.clone(),
                ended: None,
            }),
            Record::SelfTest(test) => self.self_tests.push(SelfTestHistory {
                at_unix_ms: line.at_unix_ms,
                test: test.clone(),
            }),
            Record::Variant {
                variant,
                start,
                conformance,
                facts,
            } => self.variant_started(*variant, *start, conformance.as_deref(), facts),
            Record::Started {
                task,
                search,
                base_rate_qps,
            } => self.start(*task, search.as_ref(), *base_rate_qps),
            Record::Trial {
                task,
                took_ns,
                result,
                ..
            } => self.trial(*task, *took_ns, result),
            Record::Finished(finished) => self.finish(finished),
            Record::Abandoned { task, reason } => self.abandon(*task, reason),
            Record::Stopped { reason } => self.session_ended(reason),
            Record::Complete => {
                self.complete = true;
                self.session_ended("complete");
            }
        }
    }

    fn trial(&mut self, task: Task, took_ns: Nanos, result: &'l TrialResult) {
        self.trials += 1;
        self.invalid_trials += u64::from(!result.outcome.is_valid());
        if let (Some(server), Some(names)) = (self.server(task), &result.names) {
            self.names.learn(server, names);
        }
        self.under_way
            .take_if(|under_way| under_way.task == task && !under_way.learn(took_ns, result));
        let trials = &mut self.tasks.entry(task).or_default().trials;
        trials.push(TrialHistory {
            took_ns,
            result: result.into(),
        });
    }
}

impl UnderWay {
    /// Whether the task continues with a Tester that is certified up to this rate. A search with a higher ceiling
    /// restarts, unless it needs no further trial: a result between the two rates is not a measurement.
    pub fn goes_on(&self, certified_qps: Option<u64>) -> bool {
        let Some(search) = &self.search else {
            return true;
        };
        let is_within = match (search.ceiling_qps(), certified_qps) {
            (Some(ceiling_qps), Some(certified_qps)) => ceiling_qps <= certified_qps,
            (ceiling_qps, certified_qps) => ceiling_qps == certified_qps,
        };
        is_within || search.finished().is_some()
    }

    /// Applies a trial; returns `false` if the search did not request it.
    fn learn(&mut self, took_ns: Nanos, result: &TrialResult) -> bool {
        if let Some(search) = &mut self.search {
            let due = search.next();
            let is_due = |(rate_qps, duration_ns): (u64, Option<Nanos>)| {
                let length_is_due = duration_ns.is_none_or(|it| it == result.duration_ns);
                rate_qps == result.rate_qps && length_is_due
            };
            if !due.is_some_and(is_due) {
                return false;
            }
            search.observe(&result.outcome);
        }
        self.trials += 1;
        self.took_ns = self.took_ns.saturating_add(took_ns);
        let invalid = !result.outcome.is_valid();
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
