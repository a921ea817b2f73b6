//! Checks whether the conclusions of a journal follow from the evidence in it.
//!
//! Seals show that lines are unchanged, but anyone who rewrites a journal can compute new seals. The audit therefore
//! recomputes everything that follows from other lines, with the code that ran the campaign: the counts of each trial
//! (`trials`), each self-test from its trials (`selftests`), and the next rate of each search. Tasks must have the
//! order of the driver, must use the rates and certificates (`certificates`) of earlier lines and the hosts of the plan
//! (`hosts`), and no figure may be missing (`missing`).
//! Figures that follow from single queries, such as percentiles, are only compared with each other. No computation can
//! show whether the trials ever took place.

mod certificates;
mod hosts;
mod missing;
mod selftests;
mod trials;

use std::collections::BTreeSet;

use dns64_transport::clock::Nanos;

use super::facts::grave;
use super::history::SessionHistory;
use super::plan::Plan;
use super::plan::tasks::{Point, Task, point_name, search_spec};
use super::record::{Line, Record, SelfTest, TaskEnd, VariantFacts};
use super::state::State;
use crate::load::pace::Pacing;
use crate::procedure::search::{Search, SearchSpec};
use crate::procedure::selftest::self_test_timeout;
use crate::quantity::Thousands;
use crate::rig::spec::Subject;
use crate::trial::result::TrialResult;
use certificates::{is_of, rates};

/// Numbers of recomputed and consistent items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// Trials, including those of self-tests, whose verdict follows from their counts.
    pub trials: u64,
    /// Searches whose rates and end follow from the outcomes of their trials.
    pub searches: u64,
    /// Self-tests whose certificate follows from their trials.
    pub certificates: u64,
}

/// A line that contradicts itself or earlier lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the journal is inconsistent: {what}")]
pub struct Contradiction {
    /// Number of the line, from 1.
    pub line: u64,
    /// The statement, and what the evidence shows.
    pub what: String,
}

/// Recomputes all conclusions of a campaign by `plan` from the trials in `lines`.
///
/// # Errors
///
/// The first line that contradicts the evidence: later lines depend on it.
pub fn audit(plan: &Plan, lines: &[Line]) -> Result<Audited, Contradiction> {
    let mut audit = Audit::new(plan);
    for line in lines {
        audit.now_unix_ms = line.at_unix_ms;
        let faults = audit.faults(&line.record);
        if !faults.is_empty() {
            let (line, what) = (line.number + 1, faults.join("; "));
            return Err(Contradiction { line, what });
        }
        audit.state.apply(line);
        let is_start = matches!(line.record, Record::Variant { .. } | Record::Started { .. });
        if !is_start {
            audit.idle_unix_ms = line.at_unix_ms;
        }
    }
    Ok(audit.audited)
}

/// State of the audit before a line.
struct Audit<'a> {
    plan: &'a Plan,
    /// What the driver would know.
    state: State,
    /// Time at which the current line was written.
    now_unix_ms: u64,
    /// Time at which the last line was written that is not a start of servers or of a task: the certificate of the next
    /// task was looked up after it.
    idle_unix_ms: u64,
    /// Possible ceilings of the task in progress; `None` until this process continues it.
    in_force: Option<Vec<Option<u64>>>,
    /// Variants whose facts the active process has recorded; `None` if no process is active.
    at_work: Option<BTreeSet<usize>>,
    /// Search in whose last trial the DUT has exited, in this process.
    died_in: Option<Task>,
    audited: Audited,
}

