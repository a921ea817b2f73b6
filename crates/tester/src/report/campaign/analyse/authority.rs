//! Rates by the delay of the authority, and by its working set.

use super::curves::without_cores;
use super::of_variant;
use crate::authority::behaviour::Behaviour;
use crate::campaign::plan::{Plan, Variant};
use crate::campaign::tasks::Point;
use crate::namespace::{Pattern, Share};
use crate::report::campaign::analysis::{
    DelayCurve, DelayRow, PointResult, WorkingSetRow, WorkingSets,
};
use crate::report::campaign::numbers;
use crate::statistics::outstanding::{AtDelay, Outstanding, QueryLimit, outstanding};

/// Rates by delay, for DUTs that were measured with several delays and no other fault of the authority.
pub(super) fn delays(plan: &Plan, points: &[PointResult]) -> Vec<DelayCurve> {
    let mut duts: Vec<(&Variant, Vec<DelayRow>)> = Vec::new();
    for (variant, it) in plan.variants.iter().enumerate() {
        let delay_ns = it.behaviour().and_then(Behaviour::only_delay_ns);
        let row = delay_ns.and_then(|delay_ns| row(delay_ns, of_variant(points, variant).next()?));
        let Some(row) = row.filter(|_| !it.subject.is_authority()) else {
            continue;
        };
        let is_same = |other: &Variant| {
            let same = other.dut == it.dut && other.settings() == it.settings();
            same && other.cpus() == it.cpus() && other.pacing == it.pacing
        };
        match duts.iter_mut().find(|(other, _)| is_same(other)) {
            Some((_, rows)) => rows.push(row),
            None => duts.push((it, vec![row])),
        }
    }
    let several = duts.into_iter().filter(|(_, rows)| rows.len() > 1);
    several
        .map(|(it, rows)| curve(name(plan, it), rows))
        .collect()
}

fn row(delay_ns: u64, point: &PointResult) -> Option<DelayRow> {
    let median = point.summary.as_ref()?.median;
    let p50 = point.rtt_ns.iter().find(|(pct, _)| *pct >= 50.0);
    let rtt_ns_p50 = p50.map(|(_, rtt_ns)| *rtt_ns);
    Some(DelayRow {
        delay_ns,
        point: point.point,
        variant: point.variant,
        median,
        lower_bound: point.lower_bound,
        certified: point.certified,
        rtt_ns_p50,
        outstanding: rtt_ns_p50.map(|rtt_ns| median * rtt_ns as f64 / 1e9),
    })
}

fn curve(dut: String, mut rows: Vec<DelayRow>) -> DelayCurve {
    rows.sort_by_key(|row| row.delay_ns);
    let at = |row: &DelayRow| {
        Some(AtDelay {
            delay_s: row.delay_ns as f64 / 1e9,
            rate_qps: row.median,
            time_s: row.rtt_ns_p50? as f64 / 1e9,
        })
    };
    let known: Option<Vec<_>> = rows.iter().map(at).collect();
    let told = known.and_then(|known| outstanding(&known));
    // A rate that ended at a limit of the Tester or the plan does not show a limit of the DUT.
    let bounded = rows.last().is_some_and(|row| row.lower_bound);
    DelayCurve {
        verdict: verdict(told.as_ref(), bounded),
        in_sequence: told.map(|told| told.in_sequence),
        base_ns: told.map(|told| told.base_s * 1e9),
        limit: told.and_then(|told| match told.finding {
            QueryLimit::Limit(queries) if !bounded => Some(queries),
            _ => None,
        }),
        dut,
        rows,
    }
}

fn verdict(told: Option<&Outstanding>, bounded: bool) -> String {
    let Some(told) = told else {
        return "no round-trip times at two delays, so nothing can be said of a limit".to_owned();
    };
    let count = |queries: f64| numbers::decimal(queries, 0);
    match told.finding {
        QueryLimit::Limit(queries) if !bounded => format!(
            "limit of about {} outstanding queries: the rate falls as {0} / ({} x delay + {})",
            count(queries),
            numbers::decimal(told.in_sequence, 2),
            numbers::span(told.base_s * 1e9)
        ),
        QueryLimit::NoLimit(most) => format!(
            "no limit seen: the rate does not fall with the delay, up to {} outstanding queries",
            count(most)
        ),
        QueryLimit::Limit(_) | QueryLimit::Unclear => "the rate falls with the delay, but rate x round-trip \
             time does not agree between the two longest delays, so it shows no limit of outstanding \
             queries"
            .to_owned(),
    }
}

/// A DUT with the properties that differ between its variants, except the authority.
fn name(plan: &Plan, variant: &Variant) -> String {
    let mut name = without_cores(plan, variant);
    let mut own = plan.variants.iter().filter(|v| v.dut == variant.dut);
    if own.any(|other| other.cpus() != variant.cpus()) {
        name += &format!(" cores={}", variant.cpus());
    }
    name
}

/// Rates by working set, from points whose queries all repeat the names of a set.
pub(super) fn working_sets(
    plan: &Plan,
    planned: &[Point],
    points: &[PointResult],
) -> Vec<WorkingSets> {
    let of = |variant: usize, order| {
        let own = of_variant(points, variant);
        let mut rows: Vec<_> = own
            .filter_map(|point| {
                let cell = &planned[point.point].cell;
                let (this, names) =
                    set(cell.pattern).filter(|_| cell.cached_share == Share::ALL)?;
                (this == order).then_some(WorkingSetRow {
                    names,
                    point: point.point,
                    median: point.summary.as_ref()?.median,
                    lower_bound: point.lower_bound,
                    certified: point.certified,
                    factor: 1.0,
                })
            })
            .collect();
        rows.sort_by_key(|row| row.names);
        let fewest = rows.first()?.median;
        rows.iter_mut()
            .for_each(|row| row.factor = row.median / fewest);
        (rows.len() > 1).then_some(WorkingSets {
            variant,
            order,
            rows,
        })
    };
    let variants = 0..plan.variants.len();
    let orders = variants.flat_map(|variant| [IN_ORDER, AT_RANDOM].map(|order| (variant, order)));
    orders
        .filter_map(|(variant, order)| of(variant, order))
        .collect()
}

const IN_ORDER: &str = "in order";
const AT_RANDOM: &str = "at random";

/// Order and size of the set of a pattern that queries a fixed set of names equally often.
fn set(pattern: Pattern) -> Option<(&'static str, u64)> {
    match pattern {
        Pattern::StackDistance { names } => Some((IN_ORDER, names)),
        Pattern::Zipf {
            names,
            exponent_milli: 0,
        } => Some((AT_RANDOM, names)),
        _ => None,
    }
}
