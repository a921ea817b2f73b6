//! Results of goals after RFC 9971.

use super::{Page, rate};
use crate::procedure::search::{GoalResult, SearchEnd};

/// The first line of a search for goals.
pub(super) fn verdict(goals: &[GoalResult], end: &SearchEnd) -> String {
    let each = goals.iter().map(|it| {
        let found = it.throughput_qps.map(rate);
        let found = match (&it.end, found) {
            (Some(SearchEnd::Found), Some(found)) => found,
            (_, Some(found)) => format!("at least {found}"),
            (Some(_), None) => "no rate".to_owned(),
            (None, None) => "no result".to_owned(),
        };
        format!("{found} with {}", it.goal)
    });
    let each: Vec<_> = each.collect();
    let cut_off = match end {
        SearchEnd::TesterFault { fault } => format!("; ended early: {fault}"),
        _ => String::new(),
    };
    format!("GOALS (RFC 9971): {}{cut_off}", each.join("; "))
}

/// A section for each goal.
pub(super) fn sections(page: &mut Page, goals: &[GoalResult]) {
    for it in goals {
        let qps = |qps: Option<u64>| qps.map_or_else(|| "-".to_owned(), rate);
        let kind = match &it.end {
            Some(SearchEnd::Found) => "regular",
            Some(SearchEnd::LimitedByTester { .. }) => {
                "irregular: achieved at the highest rate for which the Tester is certified"
            }
            Some(SearchEnd::LimitedByRequest { .. }) => {
                "irregular: achieved at the highest rate asked for; raise --max-rate"
            }
            Some(SearchEnd::NothingPasses) => "irregular: missed at the lowest rate",
            Some(SearchEnd::TesterFault { .. }) | None => "irregular: the search was cut off",
        };
        let rows = [
            ("relevant lower bound", qps(it.lower_qps)),
            ("relevant upper bound", qps(it.upper_qps)),
            ("conditional throughput", qps(it.throughput_qps)),
            ("result", kind.to_owned()),
        ];
        page.section(&format!("Goal {}", it.goal), rows);
    }
}
