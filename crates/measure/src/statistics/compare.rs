//! Compares two sets of runs: size and significance of the difference.

use serde::Serialize;

use super::bootstrap::{self, VALUES_MIN};
use super::normal::two_sided_p;
use super::quantile::median_of_sorted;
use super::quantile::{sorted, ties};

/// Maximum number of values per side for the exact probability, without ties; above it the normal approximation is
/// sufficient (the limit of R's `wilcox.test`).
const EXACT_MAX: usize = 49;

/// Difference of `b` from `a`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Median of `a`.
    pub median_a: f64,
    /// Median of `b`.
    pub median_b: f64,
    /// (median of b - median of a) / median of a.
    pub change_pct: f64,
    /// Hodges-Lehmann estimate: the median of all differences of a value of `b` and a value of `a`, in their unit.
    pub shift: f64,
    /// 95 % bootstrap interval of the shift.
    pub shift_interval: (f64, f64),
    /// Mann-Whitney p-value, two-sided.
    pub p: f64,
}

/// Compares `b` with `a`, regardless of the order of their values.
///
/// Time and memory are proportional to the number of pairs: suitable for hundreds of runs, not for single queries.
///
/// `None` for fewer than three values on a side, or if one is not finite.
pub fn compare(a: &[f64], b: &[f64]) -> Option<Change> {
    let (a, b) = (sorted(a)?, sorted(b)?);
    if a.len().min(b.len()) < VALUES_MIN {
        return None;
    }
    let pairs = differences(&a, &b);
    let wins = pairs.iter().filter(|pair| pair.0 > 0.0).count() as f64;
    let draws = pairs.iter().filter(|pair| pair.0 == 0.0).count() as f64;
    let (median_a, median_b) = (median_of_sorted(&a)?, median_of_sorted(&b)?);
    let plain: Vec<f64> = pairs.iter().map(|pair| pair.0).collect();
    Some(Change {
        median_a,
        median_b,
        change_pct: (median_b - median_a) / median_a * 100.0,
        shift: median_of_sorted(&plain)?,
        shift_interval: shift_interval(&pairs, a.len(), b.len()),
        p: mann_whitney(&a, &b, wins + draws / 2.0),
    })
}

/// Returns all differences b - a in ascending order, with the indices of both values.
fn differences(a: &[f64], b: &[f64]) -> Vec<(f64, usize, usize)> {
    let of_b = |(j, b): (usize, &f64)| {
        let b = *b;
        a.iter().enumerate().map(move |(i, a)| (b - a, i, j))
    };
    let mut pairs: Vec<_> = b.iter().enumerate().flat_map(of_b).collect();
    pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
    pairs
}

/// Returns the interval of the shift; both sides are resampled.
fn shift_interval(pairs: &[(f64, usize, usize)], of_a: usize, of_b: usize) -> (f64, f64) {
    let (mut counts_a, mut counts_b) = (vec![0; of_a], vec![0; of_b]);
    bootstrap::interval(pairs.len(), |random| {
        bootstrap::sample(random, &mut counts_a);
        bootstrap::sample(random, &mut counts_b);
        let weighted = pairs
            .iter()
            .map(|&(value, i, j)| (value, counts_a[i] * counts_b[j]));
        bootstrap::weighted_median(weighted, pairs.len() as u64)
    })
}

