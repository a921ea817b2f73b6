//! Results of goals after RFC 9971.

use super::{Page, rate};
use crate::procedure::goal::Goal;
use crate::procedure::search::{GoalResult, SearchEnd};
use crate::quantity::{Span, Thousands};

/// The first line of a search for goals.
pub(super) fn verdict(goals: &[GoalResult], end: &SearchEnd) -> String {
    let each = goals.iter().map(|it| {
        let found = it.throughput_qps.map(rate);
        let found = match (&it.end, found) {
            (Some(SearchEnd::Found | SearchEnd::TooWide { .. }), Some(found)) => found,
            (_, Some(found)) => format!("at least {found}"),
            (Some(_), None) => "no rate".to_owned(),
            (None, None) => "no result".to_owned(),
        };
        match (it.goal.is_interval, it.lower_qps, it.upper_qps) {
            (true, Some(low), Some(high)) => format!(
                "{found} ({} to {}) with {}",
                Thousands(low),
                Thousands(high),
                it.goal
            ),
            _ => format!("{found} with {}", it.goal),
        }
    });
    let each: Vec<_> = each.collect();
    let cut_off = match end {
        SearchEnd::TesterFault { fault } => format!("; ended early: {fault}"),
        _ => String::new(),
    };
    let kind = match goals.iter().all(|it| it.goal.is_interval) {
        true => "INTERVAL (95 %)",
        false => "GOALS (RFC 9971)",
    };
    format!("{kind}: {}{cut_off}", each.join("; "))
}

/// A section for each goal.
pub(super) fn sections(page: &mut Page, goals: &[GoalResult]) {
    for it in goals {
        let qps = |qps: Option<u64>| qps.map_or_else(|| "-".to_owned(), rate);
        let kind = match &it.end {
            Some(SearchEnd::Found) => "regular".to_owned(),
            Some(SearchEnd::TooWide { trials }) => too_wide(&it.goal, *trials),
            Some(SearchEnd::LimitedByTester { .. }) => {
                "irregular: achieved at the highest rate for which the Tester is certified"
                    .to_owned()
            }
            Some(SearchEnd::LimitedByRequest { .. }) => {
                "irregular: achieved at the highest rate asked for; raise --max-rate".to_owned()
            }
            Some(SearchEnd::NothingPasses) => "irregular: missed at the lowest rate".to_owned(),
            Some(SearchEnd::TesterFault { .. }) | None => {
                "irregular: the search was cut off".to_owned()
            }
        };
        let names = match it.goal.is_interval {
            true => [
                "lower end (95 %)",
                "upper end (95 %)",
                "half of the trials pass",
            ],
            false => [
                "relevant lower bound",
                "relevant upper bound",
                "conditional throughput",
            ],
        };
        let rates = [it.lower_qps, it.upper_qps, it.throughput_qps].map(qps);
        let rows = names.into_iter().zip(rates).chain([("result", kind)]);
        page.section(&format!("Goal {}", it.goal), rows);
    }
}

/// Says how long a narrow interval would take, if this machine has one.
fn too_wide(goal: &Goal, trials: Option<u64>) -> String {
    let wanted = format!("the interval is wider than {}", goal.width);
    match trials {
        Some(trials) => {
            let takes = Span(trials.saturating_mul(goal.trial_ns));
            format!(
                "irregular: {wanted}; on this machine that takes about {trials} trials of together {takes}: raise sum"
            )
        }
        None => format!(
            "irregular: {wanted}, and no number of trials is known to narrow it on this machine"
        ),
    }
}
