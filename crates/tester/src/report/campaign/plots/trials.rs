//! Figures of trials: how searches found their rates, and how long answers took.

use super::super::analysis::{Analysis, PointResult, RunResult};
use super::super::html::ReportError;
use super::super::numbers;
use super::axis::Axis;
use super::canvas::{self, Drawn, MEDIUM, Plot, SMALL};
use super::svg::Role;
use super::{Figure, Group, Table, cell_name, float, legend, real, variant_name};
use crate::trial::result::Outcome;

/// Every search of every point, by variant.
pub(super) fn convergence(analysis: &Analysis) -> Result<Vec<Group>, ReportError> {
    let mut groups = Vec::new();
    for (variant, info) in analysis.variants.iter().enumerate() {
        let mut figures = Vec::new();
        for point in &analysis.points {
            if point.variant == variant && point.runs.iter().any(|run| !run.trials.is_empty()) {
                figures.push(searches(analysis, point)?);
            }
        }
        if !figures.is_empty() {
            groups.push(Group {
                title: info.name.clone(),
                figures,
            });
        }
    }
    Ok(groups)
}

/// All searches of one point.
fn searches(analysis: &Analysis, point: &PointResult) -> Result<Figure, ReportError> {
    let steps = || point.runs.iter().flat_map(|run| &run.trials);
    let highest = steps().map(|step| step.rate_qps).max().unwrap_or(0);
    let longest = point.runs.iter().map(|run| run.trials.len()).max();
    let x = Axis::linear("trial", 0.5, real(longest.unwrap_or(1)) + 0.5, 6, |v| {
        numbers::decimal(v, 0)
    });
    let x = whole_names_only(x);
    let y = Axis::from_zero("queries/s", float(highest), 4, |v| numbers::decimal(v, 0));
    let title = cell_name(analysis, point);
    let spoken = format!(
        "searches of {}, {title}",
        variant_name(analysis, point.variant)
    );
    let svg = canvas::draw(&spoken, SMALL, (&x, &y), |plot| draw_searches(plot, point))?;
    Ok(Figure {
        title,
        svg,
        legend: Vec::new(),
        table: table_of_searches(point),
        file: "trials.csv",
    })
}

/// A trial has a whole number.
fn whole_names_only(mut axis: Axis) -> Axis {
    axis.ticks.retain(|(at, _)| at.fract().abs() < 1e-9);
    axis
}

/// Lines first, then marks of one kind after the other: what is alike becomes one path.
fn draw_searches(plot: &Plot<'_>, point: &PointResult) -> Drawn {
    let places = |run: &RunResult| -> Vec<_> {
        let numbered = run.trials.iter().enumerate();
        numbered
            .map(|(i, step)| plot.at(real(i + 1), float(step.rate_qps)))
            .collect()
    };
    for run in &point.runs {
        plot.path(&places(run), Role::Grid, 1.0)?;
    }
    for role in [Role::Failed, Role::Invalid, Role::Passed] {
        for run in &point.runs {
            for (step, place) in run.trials.iter().zip(places(run)) {
                match (role, &step.outcome) {
                    (Role::Passed, Outcome::Passed) => plot.dot(place, 5.0, role)?,
                    (Role::Failed, Outcome::Failed { .. }) => plot.cross(place, 2.5, role)?,
                    (Role::Invalid, Outcome::Invalid(_)) => plot.path(&ring(place), role, 1.0)?,
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// An upright square on its corner around a place.
fn ring((x, y): (f64, f64)) -> [(f64, f64); 5] {
    [
        (x - 4.0, y),
        (x, y - 4.0),
        (x + 4.0, y),
        (x, y + 4.0),
        (x - 4.0, y),
    ]
}

/// A row for each run, with its trials in one cell: there may be tens of thousands of them.
fn table_of_searches(point: &PointResult) -> Table {
    let mut table = Table::new([
        "Run",
        "Rate (queries/s)",
        "Lowest failed (queries/s)",
        "Time",
        "Trials: + passed, × failed, ? invalid",
    ]);
    for run in &point.runs {
        let trials: Vec<String> = run
            .trials
            .iter()
            .map(|step| {
                let sign = match step.outcome {
                    Outcome::Passed => "+",
                    Outcome::Failed { .. } => "×",
                    Outcome::Invalid(_) => "?",
                };
                format!("{sign}{}", step.rate_qps)
            })
            .collect();
        let rate = |rate: Option<u64>| {
            rate.map_or(numbers::NOTHING.to_owned(), |rate| {
                numbers::decimal(float(rate), 0)
            })
        };
        table.row([
            run.run.to_string(),
            rate(run.rate_qps),
            rate(run.failed_qps),
            numbers::duration(run.took_s),
            trials.join(" "),
        ]);
    }
    table
}

/// Round-trip times by percentile, a figure for each cell.
pub(super) fn latency(analysis: &Analysis) -> Result<Vec<Figure>, ReportError> {
    let mut figures = Vec::new();
    let mut seen = Vec::new();
    for point in &analysis.points {
        let cell = cell_name(analysis, point);
        if seen.contains(&cell) {
            continue;
        }
        let alike: Vec<_> = analysis
            .points
            .iter()
            .filter(|other| !other.rtt_ns.is_empty() && cell_name(analysis, other) == cell)
            .collect();
        if !alike.is_empty() {
            figures.push(latency_of(analysis, &alike, &cell)?);
        }
        seen.push(cell);
    }
    Ok(figures)
}

fn latency_of(
    analysis: &Analysis,
    points: &[&PointResult],
    cell: &str,
) -> Result<Figure, ReportError> {
    let all = || points.iter().flat_map(|point| &point.rtt_ns);
    let times = || all().map(|(_, time)| float(*time));
    let last = all().map(|(p, _)| *p).filter(|p| *p < 100.0);
    let x = Axis::percentile("percentile of the answers", last.fold(0.0, f64::max));
    let y = Axis::logarithmic(
        "round-trip time",
        times().fold(f64::INFINITY, f64::min),
        times().fold(0.0, f64::max),
        numbers::round_span,
    );
    let svg = canvas::draw(
        &format!("round-trip times, {cell}"),
        MEDIUM,
        (&x, &y),
        |plot| {
            for point in points {
                let places: Vec<_> = point
                    .rtt_ns
                    .iter()
                    .map(|(p, time)| plot.at_percentile(*p, float(*time)))
                    .collect();
                plot.path(&places, Role::Series(point.variant), 1.5)?;
                for place in places {
                    plot.mark(place, point.variant)?;
                }
            }
            Ok(())
        },
    )?;
    let mut table = Table::new(["Variant", "Percentile", "Round-trip time"]);
    for point in points {
        for (percentile, time) in &point.rtt_ns {
            table.row([
                variant_name(analysis, point.variant).to_owned(),
                numbers::short(*percentile),
                numbers::span(float(*time)),
            ]);
        }
    }
    Ok(Figure {
        title: cell.to_owned(),
        svg,
        legend: legend(analysis, points.iter().map(|point| point.variant))?,
        table,
        file: "data/latency.dat",
    })
}
