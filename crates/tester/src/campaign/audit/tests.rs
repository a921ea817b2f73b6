//! Journals of the driver, and forgeries of them with valid seals.

mod certificates;
mod figures;
mod goals;
mod honest;
mod hosts;
mod kinds;
mod programs;

use std::fs;

use proptest::prelude::*;

pub(crate) use honest::honest;
use honest::{Servers, begin, plan, resume};
pub(crate) use kinds::{of_all_kinds, of_kind};

use super::*;
use crate::campaign::journal::tests::octets_of_lines;
use crate::campaign::journal::{self, JOURNAL_FILE, Journal};
use crate::campaign::run::BenchError;
use crate::load::pace::SelfCorrected;
use crate::procedure::search::SearchEnd;
use crate::trial::fault::TesterFault;
use crate::trial::judge::judge;
use crate::trial::result::Outcome;

/// Changed lines, numbered and sealed again.
pub(crate) fn resealed(mut lines: Vec<Line>) -> Vec<u8> {
    for (number, line) in (0..).zip(&mut lines) {
        line.number = number;
    }
    octets_of_lines(&lines)
}

/// The contradiction in a journal after a change, with recomputed seals.
fn first(change: impl FnOnce(&mut Vec<Line>)) -> String {
    let (plan, mut lines) = honest();
    change(&mut lines);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(JOURNAL_FILE), resealed(lines)).unwrap();
    // The seals are valid, so reading succeeds.
    let lines = journal::read(dir.path()).unwrap().lines;
    let found = audit(&plan, &lines).expect_err("the forgery was not noticed");
    found.to_string()
}

fn place(lines: &[Line], wanted: impl Fn(&Record) -> bool) -> usize {
    lines.iter().position(|line| wanted(&line.record)).unwrap()
}

fn is_trial_of(record: &Record, point: usize, run: u32, number: u64) -> bool {
    let search = Task::Search { point, run };
    matches!(record, Record::Trial { task, number: n, .. } if *task == search && *n == number)
}

/// A trial of a search. The first trial of point 0 passes; its fourth, at 8,000 queries/s, fails.
fn trial(lines: &mut [Line], run: u32, number: u64) -> (u64, &mut TrialResult) {
    let at = place(lines, |record| is_trial_of(record, 0, run, number));
    match &mut lines[at].record {
        Record::Trial { result, .. } => (at as u64 + 1, result),
        other => panic!("{other:?}"),
    }
}

/// The message after a change of a trial, without its beginning.
fn of_trial(run: u32, number: u64, change: impl FnOnce(&mut TrialResult)) -> String {
    let mut start = String::new();
    let said = first(|lines| {
        let (line, result) = trial(lines, run, number);
        start = format!(
            "line {line} of the journal is inconsistent: trial {number} of run {run} of \
             unbound, AAAA 0 %, cached 0 %: "
        );
        change(result);
    });
    said.strip_prefix(&start).unwrap_or(&said).to_owned()
}

fn self_test(lines: &mut [Line]) -> &mut SelfTest {
    let at = place(lines, |record| matches!(record, Record::SelfTest(_)));
    match &mut lines[at].record {
        Record::SelfTest(test) => test,
        other => panic!("{other:?}"),
    }
}

fn search_spec_of(lines: &mut [Line], run: u32) -> &mut SearchSpec {
    let search = Task::Search { point: 0, run };
    let is_start =
        |record: &Record| matches!(record, Record::Started { task, .. } if *task == search);
    let at = place(lines, is_start);
    match &mut lines[at].record {
        Record::Started {
            search: Some(spec), ..
        } => spec,
        other => panic!("{other:?}"),
    }
}

#[test]
fn journal_of_the_driver_is_verified() {
    let (plan, lines) = honest();
    let count = |wanted: fn(&Record) -> u64| lines.iter().map(|line| wanted(&line.record)).sum();
    let audited = audit(&plan, &lines).unwrap();
    let trials = count(|record| match record {
        Record::Trial { .. } => 1,
        Record::SelfTest(test) => test.trials.len() as u64,
        _ => 0,
    });
    // Three runs of four points; the DUT died in one of them.
    let expected = Audited {
        trials,
        searches: 11,
        certificates: 6,
    };
    assert_eq!(audited, expected);
    assert!(trials > 100, "{trials}");
}

