//! Figures of loads above the measured rate, and of long loads below it.

use super::super::analysis::{Analysis, OverloadCurve, SoakResult, SoakRow};
use super::super::numbers;
use super::lines::lines_of;
use super::{Figure, Series, lines, values};
use crate::report::chart::{Axis, SMALL};

/// File with the numbers of all of them.
const DATA: &str = "results.json";

/// Goodput and latency over the offered rate, by variant.
pub(super) fn overload(analysis: &Analysis) -> Vec<Figure> {
    let curves = analysis.overloads.iter();
    let figures = curves
        .filter(|curve| !curve.rows.is_empty())
        .flat_map(|curve| {
            let figures = [Some(goodput(curve)), latency(curve)];
            figures.into_iter().flatten().map(|figure| Figure {
                variant: Some(curve.variant),
                ..figure
            })
        });
    figures.collect()
}

fn offered(curve: &OverloadCurve) -> Axis {
    let rates = curve.rows.iter().map(|row| row.rate_qps as f64);
    Axis::from_zero("offered rate (queries/s)", rates).sparse()
}

fn goodput(curve: &OverloadCurve) -> Figure {
    let mut series = Series::new(curve.variant, "");
    for row in &curve.rows {
        series.add((row.rate_qps as f64, row.goodput_qps), None, row.doubtful);
    }
    let goodputs = curve.rows.iter().map(|row| row.goodput_qps);
    let top = 1.1 * goodputs.fold(0.0, f64::max);
    let offered_max = curve.rows.iter().map(|row| row.rate_qps).max();
    let all = top.min(offered_max.unwrap_or(0) as f64);
    let base = curve.base_rate_qps as f64;
    series.dash([(0.0, 0.0), (all, all)]);
    series.dash([(base, 0.0), (base, top)]);
    let title = "Valid answers in time over the offered rate; dashes: all of them, and the rate that was found; hollow: \
                 beyond the certified rate, or disturbed";
    let axes = (
        offered(curve),
        Axis::from_zero("goodput (queries/s)", [top]),
    );
    lines(title, axes, &[series], DATA)
}

fn latency(curve: &OverloadCurve) -> Option<Figure> {
    // Both belong to one server and have its colour: the shape of the mark distinguishes them.
    let mut both = [(0, "median"), (1, "99th percentile")]
        .map(|(shape, name)| Series::new(shape, name).of_variant(curve.variant));
    for row in &curve.rows {
        let times = [row.rtt_ns_p50, row.rtt_ns_p99];
        for (series, ns) in both.iter_mut().zip(times) {
            if let Some(ns) = ns {
                series.add((row.rate_qps as f64, ns as f64), None, row.doubtful);
            }
        }
    }
    values(&both).next()?;
    let y = Axis::times("round-trip time", values(&both));
    let title =
        "Round-trip times over the offered rate; hollow: beyond the certified rate, or disturbed";
    Some(lines(title, (offered(curve), y), &both, DATA))
}

/// Changes during soaks: a figure for each observed quantity.
pub(super) fn soak(analysis: &Analysis) -> Vec<Figure> {
    analysis.soaks.iter().flat_map(over_time).collect()
}

fn over_time(soak: &SoakResult) -> Vec<Figure> {
    // Title, unit, size of the unit, and the value of a segment.
    type Quantity = (&'static str, &'static str, f64, fn(&SoakRow) -> Option<u64>);
    let memory = soak.rows.iter().filter_map(|row| row.memory_bytes).max();
    let (byte, byte_name) = numbers::byte_unit(memory.unwrap_or(0) as f64);
    let quantities: [Quantity; 6] = [
        (
            "Queries without a valid answer in time",
            "queries",
            1.0,
            |row| Some(row.shortfall),
        ),
        ("Resident memory", byte_name, byte, |row| row.memory_bytes),
        ("Open descriptors", "descriptors", 1.0, |row| {
            row.descriptors
        }),
        ("Threads", "threads", 1.0, |row| row.threads),
        (
            "99th percentile of the round-trip times",
            "ms",
            1e6,
            |row| Some(row.rtt_ns_p99),
        ),
        (
            "99.9th percentile of the round-trip times",
            "ms",
            1e6,
            |row| Some(row.rtt_ns_p999),
        ),
    ];
    let end_s = soak.rows.last().map_or(0.0, |row| row.at_s);
    let (second, time) = numbers::time_unit(end_s);
    let figure = |(title, unit, size, of): Quantity| {
        let known = |row: &SoakRow| Some((row.at_s / second, of(row)? as f64 / size));
        let series = Series::new(soak.variant, "").with(soak.rows.iter().filter_map(known));
        let series = [series];
        values(&series).next()?;
        let x = Axis::linear(&format!("time ({time})"), (0.0, end_s / second));
        let y = Axis::from_zero(unit, values(&series));
        let y = if size > 1.0 { y } else { y.whole() };
        Some(Figure {
            variant: Some(soak.variant),
            ..lines_of(SMALL, title, (x, y), &series, DATA)
        })
    };
    quantities.into_iter().filter_map(figure).collect()
}
