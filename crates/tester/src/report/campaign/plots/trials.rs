//! Figures of trials: the course of the searches, and round-trip times.

use super::super::analysis::{Analysis, CommonLoad, PointResult, RunResult, Step};
use super::super::{numbers, words};
use super::lines::places;
use super::{Figure, Series, by_cell, lines, values};
use crate::report::chart::{Axis, Chart, Mark, Role, SMALL, Stroke};
use crate::trial::result::Outcome;

/// Outcomes of trials: role and mark.
const OUTCOMES: [(Role, Mark); 3] = [
    (Role::FAILED, Mark::CROSS),
    (Role::INVALID, Mark::DIAMOND),
    (Role::PASSED, Mark::dot(10)),
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
pub(super) fn convergence(analysis: &Analysis) -> Vec<Figure> {
    let mut points: Vec<_> = analysis.points.iter().collect();
    points.sort_by_key(|point| point.variant);
    let with_trials = |p: &&PointResult| p.runs.iter().any(|run| !run.trials.is_empty());
    let points = points.into_iter().filter(with_trials);
    points.map(|point| searches(analysis, point)).collect()
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
    for (shown, (role, mark)) in OUTCOMES.into_iter().enumerate() {
        let alike = trials().filter(|(_, step)| kind(&step.outcome) == shown);
        chart.marks(role, mark, alike.map(place));
    }
    Figure {
        variant: Some(point.variant),
        ..Figure::new(
            &words::point(analysis, point),
            chart.drawing(),
            "trials.csv",
        )
    }
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
    let median = point.summary.as_ref()?.median;
    let rates = point.runs.iter().filter_map(|run| run.rate_qps);
    let distance = |rate: &u64| (*rate as f64 - median).abs();
    rates.min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// Round-trip times by percentile at the rate that all servers of a cell passed.
pub(super) fn common_loads(analysis: &Analysis) -> Vec<Figure> {
    let figure = |load: &CommonLoad| {
        let series = load
            .rows
            .iter()
            .map(|row| by_percentile(row.variant, analysis.name_of(row.variant), &row.rtt_ns));
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
    lines(title, (x, y), series, "results.json")
}

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
