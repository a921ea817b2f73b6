//! The probability that a trial passes, as a function of its rate.
//!
//! The model is a logistic curve that falls over the logarithm of the rate: ln(p / (1 - p)) = slope * ln(r50 / r). It is
//! fitted by maximum likelihood to all valid trials of a point (McCullagh and Nelder, "Generalized linear models",
//! chapter 4). A search chooses its rates by nothing but earlier outcomes, and so leaves the likelihood as it is (Wu,
//! "Efficient sequential designs with binary data", 1985): trials of searches that start near earlier results count, too.
//!
//! The model assumes that trials at one rate are independent, that the curve stays the same during all runs, and that it
//! falls as described. The latter two are tested. Trials of one run that resemble each other are not recognised: no
//! search repeats a rate.

use schemars::JsonSchema;
use serde::Serialize;

use super::agreement::INTERVAL_RUNS_MIN;
use super::summary::DRIFT_P;
use super::trend::trend;

/// What the trials of a point say about the pass probability.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PassProbability {
    /// Rates at which trials pass with a given probability.
    Estimated(PassRates),
    /// Why there is no estimate.
    Refused(Refused),
}

impl PassProbability {
    /// The rates, if they could be estimated.
    pub fn rates(&self) -> Option<&PassRates> {
        match self {
            Self::Estimated(rates) => Some(rates),
            Self::Refused(_) => None,
        }
    }
}

/// Rates at which trials pass with a given probability.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct PassRates {
    /// Number of valid trials.
    pub trials: usize,
    /// Rate at which half of the trials pass.
    pub at_50_pct: RateInterval,
    /// Rate at which 99 % of the trials pass.
    pub at_99_pct: RateInterval,
}

/// An estimated rate with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct RateInterval {
    /// Estimate of maximum likelihood.
    pub rate_qps: f64,
    /// Lower end of the interval.
    pub low_qps: f64,
    /// Upper end of the interval.
    pub high_qps: f64,
}

/// Reason for which no pass probability is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// Fewer than 6 runs, all trials passed or all failed, or an interval is wider than a factor of 10.
    TooFew,
    /// The rates of the runs rise or fall with time.
    Drift,
    /// The probability does not fall with the rate as the model says.
    Shape,
}

/// Largest difference between an end of an interval and its rate: a factor of 10.
const REACH: f64 = std::f64::consts::LN_10;

/// Slopes of the curves. At the upper end the rates of 50 and 99 % differ by 0.05 %, half of the default resolution of a
/// search.
const SLOPES: (f64, f64) = (0.5, 1e4);

/// With a smaller slope the probability does not fall: between 99 and 50 % lies a factor of 100.
const SLOPE_MIN: f64 = 1.0;

/// Largest departure from the model: 1 % point of the Kolmogorov distribution.
const DEPARTURE_MAX: f64 = 1.63;

/// 97.5 % quantile of the normal distribution.
const QUANTILE_975: f64 = 1.959_963_984_540_054;

/// Ratio of the likelihood drops of 97.5 and 95 %: that of the squared quantiles of the normal distribution.
const SEQUENTIAL_DROP: f64 = 1.3078;

/// Halvings of an interval of logarithms, which leave 2 millionths of a rate.
const HALVINGS: u32 = 22;

/// Estimates the rates that pass with 50 and 99 %, from the valid trials of each run in the order of time: rate in
/// queries per second, above 0, and whether the trial passed.
///
/// An interval has all rates whose profile likelihood is high enough (Venzon and Moolgavkar, "A method for computing
/// profile-likelihood-based confidence intervals", 1988), with Student's t for the number of runs.
pub fn pass_probability(runs: &[Vec<(u64, bool)>]) -> PassProbability {
    estimate(runs).map_or_else(PassProbability::Refused, PassProbability::Estimated)
}

/// Returns the upper end of the 95 % interval of the loss ratio after a trial of `queries` without loss: the rule of three
/// (Hanley and Lippman-Hand, "If nothing goes wrong, is everything all right?", 1983).
pub fn loss_ratio_max(queries: u64) -> f64 {
    (3.0 / queries as f64).min(1.0)
}

