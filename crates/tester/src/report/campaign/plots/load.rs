//! Figures of loads above the measured rate, and of long loads below it.

use super::super::analysis::{Analysis, LostOverTime, OverloadCurve, SoakResult, SoakRow};
use super::super::numbers;
use super::lines::places;
use super::{Figure, Series, by_cell, lines, values};
use crate::report::chart::Axis;

/// Goodput over the offered rate, by variant.
pub(super) fn overload(analysis: &Analysis) -> Vec<Figure> {
    let curves = analysis.overloads.iter();
    let curves = curves.filter(|curve| !curve.rows.is_empty());
    curves.map(|curve| goodput(analysis, curve)).collect()
}

fn goodput(analysis: &Analysis, curve: &OverloadCurve) -> Figure {
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
    let title = format!(
        "{}: valid answers in time over the offered rate; dashes: all of them, and the rate that was found; hollow: \
         beyond the certified rate, or disturbed",
        analysis.name_of(curve.variant)
    );
    let rates = curve.rows.iter().map(|row| row.rate_qps as f64);
    let x = Axis::from_zero("offered rate (queries/s)", rates);
    let y = Axis::from_zero("goodput (queries/s)", [top]);
    lines(&title, (x, y), &[series])
}

/// Losses during the failed trial with the lowest rate, a figure for each cell.
pub(super) fn losses_over_time(analysis: &Analysis) -> Vec<Figure> {
    let cells = by_cell(analysis, |point| {
        Some((point.variant, point.lost.as_ref()?))
    });
    let figure = |(cell, found): &(String, Vec<(usize, &LostOverTime)>)| {
        let series = found.iter().map(|(variant, lost)| {
            let rate = numbers::Thousands(lost.rate_qps);
            let name = format!("{} at {rate} queries/s", analysis.name_of(*variant));
            Series::new(*variant, &name).with(lost.lost_pct.iter().copied())
        });
        let series: Vec<_> = series.collect();
        let x = Axis::from_zero("time since the start (s)", places(&series));
        let y = Axis::from_zero("queries lost (%)", values(&series));
        let title = match &series[..] {
            [only] => format!("{cell}: {}", only.name),
            _ => cell.clone(),
        };
        lines(&title, (x, y), &series)
    };
    cells.iter().map(figure).collect()
}

/// Changes during soaks: a figure for each observed quantity.
pub(super) fn soak(analysis: &Analysis) -> Vec<Figure> {
    let soaks = analysis.soaks.iter();
    soaks.flat_map(|soak| over_time(analysis, soak)).collect()
}

fn over_time(analysis: &Analysis, soak: &SoakResult) -> Vec<Figure> {
    // Title, unit, size of the unit, and the value of a segment.
    type Quantity = (&'static str, &'static str, f64, fn(&SoakRow) -> Option<u64>);
    let memory = soak.rows.iter().filter_map(|row| row.memory_bytes).max();
    let (byte, byte_name) = numbers::byte_unit(memory.unwrap_or(0) as f64);
    let quantities: [Quantity; 3] = [
        (
            "queries without a valid answer in time",
            "queries",
            1.0,
            |row| Some(row.shortfall),
        ),
        ("resident memory", byte_name, byte, |row| row.memory_bytes),
        (
            "99th percentile of the round-trip times",
            "ms",
            1e6,
            |row| Some(row.rtt_ns_p99),
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
        let title = format!("{}: {title}", analysis.name_of(soak.variant));
        Some(lines(&title, (x, y), &series))
    };
    quantities.into_iter().filter_map(figure).collect()
}
