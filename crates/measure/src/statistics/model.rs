//! The papers' models of the work per query and of the reply time.
//!
//! By equations (4) and (5) of Lencse et al. 2017 the reply time decreases linearly with one share, by (6) with both.
//! Equations (7) and (8) of Lencse et al. 2017 say that 1 / rate decreases linearly with a share. It is the share of
//! names with an AAAA record, each of which saves the query for A and the synthesis, or the share of queries for cached
//! names, each of which saves all upstream queries.

use serde::Serialize;

/// Minimum number of distinct shares: fewer cannot contradict a straight line.
const SHARES_MIN: usize = 3;

/// Returns whether a fit with this number of parameters to this number of cells can be judged: it needs three more
/// cells than parameters. Random cells fit a straight line with an R² of 0.99 one time in twenty with three cells, and
/// of 0.77 with five (the critical values of the correlation coefficient at 5 %).
pub fn can_judge(cells: usize, parameters: usize) -> bool {
    cells >= parameters + CELLS_MORE
}

/// Returns the probability that a fit of two or three parameters, one of them a constant, has this R² or a higher one if
/// the cells are random (normal): the F-test of the whole fit. For two parameters that is the two-sided t-test of the slope,
/// and below 0.05 the 95 % confidence interval of the slope leaves out zero (Abramowitz and Stegun, 26.7.3 and 26.7.4).
pub fn p_of_fit(r_squared: f64, cells: usize, parameters: usize) -> f64 {
    let (explained, left) = (r_squared.clamp(0.0, 1.0), 1.0 - r_squared.clamp(0.0, 1.0));
    let freedom = cells.saturating_sub(parameters);
    if freedom == 0 {
        return 1.0;
    }
    if parameters != 2 {
        return left.powf(freedom as f64 / 2.0);
    }
    let (sine, cosine) = (explained.sqrt(), left.sqrt());
    let is_odd = freedom % 2 == 1;
    // The terms of the series: each is the one before, times an odd and an even number and the squared cosine.
    let mut term = if is_odd { cosine } else { 1.0 };
    let mut sum = 0.0;
    for factor in (2 + usize::from(is_odd)..=freedom).step_by(2) {
        sum += term;
        term *= left * (factor - 1) as f64 / factor as f64;
    }
    let inside = match is_odd {
        true => (sine.asin() + sine * sum) * std::f64::consts::FRAC_2_PI,
        false => sine * sum,
    };
    (1.0 - inside).clamp(0.0, 1.0)
}

/// Minimum number of cells in excess of the parameters.
pub const CELLS_MORE: usize = 3;

/// A total sum of squares below this, relative to that of 1 / rate, is rounding: all rates are equal.
const ROUNDING: f64 = 1e-20;

/// Fit of 1 / rate = full_s - share * saved_s to the measured rates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Work per query at share 0, in seconds: TC + 2 TA + TS in the terms of the paper, divided by its alpha or beta
    /// (the number of queries processed in parallel).
    pub full_s: f64,
    /// Work that a query of the share saves, in seconds: TA + TS in equation (7), 2 TA + TS in (8), divided likewise.
    /// Negative if it costs more.
    pub saved_s: f64,
    /// Coefficient of determination of 1 / rate, weighted like the fit; 1 if all rates are equal.
    pub r_squared: f64,
    /// Rates of the model, in queries per second, in the order of the cells.
    pub fitted: Vec<f64>,
    /// Largest difference of a fitted and a measured rate, in per cent of the measured rate.
    pub residual_pct_max: f64,
}

/// Fits the model to cells of share (0 to 1) and rate (queries per second).
///
/// Least squares of 1 / rate, each weighted by the square of the rate. A residual thus counts relative to its own cell:
/// an error of 1 % is the same at 3,656 and at 32,050 queries per second. The scatter of rates is proportional to the
/// rates (tables 1 to 7 of Lencse et al. 2017), so this is also the weighting by the inverse of the variance.
///
/// `None` for fewer than three distinct shares, a share outside 0 to 1, a rate that is not finite and above 0, or if
/// the fitted work is not positive at one of the cells.
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

