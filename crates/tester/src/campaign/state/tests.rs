use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;

use super::*;
use crate::campaign::journal::tests::{conditions, octets_of};
use crate::campaign::journal::{JOURNAL_FILE, Journal};
use crate::campaign::plan::Plan;
use crate::campaign::record::{Line, Record, SelfTest, TaskEnd};
use crate::load::names::NameRange;
use crate::namespace::DEFAULT_NAMESPACE;
use crate::procedure::search::{Resolution, Search, SearchSpec, reuse};
use crate::procedure::simulated::{result, threshold};
use crate::trial::fault::TesterFault;
use crate::trial::result::Outcome;

fn plan(runs: u32) -> Plan {
    let text = format!(
        "[search]\nruns = {runs}\n[overload]\n[soak]\nlength = \"1h\"\n\
         [[dut]]\nprofile = \"unbound\"\n\
         [[dut]]\nprofile = \"bind\"\n"
    );
    Plan::parse("plan.toml", &text).unwrap()
}

fn search(point: usize, run: u32) -> Task {
    Task::Search { point, run }
}

fn line(record: Record) -> Line {
    Line {
        number: 0,
        at_unix_ms: 0,
        record,
    }
}

fn folded(plan: &Plan, records: impl IntoIterator<Item = Record>) -> State {
    let mut state = State::new(plan);
    for record in records {
        state.apply(&line(record));
    }
    state
}

fn started(task: Task) -> Record {
    Record::Started {
        task,
        search: matches!(task, Task::Search { .. }).then(|| SearchSpec::from_start(100)),
        base_rate_qps: None,
    }
}

fn trial(task: Task, rate_qps: u64, outcome: Outcome) -> Record {
    Record::Trial {
        task,
        number: 1,
        took_ns: 3,
        result: result(rate_qps, outcome),
    }
}

fn finished(task: Task, rate_qps: Option<u64>) -> Record {
    Record::Finished(TaskEnd {
        rate_qps,
        took_ns: 10,
        ..TaskEnd::of(task)
    })
}

fn abandoned(task: Task) -> Record {
    Record::Abandoned {
        task,
        reason: "it died".to_owned(),
    }
}

fn disturbed() -> Outcome {
    Outcome::Invalid(TesterFault::NotSent { queries: 1 })
}

/// The next record of a controller that knows only the state. DUTs and disturbances are random, from the seed.
fn next(state: &State, seed: u64) -> Option<Record> {
    if state.complete {
        return None;
    }
    let Some(task) = state.next_task() else {
        return Some(Record::Complete);
    };
    let lot = |what: u64, of: u64| {
        let mut hasher = DefaultHasher::new();
        (seed, task, what).hash(&mut hasher);
        hasher.finish() % of
    };
    let Some(under_way) = &state.under_way else {
        let hopeless = state.abandoned_in_row(task.point()) >= 2;
        return Some(if hopeless || lot(0, 5) == 0 {
            abandoned(task)
        } else {
            begin(state, task)
        });
    };
    let rate_qps = match &under_way.search {
        Some(search) => search.next_rate(),
        None => under_way
            .base_rate_qps
            .filter(|_| under_way.steps < 4)
            .map(|base| base * (under_way.steps as u64 + 1)),
    };
    let Some(rate_qps) = rate_qps else {
        return Some(Record::Finished(TaskEnd {
            end: under_way
                .search
                .as_ref()
                .and_then(|s| s.finished().cloned()),
            rate_qps: under_way.search.as_ref().and_then(Search::answer),
            took_ns: under_way.took_ns,
            ..TaskEnd::of(task)
        }));
    };
    let number = under_way.trials + 1;
    let outcome = match lot(number, 4) {
        0 => disturbed(),
        _ => threshold(9_000 + lot(number + 1_000, 300), rate_qps),
    };
    Some(Record::Trial {
        task,
        number,
        took_ns: lot(number + 2_000, 99),
        result: result(rate_qps, outcome),
    })
}

