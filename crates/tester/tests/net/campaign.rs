//! A campaign: killed twice, resumed, reported and verified. Its results, and whether every task can be measured,
//! depend on the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dns64_transport::clock::SECOND;
use dns64bench::campaign::journal;
use dns64bench::campaign::plan::tasks::Task;
use dns64bench::campaign::record::{Line, Record};
use dns64bench::machine::process;
use dns64bench::procedure::search::SearchEnd;
use serde_json::Value;

use crate::busy::BUSY_MAX;
use crate::machine::{PROGRAM, left_behind, turn};

const PLAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/net/small.toml");

/// Two DUTs, three cells, three runs.
const SEARCHES: usize = 18;

/// Directory in which the campaign is kept for inspection of its report; `.ci/run net` opens the page in a browser.
fn directory() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("campaign")
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

fn lines(directory: &Path) -> usize {
    let text = fs::read(directory.join("journal.jsonl")).unwrap_or_default();
    text.iter().filter(|&&octet| octet == b'\n').count()
}

/// Begins or resumes the campaign in a process of its own, until it ends by itself, or is killed once the journal has grown
/// by this number of lines.
fn work(directory: &Path, kill_after: Option<usize>) -> Output {
    let path = directory.to_str().unwrap();
    let mut command = Command::new(PROGRAM);
    match directory.exists() {
        false => command.args(["run", PLAN, "--output", path]),
        true => command.args(["resume", path]),
    };
    let most = kill_after.map_or(usize::MAX, |more| lines(directory) + more);
    // The progress output is short and fits into the pipes.
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut ended = false;
    let limit = kill_after.map_or(6 * BUSY_MAX, |_| BUSY_MAX);
    let grown = process::wait_until(limit, || {
        ended = child.try_wait().unwrap().is_some();
        ended || lines(directory) >= most
    });
    assert!(
        grown,
        "the machine is too busy for this test: {} lines after {} s",
        lines(directory),
        limit / SECOND
    );
    if !ended {
        child.kill().unwrap();
    }
    child.wait_with_output().unwrap()
}

fn is_killed_after(directory: &Path, more: usize) {
    let output = work(directory, Some(more));
    assert_eq!(output.status.code(), None, "ended by itself: {output:?}");
}

fn read(directory: &Path) -> Vec<Line> {
    journal::read(directory).map_or(Vec::new(), |read| read.lines)
}

fn sessions(lines: &[Line]) -> usize {
    let is_session = |line: &&Line| matches!(line.record, Record::Session { .. });
    lines.iter().filter(is_session).count()
}

#[test]
#[ignore = "needs root, dns64d and unbound: run by .ci/run net"]
fn killed_campaign_is_resumed_and_its_report_is_verified() {
    let _turn = turn();
    let directory = directory();
    let _absent = fs::remove_dir_all(&directory);
    let path = directory.to_str().unwrap();

    is_killed_after(&directory, 25);
    let second = run(&["run", PLAN, "--output", path]);
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("resume"), "{said}");
    is_killed_after(&directory, 25);
    let last = work(&directory, None);
    let said = String::from_utf8_lossy(&last.stderr);
    assert_eq!(last.status.code(), Some(0), "{said}");
    assert_eq!(left_behind(), Vec::<String>::new());

    let lines = read(&directory);
    assert_eq!(sessions(&lines), 3);
    let abandoned = each_task_is_over_once(&lines);
    the_report_says_what_was_measured(path, &directory, &abandoned);
    one_changed_byte_is_found(path, &directory);
}

/// Returns the tasks that were given up.
fn each_task_is_over_once(lines: &[Line]) -> Vec<Task> {
    let mut disturbed = Vec::new();
    let mut over = Vec::new();
    let mut abandoned = Vec::new();
    let mut begun = Vec::new();
    let mut trials = Vec::new();
    for line in lines {
        match &line.record {
            Record::Started { task, .. } => begun.push(*task),
            Record::Finished(finished) => match finished.end {
                Some(SearchEnd::TesterFault { .. }) => disturbed.push(finished.task),
                _ => over.push(finished.task),
            },
            Record::Abandoned { task, reason } => {
                eprintln_abandoned(*task, reason);
                abandoned.push(*task);
                over.push(*task);
            }
            Record::Trial { task, number, .. } => {
                let attempt = begun.iter().filter(|other| *other == task).count();
                trials.push((*task, attempt, *number));
            }
            _ => {}
        }
    }
    assert!(matches!(lines.last().unwrap().record, Record::Complete));
    let whole = over.len();
    over.sort_unstable();
    over.dedup();
    assert_eq!(over.len(), whole, "a task was done twice");
    // A disturbed search is repeated at most twice.
    for task in &disturbed {
        let times = disturbed.iter().filter(|other| *other == task).count();
        assert!(
            times <= 3 && (times == 3) != over.contains(task),
            "{task:?}"
        );
    }
    over.extend(disturbed);
    over.sort_unstable();
    over.dedup();
    let searches = over
        .iter()
        .filter(|task| matches!(task, Task::Search { .. }));
    assert_eq!(searches.count(), SEARCHES);
    assert_eq!(over.len(), SEARCHES + 4);
    let all = trials.len();
    trials.sort_unstable();
    trials.dedup();
    assert_eq!(trials.len(), all, "a trial was counted twice");
    abandoned
}

/// On a busy machine a server may not be measurable; the log then names it.
#[expect(clippy::print_stderr, reason = "for the log of a failed check")]
fn eprintln_abandoned(task: Task, reason: &str) {
    eprintln!("{task:?} was given up: {reason}");
}

fn the_report_says_what_was_measured(path: &str, directory: &Path, abandoned: &[Task]) {
    let report = run(&["report", path]);
    assert_eq!(report.status.code(), Some(0));
    let verdict = String::from_utf8_lossy(&report.stdout);
    assert!(
        verdict.contains("dns64d") && verdict.contains("unbound"),
        "{verdict}"
    );
    let text = fs::read_to_string(directory.join("report/results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(results["complete"], true);
    assert_eq!(results["points"].as_array().unwrap().len(), 6);
    assert!(results["sessions"].as_array().unwrap().len() >= 3);
    // One for each DUT, if a search found its start value.
    let given_up = |of: fn(&Task) -> bool| abandoned.iter().filter(|task| of(task)).count();
    let overloads = given_up(|task| matches!(task, Task::Overload { .. }));
    let soaks = given_up(|task| matches!(task, Task::Soak { .. }));
    for (key, least) in [("overloads", 2 - overloads), ("soaks", 2 - soaks)] {
        let found = results[key].as_array().unwrap().len();
        assert!((least..=2).contains(&found), "{found} {key}");
    }
    let compared = run(&["compare", path, path]);
    assert_eq!(compared.status.code(), Some(0), "{compared:?}");
}

fn one_changed_byte_is_found(path: &str, directory: &Path) {
    let verified = run(&["verify", path]);
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
    for file in ["journal.jsonl", "report/index.html", "report/points.csv"] {
        let file = directory.join(file);
        let whole = fs::read(&file).unwrap();
        let mut changed = whole.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        fs::write(&file, &changed).unwrap();
        let verified = run(&["verify", path]);
        assert_eq!(
            verified.status.code(),
            Some(3),
            "{} {verified:?}",
            file.display()
        );
        fs::write(&file, &whole).unwrap();
    }
    assert_eq!(run(&["verify", path]).status.code(), Some(0));
}
