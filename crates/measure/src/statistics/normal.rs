//! The tail probability of the normal distribution, for the tests of [`super::trend`] and [`super::compare`].

use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

/// Upper bound of the series; the continued fraction is used above it. Here both give at least 12 digits.
const SERIES_MAX: f64 = 2.0;

/// Terms of the series and depth of the continued fraction; twice what 12 digits need at [`SERIES_MAX`], where both
/// converge slowest.
const TERMS: u32 = 120;

/// Returns the probability that a standard normal variable is at least as far from 0 as `z`.
pub(super) fn two_sided_p(z: f64) -> f64 {
    complementary_error(z.abs() / SQRT_2).clamp(0.0, 1.0)
}

/// Returns erfc(x) for x >= 0: the series DLMF 7.6.2, which has no cancellation, or the continued fraction DLMF 7.9.1.
fn complementary_error(x: f64) -> f64 {
    let square = x * x;
    if x < SERIES_MAX {
        let mut term = x;
        let mut sum = x;
        for k in 1..TERMS {
            term *= 2.0 * square / f64::from(2 * k + 1);
            sum += term;
        }
        1.0 - FRAC_2_SQRT_PI * (-square).exp() * sum
    } else {
        let fraction = (1..TERMS)
            .rev()
            .fold(x, |tail, k| x + f64::from(k) / 2.0 / tail);
        FRAC_2_SQRT_PI / 2.0 * (-square).exp() / fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_quantiles_have_their_probabilities() {
        // Quantiles of 95, 99 and 99.9 %, and the sigmas 1, 3 and 6.
        for (z, p) in [
            (0.0, 1.0),
            (1.0, 0.317_310_507_862_914),
            (1.959_963_984_540_054, 0.05),
            (2.575_829_303_548_901, 0.01),
            (3.0, 0.002_699_796_063_260),
            (3.290_526_731_491_896, 0.001),
            (6.0, 1.973_175_290_075_4e-9),
        ] {
            let found = two_sided_p(z);
            assert!((found / p - 1.0).abs() < 1e-11, "{z}: {found} for {p}");
            assert!((two_sided_p(-z) - found).abs() < 1e-15);
        }
        let below = complementary_error(SERIES_MAX - 1e-12);
        let above = complementary_error(SERIES_MAX);
        assert!((below / above - 1.0).abs() < 1e-10, "{below} {above}");
        assert_eq!(two_sided_p(1e9), 0.0);
    }
}
