//! The search for the fastest rate that passes (RFC 8219 section 9.2).
//!
//! Galloping from the first rate finds a pass below and a fail above; strict bisection narrows the
//! two until they are within the resolution. Nothing is assumed about the DUT: both ends of the
//! answer have been seen, whatever the DUT does in between.

use dns64_transport::clock::SECOND;
use serde::{Deserialize, Serialize};

use super::{Event, Trials, observed};
use crate::trial::result::{Outcome, TesterFault, TrialResult};

/// Runs `search` to its end.
///
/// # Errors
///
/// Whatever `trials` gives when it cannot run a trial; the observer has seen the trials before it.
pub fn run<T: Trials>(
    mut search: Search,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<SearchResult, T::Error> {
    let mut done = Vec::new();
    let end = loop {
        if let Some(end) = search.finished() {
            break end.clone();
        }
        let number = done.len() as u64 + 1;
        let result = observed(trials, search.rate(), number, observer)?;
        search.observe(&result.outcome);
        match &result.outcome {
            Outcome::Invalid(fault) if search.finished().is_none() => observer(&Event::Repeat {
                fault,
                attempt: search.invalid_in_row,
                of: search.spec.invalid_repeats,
            }),
            Outcome::Invalid(_) => {}
            Outcome::Passed | Outcome::Failed { .. } => {
                observer(&Event::Bracket(search.bracket()));
            }
        }
        done.push(result);
    };
    observer(&Event::Finished(&end));
    let bracket = search.bracket();
    let confirmed = !matches!(end, SearchEnd::TesterFault(_));
    Ok(SearchResult {
        end,
        rate_qps: bracket.passed_qps.filter(|_| confirmed),
        failed_qps: bracket.failed_qps,
        resolution_qps: bracket.resolution_qps,
        trials: done,
        certified_rate_qps: search.spec.ceiling_qps,
    })
}

/// What to search for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchSpec {
    /// Rate of the first trial; lowered to the lower of the two bounds below.
    pub start_qps: u64,
    /// How close the bounds of the answer must be.
    pub resolution: Resolution,
    /// The rate for which the Tester is certified: no trial goes beyond.
    pub ceiling_qps: Option<u64>,
    /// The highest rate that the user wants to be tried.
    pub max_qps: Option<u64>,
    /// The lowest rate at which a trial has a query: galloping goes no lower. At least 1.
    pub lowest_qps: u64,
    /// How often in a row a rate is tried again after an invalid trial.
    pub invalid_repeats: u32,
}

impl SearchSpec {
    /// A search from `start_qps` with the default resolution and repeats, without bounds.
    pub fn from_start(start_qps: u64) -> Self {
        Self {
            start_qps,
            resolution: Resolution::default(),
            ceiling_qps: None,
            max_qps: None,
            lowest_qps: 1,
            invalid_repeats: INVALID_REPEATS,
        }
    }

    fn limit_qps(&self) -> u64 {
        self.tester_limit_qps()
            .min(self.max_qps.unwrap_or(u64::MAX))
            .max(1)
    }

    fn tester_limit_qps(&self) -> u64 {
        self.ceiling_qps.unwrap_or(HIGHEST_RATE_QPS)
    }
}

/// How close a pass and a fail must be for the pass to be the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// In millionths of the rate that passed, rounded down, but at least 1 query per second.
    Relative {
        /// 1000 are 0.1 %.
        millionths: u32,
    },
    /// In queries per second; 0 counts as 1.
    Absolute {
        /// The distance.
        qps: u64,
    },
}

impl Resolution {
    /// The resolution in queries per second when `passed_qps` has passed.
    pub fn qps(self, passed_qps: u64) -> u64 {
        let qps = match self {
            Self::Relative { millionths } => {
                let share = u128::from(passed_qps) * u128::from(millionths) / 1_000_000;
                u64::try_from(share).unwrap_or(u64::MAX)
            }
            Self::Absolute { qps } => qps,
        };
        qps.max(1)
    }
}

