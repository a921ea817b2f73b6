//! What a report says of the Tester while it measured: its sender, the places of losses, its self-tests.

use serde::Serialize;

use crate::trial::place::Place;

/// All trials of one variant, those of earlier attempts included.
#[derive(Clone, Debug, Serialize)]
pub struct Evidence {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// Trials that passed.
    pub passed: u64,
    /// Trials that failed.
    pub failed: u64,
    /// Invalid trials by the kind of fault, the most frequent first.
    pub invalid: Vec<(&'static str, u64)>,
    /// The sender in the trials that passed or failed; `None` without such trials.
    pub sender: Option<SenderEvidence>,
    /// Where queries were lost; `None` if no trial tells, as in journals of earlier versions.
    pub losses: Option<PlacesOfLoss>,
}

/// A figure of several trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median of the trials.
    pub median: f64,
    /// The largest.
    pub worst: f64,
}

/// How well the sender kept to its schedule.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SenderEvidence {
    /// Trials.
    pub trials: u64,
    /// Median lateness of the queries of a trial.
    pub lateness_ns_p50: Spread,
    /// 99th percentile.
    pub lateness_ns_p99: Spread,
    /// 99.9th percentile.
    pub lateness_ns_p999: Spread,
    /// Largest lateness.
    pub lateness_ns_max: Spread,
    /// Lateness beyond which a trial is invalid, the lowest of all trials; `None` in journals of earlier versions.
    pub lateness_limit_ns: Option<u64>,
    /// Largest deviation of a bin of 1 ms from the queries due in it, in per cent; `None` if a trial does not tell.
    pub bin_1ms_deviation_pct_max: Option<Spread>,
    /// The same for bins of 10 ms.
    pub bin_10ms_deviation_pct_max: Spread,
    /// The same for bins of 100 ms.
    pub bin_100ms_deviation_pct_max: Spread,
    /// Deviation of a bin of 100 ms beyond which a trial is invalid, the lowest of all trials.
    pub rate_error_limit_pct: Option<f64>,
}

/// Where the queries without a valid answer were lost.
#[derive(Clone, Debug, Serialize)]
pub struct PlacesOfLoss {
    /// Trials that tell.
    pub trials: u64,
    /// Queries that they sent.
    pub queries_sent: u64,
    /// Every place, in the order of the way, also those without a loss.
    pub places: Vec<LostAt>,
    /// Losses of which the place cannot be told.
    pub undecided: Lost,
    /// In some trial other programs used the counters as well: they are evidence, not proof.
    pub shared: bool,
}

/// Queries that were lost at one place.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LostAt {
    /// Where.
    pub place: Place,
    /// How many.
    #[serde(flatten)]
    pub lost: Lost,
}

/// Queries that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// In trials that passed or failed.
    pub valid_trials: u64,
    /// In invalid trials, which say nothing about the DUT.
    pub invalid_trials: u64,
}

/// The self-tests under the same conditions, and what was measured under them.
#[derive(Clone, Debug, Serialize)]
pub struct Margin {
    /// Indices into [`Analysis::certificates`](super::Analysis::certificates).
    pub certificates: Vec<usize>,
    /// What they certify together; `None` if each of them failed.
    pub certified_rate_qps: Option<u64>,
    /// Indices into [`Analysis::points`](super::Analysis::points) of the points with a rate.
    pub points: Vec<usize>,
}
