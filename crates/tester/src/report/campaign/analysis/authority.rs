//! What a report says of the authority: rates by its delay, and by its working set.

use serde::Serialize;

/// Rates of one DUT by the delay of the authority behind it (Lencse et al. 2017, section 8.2).
#[derive(Clone, Debug, Serialize)]
pub struct DelayCurve {
    /// The DUT.
    pub dut: String,
    /// The rates, by rising delay.
    pub rows: Vec<DelayRow>,
    /// How many delays a query of the client waits for, one after the other; `None` without two
    /// round-trip times.
    pub in_sequence: Option<f64>,
    /// The time of a query in the DUT and on the way without any delay.
    pub base_ns: Option<f64>,
    /// The limit of outstanding queries, by Little's law; `None` if none was seen.
    pub limit: Option<f64>,
    /// The same in words.
    pub verdict: String,
}

/// One delay of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DelayRow {
    /// How long the authority holds each reply back.
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
    /// Queries under way at once: rate x that time.
    pub outstanding: Option<f64>,
}

/// Rates of one variant by the names that its queries are for, over and over (Lencse et al. 2017,
/// section 8.6).
#[derive(Clone, Debug, Serialize)]
pub struct WorkingSets {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// "in order", one name after the other, or "at random".
    pub order: &'static str,
    /// The rates, by rising number of names.
    pub rows: Vec<WorkingSetRow>,
}

/// One number of names.
#[derive(Clone, Copy, Debug, Serialize)]
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
    /// Factor against the fewest names.
    pub factor: f64,
}
