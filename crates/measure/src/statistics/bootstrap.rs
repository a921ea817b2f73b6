//! Bootstrap intervals (Efron, "Bootstrap methods: another look at the jackknife", 1979).
//!
//! The random numbers are the same at every call: a recomputed report has the same figures.

use dns64_transport::random::{SplitMix64, below};

use super::quantile::percentile_of_sorted;
use super::quantile::sorted;

/// Number of resamples of an interval. The usual minimum for percentiles is 1000 to 2000 (Efron and Tibshirani, "An
/// introduction to the bootstrap", section 13.3). With ten times as many, the ends no longer depend on the seed at the
/// resolution of rates.
const RESAMPLES: usize = 10_000;

/// Minimum number of resamples if each is expensive (ibid.).
const RESAMPLES_MIN: usize = 1_000;

/// Maximum number of weighted values visited for one interval: some tenths of a second.
const WORK_MAX: usize = 100_000_000;

/// Percentiles at the ends of a 95 % interval.
const ENDS_PCT: (f64, f64) = (2.5, 97.5);

/// Minimum number of values of an interval: resamples of two values contain nothing new.
pub(super) const VALUES_MIN: usize = 3;

/// Draws as many values as there are, with replacement, and counts the draws of each.
pub(super) fn sample(random: &mut SplitMix64, counts: &mut [u64]) {
    counts.fill(0);
    for _ in 0..counts.len() {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "less than the count, a usize"
        )]
        let place = below(random.draw(), counts.len() as u64) as usize;
        counts[place] += 1;
    }
}

/// Returns the 95 % interval of a statistic that visits `work` values per resample.
pub(super) fn interval(
    work: usize,
    mut statistic: impl FnMut(&mut SplitMix64) -> f64,
) -> (f64, f64) {
    let resamples = (WORK_MAX / work.max(1)).clamp(RESAMPLES_MIN, RESAMPLES);
    let mut random = SplitMix64(0);
    let mut found: Vec<f64> = (0..resamples).map(|_| statistic(&mut random)).collect();
    found.sort_by(f64::total_cmp);
    let end = |percent| percentile_of_sorted(&found, percent).unwrap_or_default();
    (end(ENDS_PCT.0), end(ENDS_PCT.1))
}

/// Returns the median of weighted values in ascending order; the weights add up to `total`, above 0.
pub(super) fn weighted_median(weighted: impl Iterator<Item = (f64, u64)>, total: u64) -> f64 {
    let (lower, upper) = (total.div_ceil(2), total / 2 + 1);
    let mut below = 0;
    let mut at_lower = None;
    for (value, weight) in weighted {
        below += weight;
        if at_lower.is_none() && below >= lower {
            at_lower = Some(value);
        }
        if below >= upper {
            return f64::midpoint(at_lower.unwrap_or(value), value);
        }
    }
    at_lower.unwrap_or_default()
}

/// Returns the 95 % interval of the median, in the unit of `values`: percentile bootstrap, independent of the order of
/// the values.
///
/// `None` for fewer than three values, or if one is not finite.
pub fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(values).filter(|sorted| sorted.len() >= VALUES_MIN)?;
    let mut counts = vec![0; sorted.len()];
    Some(interval(sorted.len(), |random| {
        sample(random, &mut counts);
        let weighted = sorted.iter().copied().zip(counts.iter().copied());
        weighted_median(weighted, sorted.len() as u64)
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::statistics::quantile::median;

    #[test]
    fn ends_match_exact_bootstrap() {
        // With 21 different values, the median of a sample is at most the k-th with the probability that 11 or more of
        // 21 draws are among the first k: 2.3 % for k = 6, 6.6 % for k = 7.
        let values: Vec<f64> = (1..=21).map(f64::from).collect();
        assert_eq!(median_interval(&values), Some((7.0, 15.0)));
    }

    #[test]
    fn few_or_non_finite_values_have_no_interval() {
        assert_eq!(median_interval(&[1.0, 2.0]), None);
        assert_eq!(median_interval(&[1.0, 2.0, f64::NAN]), None);
        assert_eq!(median_interval(&[7.0; 3]), Some((7.0, 7.0)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn weight_equals_number_of_copies(
            weighted in prop::collection::vec((-100.0..100.0f64, 0..4u64), 1..20),
        ) {
            let mut weighted = weighted;
            weighted.sort_by(|a, b| a.0.total_cmp(&b.0));
            let copies: Vec<f64> = weighted
                .iter()
                .flat_map(|(value, weight)| (0..*weight).map(|_| *value))
                .collect();
            if let Some(median) = median(&copies) {
                let total = copies.len() as u64;
                prop_assert_eq!(weighted_median(weighted.into_iter(), total), median);
            }
        }

        #[test]
        fn interval_is_independent_of_order(
            values in prop::collection::vec(1.0..1e6f64, 3..12),
        ) {
            let mut reversed = values.clone();
            reversed.reverse();
            prop_assert_eq!(median_interval(&values), median_interval(&reversed));
        }
    }
}
