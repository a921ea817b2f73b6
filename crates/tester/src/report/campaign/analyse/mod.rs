//! Computes every number of the report from the lines of a journal.
//!
//! ```text
//! lines -> told (by subject) -> points, curves, about -> warnings, statement, verdict
//! ```

mod about;
pub(super) mod authorities;
mod authority;
mod contradictions;
mod curves;
mod evidence;
mod grids;
mod hosts;
mod models;
mod points;
mod standing;
mod statement;
mod told;
mod warnings;

use told::Told;

use super::analysis::{Analysis, FORMAT, PointResult, Standings, VariantInfo};
use super::{numbers, words};
use crate::campaign::plan::Plan;
use crate::campaign::record::Line;
use crate::campaign::tasks::{self, Point};
use crate::namespace::Pattern;

/// Computes every number of the report of a campaign by `plan`, whose journal has `lines` and ends with `seal`. The
/// same lines give the same numbers. Missing or unfinished results have none.
pub fn analyse(plan: &Plan, lines: &[Line], seal: &str) -> Analysis {
    let told = Told::of(plan, lines);
    let planned = tasks::points(plan);
    let points = points::results(plan, &planned, &told);
    let time = about::time(&told, &points);
    let mut analysis = Analysis {
        format: FORMAT,
        name: plan.name.clone(),
        description: plan.description.clone(),
        tester: told.tester.clone(),
        plan_sha256: told.plan_sha256.clone(),
        journal_seal: seal.to_owned(),
        complete: told.complete,
        verdict: Vec::new(),
        standings: Standings::default(),
        not_a_measurement: about::not_a_measurement(plan, &told, &points),
        warnings: Vec::new(),
        conditions: about::conditions(plan, &told),
        variants: about::variants(plan, &told),
        hosts: hosts::hosts(plan, &told),
        certificates: about::certificates(&told),
        margins: Vec::new(),
        evidence: evidence::of_variants(&planned, &told),
        common_loads: Vec::new(),
        grids: grids::grids(plan, &planned, &points),
        models: models::models(plan, &planned, &points),
        queue_checks: curves::queue_checks(plan, &planned, &points),
        scaling: curves::scaling(plan, &points),
        delays: authority::delays(plan, &points),
        working_sets: authority::working_sets(plan, &planned, &points),
        authorities: authorities::authorities(plan, &told, &points),
        overloads: curves::overloads(&planned, &told, &points),
        soaks: curves::soaks(&planned, &told),
        points,
        sessions: about::sessions(&told),
        statement: Vec::new(),
        commands: about::commands(&told),
        time,
    };
    analysis.margins = evidence::margins(&planned, &analysis);
    analysis.standings = standing::standings(plan, &analysis);
    analysis.common_loads = standing::common_loads(&told, &analysis);
    analysis.verdict = verdict(&analysis);
    let some = about::partly_uncertified(&analysis.variants, &analysis.points);
    analysis.not_a_measurement.extend(some);
    analysis.authorities.recommendation = authorities::recommendation(&analysis);
    let recommended = analysis.authorities.recommendation.iter();
    let recommended: Vec<_> = recommended.map(|it| it.text.clone()).collect();
    analysis.verdict.extend(recommended);
    analysis.warnings = warnings::all(plan, &told, &analysis);
    analysis.statement = statement::clauses(plan, &told, &analysis);
    analysis
}

/// The representative point of a variant: nothing cached and no AAAA (RFC 8219 section 9.2), or else its first point.
pub(super) fn headline(analysis: &Analysis, variant: usize) -> Option<&PointResult> {
    let own = || of_variant(&analysis.points, variant);
    own().find(|p| is_worst_case(p)).or(own().next())
}

/// The points of one variant.
fn of_variant(points: &[PointResult], variant: usize) -> impl Iterator<Item = &PointResult> {
    points.iter().filter(move |p| p.variant == variant)
}

/// Whether a point has no AAAA and nothing cached.
pub(super) fn is_worst_case(point: &PointResult) -> bool {
    point.aaaa_pct == 0.0 && point.cached_pct == 0.0
}

/// Whether a point repeats only the papers' single name, with the duration and timeout of the plan.
fn is_of_the_papers(plan: &Plan, planned: &[Point], result: &PointResult) -> bool {
    let point = &planned[result.point];
    point.cell.pattern == Pattern::OneName
        && (point.duration_ns, point.timeout_ns) == (plan.load.duration_ns, plan.load.timeout_ns)
}

/// One sentence for each variant.
fn verdict(analysis: &Analysis) -> Vec<String> {
    let sentence = |(variant, info): (usize, &VariantInfo)| {
        let name = &info.name;
        let Some(point) = headline(analysis, variant) else {
            return format!("{name}: nothing was planned");
        };
        let cell = words::cell(point);
        let Some(summary) = &point.summary else {
            return format!("{name}: no rate was found at {cell}");
        };
        let runs = numbers::count(summary.runs, "run");
        let mut text = match point.agreement {
            Some(found) if found.unstable => format!(
                "{name}: unstable: {} queries/s at {cell} in {}; no single rate represents them",
                numbers::range(&found),
                numbers::count(found.runs, "run"),
            ),
            Some(found) => format!(
                "{name}: {}{} queries/s at {cell} (median of {runs}; {} {})",
                if point.lower_bound { "at least " } else { "" },
                numbers::rate(summary.median),
                words::range_is(found),
                numbers::range(&found),
            ),
            None => format!("{name}: no rate was found at {cell}"),
        };
        let doubts = analysis.not_a_measurement.iter();
        let mut doubts = doubts.chain(&info.not_a_measurement).map(String::as_str);
        let uncertified = (point.certified == Some(false)).then_some(about::NOT_CERTIFIED);
        if let Some(reason) = doubts.next().or(uncertified) {
            text += &format!("; not a measurement: {reason}");
        }
        text
    };
    analysis.variants.iter().enumerate().map(sentence).collect()
}