#[test]
fn journal_resumed_after_a_kill_anywhere_is_verified() {
    let (plan, lines) = honest();
    for kept in (1..lines.len()).step_by(11) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join(JOURNAL_FILE),
            resealed(lines[..kept].to_vec()),
        )
        .unwrap();
        resume(dir.path(), Servers::new("-d", "aa")).unwrap();
        let resumed = journal::read(dir.path()).unwrap().lines;
        let audited = audit(&plan, &resumed);
        assert!(audited.is_ok(), "killed after {kept} lines: {audited:?}");
    }
}

#[test]
fn result_above_every_passed_rate_is_found() {
    let said = first(|lines| {
        let at = place(lines, |record| matches!(record, Record::Finished(_)));
        if let Record::Finished(end) = &mut lines[at].record {
            end.rate_qps = Some(39_999);
        }
    });
    let expected = "run 1 of unbound, AAAA 0 %, cached 0 % has 39,999 queries/s as the answer, and its trials \
                    give 5,000 queries/s";
    assert!(said.ends_with(expected), "{said}");
    let said = first(|lines| {
        let at = place(lines, |record| matches!(record, Record::Finished(_)));
        if let Record::Finished(end) = &mut lines[at].record {
            end.end = Some(SearchEnd::NothingPasses);
        }
    });
    let ends = r#"ended {"ended":"nothing_passes"}, and by its trials {"ended":"found"}"#;
    assert!(said.ends_with(ends), "{said}");
}

#[test]
fn verdict_that_contradicts_its_counts_is_found() {
    assert_eq!(
        of_trial(1, 5, |trial| trial.outcome = Outcome::Passed),
        "it is called passed, and by its figures it is failed by 30,000"
    );
    assert_eq!(
        of_trial(1, 5, |trial| trial.outcome =
            Outcome::Failed { shortfall: 1 }),
        "it is called failed by 1, and by its figures it is failed by 30,000"
    );
    assert_eq!(
        of_trial(1, 1, |trial| trial.outcome =
            Outcome::Failed { shortfall: 0 }),
        "it is called failed by 0, and by its figures it is passed"
    );
    let all_at_once = first(|lines| {
        for line in lines {
            if let Record::Trial { result, .. } = &mut line.record
                && matches!(result.outcome, Outcome::Failed { .. })
            {
                result.outcome = Outcome::Passed;
            }
        }
    });
    let fourth = "trial 5 of run 1 of unbound, AAAA 0 %, cached 0 %: it is called passed, and by its figures";
    assert!(all_at_once.contains(fourth), "{all_at_once}");
}

#[test]
fn failure_recorded_as_disturbance_is_found() {
    let is_invalid = |fault: TesterFault| {
        let said = of_trial(1, 5, |trial| {
            trial.outcome = Outcome::Invalid(fault.clone())
        });
        let what = fault.what();
        let due = "by its figures it is failed by 30,000";
        assert_eq!(said, format!("it is called invalid ({what}), and {due}"));
    };
    is_invalid(TesterFault::LateSchedule {
        lateness_ns: 30_000_000,
        limit_ns: 10_000_000,
        cause: None,
    });
    is_invalid(TesterFault::ReceiveDrops { datagrams: 1 });
    let error = "no such device".to_owned();
    is_invalid(TesterFault::Link { error });
    // Even with its figures it is not the expected next trial.
    let said = first(|lines| {
        let (_, result) = trial(lines, 1, 5);
        result.timing.lateness_ns_max = 30_000_000;
        result.outcome = judge(result);
    });
    let next = "trial 6 of run 1 of unbound, AAAA 0 %, cached 0 %: it is at 6,000 queries/s, and 8,000 \
                queries/s is due";
    assert!(said.ends_with(next), "{said}");
}

#[test]
fn trial_without_a_figure_of_its_verdict_is_found() {
    assert_eq!(
        of_trial(1, 5, |trial| trial.timing.rate_error = None),
        "it has no rate_error, which each trial of this program has"
    );
}

