//! Searches with dns64d on simulated time: their results without disturbances.

use std::convert::Infallible;

use dns64_transport::clock::SECOND;
use dns64_transport::memory::Impairment;
use dns64bench::procedure::Trials;
use dns64bench::procedure::search::{
    self, Resolution, Search, SearchEnd, SearchResult, SearchSpec,
};
use dns64bench::trial::result::{Outcome, TrialResult};

use crate::trial::MILLISECOND;
use crate::whole::{LOAD, Load, PLAIN, SETUP, Setup, Whole};

/// A dns64d that rests after each trial.
struct Rested(Whole);

impl Trials for Rested {
    type Error = Infallible;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, Infallible> {
        let result = self.0.trial(Load { rate_qps, ..LOAD }, &[]);
        self.0.rest(SECOND);
        Ok(result)
    }
}

fn search(setup: Setup, spec: SearchSpec) -> SearchResult {
    let mut dns64d = Rested(Whole::new(setup));
    let Ok(result) = search::run(Search::new(spec), &mut dns64d, &mut |_| ());
    result
}

#[test]
fn search_ends_at_requested_rate() {
    let spec = SearchSpec {
        max_qps: Some(2000),
        ..SearchSpec::from_start(500)
    };
    let result = search(SETUP, spec);
    assert_eq!(result.end, SearchEnd::LimitedByRequest { rate_qps: 2000 });
    assert_eq!((result.rate_qps, result.failed_qps), (Some(2000), None));
    let rates: Vec<_> = result.trials.iter().map(|trial| trial.rate_qps).collect();
    assert_eq!(rates, [500, 1000, 2000]);
    let passed = |trial: &TrialResult| trial.outcome == Outcome::Passed;
    assert!(result.trials.iter().all(passed));
}

#[test]
fn search_finds_rate_that_fills_table() {
    let slow = Impairment {
        delay_ns: 50 * MILLISECOND,
        ..PLAIN
    };
    // 100 places that a query occupies for 200 ms each: two round trips to the authority.
    let setup = Setup {
        queries_max: 100,
        relayed: slow,
        answers: slow,
        ..SETUP
    };
    let spec = SearchSpec {
        resolution: Resolution::Absolute { qps: 5 },
        ..SearchSpec::from_start(400)
    };
    let result = search(setup, spec);
    assert_eq!(result.end, SearchEnd::Found);
    let [rate, failed] = [result.rate_qps, result.failed_qps].map(Option::unwrap);
    assert!((490..=500).contains(&rate), "{rate}");
    assert!((rate + 1..=rate + 5).contains(&failed), "{failed}");
}