/// Estimates the rate at which half of the trials pass, from trials whose number was chosen by what they say. `None` as with
/// [`Refused::TooFew`].
///
/// Looking at the interval until it is narrow enough stops more often where chance made it narrow. The interval therefore is that of
/// 97.5 % of a fixed number of trials, and has the rate in 95 % (simulated in the tests of its search).
pub fn sequential(trials: &[(u64, bool)]) -> Option<RateInterval> {
    let passed = trials.iter().filter(|(_, passed)| *passed).count();
    if passed == 0 || passed == trials.len() {
        return None;
    }
    let by_rate = Trials::of(trials);
    by_rate.interval(
        &by_rate.best(),
        0.0,
        SEQUENTIAL_DROP * likelihood_drop(trials.len()),
    )
}

fn estimate(runs: &[Vec<(u64, bool)>]) -> Result<PassRates, Refused> {
    let trials = runs.concat();
    let passed = trials.iter().filter(|(_, passed)| *passed).count();
    // The last trial of a search is at or next to the rate that it finds.
    let last = runs.iter().filter_map(|run| run.last());
    let last = (0_u32..).zip(last);
    let found: Vec<_> = last
        .map(|(run, at)| (f64::from(run), at.0 as f64))
        .collect();
    if found.len() < INTERVAL_RUNS_MIN || passed == 0 || passed == trials.len() {
        return Err(Refused::TooFew);
    }
    if trend(&found).is_some_and(|trend| trend.p < DRIFT_P) {
        return Err(Refused::Drift);
    }
    let by_rate = Trials::of(&trials);
    let best = by_rate.best();
    if best.slope < SLOPE_MIN || by_rate.departs(&best) {
        return Err(Refused::Shape);
    }
    let drop = likelihood_drop(found.len());
    let interval = |p: f64| by_rate.interval(&best, (p / (1.0 - p)).ln(), drop);
    Ok(PassRates {
        trials: trials.len(),
        at_50_pct: interval(0.5).ok_or(Refused::TooFew)?,
        at_99_pct: interval(0.99).ok_or(Refused::TooFew)?,
    })
}

/// Returns the difference of the log-likelihood at the ends of an interval: half of the squared 97.5 % quantile of
/// Student's t (Abramowitz and Stegun, 26.7.5). The searches are independent samples, and the curve has two parameters.
fn likelihood_drop(runs: usize) -> f64 {
    let (z, freedom) = (QUANTILE_975, runs.saturating_sub(2) as f64);
    let powers =
        |of: [f64; 4]| of[0] * z.powi(7) + of[1] * z.powi(5) + of[2] * z.powi(3) + of[3] * z;
    let t = z
        + powers([0.0, 0.0, 1.0, 1.0]) / (4.0 * freedom)
        + powers([0.0, 5.0, 16.0, 3.0]) / (96.0 * freedom.powi(2))
        + powers([3.0, 19.0, 17.0, -15.0]) / (384.0 * freedom.powi(3));
    t * t / 2.0
}

/// A curve of the model.
#[derive(Clone, Copy)]
struct Curve {
    /// Logarithm of a rate.
    ln_rate: f64,
    /// ln(p / (1 - p)) at that rate.
    logit: f64,
    /// Its decrease for each unit of the logarithm.
    slope: f64,
}

impl Curve {
    fn logit_at(&self, ln_rate: f64) -> f64 {
        self.logit - self.slope * (ln_rate - self.ln_rate)
    }

    fn ln_rate_at(&self, logit: f64) -> f64 {
        self.ln_rate + (self.logit - logit) / self.slope
    }
}

/// The trials at one rate.
struct AtRate {
    ln_rate: f64,
    passed: f64,
    failed: f64,
}

impl AtRate {
    /// Trials that passed, less those expected: without cancellation, so that a step between passes and failures is
    /// placed in the middle.
    fn residual(&self, curve: &Curve) -> f64 {
        let logit = curve.logit_at(self.ln_rate);
        self.passed * probability(-logit) - self.failed * probability(logit)
    }