fn begin(state: &State, task: Task) -> Record {
    let resolution = Resolution::Absolute { qps: 20 };
    let known = reuse(&state.rates_qps(task.point()), resolution);
    let spec = SearchSpec {
        resolution,
        first_step_qps: known.map(|(_, step)| step),
        ..SearchSpec::from_start(known.map_or(1_000, |(start, _)| start))
    };
    let is_search = matches!(task, Task::Search { .. });
    Record::Started {
        task,
        search: is_search.then_some(spec),
        base_rate_qps: state.median_rate_qps(task.point()),
    }
}

/// Continues to the end and returns the records.
fn go_on(state: &mut State, seed: u64) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some(record) = next(state, seed) {
        state.apply(&line(record.clone()));
        records.push(record);
    }
    records
}

fn texts<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<String> {
    let text = |record: &Record| serde_json::to_string(record).unwrap();
    records.into_iter().map(text).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn kill_at_any_octet_does_not_change_the_tasks(
        seed in any::<u64>(),
        runs in 1u32..6,
        cuts in proptest::collection::vec(0.0..1.0f64, 1..4),
    ) {
        let plan = plan(runs);
        let mut calm = State::new(&plan);
        let whole = go_on(&mut calm, seed);
        prop_assert_eq!(calm.tasks_over(), plan.tasks.len());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(JOURNAL_FILE);
        let mut records = whole.clone();
        let mut state = State::new(&plan);
        for cut in cuts {
            let octets = octets_of(records);
            let first = octets.iter().position(|&octet| octet == b'\n').unwrap() + 1;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a random position")]
            let cut = first + ((octets.len() - first) as f64 * cut) as usize;
            fs::write(&path, &octets[..cut]).unwrap();
            let (_, lines, _) = Journal::resume(dir.path()).unwrap();
            state = State::new(&plan);
            calm.apply(&lines[0]);
            lines.iter().for_each(|line| state.apply(line));
            records = lines.into_iter().skip(1).map(|line| line.record).collect();
            state.apply(&line(Record::Stopped { reason: "killed".to_owned() }));
            records.extend(go_on(&mut state, seed));
        }
        prop_assert_eq!(texts(&records), texts(&whole));
        prop_assert_eq!(format!("{state:?}"), format!("{calm:?}"));
    }
}

#[test]
fn tasks_run_in_order_after_the_current_one() {
    let plan = plan(2);
    let mut state = State::new(&plan);
    assert_eq!(state.next_task(), Some(search(0, 1)));
    state.apply(&line(started(search(0, 2))));
    assert_eq!(state.next_task(), Some(search(0, 2)));
    state.apply(&line(finished(search(0, 2), Some(50))));
    state.apply(&line(abandoned(search(0, 1))));
    assert_eq!(state.next_task(), Some(search(1, 1)));
    assert!(
        state.tasks[&search(0, 1)].abandoned.is_some() && !state.left().contains(&search(0, 1))
    );
    assert!(state.rates_qps(0) == [50] && !state.left().contains(&search(0, 2)));
    for task in plan.tasks.clone() {
        state.apply(&line(finished(task, None)));
    }
    assert_eq!(state.next_task(), None);
    assert!(!state.complete, "the journal does not say so yet");
    state.apply(&line(Record::Complete));
    assert!(state.complete);
}

#[test]
fn rates_are_in_the_order_of_the_runs() {
    let found = [(3, Some(30)), (1, Some(10)), (4, None), (2, Some(21))];
    let state = folded(
        &plan(4),
        found.map(|(run, rate)| finished(search(1, run), rate)),
    );
    assert_eq!(state.rates_qps(1), [10, 21, 30]);
    assert_eq!(state.median_rate_qps(1), Some(21));
    assert_eq!(state.rates_qps(0), [0; 0]);
    assert_eq!(state.median_rate_qps(0), None);
    let took = |run| (search(1, run), 10);
    assert_eq!(state.done(), [1, 2, 3, 4].map(took));
}

