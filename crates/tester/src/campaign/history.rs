//! What a journal says, sorted by subject.
//!
//! Records are interpreted here and nowhere else. The driver asks the history what to do next
//! ([`State`](super::state::State)), the status follows the [`News`] of each line, and the analysis
//! of a report reads the whole. A process that resumes takes in the lines of the earlier ones and
//! then its own by the same function, so it continues as the first would have.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use dns64_transport::clock::Nanos;

use super::names::UsedNames;
use super::plan::Plan;
use super::record::{Environment, Line, Record, SelfTest, Start, TaskEnd, VariantFacts};
use super::tasks::{Point, Task, points, rates};
use crate::lab::LabKind;
use crate::load::pace::Schedule;
use crate::procedure::search::{INVALID_REPEATS, Search, SearchSpec};
use crate::trial::result::{Outcome, TrialResult};

/// What the lines so far say. `R` is what is kept of the result of a trial: a report reads all of
/// them where they are, a driver needs none that its search has learnt from ([`Forgotten`]).
#[derive(Clone, Debug)]
pub struct History<R> {
    /// Program and version that began the campaign.
    pub tester: String,
    /// SHA-256 of the text of the plan, in hexadecimal.
    pub plan_sha256: String,
    /// What was typed.
    pub command: Vec<String>,
    /// Where the roles run, if a server is started and the journal says it.
    pub lab: Option<LabKind>,
    /// What each variant turned out to be, at each start that was recorded.
    pub variants: Vec<Vec<VariantFacts>>,
    /// The starts of each variant that is an authority, in their order.
    pub starts: Vec<Vec<Start>>,
    /// Tasks that were begun or given up.
    pub tasks: BTreeMap<Task, TaskHistory<R>>,
    /// Processes in their order.
    pub sessions: Vec<SessionHistory>,
    /// Self-tests in their order.
    pub self_tests: Vec<SelfTestHistory>,
    /// Whether all tasks of the plan are done.
    pub complete: bool,
    /// Trials of tasks, invalid ones and those of earlier attempts too; not those of self-tests.
    pub trials: u64,
    /// Those of them that were disturbed.
    pub invalid_trials: u64,
    /// The task that has begun and is not over.
    pub under_way: Option<UnderWay>,
    /// What servers that run already were asked for.
    pub names: UsedNames,
    plan: Plan,
    points: Vec<Point>,
    /// By variant.
    abandoned_in_row: BTreeMap<usize, u32>,
}

/// Nothing is kept of a result.
#[derive(Clone, Copy, Debug)]
pub struct Forgotten;

impl From<&TrialResult> for Forgotten {
    fn from(_: &TrialResult) -> Self {
        Self
    }
}

/// All records of a task.
#[derive(Clone, Debug)]
pub struct TaskHistory<R> {
    /// How the last attempt chose its rates, if it is a search.
    pub search: Option<SearchSpec>,
    /// The rate that overload and soak are relative to.
    pub base_rate_qps: Option<u64>,
    /// Trials of the last attempt.
    pub trials: Vec<TrialHistory<R>>,
    /// Trials of attempts before the last one, which count for nothing.
    pub earlier: Vec<TrialHistory<R>>,
    /// How the last attempt ended.
    pub finished: Option<TaskEnd>,
    /// Why it was given up, if it was.
    pub abandoned: Option<String>,
    /// Attempts in which the Tester was disturbed until the search gave up.
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
        let all = self.earlier.iter().chain(&self.trials);
        all.fold(0, |sum, t| sum.saturating_add(t.took_ns))
    }

    /// Another attempt begins.
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
    /// From when it was called for until it was over.
    pub took_ns: Nanos,
    /// What is kept of its result.
    pub result: R,
}

impl TrialHistory<&TrialResult> {
    /// Resident memory of the DUT after the trial.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.result.resources.map(|r| r.memory_bytes)
    }
}

/// A process that worked on the campaign.
#[derive(Clone, Debug)]
pub struct SessionHistory {
    /// When it began, by the real-time clock.
    pub began_unix_ms: u64,
    /// Octets of half a line that it found at the end of the journal and cut off.
    pub torn_bytes: u64,
    /// The machine that it ran on.
    pub environment: Environment,
    /// Program and version; empty if the program did not record itself. One that does records all figures
    /// of a trial that this version knows.
    pub tester: String,
    /// Why it stopped, if it says so.
    pub ended: Option<String>,
}

