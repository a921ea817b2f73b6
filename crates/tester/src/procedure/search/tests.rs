mod goals;
mod interrupted;
mod low_load;

use proptest::prelude::*;

use super::super::simulated::{Simulated, threshold};
use super::*;

fn found(spec: SearchSpec, dut: impl FnMut(u64) -> Outcome) -> SearchResult {
    let Ok(result) = run(Search::new(spec), &mut Simulated(dut), &mut |_| {});
    result
}

fn stall() -> TesterFault {
    TesterFault::LateSchedule {
        cause: None,
        lateness_ns: 3_000_000,
        limit_ns: 2_500_000,
    }
}

fn resolution() -> impl Strategy<Value = Resolution> {
    prop_oneof![
        (1u32..200_000).prop_map(|millionths| Resolution::Relative { millionths }),
        (1u64..5_000).prop_map(|qps| Resolution::Absolute { qps }),
    ]
}

fn spec() -> impl Strategy<Value = SearchSpec> {
    let step = proptest::option::of(0u64..100_000);
    (1u64..5_000_000, resolution(), step).prop_map(|(start_qps, resolution, first_step_qps)| {
        SearchSpec {
            resolution,
            first_step_qps,
            ..SearchSpec::from_start(start_qps)
        }
    })
}

fn fixed_range(max_qps: u64, resolution: Resolution) -> SearchSpec {
    SearchSpec {
        resolution,
        fixed_range_qps: Some(max_qps),
        ..SearchSpec::from_start(1)
    }
}

fn asked(result: &SearchResult) -> Vec<u64> {
    result.trials.iter().map(|t| t.rate_qps).collect()
}

/// Returns the rates of the script in figure 3 of Lencse and Bakai 2017, and the final value of its variable l.
fn of_the_script(max: u64, e: u64, limit_qps: u64) -> (Vec<u64>, u64) {
    let (mut l, mut h, mut rates) = (0, max, Vec::new());
    while h - l > e {
        let f = (h + l) / 2;
        rates.push(f);
        if f <= limit_qps {
            l = f;
        } else {
            h = f;
        }
    }
    (rates, l)
}

/// Returns the number of galloping steps between start and threshold, plus the halvings of the widest possible bracket.
fn most_trials(spec: &SearchSpec, limit_qps: u64) -> u32 {
    let (high, low) = (spec.start_qps.max(limit_qps), spec.start_qps.min(limit_qps));
    let halvings = (high / low.max(1)).max(1).ilog2();
    let (galloping, widest) = match spec.first_step_qps {
        None => (halvings, limit_qps.max(1) * 2),
        // Downward steps are at most half of the rate.
        Some(step) => (
            ((high - low) / step.max(1) + 1).ilog2() + halvings,
            limit_qps.max(1) * 2 + step * 2,
        ),
    };
    let widest = Bracket {
        passed_qps: Some(0),
        failed_qps: Some(widest),
        resolution_qps: spec.resolution.qps(limit_qps / 2),
    };
    galloping + 3 + widest.trials_left().unwrap_or(0)
}

