//! Every number in the report of a campaign, as plain data.

mod authorities;
mod clause;
mod curve;
mod division;
mod evidence;
mod hosts;
mod load;
mod standing;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::campaign::plan::Variant;
use crate::campaign::plan::tasks::Point;
use crate::campaign::record::{CertificateConditions, Environment};
use crate::conform::report::Conformance;
use crate::machine::watch::HostOf;
use crate::namespace::Pattern;
use crate::statistics::agreement::Agreement;
use crate::statistics::pass::PassProbability;
use crate::statistics::summary::Summary;
use crate::trial::path::{AnsweredNames, AuthorityTimes};
use crate::trial::result::Outcome;
use crate::warning::Warning;
pub use authorities::{Authorities, AuthorityRow, Recommendation};
pub use clause::{Clause, Met};
pub use curve::{Curve, Over};
pub use division::Division;
pub use evidence::{Evidence, Lost, LostAt, PlacesOfLoss, SenderEvidence};
pub use hosts::{ClockRow, HostRow, Hosts, ShareRow};
pub use load::{GoalRow, OverloadCurve, OverloadRow, Slope, SoakResult, SoakRow};
pub use standing::{CommonLoad, CommonLoadRow, Standing, Standings};

/// Version of the format of `results.json`; its schema is published as `results.schema.json`.
pub const FORMAT: u32 = 2;

/// The results of a campaign.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Analysis {
    /// [`FORMAT`].
    pub format: u32,
    /// Title.
    pub name: String,
    /// Description by the user.
    pub description: String,
    /// Program and version.
    pub tester: String,
    /// SHA-256 of the plan.
    pub plan_sha256: String,
    /// Seal of the last line, which depends on the whole journal.
    pub journal_seal: String,
    /// Whether all tasks of the plan are done.
    pub complete: bool,
    /// The verdict: a sentence on the result of each variant, and the best authority.
    pub verdict: Vec<String>,
    /// The servers side by side: the fastest, and the differences.
    pub standings: Standings,
    /// Why none of its numbers may be quoted as a measurement; empty if they may be.
    pub not_a_measurement: Vec<String>,
    /// Warnings for the reader, the most severe first: flags, faults, abandoned tasks, lower bounds.
    pub warnings: Vec<Warning>,
    /// Names and values: lab, setup, durations, timeouts, names, threads, cores.
    pub conditions: Vec<(String, String)>,
    /// The variants.
    pub variants: Vec<VariantInfo>,
    /// Hosts of a plan with several.
    pub hosts: Hosts,
    /// Self-tests in order.
    pub certificates: Vec<Certificate>,
    /// Evidence about the Tester from the trials of each variant.
    pub evidence: Vec<Evidence>,
    /// Results by point, in the order of the plan.
    pub points: Vec<PointResult>,
    /// Round-trip times of several servers at one rate, by cell.
    pub common_loads: Vec<CommonLoad>,
    /// The papers' models, if there are enough cells.
    pub models: Vec<ModelResult>,
    /// Whether a DUT stores queries.
    pub queue_checks: Vec<QueueCheckResult>,
    /// Rates over cores, delays of the authority and working sets, where the plan has several.
    pub curves: Vec<Curve>,
    /// Authoritative servers measured by themselves, side by side.
    pub authorities: Authorities,
    /// Results of goals.
    pub goals: Vec<GoalRow>,
    /// Trials above the measured rate.
    pub overloads: Vec<OverloadCurve>,
    /// Long trials below it.
    pub soaks: Vec<SoakResult>,
    /// Processes of the campaign, with the machine of each.
    pub sessions: Vec<Session>,
    /// Statement of conformance with RFC 8219 by clause.
    pub statement: Vec<Clause>,
    /// Commands to repeat the campaign.
    pub commands: Vec<String>,
}

impl Analysis {
    /// The name of a variant.
    pub fn name_of(&self, variant: usize) -> &str {
        &self.variants[variant].marked
    }

    /// The points of a variant.
    pub fn points_of(&self, variant: usize) -> impl Iterator<Item = &PointResult> + Clone {
        let points = self.points.iter();
        points.filter(move |point| point.variant == variant)
    }

    /// The representative point of a variant: nothing cached and no AAAA (RFC 8219 section 9.2), or else its first
    /// point.
    pub fn headline(&self, variant: usize) -> Option<&PointResult> {
        let mut worst = self
            .points_of(variant)
            .filter(|point| point.is_worst_case());
        worst.next().or(self.points_of(variant).next())
    }
}

