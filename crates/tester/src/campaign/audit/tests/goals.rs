//! Journals with searches for goals, and forgeries of them.

use super::honest::{PLAN, Servers, written};
use super::*;
use crate::procedure::search::GoalResult;

/// The plan and the journal of a campaign with one run and two goals.
fn honest() -> (Plan, Vec<Line>) {
    let goals = "runs = 1\ngoals = [\"ndr\", \"loss=2%,exceed=50%,initial=1s,trial=4s,sum=8s\"]";
    let text = PLAN.replace("runs = 3", goals);
    let plan = Plan::parse("honest.toml", &text).unwrap();
    (plan, written(&text, [Servers::of(&text)]))
}

fn results(lines: &mut [Line]) -> &mut Vec<GoalResult> {
    let finished = lines.iter_mut().find_map(|line| match &mut line.record {
        Record::Finished(end) if !end.goals.is_empty() => Some(&mut end.goals),
        _ => None,
    });
    finished.unwrap()
}

fn is_goals(task: Task) -> bool {
    matches!(task, Task::Goals { .. })
}

#[test]
fn journal_with_goals_is_verified() {
    let (plan, mut lines) = honest();
    let audited = audit(&plan, &lines).unwrap();
    // One run and one search for goals of four points.
    assert_eq!(audited.searches, 8);
    let mut lengths = BTreeSet::new();
    for line in &lines {
        match &line.record {
            Record::Trial { task, result, .. } if is_goals(*task) => {
                lengths.insert(result.duration_ns / 1_000_000_000);
            }
            _ => {}
        }
    }
    assert_eq!(lengths, BTreeSet::from([1, 4]));
    let [strict, lossy] = &results(&mut lines)[..] else {
        panic!("two goals");
    };
    assert_eq!(strict.end, Some(SearchEnd::Found));
    // 5,000 queries per second without a loss, and 2 % more with one of 2 %.
    let lower = |it: &GoalResult| it.lower_qps.unwrap();
    assert!((4_975..=5_000).contains(&lower(strict)), "{strict:?}");
    assert!((5_000..=5_102).contains(&lower(lossy)), "{lossy:?}");
    assert!(lossy.throughput_qps.unwrap() <= 5_000);
}

#[test]
fn forged_goals_are_found() {
    let (plan, lines) = honest();
    let forgeries: [fn(&mut [Line]); 5] = [
        |lines| results(lines)[0].lower_qps = Some(5_001),
        |lines| results(lines)[1].throughput_qps = Some(6_000),
        |lines| {
            results(lines).pop();
        },
        |lines| {
            let spec = search_spec_of(lines, 1);
            spec.goals.push("pdr".parse().unwrap());
        },
        |lines| {
            let trial = lines.iter_mut().find_map(|line| match &mut line.record {
                Record::Trial { task, result, .. } if is_goals(*task) => Some(result),
                _ => None,
            });
            trial.unwrap().duration_ns *= 4;
        },
    ];
    for (number, forge) in forgeries.into_iter().enumerate() {
        let mut lines = lines.clone();
        forge(&mut lines);
        assert!(audit(&plan, &lines).is_err(), "forgery {number}");
    }
}
