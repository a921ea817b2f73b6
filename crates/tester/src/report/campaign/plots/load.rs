//! Figures of loads above the measured rate, and of long loads below it.

use super::super::analysis::{Analysis, OverloadCurve, OverloadRow, SoakResult, SoakRow};
use super::super::numbers;
use super::{Figure, Group, Table, groups, same};
use crate::report::chart::{self, Axis, Chart, MEDIUM, Mark, Role, SMALL, Stroke};

/// File with the numbers of all of them.
const FILE: &str = "results.json";

/// Goodput and latency over the offered rate, by variant.
pub(super) fn overload(analysis: &Analysis) -> Vec<Group> {
    let figures = |curve: &OverloadCurve| match &curve.rows[..] {
        [] => Vec::new(),
        rows if rows.iter().all(|row| row.rtt_ns_p99.is_none()) => vec![goodput(curve)],
        _ => vec![goodput(curve), latency(curve)],
    };
    let of_variant = |curve: &OverloadCurve| (curve.variant, figures(curve));
    groups(analysis, analysis.overloads.iter().map(of_variant))
}

/// A value `of` the trials over the offered rate, and whether it is doubtful.
fn over_rate(curve: &OverloadCurve, of: fn(&OverloadRow) -> Option<f64>) -> Vec<(f64, f64, bool)> {
    let point = |row: &OverloadRow| Some((row.rate_qps as f64, of(row)?, row.doubtful));
    curve.rows.iter().filter_map(point).collect()
}

fn offered(curve: &OverloadCurve) -> Axis {
    let rates = curve.rows.iter().map(|row| row.rate_qps as f64);
    Axis::from_zero("offered rate (queries/s)", rates).sparse()
}

fn goodput(curve: &OverloadCurve) -> Figure {
    let points = over_rate(curve, |row| Some(row.goodput_qps));
    let top = 1.1 * points.iter().map(|point| point.1).fold(0.0, f64::max);
    let highest = points.iter().map(|point| point.0).fold(0.0, f64::max);
    let all = top.min(highest);
    let base = curve.base_rate_qps as f64;
    let y = Axis::from_zero("goodput (queries/s)", [top]);
    let mut chart = Chart::new(MEDIUM, offered(curve), y);
    chart.line(Role::MUTED, Stroke::Dashed, [(0.0, 0.0), (all, all)]);
    chart.line(Role::MUTED, Stroke::THIN, [(base, 0.0), (base, top)]);
    draw(&mut chart, curve.variant, curve.variant, &points);
    let title = "Valid answers in time over the offered rate; dashes: all of them; hollow: beyond the certified rate, or \
                 disturbed; the line joins the last trial at each rate";
    Figure::new(title, chart.svg(title), table_of_overload(curve), FILE)
}

/// A line through the last trial at each rate, and all trials as marks: disturbed ones were repeated.
fn draw(chart: &mut Chart, variant: usize, shape: usize, points: &[(f64, f64, bool)]) {
    let rates = points.chunk_by(|a, b| same(a.0, b.0));
    let mut last = Vec::new();
    for trials in rates {
        if let [repeated @ .., end] = trials {
            last.push(*end);
            let disturbed = repeated.iter().map(|&(x, y, _)| (x, y));
            chart.marks(
                Role::variant(variant),
                Mark::variant(shape, true),
                disturbed,
            );
        }
    }
    chart.curve_of(Role::variant(variant), shape, &last);
}

