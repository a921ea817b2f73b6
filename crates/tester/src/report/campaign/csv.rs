//! Tables as comma-separated values (RFC 4180, with line feeds): one row for each run, trial and
//! point, every value in a column of its own. Unknown values are empty.

use std::fmt::{Display, Write as _};

use super::analysis::{Analysis, PointResult};
use super::words;
use crate::campaign::plan::Plan;
use crate::campaign::record::{Line, Record};
use crate::campaign::tasks::Task;
use crate::trial::result::{Outcome, TrialResult};

/// A table under construction.
struct Table {
    text: String,
    at_start: bool,
}

impl Table {
    fn with_header(columns: &[&str]) -> Self {
        let mut table = Self {
            text: String::new(),
            at_start: true,
        };
        for column in columns {
            table.add(column);
        }
        table.end();
        table
    }

    fn add(&mut self, value: impl Display) -> &mut Self {
        if !self.at_start {
            self.text.push(',');
        }
        self.at_start = false;
        let start = self.text.len();
        // Writing to a text does not fail.
        let _ = write!(self.text, "{value}");
        if self.text[start..].contains([',', '"', '\n', '\r']) {
            let quoted = self.text[start..].replace('"', "\"\"");
            self.text.truncate(start);
            let _ = write!(self.text, "\"{quoted}\"");
        }
        self
    }

    fn opt(&mut self, value: Option<impl Display>) -> &mut Self {
        match value {
            Some(value) => self.add(value),
            None => self.add(""),
        }
    }

    fn end(&mut self) {
        self.text.push('\n');
        self.at_start = true;
    }
}

/// Columns that say which point a row is about.
const POINT: [&str; 9] = [
    "variant",
    "dut",
    "cores",
    "settings",
    "aaaa_pct",
    "cached_pct",
    "pattern",
    "duration_s",
    "timeout_s",
];

fn add_point(table: &mut Table, analysis: &Analysis, plan: &Plan, point: &PointResult) {
    let info = &analysis.variants[point.variant];
    let settings: Vec<_> = info
        .settings
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    table
        .add(&info.name)
        .add(&info.dut)
        .add(plan.variants[point.variant].cpus())
        .add(settings.join(" "))
        .add(point.aaaa_pct)
        .add(point.cached_pct)
        .add(&point.pattern)
        .add(point.duration_s)
        .add(point.timeout_s);
}

/// One row for each run.
pub(super) fn runs(analysis: &Analysis, plan: &Plan) -> String {
    let own = ["run", "ended", "rate_qps", "failed_qps", "trials", "took_s"];
    let mut table = Table::with_header(&[&POINT[..], &own].concat());
    for point in &analysis.points {
        for run in &point.runs {
            add_point(&mut table, analysis, plan, point);
            table
                .add(run.run)
                .add(run.ended.word())
                .opt(run.rate_qps)
                .opt(run.failed_qps);
            table.add(run.trials.len()).add(run.took_s).end();
        }
    }
    table.text
}

/// One row for each point.
pub(super) fn points(analysis: &Analysis, plan: &Plan) -> String {
    let own = [
        "runs",
        "average_qps",
        "median_qps",
        "p1_qps",
        "p99_qps",
        "standard_deviation_qps",
        "margin_of_error_999_qps",
        "median_absolute_deviation_qps",
        "dispersion_pct",
        "calculated_qps",
        "median_low_qps",
        "median_high_qps",
        "lower_bound",
        "certified_qps",
        "headroom",
        "degradation_pct",
        "achieved_aaaa_pct",
        "achieved_cached_pct",
        "amplification",
        "lateness_ns_p99",
        "worst_lateness_ns",
        "tester_drops",
        "memory_bytes_max",
    ];
    let mut table = Table::with_header(&[&POINT[..], &own].concat());
    for point in &analysis.points {
        add_point(&mut table, analysis, plan, point);
        let s = point.summary.as_ref();
        table
            .add(s.map_or(0, |s| s.runs))
            .opt(s.map(|s| s.average))
            .opt(s.map(|s| s.median))
            .opt(s.map(|s| s.p1))
            .opt(s.map(|s| s.p99))
            .opt(s.map(|s| s.standard_deviation))
            .opt(s.map(|s| s.margin_of_error_999))
            .opt(s.map(|s| s.median_absolute_deviation))
            .opt(s.map(|s| s.dispersion_pct))
            .opt(s.map(|s| s.calculated))
            .opt(s.and_then(|s| s.median_interval).map(|i| i.0))
            .opt(s.and_then(|s| s.median_interval).map(|i| i.1))
            .add(point.lower_bound)
            .opt(point.certified_rate_qps)
            .opt(point.headroom)
            .opt(point.degradation_pct)
            .opt(point.achieved.and_then(|a| a.aaaa_pct))
            .opt(point.achieved.map(|a| a.cached_pct))
            .opt(point.achieved.map(|a| a.amplification))
            .opt(point.timing.map(|t| t.lateness_ns_p99))
            .opt(point.timing.map(|t| t.worst_lateness_ns))
            .opt(point.timing.map(|t| t.tester_drops))
            .opt(point.memory_bytes_max)
            .end();
    }
    table.text
}

