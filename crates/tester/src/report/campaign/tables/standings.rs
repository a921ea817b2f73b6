//! The verdict as a table: the servers side by side.

use super::super::analysis::{Analysis, PointResult, Standing};
use super::super::table::{Cell, Table};
use super::super::{numbers, words};
use crate::statistics::agreement::Agreement;

/// Median, range and rank of each server at its representative point, rounded to the precision of the range.
pub(super) fn standings(analysis: &Analysis) -> Table {
    let rows = analysis.standings.rows.iter();
    let rows = rows.filter_map(|row| Some((row, analysis.points.get(row.point)?)));
    let ranges = rows.clone().filter_map(|(_, point)| point.agreement);
    let range = range_means(ranges);
    let mut caption = format!(
        "Median rates in queries per second, {}, rounded to the digits that the range allows. {range} The upper end uses the lowest failed rates, so the range includes the resolution of \
         the searches. Failed at: median of the lowest failed rates; the true median is below it.",
        analysis.standings.cell
    );
    if rows.clone().any(|(_, point)| point.lower_bound) {
        caption += " ≥ marks a lower bound.";
    }
    if rows
        .clone()
        .any(|(_, point)| point.certified == Some(false))
    {
        caption = format!("{caption} {}", words::UNCERTIFIED_MEANS);
    }
    let mut table = Table::new("standings", "Side by side", &caption);
    table.rows = rows
        .map(|(row, point)| cells(analysis, row, point))
        .collect();
    for (key, head) in HEADS {
        table.add_head(key, head);
    }
    table
}

/// Meaning of the ranges of these points.
pub(super) fn range_means(ranges: impl Iterator<Item = Agreement> + Clone) -> &'static str {
    let intervals = ranges.clone().any(|found| found.interval);
    let few = ranges.clone().any(|found| !found.interval);
    match (intervals, few) {
        (true, false) => {
            "Range: 95 % interval of the median (percentile bootstrap, 10,000 resamples)."
        }
        (true, true) => {
            "Range: 95 % interval of the median (percentile bootstrap, 10,000 resamples); of fewer than 6 runs \
             the lowest to the highest, which is no confidence interval."
        }
        (false, _) => {
            "Range: the lowest to the highest run; fewer than 6 runs have no confidence interval."
        }
    }
}

const HEADS: [(&str, &str); 7] = [
    ("variant", "server"),
    ("rate", "rate"),
    ("range", "range"),
    ("failed", "failed at"),
    ("runs", "runs"),
    ("of_fastest", "of the fastest"),
    ("against", "in words"),
];

fn cells(analysis: &Analysis, row: &Standing, point: &PointResult) -> Vec<Cell> {
    let fastest = match (row.of_fastest, row.of_fastest_range) {
        (Some(part), Some((low, high))) if part < 1.0 => {
            let [part, low, high] = [part, low, high].map(|part| numbers::significant(part, 2));
            format!("{part} ({low} to {high})")
        }
        (Some(_), _) => "1".to_owned(),
        _ => numbers::NOTHING.to_owned(),
    };
    let [rate, range, failed] = rates(point);
    vec![
        Cell::Text(analysis.variants[row.variant].name.clone()),
        Cell::Text(rate),
        Cell::Text(range),
        Cell::Text(failed),
        Cell::Count(point.agreement.map_or(0, |found| found.runs as u64)),
        Cell::Text(fastest),
        Cell::Text(row.against.clone()),
    ]
}

/// Rate, range and failed rate of a point in words. A rate is never rounded up to a value that no run has reached.
pub(in super::super) fn rates(point: &PointResult) -> [String; 3] {
    let nothing = || numbers::NOTHING.to_owned();
    let (Some(found), Some(summary)) = (point.agreement, &point.summary) else {
        return ["no rate".to_owned(), nothing(), nothing()];
    };
    let rounding = Rounding::of(&found);
    let down = |rate| numbers::decimal(rounding.down(rate), 0);
    let up = |rate| numbers::decimal(rounding.up(rate), 0);
    let range = match found.high_qps {
        Some(high) => format!("{} to {}", down(found.low_qps), up(high)),
        None if found.low_qps >= found.fastest_qps => numbers::range(&found),
        None => format!(
            "{} to {} or more",
            down(found.low_qps),
            down(found.fastest_qps)
        ),
    };
    let rate = match found.unstable {
        true => "unstable".to_owned(),
        false => {
            let sign = if point.lower_bound { "≥ " } else { "" };
            format!(
                "{sign}{}{}",
                down(summary.median),
                words::dagger(point.certified)
            )
        }
    };
    let failed = found.failed_qps.filter(|_| !found.unstable);
    [rate, range, failed.map_or_else(nothing, up)]
}

/// The digits that the range of a rate allows.
#[derive(Clone, Copy)]
pub(super) struct Rounding {
    unit: f64,
}

impl Rounding {
    pub(super) fn of(found: &Agreement) -> Self {
        let high = found.high_qps.unwrap_or(found.fastest_qps);
        Self {
            unit: numbers::unit_of(found.low_qps, high),
        }
    }

    pub(super) fn down(self, rate: f64) -> f64 {
        (rate / self.unit).floor() * self.unit
    }

    pub(super) fn up(self, rate: f64) -> f64 {
        (rate / self.unit).ceil() * self.unit
    }
}

/// The rounded range for a table of numbers.
pub(super) fn range(found: &Agreement) -> Cell {
    let rounding = Rounding::of(found);
    let low = rounding.down(found.low_qps);
    if let Some(high) = found.high_qps {
        return Cell::Range(low, rounding.up(high));
    }
    let [low, fastest] = [low, rounding.down(found.fastest_qps)].map(numbers::rate);
    Cell::Text(match found.low_qps < found.fastest_qps {
        true => format!("{low} – ≥ {fastest}"),
        false => format!("≥ {low}"),
    })
}
