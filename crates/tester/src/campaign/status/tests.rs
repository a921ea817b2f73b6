use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use super::*;
use crate::campaign::record::{
    CertificateConditions, Environment, Line, Record, SelfTest, TaskEnd,
};
use crate::procedure::search::Bracket;
use crate::procedure::simulated::result;
use crate::trial::fault::TesterFault;
use crate::trial::result::Outcome;

const RUN_1: Task = Task::Search { point: 0, run: 1 };

/// A status, updated from the state of its campaign.
struct Watched {
    status: Status,
    state: State,
}

impl Deref for Watched {
    type Target = Status;

    fn deref(&self) -> &Status {
        &self.status
    }
}

impl DerefMut for Watched {
    fn deref_mut(&mut self) -> &mut Status {
        &mut self.status
    }
}

/// A campaign of two points and three runs at its beginning.
fn begun() -> Watched {
    let text = "[search]\nruns = 3\n[[dut]]\nprofile = \"unbound\"\n[[dut]]\nprofile = \"bind\"\n";
    let plan = Plan::parse("x.toml", text).unwrap();
    let names = [("unbound", "AAAA 0 %"), ("bind", "AAAA 0 %")];
    let names = names.map(|(variant, cell)| (variant.to_owned(), cell.to_owned()));
    Watched {
        status: Status {
            names: Arc::from(names),
            runs: 3,
            tasks: 7,
            ..Status::default()
        },
        state: State::new(&plan),
    }
}

/// Applies records one second apart, from second 1.
fn apply(watched: &mut Watched, records: Vec<Record>) {
    for (number, record) in (0..).zip(records) {
        let at_unix_ms = (number + 1) * 1000;
        let line = Line {
            number,
            at_unix_ms,
            record,
        };
        watched.state.apply(&line);
        watched.status.apply(&line);
    }
    watched.status.count(&watched.state, None);
}

fn started(task: Task) -> Record {
    Record::Started {
        task,
        search: None,
        base_rate_qps: None,
    }
}

fn trial(task: Task, rate_qps: u64, outcome: Outcome) -> Record {
    Record::Trial {
        task,
        number: 1,
        took_ns: 0,
        result: result(rate_qps, outcome),
    }
}

fn finished(task: Task, end: SearchEnd, rate_qps: Option<u64>) -> Record {
    Record::Finished(TaskEnd {
        end: Some(end),
        rate_qps,
        took_ns: 5_000_000_000,
        ..TaskEnd::of(task)
    })
}

fn failed() -> Outcome {
    Outcome::Failed { shortfall: 1 }
}

fn fault() -> TesterFault {
    TesterFault::ReceiveDrops { datagrams: 3 }
}

#[test]
fn a_search_shows_its_bracket_and_its_run() {
    let mut status = begun();
    let records = vec![
        started(RUN_1),
        trial(RUN_1, 1000, Outcome::Passed),
        trial(RUN_1, 4000, failed()),
        trial(RUN_1, 2000, failed()),
        trial(RUN_1, 1500, Outcome::Invalid(fault())),
        trial(RUN_1, 1500, Outcome::Passed),
    ];
    apply(&mut status, records);
    assert_eq!(status.phase, Phase::Search);
    assert_eq!(status.variant.as_deref(), Some("unbound"));
    assert_eq!(status.cell.as_deref(), Some("AAAA 0 %"));
    assert_eq!(status.run, Some((1, 3)));
    assert_eq!(
        (status.passed_qps, status.failed_qps),
        (Some(1500), Some(2000))
    );
    assert_eq!((status.trials, status.invalid_trials), (5, 1));
    assert_eq!(status.message, Some(fault().to_string()));
}

