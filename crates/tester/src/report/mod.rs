//! The output for users: results as text and as JSON, and the progress of the measurement.
//!
//! All output is computed from plain data and written by the caller; only [`progress`] writes to standard error
//! directly.

pub mod campaign;
mod chart;
pub mod json;
pub(crate) mod numbers;
pub mod progress;
pub mod raw;
pub mod terminal;
pub mod text;
pub mod timeline;
pub mod timing;

use crate::procedure::search::SearchResult;
pub use crate::quantity::{Span, Thousands};
pub use crate::rig::conditions::Conditions;
use crate::statistics::summary::calculated_rate;
use crate::trial::result::{Outcome, TrialResult};

/// The highest rate that decides the result of a search: its failure must be the DUT's as well.
fn judged_qps(result: &SearchResult) -> u64 {
    let goals = result.goals.iter();
    let bounds = goals.flat_map(|goal| [goal.lower_qps, goal.upper_qps]);
    let bounds = bounds.chain([result.rate_qps, result.failed_qps]);
    bounds.flatten().max().unwrap_or(0)
}

/// The passed trial at the rate that a search found.
fn passed(result: &SearchResult) -> Option<&TrialResult> {
    let passed =
        |t: &&TrialResult| t.outcome == Outcome::Passed && Some(t.rate_qps) == result.rate_qps;
    result.trials.iter().rfind(passed)
}

/// What the first line of a result says of a passed trial of a DUT that stores queries: the rate that it sustains.
fn sustained(trial: &TrialResult) -> String {
    let storing = trial.service.filter(|service| service.stores_queries);
    storing.map_or_else(String::new, |service| {
        let sustained = Thousands(service.sustainable_qps);
        format!("; it stores queries and sustains {sustained} queries/s")
    })
}

/// A remark on a passed rate at which queries waited in the DUT; `None` if the trial did not pass, or if no query
/// waited at its end.
fn stored(trial: &TrialResult) -> Option<String> {
    let passed = trial.outcome == Outcome::Passed;
    let service = trial
        .service
        .filter(|service| passed && service.stores_queries)?;
    let (rate, duration) = (Thousands(trial.rate_qps), Span(trial.duration_ns));
    Some(format!(
        "the answers' delay grew by {:.0} ms/s: the DUT stores queries; it serves {} queries/s, and {rate} \
         is the rate of a trial of {duration}, not one that it sustains",
        service.slope_ns_per_s / 1e6,
        Thousands(service.sustainable_qps)
    ))
}

/// Outcomes of the queries of a failed trial.
fn losses(result: &TrialResult) -> String {
    let a = &result.answers;
    counts(&[
        (a.missing, "without an answer"),
        (a.late, "answered late"),
        (a.wrong, "answered with another address"),
        (a.empty, "answered without an AAAA"),
        (a.error, "answered with an error"),
        (a.truncated, "answered truncated"),
        (result.undecided, "open when it ended early"),
    ])
}

/// "3 answered late, 1 without an answer": the classes that are not empty.
fn counts(classes: &[(u64, &str)]) -> String {
    let some = classes.iter().filter(|(count, _)| *count > 0);
    let words = some.map(|(count, what)| format!("{} {what}", Thousands(*count)));
    words.collect::<Vec<_>>().join(", ")
}

/// Equation (1) of Lencse et al. 2017, section 4.4, for the rate that a search found: the sustainable rate of a DUT
/// that stores queries until their timeout.
fn calculated_qps(result: &SearchResult) -> Option<f64> {
    let passed = passed(result)?;
    let [duration_s, timeout_s] = [passed.duration_ns, passed.timeout_ns].map(numbers::seconds);
    Some(calculated_rate(
        passed.rate_qps as f64,
        duration_s,
        timeout_s,
    ))
}

#[cfg(test)]
pub(crate) mod tests;
