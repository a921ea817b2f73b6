//! Computes every number of the report from the lines of a journal.
//!
//! ```text
//! lines -> history (by subject) -> points, about -> curves, standings -> warnings, statement, verdict
//! ```

mod about;
pub(super) mod authorities;
mod contradictions;
mod curves;
mod division;
mod evidence;
mod hosts;
mod load;
mod models;
mod points;
mod queue;
mod standing;
mod statement;
mod warnings;

use super::analysis::{Analysis, Division, FORMAT, VariantInfo};
use super::{numbers, words};
use crate::campaign::history::Recorded;
use crate::campaign::plan::Plan;
use crate::campaign::record::Line;

/// Computes every number of the report of a campaign by `plan`, whose journal has `lines` and ends with `seal`. The
/// same lines give the same numbers. Missing or unfinished results have none.
pub fn analyse(plan: &Plan, lines: &[Line], seal: &str) -> Analysis {
    let history = Recorded::of(plan, lines);
    let mut analysis = Analysis {
        format: FORMAT,
        name: plan.name.clone(),
        description: plan.description.clone(),
        tester: history.tester.clone(),
        plan_sha256: history.plan_sha256.clone(),
        journal_seal: seal.to_owned(),
        complete: history.complete,
        conditions: about::conditions(&history),
        variants: about::variants(&history),
        hosts: hosts::hosts(&history),
        certificates: about::certificates(&history),
        evidence: evidence::of_variants(&history),
        points: points::results(&history),
        goals: load::goals(&history),
        soaks: load::soaks(&history),
        sessions: about::sessions(&history),
        commands: about::commands(&history),
        ..Analysis::default()
    };
    analysis.not_a_measurement = about::not_a_measurement(&history, &analysis);
    analysis.models = models::models(&history, &analysis);
    if plan.queue_check.is_some() {
        analysis.queue_checks = queue::queue_checks(&analysis);
    }
    analysis.curves = curves::curves(&analysis);
    analysis.overloads = load::overloads(&history, &analysis.points);
    analysis.authorities = authorities::authorities(&history, &analysis);
    analysis.standings = standing::standings(&analysis);
    analysis.common_loads = standing::common_loads(&history, &analysis);
    analysis.warnings = warnings::all(&history, &analysis);
    analysis.statement = statement::clauses(&history, &analysis);
    let points = analysis.points.iter();
    let divisions: Vec<_> = points.map(|it| division::of(&analysis, it)).collect();
    for (point, division) in analysis.points.iter_mut().zip(divisions) {
        (point.division, point.rules_failed) = division;
    }
    analysis.verdict = verdict(&analysis);
    let some = about::partly_uncertified(&analysis);
    analysis.not_a_measurement.extend(some);
    analysis.authorities.recommendation = authorities::recommendation(&analysis);
    let recommended = analysis.authorities.recommendation.iter();
    let recommended: Vec<_> = recommended.map(|it| it.text.clone()).collect();
    analysis.verdict.extend(recommended);
    analysis
}

/// The distinct values, in the order of their first occurrence.
pub(super) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// Values with equal keys together, in the order of the first of each.
pub(super) fn grouped<K: PartialEq, V>(
    values: impl IntoIterator<Item = (K, V)>,
) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in values {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// One sentence for each variant.
fn verdict(analysis: &Analysis) -> Vec<String> {
    let sentence = |(variant, info): (usize, &VariantInfo)| {
        let name = analysis.name_of(variant);
        let Some(point) = analysis.headline(variant) else {
            return format!("{name}: nothing was planned");
        };
        let cell = words::cell(point);
        let Some(summary) = &point.summary else {
            return format!("{name}: {} at {cell}", point.why_no_rate());
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
            None => format!("{name}: {} at {cell}", point.why_no_rate()),
        };
        if let Some(stored) = point.stored {
            let sustained = numbers::rate(stored.sustainable_qps);
            text += &format!("; it stores queries and sustains {sustained} queries/s");
        }
        if let Some(rates) = point.pass_probability.rates() {
            text += &format!("; {}", words::pass_rates(rates));
        }
        let doubts = analysis.not_a_measurement.iter();
        let mut doubts = doubts.chain(&info.not_a_measurement).map(String::as_str);
        let uncertified = (point.certified == Some(false)).then_some(about::NOT_CERTIFIED);
        let failed = point.rules_failed.join(", ");
        text += &match (doubts.next().or(uncertified), point.division) {
            (Some(reason), _) => format!("; not a measurement: {reason}"),
            (None, Division::Closed) => "; closed division by docs/rules.md".to_owned(),
            (None, Division::Open) => {
                format!("; open division by docs/rules.md, not met: {failed}")
            }
            (None, Division::Estimate) => {
                format!("; an estimate by docs/rules.md, not met: {failed}")
            }
        };
        text
    };
    analysis.variants.iter().enumerate().map(sentence).collect()
}
