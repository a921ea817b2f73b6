//! Forged certificates.

use super::honest::written;
use super::*;

/// A campaign whose searches end at the limit of the Tester. Such an end requires an additional self-test: the fourth
/// of each point, which finds a lower limit.
fn limited() -> Vec<Line> {
    let tester_qps = |number| if number <= 6 { 9_000 } else { 8_000 };
    let servers = Servers {
        tester_qps,
        ..Servers::new("-d", "aa")
    };
    written(honest::PLAN, [servers])
}

#[test]
fn missing_self_test_after_tester_limit_is_found() {
    let (plan, mut lines) = (plan(), limited());
    let audited = audit(&plan, &lines);
    assert!(audited.is_ok(), "{audited:?}");
    let first = search_spec_of(&mut lines, 1).ceiling_qps;
    let second = search_spec_of(&mut lines, 2).ceiling_qps;
    assert!(second < first, "{second:?} {first:?}");
    let start = place(
        &lines,
        |record| matches!(record, Record::Started { task, .. } if *task == Task::Search { point: 0, run: 2 }),
    );
    // It is far below the others, so that it was repeated.
    for _ in 0..2 {
        let extra = lines[..start]
            .iter()
            .rposition(|line| matches!(line.record, Record::SelfTest(_)));
        lines.remove(extra.unwrap());
    }
    search_spec_of(&mut lines, 2).ceiling_qps = first;
    let found = audit(&plan, &lines).unwrap_err().to_string();
    assert!(
        found.ends_with("the self-tests under its conditions certify no rate"),
        "{found}"
    );
}

#[test]
fn trial_with_missing_or_wrong_certification_is_found() {
    let said = of_trial(1, 5, |trial| trial.certified = None);
    assert!(
        said.starts_with("it does not say whether the Tester was certified"),
        "{said}"
    );
    let said = of_trial(1, 5, |trial| trial.certified = Some(false));
    assert!(
        said.starts_with(
            "it says that the Tester was not certified at its rate, and its certificate is "
        ),
        "{said}"
    );
    // Above the lowest self-test, and below the highest.
    let (plan, lines) = (plan(), limited());
    let ceiling_qps = lines.iter().filter_map(|line| match &line.record {
        Record::SelfTest(test) => test.certified_rate_qps,
        _ => None,
    });
    let (low, high) = (
        ceiling_qps.clone().min().unwrap(),
        ceiling_qps.max().unwrap(),
    );
    assert!(low < high);
    for forged in [None, Some(true)] {
        let mut lines = lines.clone();
        let overload = lines.iter_mut().find_map(|line| match &mut line.record {
            Record::Trial {
                task: Task::Overload { .. },
                result,
                ..
            } if result.certified == Some(false) => Some(result),
            _ => None,
        });
        overload.unwrap().certified = forged;
        let found = audit(&plan, &lines).unwrap_err().to_string();
        assert!(
            found.contains(" certified at its rate, and its certificate is "),
            "{found}"
        );
    }
}

#[test]
fn unnecessary_restart_of_search_is_found() {
    let said = first(|lines| {
        let search = Task::Search { point: 0, run: 1 };
        let start = place(
            lines,
            |record| matches!(record, Record::Started { task, .. } if *task == search),
        );
        let fails = place(lines, |record| is_trial_of(record, 0, 1, 5));
        lines.insert(fails + 1, lines[start].clone());
    });
    assert!(said.contains(" begins before "), "{said}");
}
