//! Figures of the self-tests, with the rates that they apply to.

use std::collections::BTreeSet;

use super::super::analysis::{Analysis, Certificate, Margin, PointResult};
use super::super::{numbers, words};
use super::{Figure, Table, variant_name};
use crate::campaign::tasks;
use crate::report::chart::{self, Axis, Chart, MEDIUM, Mark, Role, Stroke};

/// File with the numbers.
const FILE: &str = "results.json";

/// Maximum number of conditions in a figure.
const CONDITIONS_MAX: usize = 8;

/// Height of a row.
const ROW: f64 = 36.0;

/// Rows for each of the conditions: its name, the self-tests, the rates.
const ROWS: f64 = 3.3;

/// Self-tests and the rates measured under them, those with the smallest margin first.
pub(super) fn margins(analysis: &Analysis) -> Vec<Figure> {
    let mut margins: Vec<_> = analysis.margins.iter().collect();
    margins.sort_by(|a, b| {
        let by_margin = |margin: &Margin| factor(analysis, margin).unwrap_or(f64::INFINITY);
        by_margin(a).total_cmp(&by_margin(b))
    });
    let all = margins.len();
    margins.truncate(CONDITIONS_MAX);
    if margins.is_empty() {
        return Vec::new();
    }
    let least = match all > CONDITIONS_MAX {
        true => format!("; the {CONDITIONS_MAX} of {all} conditions with the least margin"),
        false => String::new(),
    };
    let title = format!(
        "Rates that self-tests certify, and the median rates measured under the same conditions{least}. Good: the \
         self-tests agree, and all rates are left of the certified one"
    );
    let svg = draw_margins(analysis, &margins, &title);
    let rows = margins
        .iter()
        .flat_map(|margin| table_of_margin(analysis, margin));
    let table = Table::new(
        "Conditions | What | Rate (queries/s) | Certified / rate",
        rows,
    );
    let mut legend = vec![(
        chart::mark_key(Role::INK, Mark::dot(12)),
        "a self-test".to_owned(),
    )];
    legend.push((
        chart::limit_key(),
        "certified: up to here losses are the DUT’s".to_owned(),
    ));
    legend.extend(measured(analysis, &margins));
    vec![Figure {
        legend,
        ..Figure::new(&title, svg, table, FILE)
    }]
}

/// Legend of the marks of the measured rates.
fn measured(analysis: &Analysis, margins: &[&Margin]) -> Vec<(String, String)> {
    let indices = margins.iter().flat_map(|margin| &margin.points);
    let points = || indices.clone().map(|index| &analysis.points[*index]);
    let variants: BTreeSet<_> = points().map(|point| point.variant).collect();
    let entry = |variant| {
        let key = chart::mark_key(Role::variant(variant), Mark::variant(variant, false));
        (key, variant_name(analysis, variant).to_owned())
    };
    let is_any_bound = points().any(|point| point.lower_bound);
    let hollow = is_any_bound.then(|| {
        let key = chart::mark_key(Role::INK, Mark::variant(0, true));
        (key, "hollow: lower bound".to_owned())
    });
    variants.into_iter().map(entry).chain(hollow).collect()
}

/// Median rates of a margin, with their points.
fn medians<'a>(
    analysis: &'a Analysis,
    margin: &'a Margin,
) -> impl Iterator<Item = (&'a PointResult, f64)> + Clone {
    let points = margin.points.iter().map(|point| &analysis.points[*point]);
    points.filter_map(|point| Some((point, point.summary.as_ref()?.median)))
}

/// The certified rate as a multiple of the highest median.
fn factor(analysis: &Analysis, margin: &Margin) -> Option<f64> {
    let highest = medians(analysis, margin)
        .map(|(_, rate)| rate)
        .reduce(f64::max)?;
    Some(margin.certified_rate_qps? as f64 / highest)
}

fn tests<'a>(
    analysis: &'a Analysis,
    margin: &'a Margin,
) -> impl Iterator<Item = &'a Certificate> + Clone {
    let indices = margin.certificates.iter();
    indices.map(|index| &analysis.certificates[*index])
}