    /// Variance of the residual.
    fn variance(&self, curve: &Curve) -> f64 {
        let logit = curve.logit_at(self.ln_rate);
        (self.passed + self.failed) * probability(logit) * probability(-logit)
    }

    /// Log-likelihood.
    fn likelihood(&self, curve: &Curve) -> f64 {
        let logit = curve.logit_at(self.ln_rate);
        self.passed * ln_probability(logit) + self.failed * ln_probability(-logit)
    }
}

fn probability(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}

fn ln_probability(logit: f64) -> f64 {
    logit.min(0.0) - (-logit.abs()).exp().ln_1p()
}

/// All trials by ascending rate, with a pass and a failure.
struct Trials(Vec<AtRate>);

impl Trials {
    fn of(trials: &[(u64, bool)]) -> Self {
        let mut trials = trials.to_vec();
        trials.sort_unstable();
        let at_rate = |same: &[(u64, bool)]| {
            let passed = same.iter().filter(|(_, passed)| *passed).count();
            AtRate {
                ln_rate: (same[0].0 as f64).ln(),
                passed: passed as f64,
                failed: (same.len() - passed) as f64,
            }
        };
        Self(trials.chunk_by(|a, b| a.0 == b.0).map(at_rate).collect())
    }

    fn sum(&self, of: impl Fn(&AtRate) -> f64) -> f64 {
        self.0.iter().map(of).sum()
    }

    fn likelihood(&self, curve: &Curve) -> f64 {
        self.sum(|at| at.likelihood(curve))
    }

    /// Returns the most likely curve. The likelihood is concave in the parameters of the linear predictor, so that at
    /// each rate one slope is the best, and the likelihood of these curves rises towards one rate.
    fn best(&self) -> Curve {
        let ends = self.0.iter().map(|at| at.ln_rate);
        let low = ends.clone().fold(f64::INFINITY, f64::min) - REACH;
        let high = ends.fold(f64::NEG_INFINITY, f64::max) + REACH;
        let is_below = |ln_rate: f64| {
            let curve = self.through(ln_rate, 0.0);
            self.sum(|at| at.residual(&curve)) > 0.0
        };
        self.through(turn(low, high, is_below), 0.0)
    }

    /// Returns the most likely of the curves with this logit at this rate.
    fn through(&self, ln_rate: f64, logit: f64) -> Curve {
        let curve = |ln_slope: f64| Curve {
            ln_rate,
            logit,
            slope: ln_slope.exp(),
        };
        let is_too_flat = |ln_slope: f64| {
            let curve = curve(ln_slope);
            self.sum(|at| at.residual(&curve) * (ln_rate - at.ln_rate)) > 0.0
        };
        curve(turn(SLOPES.0.ln(), SLOPES.1.ln(), is_too_flat))
    }

    /// Returns whether the residuals, added up by rate, depart from 0 more than those of trials of this curve (Su and
    /// Wei, "A lack-of-fit test for the mean function in a generalized linear model", 1991). The fit makes their total 0;
    /// that it also makes them smaller than those of a known curve errs towards the model.
    fn departs(&self, curve: &Curve) -> bool {
        let (mut total, mut most) = (0.0, 0.0_f64);
        for at in &self.0 {
            total += at.residual(curve);
            most = most.max(f64::abs(total));
        }
        most > DEPARTURE_MAX * self.sum(|at| at.variance(curve)).sqrt()
    }

    /// Returns the rate at which the best curve has this logit, and all rates at which a curve with this logit is less
    /// likely by at most `drop`; `None` if one of them is beyond the reach.
    fn interval(&self, best: &Curve, logit: f64, drop: f64) -> Option<RateInterval> {
        let least = self.likelihood(best) - drop;
        let is_likely = |ln_rate: f64| self.likelihood(&self.through(ln_rate, logit)) >= least;
        let found = best.ln_rate_at(logit);
        let (low, high) = (found - REACH, found + REACH);
        // Tenths, so that the last digit of an exponential function is not in a report.
        let rate = |ln_rate: f64| (ln_rate.exp() * 10.0).round() / 10.0;
        (!is_likely(low) && !is_likely(high)).then(|| RateInterval {
            rate_qps: rate(found),
            low_qps: rate(turn(low, found, |ln_rate| !is_likely(ln_rate))),
            high_qps: rate(turn(found, high, is_likely)),
        })
    }
}