/// A self-test that was recorded.
#[derive(Clone, Debug)]
pub struct SelfTestHistory {
    /// When it was over, by the real-time clock.
    pub at_unix_ms: u64,
    /// What it found.
    pub test: SelfTest,
}

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

/// What a line means to whoever watches.
#[derive(Clone, Copy, Debug)]
pub enum News<'l> {
    /// The campaign was begun.
    Campaign,
    /// A process begins to work.
    Session,
    /// The Tester was certified for this rate, or for none.
    SelfTest(Option<u64>),
    /// The servers of a variant run.
    Variant(&'l VariantFacts),
    /// A task begins.
    Started(Task),
    /// A trial of a task.
    Trial(Task, &'l TrialResult),
    /// A task is over.
    Finished(&'l TaskEnd),
    /// A task was given up, for this reason.
    Abandoned(Task, &'l str),
    /// The process stopped, for this reason.
    Stopped(&'l str),
    /// All tasks of the plan are done.
    Complete,
}

impl<R> History<R> {
    /// A campaign by this plan of which nothing has been done.
    pub fn new(plan: &Plan) -> Self {
        Self {
            tester: String::new(),
            plan_sha256: String::new(),
            command: Vec::new(),
            lab: None,
            variants: vec![Vec::new(); plan.variants.len()],
            starts: vec![Vec::new(); plan.variants.len()],
            tasks: BTreeMap::new(),
            sessions: Vec::new(),
            self_tests: Vec::new(),
            complete: false,
            trials: 0,
            invalid_trials: 0,
            under_way: None,
            names: UsedNames::default(),
            plan: plan.clone(),
            points: points(plan),
            abandoned_in_row: BTreeMap::new(),
        }
    }

    /// How many tasks of a variant were given up since one of it was finished.
    pub fn abandoned_in_row(&self, variant: usize) -> u32 {
        self.abandoned_in_row.get(&variant).copied().unwrap_or(0)
    }

    /// The tasks of the points that are wanted.
    pub fn tasks_of<'s>(
        &'s self,
        wanted: impl Fn(usize) -> bool + 's,
    ) -> impl Iterator<Item = (Task, &'s TaskHistory<R>)> + 's {
        let tasks = self.tasks.iter().map(|(task, history)| (*task, history));
        tasks.filter(move |(task, _)| wanted(task.point()))
    }

    /// A point that the plan does not have is of a variant that it does not have.
    fn variant(&self, task: Task) -> usize {
        let point = self.points.get(task.point());
        point.map_or(usize::MAX, |point| point.variant)
    }

    /// The server that a task asks, if it runs already.
    fn server(&self, task: Task) -> Option<SocketAddr> {
        let variant = self.plan.variants.get(self.variant(task))?;
        variant.subject.server()
    }

    /// A process or a task ended, perhaps in the midst of a trial, of which nothing was written down.
    fn trial_was_cut_off(&mut self) {
        let Some(under_way) = &self.under_way else {
            return;
        };
        let task = under_way.task;
        let rate_qps = under_way.next_rate(&self.plan);
        let point = self.points.get(task.point());
        if let (Some(server), Some(rate_qps), Some(point)) = (self.server(task), rate_qps, point) {
            let names = Schedule::new(rate_qps, point.duration_ns).queries();
            self.names.cut_off(server, names);
        }
    }

    fn session<'l>(
        &mut self,
        began_unix_ms: u64,
        environment: &Environment,
        torn_bytes: u64,
        tester: &str,
    ) -> News<'l> {
        self.trial_was_cut_off();
        self.sessions.push(SessionHistory {
            began_unix_ms,
            torn_bytes,
            environment: environment.clone(),
            tester: tester.to_owned(),
            ended: None,
        });
        News::Session
    }

    fn session_ended(&mut self, how: &str) {
        if let Some(session) = self.sessions.last_mut() {
            session.ended = Some(how.to_owned());
        }
    }

    /// What a variant is, and how it came up if that is told. An authority that is started often is the same
    /// each time.
    fn variant_started(&mut self, variant: usize, start: Option<Start>, facts: &VariantFacts) {
        let seen = self.variants.get_mut(variant);
        if let Some(seen) = seen.filter(|seen| seen.last() != Some(facts)) {
            seen.push(facts.clone());
        }
        if let Some(starts) = self.starts.get_mut(variant) {
            starts.extend(start);
        }
    }

    fn start<'l>(
        &mut self,
        task: Task,
        search: Option<&SearchSpec>,
        base_rate_qps: Option<u64>,
    ) -> News<'l> {
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
        News::Started(task)
    }

    fn finish<'l>(&mut self, finished: &'l TaskEnd) -> News<'l> {
        self.abandoned_in_row.remove(&self.variant(finished.task));
        let history = self.closed(finished.task);
        history.disturbed += u32::from(finished.is_disturbed());
        history.finished = Some(finished.clone());
        News::Finished(finished)
    }

    fn abandon<'l>(&mut self, task: Task, reason: &'l str) -> News<'l> {
        self.trial_was_cut_off();
        *self.abandoned_in_row.entry(self.variant(task)).or_default() += 1;
        self.closed(task).abandoned = Some(reason.to_owned());
        News::Abandoned(task, reason)
    }

    /// The history of a task that is under way no longer.
    fn closed(&mut self, task: Task) -> &mut TaskHistory<R> {
        self.under_way.take_if(|under_way| under_way.task == task);
        self.tasks.entry(task).or_default()
    }
}