proptest! {
    #[test]
    fn true_rate_of_monotone_dut_is_bracketed(
        spec in spec(),
        limit in 0u64..3_000_000,
    ) {
        let result = found(spec.clone(), |rate| threshold(limit, rate));
        let mut asked: Vec<u64> = result.trials.iter().map(|t| t.rate_qps).collect();
        prop_assert!(asked.len() as u64 <= u64::from(most_trials(&spec, limit)));
        asked.sort_unstable();
        asked.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1], "same rate twice"));
        if limit == 0 {
            prop_assert_eq!(result.end, SearchEnd::NothingPasses);
            prop_assert_eq!(result.rate_qps, None);
            return Ok(());
        }
        let passed = result.rate_qps.unwrap();
        let failed = result.failed_qps.unwrap();
        prop_assert_eq!(result.end, SearchEnd::Found);
        prop_assert!(passed <= limit && limit < failed);
        prop_assert!(failed - passed <= spec.resolution.qps(passed));
    }

    #[test]
    fn near_start_saves_trials(
        start_qps in 1_000u64..1_000_000,
        offset_millionths in -9_900i64..9_900,
        millionths in 100u32..5_000,
    ) {
        let offset = start_qps.cast_signed() * offset_millionths / 1_000_000;
        let limit = start_qps.saturating_add_signed(offset);
        let step = start_qps / 100;
        // Of few queries, a part of 0.99 % can be as many as one of 1 %.
        prop_assume!(offset.unsigned_abs() < step);
        let spec = SearchSpec {
            resolution: Resolution::Relative { millionths },
            first_step_qps: Some(step),
            ..SearchSpec::from_start(start_qps)
        };
        let halvings = Bracket {
            passed_qps: Some(start_qps - step),
            failed_qps: Some(start_qps),
            resolution_qps: spec.resolution.qps(start_qps - step),
        };
        let result = found(spec, |rate| threshold(limit, rate));
        let most = 2 + halvings.trials_left().unwrap();
        prop_assert!(asked(&result).len() <= most as usize, "{:?}", asked(&result));
        prop_assert_eq!(result.end, SearchEnd::Found);
    }

    #[test]
    fn fixed_range_is_bisected_like_script_of_paper(
        max_qps in 2u64..3_000_000,
        e in 1u64..1_000,
        limit in 0u64..4_000_000,
    ) {
        prop_assume!(max_qps > e);
        let result = found(
            fixed_range(max_qps, Resolution::Absolute { qps: e }),
            |rate| threshold(limit, rate),
        );
        let (rates, l) = of_the_script(max_qps, e, limit);
        prop_assert_eq!(asked(&result), rates);
        prop_assert_eq!(result.rate_qps.unwrap_or(0), l);
        prop_assert_eq!(result.end, match (result.rate_qps, result.failed_qps) {
            (None, _) => SearchEnd::NothingPasses,
            (Some(rate_qps), None) => SearchEnd::LimitedByRequest { rate_qps },
            (Some(_), Some(_)) => SearchEnd::Found,
        });
    }

    #[test]
    fn fixed_range_ends_within_any_bounds(
        max_qps in 0u64..2_000,
        ceiling_qps in proptest::option::of(0u64..2_000),
        lowest_qps in 1u64..50,
        resolution in resolution(),
        limit in 0u64..2_500,
    ) {
        let spec = SearchSpec {
            ceiling_qps,
            lowest_qps,
            ..fixed_range(max_qps, resolution)
        };
        let end = spec.limit_qps();
        let result = found(spec, |rate| threshold(limit, rate));
        prop_assert!(!result.trials.is_empty(), "no number without a trial");
        for rate in asked(&result) {
            prop_assert!(rate >= lowest_qps.min(end) && rate <= end);
        }
        match (result.rate_qps, result.failed_qps) {
            (Some(passed), Some(failed)) => {
                prop_assert!(passed <= limit && limit < failed);
                prop_assert!(failed - passed <= resolution.qps(passed));
            }
            (Some(passed), None) => {
                prop_assert!(passed <= limit && end - passed <= resolution.qps(passed));
            }
            (None, _) => {
                prop_assert_eq!(result.end, SearchEnd::NothingPasses);
                prop_assert!(limit < end.min(lowest_qps.max(resolution.qps(0))));
            }
        }
    }

    #[test]
    fn invalid_trial_does_not_move_bounds(
        spec in spec(),
        limit in 0u64..3_000_000,
        disturbed in proptest::collection::vec(0..=INVALID_REPEATS, 0..60),
    ) {
        let calm = found(spec.clone(), |rate| threshold(limit, rate));
        let mut plan = disturbed.into_iter();
        let mut left = plan.next().unwrap_or(0);
        let result = found(spec, |rate| {
            if left > 0 {
                left -= 1;
                return Outcome::Invalid(stall());
            }
            left = plan.next().unwrap_or(0);
            threshold(limit, rate)
        });
        let valid: Vec<u64> = result
            .trials
            .iter()
            .filter(|t| !matches!(t.outcome, Outcome::Invalid(_)))
            .map(|t| t.rate_qps)
            .collect();
        let undisturbed: Vec<u64> = calm.trials.iter().map(|t| t.rate_qps).collect();
        prop_assert_eq!(valid, undisturbed);
        prop_assert_eq!(result.end, calm.end);
        prop_assert_eq!(result.rate_qps, calm.rate_qps);
    }

    #[test]
    fn non_monotone_dut_passes_directly_below_a_fail(
        spec in spec(),
        seed in any::<u64>(),
    ) {
        let ceiling = SearchSpec { ceiling_qps: Some(50_000_000), ..spec.clone() };
        let result = found(ceiling, |rate| {
            if (rate ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0 {
                Outcome::Passed
            } else {
                Outcome::Failed { shortfall: 1 }
            }
        });
        if result.end != SearchEnd::Found {
            return Ok(());
        }
        let (passed, failed) = (result.rate_qps.unwrap(), result.failed_qps.unwrap());
        let outcome_at = |rate| {
            result.trials.iter().find(|t| t.rate_qps == rate).map(|t| t.outcome.clone())
        };
        prop_assert_eq!(outcome_at(passed), Some(Outcome::Passed));
        prop_assert_eq!(outcome_at(failed), Some(Outcome::Failed { shortfall: 1 }));
        prop_assert!(passed < failed);
        prop_assert!(failed - passed <= spec.resolution.qps(passed));
    }

    #[test]
    fn a_pass_that_nothing_contradicts_is_a_rate_or_a_lower_bound(
        spec in spec(),
        ceiling_qps in proptest::option::of(1u64..5_000_000),
        limit in 0u64..3_000_000,
        reach in 1u64..3_000_000,
    ) {
        let spec = SearchSpec { ceiling_qps, ..spec };
        let resolution = spec.resolution;
        // The Tester does not reach every rate.
        let result = found(spec, |rate| match rate > reach {
            true => Outcome::Invalid(stall()),
            false => threshold(limit, rate),
        });
        let passed = result.trials.iter().filter(|t| t.outcome == Outcome::Passed);
        prop_assert_eq!(result.rate_qps, passed.map(|t| t.rate_qps).max());
        if let Some(rate_qps) = result.rate_qps {
            let close = result.failed_qps.is_some_and(|failed| failed - rate_qps <= resolution.qps(rate_qps));
            prop_assert_eq!(result.end.is_lower_bound(), !close, "{:?}", result.end);
        }
    }

    #[test]
    fn remaining_trials_are_counted(width in 1u64..1_000_000, resolution_qps in 1u64..1000) {
        let mut bracket = Bracket {
            passed_qps: Some(1000),
            failed_qps: Some(1000 + width),
            resolution_qps,
        };
        let promised = bracket.trials_left().unwrap();
        let mut search = Search::new(SearchSpec {
            resolution: Resolution::Absolute { qps: resolution_qps },
            ..SearchSpec::from_start(1)
        });
        search.passed_qps = bracket.passed_qps;
        search.failed_qps = bracket.failed_qps;
        search.end = search.spec.settled(&search.bracket());
        let mut trials = 0;
        while search.next_rate().is_some() {
            search.observe(&Outcome::Failed { shortfall: 1 });
            trials += 1;
            bracket = search.bracket();
        }
        prop_assert!(trials <= promised && promised <= trials + 1);
        prop_assert_eq!(bracket.trials_left(), Some(0));
    }
}

