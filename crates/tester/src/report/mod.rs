//! What the user sees: the results as text, as JSON, and the progress towards them.
//!
//! Everything is computed from plain data. Whoever asks for a result writes it; only [`progress`]
//! writes to standard error by itself.

pub mod campaign;
mod chart;
pub mod json;
mod numbers;
pub mod progress;
pub mod raw;
pub mod text;
pub mod timing;

use std::fmt;

use dns64_transport::clock::{Nanos, SECOND};

use crate::procedure::search::SearchResult;
pub use crate::quantity::{Span, Thousands};
pub use crate::rig::conditions::Conditions;

/// The highest rate on which the answer of a search rests: its failure too must be the DUT's.
fn judged_qps(result: &SearchResult) -> u64 {
    result.failed_qps.max(result.rate_qps).unwrap_or(0)
}

/// A span of time to within its two largest units, for times that are hours or days: "2 d 3 h",
/// "5 min 20 s", "9 s".
#[derive(Clone, Copy, Debug)]
pub struct RoughSpan(pub Nanos);

impl fmt::Display for RoughSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / SECOND;
        let (minutes, hours) = (seconds / 60, seconds / 3600);
        let (large, small) = match seconds {
            0..60 => return write!(f, "{seconds} s"),
            60..3600 => ((minutes, "min"), (seconds % 60, "s")),
            3600..86_400 => ((hours, "h"), (minutes % 60, "min")),
            _ => ((hours / 24, "d"), (hours % 24, "h")),
        };
        write!(f, "{} {} {} {}", large.0, large.1, small.0, small.1)
    }
}

#[cfg(test)]
mod tests;
