//! The papers' models of the work for a query.
//!
//! Equations (7) and (8) of paper 000 both say that 1 / rate falls in a straight line with a share:
//! of names that have an AAAA record, each of which saves the query for A and the synthesis, or of
//! queries for cached names, each of which saves all that is asked upstream.

use serde::Serialize;

/// Fewer distinct shares cannot contradict a straight line.
const SHARES_MIN: usize = 3;

/// A total below this, relative to that of 1 / rate, is rounding: the rates are all equal.
const ROUNDING: f64 = 1e-20;

/// 1 / rate = full_s - share * saved_s, as near to the measured rates as can be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Seconds of work for a query at share 0: TC + 2 TA + TS in the terms of the paper, divided by
    /// its alpha or beta (as many queries as are worked on side by side).
    pub full_s: f64,
    /// Seconds that a query of the share saves: TA + TS in equation (7), 2 TA + TS in (8), divided
    /// likewise. Negative if it costs more.
    pub saved_s: f64,
    /// Coefficient of determination of 1 / rate, weighted like the fit; 1 if all rates are equal.
    pub r_squared: f64,
    /// What the model says, in queries per second, in the order of the cells.
    pub fitted: Vec<f64>,
    /// Largest difference of a fitted and a measured rate, in per cent of the measured.
    pub residual_pct_max: f64,
}

/// Fits the model to cells of share (0 to 1) and rate (queries per second).
///
/// By least squares of 1 / rate, each weighted by the square of the rate: a residual then counts by
/// what it is of its own cell, so that an error of 1 % is the same at 3,656 and at 32,050 queries per
/// second. Rates scatter in proportion to themselves (tables 1 to 7 of paper 000), so that this is
/// also the weighting by the inverse of the variance.
///
/// `None` for fewer than three distinct shares, for a share out of 0 to 1, for a rate that is not
/// finite and above 0, and if the best line has no work left at one of the cells.
pub fn fit(cells: &[(f64, f64)]) -> Option<Fit> {
    let valid = |&(share, rate): &(f64, f64)| {
        (0.0..=1.0).contains(&share) && rate.is_finite() && rate > 0.0
    };
    if !cells.iter().all(valid) || distinct_shares(cells) < SHARES_MIN {
        return None;
    }
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        cells
            .iter()
            .map(|&(share, rate)| rate * rate * of(share, 1.0 / rate))
            .sum()
    };
    let weight = sum(&|_, _| 1.0);
    let share_mean = sum(&|share, _| share) / weight;
    let work_mean = sum(&|_, work| work) / weight;
    let slope = sum(&|share, work| (share - share_mean) * (work - work_mean))
        / sum(&|share, _| (share - share_mean).powi(2));
    let full_s = work_mean - slope * share_mean;
    let works: Vec<f64> = cells.iter().map(|cell| full_s + slope * cell.0).collect();
    if works.iter().any(|work| !work.is_finite() || *work <= 0.0) {
        return None;
    }
    let total = sum(&|_, work| (work - work_mean).powi(2));
    let left = sum(&|share, work| (work - full_s - slope * share).powi(2));
    let fitted: Vec<f64> = works.iter().map(|work| 1.0 / work).collect();
    let residuals = cells
        .iter()
        .zip(&fitted)
        .map(|(cell, rate)| (rate / cell.1 - 1.0).abs());
    Some(Fit {
        full_s,
        saved_s: -slope,
        r_squared: if total > ROUNDING * cells.len() as f64 {
            1.0 - left / total
        } else {
            1.0
        },
        residual_pct_max: residuals.fold(0.0, f64::max) * 100.0,
        fitted,
    })
}

/// How many different shares there are.
fn distinct_shares(cells: &[(f64, f64)]) -> usize {
    let mut shares: Vec<f64> = cells.iter().map(|cell| cell.0).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    shares.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_no_line_can_explain_has_no_fit() {
        let cells = [(0.0, 100.0), (0.5, 150.0), (1.0, 300.0)];
        assert!(fit(&cells).is_some());
        assert_eq!(fit(&cells[..2]), None);
        assert_eq!(fit(&[(0.0, 100.0), (0.0, 101.0), (1.0, 300.0)]), None);
        for broken in [(0.5, 0.0), (0.5, f64::NAN), (1.5, 100.0), (f64::NAN, 100.0)] {
            assert_eq!(
                fit(&[cells[0], broken, cells[1], cells[2]]),
                None,
                "{broken:?}"
            );
        }
        // Many cells whose line is below no work at all where a single one is slow.
        let mut steep = [(0.1, 0.5), (0.2, 1.0)].repeat(100);
        steep.push((1.0, 0.01));
        assert_eq!(fit(&steep), None);
    }

    #[test]
    fn equal_rates_save_nothing_and_are_explained() {
        let found = fit(&[(0.0, 4000.0), (0.3, 4000.0), (1.0, 4000.0)]).unwrap();
        assert!(
            found.saved_s.abs() < 1e-15 && found.residual_pct_max < 1e-9,
            "{found:?}"
        );
        assert_eq!(found.r_squared, 1.0);
    }

    #[test]
    fn an_error_of_one_pct_counts_alike_in_slow_and_fast_cells() {
        let exact = |share: f64| 1.0 / (1e-3 - share * 9e-4);
        let shares = [0.0, 0.25, 0.5, 0.75, 1.0];
        let spoilt = |spoilt: usize| {
            let cells: Vec<_> = shares
                .iter()
                .enumerate()
                .map(|(i, &s)| (s, exact(s) * if i == spoilt { 1.01 } else { 1.0 }))
                .collect();
            fit(&cells).unwrap().residual_pct_max
        };
        for place in 0..shares.len() {
            assert!(spoilt(place) < 1.0, "{}", spoilt(place));
        }
    }

    proptest! {
        #[test]
        fn exact_rates_give_their_parameters_back(
            full_s in 1e-7..1e-2f64,
            saved in -3.0..0.99f64,
            shares in prop::collection::btree_set(0..=100u32, 3..12),
        ) {
            let saved_s = saved * full_s;
            let cell = |share: f64| (share, 1.0 / (full_s - share * saved_s));
            let cells: Vec<_> = shares.iter().map(|s| cell(f64::from(*s) / 100.0)).collect();
            let found = fit(&cells).unwrap();
            prop_assert!((found.full_s / full_s - 1.0).abs() < 1e-6, "{:?}", found);
            prop_assert!((found.saved_s - saved_s).abs() < 1e-6 * full_s, "{:?}", found);
            prop_assert!(found.residual_pct_max < 1e-4, "{:?}", found);
            prop_assert_eq!(found.fitted.len(), cells.len());
        }
    }
}
