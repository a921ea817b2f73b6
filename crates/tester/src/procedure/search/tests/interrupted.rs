//! Searches that the user interrupts, in a trial and between two, or whose names are used up.

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

/// Has as many trials as the number; then its next trial is this fault.
struct Stopped(u32, TesterFault);

impl Trials for Stopped {
    type Error = TesterFault;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, TesterFault> {
        self.0 = self.0.checked_sub(1).ok_or(self.1.clone())?;
        Ok(result(rate_qps, threshold(1500, rate_qps)))
    }

    fn end(error: &TesterFault) -> Option<TesterFault> {
        Some(error.clone())
    }
}

#[test]
fn search_interrupted_between_trials_keeps_the_trials_before() {
    let spec = SearchSpec::from_start(1000);
    let mut trials = Stopped(2, TesterFault::Interrupted);
    let result = run(Search::new(spec), &mut trials, &mut |_| {}).unwrap();
    assert!(result.end.is_interrupted());
    assert_eq!(asked(&result), [1000, 2000]);
    assert_eq!(
        (result.rate_qps, result.failed_qps),
        (Some(1000), Some(2000))
    );
}

#[test]
fn search_without_further_names_has_what_passed_as_a_lower_bound() {
    let used_up = TesterFault::TooFewNames { left: 1, needed: 2 };
    let search = |trials| {
        let spec = SearchSpec::from_start(500);
        run(
            Search::new(spec),
            &mut Stopped(trials, used_up.clone()),
            &mut |_| {},
        )
    };
    let result = search(2).unwrap();
    assert_eq!(
        result.end,
        SearchEnd::TesterFault {
            fault: used_up.clone()
        }
    );
    assert!(result.is_lower_bound());
    assert_eq!((result.rate_qps, result.failed_qps), (Some(1000), None));
    // Without a result the error has the remedy.
    assert!(search(0).is_err());
}