#[test]
fn search_aborts_after_repeats_of_one_rate() {
    let mut repeats = Vec::new();
    let result = run(
        Search::new(SearchSpec::from_start(100)),
        &mut Simulated(|rate| {
            if rate <= 200 {
                Outcome::Passed
            } else {
                Outcome::Invalid(stall())
            }
        }),
        &mut |event| {
            if let Event::Repeat { attempt, of, .. } = event {
                repeats.push((*attempt, *of));
            }
        },
    );
    let Ok(result) = result;
    let asked: Vec<u64> = result.trials.iter().map(|t| t.rate_qps).collect();
    assert_eq!(asked, [100, 200, 400, 400, 400, 400]);
    assert_eq!(repeats, [(1, 3), (2, 3), (3, 3)]);
    assert_eq!(result.end, SearchEnd::TesterFault { fault: stall() });
    assert_eq!(
        result.rate_qps,
        Some(200),
        "a lower bound: no rate above failed"
    );
    assert!(result.end.is_lower_bound());
}

#[test]
fn pass_at_certified_rate_is_limited_by_tester() {
    let spec = SearchSpec {
        ceiling_qps: Some(30_000),
        ..SearchSpec::from_start(10_000)
    };
    let result = found(spec.clone(), |rate| threshold(1_000_000, rate));
    let asked: Vec<u64> = result.trials.iter().map(|t| t.rate_qps).collect();
    assert_eq!(asked, [10_000, 20_000, 30_000]);
    assert_eq!(result.end, SearchEnd::LimitedByTester { rate_qps: 30_000 });
    assert_eq!(result.rate_qps, Some(30_000));
    assert_eq!(result.certified_rate_qps, Some(30_000));
    let below = found(spec, |rate| threshold(29_999, rate));
    assert_eq!(below.end, SearchEnd::Found);
}