#[test]
fn measurement_after_a_change_of_the_server_is_found() {
    let said = first(|lines| {
        let at = place(lines, |record| matches!(record, Record::Variant { .. }));
        let mut again = lines[at].clone();
        if let Record::Variant { facts, .. } = &mut again.record {
            facts.program.command.push("-v".to_owned());
        }
        lines.insert(at + 1, again);
    });
    let change = "is measured on after a change: command was server -d, is server -d -v";
    assert!(said.ends_with(change), "{said}");
}

#[test]
fn trial_with_other_pacing_is_found() {
    let old = Some(SelfCorrected::default());
    assert_eq!(
        of_trial(1, 1, |trial| trial.timing.self_correcting = old),
        "its pacing is self-correcting, which is not that of the plan"
    );
    let said = first(|lines| self_test(lines).trials[0].timing.self_correcting = old);
    let never = "a self-test is never paced by the self-correcting timer";
    assert!(said.ends_with(never), "{said}");
}

#[test]
fn disturbance_recorded_as_pass_is_found() {
    assert_eq!(
        of_trial(1, 1, |trial| trial.timing.lateness_ns_max = 900_000_000),
        "it is called passed, and by its figures it is invalid (the sender was held up for 900.0 ms and the limit is \
         10.0 ms)"
    );
    assert_eq!(
        of_trial(1, 5, |trial| trial.tester_drops = 30_000),
        "the evidence of its losses lacks some of its counts"
    );
    let unsent = |trial: &mut TrialResult| {
        trial.queries_sent -= 1;
        trial.answers.valid -= 1;
    };
    assert_eq!(
        of_trial(1, 1, unsent),
        "1 queries that were due were not sent, but the kernel refused 0"
    );
    // A disturbed trial with the verdict of its counts.
    let shortfall = 6_250;
    assert_eq!(
        of_trial(2, 2, |trial| trial.outcome = Outcome::Failed { shortfall }),
        "it is called failed by 6,250, and by its figures it is invalid (the Measurer's sockets lost 6250 replies)"
    );
}

#[test]
fn impossible_counts_are_found() {
    assert_eq!(
        of_trial(1, 2, |trial| trial.answers.valid = 10_001),
        "10001 queries by verdict, and 10,000 were sent"
    );
    assert_eq!(
        of_trial(1, 2, |trial| trial.answers.late = u64::MAX),
        "its late is more than any trial has"
    );
    assert_eq!(
        of_trial(1, 2, |trial| trial.queries_due = 9_000),
        "9,000 queries were due by its figures; rate and duration give 10,000"
    );
    assert_eq!(
        of_trial(1, 2, |trial| trial.ended_early = true),
        "it ended early without a failure"
    );
    assert_eq!(
        of_trial(1, 2, |trial| trial.rtt.p99 = Some(1)),
        "the percentiles of its round-trip times do not rise"
    );
    assert_eq!(
        of_trial(1, 2, |trial| trial.rtt_percentiles.swap(0, 1)),
        "the percentiles of its round-trip times do not rise"
    );
    assert_eq!(
        of_trial(1, 2, |trial| {
            trial.rtt.max = Some(1_002_000_000);
            trial.rtt_percentiles.pop();
        }),
        "it has all answers in time, but its longest round-trip time is 1002000000 ns"
    );
    let counts = |trial: &mut TrialResult| trial.authority.as_mut().unwrap().answered += 1;
    assert_eq!(
        of_trial(1, 2, counts),
        "its authority answered 20001 of 20000 queries"
    );
    let shares = |trial: &mut TrialResult| trial.achieved.as_mut().unwrap().amplification = 1.0;
    assert_eq!(
        of_trial(1, 2, shares),
        "its achieved shares do not follow from the counts of its authority"
    );
}

#[test]
fn ceiling_without_matching_self_test_is_found() {
    let said = first(|lines| search_spec_of(lines, 1).ceiling_qps = Some(1_000));
    let certified = honest().1.iter().find_map(|line| match &line.record {
        Record::SelfTest(test) => test.certified_rate_qps,
        _ => None,
    });
    let expected = format!(
        "has a ceiling of 1,000 queries/s, and the self-tests under its conditions certify {}",
        rate(certified)
    );
    assert!(said.ends_with(&expected), "{said}");
}

