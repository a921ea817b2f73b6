//! The main results: the ranking of the servers, latency at a common load, and trials over time.

use serde::Serialize;

use crate::trial::result::Outcome;

/// The servers side by side at their representative points.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Standings {
    /// Shares, duration and timeout of these points.
    pub cell: String,
    /// The fastest and its lead, in a sentence; empty for a single server.
    pub answers: Vec<String>,
    /// The servers, those of one kind by descending rate.
    pub rows: Vec<Standing>,
}

/// Rank of one server.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
pub struct CommonLoad {
    /// Shares of the names.
    pub cell: String,
    /// The highest rate that all of them passed.
    pub rate_qps: u64,
    /// Their times.
    pub rows: Vec<CommonLoadRow>,
}

/// One server at a common load.
#[derive(Clone, Debug, Serialize)]
pub struct CommonLoadRow {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// Percentile and nanoseconds, of the first passed trial at this rate.
    pub rtt_ns: Vec<(f64, u64)>,
}

/// A trial and the time of its record.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Seconds since the end of the first trial of the campaign.
    pub at_s: f64,
    /// Offered rate.
    pub rate_qps: u64,
    /// Valid responses in time, per second.
    pub answered_qps: f64,
    /// Processor time of the DUT, in per cent of one core.
    pub dut_cpu_pct: Option<f64>,
    /// Its verdict.
    pub outcome: Outcome,
}

impl Serialize for Moment {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let outcome = self.outcome.word();
        (
            self.at_s,
            self.rate_qps,
            self.answered_qps,
            self.dut_cpu_pct,
            outcome,
        )
            .serialize(to)
    }
}

/// The trials of one server over the time of the campaign.
#[derive(Clone, Debug, Serialize)]
pub struct Course {
    /// Index into [`Analysis::points`](super::Analysis::points).
    pub point: usize,
    /// Its trials, in order.
    pub trials: Vec<Moment>,
}
