//! Figures of the rates that the runs found.

use super::super::analysis::Analysis;
use super::super::distribution::{Step, steps};
use super::super::numbers;
use super::{Figure, Table, by_cell, legend, variant_name};
use crate::report::chart::{Axis, Chart, MEDIUM, Mark, Role, Stroke};

/// The runs of a variant: its index, the median, and the distinct rates.
type Curve = (usize, f64, Vec<Step>);

/// The distribution of the runs, a figure for each cell with as many as an interval needs: fewer are told by their ends. Rates are told by their deviation from the median, so that the
/// variants of a cell can be compared that have other rates.
pub(super) fn distributions(analysis: &Analysis) -> Vec<Figure> {
    let cells = by_cell(analysis, |point| {
        let (median, steps) = (point.summary.as_ref()?.median, steps(point));
        point.agreement.filter(|found| found.interval)?;
        (!steps.is_empty()).then_some((point.variant, median, steps))
    });
    let figure = |(cell, curves): &(String, Vec<Curve>)| of_cell(analysis, cell, curves);
    cells.iter().map(figure).collect()
}

/// Deviation of a rate from the median, in per cent of it.
fn deviation_pct(step: &Step, median: f64) -> f64 {
    (step.rate_qps as f64 / median - 1.0) * 100.0
}

fn of_cell(analysis: &Analysis, title: &str, curves: &[Curve]) -> Figure {
    let each = curves.iter();
    let deviations = each.flat_map(|(_, median, steps)| {
        let steps = steps.iter();
        steps.map(|step| deviation_pct(step, *median))
    });
    let ends = |(from, to): (f64, f64), pct: f64| (from.min(pct), to.max(pct));
    let (from, to) = deviations.fold((0.0, 0.0), ends);
    let margin = ((to - from) / 20.0).max(MARGIN_PCT);
    let range = (from - margin, to + margin);
    let x = Axis::linear("deviation from the median (%)", range);
    let y = Axis::linear("runs with this rate or a lower one (%)", (0.0, 104.0));
    let mut chart = Chart::new(MEDIUM, x, y);
    for (variant, median, steps) in curves {
        let role = Role::variant(*variant);
        chart.line(role, Stroke::THICK, stairs(steps, *median, range));
        let corner = |step: &Step| (deviation_pct(step, *median), step.cumulative * 100.0);
        let mark = Mark::variant(*variant, false);
        chart.marks(role, mark, steps.iter().map(corner));
    }
    let rows = curves.iter().flat_map(|(variant, median, steps)| {
        let name = variant_name(analysis, *variant);
        steps.iter().map(move |step| {
            [
                name.to_owned(),
                numbers::rate(step.rate_qps as f64),
                numbers::decimal(deviation_pct(step, *median), 2),
                step.runs.to_string(),
                numbers::decimal(step.share * 100.0, 1),
                numbers::decimal(step.cumulative * 100.0, 1),
            ]
        })
    });
    let heads =
        "Variant | Rate (queries/s) | Deviation (%) | Runs | Probability (%) | Cumulative (%)";
    let svg = chart.svg(&format!("distribution of the runs, {title}"));
    Figure {
        legend: legend(analysis, curves.iter().map(|(variant, ..)| *variant)),
        ..Figure::new(title, svg, Table::new(heads, rows), "data/distribution.dat")
    }
}

/// Margin beside the outermost rates if all are equal.
const MARGIN_PCT: f64 = 0.1;

/// The distribution function between two deviations: constant from each rate to the next.
fn stairs(steps: &[Step], median: f64, (from, to): (f64, f64)) -> Vec<(f64, f64)> {
    let mut line = vec![(from, 0.0)];
    let mut level = 0.0;
    for step in steps {
        let at = deviation_pct(step, median);
        line.push((at, level));
        level = step.cumulative * 100.0;
        line.push((at, level));
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
        let figures = distributions(&analysis);
        let figure = &figures[0];
        let rows = figure.table.rows.iter();
        let mut runs = 0;
        for row in rows.clone().filter(|row| row[0] == "dns64d cores=1") {
            runs += row[3].parse::<usize>().unwrap();
        }
        assert_eq!(runs, analysis.points[0].summary.as_ref().unwrap().runs);
        let last = rows.clone().rfind(|row| row[0] == "dns64d cores=1");
        assert_eq!(last.unwrap()[5], "100.0");
        assert_eq!(figure.legend.len(), 3);
        let single = analysed(&SMALL.replace("runs = 3", "runs = 1"));
        assert_eq!(distributions(&single).len(), 0);
    }

    #[test]
    fn distribution_rises_only_at_each_rate() {
        let step = |rate_qps, runs, cumulative| Step {
            rate_qps,
            runs,
            share: runs as f64 / 4.0,
            cumulative,
        };
        let steps = [step(10, 1, 0.25), step(30, 3, 1.0)];
        assert_eq!(
            stairs(&steps, 20.0, (-60.0, 60.0)),
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