/// A measured variant.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct VariantInfo {
    /// The variant in the plan.
    #[serde(skip)]
    pub planned: Variant,
    /// Its name in the plan.
    pub name: String,
    /// The same for people, with a mark if it fails a must.
    #[serde(skip)]
    pub marked: String,
    /// Its DUT.
    pub dut: String,
    /// Version that its program reports.
    pub version: Option<String>,
    /// Settings from the plan.
    pub settings: Vec<(String, String)>,
    /// Cores of the roles.
    pub cpus: Vec<(HostOf, String)>,
    /// Address at which it responded.
    pub server: Option<String>,
    /// Prefix of the expected answers.
    pub pref64: Option<String>,
    /// SHA-256 of its program and of its configuration files.
    pub hashes: Vec<(String, String)>,
    /// Why its results are not a measurement.
    pub not_a_measurement: Vec<String>,
    /// Remarks.
    pub notes: Vec<String>,
    /// What a test of its conformance found; nothing without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conformance: Option<Conformance>,
}

impl VariantInfo {
    /// Whether its test of conformance found that it fails a must.
    pub fn fails_a_must(&self) -> bool {
        let found = self.conformance.as_ref();
        found.is_some_and(Conformance::fails_a_must)
    }

    /// Whether it is an authority, which the self-test measures.
    pub fn is_authority(&self) -> bool {
        self.planned.subject.is_authority()
    }
}

/// One self-test.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Certificate {
    /// What it depends on.
    pub conditions: CertificateConditions,
    /// Outcome: passed, or the reason.
    pub end: String,
    /// Highest self-test rate that passed.
    pub passed_rate_qps: Option<u64>,
    /// Highest certified rate of a DUT.
    pub certified_rate_qps: Option<u64>,
    /// Number of its trials.
    pub trials: usize,
}

/// One row of the results.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PointResult {
    /// The point in the plan.
    #[serde(skip)]
    pub planned: Point,
    /// Index of the point in the plan.
    pub point: usize,
    /// Index into [`Analysis::variants`].
    pub variant: usize,
    /// Configured share of names with their own AAAA record, in per cent.
    pub aaaa_pct: f64,
    /// Configured share of queries for cached names, in per cent.
    pub cached_pct: f64,
    /// Pattern of these names; empty for the papers' single name.
    pub pattern: String,
    /// Length of its trials.
    pub duration_s: f64,
    /// Their timeout: for an authority a quarter of the plan's.
    pub timeout_s: f64,
    /// Figures over the runs; `None` if none found a rate.
    pub summary: Option<Summary>,
    /// Whether the runs agree, and bounds of the true rate; `None` if no run found a rate.
    pub agreement: Option<Agreement>,
    /// Rates at which trials pass with a given probability, from all valid trials of the searches: an estimate beside the
    /// results of RFC 8219.
    pub pass_probability: PassProbability,
    /// Upper end of the 95 % interval of the loss ratio, from the passed trial of the run nearest to the median alone.
    pub loss_ratio_max: Option<f64>,
    /// Whether a run ended at the limit of the Tester or of the plan, or because the Tester was disturbed: the true rate
    /// is not lower, but may be higher.
    pub lower_bound: bool,
    /// Certified rate of the Tester; the lowest if it differs between runs. `None` if any run had no certificate.
    pub certified_rate_qps: Option<u64>,
    /// Whether the Tester was certified for the rates of all runs; `None` for an authority, which the self-test
    /// measures.
    pub certified: Option<bool>,
    /// Division of its rate, if a reader finds the rules met that need more than the journal.
    pub division: Division,
    /// IDs of the rules that its rate fails.
    pub rules_failed: Vec<&'static str>,
    /// Certified rate / median.
    pub headroom: Option<f64>,
    /// The runs.
    pub runs: Vec<RunResult>,
    /// Figures observed at the authority in trials that passed; `None` for an authority, whose self-tests have no cell.
    pub achieved: Option<Achieved>,
    /// Sustainable rate of the DUT, if the trials at the measured rates show in more than half of the runs that it
    /// stores queries.
    pub stored: Option<Stored>,
    /// Round-trip times of the passed trial of the run nearest to the median: percentile and nanoseconds, by ascending
    /// percentile.
    pub rtt_ns: Vec<(f64, u64)>,
    /// Their mean.
    pub rtt_mean_ns: Option<u64>,
    /// Path of the queries through DUT and authority; `None` without the built-in authority.
    pub path: Option<PathResult>,
    /// Datagrams lost at the Tester's own sockets, over all trials.
    pub tester_drops: u64,
    /// Largest resident memory of the DUT after a trial.
    pub memory_bytes_max: Option<u64>,
    /// Processor time of the DUT in the trials at the measured rates, in per cent of one core: the median.
    pub dut_cpu_pct: Option<f64>,
    /// Processor time of the authority for each query in these trials: the median.
    #[serde(skip)]
    pub authority_cpu_ns: Option<f64>,
    /// The failed trial with the lowest rate.
    #[serde(skip)]
    pub lost: Option<LostOverTime>,
}

