//! Every number that a report of a campaign prints, as plain data.

mod authorities;
mod authority;
mod clause;
mod evidence;
mod hosts;
mod load;
mod standing;

use serde::{Serialize, Serializer};

use crate::campaign::record::{CertificateConditions, Environment};
use crate::statistics::agreement::Agreement;
use crate::statistics::summary::Summary;
use crate::trial::path::{AnsweredNames, AuthorityTimes, Messages};
use crate::trial::result::Outcome;
use crate::warning::Warning;
pub use authorities::{Authorities, AuthorityRow, Recommendation, ZoneGrowth, ZoneRow};
pub use authority::{DelayCurve, DelayRow, WorkingSetRow, WorkingSets};
pub use clause::{Clause, Met};
pub use evidence::{Evidence, Lost, LostAt, Margin, PlacesOfLoss, SenderEvidence, Spread};
pub use hosts::{ClockRow, HostMachine, HostRow, Hosts, LinkEndRow, LinkRow, ShareRow};
pub use load::{OverloadCurve, OverloadRow, Slope, SoakResult, SoakRow};
pub use standing::{CommonLoad, CommonLoadRow, Course, Moment, Standing, Standings};

/// Version of the form of `results.json`; its schema is published as `results.schema.json`.
pub const FORMAT: u32 = 2;

