//! Evidence about the Tester during the measurement: its sender, the places of losses, its self-tests.

use schemars::JsonSchema;
use serde::Serialize;

use crate::trial::place::Place;

/// All trials of one variant, including those of earlier attempts.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Evidence {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// Trials that passed.
    pub passed: u64,
    /// Trials that failed.
    pub failed: u64,
    /// Invalid trials by kind of fault, the most frequent first.
    pub invalid: Vec<(&'static str, u64)>,
    /// The sender in the trials that passed or failed; `None` without such trials.
    pub sender: Option<SenderEvidence>,
    /// Places of lost queries; `None` without trials.
    pub losses: Option<PlacesOfLoss>,
}

/// How well the sender kept its schedule, in the worst trial for each figure.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct SenderEvidence {
    /// Number of trials.
    pub trials: u64,
    /// 99th percentile of the lateness of the queries of a trial.
    pub lateness_ns_p99: u64,
    /// Largest lateness.
    pub lateness_ns_max: u64,
    /// Lateness limit of a valid trial, the lowest of all trials.
    pub lateness_limit_ns: u64,
    /// Largest deviation of a bin of 10 ms from the queries due in it, in per cent.
    pub bin_10ms_deviation_pct_max: f64,
    /// The same for bins of 100 ms.
    pub bin_100ms_deviation_pct_max: f64,
    /// Limit of a valid trial for the deviation of a bin of 100 ms, the lowest of all trials; `None` without one.
    pub rate_error_limit_pct: Option<f64>,
}

/// Places at which queries without a valid response were lost.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PlacesOfLoss {
    /// Trials that report places.
    pub trials: u64,
    /// Queries sent in them.
    pub queries_sent: u64,
    /// Every place in the order of the path, including those without losses.
    pub places: Vec<LostAt>,
    /// Losses at an unknown place.
    pub undecided: Lost,
    /// Whether other programs used the counters as well in any trial: they are then evidence, not proof.
    pub shared: bool,
}

/// Losses at one place.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct LostAt {
    /// The place.
    pub place: Place,
    /// Number of queries.
    #[serde(flatten)]
    pub lost: Lost,
}

/// Number of lost queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Lost {
    /// In trials that passed or failed.
    pub valid_trials: u64,
    /// In invalid trials, which say nothing about the DUT.
    pub invalid_trials: u64,
}
