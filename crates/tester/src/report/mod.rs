//! What the user sees: the results as text, as JSON, and the progress towards them.
//!
//! Everything is computed from plain data. Whoever asks for a result writes it; only [`progress`]
//! writes to standard error by itself.

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

/// The highest rate on which the answer of a search rests: its failure too must be the DUT's.
fn judged_qps(result: &SearchResult) -> u64 {
    result.failed_qps.max(result.rate_qps).unwrap_or(0)
}

/// The trial at the rate that a search found.
fn passed(result: &SearchResult) -> Option<&TrialResult> {
    let passed =
        |t: &&TrialResult| t.outcome == Outcome::Passed && Some(t.rate_qps) == result.rate_qps;
    result.trials.iter().rfind(passed)
}

/// What a rate is worth that a DUT passed while queries waited in it; `None` if it did not, or if none
/// waited at the end.
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

/// Equation (1) of Lencse et al. 2017, section 4.4, for the rate that a search found: what a DUT sustains that
/// stores queries until their timeout.
fn calculated_qps(result: &SearchResult) -> Option<f64> {
    let passed = passed(result)?;
    let [duration_s, timeout_s] = [passed.duration_ns, passed.timeout_ns].map(|ns| ns as f64 / 1e9);
    Some(calculated_rate(
        passed.rate_qps as f64,
        duration_s,
        timeout_s,
    ))
}

#[cfg(test)]
mod tests;