impl<'l, R: From<&'l TrialResult>> History<R> {
    /// What all these lines say.
    pub fn of(plan: &Plan, lines: &'l [Line]) -> Self {
        let mut history = Self::new(plan);
        for line in lines {
            history.apply(line);
        }
        history
    }

    /// Takes in the next line and tells what it means.
    ///
    /// A trial that is not the one which its search asks for, as one of another version of the
    /// program may be, teaches the search nothing: the task has to restart.
    pub fn apply(&mut self, line: &'l Line) -> News<'l> {
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
                News::Campaign
            }
            Record::Session {
                environment,
                torn_bytes,
                tester,
                ..
            } => self.session(line.at_unix_ms, environment, *torn_bytes, tester),
            Record::SelfTest(test) => {
                self.self_tests.push(SelfTestHistory {
                    at_unix_ms: line.at_unix_ms,
                    test: test.clone(),
                });
                News::SelfTest(test.certified_rate_qps)
            }
            Record::Variant {
                variant,
                start,
                facts,
            } => {
                self.variant_started(*variant, *start, facts);
                News::Variant(facts)
            }
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
            Record::Stopped { reason } => {
                self.session_ended(reason);
                News::Stopped(reason)
            }
            Record::Complete => {
                self.complete = true;
                self.session_ended("complete");
                News::Complete
            }
        }
    }

    fn trial(&mut self, task: Task, took_ns: Nanos, result: &'l TrialResult) -> News<'l> {
        self.trials += 1;
        self.invalid_trials += u64::from(matches!(result.outcome, Outcome::Invalid(_)));
        if let (Some(server), Some(dealt)) = (self.server(task), &result.names) {
            self.names.learn(server, dealt);
        }
        self.under_way
            .take_if(|under_way| under_way.task == task && !under_way.learn(took_ns, result));
        let trials = &mut self.tasks.entry(task).or_default().trials;
        trials.push(TrialHistory {
            took_ns,
            result: result.into(),
        });
        News::Trial(task, result)
    }
}

impl UnderWay {
    /// The rate of its next trial, if there is one more.
    pub fn next_rate(&self, plan: &Plan) -> Option<u64> {
        match &self.search {
            Some(search) => search.next_rate(),
            None => {
                let rates = rates(plan, self.task, self.base_rate_qps.unwrap_or(0));
                rates.get(self.steps).copied()
            }
        }
    }

    /// Whether it goes on by a Tester that is certified up to this rate. A search whose ceiling is above
    /// that restarts, unless it needs no further trial: an answer between the two is no measurement.
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

    /// Takes in a trial, or says that it is none of this search.
    fn learn(&mut self, took_ns: Nanos, result: &TrialResult) -> bool {
        if let Some(search) = &mut self.search {
            if search.next_rate() != Some(result.rate_qps) {
                return false;
            }
            search.observe(&result.outcome);
        }
        self.trials += 1;
        self.took_ns = self.took_ns.saturating_add(took_ns);
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
