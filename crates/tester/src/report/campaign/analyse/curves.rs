//! Results over several points, and the trials above and below the measured rate.

use super::of_variant;
use super::told::{TaskTold, Told, TrialTold};
use crate::campaign::plan::{Plan, Variant};
use crate::campaign::tasks::{Point, Task};
use crate::report::campaign::analysis::{
    OverloadCurve, OverloadRow, PointResult, QueueCheckResult, QueueCheckRow, Scaling, ScalingRow,
    Slope, SoakResult, SoakRow,
};
use crate::report::campaign::numbers;
use crate::statistics::{queue, trend};
use crate::trial::result::{Outcome, TrialResult};

/// Significance level: trends with a higher probability by chance count as none.
const SIGNIFICANT: f64 = 0.05;

/// A slope is extrapolated to at most this many times its observed span.
const EXTRAPOLATED_MAX: f64 = 3.0;

/// An hour in seconds.
const HOUR_S: f64 = 3600.0;

/// Whether each variant stores queries.
pub(super) fn queue_checks(
    plan: &Plan,
    planned: &[Point],
    points: &[PointResult],
) -> Vec<QueueCheckResult> {
    if plan.queue_check.is_none() {
        return Vec::new();
    }
    let check = |variant: usize| {
        let own = of_variant(points, variant).filter(|p| !p.lower_bound);
        let first = own.filter(|p| Some(&planned[p.point].cell) == plan.cells.first());
        let points: Vec<_> = first.filter(|p| p.summary.is_some()).collect();
        let rows = points
            .iter()
            .filter_map(|p| Some((p.duration_s, p.timeout_s, p.summary.as_ref()?.median)));
        let rows: Vec<_> = rows.collect();
        let check = queue::check(&rows)?;
        let certified = points.iter().map(|p| p.certified);
        let row = |(((duration_s, timeout_s, median), calculated), certified)| QueueCheckRow {
            duration_s,
            timeout_s,
            median,
            calculated,
            certified,
        };
        let (medians, rates) = (check.median_dispersion_pct, check.calculated_dispersion_pct);
        let verdict = match check.stores_requests {
            Some(true) => format!(
                "stores requests: the calculated rates agree within {rates:.1} %, the medians only \
                 within {medians:.1} %; the calculated rate is the sustainable one"
            ),
            Some(false) => format!(
                "does not use the timeout up: the medians agree within {medians:.1} %, the \
                 calculated rates within {rates:.1} %; the median is the sustainable rate"
            ),
            None => format!(
                "undecided: neither the medians agree, which differ by {medians:.1} %, nor the calculated \
                 rates, by {rates:.1} %; the DUT stores a part, or something else than duration and \
                 timeout changed its rate: look at the runs, and repeat them on a quiet machine"
            ),
        };
        Some(QueueCheckResult {
            variant,
            rows: rows
                .into_iter()
                .zip(check.calculated)
                .zip(certified)
                .map(row)
                .collect(),
            median_dispersion_pct: medians,
            calculated_dispersion_pct: rates,
            stores_requests: check.stores_requests,
            verdict,
        })
    };
    (0..plan.variants.len()).filter_map(check).collect()
}

/// Rates by cores, for DUTs that were measured with several numbers of cores.
pub(super) fn scaling(plan: &Plan, points: &[PointResult]) -> Vec<Scaling> {
    let mut servers: Vec<(&Variant, Vec<ScalingRow>)> = Vec::new();
    for (variant, it) in plan.variants.iter().enumerate() {
        let cores = it.cpus().cpus().len();
        let first = of_variant(points, variant).next();
        let first = first.and_then(|p| Some((p.point, p.summary.as_ref()?.median, p.certified)));
        let Some((point, median, certified)) = first.filter(|_| cores > 0) else {
            continue;
        };
        let row = ScalingRow {
            cores,
            point,
            median,
            per_core: median / cores as f64,
            certified,
            factor: 1.0,
        };
        let is_same = |other: &Variant| {
            let same = other.dut == it.dut && other.settings() == it.settings();
            let same = same && other.behaviour() == it.behaviour() && other.cidr == it.cidr;
            same && other.pacing == it.pacing
        };
        match servers.iter_mut().find(|(other, _)| is_same(other)) {
            Some((_, rows)) => rows.push(row),
            None => servers.push((it, vec![row])),
        }
    }
    let scaling = |(server, mut rows): (&Variant, Vec<ScalingRow>)| {
        rows.sort_by_key(|row| (row.cores, row.point));
        let fewest = *rows.first()?;
        for row in &mut rows {
            row.factor = row.median / fewest.median;
        }
        (rows.last()?.cores > fewest.cores).then(|| Scaling {
            dut: without_cores(plan, server),
            rows,
        })
    };
    servers.into_iter().filter_map(scaling).collect()
}

