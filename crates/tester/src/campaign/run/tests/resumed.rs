//! Campaigns that another process continues, perhaps with another certificate.

use super::*;
use crate::lab::Blame;

/// Lines of a campaign that was interrupted in the fifth trial of its first search, at a ceiling of 50,000 queries/s,
/// and resumed after a reboot with a certificate for `certified_qps`.
fn resumed(certified_qps: u64) -> Vec<Line> {
    let directory = tempfile::tempdir().unwrap();
    let first = Task::Search { point: 0, run: 1 };
    let interrupted =
        Servers::new(
            move |assignment, number| match assignment.task == first && number == 5 {
                true => Fate::Interrupted,
                false => Fate::AsItIs,
            },
        );
    let ended = work(begin(directory.path()), interrupted);
    assert_eq!(ended, Err(BenchError::Interrupted));
    let (journal, before, _) = Journal::resume(directory.path()).unwrap();
    let again = Servers {
        boot: "c",
        certified_qps: Some(certified_qps),
        ..Servers::steady()
    };
    assert_eq!(work((before, journal), again), Ok(()));
    journal::read(directory.path()).unwrap().lines
}

fn first_search(lines: &[Line]) -> Vec<(u64, u64)> {
    let first = Task::Search { point: 0, run: 1 };
    let of_it = trials(lines)
        .into_iter()
        .filter(|(task, ..)| *task == first);
    of_it.map(|(_, number, rate)| (number, rate)).collect()
}

#[test]
fn search_above_a_lower_certificate_restarts_below_it() {
    let lines = resumed(3_000);
    assert_eq!(ceilings(&lines, 0)[..2], [Some(50_000), Some(3_000)]);
    assert_eq!(rates(&lines, 0), [Some(3_000); 4]);
    let expected = [(1, 50), (2, 1_000), (3, 2_000), (4, 4_000)];
    let again = [(1, 50), (2, 1_000), (3, 2_000), (4, 3_000)];
    assert_eq!(first_search(&lines), [&expected[..], &again].concat());
}

#[test]
fn search_within_the_certificate_continues() {
    for certified_qps in [50_000, 90_000] {
        let lines = resumed(certified_qps);
        assert_eq!(ceilings(&lines, 0)[..1], [Some(50_000)]);
        let trials = first_search(&lines);
        let numbers: Vec<u64> = trials.iter().map(|trial| trial.0).collect();
        assert!(numbers.is_sorted() && numbers.len() > 5, "{numbers:?}");
        assert!(rates(&lines, 0).iter().all(|rate| *rate > Some(4_900)));
    }
}

/// The error of a machine with too little memory for a trial.
pub(super) fn lacks_memory() -> RigError {
    let memory = Blame::Machine.error("a trial needs 16384 MiB of memory and 512 MiB are free");
    memory.into()
}

#[test]
fn task_for_which_the_machine_lacked_memory_is_tried_again() {
    let (_, lines) = whole(Servers::steady());
    let expected = trials(&lines);
    let directory = tempfile::tempdir().unwrap();
    let third = Task::Search { point: 1, run: 3 };
    let lacking =
        Servers::new(
            move |assignment, number| match assignment.task == third && number == 4 {
                true => Fate::LacksMemory,
                false => Fate::AsItIs,
            },
        );
    let ended = work(begin(directory.path()), lacking);
    assert!(matches!(ended, Err(BenchError::Bench(_))), "{ended:?}");
    let (journal, before, _) = Journal::resume(directory.path()).unwrap();
    assert_eq!(abandoned(&before), []);
    assert!(matches!(
        before.last().unwrap().record,
        Record::Stopped { .. }
    ));
    assert_eq!(work((before, journal), Servers::steady()), Ok(()));
    let after = journal::read(directory.path()).unwrap().lines;
    assert_eq!(trials(&after), expected);
    assert!(matches!(after.last().unwrap().record, Record::Complete));
}

#[test]
fn interrupted_campaign_can_be_resumed() {
    let mut calls = 0;
    let (ended, lines) = whole(Servers::new(move |_, _| {
        calls += 1;
        if calls > 40 {
            Fate::Interrupted
        } else {
            Fate::AsItIs
        }
    }));
    assert_eq!(ended, Err(BenchError::Interrupted));
    let last = &lines.last().unwrap().record;
    assert!(matches!(last, Record::Stopped { reason } if reason == "interrupted"));
}

#[test]
fn conformance_of_each_variant_is_tested_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut told = Vec::new();
    let told_of = |status: &Status| told.extend(status.message.clone());
    watched(begin(directory.path()), Servers::steady(), &mut { told_of }).unwrap();
    told.retain(|message| message.starts_with("testing the conformance of "));
    assert_eq!(told.len(), 2, "{told:?}");
    let lines = journal::read(directory.path()).unwrap().lines;
    let tested = lines.iter().filter_map(|line| match &line.record {
        Record::Variant {
            variant,
            conformance: Some(_),
            ..
        } => Some(*variant),
        _ => None,
    });
    assert_eq!(tested.collect::<Vec<_>>(), [0, 1]);
}