impl<'a> Audit<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            state: State::new(plan),
            now_unix_ms: 0,
            idle_unix_ms: 0,
            in_force: None,
            at_work: None,
            died_in: None,
            audited: Audited::default(),
        }
    }

    /// Returns what is wrong with the next record.
    fn faults(&mut self, record: &Record) -> Vec<String> {
        if self.state.complete {
            return vec!["the campaign was complete before".to_owned()];
        }
        let begins = matches!(record, Record::Campaign { .. } | Record::Session { .. });
        if self.at_work.is_none() && !begins {
            return vec!["no session precedes it".to_owned()];
        }
        if let Some(task) = record
            .task()
            .filter(|task| task.point() >= self.plan.points.len())
        {
            return vec![format!("the plan has no point {}", task.point())];
        }
        match record {
            Record::Session { .. } => {
                self.at_work = Some(BTreeSet::new());
                self.in_force = None;
                self.died_in = None;
                Vec::new()
            }
            Record::SelfTest(test) => self.self_test(test),
            Record::Variant { variant, facts, .. } => self.variant(*variant, facts),
            Record::Started {
                task,
                search,
                base_rate_qps,
            } => self.started(*task, search.as_ref(), *base_rate_qps),
            Record::Trial {
                task,
                number,
                took_ns,
                result,
            } => self.trial(*task, *number, *took_ns, result),
            Record::Finished(end) => self.finished(end),
            Record::Abandoned { task, .. } => {
                self.died_in = None;
                self.in_turn(*task).into_iter().collect()
            }
            Record::Stopped { .. } => {
                self.at_work = None;
                Vec::new()
            }
            Record::Campaign { .. } => Vec::new(),
            Record::Complete => {
                let left = self.state.next_task();
                let left =
                    left.map(|task| format!("it is called complete before {}", self.name(task)));
                left.into_iter().collect()
            }
        }
    }

    fn variant(&mut self, variant: usize, facts: &VariantFacts) -> Vec<String> {
        let Some(starts) = self.state.variants.get(variant) else {
            return vec![format!("the plan has no variant {variant}")];
        };
        if let Some(grave) = starts.last().and_then(|before| grave(before, facts)) {
            let name = &self.plan.variants[variant].name;
            return vec![format!("{name} is measured on after a change: {grave}")];
        }
        self.at_work.get_or_insert_default().insert(variant);
        Vec::new()
    }

    fn self_test(&mut self, test: &SelfTest) -> Vec<String> {
        let is_own = self.session().is_some_and(|session| is_of(test, session));
        let in_lab = !test.conditions.lab.is_empty();
        let of_points = self.plan.points.iter().filter(|point| {
            let subject = self.subject(point);
            let is_dut = !subject.is_authority() && subject.lab().is_some() == in_lab;
            is_dut && test.conditions.fit(point)
        });
        let of_points: Vec<&Point> = of_points.collect();
        if !is_own {
            let what = "a self-test of another machine or program, or from before the machine was restarted";
            return vec![what.to_owned()];
        }
        if test.trials.iter().any(|trial| self.has_other_limits(trial)) {
            return vec!["the limits of its trials are not those of the plan".to_owned()];
        }
        let timers = test.trials.iter();
        if timers.filter_map(|t| t.timing.self_correcting).count() > 0 {
            return vec!["a self-test is never paced by the self-correcting timer".to_owned()];
        }
        let Some(&&point) = of_points.first() else {
            return vec!["a self-test for no point of the plan".to_owned()];
        };
        let earlier = self.state.self_tests.iter().map(|it| &it.test);
        let alike = earlier.filter(|earlier| earlier.conditions == test.conditions);
        let near_qps: BTreeSet<u64> = alike.filter_map(|test| test.certified_rate_qps).collect();
        let near_qps: Vec<u64> = near_qps.into_iter().collect();
        if let Some(what) = selftests::contradiction(self.plan, test, &near_qps) {
            return vec![what];
        }
        let otherwise = test.trials.iter().zip(1..).find_map(|(trial, number)| {
            let what = self.missing(&point, trial);
            let what = what.or_else(|| self.named_otherwise(None, &point, trial));
            what.map(|what| format!("trial {number} of the self-test: {what}"))
        });
        let otherwise = otherwise.or_else(|| self.self_test_elsewhere(&of_points, test));
        if let Some(what) = otherwise {
            return vec![what];
        }
        self.audited.trials += test.trials.len() as u64;
        self.audited.certificates += u64::from(test.certified_rate_qps.is_some());
        Vec::new()
    }

    fn started(
        &mut self,
        task: Task,
        search: Option<&SearchSpec>,
        base_rate_qps: Option<u64>,
    ) -> Vec<String> {
        let ceiling_qps = search.and_then(|spec| spec.ceiling_qps);
        if let Some(under_way) = &self.state.under_way {
            let begins_anew = under_way.task == task && !under_way.goes_on(ceiling_qps);
            if !begins_anew || self.in_force.is_some() {
                let other = self.name(under_way.task);
                return vec![format!("{} begins before {other} is over", self.name(task))];
            }
        }
        let point = self.point(task);
        if let Some(fault) = self.in_turn(task) {
            return vec![fault];
        }
        let wants_search = task.is_search();
        let base_due_qps = match wants_search {
            true => None,
            false => self.state.median_rate_qps(task.point()),
        };
        let mut faults = Vec::new();
        if base_rate_qps != base_due_qps {
            let (is, due) = (rate(base_rate_qps), rate(base_due_qps));
            let name = self.name(task);
            faults.push(format!(
                "the base of {name} is {is}, and the searches give {due}"
            ));
        }
        self.in_force = Some(match search {
            Some(_) => vec![ceiling_qps],
            None => self.ceilings(task, point),
        });
        match search {
            Some(spec) if wants_search => faults.extend(self.spec(task, point, spec)),
            Some(_) => faults.push(format!("{} is no search", self.name(task))),
            None if wants_search => faults.push(format!("{} has no rates", self.name(task))),
            None => {}
        }
        faults
    }

    /// Returns the contradiction if the next task is not the expected one.
    fn in_turn(&self, task: Task) -> Option<String> {
        let due = self.state.next_task();
        (due != Some(task)).then(|| {
            let due = due.map_or("nothing more".to_owned(), |due| self.name(due));
            format!("{} where {due} is due", self.name(task))
        })
    }

    /// The rate selection of a search must follow from the plan, the certificate and earlier runs.
    fn spec(&self, task: Task, point: &Point, spec: &SearchSpec) -> Option<String> {
        let ceilings = self.ceilings(task, point);
        if !ceilings.contains(&spec.ceiling_qps) {
            return Some(format!(
                "{} has a ceiling of {}, and the self-tests under its conditions certify {}",
                self.name(task),
                rate(spec.ceiling_qps),
                rates(&ceilings)
            ));
        }
        let before = self.state.rates_qps(task.point());
        let due = search_spec(self.plan, task, spec.ceiling_qps, &before);
        let [is, due] = [spec, &due].map(|spec| serde_json::to_value(spec).unwrap_or_default());
        let keys = [&due, &is].into_iter().filter_map(|spec| spec.as_object());
        let wrong = keys.flat_map(|keys| keys.keys());
        let wrong = wrong.into_iter().find(|key| is[*key] != due[*key])?;
        Some(format!(
            "{} has {wrong} {}, and by the plan and the runs before it is {}",
            self.name(task),
            is[wrong],
            due[wrong]
        ))
    }

    fn trial(
        &mut self,
        task: Task,
        number: u64,
        took_ns: Nanos,
        result: &TrialResult,
    ) -> Vec<String> {
        self.take_up(task);
        let mut faults: Vec<String> = self.misplaced(task, number, result).into_iter().collect();
        faults.extend(trials::contradiction(result));
        let too_long = took_ns > trials::COUNT_MAX;
        faults.extend(too_long.then(|| format!("it took {took_ns} ns, which is impossible")));
        if faults.is_empty() {
            let point = self.point(task);
            let fault = self
                .certified_otherwise(point, result)
                .or_else(|| self.missing(point, result))
                .or_else(|| self.elsewhere(point, result))
                .or_else(|| self.named_otherwise(Some(task), point, result))
                .or_else(|| trials::too_short(result, took_ns));
            faults.extend(fault);
        }
        if faults.is_empty() {
            // Only results whose figures are in range count.
            self.audited.trials += 1;
        }
        let died = result.dut_exit.is_some() && task.is_search();
        self.died_in = died.then_some(task);
        for fault in &mut faults {
            *fault = format!("trial {number} of {}: {fault}", self.name(task));
        }
        faults
    }

    /// Why this trial cannot be the next one.
    fn misplaced(&self, task: Task, number: u64, result: &TrialResult) -> Option<String> {
        let under_way = self.state.under_way.as_ref();
        let Some(under_way) = under_way.filter(|under_way| under_way.task == task) else {
            return Some("its task is not in progress".to_owned());
        };
        let point = self.point(task);
        if self.died_in == Some(task) {
            return Some(
                "the DUT had ended in the trial before, so the search was over".to_owned(),
            );
        }
        let mut in_force = self.in_force.iter().flatten();
        if !in_force.any(|&to| under_way.goes_on(to)) {
            let to = rates(self.in_force.as_deref().unwrap_or_default());
            return Some(format!(
                "its search should have restarted: the Tester is certified to {to}"
            ));
        }
        if number != under_way.trials + 1 {
            let due = under_way.trials + 1;
            return Some(format!(
                "trial {due} was expected: trials are missing, or were added"
            ));
        }
        let due_qps = self.state.next_rate().map(|rate_qps| rate_qps.max(1));
        if due_qps != Some(result.rate_qps) {
            let (is, due) = (Thousands(result.rate_qps), rate(due_qps));
            return Some(format!("it is at {is} queries/s, and {due} is due"));
        }
        if !self
            .at_work
            .as_ref()
            .is_some_and(|known| known.contains(&point.variant))
        {
            return Some("its servers were not started by this process".to_owned());
        }
        self.asked_otherwise(task, point, result)
    }

    /// Returns how a trial differs from the trials that the plan specifies for this point.
    fn asked_otherwise(&self, task: Task, point: &Point, result: &TrialResult) -> Option<String> {
        let is_authority = self.subject(point).is_authority();
        let timeout_ns = match is_authority {
            true => self_test_timeout(point.timeout_ns),
            false => point.timeout_ns,
        };
        let under_way = self.state.under_way.as_ref();
        let search = under_way.and_then(|under_way| under_way.search.as_ref());
        let own_ns = search.and_then(Search::next).and_then(|(_, own_ns)| own_ns);
        let spans = (own_ns.unwrap_or(point.duration_ns), timeout_ns);
        if (result.duration_ns, result.timeout_ns) != spans {
            return Some("its duration and timeout are not those of the plan".to_owned());
        }
        if self.has_other_limits(result) {
            return Some("its limits are not those of the plan".to_owned());
        }
        let pacing = match result.timing.self_correcting {
            Some(_) => Pacing::SelfCorrecting,
            None => Pacing::Absolute,
        };
        if self.plan.variants[point.variant].pacing != pacing {
            return Some(format!(
                "its pacing is {pacing}, which is not that of the plan"
            ));
        }
        let searched = matches!(task, Task::Search { .. });
        let may_stop = is_authority || searched && self.plan.search.stop_early;
        if result.ended_early && !may_stop && result.outcome.is_valid() {
            return Some("it ended early, which it must not".to_owned());
        }
        None
    }

    /// Whether the limits beyond which a trial is invalid differ from those of the plan.
    fn has_other_limits(&self, trial: &TrialResult) -> bool {
        trial.timing.limits != self.plan.load.limits
    }

    fn finished(&mut self, end: &TaskEnd) -> Vec<String> {
        let name = self.name(end.task);
        let under_way = self.state.under_way.as_ref();
        let Some(under_way) = under_way.filter(|under_way| under_way.task == end.task) else {
            return vec![format!("{name} ended without being in progress")];
        };
        if self.died_in == Some(end.task) {
            return vec![format!(
                "{name} has an end, and the DUT ended in its last trial"
            )];
        }
        let fault = match &under_way.search {
            Some(search) => {
                self.audited.searches += 1;
                end_of_search(search, end)
            }
            None => self.state.next_rate().map_or_else(
                || {
                    (end.end.is_some() || end.rate_qps.or(end.failed_qps).is_some())
                        .then(|| "has the end of a search".to_owned())
                },
                |due_qps| Some(format!("ended before its trial at {}", rate(Some(due_qps)))),
            ),
        };
        let took = (end.took_ns != under_way.took_ns).then(|| took(end.took_ns, under_way.took_ns));
        let faults = fault.into_iter().chain(took);
        faults.map(|fault| format!("{name} {fault}")).collect()
    }

    /// The active process.
    fn session(&self) -> Option<&SessionHistory> {
        self.state.sessions.last()
    }

    fn subject(&self, point: &Point) -> &Subject {
        &self.plan.variants[point.variant].subject
    }

    fn point(&self, task: Task) -> &'a Point {
        &self.plan.points[task.point()]
    }

    fn name(&self, task: Task) -> String {
        let (variant, cell) = point_name(self.plan, self.point(task));
        format!("{task} of {variant}, {cell}")
    }
}

