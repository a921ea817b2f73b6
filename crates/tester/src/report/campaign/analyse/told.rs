//! What a journal tells, sorted by what it is about.

use std::collections::BTreeMap;

use dns64_transport::clock::Nanos;

use crate::campaign::plan::Plan;
use crate::campaign::record::{CertificateConditions, Environment, Line, Record, VariantFacts};
use crate::campaign::tasks::Task;
use crate::procedure::search::{SearchEnd, SearchSpec};
use crate::trial::result::{Outcome, TrialResult};

/// The records of a journal, by subject.
pub(super) struct Told<'a> {
    pub(super) tester: &'a str,
    pub(super) plan_sha256: &'a str,
    pub(super) command: &'a [String],
    /// What each variant turned out to be, at each start that was recorded.
    pub(super) variants: Vec<Vec<&'a VariantFacts>>,
    pub(super) tasks: BTreeMap<Task, TaskTold<'a>>,
    pub(super) sessions: Vec<SessionTold<'a>>,
    pub(super) self_tests: Vec<SelfTestTold<'a>>,
    pub(super) complete: bool,
}

/// All records of a task.
#[derive(Default)]
pub(super) struct TaskTold<'a> {
    pub(super) search: Option<&'a SearchSpec>,
    pub(super) base_rate_qps: Option<u64>,
    pub(super) trials: Vec<TrialTold<'a>>,
    /// Trials of attempts before the last one, which count for nothing.
    pub(super) earlier: Vec<TrialTold<'a>>,
    pub(super) finished: Option<FinishedTold<'a>>,
    pub(super) abandoned: Option<&'a str>,
}

impl TaskTold<'_> {
    /// Time in its trials, earlier attempts included, by the monotonic clock.
    pub(super) fn took_ns(&self) -> Nanos {
        let all = self.earlier.iter().chain(&self.trials);
        all.map(|t| t.took_ns).sum()
    }
}

/// A record of a trial.
#[derive(Clone, Copy)]
pub(super) struct TrialTold<'a> {
    pub(super) took_ns: Nanos,
    pub(super) result: &'a TrialResult,
}

impl TrialTold<'_> {
    /// Resident memory of the DUT after the trial.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.result.resources.map(|r| r.memory_bytes)
    }
}

/// The record of the end of a task.
pub(super) struct FinishedTold<'a> {
    pub(super) end: Option<&'a SearchEnd>,
    pub(super) rate_qps: Option<u64>,
    pub(super) failed_qps: Option<u64>,
    pub(super) took_ns: Nanos,
}

/// A process that worked on the campaign.
pub(super) struct SessionTold<'a> {
    pub(super) began_unix_ms: u64,
    pub(super) torn_bytes: u64,
    pub(super) environment: &'a Environment,
    /// Its last word, if it had one.
    pub(super) ended: Option<&'a str>,
}

/// A record of a self-test.
pub(super) struct SelfTestTold<'a> {
    pub(super) conditions: &'a CertificateConditions,
    pub(super) end: &'a Outcome,
    pub(super) passed_rate_qps: Option<u64>,
    pub(super) certified_rate_qps: Option<u64>,
    pub(super) trials: &'a [TrialResult],
}

impl<'a> Told<'a> {
    /// Reads the lines in their order.
    pub(super) fn of(plan: &Plan, lines: &'a [Line]) -> Self {
        let mut told = Self {
            tester: "",
            plan_sha256: "",
            command: &[],
            variants: vec![Vec::new(); plan.variants.len()],
            tasks: BTreeMap::new(),
            sessions: Vec::new(),
            self_tests: Vec::new(),
            complete: false,
        };
        for line in lines {
            told.note(line);
        }
        told
    }

    /// All trials of the searches of a variant, and of its other tasks.
    pub(super) fn tasks_of<'s>(
        &'s self,
        wanted: impl Fn(usize) -> bool + 's,
    ) -> impl Iterator<Item = (Task, &'s TaskTold<'a>)> + 's {
        let tasks = self.tasks.iter().map(|(task, told)| (*task, told));
        tasks.filter(move |(task, _)| wanted(task.point()))
    }

    fn note(&mut self, line: &'a Line) {
        match &line.record {
            Record::Campaign {
                tester,
                plan_sha256,
                command,
                ..
            } => {
                self.tester = tester;
                self.plan_sha256 = plan_sha256;
                self.command = command;
            }
            Record::Session {
                environment,
                torn_bytes,
            } => self.sessions.push(SessionTold {
                began_unix_ms: line.at_unix_ms,
                torn_bytes: *torn_bytes,
                environment,
                ended: None,
            }),
            Record::SelfTest {
                conditions,
                end,
                passed_rate_qps,
                certified_rate_qps,
                trials,
            } => self.self_tests.push(SelfTestTold {
                conditions,
                end,
                passed_rate_qps: *passed_rate_qps,
                certified_rate_qps: *certified_rate_qps,
                trials,
            }),
            Record::Variant { variant, facts } => {
                if let Some(seen) = self.variants.get_mut(*variant) {
                    seen.push(facts);
                }
            }
            Record::Started { .. }
            | Record::Trial { .. }
            | Record::Finished { .. }
            | Record::Abandoned { .. } => self.note_task(&line.record),
            Record::Stopped { reason } => self.ended(reason),
            Record::Complete => {
                self.complete = true;
                self.ended("complete");
            }
        }
    }

    fn ended(&mut self, how: &'a str) {
        if let Some(session) = self.sessions.last_mut() {
            session.ended = Some(how);
        }
    }

    fn note_task(&mut self, record: &'a Record) {
        match record {
            Record::Started {
                task,
                search,
                base_rate_qps,
            } => {
                let told = self.tasks.entry(*task).or_default();
                let mut earlier = std::mem::take(&mut told.earlier);
                earlier.append(&mut told.trials);
                *told = TaskTold {
                    search: search.as_ref(),
                    base_rate_qps: *base_rate_qps,
                    earlier,
                    ..TaskTold::default()
                };
            }
            Record::Trial {
                task,
                took_ns,
                result,
                ..
            } => self.tasks.entry(*task).or_default().trials.push(TrialTold {
                took_ns: *took_ns,
                result,
            }),
            Record::Finished {
                task,
                end,
                rate_qps,
                failed_qps,
                took_ns,
            } => {
                self.tasks.entry(*task).or_default().finished = Some(FinishedTold {
                    end: end.as_ref(),
                    rate_qps: *rate_qps,
                    failed_qps: *failed_qps,
                    took_ns: *took_ns,
                });
            }
            Record::Abandoned { task, reason } => {
                self.tasks.entry(*task).or_default().abandoned = Some(reason);
            }
            _ => {}
        }
    }
}
