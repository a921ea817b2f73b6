//! The rates of an interval goal: a search for a first bracket, then up and down by the width of the goal (Dixon and Mood, "A method
//! for obtaining and analyzing sensitivity data", 1948) until the interval of the rate is narrow enough.
//!
//! The steps keep the rates where half of the trials pass, which narrows its interval most; they have a fixed height, because steps that
//! follow a fitted curve shrink where chance made it steep, and the interval then misses the rate (simulated in the tests).

use dns64_transport::clock::Nanos;

use super::super::goal::{Goal, Tried};
use super::goals::focused;
use super::{GoalResult, Search, SearchEnd, SearchSpec};
use crate::statistics::pass::{RateInterval, sequential};
use crate::trial::result::Outcome;

/// Fewest trials, and how many lie between two looks at the interval: each look is another chance to end by chance.
const TRIALS_MIN: usize = 24;
const LOOK_EACH: usize = 8;

/// A search for an interval in progress.
#[derive(Clone, Debug)]
pub(super) struct Stairs {
    goal: Goal,
    /// The search for the first bracket, as wide as the goal.
    coarse: Box<Search>,
    /// Rates of the trials, and whether each passed.
    trials: Vec<(u64, bool)>,
    /// Height above the bracket, in steps.
    height: i64,
    found: Option<RateInterval>,
    end: Option<SearchEnd>,
}

impl Stairs {
    /// Begins with the first goal of a search, if that is one of an interval.
    pub(super) fn new(spec: &SearchSpec) -> Option<Self> {
        let goal = *spec.goals.first().filter(|goal| goal.is_interval)?;
        Some(Self {
            goal,
            coarse: Box::new(Search::new(focused(spec, &goal, None))),
            trials: Vec::new(),
            height: 0,
            found: None,
            end: None,
        })
    }

    /// Returns rate and duration of the next trial; `None` at the end.
    pub(super) fn next(&self) -> Option<(u64, Nanos)> {
        self.rate().map(|rate_qps| (rate_qps, self.goal.trial_ns))
    }

    fn rate(&self) -> Option<u64> {
        if self.end.is_some() {
            return None;
        }
        if let Some(rate_qps) = self.coarse.next_rate() {
            return Some(rate_qps);
        }
        let bracket = self.coarse.bracket();
        let (passed, failed) = bracket.passed_qps.zip(bracket.failed_qps)?;
        let steps = self
            .height
            .saturating_mul(bracket.resolution_qps.cast_signed());
        let middle = passed + (failed - passed) / 2;
        let rate_qps = middle.saturating_add_signed(steps);
        Some(rate_qps.clamp(self.coarse.spec.lowest_qps, self.coarse.spec.limit_qps()))
    }

    /// Records a valid trial at the rate.
    pub(super) fn observe(&mut self, trial: &Tried) {
        let Some(rate_qps) = self.rate() else {
            return;
        };
        let passed = !self.goal.is_high_loss(trial);
        self.trials.push((rate_qps, passed));
        if self.coarse.finished().is_none() {
            self.coarse.observe(&match passed {
                true => Outcome::Passed,
                false => Outcome::Failed {
                    shortfall: trial.lost,
                },
            });
            let end = self.coarse.finished().cloned();
            self.end = end.filter(|end| *end != SearchEnd::Found);
            return;
        }
        self.height += if passed { 1 } else { -1 };
        let number = self.trials.len();
        if number >= TRIALS_MIN && number.is_multiple_of(LOOK_EACH) {
            self.look();
        }
    }

    fn look(&mut self) {
        self.found = sequential(&self.trials);
        let of_rate = |it: RateInterval| (it.high_qps - it.low_qps) / it.rate_qps;
        let width = self.found.map(of_rate);
        let number = self.trials.len() as u64;
        if width.is_some_and(|width| width <= self.wanted()) {
            self.end = Some(SearchEnd::Found);
        } else if number.saturating_mul(self.goal.trial_ns) >= self.goal.sum_ns {
            // The width falls with the square root of the number.
            let times = width.map(|width| (width / self.wanted()).powi(2));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an estimate"
            )]
            let needed = times.map(|times| (number as f64 * times).ceil() as u64);
            self.end = Some(SearchEnd::TooWide { trials: needed });
        }
    }

    /// The width of the goal, as a part of the rate.
    fn wanted(&self) -> f64 {
        let rate_qps = self.coarse.bracket().passed_qps.unwrap_or(1);
        self.goal.width.qps(rate_qps) as f64 / rate_qps as f64
    }

    /// Returns the result so far.
    pub(super) fn result(&self) -> GoalResult {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rates"
        )]
        let qps = |of: fn(RateInterval) -> f64| self.found.map(|found| of(found) as u64);
        GoalResult {
            goal: self.goal,
            end: self.end.clone(),
            lower_qps: qps(|found| found.low_qps.floor()),
            upper_qps: qps(|found| found.high_qps.ceil()),
            throughput_qps: qps(|found| found.rate_qps.round()),
        }
    }
}

