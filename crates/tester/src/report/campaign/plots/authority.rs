//! Figures of the authority's influence on the rate: over its delay, and over its working set.

use super::super::analysis::{Analysis, DelayCurve, WorkingSets};
use super::{Figure, Series, lines, values};
use crate::report::chart::Axis;

/// Rates over the delay, with the rates that a limit of outstanding queries allows.
pub(super) fn delays(analysis: &Analysis) -> Vec<Figure> {
    analysis.delays.iter().map(delay).collect()
}

fn delay(curve: &DelayCurve) -> Figure {
    let mut series = Series::new(0, "");
    for row in &curve.rows {
        let at = (row.delay_ns as f64 / 1e6, row.median);
        series.add(at, None, row.lower_bound);
    }
    let longest_ms = curve
        .rows
        .last()
        .map_or(0.0, |row| row.delay_ns as f64 / 1e6);
    let highest = curve.rows.iter().map(|row| row.median).fold(0.0, f64::max);
    let limited = limited(curve, longest_ms, highest * 1.04);
    let dashes = match limited.is_empty() {
        true => "",
        false => "; dashes: limit / time in the system",
    };
    if !limited.is_empty() {
        series.dash(limited);
    }
    let title = format!(
        "{}: median rate over the delay of the authority{dashes}; hollow: lower bound",
        curve.dut
    );
    let x = Axis::linear("delay of the authority (ms)", (0.0, longest_ms));
    let y = Axis::from_zero("queries/s", [highest]);
    lines(&title, (x, y), &[series])
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
    let power = |names: u64| (names as f64).log2();
    let series = |(index, set): (usize, &WorkingSets)| {
        let mut series = Series::new(index, set.order);
        for row in &set.rows {
            series.add((power(row.names), row.median), None, row.lower_bound);
        }
        series
    };
    let series: Vec<_> = sets.iter().enumerate().map(series).collect();
    let powers = sets.iter().flat_map(|set| &set.rows);
    let powers = powers.map(|row| power(row.names));
    let ends = powers.fold((f64::INFINITY, 0.0_f64), |(from, to), power| {
        (from.min(power), to.max(power))
    });
    let name = sets.first().map_or("", |set| analysis.name_of(set.variant));
    let title = format!("{name}: median rate over the working set; hollow: lower bound");
    let x = Axis::linear("names, as a power of 2", ends).whole();
    let y = Axis::from_zero("queries/s", values(&series));
    lines(&title, (x, y), &series)
}
