//! Complete campaigns on simulated servers, with a manual clock and real journals.

mod resumed;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use dns64_transport::clock::{ManualClock, SECOND};

use super::*;
use crate::campaign::journal::{self, Beginning};
use crate::campaign::record::Environment;
use crate::lab::Blame;
use crate::procedure::search::SearchEnd;
use crate::procedure::simulated::{result, threshold};
use crate::rig::RigError;
use crate::trial::fault::TesterFault;
use crate::trial::result::Outcome;

const PLAN: &str = r#"
name = "simulated"
[trial]
duration = "1s"
timeout = "1s"
[search]
runs = 4
start-rate = "1k"
resolution = "1%"
[cells]
aaaa-share = ["0%", "100%"]
[[dut]]
profile = "unbound"
[[dut]]
profile = "bind"
[overload]
factors = [0.5, 2]
[soak]
share = "50%"
length = "3s"
[conformance]
"#;

/// Servers with a limit; faults are scripted by the number of the call.
struct Servers {
    /// Boot ID of their machine.
    boot: &'static str,
    /// Limit of the variant in the cell: by variant, and half of it without AAAA.
    limits_qps: [u64; 2],
    certified_qps: Option<u64>,
    /// Overrides a self-test, by its number from 1.
    self_test: Box<dyn FnMut(u32) -> Option<SelfTestResult>>,
    /// Rates at which the self-tests began.
    near_qps: Rc<RefCell<Vec<Option<u64>>>>,
    clock: ManualClock,
    assignment: Option<Assignment>,
    /// Overrides a trial before the servers handle it.
    fate: Fates,
    self_tests: u32,
}

type Fates = Box<dyn FnMut(&Assignment, u64) -> Fate>;

enum Fate {
    AsItIs,
    Dies,
    Disturbed,
    Interrupted,
    DoesNotStart,
    LacksMemory,
}

impl Servers {
    fn new(fate: impl FnMut(&Assignment, u64) -> Fate + 'static) -> Self {
        Self {
            boot: "b",
            limits_qps: [10_000, 4_000],
            certified_qps: Some(50_000),
            self_test: Box::new(|_| None),
            near_qps: Rc::default(),
            clock: ManualClock::default(),
            assignment: None,
            fate: Box::new(fate),
            self_tests: 0,
        }
    }

    fn steady() -> Self {
        Self::new(|_, _| Fate::AsItIs)
    }
}

/// A self-test that certifies this rate, or none.
fn found(certified_rate_qps: Option<u64>) -> SelfTestResult {
    SelfTestResult {
        end: match certified_rate_qps {
            Some(_) => Outcome::Passed,
            None => Outcome::Failed { shortfall: 7 },
        },
        wanted_rate_qps: None,
        passed_rate_qps: certified_rate_qps.map(|rate| rate * 11 / 5),
        certified_rate_qps,
        trials: Vec::new(),
    }
}

impl Bench for Servers {
    fn prepare(
        &mut self,
        assignment: &Assignment,
    ) -> Result<Option<CertificateConditions>, BenchError> {
        self.assignment = Some(*assignment);
        Ok(Some(CertificateConditions {
            boot_id: self.boot.into(),
            kernel: "k".into(),
            lab: "simulated".into(),
            authority: "built-in".into(),
            threads: 1,
            sockets: None,
            cpus: Vec::new(),
            names: "10.0.0.0/8".into(),
            cell: assignment.point.cell.to_string(),
            duration_ns: assignment.point.duration_ns,
            timeout_ns: assignment.point.timeout_ns,
            ..CertificateConditions::default()
        }))
    }

    fn conform(
        &mut self,
        _point: &Point,
        begins: &mut dyn FnMut(),
    ) -> Result<Option<Conformance>, BenchError> {
        begins();
        Ok(Some(Conformance::default()))
    }

