//! Recomputes a self-test from its trials.

use std::slice::Iter;

use dns64_transport::clock::Nanos;

use super::{rate, trials, word};
use crate::campaign::plan::Plan;
use crate::campaign::record::SelfTest;
use crate::procedure::Trials;
use crate::procedure::selftest::self_test_timeout;
use crate::rig::certify::{Highest, Lengths, highest};
use crate::trial::result::TrialResult;

/// Returns the first contradiction in a self-test. It may have begun at any rate in `near_qps`, which earlier
/// self-tests have certified; one of them must fit.
pub(super) fn contradiction(plan: &Plan, test: &SelfTest, near_qps: &[u64]) -> Option<String> {
    let timeout_ns = self_test_timeout(test.conditions.timeout_ns);
    for (number, trial) in (1..).zip(&test.trials) {
        let asked = (trial.timeout_ns != timeout_ns || trial.certified.is_some())
            .then(|| "it is not one of a self-test with this timeout".to_owned());
        if let Some(what) = asked.or_else(|| trials::contradiction(trial)) {
            return Some(format!("trial {number} of the self-test: {what}"));
        }
    }
    let begins = near_qps.iter().map(|&rate| Some(rate)).chain([None]);
    let mut wrong = None;
    for near_qps in begins {
        wrong = done_again(plan, test, near_qps);
        if wrong.is_none() {
            break;
        }
    }
    wrong
}

/// Returns the contradiction if the self-test began at this rate.
fn done_again(plan: &Plan, test: &SelfTest, near_qps: Option<u64>) -> Option<String> {
    let mut recorded = Recorded {
        trials: test.trials.iter(),
        number: 0,
        duration_ns: 0,
    };
    let wanted = Highest::coarse(plan.search.method.max_qps());
    let whole_ns = test.conditions.duration_ns;
    let again = highest(wanted, near_qps, whole_ns, &mut recorded, &mut |_| {});
    let again = match again {
        Ok(again) => again,
        Err(what) => return Some(what),
    };
    let left = recorded.trials.count();
    if left > 0 {
        return Some(format!(
            "the self-test was over {left} trials before its last"
        ));
    }
    if test.end != again.end {
        let [is, due] = [&test.end, &again.end].map(|end| word(Some(end)));
        return Some(format!("the self-test ended {is}, and by its trials {due}"));
    }
    for (what, is, due) in [
        ("passed at", test.passed_rate_qps, again.passed_rate_qps),
        (
            "certifies",
            test.certified_rate_qps,
            again.certified_rate_qps,
        ),
    ] {
        if is != due {
            let (is, due) = (rate(is), rate(due));
            return Some(format!(
                "the self-test {what} {is}, and by its trials {due}"
            ));
        }
    }
    None
}

/// The recorded trials, in the order in which the procedure requested them.
struct Recorded<'a> {
    trials: Iter<'a, TrialResult>,
    number: u64,
    duration_ns: Nanos,
}

impl Trials for Recorded<'_> {
    type Error = String;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, String> {
        self.number += 1;
        let (number, due) = (self.number, rate(Some(rate_qps)));
        let Some(next) = self.trials.next() else {
            return Err(format!(
                "trial {number} of the self-test, at {due}, is missing"
            ));
        };
        if (next.rate_qps, next.duration_ns) != (rate_qps, self.duration_ns) {
            let (is, is_ns, due_ns) = (
                rate(Some(next.rate_qps)),
                next.duration_ns,
                self.duration_ns,
            );
            return Err(format!(
                "trial {number} of the self-test is at {is} for {is_ns} ns, and {due} for {due_ns} ns is due"
            ));
        }
        Ok(next.clone())
    }
}

impl Lengths for Recorded<'_> {
    fn set_length(&mut self, duration_ns: Nanos) {
        self.duration_ns = duration_ns;
    }
}