/// Title of a margin: conditions of its self-tests, with the durations of their trials if those of `all` differ.
fn heading(analysis: &Analysis, margin: &Margin, all: &[&Margin]) -> String {
    let spans = |margin: &Margin| {
        let first = tests(analysis, margin).next()?;
        Some((first.conditions.duration_ns, first.conditions.timeout_ns))
    };
    let first = tests(analysis, margin).next();
    match all.iter().any(|other| spans(other) != spans(margin)) {
        true => conditions(analysis, margin),
        false => first.map_or(String::new(), |test| tasks::spaced(&test.conditions.cell)),
    }
}

fn conditions(analysis: &Analysis, margin: &Margin) -> String {
    let Some(first) = tests(analysis, margin).next() else {
        return String::new();
    };
    let spans = [first.conditions.duration_ns, first.conditions.timeout_ns];
    let [duration, timeout] = spans.map(|ns| numbers::span(ns as f64));
    let cell = tasks::spaced(&first.conditions.cell);
    format!("{cell}, {duration}, timeout {timeout}")
}

fn draw_margins(analysis: &Analysis, margins: &[&Margin], title: &str) -> String {
    let rates = margins.iter().flat_map(|margin| {
        let certified = tests(analysis, margin).filter_map(|test| test.certified_rate_qps);
        let measured = medians(analysis, margin).map(|(_, rate)| rate);
        certified.map(|rate| rate as f64).chain(measured)
    });
    let x = Axis::from_zero("rate of a DUT (queries/s)", rates).sparse();
    let height = ROWS * margins.len() as f64 + 0.2;
    let tops = (0..margins.len()).map(|i| i as f64 * ROWS);
    let names = tops.clone().flat_map(|top| {
        let names = [(1.8, "self-tests"), (2.8, "measured")];
        names.map(|(row, name)| (top + row, name.to_owned()))
    });
    let y = Axis::named_rows(height, names);
    let mut chart = Chart::with_margin((MEDIUM.0, 88.0 + ROW * height), x, y, 210.0);
    for (margin, top) in margins.iter().zip(tops) {
        chart.word((0.0, top + 0.8), 0.0, &heading(analysis, margin, margins));
        if let Some(rate) = margin.certified_rate_qps.map(|rate| rate as f64) {
            let ends = [(rate, top + 1.3), (rate, top + 3.3)];
            chart.line(Role::INK, Stroke::Dashed, ends);
            chart.note(top + 1.8, &format!("certified {}", numbers::rate(rate)));
        }
        let tests: Vec<_> = tests(analysis, margin)
            .map(|test| test.certified_rate_qps)
            .collect();
        // Self-tests with equal rates are placed below each other.
        let level = |i: usize| top + 1.8 + 0.6 * ((i as f64 + 0.5) / tests.len() as f64 - 0.5);
        for (i, rate) in tests.iter().enumerate() {
            match rate {
                Some(rate) => chart.marks(Role::INK, Mark::dot(10), [(*rate as f64, level(i))]),
                None => chart.marks(Role::FAILED, Mark::CROSS, [(0.0, level(i))]),
            }
        }
        for (point, rate) in medians(analysis, margin) {
            let mark = Mark::variant(point.variant, point.lower_bound);
            chart.marks(Role::variant(point.variant), mark, [(rate, top + 2.8)]);
        }
        if let Some(factor) = factor(analysis, margin) {
            chart.note(
                top + 2.8,
                &format!("margin × {}", numbers::decimal(factor, 2)),
            );
        }
    }
    chart.svg(title)
}

fn table_of_margin(analysis: &Analysis, margin: &Margin) -> Vec<[String; 4]> {
    let name = conditions(analysis, margin);
    let nothing = || numbers::NOTHING.to_owned();
    let tests = tests(analysis, margin).zip(1..).map(|(test, number)| {
        let rate = test
            .certified_rate_qps
            .map(|rate| numbers::rate(rate as f64));
        let rate = rate.unwrap_or_else(|| "failed".to_owned());
        [name.clone(), format!("self-test {number}"), rate, nothing()]
    });
    let measured = medians(analysis, margin).map(|(point, rate)| {
        let certified = margin
            .certified_rate_qps
            .map_or(f64::NAN, |rate| rate as f64);
        let factor = numbers::decimal(certified / rate, 2);
        let mark = words::dagger(point.certified);
        let variant = variant_name(analysis, point.variant).to_owned();
        [name.clone(), variant, numbers::rate(rate) + mark, factor]
    });
    tests.chain(measured).collect()
}