fn latency(curve: &OverloadCurve) -> Figure {
    let median = over_rate(curve, |row| Some(row.rtt_ns_p50? as f64));
    let tail = over_rate(curve, |row| Some(row.rtt_ns_p99? as f64));
    let times = median.iter().chain(&tail).map(|point| point.1);
    let y = Axis::times("round-trip time", times);
    let mut chart = Chart::new(MEDIUM, offered(curve), y);
    // Both belong to one server and have its colour: the shape of the mark distinguishes them.
    let role = Role::variant(curve.variant);
    draw(&mut chart, curve.variant, 0, &median);
    draw(&mut chart, curve.variant, 1, &tail);
    let title = "Round-trip times over the offered rate";
    let names = ["median", "99th percentile"].map(str::to_owned);
    let keys = [0, 1].map(|shape| chart::mark_key(role, Mark::variant(shape, false)));
    Figure {
        legend: keys.into_iter().zip(names).collect(),
        ..Figure::new(title, chart.svg(title), table_of_overload(curve), FILE)
    }
}

fn table_of_overload(curve: &OverloadCurve) -> Table {
    let span = |ns: Option<u64>| numbers::span(ns.map_or(f64::NAN, |ns| ns as f64));
    let row = |row: &OverloadRow| {
        let rate = row.rate_qps as f64;
        [
            numbers::decimal(rate, 0),
            numbers::decimal(rate / curve.base_rate_qps as f64, 2),
            numbers::decimal(row.goodput_qps, 0),
            span(row.rtt_ns_p50),
            span(row.rtt_ns_p99),
            if row.doubtful { "yes" } else { "no" }.to_owned(),
        ]
    };
    let heads = "Offered (queries/s) | Times the rate | Goodput (queries/s) | \
                 Median round-trip time | 99th percentile | Doubtful";
    Table::new(heads, curve.rows.iter().map(row))
}

/// Changes during soaks, by variant.
pub(super) fn soak(analysis: &Analysis) -> Vec<Group> {
    let soaks = analysis.soaks.iter();
    groups(analysis, soaks.map(|soak| (soak.variant, over_time(soak))))
}

/// Figures of a soak, one for each observed quantity.
fn over_time(soak: &SoakResult) -> Vec<Figure> {
    let memory = soak.rows.iter().filter_map(|row| row.memory_bytes).max();
    let (byte, byte_name) = numbers::byte_unit(memory.unwrap_or(0) as f64);
    // Title, unit, size of the unit, and decimals in the table.
    let seen_as = [
        ("Queries without a valid answer in time", "queries", 1.0, 0),
        ("Resident memory", byte_name, byte, 1),
        ("Open descriptors", "descriptors", 1.0, 0),
        ("Threads", "threads", 1.0, 0),
        ("99th percentile of the round-trip times", "ms", 1e6, 3),
        ("99.9th percentile of the round-trip times", "ms", 1e6, 3),
    ];
    let (second, time) = numbers::time_unit(soak.rows.last().map_or(0.0, |row| row.at_s));
    let mut figures = Vec::new();
    for (i, (title, unit, size, places)) in seen_as.into_iter().enumerate() {
        let known = |row: &SoakRow| {
            let value = [
                Some(row.shortfall),
                row.memory_bytes,
                row.descriptors,
                row.threads,
                Some(row.rtt_ns_p99),
                Some(row.rtt_ns_p999),
            ][i];
            Some((row.at_s / second, value? as f64 / size))
        };
        let values: Vec<_> = soak.rows.iter().filter_map(known).collect();
        let Some(&(end, _)) = values.last() else {
            continue;
        };
        let x = Axis::linear(&format!("time ({time})"), (0.0, end));
        let y = Axis::from_zero(unit, values.iter().map(|(_, value)| *value));
        let y = if size > 1.0 { y } else { y.whole() };
        let mut chart = Chart::new(SMALL, x, y);
        let role = Role::variant(soak.variant);
        chart.line(role, Stroke::THICK, values.clone());
        chart.marks(role, Mark::dot(6), values.clone());
        let row = |(at, value)| [numbers::decimal(at, 2), numbers::decimal(value, places)];
        let heads = format!("Time ({time}) | {title} ({unit})");
        let table = Table::new(&heads, values.into_iter().map(row));
        figures.push(Figure::new(title, chart.svg(title), table, FILE));
    }
    figures
}
