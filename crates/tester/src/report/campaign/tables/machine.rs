//! Tables for programs: one row for each point, run and trial, and a separate column for every value.

use super::NAME;
use super::point::{CELL, FIGURES};
use crate::campaign::plan::Variant;
use crate::campaign::plan::tasks::Task;
use crate::campaign::record::{Line, Record};
use crate::campaign::status::Phase;
use crate::machine::Role;
use crate::report::campaign::analysis::{Analysis, PointResult, RunResult};
use crate::report::campaign::numbers;
use crate::report::campaign::table::{Column, Table, columns};
use crate::report::json::word;
use crate::trial::fault::TesterFault;
use crate::trial::result::TrialResult;

/// One row for each point.
pub(in super::super) fn points(analysis: &Analysis) -> Table {
    let points = analysis.points.iter();
    about(analysis, points.clone()).with(FIGURES, points)
}

/// One row for each run.
pub(in super::super) fn runs(analysis: &Analysis) -> Table {
    let points = analysis.points.iter();
    let of_runs = points.clone().flat_map(|p| p.runs.iter().map(move |_| p));
    about(analysis, of_runs).with(&RUNS, points.flat_map(|point| &point.runs))
}

/// One row for each trial, in the order of the journal.
pub(in super::super) fn trials(analysis: &Analysis, lines: &[Line]) -> Table {
    let trials = lines.iter().filter_map(|line| Trial::of(analysis, line));
    let trials: Vec<_> = trials.collect();
    about(analysis, trials.iter().map(|t| t.point)).with(&trial_columns(), &trials)
}

/// The columns that identify the point of a row.
fn about<'a>(
    analysis: &'a Analysis,
    points: impl Iterator<Item = &'a PointResult> + Clone,
) -> Table {
    let variants = points.clone().map(|point| point.variant);
    Table::default()
        .with(&NAME, variants.clone().map(|v| &analysis.variants[v]))
        .with(&PLANNED, variants.map(|v| &analysis.variants[v].planned))
        .with(CELL, points)
}

const PLANNED: [Column<Variant>; 3] = columns![v: Variant;
    "dut", "DUT" => &v.dut;
    "cores", "cores" => v.cpus().to_string();
    "settings", "settings" => {
        let settings: Vec<_> = v.settings().iter().map(|(k, v)| format!("{k}={v}")).collect();
        settings.join(" ")
    };
];

const RUNS: [Column<RunResult>; 7] = columns![r: RunResult;
    "run", "" => r.run;
    "ended", "" => word(r.ended);
    "rate_qps", "" => r.rate_qps;
    "certified", "" => r.certified;
    "failed_qps", "" => r.failed_qps;
    "trials", "" => r.trials.len();
    "took_s", "" => r.took_s;
];

/// A trial with its task.
struct Trial<'a> {
    point: &'a PointResult,
    over_at_unix_ms: u64,
    task: &'a Task,
    number: &'a u64,
    took_ns: &'a u64,
    result: &'a TrialResult,
}

impl<'a> Trial<'a> {
    fn of(analysis: &'a Analysis, line: &'a Line) -> Option<Self> {
        let Record::Trial {
            task,
            number,
            took_ns,
            result,
        } = &line.record
        else {
            return None;
        };
        let point = analysis.points.get(task.point())?;
        Some(Self {
            point,
            over_at_unix_ms: line.at_unix_ms,
            task,
            number,
            took_ns,
            result,
        })
    }
}

fn trial_columns<'a>() -> [Column<Trial<'a>>; 51] {
    columns![t: Trial<'a>;
        "task", "" => word(Phase::from(*t.task));
        "run", "" => t.task.run();
        "trial", "" => *t.number;
        "over_at", "" => numbers::moment(t.over_at_unix_ms);
        "took_s", "" => numbers::seconds(*t.took_ns);
        "rate_qps", "" => t.result.rate_qps;
        "certified", "" => t.result.certified;
        "outcome", "" => t.result.outcome.word();
        "shortfall", "" => t.result.outcome.fault().is_none().then(|| t.result.outcome.shortfall());
        "fault", "" => t.result.outcome.fault().map(TesterFault::code);
        "invalid_because", "" => t.result.outcome.fault().map(ToString::to_string);
        "queries_due", "" => t.result.queries_due;
        "queries_sent", "" => t.result.queries_sent;
        "undecided", "" => t.result.undecided;
        "ended_early", "" => t.result.ended_early;
        "valid", "" => t.result.answers.valid;
        "late", "" => t.result.answers.late;
        "wrong", "" => t.result.answers.wrong;
        "empty", "" => t.result.answers.empty;
        "error", "" => t.result.answers.error;
        "truncated", "" => t.result.answers.truncated;
        "missing", "" => t.result.answers.missing;
        "duplicate", "" => t.result.answers.duplicate;
        "stray", "" => t.result.answers.stray;
        "rtt_ns_p50", "" => t.result.rtt.p50;
        "rtt_ns_p99", "" => t.result.rtt.p99;
        "rtt_ns_p999", "" => t.result.rtt.p999;
        "rtt_ns_max", "" => t.result.rtt.max;
        "lateness_ns_p50", "" => t.result.timing.lateness_ns_p50;
        "lateness_ns_p99", "" => t.result.timing.lateness_ns_p99;
        "lateness_ns_p999", "" => t.result.timing.lateness_ns_p999;
        "lateness_ns_max", "" => t.result.timing.lateness_ns_max;
        "bin_10ms_deviation_pct_max", "" => t.result.timing.bin_10ms_deviation_pct_max;
        "bin_100ms_deviation_pct_max", "" => t.result.timing.bin_100ms_deviation_pct_max;
        "quantum_ns", "" => t.result.timing.quantum_ns;
        "burst", "" => t.result.timing.burst;
        "tester_drops", "" => t.result.tester_drops;
        "authority_aaaa", "" => t.result.authority.map(|c| c.aaaa);
        "authority_a", "" => t.result.authority.map(|c| c.a);
        "authority_other", "" => t.result.authority.map(|c| c.other);
        "authority_answered", "" => t.result.authority.map(|c| c.answered);
        "authority_nodata", "" => t.result.authority.map(|c| c.nodata);
        "memory_bytes", "" => t.result.resources.map(|r| r.memory_bytes);
        "descriptors", "" => t.result.resources.map(|r| r.descriptors);
        "threads", "" => t.result.resources.map(|r| r.threads);
        "dut_cpu_pct", "" => t.result.machine.cpu_pct(Role::Dut);
        "dut_exit", "" => t.result.dut_exit.as_ref();
        "segmentation", "" => t.result.segmentation;
        "backend", "" => &t.result.backend;
        "clock_bound_ns", "" => t.result.clocks.iter().map(|c| c.bound_ns).max();
        "notes", "" => t.result.notes.join("; ");
    ]
}
