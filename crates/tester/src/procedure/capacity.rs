//! The capacity of a DUT behind an authority that delays its answers: how many queries it holds open, and what becomes of more (after
//! RFC 9693, which measures the capacity of stateful devices beside their rate).

use dns64_transport::clock::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

use super::search::SearchResult;
use crate::trial::result::{Outcome, TrialResult};

/// What a search found about the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Capacity {
    /// Queries open at once in the DUT at the rate that passed: rate x mean time until the answer (Little's law).
    pub open: u64,
    /// Those of them that waited for the authority, by its own count: delayed replies x its median time / duration.
    pub open_at_authority: Option<u64>,
    /// What became of the queries of the failed trial next to the result.
    pub beyond: Option<Beyond>,
}

/// The queries of a trial beyond the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Beyond {
    /// Its rate.
    pub rate_qps: u64,
    /// Answered in time.
    pub valid: u64,
    /// Answered after the timeout.
    pub late: u64,
    /// Answered by an error, such as SERVFAIL or REFUSED.
    pub error: u64,
    /// Without any response.
    pub silent: u64,
    /// Answered otherwise: without an AAAA record, truncated, or wrong.
    pub other: u64,
}

impl Capacity {
    /// Returns the capacity, if a rate passed behind an authority that delays its answers.
    pub fn of(found: &SearchResult) -> Option<Self> {
        let at = |rate_qps: Option<u64>, passed: bool| {
            let mut trials = found.trials.iter();
            trials.rfind(|it| {
                Some(it.rate_qps) == rate_qps
                    && (it.outcome == Outcome::Passed) == passed
                    && it.outcome.is_valid()
            })
        };
        let passed = at(found.rate_qps, true)?;
        delayed(passed)?;
        Some(Self {
            open: open(passed.rate_qps, 1_000_000_000, passed.rtt.mean?),
            open_at_authority: open_at_authority(passed),
            beyond: at(found.failed_qps, false).map(Beyond::of),
        })
    }
}

impl Beyond {
    fn of(trial: &TrialResult) -> Self {
        let answers = &trial.answers;
        Self {
            rate_qps: trial.rate_qps,
            valid: answers.valid,
            late: answers.late,
            error: answers.error,
            silent: answers.missing,
            other: answers.empty + answers.truncated + answers.wrong,
        }
    }
}

/// Replies that the authority delayed, if it did.
fn delayed(trial: &TrialResult) -> Option<u64> {
    let delayed = trial.authority.as_ref()?.misbehaviour?.delayed;
    (delayed > 0).then_some(delayed)
}

fn open_at_authority(trial: &TrialResult) -> Option<u64> {
    let time_ns = trial.path.as_ref()?.authority.p50_ns?;
    Some(open(delayed(trial)?, trial.duration_ns, time_ns))
}

/// Little's law: so many in this span, each for this time, are so many at once.
fn open(number: u64, span_ns: Nanos, each_ns: Nanos) -> u64 {
    let times = u128::from(number) * u128::from(each_ns) / u128::from(span_ns.max(1));
    u64::try_from(times).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::counts::{AuthorityCounts, FaultCounts};
    use crate::procedure::search::SearchEnd;
    use crate::procedure::simulated::result;
    use crate::trial::path::Path;

    fn behind_a_second(rate_qps: u64, outcome: Outcome) -> TrialResult {
        let mut trial = result(rate_qps, outcome);
        trial.rtt.mean = Some(2_100_000_000);
        trial.authority = Some(AuthorityCounts {
            misbehaviour: Some(FaultCounts {
                delayed: 2 * rate_qps,
                ..FaultCounts::default()
            }),
            ..AuthorityCounts::default()
        });
        let mut path = Path::default();
        path.authority.p50_ns = Some(1_000_000_000);
        trial.path = Some(path);
        trial
    }

    fn found(trials: Vec<TrialResult>) -> SearchResult {
        SearchResult {
            end: SearchEnd::Found,
            rate_qps: Some(4_000),
            failed_qps: Some(4_100),
            resolution_qps: 100,
            goals: Vec::new(),
            trials,
            certified_rate_qps: None,
        }
    }

    #[test]
    fn open_queries_are_rate_times_time_and_those_beyond_are_told() {
        let mut refused = behind_a_second(4_100, Outcome::Failed { shortfall: 100 });
        (
            refused.answers.valid,
            refused.answers.error,
            refused.answers.missing,
        ) = (4_000, 70, 30);
        let capacity = Capacity::of(&found(vec![
            behind_a_second(4_000, Outcome::Passed),
            refused,
        ]))
        .unwrap();
        // 4,000 a second for 2.1 s, of which two seconds are at the authority.
        assert_eq!(
            (capacity.open, capacity.open_at_authority),
            (8_400, Some(8_000))
        );
        let beyond = capacity.beyond.unwrap();
        assert_eq!(
            (beyond.rate_qps, beyond.valid, beyond.error, beyond.silent),
            (4_100, 4_000, 70, 30)
        );
    }

    #[test]
    fn without_a_delay_there_is_no_capacity() {
        assert_eq!(
            Capacity::of(&found(vec![result(4_000, Outcome::Passed)])),
            None
        );
    }
}
