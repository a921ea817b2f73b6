//! Searches that the user interrupts, in a trial and between two.

use super::*;
use crate::procedure::simulated::result;

#[test]
fn interrupted_search_has_the_trials_and_bounds_until_then() {
    let mut outcomes = vec![
        Outcome::Invalid(TesterFault::Interrupted),
        Outcome::Failed { shortfall: 1 },
        Outcome::Passed,
    ];
    let result = found(SearchSpec::from_start(1000), |_| outcomes.pop().unwrap());
    assert!(result.end.is_interrupted() && result.is_lower_bound());
    assert_eq!(asked(&result), [1000, 2000, 1500]);
    assert_eq!(
        (result.rate_qps, result.failed_qps),
        (Some(1000), Some(2000))
    );
}

/// Is interrupted before its third trial.
struct Stopped(u32);

impl Trials for Stopped {
    type Error = ();

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, ()> {
        self.0 += 1;
        match self.0 {
            1 | 2 => Ok(result(rate_qps, threshold(1500, rate_qps))),
            _ => Err(()),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.0 == 3
    }
}

#[test]
fn search_interrupted_between_trials_keeps_the_trials_before() {
    let spec = SearchSpec::from_start(1000);
    let result = run(Search::new(spec), &mut Stopped(0), &mut |_| {}).unwrap();
    assert!(result.end.is_interrupted());
    assert_eq!(asked(&result), [1000, 2000]);
    assert_eq!(
        (result.rate_qps, result.failed_qps),
        (Some(1000), Some(2000))
    );
}