/// A campaign as a reader wants it.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// [`FORMAT`].
    pub format: u32,
    /// Title.
    pub name: String,
    /// What it was for.
    pub description: String,
    /// Program and version.
    pub tester: String,
    /// SHA-256 of the plan, and of the journal's last seal.
    pub plan_sha256: String,
    /// The seal of the last line: it stands for the whole journal.
    pub journal_seal: String,
    /// Everything of the plan was done.
    pub complete: bool,
    /// What was found, in a sentence for each variant, and which authority is the best: the verdict.
    pub verdict: Vec<String>,
    /// The servers side by side: who is the fastest, and by how much.
    pub standings: Standings,
    /// Why no number of it may be quoted as a measurement; empty if they may.
    pub not_a_measurement: Vec<String>,
    /// What a reader has to know, the gravest first: flags, faults, abandoned tasks, lower bounds.
    pub warnings: Vec<Warning>,
    /// Names and values: lab, setup, durations, timeouts, names, threads, cores.
    pub conditions: Vec<(String, String)>,
    /// What was measured.
    pub variants: Vec<VariantInfo>,
    /// The hosts of a plan over several, with their links.
    pub hosts: Hosts,
    /// Self-tests, in their order.
    pub certificates: Vec<Certificate>,
    /// The self-tests beside the rates that they are for.
    pub margins: Vec<Margin>,
    /// What the trials of each variant tell of the Tester.
    pub evidence: Vec<Evidence>,
    /// The results, point by point, in the order of the plan.
    pub points: Vec<PointResult>,
    /// Round-trip times of several servers at one rate, by cell.
    pub common_loads: Vec<CommonLoad>,
    /// The trials of the searches at the point that stands for each variant, over time.
    pub courses: Vec<Course>,
    /// The same by both shares at once, of variants with several of each.
    pub grids: Vec<Grid>,
    /// The papers' models, where there are cells enough.
    pub models: Vec<ModelResult>,
    /// Whether a DUT stores requests.
    pub queue_checks: Vec<QueueCheckResult>,
    /// Rates by cores, of DUTs with more than one set of cores.
    pub scaling: Vec<Scaling>,
    /// Rates by the delay of the authority, of DUTs with more than one delay.
    pub delays: Vec<DelayCurve>,
    /// Rates by the names that all queries are for, where there is more than one number of them.
    pub working_sets: Vec<WorkingSets>,
    /// Authoritative servers by themselves, side by side.
    pub authorities: Authorities,
    /// Beyond the rate that was found.
    pub overloads: Vec<OverloadCurve>,
    /// For long below it.
    pub soaks: Vec<SoakResult>,
    /// The processes that worked on it, with the machine of each.
    pub sessions: Vec<Session>,
    /// RFC 8219, clause by clause.
    pub statement: Vec<Clause>,
    /// What to type to repeat it.
    pub commands: Vec<String>,
    /// Where the time went.
    pub time: TimeSpent,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct VariantInfo {
    /// Its name in the report.
    pub name: String,
    /// The DUT that it is a variant of.
    pub dut: String,
    /// What its program says of itself.
    pub version: Option<String>,
    /// Settings that the plan gave it.
    pub settings: Vec<(String, String)>,
    /// Cores of the roles.
    pub cpus: Vec<(String, String)>,
    /// Where it answered.
    pub server: Option<String>,
    /// Prefix of the expected answers.
    pub pref64: Option<String>,
    /// SHA-256 of its program and of its configuration files.
    pub hashes: Vec<(String, String)>,
    /// Why its results are no measurement.
    pub not_a_measurement: Vec<String>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// One self-test.
#[derive(Clone, Debug, Serialize)]
pub struct Certificate {
    /// What it is tied to.
    pub conditions: CertificateConditions,
    /// Whether it was passed, or why not.
    pub end: String,
    /// The highest self-test rate that passed.
    pub passed_rate_qps: Option<u64>,
    /// For DUTs up to this rate.
    pub certified_rate_qps: Option<u64>,
    /// Trials that it took.
    pub trials: usize,
}

/// One row of the results.
#[derive(Clone, Debug, Serialize)]
pub struct PointResult {
    /// Index of the point in the plan.
    pub point: usize,
    /// Index into [`Analysis::variants`].
    pub variant: usize,
    /// Asked share of names with an AAAA of their own, in per cent.
    pub aaaa_pct: f64,
    /// Asked share of queries for cached names, in per cent.
    pub cached_pct: f64,
    /// Which names those are; empty for the papers' one name.
    pub pattern: String,
    /// Length of a trial.
    pub duration_s: f64,
    /// Timeout.
    pub timeout_s: f64,
    /// Figures over the runs; `None` if none found a rate.
    pub summary: Option<Summary>,
    /// Whether the runs agree, and between which rates the true one lies; `None` likewise.
    pub agreement: Option<Agreement>,
    /// A run ended at the limit of the Tester or of the plan: the true rate is not lower, but may be
    /// higher.
    pub lower_bound: bool,
    /// Rate for which the Tester was certified; the lowest, if it was another for some runs. `None` as
    /// soon as one was without.
    pub certified_rate_qps: Option<u64>,
    /// Whether the Tester was certified for the rates of all its runs; `None` of an authority by
    /// itself, which the self-test measures.
    pub certified: Option<bool>,
    /// Certified rate / median.
    pub headroom: Option<f64>,
    /// Degradation against the first cell of the same variant, in per cent (RFC 8219 section 10.2);
    /// `None` for that cell itself.
    pub degradation_pct: Option<f64>,
    /// The runs.
    pub runs: Vec<RunResult>,
    /// What the authority saw in trials that passed.
    pub achieved: Option<Achieved>,
    /// What the DUT sustains, where the trials that the runs found their rates by show that it stores
    /// queries; `None` if those of half the runs or more do not.
    pub stored: Option<Stored>,
    /// Round-trip times of the passed trial of the run nearest to the median: percentile and
    /// nanoseconds, the percentiles in rising order.
    pub rtt_ns: Vec<(f64, u64)>,
    /// Their mean.
    pub rtt_mean_ns: Option<u64>,
    /// The way of the queries through DUT and authority; `None` if the authority was not the Tester's.
    pub path: Option<PathResult>,
    /// Timing of the sender in that trial, and the worst of all valid trials.
    pub timing: Option<TimingResult>,
    /// Largest resident memory of the DUT after a trial.
    pub memory_bytes_max: Option<u64>,
    /// Processor time of the DUT in the trials that the runs found their rates by, in per cent of one core: the median.
    pub dut_cpu_pct: Option<f64>,
    /// Why that is not known.
    pub dut_cpu_unknown: Option<&'static str>,
}

/// One search.
#[derive(Clone, Debug, Serialize)]
pub struct RunResult {
    /// Its number.
    pub run: u32,
    /// How it ended.
    pub ended: RunEnd,
    /// Why it has no rate, in plain words.
    pub why: Option<String>,
    /// The fastest rate that passed.
    pub rate_qps: Option<u64>,
    /// Whether the Tester was certified for it, by the lowest certificate of all runs of the point;
    /// `None` if there is none, and of an authority by itself.
    pub certified: Option<bool>,
    /// The slowest that failed above it.
    pub failed_qps: Option<u64>,
    /// How long it took.
    pub took_s: f64,
    /// Its trials, in order.
    pub trials: Vec<Step>,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Between a pass and a fail.
    Found,
    /// At the rate that the Tester is certified for.
    LimitedByTester,
    /// At the highest rate of the plan.
    LimitedByRequest,
    /// The DUT fails even at the lowest rate.
    NothingPasses,
    /// The Tester was disturbed too often.
    TesterFault,
    /// Given up.
    Abandoned,
    /// Not begun, under way or cut short.
    Unfinished,
}

impl RunEnd {
    /// Its word in JSON and CSV.
    pub fn word(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::LimitedByTester => "limited_by_tester",
            Self::LimitedByRequest => "limited_by_request",
            Self::NothingPasses => "nothing_passes",
            Self::TesterFault => "tester_fault",
            Self::Abandoned => "abandoned",
            Self::Unfinished => "unfinished",
        }
    }

    /// The true rate is not lower than the one that was found, but may be higher.
    pub fn is_lower_bound(self) -> bool {
        matches!(self, Self::LimitedByTester | Self::LimitedByRequest)
    }
}

