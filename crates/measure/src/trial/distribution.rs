//! Distributions of times.

use dns64_transport::clock::{Nanos, SECOND};
use hdrhistogram::Histogram;

use super::result::{PERCENTILES, Rtt};

/// Significant digits of the histograms.
const DIGITS: u8 = 3;

/// Longest time of the histograms; longer times count as this. No timeout is close to it.
const LONGEST_NS: Nanos = 100 * SECOND;

/// Histogram of times.
pub(super) struct Times(Histogram<u64>);

impl Times {
    /// Creates an empty histogram.
    pub(super) fn new() -> Self {
        let bounds = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Self(bounds.expect("constants within its bounds"))
    }

    pub(super) fn record(&mut self, span_ns: Nanos) {
        self.0.saturating_record(span_ns);
    }

    /// Returns a quantile from 0 to 1; `None` without times.
    pub(super) fn quantile(&self, quantile: f64) -> Option<Nanos> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile))
    }

    pub(super) fn clear(&mut self) {
        self.0.reset();
    }

    pub(super) fn median(&self) -> Option<Nanos> {
        self.quantile(0.5)
    }

    pub(super) fn max(&self) -> Option<Nanos> {
        (!self.0.is_empty()).then(|| self.0.max())
    }

    /// Returns the mean, at the precision of the histogram; `None` without times.
    pub(super) fn mean(&self) -> Option<Nanos> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "no time is negative or beyond the longest"
        )]
        let mean = || self.0.mean().round() as Nanos;
        (!self.0.is_empty()).then(mean)
    }

    /// Returns the usual figures of times.
    pub(super) fn rtt(&self) -> Rtt {
        Rtt {
            p50: self.median(),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.max(),
            mean: self.mean(),
        }
    }

    /// Returns the times at [`PERCENTILES`]. A percentile needs at least one time beyond it; the smallest and the
    /// largest need only one time.
    pub(super) fn percentiles(&self) -> Vec<(f64, Nanos)> {
        let times = self.0.len() as f64;
        let told =
            |percent: f64| times > 0.0 && (percent >= 100.0 || (100.0 - percent) * times >= 100.0);
        PERCENTILES
            .into_iter()
            .filter(|&percent| told(percent))
            .map(|percent| (percent, self.0.value_at_percentile(percent)))
            .collect()
    }

    /// Returns the times at [`PERCENTILES`] of `all` events, of which those without a time count as longer than any:
    /// their percentiles are `None`.
    pub(super) fn percentiles_of(&self, all: u64) -> Vec<(f64, Option<Nanos>)> {
        let (all, times) = (all as f64, self.0.len() as f64);
        let told =
            |percent: f64| all > 0.0 && (percent >= 100.0 || (100.0 - percent) * all >= 100.0);
        let at = |percent: f64| {
            let rank = (percent / 100.0 * all).ceil().max(1.0);
            (rank <= times).then(|| self.0.value_at_quantile(rank / times))
        };
        let told = PERCENTILES.into_iter().filter(|&percent| told(percent));
        told.map(|percent| (percent, at(percent))).collect()
    }
}
