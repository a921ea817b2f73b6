//! The main results: the ranking of the servers, and latency at a common load.

use schemars::JsonSchema;
use serde::Serialize;

/// The servers side by side at their representative points.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Standings {
    /// Shares, duration and timeout of these points.
    pub cell: String,
    /// The fastest and its lead, in a sentence; empty for a single server.
    pub answers: Vec<String>,
    /// The servers, those of one kind by descending rate.
    pub rows: Vec<Standing>,
}

/// Rank of one server.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Standing {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// Index into [`Analysis::points`](super::Analysis::points).
    pub point: usize,
    /// Its median as a fraction of the highest; `None` for unstable runs and for lower bounds.
    pub of_fastest: Option<f64>,
    /// Bounds of that fraction, from the ranges of both medians.
    pub of_fastest_range: Option<(f64, f64)>,
    /// Comparison with the fastest, in words.
    pub against: String,
}

/// Round-trip times of several servers at one offered rate.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CommonLoad {
    /// Shares of the names.
    pub cell: String,
    /// The highest rate that all of them passed.
    pub rate_qps: u64,
    /// Their times.
    pub rows: Vec<CommonLoadRow>,
}

/// One server at a common load.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CommonLoadRow {
    /// Index into [`Analysis::points`](super::Analysis::points).
    pub point: usize,
    /// Percentile and nanoseconds, of the first passed trial at this rate.
    pub rtt_ns: Vec<(f64, u64)>,
}
