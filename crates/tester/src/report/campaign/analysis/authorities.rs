//! What a report says of authoritative servers that are measured by themselves (Lencse, Pivoda and
//! Shima 2021).

use serde::Serialize;

use crate::statistics::line::Line;

/// Authorities that were measured by self-tests, without a DUT.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Authorities {
    /// Each of them, in the order of the plan.
    pub rows: Vec<AuthorityRow>,
    /// What those take that were measured with several zones.
    pub zones: Vec<ZoneGrowth>,
    /// Which of them is the best behind a Tester; `None` if none has a rate.
    pub recommendation: Option<Recommendation>,
}

/// One of them.
#[derive(Clone, Debug, Serialize)]
pub struct AuthorityRow {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// The server, without cores and names.
    pub server: String,
    /// Number of its cores; `None` if the plan leaves them open.
    pub cores: Option<usize>,
    /// Names of its zone.
    pub names: u64,
    /// Index of the point in the plan that stands for it.
    pub point: usize,
    /// 1st percentile of its self-tests, in queries per second: what counts behind a Tester.
    pub p1: Option<f64>,
    /// Their median.
    pub median: Option<f64>,
    /// Their 99th percentile.
    pub p99: Option<f64>,
    /// Their dispersion, in per cent.
    pub dispersion_pct: Option<f64>,
    /// See [`PointResult::lower_bound`](super::PointResult::lower_bound).
    pub lower_bound: bool,
    /// Runs without a rate because the Tester could not keep to the schedule or was disturbed.
    pub tester_limited_runs: usize,
    /// The highest rate of a valid trial that passed, of any run.
    pub passed_qps: Option<u64>,
    /// The highest rate of a DNS64 server for which a Tester with it is good: the 1st percentile / 2.2.
    pub certifies_qps: Option<u64>,
    /// CPU time of its processes for each query, in the trials by which the runs found their rates: the
    /// median.
    pub cpu_ns_per_query: Option<f64>,
    /// Resident memory once the zone is loaded, the most of all starts.
    pub rss_bytes: Option<u64>,
    /// The same with shared pages counted once.
    pub pss_bytes: Option<u64>,
    /// Starts that were recorded.
    pub starts: usize,
    /// From its first start in the campaign to its first right answer.
    pub first_start_ns: Option<u64>,
    /// Whether the zone file was written right before that, which does not count; `false` if it was there
    /// from an earlier run, `None` without a zone file.
    pub zone_written: Option<bool>,
    /// The same of the starts after the first: the median.
    pub later_starts_ns: Option<f64>,
}

/// Memory and start of one server on the same cores, by the names of its zone.
#[derive(Clone, Debug, Serialize)]
pub struct ZoneGrowth {
    /// The server, without cores and names.
    pub server: String,
    /// Number of its cores; `None` if the plan leaves them open.
    pub cores: Option<usize>,
    /// The zones, by rising number of names.
    pub rows: Vec<ZoneRow>,
    /// Octets (proportional set size) over names.
    pub memory: Option<Line>,
    /// Nanoseconds to the first right answer over names.
    pub start: Option<Line>,
    /// Names of a /5, the zone of the paper.
    pub whole_names: u64,
    /// Memory with so many names, by the line.
    pub whole_memory_bytes: Option<f64>,
    /// Time to start with so many names, by the line.
    pub whole_start_ns: Option<f64>,
    /// So many names are more than were measured: both figures are extrapolated.
    pub extrapolated: bool,
}

/// One zone.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ZoneRow {
    /// Names.
    pub names: u64,
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// See [`AuthorityRow::pss_bytes`].
    pub pss_bytes: Option<u64>,
    /// Median of the starts after the first; the first if there is no other.
    pub start_ns: Option<f64>,
}

/// The authority with the highest 1st percentile.
#[derive(Clone, Debug, Serialize)]
pub struct Recommendation {
    /// Index into [`Analysis::variants`](super::Analysis::variants).
    pub variant: usize,
    /// See [`AuthorityRow::p1`].
    pub p1: f64,
    /// See [`AuthorityRow::certifies_qps`].
    pub certifies_qps: u64,
    /// Its rate may be higher.
    pub lower_bound: bool,
    /// Others whose range from the 1st to the 99th percentile reaches its 1st percentile: a tie.
    pub tied: Vec<usize>,
    /// Others of which the rate is not known, or may be higher, because the Tester was the limit.
    pub not_compared: Vec<usize>,
    /// The same in words.
    pub text: String,
}