/// Returns the two-sided p-value of `u`, the number of pairs in which `b` is larger plus half of the equal pairs (Mann
/// and Whitney, 1947): exact for few values without ties, otherwise by the normal approximation, corrected for ties and
/// continuity.
fn mann_whitney(a: &[f64], b: &[f64], u: f64) -> f64 {
    let all = sorted(&[a, b].concat()).unwrap_or_default();
    let pairs = a.len() as f64 * b.len() as f64;
    let tied: f64 = ties(&all).map(|t| t * (t * t - 1.0)).sum();
    if tied == 0.0 && a.len().max(b.len()) <= EXACT_MAX {
        return exact_p(a.len(), b.len(), u.min(pairs - u));
    }
    let n = all.len() as f64;
    let variance = pairs / 12.0 * (n + 1.0 - tied / (n * (n - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((u - pairs / 2.0).abs() - 0.5).max(0.0);
    two_sided_p(distance / variance.sqrt())
}

/// Returns twice the fraction of all arrangements of `of_a` and `of_b` values whose U is at most `u`.
fn exact_p(of_a: usize, of_b: usize, u: f64) -> f64 {
    // ways[taken][sum]: number of sets of `taken` ranks with this sum, each rank reduced by the number of lower ranks
    // in the set, so that the sum is U. The ranks are added one by one.
    let mut ways = vec![vec![0.0; of_a * of_b + 1]; of_a + 1];
    ways[0][0] = 1.0;
    for rank in 0..of_a + of_b {
        for taken in (1..=of_a.min(rank + 1)).rev() {
            let above = rank + 1 - taken;
            let (less, more) = ways.split_at_mut(taken);
            let shifted = more[0].iter_mut().skip(above);
            for (way, before) in shifted.zip(&less[taken - 1]) {
                *way += before;
            }
        }
    }
    let sets = &ways[of_a];
    let all: f64 = sets.iter().sum();
    let places = sets.iter().enumerate();
    let tail: f64 = places
        .filter(|(sum, _)| *sum as f64 <= u)
        .map(|(_, way)| way)
        .sum();
    (2.0 * tail / all).min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn assert_p(a: &[f64], b: &[f64], p: f64) {
        let found = compare(a, b).unwrap();
        assert!((found.p - p).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn permeability_constants_have_published_figures() {
        // Hollander and Wolfe, table 4.1: U = 35 of 50, one-sided p = 0.127, estimate 0.305.
        let at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let early = [1.15, 0.88, 0.90, 0.74, 1.21];
        assert_p(&early, &at_term, 0.254_412_254_412_254);
        let found = compare(&early, &at_term).unwrap();
        assert!((found.shift - 0.305).abs() < 1e-9, "{found:?}");
        assert!(
            found.shift_interval.0 < 0.0 && found.shift_interval.1 > 0.305,
            "{found:?}"
        );
    }

    #[test]
    fn probabilities_match_other_implementations() {
        // SciPy's documentation of `mannwhitneyu`: U = 17 of 20, exactly 1/9.
        assert_p(
            &[20.0, 11.0, 17.0, 12.0],
            &[19.0, 22.0, 16.0, 29.0, 24.0],
            1.0 / 9.0,
        );
        // Ties: SciPy, normal approximation.
        let a = [1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0];
        let b = [2.0, 4.0, 5.0, 5.0, 7.0, 8.0, 8.0, 9.0, 9.0];
        assert_p(&a, &b, 0.032_407_073_445_918);
        // Twenty and eighteen values without ties: SciPy, exact.
        let a: Vec<f64> = (0..20).map(|i| f64::from(i * 37 % 101)).collect();
        let b: Vec<f64> = (0..18).map(|i| f64::from(i * 53 % 103) + 12.5).collect();
        assert_p(&a, &b, 0.828_466_619_710_387);
    }

    #[test]
    fn approximation_is_continuous_with_exact_count() {
        let a: Vec<f64> = (0..50).map(f64::from).collect();
        let b: Vec<f64> = (0..50).map(|i| f64::from(i) + 5.5).collect();
        let approximate = compare(&a, &b).unwrap().p;
        // In b, which is 5.5 higher, value i is above the first i + 6 values of a, at most all.
        let above: u32 = (0..50).map(|i| (i + 6).min(50)).sum();
        let exact = exact_p(50, 50, f64::from(2500 - above));
        assert!(
            (approximate / exact - 1.0).abs() < 0.03,
            "{exact} {approximate}"
        );
    }

    #[test]
    fn separate_runs_differ_and_equal_runs_do_not() {
        let slow = [1000.0, 1010.0, 1020.0, 1030.0];
        let found = compare(&slow, &slow.map(|rate| rate * 1.2)).unwrap();
        assert_eq!((found.median_a, found.median_b), (1015.0, 1218.0));
        assert!((found.change_pct - 20.0).abs() < 1e-9);
        assert!((found.p - 2.0 / 70.0).abs() < 1e-12);
        assert!(found.shift_interval.0 > 150.0, "{found:?}");

        let found = compare(&[7.0; 5], &[7.0; 5]).unwrap();
        assert_eq!((found.shift, found.shift_interval), (0.0, (0.0, 0.0)));
        assert!((found.p - 1.0).abs() < 1e-12);

        assert_eq!(compare(&slow, &[1.0, 2.0]), None);
        assert_eq!(compare(&slow, &[1.0, 2.0, f64::NAN]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn exchanged_sides_invert_signs(
            a in prop::collection::vec(0..2000i32, 3..9),
            b in prop::collection::vec(0..2000i32, 3..9),
        ) {
            let [a, b]: [Vec<f64>; 2] = [a, b].map(|side| side.into_iter().map(f64::from).collect());
            let (there, back) = (compare(&a, &b).unwrap(), compare(&b, &a).unwrap());
            prop_assert_eq!(there.shift, -back.shift);
            prop_assert!((there.p - back.p).abs() < 1e-12);
            prop_assert!(0.0 < there.p && there.p <= 1.0);
            prop_assert!(there.shift_interval.0 <= there.shift_interval.1);
        }
    }
}
