//! What a reader asks first of a report: who is faster, and what changed while it was measured.

use serde::Serialize;

use crate::trial::result::Outcome;

/// The servers side by side at the point that stands for each.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Standings {
    /// Shares, duration and timeout of these points.
    pub cell: String,
    /// Who is the fastest and by how much, in a sentence; empty of one server alone.
    pub answers: Vec<String>,
    /// The servers, those of one kind by falling rate.
    pub rows: Vec<Standing>,
}

/// One server among them.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// Index into [`Analysis::points`](super::Analysis::points).
    pub point: usize,
    /// Its median as a part of the highest; `None` of unstable runs and of lower bounds.
    pub of_fastest: Option<f64>,
    /// Between these it lies, if both medians lie within their ranges.
    pub of_fastest_range: Option<(f64, f64)>,
    /// How it stands against the fastest, in words.
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

/// One server of it.
#[derive(Clone, Debug, Serialize)]
pub struct CommonLoadRow {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// Percentile and nanoseconds, of the first passed trial at this rate.
    pub rtt_ns: Vec<(f64, u64)>,
}

/// A trial at the moment when it was written down.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Seconds since the first trial of the campaign was over.
    pub at_s: f64,
    /// Offered rate.
    pub rate_qps: u64,
    /// Valid answers in time, per second.
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
    /// Its trials, in their order.
    pub trials: Vec<Moment>,
}
