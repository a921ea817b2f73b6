//! The searches for goals, the trials above the measured rate, and the long ones below it.

use crate::campaign::history::{Recorded, TrialHistory};
use crate::campaign::plan::tasks::{Point, Task};
use crate::report::campaign::analysis::{
    GoalRow, OverloadCurve, OverloadRow, PointResult, Slope, SoakResult, SoakRow,
};
use crate::report::campaign::numbers;
use crate::statistics::trend;
use crate::trial::result::TrialResult;

/// Significance level: trends with a higher probability by chance count as none.
const SIGNIFICANT: f64 = 0.05;

/// A slope is extrapolated to at most this many times its observed span.
const EXTRAPOLATED_MAX: f64 = 3.0;

/// An hour in seconds.
const HOUR_S: f64 = 3600.0;

/// The results of goals.
pub(super) fn goals(history: &Recorded<'_>) -> Vec<GoalRow> {
    let points = 0..history.plan.points.len();
    let rows = points.filter_map(|point| {
        let task = history.tasks.get(&Task::Goals { point })?;
        let end = task.finished.as_ref()?;
        let trials = task.trials.iter().filter(|it| it.result.outcome.is_valid());
        let row = GoalRow {
            point,
            result: end.goals.first()?.clone(),
            valid_trials: trials.count() as u64,
            took_ns: end.took_ns,
        };
        let results = end.goals.iter().cloned();
        Some(results.map(move |result| GoalRow {
            result,
            ..row.clone()
        }))
    });
    rows.flatten().collect()
}

/// The overload curves.
pub(super) fn overloads(history: &Recorded<'_>, points: &[PointResult]) -> Vec<OverloadCurve> {
    let curve = |point: &PointResult| {
        let task = history.tasks.get(&Task::Overload { point: point.point })?;
        let row = |trial: &TrialHistory<_>| overload_row(trial.result, point.certified_rate_qps);
        Some(OverloadCurve {
            variant: point.variant,
            base_rate_qps: task.base_rate_qps?,
            rows: task.trials.iter().map(row).collect(),
        })
    };
    points.iter().filter_map(curve).collect()
}

fn overload_row(trial: &TrialResult, certified_qps: Option<u64>) -> OverloadRow {
    OverloadRow {
        rate_qps: trial.rate_qps,
        goodput_qps: trial.answers.valid as f64 / numbers::seconds(trial.duration_ns.max(1)),
        rtt_ns_p50: trial.rtt.p50,
        rtt_ns_p99: trial.rtt.p99,
        certified: trial.certified,
        doubtful: !trial.outcome.is_valid()
            || trial.ended_early
            || certified_qps.is_none_or(|certified| trial.rate_qps > certified),
    }
}

/// The soaks, without disturbed segments.
pub(super) fn soaks(history: &Recorded<'_>) -> Vec<SoakResult> {
    let soak = |(index, point): (usize, &Point)| {
        let task = history.tasks.get(&Task::Soak { point: index })?;
        let mut at_ns = 0;
        let mut rows = Vec::new();
        for trial in &task.trials {
            at_ns += trial.took_ns;
            if trial.result.outcome.is_valid() {
                rows.push(soak_row(trial.result, numbers::seconds(at_ns)));
            }
        }
        Some(SoakResult {
            variant: point.variant,
            rate_qps: task.trials.first()?.result.rate_qps,
            shortfall: rows.iter().map(|row| row.shortfall).sum(),
            slopes: slopes(&rows),
            rows,
        })
    };
    let points = history.plan.points.iter().enumerate();
    points.filter_map(soak).collect()
}

fn soak_row(trial: &TrialResult, at_s: f64) -> SoakRow {
    SoakRow {
        at_s,
        shortfall: trial.outcome.shortfall(),
        rtt_ns_p99: trial.rtt.p99.unwrap_or(0),
        rtt_ns_p999: trial.rtt.p999.unwrap_or(0),
        memory_bytes: trial.resources.map(|r| r.memory_bytes),
        descriptors: trial.resources.map(|r| r.descriptors),
        threads: trial.resources.map(|r| r.threads),
    }
}

fn slopes(rows: &[SoakRow]) -> Vec<Slope> {
    // Name, unit, size of the unit, and the value of a segment.
    type Figure = (&'static str, &'static str, f64, fn(&SoakRow) -> Option<u64>);
    let figures: [Figure; 5] = [
        ("memory", "MiB", 1_048_576.0, |row| row.memory_bytes),
        ("descriptors", "descriptors", 1.0, |row| row.descriptors),
        ("threads", "threads", 1.0, |row| row.threads),
        ("p99 of the round-trip time", "ms", 1e6, |row| {
            Some(row.rtt_ns_p99)
        }),
        ("queries without an answer", "a segment", 1.0, |row| {
            Some(row.shortfall)
        }),
    ];
    let slope = |(of, unit, size, value): Figure| {
        let place = |row: &SoakRow| Some((row.at_s, value(row)? as f64 / size));
        let places: Vec<_> = rows.iter().filter_map(place).collect();
        let trend = trend::trend(&places)?;
        let span_s = places.last()?.0 - places.first()?.0;
        let change = trend.slope * span_s;
        // No slope is given over more than three times its observed span.
        let hour = (span_s * EXTRAPOLATED_MAX >= HOUR_S).then_some(trend.slope * HOUR_S);
        let verdict = if trend.p >= SIGNIFICANT || trend.slope == 0.0 {
            format!("no trend beyond chance ({})", numbers::p(trend.p))
        } else {
            let way = if change > 0.0 { "rises" } else { "falls" };
            let (by, over) = match hour {
                Some(hour) => (hour, "per hour".to_owned()),
                None => (change, format!("over {}", numbers::duration(span_s))),
            };
            let by = numbers::significant(by.abs(), 2);
            format!("{way} by {by} {unit} {over} ({})", numbers::p(trend.p))
        };
        Some(Slope {
            of,
            change,
            span_s,
            per_hour: hour,
            unit,
            p: trend.p,
            verdict,
        })
    };
    figures.into_iter().filter_map(slope).collect()
}
