//! Rates by the delay of the authority, and by its working set.

use super::grouped;
use crate::authority::behaviour::Behaviour;
use crate::campaign::plan::Varied;
use crate::namespace::{Pattern, Share};
use crate::report::campaign::analysis::{
    Analysis, DelayCurve, DelayRow, PointResult, VariantInfo, WorkingSetRow, WorkingSets,
};
use crate::report::campaign::numbers;
use crate::statistics::outstanding::{AtDelay, Outstanding, QueryLimit, outstanding};

/// Rates by delay, for DUTs that were measured with several delays and no other fault of the authority.
pub(super) fn delays(analysis: &Analysis) -> Vec<DelayCurve> {
    let of_variant = |(variant, info): (usize, &VariantInfo)| {
        let dut = Some(&info.planned).filter(|_| !info.is_authority())?;
        let delay_ns = dut.behaviour().and_then(Behaviour::only_delay_ns)?;
        let row = row(delay_ns, analysis.points_of(variant).next()?)?;
        Some((dut.without(&[Varied::Behaviour]), row))
    };
    let rows = analysis.variants.iter().enumerate().filter_map(of_variant);
    let several = grouped(rows).into_iter().filter(|(_, rows)| rows.len() > 1);
    several.map(|((_, dut), rows)| curve(dut, rows)).collect()
}

fn row(delay_ns: u64, point: &PointResult) -> Option<DelayRow> {
    let median = point.median()?;
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
    let found = known.and_then(|known| outstanding(&known));
    // A rate that ended at a limit of the Tester or the plan does not show a limit of the DUT.
    let bounded = rows.last().is_some_and(|row| row.lower_bound);
    DelayCurve {
        verdict: verdict(found.as_ref(), bounded),
        in_sequence: found.map(|found| found.in_sequence),
        base_ns: found.map(|found| found.base_s * 1e9),
        limit: found.and_then(|found| match found.finding {
            QueryLimit::Limit(queries) if !bounded => Some(queries),
            _ => None,
        }),
        dut,
        rows,
    }
}

fn verdict(found: Option<&Outstanding>, bounded: bool) -> String {
    let Some(found) = found else {
        return "no round-trip times at two delays, so nothing can be said of a limit".to_owned();
    };
    let count = |queries: f64| numbers::decimal(queries, 0);
    match found.finding {
        QueryLimit::Limit(queries) if !bounded => format!(
            "limit of about {} outstanding queries: the rate falls as {0} / ({} x delay + {})",
            count(queries),
            numbers::decimal(found.in_sequence, 2),
            numbers::span(found.base_s * 1e9)
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

/// Rates by working set, from points whose queries all repeat the names of a set.
pub(super) fn working_sets(analysis: &Analysis) -> Vec<WorkingSets> {
    let row = |order, point: &PointResult| {
        let cell = &point.planned.cell;
        let (this, names) = set(cell.pattern).filter(|_| cell.cached_share == Share::ALL)?;
        (this == order).then_some(WorkingSetRow {
            names,
            point: point.point,
            median: point.median()?,
            lower_bound: point.lower_bound,
            certified: point.certified,
            factor: 1.0,
        })
    };
    let sets = |variant: usize, order| {
        let rows = analysis.points_of(variant);
        let mut rows: Vec<_> = rows.filter_map(|point| row(order, point)).collect();
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
    let orders = [IN_ORDER, AT_RANDOM];
    let variants = 0..analysis.variants.len();
    let sets = variants.flat_map(|variant| orders.map(|order| sets(variant, order)));
    sets.flatten().collect()
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