#[test]
fn missing_or_overstated_self_test_is_found() {
    let without = |self_test: usize| {
        first(|lines| {
            let is_one = |line: &Line| matches!(line.record, Record::SelfTest(_));
            let mut all = (0..lines.len()).filter(|at| is_one(&lines[*at]));
            let at = all.nth(self_test).unwrap();
            lines.remove(at);
        })
    };
    // The second self-test begins where the first ended, and two are not enough.
    let said = without(0);
    assert!(said.contains("trial 1 of the self-test is at "), "{said}");
    let said = without(2);
    assert!(
        said.contains("the self-tests under its conditions certify no rate"),
        "{said}"
    );
    let said = first(|lines| self_test(lines).certified_rate_qps = Some(99_000));
    let expected = "the self-test certifies 99,000 queries/s, and by its trials ";
    assert!(said.contains(expected), "{said}");
    let said = first(|lines| self_test(lines).passed_rate_qps = Some(220_000));
    assert!(
        said.contains("the self-test passed at 220,000 queries/s, and by"),
        "{said}"
    );
    let said = first(|lines| {
        self_test(lines).trials.remove(2);
    });
    assert!(said.contains("trial 3 of the self-test is at "), "{said}");
    let said = first(|lines| {
        self_test(lines).trials.pop();
    });
    assert!(said.contains(" is missing"), "{said}");
    let said = first(|lines| {
        let test = self_test(lines);
        test.trials.push(test.trials[0].clone());
    });
    assert!(
        said.ends_with("the self-test was over 1 trials before its last"),
        "{said}"
    );
    let said = first(|lines| self_test(lines).trials[0].answers.valid += 1);
    assert!(
        said.contains("trial 1 of the self-test: 110001 queries by verdict"),
        "{said}"
    );
    let said = first(|lines| self_test(lines).conditions.boot_id = "c".to_owned());
    assert!(said.contains("a self-test of another machine"), "{said}");
}

#[test]
fn missing_and_added_trials_and_runs_are_found() {
    let said = first(|lines| {
        let at = place(lines, |record| is_trial_of(record, 0, 1, 3));
        lines.remove(at);
    });
    let due = "trial 4 of run 1 of unbound, AAAA 0 %, cached 0 %: trial 3 was expected: trials are missing, or were added";
    assert!(said.ends_with(due), "{said}");
    let said = first(|lines| {
        let at = place(lines, |record| is_trial_of(record, 0, 1, 3));
        lines.insert(at, lines[at].clone());
    });
    assert!(said.contains("trial 4 was expected"), "{said}");
    // A whole run.
    let said = first(|lines| {
        let second = Task::Search { point: 0, run: 2 };
        lines.retain(|line| match &line.record {
            Record::Started { task, .. } | Record::Trial { task, .. } => *task != second,
            Record::Finished(end) => end.task != second,
            _ => true,
        });
    });
    let order = "run 2 of unbound, AAAA 100 %, cached 0 % where run 2 of unbound, AAAA 0 %, cached 0 % is due";
    assert!(said.ends_with(order), "{said}");
    // The last trial of a search, with its number.
    let said = first(|lines| {
        let at = place(lines, |record| matches!(record, Record::Finished(_)));
        lines.remove(at - 1);
    });
    assert!(said.contains("ended before its trial at "), "{said}");
}

#[test]
fn rates_that_contradict_earlier_runs_are_found() {
    let said = first(|lines| search_spec_of(lines, 2).start_qps += 1);
    assert!(
        said.contains("run 2 of unbound, AAAA 0 %, cached 0 % has start_qps "),
        "{said}"
    );
    assert!(
        said.contains(", and by the plan and the runs before it is "),
        "{said}"
    );
    let said = first(|lines| {
        let overload = |record: &Record| {
            matches!(
                record,
                Record::Started {
                    task: Task::Overload { .. },
                    ..
                }
            )
        };
        let at = place(lines, overload);
        if let Record::Started { base_rate_qps, .. } = &mut lines[at].record {
            *base_rate_qps = Some(9_000);
        }
    });
    let base = "the base of overload curve of unbound, AAAA 0 %, cached 0 % is 9,000 queries/s, and the searches give ";
    assert!(said.contains(base), "{said}");
}

