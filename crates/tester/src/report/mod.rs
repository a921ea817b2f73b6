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
pub mod text;
pub mod timing;

use crate::procedure::search::SearchResult;
pub use crate::quantity::{Span, Thousands};
pub use crate::rig::conditions::Conditions;

/// The highest rate on which the answer of a search rests: its failure too must be the DUT's.
fn judged_qps(result: &SearchResult) -> u64 {
    result.failed_qps.max(result.rate_qps).unwrap_or(0)
}

#[cfg(test)]
mod tests;