#[cfg(test)]
mod tests {
    use dns64_transport::random::SplitMix64;

    use super::*;
    use crate::procedure::search::reuse;
    use crate::procedure::search::run;
    use crate::procedure::simulated::{Simulated, threshold};

    /// A device whose trials pass with a probability that falls over the logarithm of the rate.
    struct Device {
        random: SplitMix64,
        half_qps: f64,
        slope: f64,
    }

    impl Device {
        fn new(seed: u64, slope: f64) -> Self {
            let mut random = SplitMix64(seed);
            let half_qps = 30_000.0 + (random.draw() % 30_000) as f64;
            Self {
                random,
                half_qps,
                slope,
            }
        }

        fn outcome(&mut self, rate_qps: u64) -> Outcome {
            let odds = (rate_qps as f64 / self.half_qps).powf(self.slope);
            let draw = (self.random.draw() >> 11) as f64 / (1_u64 << 53) as f64;
            let limit_qps = rate_qps - u64::from(draw >= 1.0 / (1.0 + odds));
            threshold(limit_qps, rate_qps)
        }

        fn search(&mut self, spec: SearchSpec) -> super::super::SearchResult {
            let Ok(found) = run(
                Search::new(spec),
                &mut Simulated(|rate_qps| self.outcome(rate_qps)),
                &mut |_| {},
            );
            found
        }

        /// Trials of 20 strict runs, and their median.
        fn strict(&mut self) -> (usize, u64) {
            let (mut rates, mut trials) = (Vec::new(), 0);
            for _ in 0..20 {
                let spec = SearchSpec::from_start(10_000);
                let spec = match reuse(&rates, spec.resolution) {
                    Some((start_qps, step_qps)) => SearchSpec {
                        start_qps,
                        first_step_qps: Some(step_qps),
                        ..spec
                    },
                    None => spec,
                };
                let found = self.search(spec);
                trials += found.trials.len();
                rates.extend(found.rate_qps);
            }
            rates.sort_unstable();
            (trials, rates[rates.len() / 2])
        }

        fn interval(&mut self) -> (usize, GoalResult) {
            let found = self.search(SearchSpec {
                goals: vec!["interval".parse().unwrap()],
                ..SearchSpec::from_start(10_000)
            });
            (found.trials.len(), found.goals[0].clone())
        }
    }

    /// Per mille of the intervals that have the rate, and that are narrow enough, and the trials of one in per mille of 20 strict runs.
    fn law(slope: f64) -> [usize; 3] {
        const DEVICES: usize = 200;
        let (mut covered, mut narrow, mut trials, mut strict) = (0, 0, 0, 0);
        for seed in 0..DEVICES as u64 {
            let mut device = Device::new(seed, slope);
            let (number, found) = device.interval();
            let (low, high) = (
                found.lower_qps.unwrap() as f64,
                found.upper_qps.unwrap() as f64,
            );
            covered += usize::from((low..=high).contains(&device.half_qps));
            narrow += usize::from(found.end == Some(SearchEnd::Found));
            trials += number;
            if seed < 20 {
                strict += device.strict().0 * (DEVICES / 20);
            }
        }
        [
            covered * 1000 / DEVICES,
            narrow * 1000 / DEVICES,
            trials * 1000 / strict,
        ]
    }

    #[test]
    fn intervals_have_the_rate_of_the_device_at_a_third_of_the_cost() {
        let table = [60.0, 100.0, 200.0, 1e5].map(|slope| format!("{slope:6}: {:4?}", law(slope)));
        expect_test::expect![[r#"
                60: [ 930,  400,  324]
               100: [ 950,  955,  254]
               200: [ 940, 1000,  171]
            100000: [ 990, 1000,  250]"#]]
        .assert_eq(&table.join("\n"));
    }

    #[test]
    fn servers_have_the_order_of_strict_runs() {
        let order = |by: &mut dyn FnMut(&mut Device) -> u64| {
            let server = |at: u32| {
                let mut device = Device::new(u64::from(at), 200.0);
                device.half_qps = 30_000.0 * 1.05_f64.powi(at.cast_signed() * 3 % 5);
                (by(&mut device), at)
            };
            let mut servers: Vec<_> = (0..5).map(server).collect();
            servers.sort_unstable();
            servers.iter().map(|(_, at)| *at).collect::<Vec<_>>()
        };
        let strict = order(&mut |device| device.strict().1);
        let by_interval = order(&mut |device| device.interval().1.throughput_qps.unwrap());
        assert_eq!((&strict, &strict), (&by_interval, &vec![0, 2, 4, 1, 3]));
    }
}
