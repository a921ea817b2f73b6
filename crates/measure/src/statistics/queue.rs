//! Detects whether a DUT stores requests and answers them within their timeout (Lencse et al. 2017, sections 6.6 to
//! 6.9).

use serde::Serialize;

use super::summary::{calculated_rate, dispersion_pct};

/// Maximum ratio of the dispersion of agreeing calculated rates to their expected dispersion for a DUT that stores
/// nothing. Below it the DUT stores requests.
///
/// The medians of a DUT that stores nothing are equal, so dividing them by 1 + timeout / duration adds the full
/// dispersion of the reciprocal of that factor; for a DUT with an unlimited queue nothing of it remains. In tables 1 to
/// 5 of Lencse et al. 2017 the ratio is at most 0.07 for mtd64-ng, 0.60 for TOTD and 0.86 for BIND. A quarter means
/// that a DUT uses three quarters of its timeouts, and allows for the scatter of medians.
const PART_MAX: f64 = 0.25;

/// Maximum ratio of the dispersion of agreeing medians to their expected dispersion for a DUT with an unlimited queue.
/// In the tables above it is 0.14 for BIND and 0.40 for TOTD, which do not store requests according to the paper, and
/// at least 0.98 for mtd64-ng. Half means that a DUT uses less than half of its timeouts.
///
/// Any other DUT is undecided: it stores a part, or its medians differ for another reason than duration and timeout.
/// Medians that scatter more than a queue could explain agree with neither.
const MEDIANS_PART_MAX: f64 = 0.5;

/// A dispersion below this, in per cent, is rounding: all ratios of timeout and duration are equal.
const ROUNDING: f64 = 1e-9;

/// Combined result of several durations and timeouts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueCheck {
    /// median / (1 + timeout / duration) of each row, in queries per second, in row order (Lencse et al. 2017, equation
    /// 1).
    pub calculated: Vec<f64>,
    /// (max - min) / median of the medians, in per cent.
    pub median_dispersion_pct: f64,
    /// (max - min) / median of the calculated rates, in per cent.
    pub calculated_dispersion_pct: f64,
    /// Whether the DUT stores requests. If so, the calculated rates agree and are its sustainable rates; if not, the
    /// medians agree and are. `None` if neither agree: undecided.
    pub stores_requests: Option<bool>,
}