impl Serialize for RunEnd {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

/// One trial of a search.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Offered rate.
    pub rate_qps: u64,
    /// Whether the Tester was certified for it; `None` if that is not known, or needs not be.
    pub certified: Option<bool>,
    /// Its verdict; in JSON "passed", "failed" or "invalid".
    #[serde(serialize_with = "outcome")]
    pub outcome: Outcome,
    /// Queries without a valid answer in time.
    pub shortfall: u64,
    /// What went wrong, in plain words; empty if nothing.
    pub why: String,
}

fn outcome<S: Serializer>(outcome: &Outcome, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(outcome.word())
}

/// What the authority saw, in the mean of trials that passed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Achieved {
    /// Share of the asked names that had an AAAA, in per cent.
    pub aaaa_pct: Option<f64>,
    /// Share of the client's queries for which the authority was not asked, in per cent.
    pub cached_pct: f64,
    /// Queries that the authority got for one query of the client: 2 in the worst case.
    pub amplification: f64,
}

/// What a DUT sustains that passes trials above that rate by storing queries.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stored {
    /// Runs whose trial shows it.
    pub runs: usize,
    /// Growth of the delay of the answers in those trials, in nanoseconds per second: the median.
    pub slope_ns_per_s: f64,
    /// Queries that the DUT served per second in those trials: the median.
    pub sustainable_qps: f64,
}

/// The way of the queries through DUT and authority.
#[derive(Clone, Debug, Serialize)]
pub struct PathResult {
    /// Fresh names with a valid answer by the questions for them, all valid trials together.
    pub answered: AnsweredNames,
    /// Questions at the authority for each fresh name, in the trial of `rtt_ns`.
    pub questions_per_name: Option<f64>,
    /// Its round-trip times without those of the authority, in the form of `rtt_ns`.
    pub dut_only_ns: Vec<(f64, u64)>,
    /// How long the authority took for an answer in it.
    pub authority: AuthorityTimes,
    /// The messages of its typical query.
    pub typical: Option<Messages>,
}

/// How well the sender kept to its schedule.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TimingResult {
    /// 99th percentile of the lateness.
    pub lateness_ns_p99: u64,
    /// Largest lateness.
    pub lateness_ns_max: u64,
    /// Largest deviation of a bin of 10 ms, in per cent.
    pub bin_10ms_deviation_pct_max: f64,
    /// Largest deviation of a bin of 100 ms, in per cent.
    pub bin_100ms_deviation_pct_max: f64,
    /// Largest lateness in any valid trial of the point.
    pub worst_lateness_ns: u64,
    /// Datagrams lost at the Tester's own sockets, all trials together.
    pub tester_drops: u64,
}

/// The two-dimensional table of RFC 8219 section 9.2: rates of one variant by both shares.
#[derive(Clone, Debug, Serialize)]
pub struct Grid {
    /// Index into [`Analysis::variants`].
    pub variant: usize,
    /// Shares of names with an AAAA of their own, in per cent: the columns.
    pub aaaa_pct: Vec<f64>,
    /// The rows, by the share of queries for cached names.
    pub rows: Vec<GridRow>,
}

/// One row of it.
#[derive(Clone, Debug, Serialize)]
pub struct GridRow {
    /// Share of queries for cached names, in per cent.
    pub cached_pct: f64,
    /// One cell for each column; `None` where nothing was measured or found. When everything is
    /// cached the AAAA share is of no consequence, and one cell stands for all.
    pub cells: Vec<Option<GridCell>>,
}

/// One cell of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GridCell {
    /// Median rate, in queries per second.
    pub median: f64,
    /// 1st percentile.
    pub p1: f64,
    /// 99th percentile.
    pub p99: f64,
    /// See [`PointResult::lower_bound`].
    pub lower_bound: bool,
    /// See [`PointResult::certified`].
    pub certified: Option<bool>,
}

/// What a model is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelOf {
    /// The work for a query, whose reciprocal is the rate (equations 7 and 8, and 6 likewise).
    Work,
    /// The mean reply time, under the rate that was found (equations 4, 5 and 6).
    ReplyTime,
}

