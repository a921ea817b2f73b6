//! Detects whether a figure rises or falls.

use serde::Serialize;

use super::normal::two_sided_p;
use super::quantile::median;
use super::quantile::{sorted, ties};

/// Minimum number of points of a trend: even four in order have a probability of 8 %.
const POINTS_MIN: usize = 4;

/// A line through points, and its significance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// Theil-Sen estimate: the median of the slopes between all pairs of points, in the units of the points. Robust
    /// against outliers.
    pub slope: f64,
    /// Mann-Kendall p-value, two-sided.
    pub p: f64,
}

/// Returns slope and test of `points`, pairs of abscissa and figure in any order.
///
/// The test is Kendall's with the normal approximation, corrected for continuity and for ties of abscissas and figures
/// (Kendall, "Rank correlation methods", chapter 4). For few points it is conservative at small probabilities: six in
/// order get 0.0085 instead of 0.0028. Time and memory are proportional to the number of pairs: some thousands of
/// points are fine.
///
/// `None` for fewer than four points, for points at one abscissa, or if a number is not finite.
pub fn trend(points: &[(f64, f64)]) -> Option<Trend> {
    let (abscissas, figures): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (abscissas, figures) = (sorted(&abscissas)?, sorted(&figures)?);
    if points.len() < POINTS_MIN {
        return None;
    }
    let mut slopes = Vec::with_capacity(points.len() * (points.len() - 1) / 2);
    let mut score = 0.0;
    for (place, first) in points.iter().enumerate() {
        for second in &points[place + 1..] {
            let (run, rise) = (second.0 - first.0, second.1 - first.1);
            if run != 0.0 {
                slopes.push(rise / run);
                score += if rise == 0.0 {
                    0.0
                } else {
                    rise.signum() * run.signum()
                };
            }
        }
    }
    let variance = variance_of_score(&abscissas, &figures);
    let p = if variance > 0.0 {
        two_sided_p((f64::abs(score) - 1.0).max(0.0) / variance.sqrt())
    } else {
        1.0
    };
    Some(Trend {
        slope: median(&slopes)?,
        p,
    })
}

/// Returns the variance of Kendall's score without a trend (ibid., equation 4.4), from the values in ascending order.
fn variance_of_score(abscissas: &[f64], figures: &[f64]) -> f64 {
    let n = abscissas.len() as f64;
    let sum = |values: &[f64], of: fn(f64) -> f64| ties(values).map(of).sum::<f64>();
    let product = |of: fn(f64) -> f64| sum(abscissas, of) * sum(figures, of);
    let pairs = |t: f64| t * (t - 1.0);
    let triples = |t: f64| t * (t - 1.0) * (t - 2.0);
    let spread = |t: f64| t * (t - 1.0) * (2.0 * t + 5.0);
    (spread(n) - sum(abscissas, spread) - sum(figures, spread)) / 18.0
        + product(triples) / (9.0 * triples(n))
        + product(pairs) / (2.0 * pairs(n))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn series(figures: &[f64]) -> Vec<(f64, f64)> {
        (0..figures.len())
            .map(|place| place as f64)
            .zip(figures.iter().copied())
            .collect()
    }

    #[track_caller]
    fn assert_trend(points: &[(f64, f64)], slope: f64, p: f64) {
        let found = trend(points).unwrap();
        assert!((found.slope - slope).abs() < 1e-9, "{found:?}");
        assert!((found.p / p - 1.0).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn worked_example_has_published_statistics() {
        // J. Little, College of the Holy Cross, "A Mann-Kendall example (by hand)": S = 54, one pair
        // of equal values, Z = 2.9058.
        let figures = [
            12.9, 14.8, 13.2, 15.7, 13.8, 15.6, 12.9, 11.0, 17.3, 15.9, 19.0, 18.3, 20.1, 21.7,
        ];
        assert_trend(&series(&figures), 0.566_666_666_667, 0.003_662_723_763_9);
    }

    #[test]
    fn canned_tuna_has_no_trend() {
        // Hollander and Wolfe, example 8.1: 26 of 36 pairs agree, so S = 16; exact p = 0.119.
        let points = [
            (44.4, 2.6),
            (45.9, 3.1),
            (41.9, 2.5),
            (53.3, 5.0),
            (44.7, 3.6),
            (44.1, 4.0),
            (50.7, 5.2),
            (45.2, 2.8),
            (60.1, 3.8),
        ];
        let found = trend(&points).unwrap();
        assert!((found.p - 0.117_850_895).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn ties_on_both_sides_lower_the_variance() {
        // S = 21; the variance is that of SciPy's `kendalltau`, with the correction for continuity.
        let points = [
            (1.0, 1.0),
            (1.0, 2.0),
            (2.0, 2.0),
            (2.0, 3.0),
            (3.0, 3.0),
            (4.0, 3.0),
            (5.0, 5.0),
            (5.0, 4.0),
        ];
        let found = trend(&points).unwrap();
        assert!((found.p - 0.008_691_011).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn few_points_have_conservative_p() {
        assert_eq!(trend(&series(&[1.0, 2.0, 3.0])), None);
        let found = trend(&series(&[1.0, 2.0, 3.0, 4.0])).unwrap();
        assert!((found.p - 0.0894).abs() < 1e-4, "{found:?}");
        let found = trend(&series(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
        assert!((found.p - 0.0085).abs() < 1e-4, "{found:?}");
    }

    #[test]
    fn points_without_slope_have_no_trend() {
        assert_eq!(
            trend(&[(1.0, 5.0), (1.0, 6.0), (1.0, 7.0), (1.0, 8.0)]),
            None
        );
        assert_eq!(trend(&series(&[1.0, 2.0, 3.0, f64::NAN])), None);
        assert_eq!(
            trend(&series(&[7.0; 5])),
            Some(Trend { slope: 0.0, p: 1.0 })
        );
    }

    proptest! {
        #[test]
        fn order_of_points_is_irrelevant_and_down_mirrors_up(
            points in prop::collection::vec((0..50i32, -20..20i32), 4..40),
        ) {
            let points: Vec<(f64, f64)> =
                points.into_iter().map(|(x, y)| (x.into(), y.into())).collect();
            let mut reversed = points.clone();
            reversed.reverse();
            let found = trend(&points);
            prop_assert_eq!(found, trend(&reversed));
            let mirrored: Vec<_> = points.iter().map(|point| (point.0, -point.1)).collect();
            if let (Some(found), Some(mirrored)) = (found, trend(&mirrored)) {
                prop_assert_eq!(found.slope, -mirrored.slope);
                prop_assert_eq!(found.p, mirrored.p);
                prop_assert!((0.0..=1.0).contains(&found.p));
            }
        }
    }
}