/// 0.1 %: ten trials of bisection after the galloping, which leaves a bracket of 2 to 1.
impl Default for Resolution {
    fn default() -> Self {
        Self::Relative { millionths: 1000 }
    }
}

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchEnd {
    /// A pass and a fail within the resolution: the pass is the answer.
    Found,
    /// The DUT passed at the highest rate for which the Tester is good: its own is higher.
    LimitedByTester {
        /// That rate.
        rate_qps: u64,
    },
    /// The DUT passed at the highest rate that was asked for: its own may be higher.
    LimitedByRequest {
        /// That rate.
        rate_qps: u64,
    },
    /// The DUT fails even at the lowest rate: 1 query per second, or 1 query per trial.
    NothingPasses,
    /// One rate was invalid too often in a row: the Tester cannot go on.
    TesterFault(TesterFault),
}

/// What a search knows about the DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    /// The highest rate that passed below `failed_qps`.
    pub passed_qps: Option<u64>,
    /// The lowest rate that failed above `passed_qps`.
    pub failed_qps: Option<u64>,
    /// The distance of the two at which the search ends.
    pub resolution_qps: u64,
}

impl Bracket {
    /// How many more trials the bisection takes at most, if none is invalid; `None` while
    /// galloping, which has no bound of its own.
    pub fn trials_left(&self) -> Option<u32> {
        let mut width = self.failed_qps?.checked_sub(self.passed_qps?)?;
        let mut trials = 0;
        while width > self.resolution_qps {
            width = width.div_ceil(2);
            trials += 1;
        }
        Some(trials)
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// How it ended.
    pub end: SearchEnd,
    /// The fastest rate that passed: the answer if `end` is [`SearchEnd::Found`], a lower bound of
    /// it at either limit, `None` otherwise.
    pub rate_qps: Option<u64>,
    /// The lowest rate that failed above the pass.
    pub failed_qps: Option<u64>,
    /// Resolution at the answer.
    pub resolution_qps: u64,
    /// All trials in order, the invalid ones too.
    pub trials: Vec<TrialResult>,
    /// The rate for which the Tester is certified.
    pub certified_rate_qps: Option<u64>,
}

/// A search under way: says which rate to try next and learns from the outcome.
#[derive(Clone, Debug)]
pub struct Search {
    spec: SearchSpec,
    passed_qps: Option<u64>,
    failed_qps: Option<u64>,
    invalid_in_row: u32,
    end: Option<SearchEnd>,
}

impl Search {
    /// A search that has tried nothing yet. Rates below 1 query per second count as 1.
    pub fn new(spec: SearchSpec) -> Self {
        Self {
            spec,
            passed_qps: None,
            failed_qps: None,
            invalid_in_row: 0,
            end: None,
        }
    }

    /// The rate to try next, `None` when the search is over. The same until an outcome is
    /// observed.
    pub fn next_rate(&self) -> Option<u64> {
        self.end.is_none().then(|| self.rate())
    }

    /// Takes in the outcome of a trial at [`next_rate`](Self::next_rate). After the end it changes
    /// nothing.
    pub fn observe(&mut self, outcome: &Outcome) {
        let Some(rate) = self.next_rate() else { return };
        match outcome {
            Outcome::Passed => self.passed_qps = Some(rate),
            Outcome::Failed { .. } => self.failed_qps = Some(rate),
            Outcome::Invalid(fault) => {
                if self.invalid_in_row == self.spec.invalid_repeats {
                    self.end = Some(SearchEnd::TesterFault(fault.clone()));
                }
                self.invalid_in_row += 1;
                return;
            }
        }
        self.invalid_in_row = 0;
        self.end = self.settled();
    }

    /// How the search ended, `None` while it goes on.
    pub fn finished(&self) -> Option<&SearchEnd> {
        self.end.as_ref()
    }

    /// What is known so far.
    pub fn bracket(&self) -> Bracket {
        Bracket {
            passed_qps: self.passed_qps,
            failed_qps: self.failed_qps,
            resolution_qps: self.spec.resolution.qps(self.passed_qps.unwrap_or(0)),
        }
    }

    fn rate(&self) -> u64 {
        let limit = self.spec.limit_qps();
        match (self.passed_qps, self.failed_qps) {
            (None, None) => self.spec.start_qps.clamp(1, limit),
            (Some(passed), None) => passed.saturating_mul(2).min(limit),
            (None, Some(failed)) => (failed / 2).max(self.spec.lowest_qps),
            (Some(passed), Some(failed)) => passed + (failed - passed) / 2,
        }
    }