/// Fit of time = `rest_s` + (1 - cached) * (`answer_s` + (1 - aaaa) * (`answer_s` + `synthesis_s`)) to the
/// measurements: equation (6), in whose terms these are TQ + TC + TR, TA and TS. For work, TQ and TR are omitted and
/// all are divided by alpha.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BothFit {
    /// Seconds that every query takes.
    pub rest_s: f64,
    /// Seconds for a response of the authority. Negative if the cells contradict the model.
    pub answer_s: f64,
    /// Seconds for a synthesis. Negative if the cells contradict the model.
    pub synthesis_s: f64,
    /// As in [`Fit`].
    pub r_squared: f64,
    /// As in [`Fit`].
    pub fitted: Vec<f64>,
}

/// Fits equation (6) to cells of AAAA share, cached share (0 to 1) and rate (queries per second), or 1 / reply time.
///
/// Least squares of 1 / rate, weighted as in [`fit`].
///
/// `None` for fewer than four cells, cells that do not determine all three times, such as those of one share alone, a
/// share outside 0 to 1, a rate that is not finite and above 0, or if the fitted time is not positive at one of the
/// cells.
pub fn fit_both(cells: &[(f64, f64, f64)]) -> Option<BothFit> {
    let share = |share: f64| (0.0..=1.0).contains(&share);
    let valid =
        |&(a, c, rate): &(f64, f64, f64)| share(a) && share(c) && rate.is_finite() && rate > 0.0;
    if cells.len() < BOTH_CELLS_MIN || !cells.iter().all(valid) {
        return None;
    }
    let parts = |a: f64, c: f64| [1.0, 1.0 - c, (1.0 - c) * (1.0 - a)];
    let fastest = cells.iter().map(|cell| cell.2).fold(0.0, f64::max);
    let mut system = [[0.0; 4]; 3];
    for &(a, c, rate) in cells {
        // For each cell the parts add up to 1 / rate; multiplied by the rate, to 1.
        let weighted = parts(a, c).map(|part| part * rate / fastest);
        for (row, left) in system.iter_mut().zip(weighted) {
            for (value, part) in row.iter_mut().zip(weighted) {
                *value += left * part;
            }
            row[3] += left;
        }
    }
    let times = solve(system)?.map(|time| time / fastest);
    let time = |a, c| -> f64 { parts(a, c).iter().zip(times).map(|(p, t)| p * t).sum() };
    let works: Vec<f64> = cells.iter().map(|&(a, c, _)| time(a, c)).collect();
    if works.iter().any(|work| !work.is_finite() || *work <= 0.0) {
        return None;
    }
    let weight: f64 = cells.iter().map(|cell| cell.2 * cell.2).sum();
    let mean = cells.iter().map(|cell| cell.2).sum::<f64>() / weight;
    let total: f64 = cells.iter().map(|cell| (1.0 - mean * cell.2).powi(2)).sum();
    let left = cells.iter().zip(&works);
    let left: f64 = left.map(|(cell, work)| (1.0 - work * cell.2).powi(2)).sum();
    let explained = total <= ROUNDING * cells.len() as f64;
    Some(BothFit {
        rest_s: times[0],
        answer_s: times[1],
        synthesis_s: times[2] - times[1],
        r_squared: if explained { 1.0 } else { 1.0 - left / total },
        fitted: works.iter().map(|work| 1.0 / work).collect(),
    })
}

/// Minimum number of cells: three cannot contradict three times.
const BOTH_CELLS_MIN: usize = 4;

/// A pivot below this, relative to the largest value, means that the times are not determined.
const PIVOT_MIN: f64 = 1e-9;

/// Solves three equations in three unknowns, each row with its right side last, by elimination with the largest pivot.
fn solve(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    let largest = rows
        .iter()
        .flatten()
        .fold(0.0, |most: f64, value| most.max(value.abs()));
    for column in 0..3 {
        let pivot =
            (column..3).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        let lead = rows[column];
        if lead[column].abs() <= PIVOT_MIN * largest {
            return None;
        }
        for (place, row) in rows.iter_mut().enumerate() {
            if place == column {
                continue;
            }
            let factor = row[column] / lead[column];
            for (value, above) in row.iter_mut().zip(lead) {
                *value -= factor * above;
            }
        }
    }
    Some([0, 1, 2].map(|place| rows[place][3] / rows[place][place]))
}

