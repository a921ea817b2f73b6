//! Figures over the time of the campaign: offered rate, goodput, and processor time of the DUT.

use super::super::analysis::{Analysis, Course, Moment};
use super::super::numbers;
use super::{Figure, Table, legend, variant_name};
use crate::report::chart::{Axis, Chart, Mark, Role, WIDE};
use crate::trial::result::Outcome;

/// Goodput over time, and processor time where known.
pub(super) fn courses(analysis: &Analysis) -> Vec<Figure> {
    let answered = figure(
        analysis,
        "Valid answers per second in each trial of the searches, over time; hollow: the trial did not pass",
        "answers/s",
        |trial| Some(trial.answered_qps),
    );
    let cpu = figure(
        analysis,
        "Processor time of the DUT in each of these trials; 100 % is one core; hollow: the trial did not pass",
        "% of a core",
        |trial| trial.dut_cpu_pct,
    );
    answered.into_iter().chain(cpu).collect()
}

fn figure(
    analysis: &Analysis,
    title: &str,
    unit: &str,
    of: fn(&Moment) -> Option<f64>,
) -> Option<Figure> {
    let known = |course: &Course| {
        course
            .trials
            .iter()
            .filter_map(|trial| Some((trial.at_s, of(trial)?)))
            .collect()
    };
    let all: Vec<Vec<(f64, f64)>> = analysis.courses.iter().map(known).collect();
    let values = || all.iter().flatten();
    values().next()?;
    let end_s = values().map(|value| value.0).fold(0.0, f64::max);
    let (second, time) = numbers::time_unit(end_s);
    let x = Axis::linear(&format!("time ({time})"), (0.0, end_s / second));
    let mut chart = Chart::new(
        WIDE,
        x,
        Axis::from_zero(unit, values().map(|value| value.1)),
    );
    for course in &analysis.courses {
        let variant = analysis.points[course.point].variant;
        for hollow in [true, false] {
            let shown = course.trials.iter();
            let shown = shown.filter(|trial| (trial.outcome != Outcome::Passed) == hollow);
            let places = shown.filter_map(|trial| Some((trial.at_s / second, of(trial)?)));
            chart.marks(
                Role::variant(variant),
                Mark::variant(variant, hollow),
                places,
            );
        }
    }
    let rows = analysis.courses.iter().flat_map(|course| {
        let name = variant_name(analysis, analysis.points[course.point].variant);
        let trials = course
            .trials
            .iter()
            .filter_map(move |trial| Some((trial, of(trial)?)));
        trials.map(move |(trial, value)| {
            let at = numbers::decimal(trial.at_s / second, 2);
            let offered = numbers::decimal(trial.rate_qps as f64, 0);
            let value = numbers::decimal(value, 0);
            [
                name.to_owned(),
                at,
                offered,
                trial.outcome.word().to_owned(),
                value,
            ]
        })
    });
    let heads = format!("Variant | Time ({time}) | Offered (queries/s) | Outcome | Value ({unit})");
    let table = Table::new(&heads, rows);
    let variants = analysis.courses.iter();
    let variants = variants.map(|course| analysis.points[course.point].variant);
    Some(Figure {
        legend: legend(analysis, variants),
        ..Figure::new(title, chart.svg(title), table, "trials.csv")
    })
}
