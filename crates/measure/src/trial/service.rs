//! Estimates the throughput of an overloaded DUT from one trial.
//!
//! A DUT that queues queries passes trials above its sustainable rate: the queue may grow until its end is a timeout
//! away (Lencse et al. 2017, section 4.4). At an offered rate r and a service rate R the delay of a query that was sent
//! at t is (r / R - 1) t plus a constant, so the slope of the delay determines R = r / (1 + slope). A bounded queue is
//! full at some time; the responses after the last query was sent then leave it at R as well.
//!
//! Pure functions on the ledgers of a finished trial.

use dns64_transport::clock::{Nanos, SECOND};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::generator::Finished;
use crate::load::ledger::{Entry, Fate, OfferedQuery};
use crate::statistics::quantile::median;
use crate::statistics::trend::trend;

/// Throughput of a DUT while it had queued queries.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Service {
    /// Growth of the delay of the answers up to its maximum, in nanoseconds per second of the trial; 0 if it grew too
    /// quickly to be measured.
    pub slope_ns_per_s: f64,
    /// Queries that the DUT served per second during that time.
    pub service_rate_qps: f64,
    /// Method of the estimate.
    pub by: By,
    /// The delay grew until the last query: the trial's outcome depends on the queue of the DUT, not on its sustainable
    /// rate.
    pub stores_queries: bool,
    /// Sustainable rate of the DUT, in whole queries per second.
    pub sustainable_qps: u64,
}

/// Method by which a service rate was estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The slope of the delay of the answers.
    Delay,
    /// The answers after the last query.
    Drain,
}

/// Number of bins of sending time for the delay: few enough for all pairs of them, and enough to detect when a queue
/// became full.
const BINS: usize = 100;

/// Minimum number of answers of a bin for its median: the fewest for which two outliers cannot move it beyond the other
/// values, at the 5 % level.
const ANSWERS_MIN: usize = 5;

/// Approximate maximum number of delays of a bin that are kept for its median: its error is then 4 % of their standard
/// deviation.
const SAMPLES: usize = 1000;

/// Minimum number of bins of a growing delay. Fewer in order may be chance: eight have a probability of 0.05 %.
const GROWING_MIN: usize = 8;

/// Maximum p-value of a growth: without the next two bounds, ten of the 10,000 trials of a campaign would be false
/// positives.
const CHANCE_MAX: f64 = 0.001;

/// Minimum growth, in seconds per second: below it the DUT serves all queries within the resolution of a search, 0.1 %.
const SLOPE_MIN: f64 = 0.001;

/// Minimum growth in median absolute deviations of the bins from the line: noise alone reaches a third of it, at ten
/// standard deviations.
const DEVIATIONS_MIN: f64 = 5.0;

/// A delay above this fraction of its range counts as the maximum.
const PEAK_PART: f64 = 0.9;

/// Minimum delay at the end, as a fraction of its range, of a DUT that is still overloaded and thus has a long queue.
/// After a pause or a slow start the queue is short again.
const STAYS_PART: f64 = 0.5;

/// Minimum number of answers after the last query for a rate: the error of their number is 10 %.
const DRAIN_MIN: u64 = 100;

/// A drain below this fraction of the offered rate, by a DUT that served less than this fraction of it, is not the
/// delay of the network, through which the answers pass at the rate of the queries.
const DRAIN_PART_MAX: f64 = 0.9;

/// Maximum distance of the mean time of a drain at a constant rate from its middle, as a fraction of its length.
const DRAIN_OFF_MAX: f64 = 0.05;

/// Tolerance: the last digits of quotients may change when they are written and read.
const STEP: f64 = 1e-12;

/// Estimates the throughput of the DUT while it had queued queries; `None` if the delay did not grow. `rate_qps` is the
/// offered rate; `ended_early` means that the trial did not wait for late answers.
pub(super) fn service(rate_qps: u64, ended_early: bool, shards: &[&Finished]) -> Option<Service> {
    let sent = || shards.iter().flat_map(|shard| shard.sent());
    let queries = shards.iter().map(|shard| shard.offered).sum();
    let last = shards.iter().filter_map(|shard| shard.sent().next_back());
    let last_ns = last.map(|query| query.sent_ns()).max()?;
    let bins = DelayBins::of(sent(), queries, last_ns);
    let rate = rate_qps as f64;
    if let Some(found) = bins.growing(rate) {
        return Some(found);
    }
    // A permanently full queue drops the excess queries.
    let was_full = !ended_early && part(&bins.bins) < DRAIN_PART_MAX;
    let drain = was_full.then(|| Drain::of(sent(), last_ns)).flatten()?;
    drain.service(rate)
}

impl Service {
    /// Returns whether the figures are consistent with each other and with the offered rate: a DUT with a growing delay
    /// serves at most the rate that follows from the growth, and one that is drained after the trial serves less than
    /// the offered rate.
    pub fn fits(&self, offered_qps: u64) -> bool {
        let (offered, rate) = (offered_qps as f64, self.service_rate_qps);
        let growth = self.slope_ns_per_s / SECOND as f64;
        let most = match self.by {
            By::Delay if growth > 0.0 => offered / (1.0 + growth),
            By::Drain if growth == 0.0 && !self.stores_queries => DRAIN_PART_MAX * offered,
            By::Delay | By::Drain => return false,
        };
        let whole = self.sustainable_qps as f64;
        let step = STEP * offered.max(1.0);
        (0.0..=most + step).contains(&rate) && (whole - step..whole + 1.0 + step).contains(&rate)
    }

    fn new(slope: f64, rate: f64, by: By, stores_queries: bool) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate above 0, far below 2^63"
        )]
        let sustainable_qps = rate as u64;
        Self {
            slope_ns_per_s: slope * SECOND as f64,
            service_rate_qps: rate,
            by,
            stores_queries,
            sustainable_qps,
        }
    }
}

