//! Figures of the rates that the runs found (Lencse, Georgescu and Kadobayashi 2017, figures 4 and 5).

use super::super::analysis::{Analysis, PointResult};
use super::{Figure, by_cell, legend};
use crate::report::chart::{Axis, Chart, MEDIUM, Mark, Role, Stroke};

/// A rate as its deviation from the median in per cent, so that variants with other rates can be compared, and the share
/// of the runs with this rate or a lower one in per cent: the empirical distribution function of RFC 2330 section 11.3,
/// which gives the percentiles.
type Step = (f64, f64);

/// The distribution of the runs, a figure for each cell with as many as an interval needs: the ends tell all of fewer.
pub(super) fn distributions(analysis: &Analysis) -> Vec<Figure> {
    let cells = by_cell(analysis, |point| {
        point.agreement.filter(|found| found.interval)?;
        Some((point.variant, steps(point)?))
    });
    let figure = |(cell, curves): &(String, Vec<_>)| of_cell(analysis, cell, curves);
    cells.iter().map(figure).collect()
}

/// The distinct rates of a point in ascending order; `None` for fewer than two runs with a rate.
fn steps(point: &PointResult) -> Option<Vec<Step>> {
    let median = point.median()?;
    let mut rates: Vec<u64> = point.rates_qps().collect();
    rates.sort_unstable();
    let mut up_to = 0;
    let step = |equal: &[u64]| {
        up_to += equal.len();
        let deviation_pct = (equal[0] as f64 / median - 1.0) * 100.0;
        (deviation_pct, 100.0 * up_to as f64 / rates.len() as f64)
    };
    let steps = rates.chunk_by(|a, b| a == b).map(step);
    (rates.len() > 1).then(|| steps.collect())
}

fn of_cell(analysis: &Analysis, title: &str, curves: &[(usize, Vec<Step>)]) -> Figure {
    let deviations = curves.iter().flat_map(|(_, steps)| steps);
    let (from, to) = deviations.fold((0.0_f64, 0.0_f64), |(from, to), (pct, _)| {
        (from.min(*pct), to.max(*pct))
    });
    let margin = ((to - from) / 20.0).max(MARGIN_PCT);
    let range = (from - margin, to + margin);
    let x = Axis::linear("deviation from the median (%)", range);
    let y = Axis::linear("runs with this rate or a lower one (%)", (0.0, 104.0));
    let mut chart = Chart::new(MEDIUM, x, y);
    for (variant, steps) in curves {
        let role = Role::variant(*variant);
        chart.line(role, Stroke::THICK, stairs(steps, range));
        chart.marks(role, Mark::variant(*variant, false), steps.iter().copied());
    }
    Figure {
        legend: legend(analysis, curves.iter().map(|(variant, _)| *variant)),
        ..Figure::new(title, chart.drawing())
    }
}

/// Margin beside the outermost rates if all are equal.
const MARGIN_PCT: f64 = 0.1;

/// The distribution function between two deviations: constant from each rate to the next.
fn stairs(steps: &[Step], (from, to): (f64, f64)) -> Vec<Step> {
    let mut line = vec![(from, 0.0)];
    let mut level = 0.0;
    for &(at, next) in steps {
        line.extend([(at, level), (at, next)]);
        level = next;
    }
    line.push((to, level));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::campaign::tests::sample::{SMALL, analysed};

    #[test]
    fn each_cell_has_one_figure_with_all_variants() {
        let analysis = analysed(&SMALL.replace("runs = 3", "runs = 20"));
        let steps = steps(&analysis.points[0]).unwrap();
        assert!(steps.is_sorted() && (steps.last().unwrap().1 - 100.0).abs() < 1e-9);
        assert_eq!(distributions(&analysis)[0].legend.len(), 3);
        let single = analysed(&SMALL.replace("runs = 3", "runs = 1"));
        assert_eq!(distributions(&single).len(), 0);
    }

    #[test]
    fn equal_rates_are_one_step() {
        let mut point = analysed(SMALL).points.remove(0);
        point.summary.as_mut().unwrap().median = 20.0;
        for (run, rate) in point.runs.iter_mut().zip([30, 10, 30]) {
            run.rate_qps = Some(rate);
        }
        let steps = steps(&point).unwrap();
        let rounded: Vec<_> = steps.iter().map(|(a, b)| (a.round(), b.round())).collect();
        assert_eq!(rounded, [(-50.0, 33.0), (50.0, 100.0)]);
    }

    #[test]
    fn distribution_rises_only_at_each_rate() {
        assert_eq!(
            stairs(&[(-50.0, 25.0), (50.0, 100.0)], (-60.0, 60.0)),
            [
                (-60.0, 0.0),
                (-50.0, 0.0),
                (-50.0, 25.0),
                (50.0, 25.0),
                (50.0, 100.0),
                (60.0, 100.0)
            ]
        );
    }
}
