//! Whether a DUT stores queries.

use crate::report::campaign::analysis::{Analysis, PointResult, QueueCheckResult, QueueCheckRow};
use crate::report::numbers;
use crate::statistics::agreement::INTERVAL_RUNS_MIN;
use crate::statistics::queue;

/// Whether each variant stores queries: by its first cell, without lower bounds.
pub(super) fn queue_checks(analysis: &Analysis) -> Vec<QueueCheckResult> {
    let first = analysis.points.first().map(|point| point.planned.cell);
    let check = |variant: usize| {
        let own = analysis.points_of(variant);
        let own = own.filter(|p| !p.lower_bound && Some(p.planned.cell) == first);
        let points: Vec<(&PointResult, f64)> = own.filter_map(|p| Some((p, p.median()?))).collect();
        let rows = points
            .iter()
            .map(|(p, median)| (p.duration_s, p.timeout_s, *median));
        let check = queue::check(&rows.collect::<Vec<_>>())?;
        let row = |((point, median), calculated): (&(&PointResult, f64), f64)| QueueCheckRow {
            duration_s: point.duration_s,
            timeout_s: point.timeout_s,
            median: *median,
            calculated,
            certified: point.certified,
        };
        let (medians, rates) = (check.median_dispersion_pct, check.calculated_dispersion_pct);
        let runs = points
            .iter()
            .filter_map(|(p, _)| Some(p.summary.as_ref()?.runs));
        let runs = runs.min().unwrap_or(0);
        // Without an interval of the medians their dispersion may be that of the runs.
        let is_judged = runs >= INTERVAL_RUNS_MIN;
        let stores_requests = check.stores_requests.filter(|_| is_judged);
        let verdict = match stores_requests {
            None if !is_judged => format!(
                "undecided: a row has {}, and the medians of fewer than {INTERVAL_RUNS_MIN} are too \
                 uncertain to compare; they differ by {medians:.1} %, the calculated rates by {rates:.1} %",
                numbers::count(runs, "run")
            ),
            Some(true) => format!(
                "stores requests: the calculated rates agree within {rates:.1} %, the medians only \
                 within {medians:.1} %; the calculated rate is the sustainable one"
            ),
            Some(false) => format!(
                "does not use up the timeout: the medians agree within {medians:.1} %, the \
                 calculated rates within {rates:.1} %; the median is the sustainable rate"
            ),
            None => format!(
                "undecided: neither the medians agree, which differ by {medians:.1} %, nor the calculated \
                 rates, by {rates:.1} %; the DUT stores a part, or something else than duration and \
                 timeout changed its rate: look at the runs, and repeat them on a quiet machine"
            ),
        };
        Some(QueueCheckResult {
            variant,
            rows: points.iter().zip(check.calculated).map(row).collect(),
            median_dispersion_pct: medians,
            calculated_dispersion_pct: rates,
            stores_requests,
            verdict,
        })
    };
    (0..analysis.variants.len()).filter_map(check).collect()
}