/// Columns of a trial.
const TRIAL: [&str; 46] = [
    "task",
    "run",
    "trial",
    "over_at",
    "took_s",
    "rate_qps",
    "outcome",
    "shortfall",
    "fault",
    "queries_due",
    "queries_sent",
    "undecided",
    "ended_early",
    "valid",
    "late",
    "wrong",
    "empty",
    "error",
    "truncated",
    "missing",
    "duplicate",
    "stray",
    "rtt_ns_p50",
    "rtt_ns_p99",
    "rtt_ns_p999",
    "rtt_ns_max",
    "lateness_ns_p50",
    "lateness_ns_p99",
    "lateness_ns_p999",
    "lateness_ns_max",
    "bin_10ms_deviation_pct_max",
    "bin_100ms_deviation_pct_max",
    "quantum_ns",
    "burst",
    "tester_drops",
    "authority_aaaa",
    "authority_a",
    "authority_other",
    "authority_answered",
    "authority_nodata",
    "memory_bytes",
    "descriptors",
    "threads",
    "dut_exit",
    "backend",
    "notes",
];

/// One row for each trial, in the order of the journal.
pub(super) fn trials(analysis: &Analysis, plan: &Plan, lines: &[Line]) -> String {
    let mut table = Table::with_header(&[&POINT[..], &TRIAL].concat());
    for line in lines {
        let Record::Trial {
            task,
            number,
            took_ns,
            result,
        } = &line.record
        else {
            continue;
        };
        let Some(point) = analysis.points.get(task.point()) else {
            continue;
        };
        add_point(&mut table, analysis, plan, point);
        let (kind, run) = match task {
            Task::Search { run, .. } => ("search", Some(run)),
            Task::Overload { .. } => ("overload", None),
            Task::Soak { .. } => ("soak", None),
        };
        table
            .add(kind)
            .opt(run)
            .add(number)
            .add(words::moment(line.at_unix_ms));
        table.add(words::seconds(*took_ns));
        add_trial(&mut table, result);
        add_surroundings(&mut table, result);
    }
    table.text
}

fn add_trial(table: &mut Table, trial: &TrialResult) {
    let (shortfall, fault) = match &trial.outcome {
        Outcome::Passed => (Some(0), None),
        Outcome::Failed { shortfall } => (Some(*shortfall), None),
        Outcome::Invalid(fault) => (None, Some(fault)),
    };
    table
        .add(trial.rate_qps)
        .add(words::outcome(&trial.outcome))
        .opt(shortfall)
        .opt(fault);
    let a = &trial.answers;
    let (rtt, timing) = (&trial.rtt, &trial.timing);
    table
        .add(trial.queries_due)
        .add(trial.queries_sent)
        .add(trial.undecided)
        .add(trial.ended_early);
    for count in [
        a.valid,
        a.late,
        a.wrong,
        a.empty,
        a.error,
        a.truncated,
        a.missing,
        a.duplicate,
        a.stray,
    ] {
        table.add(count);
    }
    for span_ns in [rtt.p50, rtt.p99, rtt.p999, rtt.max] {
        table.opt(span_ns);
    }
    for span_ns in [
        timing.lateness_ns_p50,
        timing.lateness_ns_p99,
        timing.lateness_ns_p999,
        timing.lateness_ns_max,
    ] {
        table.add(span_ns);
    }
    table
        .add(timing.bin_10ms_deviation_pct_max)
        .add(timing.bin_100ms_deviation_pct_max)
        .add(timing.quantum_ns)
        .add(timing.burst);
}

fn add_surroundings(table: &mut Table, trial: &TrialResult) {
    let (authority, resources) = (trial.authority, trial.resources);
    table
        .add(trial.tester_drops)
        .opt(authority.map(|c| c.aaaa))
        .opt(authority.map(|c| c.a))
        .opt(authority.map(|c| c.other))
        .opt(authority.map(|c| c.answered))
        .opt(authority.map(|c| c.nodata))
        .opt(resources.map(|r| r.memory_bytes))
        .opt(resources.map(|r| r.descriptors))
        .opt(resources.map(|r| r.threads))
        .opt(trial.dut_exit.as_ref())
        .add(&trial.backend)
        .add(trial.notes.join("; "))
        .end();
}