/// When a trial lost queries.
#[derive(Clone, Debug)]
pub struct LostOverTime {
    /// Rate of the trial.
    pub rate_qps: u64,
    /// Seconds since its start, and the share of the queries lost since the moment before, in per cent.
    pub lost_pct: Vec<(f64, f64)>,
}

impl PointResult {
    /// The median of the runs, if any found a rate.
    pub fn median(&self) -> Option<f64> {
        Some(self.summary.as_ref()?.median)
    }

    /// The rates that its runs found.
    pub fn rates_qps(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().filter_map(|run| run.rate_qps)
    }

    /// The trials of its runs.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.runs.iter().flat_map(|run| &run.trials)
    }

    /// Why it has no rate.
    pub fn why_no_rate(&self) -> &'static str {
        match self.runs.iter().all(|run| run.ended == RunEnd::Unfinished) {
            true => "no search has ended yet",
            false => "no rate was found",
        }
    }

    /// Whether no single rate represents the runs.
    pub fn is_unstable(&self) -> bool {
        self.agreement.is_some_and(|found| found.unstable)
    }

    /// Whether it has no AAAA and nothing cached.
    pub fn is_worst_case(&self) -> bool {
        self.planned.cell.is_worst_case()
    }

    /// Whether it repeats only the papers' single name, with the duration and timeout of the plan.
    pub fn is_of_the_papers(&self) -> bool {
        self.planned.is_usual && self.planned.cell.pattern == Pattern::OneName
    }
}

/// One search.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RunResult {
    /// Its number, from 1.
    pub run: u32,
    /// How it ended.
    pub ended: RunEnd,
    /// Why it has no rate, in words.
    pub why: Option<String>,
    /// Highest rate that passed.
    pub rate_qps: Option<u64>,
    /// Whether the Tester was certified for it, by the lowest certificate of all runs of the point; `None` without a
    /// rate, and for an authority.
    pub certified: Option<bool>,
    /// Lowest rate above it that failed.
    pub failed_qps: Option<u64>,
    /// Duration.
    pub took_s: f64,
    /// Its trials, in order.
    pub trials: Vec<Step>,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// Between a passing and a failing rate.
    Found,
    /// At the certified rate of the Tester.
    LimitedByTester,
    /// At the highest rate of the plan.
    LimitedByRequest,
    /// The DUT fails even at the lowest rate.
    NothingPasses,
    /// The Tester was disturbed too often: a rate that passed before is a lower bound, which counts if no run of the
    /// point found a rate.
    TesterFault,
    /// Abandoned.
    Abandoned,
    /// Not begun, in progress or interrupted.
    Unfinished,
}

impl RunEnd {
    /// Whether the true rate may be higher than the one that was found, but not lower.
    pub fn is_lower_bound(self) -> bool {
        matches!(
            self,
            Self::LimitedByTester | Self::LimitedByRequest | Self::TesterFault
        )
    }
}

/// One trial of a search.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Step {
    /// Offered rate.
    pub rate_qps: u64,
    /// Whether the Tester was certified for it; `None` if unknown or not required.
    pub certified: Option<bool>,
    /// Its verdict; in JSON "passed", "failed" or "invalid".
    #[serde(serialize_with = "outcome")]
    #[schemars(with = "String")]
    pub outcome: Outcome,
    /// Queries without a valid response in time.
    pub shortfall: u64,
    /// The failure in words; empty if there is none.
    pub why: String,
}

fn outcome<S: Serializer>(outcome: &Outcome, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(outcome.word())
}

/// Figures observed at the authority, averaged over trials that passed.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct Achieved {
    /// Share of the queried names with an AAAA, in per cent.
    pub aaaa_pct: Option<f64>,
    /// Share of the client's queries that caused no query to the authority, in per cent.
    pub cached_pct: f64,
    /// Queries at the authority for each query of the client: 2 in the worst case.
    pub amplification: f64,
}

