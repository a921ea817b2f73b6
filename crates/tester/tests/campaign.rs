//! A campaign on a real kernel: killed twice on the way, resumed, reported and verified. Needs root,
//! dns64d and Unbound. Rates are modest and nothing asserts a speed.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dns64_transport::clock::SECOND;
use dns64bench::campaign::journal;
use dns64bench::campaign::record::{Line, Record};
use dns64bench::campaign::tasks::Task;
use dns64bench::lab::process;
use dns64bench::lab::topology::leftovers;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dns64bench");
const PLAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/campaign/small.toml");

/// Two DUTs, three cells, three runs.
const SEARCHES: usize = 18;

/// Where the campaign is left for a look at its report; `.ci/run net` gives the page to a browser.
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

/// Starts the program and kills it when the journal has grown by `more` lines.
fn killed_after(more: usize, arguments: &[&str], directory: &Path) {
    let before = lines(directory);
    let mut child = Command::new(PROGRAM)
        .args(arguments)
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let grown = process::wait_until(120 * SECOND, || {
        lines(directory) >= before + more || child.try_wait().unwrap().is_some()
    });
    assert!(grown, "{} lines after two minutes", lines(directory));
    assert!(child.try_wait().unwrap().is_none(), "ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
}

fn read(directory: &Path) -> Vec<Line> {
    journal::read(directory).unwrap().lines
}

#[test]
#[ignore = "needs root, dns64d and unbound: run by .ci/run net"]
fn a_campaign_survives_being_killed_and_its_report_is_verified() {
    let directory = directory();
    let _absent = fs::remove_dir_all(&directory);
    let path = directory.to_str().unwrap();

    killed_after(25, &["run", PLAN, "--output", path], &directory);
    let second = run(&["run", PLAN, "--output", path]);
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("resume"), "{said}");
    killed_after(25, &["resume", path], &directory);
    let last = run(&["resume", path]);
    let said = String::from_utf8_lossy(&last.stderr);
    assert_eq!(last.status.code(), Some(0), "{said}");
    assert_eq!(leftovers(), Vec::<String>::new());

    each_task_is_over_once(&read(&directory));
    the_report_says_what_was_measured(path, &directory);
    one_changed_byte_is_found(path, &directory);
}

fn each_task_is_over_once(lines: &[Line]) {
    let mut over = Vec::new();
    let mut trials = Vec::new();
    let mut sessions = 0;
    for line in lines {
        match &line.record {
            Record::Finished(finished) => over.push(finished.task),
            Record::Abandoned { task, reason } => {
                eprintln_abandoned(*task, reason);
                over.push(*task);
            }
            Record::Trial { task, number, .. } => trials.push((*task, *number)),
            Record::Session { .. } => sessions += 1,
            _ => {}
        }
    }
    assert_eq!(sessions, 3);
    assert!(matches!(lines.last().unwrap().record, Record::Complete));
    let whole = over.len();
    over.sort_unstable();
    over.dedup();
    assert_eq!(over.len(), whole, "a task was done twice");
    let searches = over
        .iter()
        .filter(|task| matches!(task, Task::Search { .. }));
    assert_eq!(searches.count(), SEARCHES);
    assert_eq!(whole, SEARCHES + 4);
    let all = trials.len();
    trials.sort_unstable();
    trials.dedup();
    assert_eq!(trials.len(), all, "a trial was counted twice");
}

/// A crowded machine may keep a server from being measured; the log then says which.
#[expect(
    clippy::print_stderr,
    reason = "for whoever reads the log of a failed check"
)]
fn eprintln_abandoned(task: Task, reason: &str) {
    eprintln!("{task:?} was given up: {reason}");
}

fn the_report_says_what_was_measured(path: &str, directory: &Path) {
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
    assert_eq!(results["sessions"].as_array().unwrap().len(), 3);
    assert_eq!(results["overloads"].as_array().unwrap().len(), 2);
    assert_eq!(results["soaks"].as_array().unwrap().len(), 2);
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
