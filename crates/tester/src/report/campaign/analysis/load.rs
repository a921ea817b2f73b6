//! What a report says of loads beyond and for long below the rate that was found.

use serde::Serialize;

/// An overload curve.
#[derive(Clone, Debug, Serialize)]
pub struct OverloadCurve {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// The rate that the factors are of.
    pub base_rate_qps: u64,
    /// Its trials.
    pub rows: Vec<OverloadRow>,
}

/// One trial of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OverloadRow {
    /// Offered rate.
    pub rate_qps: u64,
    /// Valid answers in time, per second.
    pub goodput_qps: f64,
    /// Median round-trip time.
    pub rtt_ns_p50: Option<u64>,
    /// 99th percentile.
    pub rtt_ns_p99: Option<u64>,
    /// Whether the Tester was certified for the offered rate.
    pub certified: Option<bool>,
    /// Beyond what the Tester is certified for, or disturbed: a lower bound.
    pub doubtful: bool,
}

/// A soak.
#[derive(Clone, Debug, Serialize)]
pub struct SoakResult {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// Offered rate.
    pub rate_qps: u64,
    /// Its segments.
    pub rows: Vec<SoakRow>,
    /// Queries without a valid answer in time, all segments together.
    pub shortfall: u64,
    /// What changes with time, and whether that is more than chance.
    pub slopes: Vec<Slope>,
}

/// One segment of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SoakRow {
    /// Seconds from the beginning of the soak to the end of the segment.
    pub at_s: f64,
    /// Queries without a valid answer in time.
    pub shortfall: u64,
    /// 99th percentile of the round-trip times.
    pub rtt_ns_p99: u64,
    /// 99.9th percentile.
    pub rtt_ns_p999: u64,
    /// Resident memory of the DUT.
    pub memory_bytes: Option<u64>,
    /// Its descriptors.
    pub descriptors: Option<u64>,
    /// Its threads.
    pub threads: Option<u64>,
}

/// A trend.
#[derive(Clone, Debug, Serialize)]
pub struct Slope {
    /// Of what: "memory", "descriptors", "threads", "p99 of the round-trip time", ...
    pub of: &'static str,
    /// Change over the soak by the fitted slope, in the unit below.
    pub change: f64,
    /// Seconds from the first segment to the last: what the change is over.
    pub span_s: f64,
    /// The same per hour; `None` of a soak of less than a third of an hour.
    pub per_hour: Option<f64>,
    /// Unit.
    pub unit: &'static str,
    /// Probability of such a trend by chance (Mann-Kendall, two-sided).
    pub p: f64,
    /// In words.
    pub verdict: String,
}
