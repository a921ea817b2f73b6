//! Figures of round-trip times.

use super::super::analysis::{Analysis, CommonLoad, PointResult};
use super::super::numbers;
use super::lines::places;
use super::{Figure, Series, by_cell, lines, values};
use crate::report::chart::Axis;

/// Round-trip times by percentile, a figure for each cell.
pub(super) fn latency(analysis: &Analysis) -> Vec<Figure> {
    let cells = by_cell(analysis, |point| {
        // A round-trip time has little meaning without its load.
        let rate = rate_of(point).map_or_else(String::new, |rate| {
            format!(" at {} queries/s", numbers::Thousands(rate))
        });
        (!point.rtt_ns.is_empty()).then_some((point.variant, rate, &point.rtt_ns))
    });
    let figure = |(cell, found): &(String, Vec<(usize, String, &Vec<_>)>)| {
        let series = found.iter().map(|(variant, rate, times)| {
            let name = format!("{}{rate}", analysis.name_of(*variant));
            by_percentile(*variant, &name, times)
        });
        let alone = match &found[..] {
            [(_, rate, _)] => rate,
            _ => "",
        };
        latency_of(&format!("{cell}{alone}"), &series.collect::<Vec<_>>())
    };
    cells.iter().map(figure).collect()
}

/// The rate of the run nearest to the median, whose times are shown.
fn rate_of(point: &PointResult) -> Option<u64> {
    let median = point.median()?;
    let distance = |rate: &u64| (*rate as f64 - median).abs();
    let rates = point.rates_qps();
    rates.min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// Round-trip times by percentile at the rate that all servers of a cell passed.
pub(super) fn common_loads(analysis: &Analysis) -> Vec<Figure> {
    let figure = |load: &CommonLoad| {
        let series = load.rows.iter().map(|row| {
            let variant = analysis.points[row.point].variant;
            by_percentile(variant, analysis.name_of(variant), &row.rtt_ns)
        });
        let rate = numbers::Thousands(load.rate_qps);
        let title = format!("{}: all at {rate} queries/s", load.cell);
        latency_of(&title, &series.collect::<Vec<_>>())
    };
    analysis.common_loads.iter().map(figure).collect()
}

fn by_percentile(variant: usize, name: &str, rtt_ns: &[(f64, u64)]) -> Series {
    Series::new(variant, name).with(rtt_ns.iter().map(|(pct, ns)| (*pct, *ns as f64)))
}

fn latency_of(title: &str, series: &[Series]) -> Figure {
    let x = Axis::percentile("percentile of the answers", places(series));
    let y = Axis::times("round-trip time", values(series));
    lines(title, (x, y), series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::campaign::tests::sample::{SMALL, analysed};

    #[test]
    fn latencies_name_the_rate_of_their_trial() {
        let mut analysis = analysed(SMALL);
        let point = analysis
            .points
            .iter_mut()
            .find(|point| point.variant == 0)
            .unwrap();
        point.runs.truncate(2);
        (point.runs[0].rate_qps, point.runs[1].rate_qps) = (Some(8_000), Some(10_000));
        point.summary.as_mut().unwrap().median = 9_000.0;
        let figure = &latency(&analysis)[0];
        assert_eq!(figure.legend[0].1, "dns64d cores=1 at 8,000 queries/s");
        analysis.points.retain(|point| point.variant == 0);
        let figure = &latency(&analysis)[0];
        assert!(figure.legend.is_empty());
        assert_eq!(figure.title, "AAAA 0 %, cached 0 % at 8,000 queries/s");
    }
}
