//! Results about the authority: rates by its delay, and by its working set.

use schemars::JsonSchema;
use serde::Serialize;

/// Rates of one DUT by the delay of the authority behind it (Lencse et al. 2017, section 8.2).
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct DelayCurve {
    /// The DUT.
    pub dut: String,
    /// The rates, by ascending delay.
    pub rows: Vec<DelayRow>,
    /// Number of delays that a query of the client waits for in sequence; `None` without two round-trip times.
    pub in_sequence: Option<f64>,
    /// Time of a query in the DUT and on the links without any delay.
    pub base_ns: Option<f64>,
    /// Limit of outstanding queries, by Little's law; `None` if there is no sign of one.
    pub limit: Option<f64>,
    /// The verdict in words.
    pub verdict: String,
}

/// One delay of a curve.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct DelayRow {
    /// Delay of each response of the authority.
    pub delay_ns: u64,
    /// Index of the point in the plan.
    pub point: usize,
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// Median rate, in queries per second.
    pub median: f64,
    /// See [`PointResult::lower_bound`](super::PointResult::lower_bound).
    pub lower_bound: bool,
    /// See [`PointResult::certified`](super::PointResult::certified).
    pub certified: Option<bool>,
    /// Median round-trip time in the passed trial of the run nearest to the median.
    pub rtt_ns_p50: Option<u64>,
    /// Number of outstanding queries: rate x that time.
    pub outstanding: Option<f64>,
}

/// Rates of one variant whose queries repeat the names of a set, by the size of the set (Lencse et al. 2017, section
/// 8.6).
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct WorkingSets {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// "in order", one name after another, or "at random".
    pub order: &'static str,
    /// The rates, by ascending number of names.
    pub rows: Vec<WorkingSetRow>,
}

/// One working set.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct WorkingSetRow {
    /// Names.
    pub names: u64,
    /// Index of the point in the plan.
    pub point: usize,
    /// Median rate, in queries per second.
    pub median: f64,
    /// See [`PointResult::lower_bound`](super::PointResult::lower_bound).
    pub lower_bound: bool,
    /// See [`PointResult::certified`](super::PointResult::certified).
    pub certified: Option<bool>,
    /// Factor relative to the smallest set.
    pub factor: f64,
}