#[test]
fn last_trials_of_a_task_are_kept_until_the_next_begins() {
    let mut status = begun();
    let mut records = vec![
        started(RUN_1),
        trial(RUN_1, 1000, Outcome::Passed),
        trial(RUN_1, 4000, failed()),
        trial(RUN_1, 2000, Outcome::Invalid(fault())),
    ];
    apply(&mut status, records.clone());
    let told = |status: &Status| -> Vec<_> {
        let tried = status.tried.iter();
        tried.map(|t| (t.number, t.rate_qps, t.outcome)).collect()
    };
    assert_eq!(
        told(&status),
        [
            (1, 1000, "passed"),
            (2, 4000, "failed"),
            (3, 2000, "invalid")
        ]
    );
    records = (0..20)
        .map(|rate| trial(RUN_1, rate, Outcome::Passed))
        .collect();
    apply(&mut status, records);
    assert_eq!(status.tried.len(), TRIED_MAX);
    assert_eq!(told(&status)[TRIED_MAX - 1], (23, 19, "passed"));
    apply(
        &mut status,
        vec![started(Task::Search { point: 0, run: 2 })],
    );
    assert_eq!(status.tried, []);
}

#[test]
fn a_later_verdict_at_odds_with_the_bracket_replaces_it() {
    let mut status = begun();
    let records = vec![
        started(RUN_1),
        trial(RUN_1, 2000, failed()),
        trial(RUN_1, 3000, Outcome::Passed),
    ];
    apply(&mut status, records);
    assert_eq!((status.passed_qps, status.failed_qps), (Some(3000), None));
    apply(&mut status, vec![trial(RUN_1, 2500, failed())]);
    assert_eq!((status.passed_qps, status.failed_qps), (None, Some(2500)));
}

#[test]
fn runs_of_a_point_are_grouped() {
    let mut status = begun();
    let run = |run| Task::Search { point: 0, run };
    let other = Task::Search { point: 1, run: 1 };
    let records = vec![
        finished(run(1), SearchEnd::Found, Some(300)),
        finished(other, SearchEnd::NothingPasses, None),
        finished(run(2), SearchEnd::Found, Some(100)),
        finished(run(3), SearchEnd::Found, Some(101)),
        Record::Finished(TaskEnd {
            rate_qps: Some(5),
            took_ns: 1,
            ..TaskEnd::of(Task::Overload { point: 0 })
        }),
    ];
    apply(&mut status, records);
    assert_eq!(status.tasks_done, 5);
    let expected = Found {
        variant: "unbound".into(),
        cell: "AAAA 0 %".into(),
        rates_qps: vec![300, 100, 101],
        median_qps: 101.0,
        lower_bound: false,
    };
    assert_eq!(status.found, [expected]);
    let limited = SearchEnd::LimitedByRequest { rate_qps: 400 };
    apply(&mut status, vec![finished(run(4), limited, Some(400))]);
    assert!(status.found[0].lower_bound);
}

#[test]
fn the_last_task_says_how_it_ended() {
    let mut status = begun();
    let limited = SearchEnd::LimitedByTester { rate_qps: 9000 };
    apply(&mut status, vec![finished(RUN_1, limited, Some(9000))]);
    let done = Done {
        at_unix_ms: 1000,
        variant: "unbound".into(),
        cell: "AAAA 0 %".into(),
        task: "run 1 of 3".into(),
        rate_qps: Some(9000),
        remark: Some("at least: the Tester is not certified for more".into()),
        took_ns: Some(5_000_000_000),
    };
    assert_eq!(status.last, Some(done));
    let task = Task::Soak { point: 1 };
    let reason = "bind ended".to_owned();
    apply(&mut status, vec![Record::Abandoned { task, reason }]);
    let last = status.last.as_ref().unwrap();
    assert_eq!(
        (last.variant.as_str(), last.task.as_str()),
        ("bind", "soak")
    );
    assert_eq!(last.remark.as_deref(), Some("given up: bind ended"));
    assert_eq!((last.rate_qps, last.took_ns), (None, None));
    assert_eq!(status.tasks_done, 2);
}

