//! Results as JSON: one object for a trial, a search or a self-test.
//!
//! Counts are integers; durations are numbers in the unit at the end of their key. Unknown values are `null`, never an
//! invented number: for example round-trip times without any response.

use dns64_transport::clock::Nanos;
use serde::Serialize;

use super::Conditions;
use super::numbers::seconds;
use crate::procedure::capacity::Capacity;
use crate::procedure::certificate::SelfTests;
use crate::procedure::search::{GoalResult, SearchEnd, SearchResult};
use crate::procedure::selftest::{
    DELTA, SelfTestResult, literal_self_test_rate, self_test_rate, self_test_timeout,
};
use crate::trial::result::{Outcome, TrialResult};
use crate::trial::service::Service;

/// The object of one trial.
pub fn trial(result: &TrialResult, conditions: &Conditions) -> impl Serialize {
    Report {
        result,
        not_a_measurement: conditions.watermarks(result.rate_qps),
        conditions,
    }
}

/// The object of a search.
pub fn search(result: &SearchResult, conditions: &Conditions) -> impl Serialize {
    let judged_qps = super::judged_qps(result);
    let search = Search {
        end: &result.end,
        invalid_because: match &result.end {
            SearchEnd::TesterFault { fault } => Some(fault.to_string()),
            _ => None,
        },
        rate_qps: result.rate_qps,
        lower_bound: result.is_lower_bound(),
        failed_qps: result.failed_qps,
        goals: &result.goals,
        resolution_qps: result.resolution_qps,
        certified: conditions.certifies(judged_qps),
        certified_rate_qps: conditions.certified_rate_qps,
        calculated_qps: super::calculated_qps(result),
        capacity: Capacity::of(result),
        service: super::passed(result).and_then(|trial| trial.service),
        trials: &result.trials,
    };
    Report {
        result: search,
        not_a_measurement: conditions.watermarks(judged_qps),
        conditions,
    }
}

/// The object of the self-tests for a DUT with `timeout_ns`.
pub fn self_test(result: &SelfTests, timeout_ns: Nanos, conditions: &Conditions) -> impl Serialize {
    let certified_rate_qps = result.certificate().map(|certificate| certificate.rate_qps);
    let rate_qps = result.wanted_rate_qps().or(certified_rate_qps);
    let each = |test: &SelfTestResult| EachSelfTest {
        end: test.end.clone(),
        passed_rate_qps: test.passed_rate_qps,
        certified_rate_qps: test.certified_rate_qps,
        trials: test.trials.len(),
    };
    let self_test = SelfTest {
        end: result.end().clone(),
        rate_qps,
        self_test_rate_qps: result.passed_rate_qps().or(rate_qps.map(self_test_rate)),
        literal_self_test_rate_qps: rate_qps.map(literal_self_test_rate),
        certified_rate_qps,
        delta: DELTA,
        timeout_s: seconds(timeout_ns),
        self_test_timeout_s: seconds(self_test_timeout(timeout_ns)),
        self_tests: result.all.iter().map(each).collect(),
        trials: result.trials(),
    };
    Report {
        result: self_test,
        not_a_measurement: conditions.not_a_measurement.clone(),
        conditions,
    }
}

/// The text of an object, with its line end.
///
/// # Errors
///
/// An object without a JSON form, such as a map with keys that are not strings.
pub fn text(object: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(object)? + "\n")
}

/// The word of a value in JSON.
pub(super) fn word(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// A result with the fields that all reports share.
#[derive(Serialize)]
struct Report<'a, R> {
    #[serde(flatten)]
    result: R,
    not_a_measurement: Vec<String>,
    conditions: &'a Conditions,
}

#[derive(Serialize)]
struct Search<'a> {
    #[serde(flatten)]
    end: &'a SearchEnd,
    invalid_because: Option<String>,
    rate_qps: Option<u64>,
    /// Whether the rate passed and the search ended before a higher one could fail within the resolution.
    lower_bound: bool,
    failed_qps: Option<u64>,
    /// Results of goals after RFC 9971, without any other rate of this object.
    #[serde(skip_serializing_if = "<[GoalResult]>::is_empty")]
    goals: &'a [GoalResult],
    resolution_qps: u64,
    certified: bool,
    certified_rate_qps: Option<u64>,
    /// Sustainable rate of a DUT that stores queries until their timeout: Lencse et al. 2017, equation (1).
    calculated_qps: Option<f64>,
    /// Queries that the DUT holds open, behind an authority that delays its answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<Capacity>,
    /// Service of the trial at the measured rate.
    service: Option<Service>,
    trials: &'a [TrialResult],
}

#[derive(Serialize)]
struct SelfTest {
    #[serde(flatten)]
    end: Outcome,
    rate_qps: Option<u64>,
    self_test_rate_qps: Option<u64>,
    literal_self_test_rate_qps: Option<u64>,
    certified_rate_qps: Option<u64>,
    delta: f64,
    timeout_s: f64,
    self_test_timeout_s: f64,
    self_tests: Vec<EachSelfTest>,
    trials: Vec<TrialResult>,
}

/// One of several self-tests; its trials are a part of the common list.
#[derive(Serialize)]
struct EachSelfTest {
    #[serde(flatten)]
    end: Outcome,
    passed_rate_qps: Option<u64>,
    certified_rate_qps: Option<u64>,
    trials: usize,
}
