//! Results as JSON: one object for a trial, a search or a self-test.
//!
//! Counts are integers, spans are numbers in the unit that their key names last. What is not known
//! is `null`, never an invented number: round-trip times when nothing was answered, say.

use std::io::{self, Write};

use dns64_transport::clock::Nanos;
use serde::Serialize;

use super::Conditions;
use crate::authority::counts::AuthorityCounts;
use crate::procedure::search::{SearchEnd, SearchResult};
use crate::procedure::selftest::{
    DELTA, SelfTestEnd, SelfTestResult, literal_self_test_rate, self_test_rate, self_test_timeout,
};
use crate::trial::achieved::Achieved;
use crate::trial::result::{Answers, Outcome, Rtt, Timing, TrialResult};

/// Writes one trial as a JSON object.
///
/// # Errors
///
/// What the writer gives.
pub fn trial(
    out: &mut impl Write,
    result: &TrialResult,
    conditions: &Conditions,
) -> io::Result<()> {
    write(
        out,
        &TrialReport {
            trial: Trial::new(result, Some(conditions)),
            not_a_measurement: conditions.watermarks(result.rate_qps),
            conditions,
        },
    )
}

/// Writes a search as a JSON object.
///
/// # Errors
///
/// What the writer gives.
pub fn search(
    out: &mut impl Write,
    result: &SearchResult,
    conditions: &Conditions,
) -> io::Result<()> {
    let (ended, invalid_because) = match &result.end {
        SearchEnd::Found => ("found", None),
        SearchEnd::LimitedByTester { .. } => ("limited_by_tester", None),
        SearchEnd::LimitedByRequest { .. } => ("limited_by_request", None),
        SearchEnd::NothingPasses => ("nothing_passes", None),
        SearchEnd::TesterFault(fault) => ("tester_fault", Some(fault.to_string())),
    };
    let judged_qps = super::judged_qps(result);
    write(
        out,
        &SearchReport {
            ended,
            invalid_because,
            rate_qps: result.rate_qps,
            failed_qps: result.failed_qps,
            resolution_qps: result.resolution_qps,
            certified: conditions.certifies(judged_qps),
            certified_rate_qps: conditions.certified_rate_qps,
            not_a_measurement: conditions.watermarks(judged_qps),
            trials: result
                .trials
                .iter()
                .map(|trial| Trial::new(trial, Some(conditions)))
                .collect(),
            conditions,
        },
    )
}

/// Writes a self-test for a DUT with `timeout_ns` as a JSON object.
///
/// # Errors
///
/// What the writer gives.
pub fn self_test(
    out: &mut impl Write,
    result: &SelfTestResult,
    timeout_ns: Nanos,
    conditions: &Conditions,
) -> io::Result<()> {
    let (outcome, shortfall, invalid_because) = match &result.end {
        SelfTestEnd::Certified => ("passed", 0, None),
        SelfTestEnd::Failed { shortfall } => ("failed", *shortfall, None),
        SelfTestEnd::TesterFault(fault) => ("invalid", 0, Some(fault.to_string())),
    };
    let rate_qps = result.wanted_rate_qps.or(result.certified_rate_qps);
    write(
        out,
        &SelfTestReport {
            outcome,
            invalid_because,
            shortfall,
            rate_qps,
            self_test_rate_qps: result.passed_rate_qps.or(rate_qps.map(self_test_rate)),
            literal_self_test_rate_qps: rate_qps.map(literal_self_test_rate),
            certified_rate_qps: result.certified_rate_qps,
            delta: DELTA,
            timeout_s: seconds(timeout_ns),
            self_test_timeout_s: seconds(self_test_timeout(timeout_ns)),
            not_a_measurement: &conditions.not_a_measurement,
            trials: result.trials.iter().map(|t| Trial::new(t, None)).collect(),
            conditions,
        },
    )
}

#[derive(Serialize)]
struct TrialReport<'a> {
    #[serde(flatten)]
    trial: Trial<'a>,
    not_a_measurement: Vec<String>,
    conditions: &'a Conditions,
}

#[derive(Serialize)]
struct SearchReport<'a> {
    ended: &'static str,
    invalid_because: Option<String>,
    rate_qps: Option<u64>,
    failed_qps: Option<u64>,
    resolution_qps: u64,
    certified: bool,
    certified_rate_qps: Option<u64>,
    not_a_measurement: Vec<String>,
    trials: Vec<Trial<'a>>,
    conditions: &'a Conditions,
}

