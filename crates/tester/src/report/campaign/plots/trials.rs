//! Figures of trials: the course of the searches, and round-trip times.

use std::collections::BTreeMap;

use super::super::analysis::{Analysis, CommonLoad, CommonLoadRow, PointResult, RunResult, Step};
use super::super::{numbers, words};
use super::{Figure, Group, Table, by_cell, groups, legend, variant_name};
use crate::report::chart::{Axis, Chart, MEDIUM, Mark, Role, SMALL, Stroke};
use crate::trial::result::Outcome;

/// Outcomes of trials: role, mark, and sign in the table.
const OUTCOMES: [(Role, Mark, &str); 3] = [
    (Role::FAILED, Mark::CROSS, "×"),
    (Role::INVALID, Mark::DIAMOND, "?"),
    (Role::PASSED, Mark::dot(10), "+"),
];

/// Index into [`OUTCOMES`].
fn kind(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Failed { .. } => 0,
        Outcome::Invalid(_) => 1,
        Outcome::Passed => 2,
    }
}

/// Every search of every point, by variant.
pub(super) fn convergence(analysis: &Analysis) -> Vec<Group> {
    let of_variant = |variant| {
        let points = analysis.points.iter().filter(|point| {
            point.variant == variant && point.runs.iter().any(|run| !run.trials.is_empty())
        });
        let figures = points.map(|point| searches(analysis, point)).collect();
        (variant, figures)
    };
    groups(analysis, (0..analysis.variants.len()).map(of_variant))
}

/// All searches of one point side by side.
fn searches(analysis: &Analysis, point: &PointResult) -> Figure {
    let runs = side_by_side(point);
    let trials = || runs.iter().flat_map(|run| &run.trials);
    let last = trials().map(|(at, _)| *at).fold(1.0, f64::max);
    let x = Axis::named_at("run", last, run_names(&runs));
    let y = Axis::from_zero("queries/s", trials().map(|(_, step)| step.rate_qps as f64));
    let mut chart = Chart::new(SMALL, x, y);
    let place = |&(at, step): &(f64, &Step)| (at, step.rate_qps as f64);
    for run in &runs {
        chart.line(Role::GRID, Stroke::THIN, run.trials.iter().map(place));
    }
    for (shown, (role, mark, _)) in OUTCOMES.into_iter().enumerate() {
        let alike = trials().filter(|(_, step)| kind(&step.outcome) == shown);
        chart.marks(role, mark, alike.map(place));
    }
    let title = words::cell_and_spans(analysis, point);
    let variant = variant_name(analysis, point.variant);
    let svg = chart.svg(&format!("searches of {variant}, {title}"));
    Figure::new(&title, svg, table_of_searches(point), "trials.csv")
}

/// The trials of a run, each with its horizontal position.
struct Search<'a> {
    run: u32,
    trials: Vec<(f64, &'a Step)>,
}

/// The runs of a point from left to right, from position 1 on, separated by an empty position.
fn side_by_side<'a>(point: &'a PointResult) -> Vec<Search<'a>> {
    let mut first = 1;
    let with_trials = point.runs.iter().filter(|run| !run.trials.is_empty());
    let search = |run: &'a RunResult| {
        let places = (first..).map(|at: usize| at as f64);
        first += run.trials.len() + 1;
        Search {
            run: run.run,
            trials: places.zip(&run.trials).collect(),
        }
    };
    with_trials.map(search).collect()
}

/// Numbers below the middles of at most [`NAMED_MAX`] runs.
fn run_names(runs: &[Search<'_>]) -> Vec<(f64, String)> {
    let middle = |run: &Search<'_>| {
        let (first, last) = (run.trials.first()?.0, run.trials.last()?.0);
        Some((f64::midpoint(first, last), run.run.to_string()))
    };
    let every = runs.len().div_ceil(NAMED_MAX).max(1);
    runs.iter().step_by(every).filter_map(middle).collect()
}

/// Maximum number of named runs on the axis of a small figure.
const NAMED_MAX: usize = 10;

/// A row for each run, with its trials in one cell: there can be tens of thousands of them.
fn table_of_searches(point: &PointResult) -> Table {
    let told = |step: &Step| {
        let (.., sign) = OUTCOMES[kind(&step.outcome)];
        format!("{sign}{}", step.rate_qps)
    };
    let rate = |rate: Option<u64>| numbers::decimal(rate.map_or(f64::NAN, |rate| rate as f64), 0);
    let row = |run: &RunResult| {
        let trials: Vec<_> = run.trials.iter().map(told).collect();
        let (number, took) = (run.run.to_string(), numbers::duration(run.took_s));
        let (passed, failed) = (rate(run.rate_qps), rate(run.failed_qps));
        [number, passed, failed, took, trials.join(" ")]
    };
    let heads = "Run | Rate (queries/s) | Lowest failed (queries/s) | Time | \
                 Trials: + passed, × failed, ? invalid";
    Table::new(heads, point.runs.iter().map(row))
}

