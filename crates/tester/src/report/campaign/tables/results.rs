//! What was found at each point.

use super::super::analysis::Analysis;
use super::super::table::Table;
use super::by_point;

/// The rates of all points.
pub(super) fn results(analysis: &Analysis) -> Table {
    let table = Table::new(
        "results",
        "Results",
        "Rates over the runs, in queries per second. Range: 95 % interval of the median (percentile bootstrap), or lowest \
         to highest of fewer than 6 runs, including the resolution of the searches. Failed at: median of the lowest \
         failed rates. Of the first cell: median / that of the first cell of the same variant. ≥ marks a \
         lower bound.",
    );
    let figures = "runs median_qps range_qps failed_qps p1_qps p99_qps of_first flags";
    by_point(analysis, table, figures, |_| true)
}

/// How the runs of each point lie, as the papers have it.
pub(super) fn spread(analysis: &Analysis) -> Table {
    let table = Table::new(
        "spread",
        "Spread of the runs",
        "In queries per second, as the papers have them. SD: standard deviation; MoE: margin of error at 99.9 %; \
         MAD: median absolute deviation × 1.4826; dispersion: (max − min) / median; calculated: median / (1 + \
         timeout / duration); sustained: what a DUT that stores queries served in the trials that passed.",
    );
    let sustained = match analysis.points.iter().any(|p| p.stored.is_some()) {
        true => "sustained_qps",
        false => "",
    };
    let figures = "average_qps standard_deviation_qps margin_of_error_999_qps \
                   median_absolute_deviation_qps dispersion_pct calculated_qps";
    by_point(analysis, table, &format!("{figures} {sustained}"), |p| {
        p.summary.is_some()
    })
}