/// Sustainable rate of a DUT that passes trials above it by storing queries.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct Stored {
    /// Runs whose trial shows it.
    pub runs: usize,
    /// Growth of the response delay in those trials, in nanoseconds per second: the median.
    pub slope_ns_per_s: f64,
    /// Queries that the DUT served per second in those trials: the median.
    pub sustainable_qps: f64,
}

/// Path of the queries through DUT and authority.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct PathResult {
    /// Fresh names with a valid response, by the queries at the authority for them, over all valid trials.
    pub answered: AnsweredNames,
    /// Queries at the authority for each fresh name, in the trial of `rtt_ns`.
    pub questions_per_name: Option<f64>,
    /// Round-trip times of that trial without those of the authority, in the form of `rtt_ns`.
    pub dut_only_ns: Vec<(f64, u64)>,
    /// Response times of the authority in that trial.
    pub authority: AuthorityTimes,
}

/// The modelled quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelOf {
    /// The work for a query, whose reciprocal is the rate (equations 7 and 8, and 6 accordingly).
    Work,
    /// The mean reply time at one low rate (equations 4, 5 and 6).
    ReplyTime,
}

/// A model of Lencse et al. 2017, fitted to the medians of one variant.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ModelResult {
    /// Index into [`Analysis::variants`].
    pub variant: usize,
    /// The modelled quantity.
    pub of: ModelOf,
    /// The lowest rate that all cells passed, at which reply times were measured; `None` for work.
    pub rate_qps: Option<u64>,
    /// "AAAA share" (equations 7 and 4), "cached share" (8 and 5) or "both shares" (6).
    pub model: &'static str,
    /// The equation with its fitted values.
    pub equation: String,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// Why it does not hold: the rate of the reply times is not low, there are too few cells to judge it, it explains
    /// nothing, or a time would be negative.
    pub refused: Option<String>,
    /// The cells of the fit.
    pub fitted: Vec<FittedRow>,
    /// Largest difference between model and median, in per cent of the median.
    pub residual_pct_max: f64,
    /// Coefficient of determination of the fit to 1/rate; `None` if there are too few cells to judge it.
    pub r_squared: Option<f64>,
}

/// A parameter of a model.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its value, in the unit below.
    pub value: f64,
    /// Unit.
    pub unit: &'static str,
}

/// A cell of the fit of a model.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct FittedRow {
    /// Share in per cent; with both shares the one of names with an AAAA.
    pub share_pct: f64,
    /// Median rate, in queries per second; for reply times the mean, in microseconds.
    pub median: f64,
    /// Value of the model in the same unit.
    pub modelled: f64,
    /// The other share, in per cent: with both shares the cached one, else 0.
    pub other_pct: f64,
}

/// Whether the calculated rates of several durations and timeouts agree.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct QueueCheckResult {
    /// Index into [`Analysis::variants`].
    pub variant: usize,
    /// Measured durations and timeouts.
    pub rows: Vec<QueueCheckRow>,
    /// Dispersion of the medians, in per cent.
    pub median_dispersion_pct: f64,
    /// Dispersion of the calculated rates, in per cent.
    pub calculated_dispersion_pct: f64,
    /// Whether the DUT stores queries and uses the whole timeout: the calculated rate is then the sustainable one.
    /// `None`: undecided.
    pub stores_requests: Option<bool>,
    /// The verdict in words.
    pub verdict: String,
}

/// One duration and timeout.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct QueueCheckRow {
    /// Length of a trial.
    pub duration_s: f64,
    /// Timeout.
    pub timeout_s: f64,
    /// Median rate, in queries per second.
    #[serde(rename = "median_qps")]
    pub median: f64,
    /// See [`Summary::calculated`].
    #[serde(rename = "calculated_qps")]
    pub calculated: f64,
    /// See [`PointResult::certified`]; omitted in JSON, which has it at the point.
    #[serde(skip)]
    pub certified: Option<bool>,
}

/// A process of the campaign.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Session {
    /// Start time: RFC 3339, UTC.
    pub began: String,
    /// How it ended: "complete", the reason of a stop, or "without a stop record" after a crash.
    pub ended: String,
    /// Octets of an incomplete line that it found.
    pub torn_bytes: u64,
    /// Its machine.
    pub environment: Environment,
}