/// A model of paper 000, fitted to the medians of one variant.
#[derive(Clone, Debug, Serialize)]
pub struct ModelResult {
    /// Index into [`Analysis::variants`].
    pub variant: usize,
    /// What it is of.
    pub of: ModelOf,
    /// "AAAA share" (equations 7 and 4), "cached share" (8 and 5) or "both shares" (6).
    pub model: &'static str,
    /// The equation with its numbers in it.
    pub equation: String,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// Why it does not hold, however well it fits: one of its times would be negative, or its cells are too few
    /// to judge it.
    pub refused: Option<String>,
    /// The cells that it is fitted to.
    pub fitted: Vec<FittedRow>,
    /// Largest difference of the two, in per cent of the median.
    pub residual_pct_max: f64,
    /// Coefficient of determination of the fit to 1/rate; `None` of cells that are too few to judge it.
    pub r_squared: Option<f64>,
}

impl ModelResult {
    /// Whether it is over both shares.
    pub fn is_over_both(&self) -> bool {
        self.fitted.iter().any(|row| row.other_pct > 0.0)
    }
}

/// A parameter of a model.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// What it is.
    pub name: &'static str,
    /// Its value, in the unit below.
    pub value: f64,
    /// Unit.
    pub unit: &'static str,
}

/// A cell that a model is fitted to.
#[derive(Clone, Copy, Debug)]
pub struct FittedRow {
    /// Share, in per cent; with both shares that of names with an AAAA.
    pub share_pct: f64,
    /// Median rate, in queries per second; of reply times the mean, in microseconds.
    pub median: f64,
    /// What the model says, likewise.
    pub modelled: f64,
    /// The other share, in per cent: with both shares the cached one, else 0.
    pub other_pct: f64,
}

/// Whether the calculated rates of several durations and timeouts agree.
#[derive(Clone, Debug, Serialize)]
pub struct QueueCheckResult {
    /// Index into [`Analysis::variants`].
    pub variant: usize,
    /// What was measured.
    pub rows: Vec<QueueCheckRow>,
    /// Dispersion of the medians, in per cent.
    pub median_dispersion_pct: f64,
    /// Dispersion of the calculated rates, in per cent.
    pub calculated_dispersion_pct: f64,
    /// The DUT stores requests and uses the timeout up: the calculated rate is the sustainable one. `None`:
    /// undecided.
    pub stores_requests: Option<bool>,
    /// The same in words.
    pub verdict: String,
}

/// One duration and timeout of it.
#[derive(Clone, Copy, Debug)]
pub struct QueueCheckRow {
    /// Length of a trial.
    pub duration_s: f64,
    /// Timeout.
    pub timeout_s: f64,
    /// Median rate, in queries per second.
    pub median: f64,
    /// See [`Summary::calculated`].
    pub calculated: f64,
    /// See [`PointResult::certified`]; not in JSON, which has it at the point.
    pub certified: Option<bool>,
}

/// Rates of one DUT, with the same settings, by its cores.
#[derive(Clone, Debug, Serialize)]
pub struct Scaling {
    /// The DUT.
    pub dut: String,
    /// The rates, by rising cores.
    pub rows: Vec<ScalingRow>,
}

/// One number of cores.
#[derive(Clone, Copy, Debug)]
pub struct ScalingRow {
    /// Cores of the DUT.
    pub cores: usize,
    /// Index of the point in the plan.
    pub point: usize,
    /// Median rate, in queries per second.
    pub median: f64,
    /// Queries per second and core.
    pub per_core: f64,
    /// See [`PointResult::certified`]; not in JSON, which has it at the point.
    pub certified: Option<bool>,
    /// Factor against the fewest cores.
    pub factor: f64,
}

/// Rows whose form in JSON is an array of their fields.
macro_rules! as_arrays {
    ($($row:ident { $($field:ident),+ })+) => {$(
        impl Serialize for $row {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                ($(self.$field,)+).serialize(to)
            }
        }
    )+};
}

as_arrays! {
    Parameter { name, value, unit }
    FittedRow { share_pct, median, modelled, other_pct }
    QueueCheckRow { duration_s, timeout_s, median, calculated }
    ScalingRow { cores, point, median, per_core, factor }
}

/// A process that worked on the campaign.
#[derive(Clone, Debug, Serialize)]
pub struct Session {
    /// When it began: RFC 3339, UTC.
    pub began: String,
    /// How it ended: "complete", why it stopped, or "without a stop record" after a crash.
    pub ended: String,
    /// Octets of half a line that it found.
    pub torn_bytes: u64,
    /// Its machine.
    pub environment: Environment,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TimeSpent {
    /// In searches.
    pub searches_s: f64,
    /// In self-tests.
    pub self_tests_s: f64,
    /// In overload curves and soaks.
    pub others_s: f64,
    /// Trials of searches.
    pub trials: usize,
    /// What the papers' script would have taken for the same searches: each trial to its end, a
    /// range from 0 to the first power of two above twice the highest rate, bisected down to the same
    /// resolution (paper 002, figure 3).
    pub fixed_range_s: f64,
}
