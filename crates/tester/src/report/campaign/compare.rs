//! Compares two campaigns: which points are slower in the second, and with what certainty. Of more, [`changes`].

pub mod changes;

use std::io::{self, Write};

use serde::Serialize;

use super::analysis::{Analysis, PointResult};
use super::{numbers, words};
use crate::report::json::word;
use crate::statistics::compare;

/// Significance level: a difference with a higher probability counts as chance.
const SIGNIFICANT: f64 = 0.05;

/// Minimum number of runs on each side for the test. With three runs each, even the rarest order has an exact
/// probability of 0.1. With fewer runs the interval decides.
const RUNS_FOR_TEST: usize = 5;

/// Two campaigns side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Names of the campaigns.
    pub names: (String, String),
    /// Tolerated slowdown of the second, in per cent.
    pub max_regression_pct: f64,
    /// Differences that make the comparison doubtful.
    pub warnings: Vec<String>,
    /// Points in both campaigns.
    pub rows: Vec<Row>,
    /// Points only in the first.
    pub only_first: Vec<String>,
    /// Points only in the second.
    pub only_second: Vec<String>,
}

/// A point in both campaigns.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Variant, shares, duration and timeout.
    pub point: String,
    /// Medians, in queries per second.
    pub medians: (Option<f64>, Option<f64>),
    /// Runs with a rate.
    pub runs: (usize, usize),
    /// Whether the medians are lower bounds, which have no ratio.
    pub lower_bounds: (bool, bool),
    /// Change of the median, in per cent of the first.
    pub change_pct: Option<f64>,
    /// 95 % interval of the shift between the runs, in per cent of the first median.
    pub interval_pct: Option<(f64, f64)>,
    /// Probability of such a difference by chance (Mann-Whitney).
    pub p: Option<f64>,
    /// Whether the second is slower.
    pub verdict: Verdict,
    /// Basis of the verdict, or why there is none.
    pub why: String,
}

/// Whether a point is slower than tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// Yes.
    #[serde(rename = "slower")]
    Slower,
    /// It is faster by as much.
    #[serde(rename = "faster")]
    Faster,
    /// It is neither.
    #[serde(rename = "within the limit")]
    Within,
    /// The median is lower by more than the limit, but that may be chance.
    #[serde(rename = "no difference shown")]
    NotShown,
    /// The data do not allow a verdict.
    #[serde(rename = "not judged")]
    NotJudged,
}

impl Comparison {
    /// Compares the points of `b` with those of `a`.
    pub fn of(a: &Analysis, b: &Analysis, max_regression_pct: f64) -> Self {
        let (first, mut second) = (keyed(a), keyed(b));
        let mut rows = Vec::new();
        let mut only_first = Vec::new();
        for (key, point) in first {
            match second.iter().position(|(other, _)| *other == key) {
                Some(twin) => {
                    let (_, twin) = second.remove(twin);
                    let (a, b) = (Side::of(point), Side::of(twin));
                    rows.push(row(key, &a, &b, max_regression_pct));
                }
                None => only_first.push(key),
            }
        }
        Self {
            names: (a.name.clone(), b.name.clone()),
            max_regression_pct,
            warnings: warnings(a, b),
            rows,
            only_first,
            only_second: second.into_iter().map(|(key, _)| key).collect(),
        }
    }

    /// Whether any point is slower than tolerated.
    pub fn has_regressions(&self) -> bool {
        self.count(Verdict::Slower) > 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        let rows = self.rows.iter();
        rows.filter(|row| row.verdict == verdict).count()
    }

    /// Writes a table, warnings first.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for warning in &self.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        let rows: Vec<_> = self.rows.iter().map(|row| (row.title(), row)).collect();
        table(out, ["A", "B"], &rows)?;
        for (which, points) in [("A", &self.only_first), ("B", &self.only_second)] {
            for point in points {
                writeln!(out, "only in {which}: {point}")?;
            }
        }
        let slower = self.count(Verdict::Slower);
        let judged = self.rows.len() - self.count(Verdict::NotJudged);
        let judged = numbers::count(judged, "judged point");
        let allowed = numbers::pct(self.max_regression_pct);
        let faster = self.count(Verdict::Faster);
        writeln!(
            out,
            "{slower} of {judged} slower by more than {allowed}, {faster} faster"
        )
    }
}