#[test]
fn start_above_ceiling_is_lowered_to_it() {
    let spec = SearchSpec {
        ceiling_qps: Some(5_000),
        ..SearchSpec::from_start(10_000)
    };
    assert_eq!(Search::new(spec).next_rate(), Some(5_000));
    let nothing = SearchSpec {
        ceiling_qps: Some(0),
        ..SearchSpec::from_start(0)
    };
    assert_eq!(Search::new(nothing).next_rate(), Some(1));
}

#[test]
fn galloping_stops_at_rate_with_one_query_per_trial() {
    let spec = SearchSpec {
        lowest_qps: 5,
        ..SearchSpec::from_start(32)
    };
    let result = found(spec.clone(), |rate| threshold(0, rate));
    let asked: Vec<u64> = result.trials.iter().map(|t| t.rate_qps).collect();
    assert_eq!(asked, [32, 16, 8, 5]);
    assert_eq!(result.end, SearchEnd::NothingPasses);
    let at_it = found(spec, |rate| threshold(5, rate));
    assert_eq!((at_it.rate_qps, at_it.failed_qps), (Some(5), Some(6)));
}

#[test]
fn pass_at_highest_requested_rate_is_limited_by_request() {
    let spec = SearchSpec {
        ceiling_qps: Some(30_000),
        max_qps: Some(15_000),
        ..SearchSpec::from_start(10_000)
    };
    let result = found(spec, |rate| threshold(1_000_000, rate));
    assert_eq!(result.end, SearchEnd::LimitedByRequest { rate_qps: 15_000 });
}

#[test]
fn unlimited_dut_ends_at_finest_schedule() {
    let result = found(SearchSpec::from_start(1), |_| Outcome::Passed);
    assert_eq!(
        result.end,
        SearchEnd::LimitedByTester {
            rate_qps: 1_000_000_000
        }
    );
}

#[test]
fn steps_from_known_rate_double() {
    let spec = |lowest_qps| SearchSpec {
        lowest_qps,
        first_step_qps: Some(100),
        ..SearchSpec::from_start(1_000)
    };
    let up = found(spec(1), |rate| threshold(1_650, rate));
    assert_eq!(asked(&up)[..5], [1_000, 1_100, 1_300, 1_700, 1_500]);
    let down = found(spec(1), |rate| threshold(500, rate));
    // Not to 300, 400 below 700: the step is limited to half of the rate.
    assert_eq!(asked(&down)[..5], [1_000, 900, 700, 350, 525]);
    let nothing = found(spec(300), |rate| threshold(0, rate));
    assert_eq!(asked(&nothing), [1_000, 900, 700, 350, 300]);
    assert_eq!(nothing.end, SearchEnd::NothingPasses);
    let limited = SearchSpec {
        ceiling_qps: Some(1_200),
        ..spec(1)
    };
    let limited = found(limited, |_| Outcome::Passed);
    assert_eq!(asked(&limited), [1_000, 1_100, 1_200]);
    assert_eq!(limited.end, SearchEnd::LimitedByTester { rate_qps: 1_200 });
}

#[test]
fn fixed_range_above_certificate_is_limited_by_tester() {
    let spec = SearchSpec {
        ceiling_qps: Some(1_000),
        ..fixed_range(16_384, Resolution::Absolute { qps: 1 })
    };
    let result = found(spec, |_| Outcome::Passed);
    assert_eq!(asked(&result)[..2], [500, 750]);
    assert_eq!(result.end, SearchEnd::LimitedByTester { rate_qps: 999 });
}

#[test]
fn specification_of_older_journal_gallops_by_doubling() {
    let text = r#"{"start_qps":100,"resolution":{"absolute":{"qps":5}},"ceiling_qps":null,"max_qps":900,"lowest_qps":1,"invalid_repeats":3}"#;
    let spec: SearchSpec = serde_json::from_str(text).unwrap();
    let expected = SearchSpec {
        resolution: Resolution::Absolute { qps: 5 },
        max_qps: Some(900),
        ..SearchSpec::from_start(100)
    };
    assert_eq!(spec, expected);
}

#[test]
fn run_starts_below_earlier_runs_and_steps_above_them() {
    let resolution = Resolution::Absolute { qps: 10 };
    for (previous, expected) in [
        (&[][..], None),
        (&[20_000], Some((17_500, 5_000))),
        (&[20_000, 20_500], Some((19_750, 1_000))),
        (&[20_000, 20_000, 20_000], Some((19_980, 40))),
        (&[20_000, 19_000, 20_300, 20_100], Some((18_350, 2_600))),
        (&[1, 1], Some((1, 20))),
        (&[u64::MAX, u64::MAX], Some((u64::MAX - 20, 20))),
    ] {
        assert_eq!(reuse(previous, resolution), expected, "{previous:?}");
    }
}

