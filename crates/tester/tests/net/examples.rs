//! Runs every plan in `examples/` to its end, in a copy that is shortened only in what takes time. So no plan names a
//! server, a cell or a procedure that is unavailable.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use dns64_transport::clock::{Clock as _, MonotonicClock, SECOND};
use dns64bench::campaign::journal;
use dns64bench::campaign::plan::Plan;
use dns64bench::campaign::plan::tasks::{Task, point_name};
use dns64bench::campaign::record::{Line, Record};

use crate::machine::{command, left_behind, output, turn};
use crate::shortened::{Shortened, shortened};

/// Attempts of a campaign in which a task failed for another reason than the Tester: on a busy machine a server may
/// start too late, but not every time.
const ATTEMPTS_MAX: u32 = 3;

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let entries = folder.read_dir().unwrap();
    let mut all: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    assert!(all.len() >= 12, "{all:?}");
    all
}

#[test]
fn copy_has_the_variants_and_points_of_its_example() {
    for example in examples() {
        let text = fs::read_to_string(&example).unwrap();
        let whole = Plan::parse("whole.toml", &text).unwrap();
        let Shortened { text, left_out, .. } = shortened(&text);
        let copy =
            Plan::parse("copy.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(copy.cells.len() >= whole.cells.len().min(2), "{text}");
        assert_eq!(copy.search.order, whole.search.order);
        assert_eq!(copy.search.restart, whole.search.restart);
        assert_eq!(copy.overload_milli, whole.overload_milli);
        assert_eq!(copy.soak.is_some(), whole.soak.is_some());
        assert_eq!(copy.uncertified, whole.uncertified);
        // The ends of both lists.
        let checked = |plan: &Plan| {
            let check = plan.queue_check.as_ref();
            check.map(|it| {
                let timeouts_ns = &it.timeouts_ns;
                let ends_ns = (timeouts_ns.first().copied(), timeouts_ns.last().copied());
                (it.durations_ns.len().min(2), ends_ns)
            })
        };
        assert_eq!(checked(&copy), checked(&whole));
        // Core counts of a larger machine are reduced to the same ones.
        let kinds = |plan: &Plan| -> BTreeSet<(String, String)> {
            let described = plan.variants.iter();
            let described = described.map(|it| (it.dut.clone(), it.pacing.to_string()));
            described
                .filter(|(dut, _)| !left_out.contains(dut))
                .collect()
        };
        assert_eq!(kinds(&copy), kinds(&whole), "{text}");
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn shortened_copy_of_every_example_runs_to_its_end() {
    let _turn = turn();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples");
    let _absent = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut faults = Vec::new();
    for example in examples() {
        let name = example.file_stem().unwrap().to_str().unwrap();
        let began = MonotonicClock.now();
        let copy = shortened(&fs::read_to_string(&example).unwrap());
        let path = folder.join(format!("{name}.toml"));
        fs::write(&path, &copy.text).unwrap();
        let found = match copy.duts {
            0 => Err("every DUT is left out".to_owned()),
            _ => runs_to_its_end(&path),
        };
        let seconds = (MonotonicClock.now() - began) / SECOND;
        let left_out = match copy.left_out.is_empty() {
            true => String::new(),
            false => format!(", without {}", copy.left_out.join(", ")),
        };
        tell(&format!("{name}: {seconds} s{left_out}"));
        if let Err(why) = found {
            tell(&format!("{name}: {why}"));
            faults.push(format!("{name}: {why}"));
        }
        assert_eq!(left_behind(), Vec::<String>::new(), "{name}");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Prints a line to the log, for checks that pass too.
fn tell(line: &str) {
    let _unheard = io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn runs_to_its_end(path: &Path) -> Result<(), String> {
    let directory = path.with_extension("");
    let (plan, directory_text) = (path.display(), directory.display());
    program(&format!("run --dry-run {plan}"))?;
    let mut given_up = Vec::new();
    for _ in 0..ATTEMPTS_MAX {
        let _absent = fs::remove_dir_all(&directory);
        program(&format!("run --quiet --output {directory_text} {plan}"))?;
        given_up = judge(path, &directory)?;
        if given_up.is_empty() {
            break;
        }
        tell(&given_up.join("\n"));
    }
    if !given_up.is_empty() {
        return Err(given_up.join("\n"));
    }
    for file in ["index.html", "results.json", "points.csv"] {
        let file = directory.join("report").join(file);
        if !fs::metadata(&file).is_ok_and(|found| found.len() > 0) {
            return Err(format!("no {}", file.display()));
        }
    }
    program(&format!("verify {directory_text}"))
}

/// Runs a command of the program, which must succeed.
fn program(arguments: &str) -> Result<(), String> {
    let ended = output(command(arguments));
    let said = String::from_utf8_lossy(&ended.stderr);
    match ended.status.code() {
        Some(0) if !said.contains("panicked") => Ok(()),
        code => Err(format!(
            "`dns64bench {arguments}` ended with {code:?}: {said}"
        )),
    }
}

/// Returns problems that are not faults of the Tester: tasks that were given up for another reason, and points without
/// a valid answer. Whether servers sustain a rate depends on the machine; whether they answer does not.
fn judge(path: &Path, directory: &Path) -> Result<Vec<String>, String> {
    let plan = Plan::load(path).map_err(|error| error.to_string())?;
    let points = &plan.points;
    let lines = journal::read(directory).unwrap().lines;
    if !matches!(
        lines.last().map(|line| &line.record),
        Some(Record::Complete)
    ) {
        return Err("the campaign has not come to its end".to_owned());
    }
    let outcome = Outcome::of(&lines);
    let missing = plan
        .tasks
        .iter()
        .filter(|task| !outcome.over.contains(task));
    if let Some(task) = missing.into_iter().next() {
        return Err(format!("{task:?} was neither done nor given up"));
    }
    let name = |point: usize| {
        let (variant, cell) = point_name(&plan, &points[point]);
        format!("{variant}, {cell}")
    };
    let others = outcome.given_up.iter();
    let others = others.filter(|(_, why)| !is_of_the_tester(why));
    let others = others.map(|(point, why)| format!("{}: {why}", name(*point)));
    let silent = outcome.valid.iter().filter(|(_, valid)| **valid == 0);
    let silent = silent.map(|(point, _)| format!("{}: no valid answer", name(*point)));
    Ok(others.chain(silent).collect())
}

fn is_of_the_tester(reason: &str) -> bool {
    const OURS: [&str; 3] = [
        "the self-test of the Tester failed: ",
        "no search found a rate",
        "abandoned: ",
    ];
    OURS.iter().any(|start| reason.starts_with(start))
}

/// Results of the tasks and points of a plan, from its journal.
#[derive(Default)]
struct Outcome {
    over: BTreeSet<Task>,
    /// Points with the reasons for giving them up.
    given_up: Vec<(usize, String)>,
    /// Number of valid answers by point, if it had a trial.
    valid: BTreeMap<usize, u64>,
}

impl Outcome {
    fn of(lines: &[Line]) -> Self {
        let mut outcome = Self::default();
        for line in lines {
            match &line.record {
                Record::Trial { task, result, .. } => {
                    *outcome.valid.entry(task.point()).or_default() += result.answers.valid;
                }
                Record::Finished(end) => {
                    outcome.over.insert(end.task);
                }
                Record::Abandoned { task, reason } => {
                    outcome.over.insert(*task);
                    outcome.given_up.push((task.point(), reason.clone()));
                }
                _ => {}
            }
        }
        outcome
    }
}