/// Number of distinct shares.
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
    fn cells_without_valid_line_have_no_fit() {
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
        // Many cells whose line is below zero at a single slow one.
        let mut steep = [(0.1, 0.5), (0.2, 1.0)].repeat(100);
        steep.push((1.0, 0.01));
        assert_eq!(fit(&steep), None);
    }

    #[test]
    fn probability_of_a_fit_is_that_of_tables() {
        // Critical correlations of tables at 5 %, two-sided, and one at 1 %.
        for (cells, correlation, p) in [
            (3, 0.996_917, 0.05),
            (4, 0.950_000, 0.05),
            (5, 0.878_339, 0.05),
            (6, 0.811_401, 0.05),
            (7, 0.754_492, 0.05),
            (12, 0.575_983, 0.05),
            (6, 0.917_200, 0.01),
        ] {
            let found = p_of_fit(correlation * correlation, cells, 2);
            assert!((found - p).abs() < 1e-4, "{cells}: {found}");
        }
        // F(2, 3) = 9.5521 at 5 %: R² is 2 F / (2 F + 3).
        let r_squared = 2.0 * 9.5521 / (2.0 * 9.5521 + 3.0);
        assert!((p_of_fit(r_squared, 6, 3) - 0.05).abs() < 1e-4);
        assert_eq!([p_of_fit(1.0, 6, 2), p_of_fit(0.0, 6, 2)], [0.0, 1.0]);
        assert_eq!(p_of_fit(0.9, 2, 2), 1.0);
        assert!(p_of_fit(0.0066, 6, 2) > 0.8);
    }

    #[test]
    fn equal_rates_have_zero_saving_and_full_r_squared() {
        let found = fit(&[(0.0, 4000.0), (0.3, 4000.0), (1.0, 4000.0)]).unwrap();
        assert!(
            found.saved_s.abs() < 1e-15 && found.residual_pct_max < 1e-9,
            "{found:?}"
        );
        assert_eq!(found.r_squared, 1.0);
    }

    #[test]
    fn relative_errors_weigh_equally_in_slow_and_fast_cells() {
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

    #[test]
    fn cells_of_both_shares_determine_three_times() {
        let (rest_s, answer_s, synthesis_s) = (30e-6, 100e-6, 5e-6);
        let cell = |a: f64, c: f64| {
            let time = rest_s + (1.0 - c) * (answer_s + (1.0 - a) * (answer_s + synthesis_s));
            (a, c, 1.0 / time)
        };
        let aaaa = [
            cell(0.0, 0.0),
            cell(0.5, 0.0),
            cell(0.75, 0.0),
            cell(1.0, 0.0),
        ];
        assert_eq!(fit_both(&aaaa), None, "TC and TA are not separable");
        let cached = [
            cell(0.0, 0.0),
            cell(0.0, 0.5),
            cell(0.0, 0.75),
            cell(0.0, 1.0),
        ];
        assert_eq!(fit_both(&cached), None, "TA and TS are not separable");
        let crossed = [aaaa[0], aaaa[1], cached[1], cached[3]];
        assert_eq!(fit_both(&crossed[..3]), None);
        let found = fit_both(&crossed).unwrap();
        for (found, due) in [
            (found.rest_s, rest_s),
            (found.answer_s, answer_s),
            (found.synthesis_s, synthesis_s),
            (found.r_squared, 1.0),
        ] {
            assert!((found / due - 1.0).abs() < 1e-6, "{found} instead of {due}");
        }
        let mut broken = crossed;
        broken[2].2 = 0.0;
        assert_eq!(fit_both(&broken), None);
    }

    #[test]
    fn tables_6_and_7_have_negative_synthesis() {
        // Both tables are from the same BIND: an AAAA saves 104 us and the cache 240 us. TA alone is therefore 136 us,
        // and TS is negative.
        let table = |medians: [f64; 6], at: fn(f64) -> (f64, f64)| {
            let shares = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0].map(at).into_iter();
            let cells = shares.zip(medians);
            cells.map(|((a, c), rate)| (a, c, rate)).collect::<Vec<_>>()
        };
        let mut cells = table([3682.0, 3980.0, 4338.0, 4771.0, 5291.0, 5976.0], |a| {
            (a, 0.0)
        });
        cells.extend(table(
            [3656.0, 4466.0, 5684.0, 7782.0, 13_157.0, 32_050.0],
            |c| (0.0, c),
        ));
        let found = fit_both(&cells).unwrap();
        assert!(found.answer_s > 130e-6, "{found:?}");
        assert!(found.synthesis_s < -25e-6, "{found:?}");
        assert!(found.r_squared > 0.999, "{found:?}");
    }

    proptest! {
        #[test]
        fn exact_rates_recover_their_parameters(
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