/// Checks rows of duration (seconds), timeout (seconds) and median (queries per second).
///
/// `None` if fewer than two rows differ in timeout / duration, or a number is not finite and above 0.
pub fn check(rows: &[(f64, f64, f64)]) -> Option<QueueCheck> {
    let valid = |number: f64| number.is_finite() && number > 0.0;
    if !rows
        .iter()
        .all(|row| valid(row.0) && valid(row.1) && valid(row.2))
    {
        return None;
    }
    // Medians of a DUT with an unlimited queue, and calculated rates of one without a queue, at one query per second.
    let stored: Vec<f64> = rows.iter().map(|row| 1.0 + row.1 / row.0).collect();
    let stored_pct = dispersion_pct(&stored);
    let unstored: Vec<f64> = rows
        .iter()
        .map(|row| calculated_rate(1.0, row.0, row.1))
        .collect();
    let unstored_pct = dispersion_pct(&unstored);
    if unstored_pct < ROUNDING {
        return None;
    }
    let medians: Vec<f64> = rows.iter().map(|row| row.2).collect();
    let calculated: Vec<f64> = rows
        .iter()
        .map(|row| calculated_rate(row.2, row.0, row.1))
        .collect();
    let calculated_dispersion_pct = dispersion_pct(&calculated);
    let median_dispersion_pct = dispersion_pct(&medians);
    let rates_agree = calculated_dispersion_pct < PART_MAX * unstored_pct;
    let medians_agree = median_dispersion_pct < MEDIANS_PART_MAX * stored_pct;
    Some(QueueCheck {
        calculated,
        median_dispersion_pct,
        calculated_dispersion_pct,
        stores_requests: (rates_agree || medians_agree).then_some(rates_agree),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn threshold_of_a_quarter_is_far_from_ratios_of_papers() {
        let part = |rows: &[(f64, f64, f64)]| {
            let unstored: Vec<_> = rows.iter().map(|row| (row.0, row.1, 1000.0)).collect();
            check(rows).unwrap().calculated_dispersion_pct
                / check(&unstored).unwrap().calculated_dispersion_pct
        };
        let rows = |timeout_s, medians: [f64; 4]| {
            let mut durations_s = [5.0, 10.0, 30.0, 60.0].into_iter();
            medians.map(|median| (durations_s.next().unwrap(), timeout_s, median))
        };
        for (rows, expected) in [
            (rows(1.0, [3448.0, 3161.0, 2971.0, 2926.0]), 0.01),
            (rows(0.5, [3168.0, 3026.0, 2932.0, 2920.0]), 0.06),
            (rows(5.0, [5787.0, 4339.5, 3372.0, 3136.0]), 0.00),
            (rows(1.0, [3552.5, 3506.0, 3480.5, 3471.0]), 0.86),
            (rows(1.0, [2581.0, 2532.5, 2421.5, 2412.0]), 0.60),
        ] {
            assert!(
                (part(&rows) - expected).abs() < 0.006,
                "{rows:?}: {}",
                part(&rows)
            );
        }
    }

    #[test]
    fn scattered_or_intermediate_medians_are_undecided() {
        let rows = |medians: [f64; 3]| {
            let durations_s = [5.0, 10.0, 60.0].into_iter();
            durations_s.zip(medians).map(|(s, median)| (s, 1.0, median))
        };
        let stored = |medians| check(&rows(medians).collect::<Vec<_>>()).unwrap();
        let scattered = stored([1000.0, 2290.0, 1010.0]);
        assert!(scattered.median_dispersion_pct > 127.0, "{scattered:?}");
        assert_eq!(scattered.stores_requests, None);
        // The DUT uses this fraction of its timeouts; all of it would be 1.2, 1.1 and 1.017 times the rate.
        let using = |part: f64| {
            let medians = [5.0, 10.0, 60.0].map(|s| 1000.0 * (1.0 + part / s));
            stored(medians).stores_requests
        };
        let verdicts = [0.0, 0.4, 0.6, 0.7, 0.85, 1.0].map(using);
        let (no, yes) = (Some(false), Some(true));
        assert_eq!(verdicts, [no, no, None, None, yes, yes]);
    }

    #[test]
    fn single_ratio_of_timeout_and_duration_has_no_result() {
        assert_eq!(check(&[]), None);
        assert_eq!(check(&[(60.0, 1.0, 3000.0), (30.0, 0.5, 3100.0)]), None);
        assert_eq!(check(&[(60.0, 1.0, 3000.0), (30.0, 1.0, 0.0)]), None);
        assert_eq!(check(&[(60.0, 1.0, 3000.0), (0.0, 1.0, 3000.0)]), None);
    }

    proptest! {
        #[test]
        fn full_queue_is_detected_and_missing_queue_is_not(
            sustainable in 100.0..1e6f64,
            timeout_s in 0.1..5.0f64,
            durations_s in prop::collection::btree_set(1..120u32, 2..6),
        ) {
            let rows = |stored: f64| -> Vec<_> {
                let durations = durations_s.iter().map(|duration_s| f64::from(*duration_s));
                durations.map(|s| (s, timeout_s, sustainable * (1.0 + stored * timeout_s / s))).collect()
            };
            let full = check(&rows(1.0)).unwrap();
            prop_assert_eq!(full.stores_requests, Some(true), "{:?}", full);
            for rate in full.calculated {
                prop_assert!((rate / sustainable - 1.0).abs() < 1e-9);
            }
            prop_assert_eq!(check(&rows(0.0)).unwrap().stores_requests, Some(false));
        }
    }
}