#[test]
fn search_continues_with_its_earlier_outcomes() {
    let task = search(0, 1);
    let records = [
        started(task),
        trial(task, 100, Outcome::Passed),
        trial(task, 200, disturbed()),
        Record::Stopped {
            reason: "asked to".to_owned(),
        },
    ];
    let state = folded(&plan(1), records.clone());
    let under_way = state.under_way.as_ref().unwrap();
    assert_eq!(under_way.search.as_ref().unwrap().next_rate(), Some(200));
    assert_eq!((under_way.trials, under_way.took_ns), (2, 6));
    assert_eq!((state.trials, state.invalid_trials), (2, 1));
    let again = folded(&plan(1), records.into_iter().chain([started(task)]));
    assert_eq!(again.under_way.unwrap().trials, 0);
    assert_eq!(again.trials, 2, "both trials count");
}

#[test]
fn unrequested_trial_does_not_affect_the_search() {
    let task = search(0, 1);
    let state = folded(&plan(1), [started(task), trial(task, 150, Outcome::Passed)]);
    assert!(state.under_way.is_none());
    assert_eq!(state.next_task(), Some(task), "it restarts");
    let other = folded(
        &plan(1),
        [started(task), trial(search(1, 1), 100, Outcome::Passed)],
    );
    assert_eq!(other.under_way.unwrap().trials, 0);
}

#[test]
fn disturbed_factors_are_repeated_and_segments_are_not() {
    let steps = |task, outcomes: &[Outcome]| {
        let trials = outcomes.iter().map(|o| trial(task, 100, o.clone()));
        let state = folded(&plan(1), std::iter::once(started(task)).chain(trials));
        state.under_way.as_ref().unwrap().steps
    };
    let overload = Task::Overload { point: 0 };
    let failed = Outcome::Failed { shortfall: 1 };
    assert_eq!(steps(overload, &[Outcome::Passed, failed.clone()]), 2);
    assert_eq!(steps(overload, &[disturbed(), disturbed(), disturbed()]), 0);
    assert_eq!(steps(overload, &vec![disturbed(); 4]), 1);
    assert_eq!(steps(overload, &[disturbed(), failed, disturbed()]), 1);
    let soak = Task::Soak { point: 0 };
    assert_eq!(steps(soak, &[disturbed(), Outcome::Passed]), 2);
}

#[test]
fn self_tests_under_equal_conditions_count_until_they_expire() {
    let at = |at_unix_ms, duration_ns, certified_rate_qps| Line {
        number: 0,
        at_unix_ms,
        record: Record::SelfTest(SelfTest {
            conditions: Box::new(conditions(duration_ns)),
            end: match certified_rate_qps {
                Some(_) => Outcome::Passed,
                None => Outcome::Failed { shortfall: 1 },
            },
            passed_rate_qps: None,
            certified_rate_qps,
            trials: vec![],
        }),
    };
    let mut state = State::new(&plan(1));
    for line in [
        at(0, 1, Some(12)),
        at(5, 1, Some(10)),
        at(6, 2, Some(20)),
        at(7, 1, Some(11)),
    ] {
        state.apply(&line);
    }
    let rates = |state: &State, now| state.self_test_rates(&conditions(1), now);
    assert_eq!(rates(&state, CERTIFICATE_AGE_MAX_MS), [12, 10, 11]);
    assert_eq!(rates(&state, CERTIFICATE_AGE_MAX_MS + 5), [10, 11]);
    assert_eq!(rates(&state, CERTIFICATE_AGE_MAX_MS + 8), [0; 0]);
    // Setting the clock back makes nothing older.
    assert_eq!(rates(&state, 0), [12, 10, 11]);
    assert_eq!(state.self_test_rates(&conditions(2), 8), [20]);
    assert_eq!(state.self_test_rates(&conditions(3), 8), [0; 0]);
    let mut faster = conditions(1);
    faster.host.insert("turbo".to_owned(), "on".to_owned());
    assert_eq!(state.self_test_rates(&faster, 8), [0; 0]);
    let mut rebuilt = conditions(1);
    rebuilt.tester_sha256 = Some("dd".to_owned());
    assert_eq!(state.self_test_rates(&rebuilt, 8), [0; 0]);
    state.apply(&at(8, 1, None));
    state.apply(&at(9, 1, Some(9)));
    assert_eq!(rates(&state, 9), [9]);
}

