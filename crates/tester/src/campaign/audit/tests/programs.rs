//! Correct campaigns of other subjects, processes and program versions, and keys that a forger omits.

use super::honest::written;
use super::*;
use crate::campaign::history::History;
use crate::campaign::state::CERTIFICATE_AGE_MAX_MS;
use crate::report::campaign::analyse::analyse;

/// A running server without a self-test server, one with it, and an authority measured by itself.
const SUBJECTS: &str = r#"
name = "subjects"
[trial]
duration = "10s"
timeout = "1s"
[search]
runs = 2
start-rate = "1k"
resolution = "1%"
[[dut]]
name = "alone"
server = "[2001:db8::53]:53"
[[dut]]
name = "beside"
server = "[2001:db8::54]:53"
self-test-server = "[2001:db8::55]:53"
[[dut]]
name = "nsd"
authority = "nsd"
[overload]
factors = [2]
[soak]
share = "50%"
length = "30s"
"#;

#[test]
fn running_servers_and_authorities_are_verified() {
    let lines = written(SUBJECTS, [Servers::of(SUBJECTS)]);
    let plan = Plan::parse("honest.toml", SUBJECTS).unwrap();
    let audited = audit(&plan, &lines).unwrap();
    assert_eq!((audited.searches, audited.certificates), (6, 3));
    let uncertified = SUBJECTS.replace("[trial]", "[tester]\nuncertified = true\n[trial]");
    let plan = Plan::parse("honest.toml", &uncertified).unwrap();
    let lines = written(&uncertified, [Servers::of(&uncertified)]);
    let audited = audit(&plan, &lines).unwrap();
    assert_eq!((audited.searches, audited.certificates), (6, 0));
}

#[test]
fn every_authority_start_is_recorded_and_its_facts_once() {
    let ranges = "authority = \"nsd\"\nnamespace = [\"10.0.0.0/9\", \"10.0.0.0/8\"]";
    let subjects = SUBJECTS.replace("authority = \"nsd\"", ranges);
    let plan = Plan::parse("honest.toml", &subjects).unwrap();
    let lines = written(&subjects, [Servers::of(&subjects)]);
    let audited = audit(&plan, &lines).unwrap();
    assert_eq!(audited.searches, 8);
    let told: History<&TrialResult> = History::of(&plan, &lines);
    let starts: Vec<_> = told.starts.iter().map(Vec::len).collect();
    let facts: Vec<_> = told.variants.iter().map(Vec::len).collect();
    assert_eq!((starts, facts), (vec![0, 0, 2, 2], vec![1; 4]));
    let rows = analyse(&plan, &lines, "").authorities.rows;
    let told: Vec<_> = rows.iter().map(|row| (row.names, row.starts)).collect();
    assert_eq!(told, [(1 << 23, 2), (1 << 24, 2)]);
}

#[test]
fn authorities_of_profiles_and_repeated_names_are_verified() {
    let subjects = honest::PLAN.replace("[trial]", "[tester]\nauthority = \"nsd\"\n[trial]");
    let cells = honest::PLAN.replace(
        "[cells]",
        "[cells]\ncached-share = [\"0%\", \"33%\", \"100%\"]",
    );
    let in_driver = subjects.replace("\"nsd\"", "\"in-driver\"");
    for (text, left_out) in [
        (subjects, "authority_sampled"),
        (in_driver, "authority"),
        (cells, "authority"),
    ] {
        assert_ne!(text, honest::PLAN);
        let plan = Plan::parse("honest.toml", &text).unwrap();
        let mut lines = written(&text, [Servers::of(&text)]);
        let audited = audit(&plan, &lines);
        assert!(audited.is_ok(), "{audited:?}");
        let (_, result) = trial(&mut lines, 1, 1);
        (result.authority, result.path, result.achieved) = (None, None, None);
        result.authority_sampled = None;
        let found = audit(&plan, &lines).unwrap_err().to_string();
        assert!(
            found.contains(&format!("it has no {left_out}, which")),
            "{found}"
        );
    }
}

#[test]
fn a_second_process_with_another_certificate_is_verified() {
    let search = Task::Search { point: 1, run: 2 };
    let soak = Task::Soak { point: 2 };
    for (task, number) in [(search, 3), (soak, 2)] {
        let first = Servers {
            interrupted_in: Some((task, number)),
            ..Servers::new("-d", "aa")
        };
        for tester_qps in [|_| 9_000, |_| 400_000_u64] {
            let again = || Servers {
                boot: "c",
                tester_qps,
                ..Servers::new("-d", "aa")
            };
            let first = Servers {
                interrupted_in: first.interrupted_in,
                ..Servers::new("-d", "aa")
            };
            let (plan, lines) = (plan(), written(honest::PLAN, [first, again()]));
            let audited = audit(&plan, &lines);
            assert!(audited.is_ok(), "{task}: {audited:?}");
        }
    }
}

