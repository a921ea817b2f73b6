//! The verdict as a table: the servers side by side.

use super::super::analysis::{Analysis, PointResult, Standing, VariantInfo};
use super::super::table::{Cell, Table, columns};
use super::super::{numbers, words};
use super::point;
use crate::conform::report::{Conformance, Verdict};
use crate::statistics::agreement::Agreement;

/// A server with its rank and its representative point.
struct Ranked<'a> {
    name: &'a str,
    conformance: Option<&'a Conformance>,
    standing: &'a Standing,
    point: &'a PointResult,
}

/// Median, range and rank of each server at its representative point, rounded to the precision of the range.
pub(super) fn standings(analysis: &Analysis) -> Table {
    let columns = columns![r: Ranked<'_>;
        "variant", "server" => r.name;
        "rate", "rate" => (point::RATE.cell)(r.point);
        "range", "range" => (point::RANGE.cell)(r.point);
        "failed", "failed at" => (point::FAILED.cell)(r.point);
        "runs", "runs" => r.point.agreement.map_or(0, |found| found.runs);
        "of_fastest", "of the fastest" => of_fastest(r.standing);
        "against", "in words" => &r.standing.against;
        "conformance", "conformance" => conformance(r.conformance);
    ];
    let ranked = |standing| -> Option<Ranked<'_>> {
        let standing: &Standing = standing;
        let point = analysis.points.get(standing.point)?;
        Some(Ranked {
            name: analysis.name_of(standing.variant),
            conformance: analysis.variants[standing.variant].conformance.as_ref(),
            standing,
            point,
        })
    };
    let rows = analysis.standings.rows.iter().filter_map(ranked);
    let rows: Vec<_> = rows.collect();
    let range = range_means(rows.iter().filter_map(|row| row.point.agreement));
    let mut caption = format!(
        "Median rates in queries per second, {}, rounded to the digits that the range allows. {range} The upper end uses the lowest failed rates, so the range includes the resolution of \
         the searches. Failed at: median of the lowest failed rates; the true median is below it.",
        analysis.standings.cell
    );
    if rows.iter().any(|row| row.point.lower_bound) {
        caption += " ≥ marks a lower bound.";
    }
    if analysis.variants.iter().any(VariantInfo::fails_a_must) {
        caption += " ";
        caption += words::FAILS_A_MUST_MEANS;
    }
    // Without any test of conformance there is no such column.
    let tested = rows.iter().any(|row| row.conformance.is_some());
    let columns = columns.iter().take(columns.len() - usize::from(!tested));
    Table::new("standings", "Side by side", &caption).with(columns, rows)
}

/// How many cases of level must a server passes.
fn conformance(found: Option<&Conformance>) -> Cell {
    match found {
        None => Cell::Nothing,
        Some(Conformance {
            incomplete: Some(why),
            ..
        }) => why.clone().into(),
        Some(found) => {
            let passed = found.musts(Verdict::Passed).count();
            let known = passed + found.musts(Verdict::Failed).count();
            format!("{passed} of {known} must").into()
        }
    }
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

fn of_fastest(standing: &Standing) -> Cell {
    match (standing.of_fastest, standing.of_fastest_range) {
        (Some(part), Some((low, high))) if part < 1.0 => {
            let [part, low, high] = [part, low, high].map(|part| numbers::significant(part, 2));
            format!("{part} ({low} to {high})").into()
        }
        (Some(_), _) => "1".into(),
        _ => Cell::Nothing,
    }
}

/// Rate of a point in words. It is never rounded up to a value that no run has reached.
pub(in super::super) fn rate(point: &PointResult) -> String {
    (point::RATE.cell)(point).text("")
}