/// Returns where `is_below`, true at first, becomes false between `low` and `high`.
fn turn(mut low: f64, mut high: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        match is_below(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use dns64_transport::random::SplitMix64;

    use super::*;

    /// Rates of the trials of a search, and whether each passed.
    type Run = Vec<(u64, bool)>;

    /// Rate at which half of the trials of a device pass.
    const X50_QPS: f64 = 100_000.0;

    /// Slope of the noisy device: 99 % of the trials pass 4.5 % below.
    const SLOPE: f64 = 100.0;

    /// A device of the model.
    struct Device {
        random: SplitMix64,
        x50_qps: f64,
    }

    impl Device {
        fn new(seed: u64) -> Self {
            Self {
                random: SplitMix64(seed),
                x50_qps: X50_QPS,
            }
        }

        /// A random number from 0 to 1.
        fn draw(&mut self) -> f64 {
            (self.random.draw() >> 11) as f64 / (1_u64 << 53) as f64
        }

        fn trial(&mut self, rate_qps: u64) -> (u64, bool) {
            let passes = probability(SLOPE * (self.x50_qps / rate_qps as f64).ln());
            (rate_qps, self.draw() < passes)
        }

        /// Bisects seven times.
        fn bisect(&mut self, mut low: u64, mut high: u64) -> Run {
            let trial = |_| {
                let (rate_qps, passed) = self.trial(u64::midpoint(low, high));
                *if passed { &mut low } else { &mut high } = rate_qps;
                (rate_qps, passed)
            };
            (0..7).map(trial).collect()
        }
    }

    /// Twenty bisections of a range of 16 %, which is not centred on the rate of 50 %.
    fn bisections(seed: u64) -> Vec<Run> {
        let mut device = Device::new(seed);
        let shift = whole(device.draw() * 4_000.0);
        let search = |_| device.bisect(90_000 + shift, 106_000 + shift);
        (0..20).map(search).collect()
    }

    /// Forty runs of a trial at each of seven rates.
    fn fixed_rates(seed: u64) -> Vec<Run> {
        let mut device = Device::new(seed);
        let rates = [94_500, 96_500, 98_000, 99_500, 101_000, 102_500, 104_500];
        let run = |_| rates.map(|rate| device.trial(rate)).to_vec();
        (0..40).map(run).collect()
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below 4000"
    )]
    fn whole(value: f64) -> u64 {
        value as u64
    }

    #[track_caller]
    fn assert_covered(design: fn(u64) -> Vec<Run>) {
        let found: Vec<PassRates> = (0..1000)
            .filter_map(|seed| pass_probability(&design(seed)).rates().copied())
            .collect();
        // Tests at 1 % refuse few data that follow the model.
        assert!(found.len() >= 970, "{}", found.len());
        let x99_qps = X50_QPS * (-(99_f64.ln()) / SLOPE).exp();
        let share = |truth: f64, of: fn(&PassRates) -> RateInterval| {
            let covers = |found: &RateInterval| (found.low_qps..=found.high_qps).contains(&truth);
            let covered = found.iter().map(of).filter(covers).count();
            covered as f64 / found.len() as f64
        };
        for covered in [
            share(X50_QPS, |found| found.at_50_pct),
            share(x99_qps, |found| found.at_99_pct),
        ] {
            assert!((0.93..=0.97).contains(&covered), "{covered}");
        }
        let is_narrow = |it: &&PassRates| it.at_50_pct.high_qps / it.at_50_pct.low_qps < 1.02;
        let narrow = found.iter().filter(is_narrow).count();
        assert!(narrow >= found.len() * 9 / 10, "{narrow}");
    }

    #[test]
    fn intervals_of_bisections_cover_the_rates_of_the_device() {
        assert_covered(bisections);
    }

    #[test]
    fn intervals_of_fixed_rates_cover_the_rates_of_the_device() {
        assert_covered(fixed_rates);
    }

    #[test]
    fn exact_device_is_between_its_passes_and_failures() {
        let run = vec![
            (5_000, true),
            (20_000, false),
            (9_900, true),
            (10_000, false),
        ];
        let found = pass_probability(&vec![run; 6]);
        let found = found.rates().unwrap();
        assert_eq!(found.trials, 24);
        let RateInterval {
            rate_qps,
            low_qps,
            high_qps,
        } = found.at_50_pct;
        assert!((rate_qps - 9_949.9).abs() < 1.0, "{rate_qps}");
        // Six passes at a rate that passes with less than 50 % are less likely than 1/64, and so are six failures.
        assert!((9_899.0..9_902.0).contains(&low_qps), "{low_qps}");
        assert!((9_998.0..10_001.0).contains(&high_qps), "{high_qps}");
        let most = found.at_99_pct;
        assert!(most.low_qps < low_qps && most.rate_qps < rate_qps);
    }

    /// Twenty runs of a trial at each of seven rates, of which so many tenths pass.
    fn tenths(passed: [usize; 7]) -> PassProbability {
        let run = |run: usize| {
            let trial = |(at, passed): (u64, usize)| (9_700 + 100 * at, run % 10 < passed);
            (0..).zip(passed).map(trial).collect::<Vec<_>>()
        };
        pass_probability(&(0..20).map(run).collect::<Vec<_>>())
    }

    #[test]
    fn falling_probability_is_estimated_and_others_are_refused() {
        let found = tenths([10, 9, 8, 5, 2, 1, 0]);
        let rate_qps = found.rates().unwrap().at_50_pct.rate_qps;
        assert!((rate_qps - 10_000.0).abs() < 10.0, "{rate_qps}");
        let refused = PassProbability::Refused(Refused::Shape);
        for passed in [
            [10, 2, 10, 10, 5, 0, 0],
            [0, 1, 2, 5, 8, 9, 10],
            [5; 7],
            [10, 10, 0, 0, 10, 10, 0],
        ] {
            assert_eq!(tenths(passed), refused, "{passed:?}");
        }
    }

    #[test]
    fn few_or_equal_outcomes_are_too_few() {
        let too_few = PassProbability::Refused(Refused::TooFew);
        assert_eq!(pass_probability(&[]), too_few);
        let five = vec![vec![(9_000, true), (10_000, false)]; 5];
        assert_eq!(pass_probability(&five), too_few);
        for passed in [true, false] {
            let equal = vec![vec![(9_000, passed)]; 20];
            assert_eq!(pass_probability(&equal), too_few);
        }
    }

    #[test]
    fn device_that_becomes_faster_has_a_drift() {
        let mut device = Device::new(1);
        let run = |run: u32| {
            device.x50_qps = X50_QPS * (0.94 + 0.006 * f64::from(run));
            device.bisect(84_000, 116_000)
        };
        let runs: Vec<_> = (0..20).map(run).collect();
        let drift = PassProbability::Refused(Refused::Drift);
        assert_eq!(pass_probability(&runs), drift);
    }

    #[test]
    fn ends_have_the_quantiles_of_student_and_losses_the_rule_of_three() {
        for (runs, t) in [(6, 2.776_445), (20, 2.100_922), (100, 1.984_467)] {
            let found = (2.0 * likelihood_drop(runs)).sqrt();
            assert!((found - t).abs() < 0.01, "{runs}: {found}");
        }
        // With a loss ratio of 3 / n, none of n queries is lost with a probability below 5 %.
        assert!((1.0 - loss_ratio_max(3_000)).powi(3_000) < 0.05);
        assert_eq!([loss_ratio_max(0), loss_ratio_max(300)], [1.0, 0.01]);
    }
}