    fn self_test(
        &mut self,
        _max_qps: Option<u64>,
        near_qps: Option<u64>,
        _observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTestResult>, BenchError> {
        self.self_tests += 1;
        self.near_qps.borrow_mut().push(near_qps);
        let scripted = (self.self_test)(self.self_tests);
        Ok(Some(scripted.unwrap_or_else(|| found(self.certified_qps))))
    }

    fn start(&mut self, _certified_rate_qps: Option<u64>) -> Result<VariantFacts, BenchError> {
        let assignment = self.assignment.unwrap();
        match (self.fate)(&assignment, 0) {
            Fate::DoesNotStart => {
                Err(RigError::from(Blame::Server.error("it does not start")).into())
            }
            _ => Ok(VariantFacts::default()),
        }
    }

    fn trial(
        &mut self,
        rate_qps: u64,
        duration_ns: Nanos,
        number: u64,
    ) -> Result<TrialResult, BenchError> {
        self.clock.advance(2 * SECOND);
        let assignment = self.assignment.unwrap();
        let mut limit_qps = self.limits_qps[assignment.point.variant];
        if assignment.point.cell.aaaa_share == crate::namespace::Share::NONE {
            limit_qps /= 2;
        }
        let mut result = result(rate_qps, threshold(limit_qps, rate_qps));
        result.duration_ns = duration_ns;
        match (self.fate)(&assignment, number) {
            Fate::AsItIs => {}
            Fate::Dies => result.dut_exit = Some("signal 11".into()),
            Fate::Disturbed => {
                result.outcome = Outcome::Invalid(TesterFault::ClockStep { step_ns: 3_600 });
            }
            Fate::Interrupted | Fate::DoesNotStart => return Err(RigError::Interrupted.into()),
            Fate::LacksMemory => return Err(resumed::lacks_memory().into()),
        }
        Ok(result)
    }

    fn rest(&mut self, span_ns: Nanos) {
        self.clock.advance(span_ns);
    }
}

fn plan() -> Plan {
    Plan::parse("simulated.toml", PLAN).unwrap()
}

fn begin(directory: &Path) -> (Vec<Line>, Journal) {
    let beginning = Beginning {
        tester: "dns64bench".into(),
        plan: PLAN.into(),
        plan_origin: "simulated.toml".into(),
        command: Vec::new(),
        lab: None,
    };
    let (journal, first) = Journal::create(directory, beginning).unwrap();
    (vec![first], journal)
}

fn work(begun: (Vec<Line>, Journal), bench: Servers) -> Result<(), BenchError> {
    watched(begun, bench, &mut |_| {})
}

fn watched(
    (lines, journal): (Vec<Line>, Journal),
    bench: Servers,
    watch: &mut dyn FnMut(&Status),
) -> Result<(), BenchError> {
    let plan = plan();
    let parts = Parts {
        lines,
        journal,
        clock: bench.clock.clone(),
        bench,
    };
    Campaign::new(&plan, parts, String::new(), watch).work()
}

/// Runs a complete campaign and returns what it recorded.
fn whole(servers: Servers) -> (Result<(), BenchError>, Vec<Line>) {
    let directory = tempfile::tempdir().unwrap();
    let ended = work(begin(directory.path()), servers);
    (ended, journal::read(directory.path()).unwrap().lines)
}

fn trials(lines: &[Line]) -> Vec<(Task, u64, u64)> {
    let trial = |line: &Line| match &line.record {
        Record::Trial {
            task,
            number,
            result,
            ..
        } => Some((*task, *number, result.rate_qps)),
        _ => None,
    };
    lines.iter().filter_map(trial).collect()
}

fn rates(lines: &[Line], of: usize) -> Vec<Option<u64>> {
    let rate = |line: &Line| match &line.record {
        Record::Finished(TaskEnd {
            task: Task::Search { point, .. },
            rate_qps,
            ..
        }) if *point == of => Some(*rate_qps),
        _ => None,
    };
    lines.iter().filter_map(rate).collect()
}

fn abandoned(lines: &[Line]) -> Vec<(Task, String)> {
    let reason = |line: &Line| match &line.record {
        Record::Abandoned { task, reason } => Some((*task, reason.clone())),
        _ => None,
    };
    lines.iter().filter_map(reason).collect()
}

#[test]
fn every_run_finds_the_limit_of_the_server() {
    let (ended, lines) = whole(Servers::steady());
    assert_eq!(ended, Ok(()));
    for (point, limit_qps) in [5_000, 10_000, 2_000, 4_000].into_iter().enumerate() {
        let found = rates(&lines, point);
        assert_eq!(found.len(), 4);
        for rate in found {
            let rate = rate.unwrap();
            assert!(
                rate <= limit_qps && rate + rate / 100 + 1 > limit_qps,
                "{rate}"
            );
        }
    }
    let of = |task| {
        let rates = trials(&lines)
            .into_iter()
            .filter(move |(of, ..)| *of == task);
        rates.map(|(_, _, rate)| rate).collect::<Vec<_>>()
    };
    let base = rates(&lines, 0)[0].unwrap();
    let overload = of(Task::Overload { point: 0 });
    assert_eq!(overload.len(), 2);
    assert!(overload[1].abs_diff(2 * base) <= base / 50, "{overload:?}");
    assert_eq!(of(Task::Soak { point: 2 }).len(), 3);
}

#[test]
fn later_runs_begin_where_earlier_ones_ended() {
    let (_, lines) = whole(Servers::steady());
    let of_run = |run| {
        let task = Task::Search { point: 1, run };
        trials(&lines).iter().filter(|(of, ..)| *of == task).count()
    };
    assert!(of_run(4) < of_run(1), "{} {}", of_run(1), of_run(4));
}

#[test]
fn campaign_killed_anywhere_resumes_with_equal_results() {
    let (_, lines) = whole(Servers::steady());
    let expected = trials(&lines);
    for kept in (1..lines.len()).step_by(7) {
        let directory = tempfile::tempdir().unwrap();
        let (_, journal) = begin(directory.path());
        drop(journal);
        let (mut journal, _, _) = Journal::resume(directory.path()).unwrap();
        for line in &lines[1..kept] {
            journal.append(line.record.clone()).unwrap();
        }
        journal
            .append(Record::Session {
                environment: Box::new(Environment::default()),
                torn_bytes: 0,
                tester: String::new(),
                tester_sha256: None,
            })
            .unwrap();
        drop(journal);
        let (journal, before, _) = Journal::resume(directory.path()).unwrap();
        let ended = work((before, journal), Servers::steady());
        assert_eq!(ended, Ok(()));
        let after = journal::read(directory.path()).unwrap().lines;
        assert_eq!(trials(&after), expected, "killed after {kept} lines");
    }
}

#[test]
fn dut_that_exits_in_a_run_has_no_result_for_it() {
    let third = Task::Search { point: 2, run: 3 };
    let (ended, lines) = whole(Servers::new(move |assignment, number| {
        if assignment.task == third && number == 2 {
            Fate::Dies
        } else {
            Fate::AsItIs
        }
    }));
    assert_eq!(ended, Ok(()));
    assert_eq!(rates(&lines, 2).len(), 3);
    assert_eq!(rates(&lines, 0).len(), 4);
    let abandoned = abandoned(&lines);
    let [(task, reason)] = abandoned.as_slice() else {
        panic!("{abandoned:?}")
    };
    assert_eq!(*task, third);
    assert!(reason.contains("signal 11"), "{reason}");
}

#[test]
fn dut_that_does_not_start_is_abandoned_and_others_are_measured() {
    let (ended, lines) = whole(Servers::new(|assignment, _| {
        match assignment.point.variant {
            1 => Fate::DoesNotStart,
            _ => Fate::AsItIs,
        }
    }));
    assert_eq!(ended, Ok(()));
    assert_eq!(rates(&lines, 0).len(), 4);
    assert!(rates(&lines, 2).is_empty());
    let reasons: Vec<_> = abandoned(&lines).into_iter().map(|(_, r)| r).collect();
    assert_eq!(
        reasons.iter().filter(|r| *r == "it does not start").count(),
        3
    );
    assert!(
        reasons[3..].iter().all(|r| r.contains("abandoned: ")),
        "{reasons:?}"
    );
}

#[test]
fn disturbed_trial_is_repeated_and_has_no_effect() {
    let mut disturbed = 0;
    let (_, lines) = whole(Servers::new(move |_, number| {
        disturbed += 1;
        if number == 3 && disturbed % 2 == 0 {
            Fate::Disturbed
        } else {
            Fate::AsItIs
        }
    }));
    for (point, limit_qps) in [5_000, 10_000, 2_000, 4_000].into_iter().enumerate() {
        for rate in rates(&lines, point) {
            let rate = rate.unwrap();
            assert!(
                rate <= limit_qps && rate + rate / 100 + 1 > limit_qps,
                "{rate}"
            );
        }
    }
}

#[test]
fn no_trial_runs_without_a_certificate() {
    let mut servers = Servers::steady();
    servers.certified_qps = None;
    let (_, lines) = whole(servers);
    assert!(trials(&lines).is_empty());
    let abandoned = abandoned(&lines);
    assert!(abandoned[0].1.contains("self-test"), "{abandoned:?}");
}

#[test]
fn certificate_is_the_ceiling_and_is_reused() {
    let mut servers = Servers::steady();
    servers.certified_qps = Some(3_000);
    let (_, lines) = whole(servers);
    let ends: Vec<_> = lines
        .iter()
        .filter_map(|line| match &line.record {
            Record::Finished(TaskEnd {
                task: Task::Search { point: 1, .. },
                end,
                ..
            }) => end.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(
        ends,
        vec![SearchEnd::LimitedByTester { rate_qps: 3_000 }; 4]
    );
    let self_tests = lines
        .iter()
        .filter(|line| matches!(line.record, Record::SelfTest { .. }));
    // Three for each of the two cells, shared by the DUTs. Each point limited by the Tester has one more before the run
    // that follows, three at most.
    assert_eq!(self_tests.count(), 6 + 6);
}

fn self_tests(lines: &[Line]) -> Vec<Option<u64>> {
    let certified = |line: &Line| match &line.record {
        Record::SelfTest(test) => Some(test.certified_rate_qps),
        _ => None,
    };
    lines.iter().filter_map(certified).collect()
}

/// Ceilings of the searches of a point, in order.
fn ceilings(lines: &[Line], of: usize) -> Vec<Option<u64>> {
    let ceiling = |line: &Line| match &line.record {
        Record::Started {
            task: Task::Search { point, .. },
            search: Some(search),
            ..
        } if *point == of => Some(search.ceiling_qps),
        _ => None,
    };
    lines.iter().filter_map(ceiling).collect()
}

#[test]
fn the_lowest_of_three_self_tests_is_the_ceiling() {
    let mut servers = Servers::steady();
    servers.self_test = Box::new(|number| {
        let rates = [82_000, 75_000, 80_000];
        Some(found(Some(rates[(number as usize - 1) % 3])))
    });
    let near_qps = Rc::clone(&servers.near_qps);
    let (ended, lines) = whole(servers);
    assert_eq!(ended, Ok(()));
    let found = [82_000, 75_000, 80_000].map(Some);
    assert_eq!(self_tests(&lines), [found, found].concat());
    let near = [None, Some(82_000), Some(82_000)];
    assert_eq!(*near_qps.borrow(), [near, near].concat());
    for point in 0..4 {
        assert_eq!(ceilings(&lines, point), [Some(75_000); 4]);
    }
}

#[test]
fn added_self_tests_never_raise_the_ceiling() {
    let mut servers = Servers::steady();
    // After the three of the plan, a self-test with a higher result and one with a lower result.
    servers.self_test = Box::new(|number| {
        let rate = match number {
            1..=6 => 3_000,
            7 => 60_000,
            _ => 2_900,
        };
        Some(found(Some(rate)))
    });
    let (ended, lines) = whole(servers);
    assert_eq!(ended, Ok(()));
    // The seventh is the one that is added for point 0 before its second run.
    let after = |n: usize| [vec![Some(3_000); n], vec![Some(2_900); 4 - n]].concat();
    assert_eq!(ceilings(&lines, 0), after(2));
    assert_eq!(ceilings(&lines, 1), after(1));
}

#[test]
fn disturbed_self_test_is_repeated_until_the_limit() {
    let disturbed = || SelfTestResult {
        end: Outcome::Invalid(TesterFault::ClockStep { step_ns: 1 }),
        ..found(None)
    };
    let mut servers = Servers::steady();
    servers.self_test = Box::new(move |number| (number == 2).then(disturbed));
    let (ended, lines) = whole(servers);
    assert_eq!((ended, abandoned(&lines)), (Ok(()), Vec::new()));
    assert_eq!(self_tests(&lines).len(), 3 + 1 + 3);
    let mut servers = Servers::steady();
    servers.self_test = Box::new(move |_| Some(disturbed()));
    let (_, lines) = whole(servers);
    assert!(trials(&lines).is_empty());
    // Each task runs three and is abandoned; after three tasks a variant is not tried again.
    assert_eq!(self_tests(&lines).len(), 2 * 3 * 3);
}

#[test]
fn expired_certificate_is_renewed() {
    let (_, mut lines) = whole(Servers::steady());
    let half = lines.len() / 2;
    lines.truncate(half);
    let resumed = |age_ms: u64| {
        let directory = tempfile::tempdir().unwrap();
        let (_, journal) = begin(directory.path());
        let mut before = lines.clone();
        for line in &mut before {
            line.at_unix_ms = unix_ms() - age_ms;
        }
        assert_eq!(work((before, journal), Servers::steady()), Ok(()));
        let after = journal::read(directory.path()).unwrap().lines;
        self_tests(&after).len()
    };
    assert_eq!(self_tests(&lines).len(), 6);
    let hour_ms = 60 * 60 * 1000;
    assert_eq!(resumed(11 * hour_ms), 0);
    assert_eq!(resumed(13 * hour_ms), 6);
}

#[test]
fn disturbed_run_is_repeated_at_the_end() {
    let second = Task::Search { point: 0, run: 2 };
    let mut hits = 0;
    let (ended, lines) = whole(Servers::new(move |assignment, number| {
        if assignment.task == second && number > 0 && hits < 4 {
            hits += 1;
            Fate::Disturbed
        } else {
            Fate::AsItIs
        }
    }));
    assert_eq!(ended, Ok(()));
    let found = rates(&lines, 0);
    assert_eq!(found.len(), 5);
    assert_eq!(found.iter().filter(|rate| rate.is_none()).count(), 1);
    // No other task is left.
    assert!(found[4].is_some());
    let directory = tempfile::tempdir().unwrap();
    let always = Servers::new(move |assignment, number| {
        if assignment.task == second && number > 0 {
            Fate::Disturbed
        } else {
            Fate::AsItIs
        }
    });
    assert_eq!(work(begin(directory.path()), always), Ok(()));
    let lines = journal::read(directory.path()).unwrap().lines;
    assert_eq!(
        rates(&lines, 0)
            .iter()
            .filter(|rate| rate.is_none())
            .count(),
        3
    );
}

#[test]
fn repeated_run_counts_once_and_adds_time() {
    let second = Task::Search { point: 0, run: 2 };
    let mut hits = 0;
    let servers = Servers::new(move |assignment, number| {
        if assignment.task == second && number > 0 && hits < 4 {
            hits += 1;
            Fate::Disturbed
        } else {
            Fate::AsItIs
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let (mut tasks, mut left_before_the_last) = (0, None);
    watched(begin(directory.path()), servers, &mut |status| {
        assert!(status.tasks_done <= status.tasks);
        if status.tasks_done + 1 == status.tasks {
            left_before_the_last = status.left_ns;
        }
        tasks = status.tasks_done;
    })
    .unwrap();
    assert_eq!(tasks, 4 * 4 + 2 * 2);
    // A search of 17 trials of one second each remains.
    assert!(left_before_the_last.unwrap() > 10 * SECOND);
}