#[test]
fn searches_at_the_tester_limit_require_more_self_tests() {
    let limited = |run, end| {
        Record::Finished(TaskEnd {
            end: Some(end),
            rate_qps: Some(10),
            took_ns: 10,
            ..TaskEnd::of(search(0, run))
        })
    };
    let records = [
        limited(1, SearchEnd::LimitedByTester { rate_qps: 10 }),
        limited(2, SearchEnd::Found),
        limited(3, SearchEnd::LimitedByTester { rate_qps: 10 }),
    ];
    let state = folded(&plan(3), records);
    let wanted = |planned, point| state.self_tests_wanted(planned, point);
    assert_eq!((wanted(3, 0), wanted(1, 0), wanted(3, 1)), (5, 2, 3));
}

#[test]
fn finished_task_resets_the_abandoned_count() {
    let mut state = folded(
        &plan(3),
        [
            abandoned(search(0, 1)),
            abandoned(search(1, 1)),
            abandoned(search(0, 2)),
        ],
    );
    assert_eq!(
        (state.abandoned_in_row(0), state.abandoned_in_row(1)),
        (2, 1)
    );
    state.apply(&line(finished(search(0, 3), None)));
    assert_eq!(
        (state.abandoned_in_row(0), state.abandoned_in_row(1)),
        (0, 1)
    );
}

#[test]
fn names_of_a_running_server_continue_after_complete_and_cut_off_trials() {
    let text = "[trial]\nduration = \"1s\"\n[search]\nruns = 1\n[overload]\nfactors = [3]\n\
                [[dut]]\nserver = \"2001:db8::53\"\n[[dut]]\nprofile = \"unbound\"\n";
    let plan = Plan::parse("plan.toml", text).unwrap();
    let server = "[2001:db8::53]:53".parse().unwrap();
    let mut state = State::new(&plan);
    let mut used = |record: Record| {
        state.apply(&line(record));
        let begin = state.names.begin(Some(server), DEFAULT_NAMESPACE);
        (begin.at, begin.used)
    };
    let session = || Record::Session {
        environment: Box::default(),
        torn_bytes: 0,
        tester: String::new(),
        tester_sha256: None,
    };
    let of = |task, rate_qps, first| {
        let mut record = trial(task, rate_qps, Outcome::Passed);
        if let Record::Trial { result, .. } = &mut record {
            result.names = Some(NameRange {
                namespace: DEFAULT_NAMESPACE,
                begin: 500,
                first,
                fresh: rate_qps,
            });
        }
        record
    };
    assert_eq!(used(session()), (0, 0));
    assert_eq!(used(started(search(0, 1))), (0, 0));
    // The first trial would have had 100 queries.
    assert_eq!(used(session()), (0, 100));
    assert_eq!(used(of(search(0, 1), 100, 500)), (500, 100));
    // The next trial would have had 200 queries.
    assert_eq!(used(session()), (500, 300));
    assert_eq!(used(of(search(0, 1), 200, 800)), (500, 500));
    assert_eq!(used(finished(search(0, 1), Some(200))), (500, 500));
    assert_eq!(used(session()), (500, 500), "no trial was running");
    // A trial at three times the rate, during which the bench failed.
    let overload = Task::Overload { point: 0 };
    let base_rate_qps = Some(200);
    used(Record::Started {
        task: overload,
        search: None,
        base_rate_qps,
    });
    assert_eq!(used(abandoned(overload)), (500, 1100));
    // A restarted DUT has an empty cache.
    used(started(search(1, 1)));
    assert_eq!(used(of(search(1, 1), 100, 7)), (500, 1100));
}
