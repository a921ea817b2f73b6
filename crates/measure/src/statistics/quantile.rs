//! Medians and percentiles.

/// Returns the `percent`-th percentile: the smallest of `values` that at least `percent` per cent of them do not exceed
/// (RFC 2330 section 11.3). With fewer than 100 values the 1st percentile is their minimum and the 99th their maximum.
///
/// `None` if there are no values, one is not finite, or `percent` is not in 0..=100.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    percentile_of_sorted(&sorted(values)?, percent)
}

/// Returns the median: the middle value, or the mean of the two middle values, unlike the 50th percentile (RFC 2330
/// section 11.3).
///
/// `None` if there are no values or one is not finite.
pub fn median(values: &[f64]) -> Option<f64> {
    median_of_sorted(&sorted(values)?)
}

/// Returns the percentile of values in ascending order.
pub(super) fn percentile_of_sorted(sorted: &[f64], percent: f64) -> Option<f64> {
    if !(0.0..=100.0).contains(&percent) {
        return None;
    }
    // Products instead of quotients, minus a rounding margin: 7 % of 100 values are 7 values.
    let enough = percent * sorted.len() as f64 * (1.0 - 1e-12);
    let below = |rank: usize| (rank as f64) * 100.0 < enough;
    let mut ranks = 1..=sorted.len();
    ranks
        .find(|&rank| !below(rank))
        .map(|rank| sorted[rank - 1])
}

/// Returns the median of values in ascending order.
pub(super) fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// Returns a sorted copy; `None` if a value is not finite.
pub(super) fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.iter().all(|v| v.is_finite()).then_some(values)
}

/// Returns the number of occurrences of each value, for the tie corrections of rank tests.
pub(super) fn ties(sorted: &[f64]) -> impl Iterator<Item = f64> {
    sorted
        .chunk_by(|a, b| a == b)
        .map(|group| group.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_follow_empirical_distribution() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for percent in 1..=100 {
            assert_eq!(percentile(&hundred, percent.into()), Some(percent.into()));
        }
        assert_eq!(percentile(&hundred, 0.0), Some(1.0));
        assert_eq!(percentile(&hundred, 50.1), Some(51.0));
        // Percentile and median differ here.
        assert_eq!(percentile(&[4.0, 1.0, 3.0, 2.0], 50.0), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(percentile(&[1.0], 100.1), None);
        assert_eq!(percentile(&[], 50.0), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
    }
}