    fn settled(&self) -> Option<SearchEnd> {
        match (self.passed_qps, self.failed_qps) {
            (Some(passed), Some(failed)) => {
                (failed - passed <= self.spec.resolution.qps(passed)).then_some(SearchEnd::Found)
            }
            (Some(rate_qps), None) if rate_qps >= self.spec.limit_qps() => Some(
                if self.spec.max_qps.is_some_and(|max| max.max(1) == rate_qps) {
                    SearchEnd::LimitedByRequest { rate_qps }
                } else {
                    SearchEnd::LimitedByTester { rate_qps }
                },
            ),
            (None, Some(failed)) if failed <= self.spec.lowest_qps => {
                Some(SearchEnd::NothingPasses)
            }
            (None | Some(_), None) | (None, Some(_)) => None,
        }
    }
}

/// How often a rate is tried again after an invalid trial: stalls of a virtual machine come some
/// seconds apart, so four trials in a row that were hit are not chance.
pub const INVALID_REPEATS: u32 = 3;

/// The schedule counts whole nanoseconds: beyond one query per nanosecond it could not tell two
/// queries apart.
pub const HIGHEST_RATE_QPS: u64 = SECOND;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::simulated::{Simulated, threshold};
    use super::*;

    fn found(spec: SearchSpec, dut: impl FnMut(u64) -> Outcome) -> SearchResult {
        let Ok(result) = run(Search::new(spec), &mut Simulated(dut), &mut |_| {});
        result
    }

    fn stall() -> TesterFault {
        TesterFault::LateSchedule {
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
        (1u64..5_000_000, resolution()).prop_map(|(start_qps, resolution)| SearchSpec {
            resolution,
            ..SearchSpec::from_start(start_qps)
        })
    }

    /// Doublings or halvings between the start and the threshold, and the halvings of the widest
    /// bracket that they can leave.
    fn most_trials(spec: &SearchSpec, limit_qps: u64) -> u32 {
        let galloping = spec.start_qps.max(limit_qps) / spec.start_qps.min(limit_qps).max(1);
        let widest = Bracket {
            passed_qps: Some(0),
            failed_qps: Some(limit_qps.max(1) * 2),
            resolution_qps: spec.resolution.qps(limit_qps / 2),
        };
        galloping.ilog2() + 3 + widest.trials_left().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn brackets_the_true_rate_of_any_monotone_dut(
            spec in spec(),
            limit in 0u64..3_000_000,
        ) {
            let result = found(spec.clone(), |rate| threshold(limit, rate));
            let mut asked: Vec<u64> = result.trials.iter().map(|t| t.rate_qps).collect();
            prop_assert!(asked.len() as u64 <= u64::from(most_trials(&spec, limit)));
            asked.sort_unstable();
            asked.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1], "asked twice"));
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
        fn never_learns_from_invalid(
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
        fn a_dut_without_order_still_passes_directly_below_a_fail(
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
        fn counts_the_trials_that_are_left(width in 1u64..1_000_000, resolution_qps in 1u64..1000) {
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
            search.end = search.settled();
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
    fn gives_up_after_the_repeats_of_one_rate() {
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
        assert_eq!(result.end, SearchEnd::TesterFault(stall()));
        assert_eq!(result.rate_qps, None, "nothing failed above 200");
    }

    #[test]
    fn a_pass_at_the_certified_rate_is_a_limit_of_the_tester() {
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
    fn a_start_beyond_the_ceiling_is_lowered_to_it() {
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
    fn galloping_goes_no_lower_than_a_trial_with_a_query() {
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
    fn a_pass_at_the_highest_rate_asked_for_is_no_limit_of_the_tester() {
        let spec = SearchSpec {
            ceiling_qps: Some(30_000),
            max_qps: Some(15_000),
            ..SearchSpec::from_start(10_000)
        };
        let result = found(spec, |rate| threshold(1_000_000, rate));
        assert_eq!(result.end, SearchEnd::LimitedByRequest { rate_qps: 15_000 });
    }

    #[test]
    fn a_dut_without_limit_ends_at_the_finest_schedule() {
        let result = found(SearchSpec::from_start(1), |_| Outcome::Passed);
        assert_eq!(
            result.end,
            SearchEnd::LimitedByTester {
                rate_qps: 1_000_000_000
            }
        );
    }
}
