//! Results of goals, of loads above the measured rate, and of long loads below it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::procedure::search::GoalResult;

/// The result of a goal at a point: after RFC 9971, or an interval.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct GoalRow {
    /// Index into [`Analysis::points`](super::Analysis::points).
    pub point: usize,
    /// Goal, relevant bounds and conditional throughput.
    #[serde(flatten)]
    pub result: GoalResult,
    /// Valid trials of the search, which all its goals share.
    pub valid_trials: u64,
    /// Time of the search.
    pub took_ns: u64,
}

/// An overload curve.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct OverloadCurve {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// The rate that the factors refer to.
    pub base_rate_qps: u64,
    /// Its trials.
    pub rows: Vec<OverloadRow>,
}

/// One trial of an overload curve.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct OverloadRow {
    /// Offered rate.
    pub rate_qps: u64,
    /// Valid responses in time, per second.
    pub goodput_qps: f64,
    /// Median round-trip time.
    pub rtt_ns_p50: Option<u64>,
    /// 99th percentile.
    pub rtt_ns_p99: Option<u64>,
    /// Whether the Tester was certified for the offered rate.
    pub certified: Option<bool>,
    /// Whether the value is only a lower bound: above the certified rate, or from a disturbed trial.
    pub doubtful: bool,
}

/// A soak.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct SoakResult {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// Offered rate.
    pub rate_qps: u64,
    /// Its segments.
    pub rows: Vec<SoakRow>,
    /// Queries without a valid response in time, over all segments.
    pub shortfall: u64,
    /// Trends over time, and whether they exceed chance.
    pub slopes: Vec<Slope>,
}

/// One segment of a soak.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct SoakRow {
    /// Seconds from the beginning of the soak to the end of the segment.
    pub at_s: f64,
    /// Queries without a valid response in time.
    pub shortfall: u64,
    /// 99th percentile of the round-trip times.
    pub rtt_ns_p99: u64,
    /// 99.9th percentile.
    pub rtt_ns_p999: u64,
    /// Resident memory of the DUT.
    pub memory_bytes: Option<u64>,
    /// Its file descriptors.
    pub descriptors: Option<u64>,
    /// Its threads.
    pub threads: Option<u64>,
}

/// A trend.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Slope {
    /// Quantity: "memory", "descriptors", "threads", "p99 of the round-trip time", ...
    pub of: &'static str,
    /// Change over the soak by the fitted slope, in the unit below.
    pub change: f64,
    /// Seconds from the first segment to the last: the span of the change.
    pub span_s: f64,
    /// Change per hour; `None` for a soak of less than a third of an hour.
    pub per_hour: Option<f64>,
    /// Unit.
    pub unit: &'static str,
    /// Probability of such a trend by chance (Mann-Kendall, two-sided).
    pub p: f64,
    /// The verdict in words.
    pub verdict: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procedure::search::SearchEnd;

    #[test]
    fn no_key_of_a_goal_is_written_twice() {
        let row = GoalRow {
            point: 0,
            result: GoalResult {
                goal: "interval".parse().unwrap(),
                end: Some(SearchEnd::TooWide { trials: Some(90) }),
                lower_qps: Some(1),
                upper_qps: Some(2),
                throughput_qps: Some(1),
            },
            valid_trials: 72,
            took_ns: 1,
        };
        let text = serde_json::to_string(&row).unwrap();
        let read: serde_json::Map<_, _> = serde_json::from_str(&text).unwrap();
        let again = serde_json::to_string(&read).unwrap();
        assert_eq!(text.len(), again.len(), "{text}");
    }
}