#[derive(Serialize)]
struct SelfTestReport<'a> {
    outcome: &'static str,
    invalid_because: Option<String>,
    shortfall: u64,
    rate_qps: Option<u64>,
    self_test_rate_qps: Option<u64>,
    literal_self_test_rate_qps: Option<u64>,
    certified_rate_qps: Option<u64>,
    delta: f64,
    timeout_s: f64,
    self_test_timeout_s: f64,
    not_a_measurement: &'a [String],
    trials: Vec<Trial<'a>>,
    conditions: &'a Conditions,
}

#[derive(Serialize)]
struct Trial<'a> {
    outcome: &'static str,
    invalid_because: Option<String>,
    shortfall: u64,
    /// `None` in a self-test, which is what certifies.
    #[serde(skip_serializing_if = "Option::is_none")]
    certified: Option<bool>,
    rate_qps: u64,
    duration_s: f64,
    timeout_s: f64,
    queries_due: u64,
    queries_sent: u64,
    undecided: u64,
    ended_early: bool,
    answers: Answers,
    rtt_ns: RttNanos,
    timing: TimingNumbers,
    tester_drops: u64,
    authority: Option<AuthorityCounts>,
    /// Never of a self-test, in which no DUT asks.
    achieved: Option<Achieved>,
    dut_memory_bytes: Option<u64>,
    backend: &'a str,
    notes: &'a [String],
}

impl<'a> Trial<'a> {
    fn new(result: &'a TrialResult, certifying: Option<&Conditions>) -> Self {
        let (outcome, shortfall, invalid_because) = match &result.outcome {
            Outcome::Passed => ("passed", 0, None),
            Outcome::Failed { shortfall } => ("failed", *shortfall, None),
            Outcome::Invalid(fault) => ("invalid", 0, Some(fault.to_string())),
        };
        Self {
            outcome,
            invalid_because,
            shortfall,
            certified: certifying.map(|conditions| conditions.certifies(result.rate_qps)),
            rate_qps: result.rate_qps,
            duration_s: seconds(result.duration_ns),
            timeout_s: seconds(result.timeout_ns),
            queries_due: result.queries_due,
            queries_sent: result.queries_sent,
            undecided: result.undecided,
            ended_early: result.ended_early,
            answers: result.answers,
            rtt_ns: RttNanos::new(result),
            timing: TimingNumbers::new(&result.timing),
            tester_drops: result.tester_drops,
            authority: result.authority,
            achieved: certifying.and_then(|_| Achieved::of(result)),
            dut_memory_bytes: result.dut_memory_bytes,
            backend: &result.backend,
            notes: &result.notes,
        }
    }
}

/// Round-trip times; all `null` when nothing was answered.
#[derive(Serialize)]
struct RttNanos {
    p50: Option<Nanos>,
    p99: Option<Nanos>,
    p999: Option<Nanos>,
    max: Option<Nanos>,
}

impl RttNanos {
    fn new(result: &TrialResult) -> Self {
        let Rtt {
            p50,
            p99,
            p999,
            max,
        } = result.rtt;
        let known = |ns| (super::answered(&result.answers) > 0).then_some(ns);
        Self {
            p50: known(p50),
            p99: known(p99),
            p999: known(p999),
            max: known(max),
        }
    }
}

#[derive(Serialize)]
struct TimingNumbers {
    lateness_ns_p50: Nanos,
    lateness_ns_p99: Nanos,
    lateness_ns_p999: Nanos,
    lateness_ns_max: Nanos,
    bin_10ms_deviation_pct_max: Option<f64>,
    bin_100ms_deviation_pct_max: Option<f64>,
    quantum_ns: Nanos,
    burst: u64,
}

impl TimingNumbers {
    fn new(timing: &Timing) -> Self {
        // JSON has no infinity and no NaN.
        let finite = |pct: f64| pct.is_finite().then_some(pct);
        Self {
            lateness_ns_p50: timing.lateness_ns_p50,
            lateness_ns_p99: timing.lateness_ns_p99,
            lateness_ns_p999: timing.lateness_ns_p999,
            lateness_ns_max: timing.lateness_ns_max,
            bin_10ms_deviation_pct_max: finite(timing.bin_10ms_deviation_pct_max),
            bin_100ms_deviation_pct_max: finite(timing.bin_100ms_deviation_pct_max),
            quantum_ns: timing.quantum_ns,
            burst: timing.burst,
        }
    }
}

fn write(out: &mut impl Write, report: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days, a trial is shorter"
)]
fn seconds(span_ns: Nanos) -> f64 {
    span_ns as f64 / 1e9
}