/// One run, in which a process continued a search after self-tests that certified less than the rate of its next trial.
/// Its trials say so.
fn gone_on() -> Vec<Line> {
    let again = || Servers {
        boot: "c",
        ..Servers::new("-d", "aa")
    };
    let first = Servers {
        interrupted_in: Some((Task::Search { point: 0, run: 1 }, 5)),
        ..Servers::new("-d", "aa")
    };
    let slow = Servers {
        tester_qps: |_| 9_000,
        ..again()
    };
    let slow = written(honest::PLAN, [slow]).into_iter();
    let mut slow = slow.filter(|line| matches!(line.record, Record::SelfTest(_)));
    let mut lines = written(honest::PLAN, [first, again()]);
    let end = place(&lines, |record| matches!(record, Record::Finished(_)));
    lines.truncate(end + 1);
    let is_session = |line: &Line| matches!(line.record, Record::Session { .. });
    let second = lines.iter().rposition(is_session).unwrap();
    let mut certified_qps = None;
    for line in &mut lines[second..] {
        match &mut line.record {
            Record::SelfTest(_) => {
                line.record = slow.next().unwrap().record;
                if let Record::SelfTest(test) = &line.record {
                    certified_qps = test.certified_rate_qps;
                }
            }
            Record::Trial { result, .. } => {
                result.certified = Some(Some(result.rate_qps) <= certified_qps);
            }
            _ => {}
        }
    }
    lines
}

#[test]
fn search_continued_above_lower_certificate_is_found_and_reported() {
    let (plan, lines) = (plan(), gone_on());
    // The current program would have restarted the search.
    let found = audit(&plan, &lines).unwrap_err().to_string();
    let restarted = "its search should have restarted: the Tester is certified to ";
    assert!(found.contains(restarted), "{found}");
    let point = &analyse(&plan, &lines, "").points[0];
    assert_eq!(point.runs[0].certified, Some(false));
}

#[test]
fn certificate_expired_during_server_start_is_verified() {
    let (plan, mut lines) = honest();
    let second = Task::Search { point: 0, run: 2 };
    let is_start =
        |record: &Record| matches!(record, Record::Started { task, .. } if *task == second);
    let start = place(&lines, is_start);
    lines.truncate(start + 1);
    let tests: Vec<usize> = (0..start)
        .filter(|&at| matches!(&lines[at].record, Record::SelfTest(test) if test.conditions.cell == "AAAA 0%, cached 0%"))
        .collect();
    let [a, b, c] = tests[..] else {
        panic!("{tests:?}")
    };
    // The second self-test was disturbed and found a lower rate; two more followed later.
    let low = written(
        honest::PLAN,
        [Servers {
            tester_qps: |n| if n == 2 { 150_000 } else { 200_000 },
            ..Servers::new("-d", "aa")
        }],
    );
    lines[b].record = low[b].record.clone();
    let low_qps = match &lines[b].record {
        Record::SelfTest(test) => test.certified_rate_qps,
        other => panic!("{other:?}"),
    };
    for line in &mut lines[..start] {
        if let Record::Started {
            search: Some(spec),
            task,
            ..
        } = &mut line.record
            && matches!(task.point(), 0 | 2)
        {
            spec.ceiling_qps = low_qps;
        }
    }
    let more = [lines[c].clone(), lines[c].clone()];
    lines.splice(start - 1..start - 1, more);
    let (minute, age) = (60_000, CERTIFICATE_AGE_MAX_MS);
    let last = lines.len() - 1;
    for (at, line) in lines.iter_mut().enumerate() {
        line.at_unix_ms = match at {
            _ if at <= a => 0,
            _ if at <= b => minute,
            _ if at < c => minute,
            _ if at + 4 <= last => 2 * minute,
            // D and E, the line after them, and the start.
            _ if at + 1 < last => age + minute + 30_000,
            _ if at < last => age + minute + 40_000,
            _ => age + 3 * minute,
        };
    }
    let audited = audit(&plan, &lines);
    assert!(audited.is_ok(), "{audited:?}");
    // The earlier, lower one had expired at every time since the last line.
    if let Record::Started {
        search: Some(spec), ..
    } = &mut lines[last].record
    {
        spec.ceiling_qps = low_qps;
    }
    let found = audit(&plan, &lines).unwrap_err().to_string();
    assert!(found.contains(" has a ceiling of "), "{found}");
}

#[test]
fn missing_figure_is_found() {
    type Leave = fn(&mut TrialResult);
    let keys: [(&str, Leave); 5] = [
        ("names", |trial| trial.names = None),
        ("authority", |trial| {
            (trial.authority, trial.achieved, trial.path) = (None, None, None)
        }),
        ("path", |trial| trial.path = None),
        ("achieved", |trial| trial.achieved = None),
        ("resources", |trial| trial.resources = None),
    ];
    for (key, leave) in keys {
        let expected = format!("it has no {key}, which each trial of this program has");
        assert_eq!(of_trial(1, 5, leave), expected);
    }
    for (key, leave) in &keys[..3] {
        let said = first(|lines| leave(&mut self_test(lines).trials[0]));
        assert!(
            said.contains(&format!("trial 1 of the self-test: it has no {key}")),
            "{said}"
        );
    }
}