/// Returns whether a query was served, in time or not.
fn is_served(entry: &Entry) -> bool {
    matches!(entry.fate, Fate::Valid | Fate::Late)
}

/// Queries by sending time, in bins of equal width.
struct DelayBins {
    width_s: f64,
    bins: Vec<DelayBin>,
}

#[derive(Clone, Default)]
struct DelayBin {
    sent: u64,
    served: u64,
    /// Delays of a sample of the served queries, in seconds.
    delays_s: Vec<f64>,
}

impl DelayBins {
    fn of(sent: impl Iterator<Item = OfferedQuery>, queries: usize, last_ns: Nanos) -> Self {
        let count = (queries / ANSWERS_MIN).clamp(1, BINS);
        let stride = (queries / count / SAMPLES).max(1);
        let width_ns = last_ns / count as u64 + 1;
        let mut bins = vec![DelayBin::default(); count];
        for (number, query) in sent.enumerate() {
            let place = usize::try_from(query.sent_ns() / width_ns).unwrap_or(usize::MAX);
            let bin = &mut bins[place.min(count - 1)];
            bin.sent += 1;
            if is_served(&query.entry) {
                bin.served += 1;
                if number % stride == 0 {
                    bin.delays_s.push(seconds(query.entry.rtt_ns));
                }
            }
        }
        Self {
            width_s: seconds(width_ns),
            bins,
        }
    }

    /// Returns the bins with enough answers, with their index: the middle of their time, and the median of their
    /// delays, both in seconds.
    fn delays(&self) -> Vec<(usize, (f64, f64))> {
        let point = |(number, bin): (usize, &DelayBin)| {
            let enough = bin.delays_s.len() >= ANSWERS_MIN;
            let delay_s = median(&bin.delays_s).filter(|_| enough)?;
            Some((number, ((number as f64 + 0.5) * self.width_s, delay_s)))
        };
        self.bins.iter().enumerate().filter_map(point).collect()
    }

    /// Returns the service rate from the slope of the delay, while it grew.
    fn growing(&self, rate: f64) -> Option<Service> {
        let delays = self.delays();
        let height = |delay: &(usize, (f64, f64))| delay.1.1;
        let least = delays.iter().map(height).min_by(f64::total_cmp)?;
        let most = delays.iter().map(height).max_by(f64::total_cmp)?;
        let beyond = |part: f64| least + part * (most - least);
        let grown = delays.iter().position(|d| height(d) >= beyond(PEAK_PART))? + 1;
        let points: Vec<_> = delays[..grown].iter().map(|delay| delay.1).collect();
        let (first, last) = (delays.first()?.1, delays.last()?.1);
        let trend = trend(&points).filter(|_| grown >= GROWING_MIN)?;
        let rise_s = trend.slope * (points.last()?.0 - first.0);
        let is_growth = trend.p < CHANCE_MAX
            && trend.slope >= SLOPE_MIN
            && rise_s >= DEVIATIONS_MIN * deviation(&points, trend.slope)?
            && last.1 >= beyond(STAYS_PART);
        // Some queries of the last bin may have been answered after the end of the trial.
        let growing = &self.bins[..delays[grown - 1].0];
        let served = rate * part(growing) / (1.0 + trend.slope);
        let to_the_end = last.1 - first.1 >= PEAK_PART * trend.slope * (last.0 - first.0);
        is_growth.then(|| Service::new(trend.slope, served, By::Delay, to_the_end))
    }
}

/// Returns the share of the queries of these bins that were served.
fn part(bins: &[DelayBin]) -> f64 {
    let sum = |of: fn(&DelayBin) -> u64| bins.iter().map(of).sum::<u64>();
    sum(|bin| bin.served) as f64 / sum(|bin| bin.sent).max(1) as f64
}

/// Returns the median absolute deviation of points from the nearest line with this slope.
fn deviation(points: &[(f64, f64)], slope: f64) -> Option<f64> {
    let rests: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let middle = median(&rests)?;
    let off: Vec<f64> = rests.iter().map(|rest| (rest - middle).abs()).collect();
    median(&off)
}

/// The answers that arrived after the last query was sent.
struct Drain {
    answers: u64,
    /// Time from the last query to the last of them, and to their mean.
    span_s: f64,
    mean_s: f64,
}

impl Drain {
    fn of(sent: impl Iterator<Item = OfferedQuery>, last_ns: Nanos) -> Option<Self> {
        let answered_ns = sent
            .filter(|query| is_served(&query.entry))
            .map(|query| query.sent_ns() + query.entry.rtt_ns);
        let after = answered_ns.filter_map(|at_ns| at_ns.checked_sub(last_ns));
        let (mut answers, mut sum_s, mut longest_ns) = (0_u64, 0.0, 0);
        for after_ns in after.filter(|&ns| ns > 0) {
            answers += 1;
            sum_s += seconds(after_ns);
            longest_ns = longest_ns.max(after_ns);
        }
        (answers >= DRAIN_MIN).then(|| Self {
            answers,
            span_s: seconds(longest_ns),
            mean_s: sum_s / answers as f64,
        })
    }

    /// Returns the rate of a drain that is steady and slower than the queries were sent.
    fn service(&self, rate: f64) -> Option<Service> {
        let drained = self.answers as f64 / self.span_s;
        let is_steady = (self.mean_s / self.span_s - 0.5).abs() <= DRAIN_OFF_MAX;
        let is_drain = is_steady && drained < DRAIN_PART_MAX * rate;
        is_drain.then(|| Service::new(0.0, drained, By::Drain, false))
    }
}

fn seconds(span_ns: Nanos) -> f64 {
    span_ns as f64 / SECOND as f64
}
