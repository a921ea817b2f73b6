//! Figures of the authority's influence on the rate: over its delay, and over its working set.

use super::super::analysis::{Analysis, DelayCurve, DelayRow, WorkingSets};
use super::super::numbers;
use super::{Figure, Table, variant_name};
use crate::report::chart::{self, Axis, Chart, MEDIUM, Role, Stroke};

/// File with the numbers of all of them.
const FILE: &str = "results.json";

/// Rates over the delay, with the rates that a limit of outstanding queries allows.
pub(super) fn delays(analysis: &Analysis) -> Vec<Figure> {
    analysis.delays.iter().map(delay).collect()
}

fn delay(curve: &DelayCurve) -> Figure {
    let places = curve.rows.iter();
    let places = places.map(|row| (row.delay_ns as f64 / 1e6, row.median, row.lower_bound));
    let places: Vec<_> = places.collect();
    let longest = places.last().map_or(0.0, |place| place.0);
    let highest = places.iter().map(|place| place.1).fold(0.0, f64::max);
    let x = Axis::linear("delay of the authority (ms)", (0.0, longest));
    let mut chart = Chart::new(MEDIUM, x, Axis::from_zero("queries/s", [highest]));
    let limited = limited(curve, longest, highest * 1.04);
    let dashes = if limited.is_empty() {
        ""
    } else {
        "; dashes: limit / time in the system"
    };
    chart.line(Role::MUTED, Stroke::Dashed, limited);
    chart.curve(0, &places);
    let title = format!(
        "{}: median rate over the delay of the authority{dashes}; hollow: lower bound",
        curve.dut
    );
    let row = |row: &DelayRow| {
        let span = |ns: u64| numbers::span(ns as f64);
        [
            span(row.delay_ns),
            numbers::rate(row.median),
            row.rtt_ns_p50.map_or(numbers::NOTHING.to_owned(), span),
            numbers::decimal(row.outstanding.unwrap_or(f64::NAN), 1),
        ]
    };
    let heads = "Delay | Median (queries/s) | Median round-trip time | Outstanding queries";
    let table = Table::new(heads, curve.rows.iter().map(row));
    Figure::new(&title, chart.svg(&title), table, FILE)
}

/// Rates that the limit allows, from the delay at which they are at most `highest`; empty without a limit.
fn limited(curve: &DelayCurve, longest_ms: f64, highest: f64) -> Vec<(f64, f64)> {
    const STEPS: u32 = 60;
    let (Some(limit), Some(in_sequence), Some(base_ns)) =
        (curve.limit, curve.in_sequence, curve.base_ns)
    else {
        return Vec::new();
    };
    let at = |step: u32| {
        let delay_ms = longest_ms * f64::from(step) / f64::from(STEPS);
        let time_ms = in_sequence * delay_ms + base_ns / 1e6;
        (delay_ms, limit / time_ms * 1e3)
    };
    let curve = (0..=STEPS).map(at);
    curve
        .filter(|(_, rate)| (0.0..=highest).contains(rate))
        .collect()
}

/// Rates over the working set, one figure for each variant.
pub(super) fn working_sets(analysis: &Analysis) -> Vec<Figure> {
    let sets = analysis
        .working_sets
        .chunk_by(|a, b| a.variant == b.variant);
    sets.map(|sets| working_set(analysis, sets)).collect()
}

fn working_set(analysis: &Analysis, sets: &[WorkingSets]) -> Figure {
    let rows = || sets.iter().flat_map(|set| &set.rows);
    let power = |names: u64| (names as f64).log2();
    let ends = rows().fold((f64::INFINITY, 0.0), |(from, to), row| {
        (
            f64::min(from, power(row.names)),
            f64::max(to, power(row.names)),
        )
    });
    let x = Axis::linear("names, as a power of 2", (ends.0.min(ends.1), ends.1)).whole();
    let y = Axis::from_zero("queries/s", rows().map(|row| row.median));
    let mut chart = Chart::new(MEDIUM, x, y);
    for (place, set) in sets.iter().enumerate() {
        let points = set.rows.iter();
        let points = points.map(|row| (power(row.names), row.median, row.lower_bound));
        chart.curve(place, &points.collect::<Vec<_>>());
    }
    let name = sets
        .first()
        .map_or("", |set| variant_name(analysis, set.variant));
    let title = format!("{name}: median rate over the working set; hollow: lower bound");
    let table = sets.iter().flat_map(|set| {
        set.rows.iter().map(|row| {
            [
                set.order.to_owned(),
                numbers::decimal(row.names as f64, 0),
                numbers::rate(row.median),
                numbers::decimal(row.factor, 2),
            ]
        })
    });
    let table = Table::new("Order | Names | Median (queries/s) | Factor", table);
    let keys = (0..sets.len()).map(chart::key);
    let orders = sets.iter().map(|set| set.order.to_owned());
    Figure {
        legend: keys.zip(orders).collect(),
        ..Figure::new(&title, chart.svg(&title), table, FILE)
    }
}
