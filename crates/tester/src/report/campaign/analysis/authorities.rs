//! Results of authoritative servers that are measured by themselves (Lencse, Pivoda and Shima 2021).

use schemars::JsonSchema;
use serde::Serialize;

/// Authorities measured by self-tests, without a DUT.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Authorities {
    /// The authorities, in the order of the plan.
    pub rows: Vec<AuthorityRow>,
    /// The best one behind a Tester; `None` if none has a rate.
    pub recommendation: Option<Recommendation>,
}

/// One authority.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct AuthorityRow {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// The server, without cores and names.
    pub server: String,
    /// Number of its cores; `None` if the plan does not set it.
    pub cores: Option<usize>,
    /// Names of its zone.
    pub names: u64,
    /// Index of its representative point in the plan.
    pub point: usize,
    /// 1st percentile of its self-tests, in queries per second: it decides the capacity behind a Tester.
    pub p1: Option<f64>,
    /// Their median.
    pub median: Option<f64>,
    /// Their 99th percentile.
    pub p99: Option<f64>,
    /// Their dispersion, in per cent.
    pub dispersion_pct: Option<f64>,
    /// See [`PointResult::lower_bound`](super::PointResult::lower_bound).
    pub lower_bound: bool,
    /// Runs without a rate because the Tester could not keep the schedule or was disturbed.
    pub tester_limited_runs: usize,
    /// Highest rate of a valid trial that passed, over all runs.
    pub passed_qps: Option<u64>,
    /// Highest rate of a DNS64 server for which it certifies a Tester: the 1st percentile / 2.2.
    pub certifies_qps: Option<u64>,
    /// CPU time of its processes for each query, in the trials at the measured rates: the median.
    pub cpu_ns_per_query: Option<f64>,
    /// Resident memory after the zone is loaded: the maximum over all starts.
    pub rss_bytes: Option<u64>,
    /// The same with shared pages counted once (proportional set size).
    pub pss_bytes: Option<u64>,
    /// Number of recorded starts.
    pub starts: usize,
    /// Time from its first start in the campaign to its first correct response.
    pub first_start_ns: Option<u64>,
    /// Whether the zone file was written just before that start, which does not count; `false` if it existed from an
    /// earlier run, `None` without a zone file.
    pub zone_written: Option<bool>,
    /// The same time for the later starts: the median.
    pub later_starts_ns: Option<f64>,
}

/// The authority with the highest 1st percentile.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Recommendation {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// See [`AuthorityRow::p1`].
    pub p1: f64,
    /// See [`AuthorityRow::certifies_qps`].
    pub certifies_qps: u64,
    /// Whether its rate may be higher.
    pub lower_bound: bool,
    /// Other authorities whose 99th percentile is not below its 1st percentile: a tie.
    pub tied: Vec<usize>,
    /// Other authorities whose rate is unknown, or may be higher, because the Tester was the limit.
    pub not_compared: Vec<usize>,
    /// The recommendation in words.
    pub text: String,
}