/// Writes rows, each below its title: beside it they would not fit on a terminal.
fn table(out: &mut impl Write, sides: [&str; 2], rows: &[(String, &Row)]) -> io::Result<()> {
    let heads = [sides[0], sides[1], "change", "interval", "p"].map(str::to_owned);
    let shown = rows.iter().map(|(_, row)| shown(row));
    let cells: Vec<[String; 5]> = std::iter::once(heads).chain(shown).collect();
    let widths = [0, 1, 2, 3, 4].map(|column| {
        let widths = cells.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    });
    let titles = rows.iter().map(|(title, _)| Some(title));
    for (title, row) in std::iter::once(None).chain(titles).zip(&cells) {
        if let Some(title) = title {
            writeln!(out, "{title}")?;
        }
        for (cell, width) in row.iter().zip(widths) {
            write!(out, "  {cell:>width$}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

impl Row {
    /// The point, and what was found of it.
    fn title(&self) -> String {
        format!("{}: {}", self.point, self.told())
    }

    /// The verdict, with what it rests on.
    fn told(&self) -> String {
        match self.why.is_empty() {
            true => word(self.verdict),
            false => format!("{} ({})", word(self.verdict), self.why),
        }
    }
}

/// The points, each with a key of everything but the rates: equal keys mean the same point.
fn keyed(analysis: &Analysis) -> Vec<(String, &PointResult)> {
    let key = |point: &PointResult| {
        let variant = &analysis.variants[point.variant].name;
        format!("{variant}, {}, {}", words::cell(point), words::spans(point))
    };
    let points = analysis.points.iter();
    points.map(|point| (key(point), point)).collect()
}

/// One side of a comparison.
struct Side {
    rates: Vec<f64>,
    median: Option<f64>,
    lower_bound: bool,
    is_unstable: bool,
}

impl Side {
    fn of(point: &PointResult) -> Self {
        Self {
            rates: point.rates_qps().map(|rate| rate as f64).collect(),
            median: point.median(),
            lower_bound: point.lower_bound,
            is_unstable: point.is_unstable(),
        }
    }
}

fn row(point: String, a: &Side, b: &Side, max_regression_pct: f64) -> Row {
    let medians = (a.median, b.median);
    let found = compare::compare(&a.rates, &b.rates);
    let mut row = Row {
        point,
        medians,
        runs: (a.rates.len(), b.rates.len()),
        lower_bounds: (a.lower_bound, b.lower_bound),
        change_pct: medians.0.zip(medians.1).map(|(a, b)| (b - a) / a * 100.0),
        interval_pct: found.as_ref().map(|c| {
            let pct = |shift: f64| shift / c.median_a * 100.0;
            (pct(c.shift_interval.0), pct(c.shift_interval.1))
        }),
        p: found.as_ref().map(|c| c.p),
        verdict: Verdict::NotJudged,
        why: String::new(),
    };
    let mut sides = [("A", a), ("B", b)].into_iter();
    let disagree = sides.find(|side| side.1.is_unstable);
    (row.verdict, row.why) = match disagree {
        Some((side, _)) => (Verdict::NotJudged, format!("the runs of {side} disagree")),
        None => judge(&row, max_regression_pct),
    };
    row
}

fn judge(row: &Row, max_regression_pct: f64) -> (Verdict, String) {
    use Verdict::{Faster, NotJudged, NotShown, Slower, Within};
    let Some(change_pct) = row.change_pct else {
        return (NotJudged, "no rate on one side".to_owned());
    };
    if change_pct >= -max_regression_pct {
        // The true rate of A may be higher.
        if row.lower_bounds.0 {
            return (NotJudged, "A is a lower bound".to_owned());
        }
        let higher = row
            .interval_pct
            .is_some_and(|(lower_pct, _)| lower_pct > 0.0);
        return match significance(row, higher) {
            Some((true, by)) if change_pct > max_regression_pct => (Faster, by),
            _ => (Within, String::new()),
        };
    }
    if row.lower_bounds.1 {
        return (NotJudged, "B is a lower bound".to_owned());
    }
    let fewest = row.runs.0.min(row.runs.1);
    let lower = row
        .interval_pct
        .is_some_and(|(_, upper_pct)| upper_pct < 0.0);
    match significance(row, lower) {
        None => (NotJudged, format!("only {}", numbers::count(fewest, "run"))),
        Some((true, by)) => (Slower, by),
        Some((false, by)) if by.is_empty() => (NotShown, "may be chance".to_owned()),
        Some((false, by)) => (NotShown, by),
    }
}

/// Whether a difference is significant, and by what if not by the test: of few runs, whether the interval lies on one
/// `side`. `None` of too few runs.
fn significance(row: &Row, side: bool) -> Option<(bool, String)> {
    let (_, p) = row.interval_pct.zip(row.p)?;
    Some(match row.runs.0.min(row.runs.1) < RUNS_FOR_TEST {
        true => (side, "by the interval: fewer than 5 runs".to_owned()),
        false => (p < SIGNIFICANT, String::new()),
    })
}

fn shown(row: &Row) -> [String; 5] {
    let dash = || "-".to_owned();
    let rate = |median: Option<f64>, lower_bound: bool| {
        let sign = if lower_bound { "≥ " } else { "" };
        median.map_or_else(dash, |rate| format!("{sign}{}", numbers::rate(rate)))
    };
    // Lower bounds have no ratio, and runs that ended at them have no order.
    let exact = row.lower_bounds == (false, false);
    [
        rate(row.medians.0, row.lower_bounds.0),
        rate(row.medians.1, row.lower_bounds.1),
        row.change_pct
            .filter(|_| exact)
            .map_or_else(dash, |pct| format!("{pct:+.1} %")),
        row.interval_pct
            .filter(|_| exact)
            .map_or_else(dash, |(low, high)| format!("{low:+.1} to {high:+.1} %")),
        row.p
            .filter(|_| exact)
            .map_or_else(dash, numbers::probability),
    ]
}

/// Differences that make a comparison of two campaigns doubtful.
fn warnings(a: &Analysis, b: &Analysis) -> Vec<String> {
    let mut warnings = Vec::new();
    for (which, analysis) in [("A", a), ("B", b)] {
        if !analysis.complete {
            warnings.push(format!("{which} is not complete"));
        }
        let reasons = analysis.not_a_measurement.iter();
        warnings.extend(reasons.map(|reason| format!("{which} is not a measurement: {reason}")));
    }
    warnings.extend(differences(a, b));
    warnings
}

/// What differs between two campaigns besides their rates.
fn differences(a: &Analysis, b: &Analysis) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, a: &str, b: &str| {
        if a != b {
            found.push(format!("{what} not the same: {a} and {b}"));
        }
    };
    differ("the Tester", &a.tester, &b.tester);
    if let (Some(a), Some(b)) = (a.sessions.last(), b.sessions.last()) {
        differ("the host", &a.environment.host, &b.environment.host);
        differ("the kernel", &a.environment.kernel, &b.environment.kernel);
        differ("the processor", &a.environment.cpu, &b.environment.cpu);
    }
    for (name, value) in &a.conditions {
        if let Some((_, other)) = b.conditions.iter().find(|(other, _)| other == name) {
            differ(name, value, other);
        }
    }
    for variant in &a.variants {
        let name = &variant.name;
        if let Some(other) = b.variants.iter().find(|other| other.name == *name) {
            let version = |v: &Option<String>| v.clone().unwrap_or_else(|| "unknown".to_owned());
            let what = format!("the version of {name}");
            differ(&what, &version(&variant.version), &version(&other.version));
            let verdicts = variant.conformance.as_ref().zip(other.conformance.as_ref());
            for (case, a, b) in verdicts.into_iter().flat_map(|(a, b)| a.both(b)) {
                let what = format!("the verdict of {case} about {name}");
                differ(&what, a.as_ref(), b.as_ref());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
