//! Searches with goals after RFC 9971, on DUTs of known loss.

use std::convert::Infallible;

use dns64_transport::clock::Nanos;
use dns64_transport::random::{SplitMix64, below};
use proptest::prelude::*;

use super::super::super::goal::{Bound, Goal, Tried};
use super::super::super::simulated;
use super::super::*;
use super::stall;

/// A DUT that loses what a function of the rate and of the number of queries says.
struct Lossy<F> {
    lost: F,
    duration_ns: Nanos,
}

impl<F: FnMut(u64, u64) -> u64> Trials for Lossy<F> {
    type Error = Infallible;

    fn set_duration(&mut self, duration_ns: Nanos) {
        self.duration_ns = duration_ns;
    }

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, Infallible> {
        let queries = Schedule::new(rate_qps, self.duration_ns).queries();
        let outcome = match (self.lost)(rate_qps, queries) {
            0 => Outcome::Passed,
            u64::MAX => Outcome::Invalid(stall()),
            shortfall => Outcome::Failed { shortfall },
        };
        Ok(TrialResult {
            outcome,
            duration_ns: self.duration_ns,
            queries_due: queries,
            ..simulated::result(rate_qps, Outcome::Passed)
        })
    }
}

fn spec(start_qps: u64, goals: &[&str]) -> SearchSpec {
    SearchSpec {
        goals: goals.iter().map(|text| text.parse().unwrap()).collect(),
        max_qps: Some(10_000_000),
        lowest_qps: 10,
        ..SearchSpec::from_start(start_qps)
    }
}

fn found(spec: SearchSpec, lost: impl FnMut(u64, u64) -> u64) -> SearchResult {
    let duration_ns = 0;
    let mut dut = Lossy { lost, duration_ns };
    let Ok(result) = run(Search::new(spec), &mut dut, &mut |_| {});
    result
}

/// Queries that a DUT of this capacity loses.
fn beyond(capacity_qps: u64, rate_qps: u64, queries: u64) -> u64 {
    let excess = u128::from(rate_qps.saturating_sub(capacity_qps));
    let lost = (u128::from(queries) * excess).div_ceil(u128::from(rate_qps));
    u64::try_from(lost).unwrap()
}

fn trials_by_rate(result: &SearchResult, rate_qps: u64) -> Vec<Tried> {
    let valid = result.trials.iter().filter(|it| it.outcome.is_valid());
    let at_rate = valid.filter(|it| it.rate_qps == rate_qps);
    let tried = at_rate.map(|it| Tried {
        duration_ns: it.duration_ns,
        queries: it.queries_due,
        lost: it.outcome.shortfall(),
    });
    tried.collect()
}

/// Asserts that a regular result has the properties that RFC 9971 requires, by the trials of the search.
fn assert_regular(result: &SearchResult, of: &GoalResult) {
    let (lower, upper) = (of.lower_qps.unwrap(), of.upper_qps.unwrap());
    assert!(lower < upper && upper - lower <= of.goal.width.qps(lower));
    let bound = |rate_qps| of.goal.bound(&trials_by_rate(result, rate_qps));
    assert_eq!(
        (bound(lower), bound(upper)),
        (Some(Bound::Lower), Some(Bound::Upper))
    );
    let below = result
        .trials
        .iter()
        .map(|it| it.rate_qps)
        .filter(|&it| it < upper);
    for rate_qps in below {
        let bound = bound(rate_qps);
        assert_ne!(bound, Some(Bound::Upper), "{rate_qps}");
        assert!(bound != Some(Bound::Lower) || rate_qps <= lower);
    }
    let throughput = of
        .goal
        .throughput_qps(lower, &trials_by_rate(result, lower));
    assert_eq!(of.throughput_qps, Some(throughput));
}

