//! Where a campaign stands, for whoever watches it.

use dns64_transport::clock::Nanos;
use serde::Serialize;

/// A picture of the campaign between two records. All moments are by the real-time clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Name of the plan.
    pub campaign: String,
    /// Directory of the journal.
    pub directory: String,
    /// When this process began.
    pub started_unix_ms: u64,
    /// What is being done.
    pub phase: Phase,
    /// The variant under way.
    pub variant: Option<String>,
    /// The cell under way, in words.
    pub cell: Option<String>,
    /// The run under way, and how many there are.
    pub run: Option<(u32, u32)>,
    /// The trial under way.
    pub trial: Option<TrialNow>,
    /// Rates of the search under way: the highest that passed and the lowest that failed.
    pub passed_qps: Option<u64>,
    /// See `passed_qps`.
    pub failed_qps: Option<u64>,
    /// Rate for which the Tester is certified under the present conditions.
    pub certified_qps: Option<u64>,
    /// Tasks that are over, of those of the plan.
    pub tasks_done: u64,
    /// Tasks of the plan.
    pub tasks: u64,
    /// Trials so far, those of earlier processes included.
    pub trials: u64,
    /// Of those, disturbed ones.
    pub invalid_trials: u64,
    /// Estimate of the time that is left.
    pub left_ns: Option<Nanos>,
    /// What was found so far, point by point.
    pub found: Vec<Found>,
    /// The last remark or fault.
    pub message: Option<String>,
}

/// What a campaign is busy with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Servers are being started, or rest.
    #[default]
    Preparing,
    /// The Tester is being certified.
    SelfTest,
    /// A search.
    Search,
    /// An overload curve.
    Overload,
    /// A soak.
    Soak,
    /// Over, or stopped.
    Over,
}

/// A trial under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TrialNow {
    /// Offered rate.
    pub rate_qps: u64,
    /// Its number in the task.
    pub number: u64,
    /// When it was called for.
    pub started_unix_ms: u64,
    /// Duration and timeout.
    pub length_ns: Nanos,
}

/// Rates that the runs of one point found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Name of the variant.
    pub variant: String,
    /// The cell, in words, with duration and timeout if they are not the plan's.
    pub cell: String,
    /// One rate for each finished run.
    pub rates_qps: Vec<u64>,
}