/// Returns how the end of a search differs from the recomputed one.
fn end_of_search(search: &Search, end: &TaskEnd) -> Option<String> {
    let Some(due) = search.finished() else {
        let next = rate(search.next_rate());
        return Some(format!("ended before its trial at {next}"));
    };
    if end.end.as_ref() != Some(due) {
        return Some(format!(
            "ended {}, and by its trials {}",
            word(end.end.as_ref()),
            word(Some(due))
        ));
    }
    let bracket = search.bracket();
    if end.goals != search.goals() {
        return Some("has results of goals that do not follow from its trials".to_owned());
    }
    for (what, is, due) in [
        ("the answer", end.rate_qps, search.answer()),
        ("the rate that failed", end.failed_qps, bracket.failed_qps),
    ] {
        if is != due {
            let (is, due) = (rate(is), rate(due));
            return Some(format!("has {is} as {what}, and its trials give {due}"));
        }
    }
    None
}

/// An end in the spelling of the journal.
fn word(end: Option<&impl serde::Serialize>) -> String {
    let value = end.and_then(|end| serde_json::to_value(end).ok());
    value.map_or_else(|| "without an end".to_owned(), |value| value.to_string())
}

fn took(is: Nanos, due: Nanos) -> String {
    format!("took {is} ns, and its trials took {due} ns")
}

fn rate(rate_qps: Option<u64>) -> String {
    rate_qps.map_or_else(
        || "no rate".to_owned(),
        |rate_qps| format!("{} queries/s", Thousands(rate_qps)),
    )
}

#[cfg(test)]
pub(crate) mod tests;