proptest! {
    #[test]
    fn goals_find_the_rates_of_a_known_capacity(
        capacity in 100_u64..2_000_000,
        start in 10_u64..4_000_000,
        initial in prop::sample::select(&["1s", "5s"][..]),
    ) {
        let long = format!("loss=0%,exceed=0%,initial={initial},trial=5s,sum=5s,width=0.1%");
        let goals = ["ndr", "pdr", &long];
        let result = found(spec(start, &goals), |rate, queries| beyond(capacity, rate, queries));
        prop_assert_eq!(&result.end, &SearchEnd::Found);
        for of in &result.goals {
            assert_regular(&result, of);
            let loss = of.goal.loss.below(1_000_000);
            let highest = u128::from(capacity) * 1_000_000 / u128::from(1_000_000 - loss);
            let highest = u64::try_from(highest).unwrap();
            prop_assert!(of.lower_qps.unwrap() <= highest, "{highest} {of:?}");
            prop_assert!(highest < of.upper_qps.unwrap(), "{highest} {of:?}");
            prop_assert!(of.throughput_qps.unwrap() <= capacity);
        }
    }

    #[test]
    fn search_ends_whatever_trials_lose(
        seed: u64,
        start in 10_u64..4_000_000,
        losing in 0_u64..=100,
        goals in prop::sample::subsequence(
            vec!["ndr", "pdr", "rfc2544", "loss=2%,exceed=75%,initial=1s,trial=4s,sum=8s"], 1..=4),
    ) {
        let mut random = SplitMix64(seed);
        let lost = |_, queries: u64| match below(random.draw(), 100) < losing {
            true => 1 + below(random.draw(), queries / 20 + 1),
            false => 0,
        };
        let result = found(spec(start, &goals), lost);
        prop_assert!(result.trials.len() < 5_000, "{}", result.trials.len());
        for of in &result.goals {
            match of.end.as_ref().unwrap() {
                SearchEnd::Found => assert_regular(&result, of),
                SearchEnd::NothingPasses => prop_assert_eq!(of.upper_qps, Some(10)),
                _ => prop_assert_eq!(of.lower_qps, Some(10_000_000)),
            }
        }
    }
}

/// Number of trials of a search of a noisy DUT of 100,000 queries per second, one trial in five of which loses a few queries, and its
/// results.
fn noisy(goals: &[&str]) -> (usize, Vec<GoalResult>) {
    let mut random = SplitMix64(1);
    let result = found(spec(10_000, goals), |rate, queries| {
        let noise = u64::from(below(random.draw(), 5) == 0);
        beyond(100_000, rate, queries).max(3 * noise)
    });
    (result.trials.len(), result.goals)
}

#[test]
fn noise_below_the_exceed_ratio_does_not_lower_the_rate() {
    let (_, goals) = noisy(&["ndr"]);
    let lower = goals[0].lower_qps.unwrap();
    assert!((99_000..=100_000).contains(&lower), "{lower}");
    let (_, strict) = noisy(&["loss=0%,exceed=0%,trial=1s,sum=20s"]);
    assert!(
        strict[0].lower_qps.is_none_or(|qps| qps < 99_000),
        "{strict:?}"
    );
}

#[test]
fn goals_share_their_trials() {
    let [both, ndr, pdr] = [&["ndr", "pdr"][..], &["ndr"], &["pdr"]].map(|goals| noisy(goals).0);
    assert!(both < ndr + pdr, "{both} {ndr} {pdr}");
}

#[test]
fn goal_without_both_bounds_is_irregular() {
    let spec = SearchSpec {
        max_qps: Some(50_000),
        ..spec(1_000, &["ndr", "pdr"])
    };
    let result = found(spec.clone(), |_, _| 0);
    assert_eq!(result.end, SearchEnd::LimitedByRequest { rate_qps: 50_000 });
    for of in &result.goals {
        assert_eq!((of.lower_qps, of.upper_qps), (Some(50_000), None));
        assert_eq!(of.throughput_qps, Some(50_000));
    }
    let result = found(spec, |_, queries| queries);
    assert_eq!(result.end, SearchEnd::NothingPasses);
    assert_eq!(
        (result.goals[0].lower_qps, result.goals[0].upper_qps),
        (None, Some(10))
    );
}

#[test]
fn invalid_trials_are_repeated_and_count_for_no_goal() {
    let mut number = 0;
    let goals: [&str; 1] = ["ndr"];
    let result = found(spec(1_000, &goals), |rate, queries| {
        number += 1;
        match number % 3 {
            0 => u64::MAX,
            _ => beyond(20_000, rate, queries),
        }
    });
    assert_eq!(result.end, SearchEnd::Found);
    assert_regular(&result, &result.goals[0]);
    let result = found(spec(1_000, &goals), |_, _| u64::MAX);
    assert_eq!(result.end, SearchEnd::TesterFault { fault: stall() });
    assert_eq!(result.trials.len() as u64, u64::from(INVALID_REPEATS) + 1);
    assert_eq!(result.goals[0].end, None);
}

#[test]
fn goals_of_a_search_are_in_its_json() {
    let spec = spec(1_000, &["ndr", "rfc2544"]);
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<SearchSpec>(&text).unwrap(), spec);
    let result = found(spec, |rate, queries| beyond(20_000, rate, queries));
    let text = serde_json::to_string(&result.goals).unwrap();
    assert_eq!(
        serde_json::from_str::<Vec<GoalResult>>(&text).unwrap(),
        result.goals
    );
    let goals: Vec<Goal> = result.goals.iter().map(|it| it.goal).collect();
    assert_eq!(goals[1], "rfc2544".parse().unwrap());
}