/// Average number of trials of a search after `runs` others, for true rates with a normal distribution around 30,000
/// queries per second and this standard deviation.
fn mean_trials(runs: usize, sd_qps: f64) -> f64 {
    const SEARCHES: u32 = 2_000;
    let mut state = 1u64;
    let mut rate = || {
        // The sum of twelve uniform numbers minus its mean is nearly normal.
        let sum: f64 = (0..12)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                f64::from(u32::try_from(state >> 32).unwrap()) / f64::from(u32::MAX)
            })
            .sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate"
        )]
        let rate = (30_000.0 + (sum - 6.0) * sd_qps) as u64;
        rate
    };
    let mut trials = 0;
    for _ in 0..SEARCHES {
        let previous: Vec<u64> = (0..runs).map(|_| rate()).collect();
        let known = reuse(&previous, Resolution::default());
        let spec = SearchSpec {
            first_step_qps: known.map(|(_, step)| step),
            ..SearchSpec::from_start(known.map_or(1_000, |(start, _)| start))
        };
        let limit = rate();
        trials += found(spec, |rate| threshold(limit, rate)).trials.len();
    }
    f64::from(u32::try_from(trials).unwrap()) / f64::from(SEARCHES)
}

#[test]
fn results_of_earlier_runs_save_trials() {
    let table: Vec<String> = [0, 1, 2, 3, 5, 10, 19]
        .iter()
        .map(|&runs| {
            let means = [0.0, 30.0, 150.0, 300.0, 900.0].map(|sd| mean_trials(runs, sd));
            format!("{runs:2} runs: {means:4.1?}")
        })
        .collect();
    expect_test::expect![[r#"
         0 runs: [16.0, 16.0, 16.0, 16.0, 15.9]
         1 runs: [10.0, 10.3, 10.2, 10.2, 10.3]
         2 runs: [ 4.0,  5.0,  6.3,  7.3,  8.9]
         3 runs: [ 4.0,  5.0,  6.7,  7.6,  9.2]
         5 runs: [ 4.0,  5.0,  7.0,  8.0,  9.6]
        10 runs: [ 4.0,  5.1,  7.4,  8.4, 10.0]
        19 runs: [ 4.0,  5.4,  7.7,  8.7, 10.2]"#]]
    .assert_eq(&table.join("\n"));
}

/// Pseudo-random numbers from 0 to 1.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / f64::from(u32::MAX)
    }
}

/// Standard deviations of single runs and of the medians of 20. The DUT passes with a probability that falls from 9/10
/// to 1/10 between 9,000 and 13,000 queries per second.
fn deviations(knowing: bool) -> (f64, f64) {
    let mut chance = Chance(7);
    let resolution = Resolution::default();
    let (mut all, mut medians) = (Vec::new(), Vec::new());
    for _ in 0..150 {
        let mut rates: Vec<u64> = Vec::new();
        for _ in 0..20 {
            let spec = match reuse(&rates, resolution).filter(|_| knowing) {
                Some((start, step)) => SearchSpec {
                    first_step_qps: Some(step),
                    ..SearchSpec::from_start(start)
                },
                None => fixed_range(32_768, resolution),
            };
            let result = found(spec, |rate| {
                let odds = ((rate as f64 - 11_000.0) / 910.0).exp();
                threshold(
                    if chance.next() < 1.0 / (1.0 + odds) {
                        rate
                    } else {
                        rate - 1
                    },
                    rate,
                )
            });
            rates.extend(result.rate_qps);
        }
        all.extend(rates.iter().copied());
        // The lower of the middle two, for all sets of twenty.
        rates.sort_unstable();
        medians.extend(rates.get(rates.len() / 2));
    }
    (deviation(&all), deviation(&medians))
}

fn deviation(values: &[u64]) -> f64 {
    let values: Vec<f64> = values
        .iter()
        .map(|&v| f64::from(u32::try_from(v).unwrap()))
        .collect();
    let count = f64::from(u32::try_from(values.len()).unwrap());
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (squares / (count - 1.0)).sqrt()
}

#[test]
fn runs_that_reuse_results_stay_independent() {
    let (free, median_of_free) = deviations(false);
    let (knowing, median_of_knowing) = deviations(true);
    assert!((0.85..1.15).contains(&(knowing / free)), "{knowing} {free}");
    let ratio = median_of_knowing / median_of_free;
    assert!(
        (0.8..1.25).contains(&ratio),
        "{median_of_knowing} {median_of_free}"
    );
}