/// Round-trip times by percentile, a figure for each cell.
pub(super) fn latency(analysis: &Analysis) -> Vec<Figure> {
    let times = |point: &PointResult| {
        let times = point.rtt_ns.iter();
        let times: Vec<_> = times.map(|(p, ns)| (*p, *ns as f64, false)).collect();
        (!times.is_empty()).then_some((point.variant, times))
    };
    let cells = by_cell(analysis, times);
    let figure = |(cell, curves): &(String, Vec<_>)| {
        let mut figure = latency_of(analysis, cell, curves);
        // A round-trip time has little meaning without its load.
        let rates = curves
            .iter()
            .map(|(variant, _)| rate_of(analysis, cell, *variant));
        let rates: BTreeMap<_, _> = curves.iter().map(|curve| curve.0).zip(rates).collect();
        if let (true, Some(rate)) = (figure.legend.is_empty(), rates.values().next()) {
            figure.title += rate;
        }
        for ((_, name), rate) in figure.legend.iter_mut().zip(rates.values()) {
            *name += rate;
        }
        figure
    };
    cells.iter().map(figure).collect()
}

/// " at 9,000 queries/s": of the run nearest to the median, whose times are shown.
fn rate_of(analysis: &Analysis, cell: &str, variant: usize) -> String {
    let mut points = analysis
        .points
        .iter()
        .filter(|point| point.variant == variant);
    let point = points.find(|point| words::cell_and_spans(analysis, point) == cell);
    let rate_qps = point.and_then(|point| {
        let median = point.summary.as_ref()?.median;
        let rates = point.runs.iter().filter_map(|run| run.rate_qps);
        let distance = |rate: &u64| (*rate as f64 - median).abs();
        rates.min_by(|a, b| distance(a).total_cmp(&distance(b)))
    });
    rate_qps.map_or_else(String::new, |rate| {
        format!(" at {} queries/s", numbers::Thousands(rate))
    })
}

/// Round-trip times by percentile at the rate that all servers of a cell passed.
pub(super) fn common_loads(analysis: &Analysis) -> Vec<Figure> {
    let figure = |load: &CommonLoad| {
        let times = |row: &CommonLoadRow| {
            let times = row.rtt_ns.iter();
            (
                row.variant,
                times.map(|(p, ns)| (*p, *ns as f64, false)).collect(),
            )
        };
        let curves: Vec<Curve> = load.rows.iter().map(times).collect();
        let rate = numbers::Thousands(load.rate_qps);
        let title = format!("{}: all at {rate} queries/s", load.cell);
        let file = "results.json";
        let figure = latency_of(analysis, &title, &curves);
        Figure { file, ..figure }
    };
    analysis.common_loads.iter().map(figure).collect()
}

/// The figure of a cell, with the curves of its variants.
fn latency_of(analysis: &Analysis, title: &str, curves: &[Curve]) -> Figure {
    let all = || curves.iter().flat_map(|(_, times)| times);
    let x = Axis::percentile("percentile of the answers", all().map(|time| time.0));
    let y = Axis::times("round-trip time", all().map(|time| time.1));
    let mut chart = Chart::new(MEDIUM, x, y);
    for (variant, times) in curves {
        chart.curve(*variant, times);
    }
    let rows = curves.iter().flat_map(|(variant, times)| {
        let name = variant_name(analysis, *variant);
        times.iter().map(move |&(percentile, ns, _)| {
            let percentile = numbers::short(percentile);
            [name.to_owned(), percentile, numbers::span(ns)]
        })
    });
    let svg = chart.svg(&format!("round-trip times, {title}"));
    let table = Table::new("Variant | Percentile | Round-trip time", rows);
    Figure {
        legend: legend(analysis, curves.iter().map(|(variant, _)| *variant)),
        ..Figure::new(title, svg, table, "data/latency.dat")
    }
}

/// A variant, and its times by percentile, none of them doubtful.
type Curve = (usize, Vec<(f64, f64, bool)>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::campaign::tests::sample::{SMALL, analysed};

    #[test]
    fn runs_are_side_by_side_with_at_most_ten_names() {
        let analysis = analysed(&SMALL.replace("runs = 3", "runs = 20"));
        let mut point = analysis.points[0].clone();
        let lens: Vec<_> = point.runs.iter().map(|run| run.trials.len()).collect();
        point.runs[1].trials.clear();
        let runs = side_by_side(&point);
        assert_eq!((runs.len(), runs[1].run), (19, 3));
        let ends = |search: &Search<'_>| [search.trials[0].0, search.trials.last().unwrap().0];
        let first = lens[0] as f64;
        assert_eq!(ends(&runs[0]), [1.0, first]);
        assert_eq!(ends(&runs[1]), [first + 2.0, first + 1.0 + lens[2] as f64]);
        let names = run_names(&runs);
        assert_eq!(names.len(), 10);
        assert_eq!(names[0], (f64::midpoint(1.0, first), "1".to_owned()));
        assert_eq!(names[1].1, "4");
        assert!(run_names(&[]).is_empty());
    }

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