/// A DUT with the settings that differ between its variants, and with its names if they differ.
pub(super) fn without_cores(plan: &Plan, variant: &Variant) -> String {
    let mut name = without_cores_and_names(plan, variant);
    let mut own = plan.variants.iter().filter(|v| v.dut == variant.dut);
    if let Some(cidr) = variant.cidr
        && own.any(|v| v.cidr != variant.cidr)
    {
        name += &format!(" namespace={cidr}");
    }
    name
}

/// A DUT with the settings that differ between its variants.
pub(super) fn without_cores_and_names(plan: &Plan, variant: &Variant) -> String {
    let mut name = variant.dut.clone();
    for (key, value) in variant.settings() {
        let mut own = plan.variants.iter().filter(|v| v.dut == variant.dut);
        if own.any(|v| v.settings().get(key) != Some(value)) {
            name += &format!(" {key}={value}");
        }
    }
    name
}

/// The overload curves.
pub(super) fn overloads(
    planned: &[Point],
    told: &Told<'_>,
    points: &[PointResult],
) -> Vec<OverloadCurve> {
    let curve = |(task, told): (&Task, &TaskTold<'_>)| {
        let Task::Overload { point } = task else {
            return None;
        };
        let variant = planned.get(*point)?.variant;
        let certified = points[*point].certified_rate_qps;
        let trials = told.trials.iter().map(|t| t.result);
        Some(OverloadCurve {
            variant,
            base_rate_qps: told.base_rate_qps?,
            rows: trials.map(|t| overload_row(t, certified)).collect(),
        })
    };
    told.tasks.iter().filter_map(curve).collect()
}

fn overload_row(trial: &TrialResult, certified_qps: Option<u64>) -> OverloadRow {
    OverloadRow {
        rate_qps: trial.rate_qps,
        goodput_qps: trial.answers.valid as f64 / numbers::seconds(trial.duration_ns.max(1)),
        rtt_ns_p50: trial.rtt.p50,
        rtt_ns_p99: trial.rtt.p99,
        certified: trial.certified,
        doubtful: matches!(trial.outcome, Outcome::Invalid(_))
            || trial.ended_early
            || certified_qps.is_none_or(|certified| trial.rate_qps > certified),
    }
}

/// The soaks, without disturbed segments.
pub(super) fn soaks(planned: &[Point], told: &Told<'_>) -> Vec<SoakResult> {
    let soak = |(task, told): (&Task, &TaskTold<'_>)| {
        let Task::Soak { point } = task else {
            return None;
        };
        let variant = planned.get(*point)?.variant;
        let rate_qps = told.trials.first()?.result.rate_qps;
        let mut at_ns = 0;
        let mut rows = Vec::new();
        for trial in &told.trials {
            at_ns += trial.took_ns;
            if !matches!(trial.result.outcome, Outcome::Invalid(_)) {
                rows.push(soak_row(trial, numbers::seconds(at_ns)));
            }
        }
        Some(SoakResult {
            variant,
            rate_qps,
            shortfall: rows.iter().map(|row| row.shortfall).sum(),
            slopes: slopes(&rows),
            rows,
        })
    };
    told.tasks.iter().filter_map(soak).collect()
}

fn soak_row(trial: &TrialTold<'_>, at_s: f64) -> SoakRow {
    SoakRow {
        at_s,
        shortfall: trial.result.outcome.shortfall(),
        rtt_ns_p99: trial.result.rtt.p99.unwrap_or(0),
        rtt_ns_p999: trial.result.rtt.p999.unwrap_or(0),
        memory_bytes: trial.memory_bytes(),
        descriptors: trial.result.resources.map(|r| r.descriptors),
        threads: trial.result.resources.map(|r| r.threads),
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
