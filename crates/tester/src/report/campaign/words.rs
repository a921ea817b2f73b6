//! Names and events in words, equal in every file of a report.

use super::analysis::{Analysis, PointResult};
use super::numbers::short;
use crate::campaign::plan::tasks::spaced;
use crate::statistics::agreement::Agreement;
use crate::statistics::pass::{PassRates, RateInterval};

/// Mark of a rate for which the Tester was not certified.
const UNCERTIFIED: &str = "†";

/// Meaning of that mark.
pub(super) const UNCERTIFIED_MEANS: &str = "† marks a rate for which the Tester is not certified (RFC \
                                            8219 section 9.2.1): not a measurement.";

/// Mark of a server that fails a must, after its name.
pub(super) const FAILS_A_MUST: &str = "‡";

/// Meaning of that mark.
pub(super) const FAILS_A_MUST_MEANS: &str =
    "‡ marks a server that fails a case of level must (docs/conformance.md).";

/// The mark of a rate, if the Tester was not certified for it.
pub(super) fn dagger(certified: Option<bool>) -> &'static str {
    match certified {
        Some(false) => UNCERTIFIED,
        Some(true) | None => "",
    }
}

/// The title of a figure of rates, with the meaning of the mark if any rate has it.
pub(super) fn explained(title: &str, mut certified: impl Iterator<Item = Option<bool>>) -> String {
    match certified.any(|certified| certified == Some(false)) {
        true => format!("{title}. {}", UNCERTIFIED_MEANS.trim_end_matches('.')),
        false => title.to_owned(),
    }
}

/// The shares of a point.
pub(super) fn cell(point: &PointResult) -> String {
    spaced(&point.planned.cell.to_string())
}

/// Duration and timeout of a point.
pub(super) fn spans(point: &PointResult) -> String {
    let (duration, timeout) = (short(point.duration_s), short(point.timeout_s));
    format!("trials of {duration} s, timeout {timeout} s")
}

/// The shares of a point, and its duration and timeout if they are not the plan's.
pub(super) fn cell_and_spans(point: &PointResult) -> String {
    match point.planned.is_usual {
        true => cell(point),
        false => format!("{}, {}", cell(point), spans(point)),
    }
}

/// Kind of the range of the runs of a point.
pub(super) fn range_is(found: Agreement) -> &'static str {
    match found.interval {
        true => "95 % interval",
        false => "range",
    }
}

/// Rates at which trials pass with a given probability, with their 95 % intervals.
pub(super) fn pass_rates(rates: &PassRates) -> String {
    let rate = |of: RateInterval| {
        let [rate, low, high] =
            [of.rate_qps, of.low_qps, of.high_qps].map(|qps| short(qps.round()));
        format!("{rate} ({low} to {high})")
    };
    let [half, most] = [rates.at_50_pct, rates.at_99_pct].map(rate);
    format!("half of the trials pass at {half}, 99 % at {most}")
}

/// The variant of a point, and its shares.
pub(super) fn point(analysis: &Analysis, point: &PointResult) -> String {
    let variant = analysis.name_of(point.variant);
    format!("{variant}, {}", cell_and_spans(point))
}
