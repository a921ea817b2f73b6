//! Tables of the results of each point.

use super::super::analysis::Analysis;
use super::super::table::Table;
use super::by_point;

/// The rates of all points.
pub(super) fn results(analysis: &Analysis) -> Table {
    let mut table = Table::new(
        "results",
        "Results",
        "Rates over the runs, in queries per second. Median, range and failed at: rounded to the digits that the range allows. Range: 95 % interval of the median (percentile bootstrap), or lowest \
         to highest of fewer than 6 runs, including the resolution of the searches. Failed at: median of the lowest \
         failed rates. Of the first cell: median / that of the first cell of the same variant. DUT CPU: processor time of the DUT \
         at the rates that were found, the median of the runs; 100 % is one core. ≥ marks a lower bound.",
    );
    table.notes = cpu_unknown(analysis);
    let cpu = match analysis.points.iter().any(|p| p.dut_cpu_pct.is_some()) {
        true => "dut_cpu_pct",
        false => "",
    };
    let figures = format!("runs rate_qps range_qps failed_qps p1_qps p99_qps of_first {cpu} flags");
    by_point(analysis, table, &figures, |_| true)
}

/// Why the processor time of the DUT is unknown, a sentence for each reason.
fn cpu_unknown(analysis: &Analysis) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for point in &analysis.points {
        let Some(why) = point.dut_cpu_unknown else {
            continue;
        };
        let name = analysis.variants[point.variant].name.as_str();
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    let told = reasons.into_iter().map(|(why, names)| {
        let names = names.join(", ");
        format!("DUT CPU is not known of {names}: {why}.")
    });
    told.collect()
}

/// Dispersion of the runs of each point, as in the papers.
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