#[test]
fn a_certificate_is_shown_until_the_next() {
    let conditions = CertificateConditions {
        boot_id: String::new(),
        kernel: String::new(),
        lab: String::new(),
        authority: String::new(),
        threads: 1,
        sockets: None,
        cpus: Vec::new(),
        names: String::new(),
        cell: String::new(),
        duration_ns: 1,
        timeout_ns: 1,
        ..CertificateConditions::default()
    };
    let self_test = |certified_rate_qps| {
        Record::SelfTest(SelfTest {
            conditions: Box::new(conditions.clone()),
            end: Outcome::Passed,
            passed_rate_qps: None,
            certified_rate_qps,
            trials: Vec::new(),
        })
    };
    let mut status = begun();
    apply(&mut status, vec![self_test(Some(80_000)), started(RUN_1)]);
    assert_eq!(status.certified_qps, Some(80_000));
    apply(&mut status, vec![self_test(None)]);
    assert_eq!(status.certified_qps, None);
    assert_eq!(
        status.message.as_deref(),
        Some("the Tester failed its self-test")
    );
}

#[test]
fn stopped_campaign_gives_the_reason_until_a_new_session() {
    let mut status = begun();
    let records = vec![
        started(RUN_1),
        trial(RUN_1, 1000, Outcome::Passed),
        Record::Stopped {
            reason: "interrupted".into(),
        },
    ];
    apply(&mut status, records);
    assert_eq!(status.phase, Phase::Over);
    assert_eq!(status.message.as_deref(), Some("stopped: interrupted"));
    let session = Record::Session {
        environment: Box::new(Environment {
            details: BTreeMap::new(),
            ..Environment::default()
        }),
        torn_bytes: 0,
        tester: String::new(),
        tester_sha256: None,
    };
    apply(&mut status, vec![session]);
    assert_eq!(status.phase, Phase::Preparing);
    assert_eq!(status.started_unix_ms, 1000);
    assert_eq!((status.trials, status.message.as_ref()), (1, None));
}

#[test]
fn events_show_the_current_trial() {
    let mut status = begun();
    status.enter(Phase::SelfTest);
    let started = Event::TrialStarted {
        rate_qps: 500,
        number: 2,
    };
    status.observe(&started, 7000, 2_000_000_000);
    let now = TrialNow {
        rate_qps: 500,
        number: 2,
        started_unix_ms: 7000,
        length_ns: 2_000_000_000,
    };
    assert_eq!(status.trial, Some(now));
    status.observe(
        &Event::TrialFinished(&result(500, Outcome::Passed)),
        9000,
        0,
    );
    assert_eq!(status.trial, None);
    let bracket = Bracket {
        passed_qps: Some(500),
        failed_qps: None,
        resolution_qps: 1,
    };
    status.observe(&Event::Bracket(bracket), 9000, 0);
    assert_eq!((status.passed_qps, status.failed_qps), (Some(500), None));
    let repeat = Event::Repeat {
        fault: &fault(),
        attempt: 1,
        of: 3,
    };
    status.observe(&repeat, 9000, 0);
    assert!(
        status
            .message
            .as_ref()
            .unwrap()
            .starts_with("repeat 1 of 3: the Measurer's sockets lost 3")
    );
}

#[test]
fn repeated_search_counts_once() {
    let mut status = begun();
    let disturbed = || finished(RUN_1, SearchEnd::TesterFault { fault: fault() }, None);
    apply(&mut status, vec![started(RUN_1), disturbed()]);
    assert_eq!(status.tasks_done, 0, "it will be done again");
    apply(&mut status, vec![started(RUN_1), disturbed()]);
    let again = vec![started(RUN_1), finished(RUN_1, SearchEnd::Found, Some(9))];
    apply(&mut status, again);
    assert_eq!(status.tasks_done, 1);
    assert_eq!(status.found[0].rates_qps, [9]);
}

#[test]
fn task_of_an_unknown_point_has_no_name() {
    let mut status = begun();
    apply(&mut status, vec![started(Task::Soak { point: 99 })]);
    assert_eq!(status.variant.as_deref(), Some(""));
}