#[test]
fn completion_before_the_last_task_is_found() {
    let said = first(|lines| {
        let soak = Task::Soak { point: 2 };
        lines.retain(|line| match &line.record {
            Record::Started { task, .. } | Record::Trial { task, .. } => *task != soak,
            Record::Finished(end) => end.task != soak,
            _ => true,
        });
    });
    assert!(
        said.ends_with("it is called complete before soak of bind, AAAA 0 %, cached 0 %"),
        "{said}"
    );
    let said = first(|lines| lines.push(lines[2].clone()));
    assert!(said.ends_with("the campaign was complete before"), "{said}");
    let said = first(|lines| {
        lines.remove(1);
    });
    assert!(
        said.contains("line 2 of the journal") && said.contains("no session precedes it"),
        "{said}"
    );
}

#[test]
fn trials_without_started_server_or_after_dut_exit_are_found() {
    let said = first(|lines| lines.retain(|line| !matches!(line.record, Record::Variant { .. })));
    assert!(
        said.contains("certify no rate") || said.contains("not started"),
        "{said}"
    );
    let said = first(|lines| {
        let at = place(lines, |record| matches!(record, Record::Abandoned { .. }));
        lines.remove(at);
    });
    assert!(
        said.contains(" is due") || said.contains(" begins before "),
        "{said}"
    );
    let said = of_trial(1, 1, |trial| trial.dut_exit = Some("signal 9".to_owned()));
    assert!(
        said.contains("the DUT had ended in the trial before"),
        "{said}"
    );
    let certified = of_trial(1, 1, |trial| trial.timeout_ns += 1);
    assert_eq!(
        certified,
        "its duration and timeout are not those of the plan"
    );
}

proptest! {
    /// A change of any count of any trial is found.
    #[test]
    fn every_changed_count_is_found(which: prop::sample::Index, field in 0_usize..10, more in 1_u64..100_000) {
        let (plan, mut lines) = honest();
        let mut trials: Vec<(u64, &mut TrialResult)> = lines
            .iter_mut()
            .filter_map(|line| match &mut line.record {
                Record::Trial { result, .. } => Some((line.number + 1, result)),
                _ => None,
            })
            .collect();
        let index = which.index(trials.len());
        let (line, trial) = &mut trials[index];
        let a = &mut trial.answers;
        let fields = [
            &mut a.valid, &mut a.late, &mut a.wrong, &mut a.empty, &mut a.error, &mut a.truncated,
            &mut a.missing, &mut trial.undecided, &mut trial.queries_sent, &mut trial.queries_due,
        ];
        for (at, count) in fields.into_iter().enumerate() {
            *count += if at == field { more } else { 0 };
        }
        let line = *line;
        let found = audit(&plan, &lines).unwrap_err();
        prop_assert_eq!(found.line, line);
    }
}

#[test]
fn changed_server_is_not_measured_further() {
    let dir = tempfile::tempdir().unwrap();
    begin(dir.path());
    let (_, lines) = honest();
    let half = resealed(lines[..lines.len() / 2].to_vec());
    fs::write(dir.path().join(JOURNAL_FILE), half).unwrap();
    let error = resume(dir.path(), Servers::new("-v", "aa")).unwrap_err();
    let reason = "has changed since the campaign began: command was server -d, is server -v; restore it and \
                  continue with `dns64bench resume`, or run \
                  the plan in a new directory";
    let BenchError::Bench(said) = &error else {
        panic!("{error:?}")
    };
    assert!(said.ends_with(reason), "{said}");
    let stopped = journal::read(dir.path()).unwrap().lines;
    let [.., session, last] = &stopped[..] else {
        panic!("{stopped:?}")
    };
    assert!(
        matches!(session.record, Record::Session { .. }),
        "{session:?}"
    );
    assert!(matches!(&last.record, Record::Stopped { reason } if *reason == error.to_string()));
    // With the original server it continues; a profile that renders the same files is recorded.
    resume(dir.path(), Servers::new("-d", "ab")).unwrap();
    let lines = journal::read(dir.path()).unwrap().lines;
    assert!(audit(&plan(), &lines).is_ok());
    let told = State::of(&plan(), &lines).variants;
    let profiles: Vec<_> = told[0]
        .iter()
        .map(|facts| facts.program.profile_sha256.as_deref())
        .collect();
    assert_eq!(profiles, [Some("aa"), Some("ab")]);
    assert!(Journal::resume(dir.path()).is_ok());
}
