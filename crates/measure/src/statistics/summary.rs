//! Summarises the runs of one point (RFC 8219 section 9.2 and Lencse et al. 2017, section 6.6).

use schemars::JsonSchema;
use serde::Serialize;

use super::agreement::INTERVAL_RUNS_MIN;
use super::quantile::{median, median_of_sorted, percentile_of_sorted, sorted};
use super::{bootstrap, trend};

/// Number of standard deviations from the mean that contain 99.9 % of a normal distribution. The margins of tables 1 to
/// 5 of Lencse et al. 2017 use it, not Student's t.
const QUANTILE_999: f64 = 3.290_526_731_491_896;

/// Scales the median absolute deviation of a normal distribution to its standard deviation: the reciprocal of the 75 %
/// quantile, as rounded in tables 1 to 5 of Lencse et al. 2017.
const MAD_SCALE: f64 = 1.4826;

/// A larger distance of mean and median, in per cent of the median, counts as skewed. Lencse and Bakai 2017, section
/// 4.3, require "a significant difference". In tables 1 to 5 of Lencse et al. 2017, which the authors call stable or
/// acceptable, it is below 0.5 %; in table 2 of Lencse and Bakai 2017, with a run 22 % below the median, it is 2.6 %.
const SKEW_PCT: f64 = 1.0;

/// A larger standard deviation, in per cent of the mean, counts as scattered (Lencse and Bakai 2017, section 4.3).
const SCATTER_PCT: f64 = 10.0;

/// Maximum p-value of a drift. Every point of a campaign is tested: without any drift, the usual 0.05 would flag one or
/// two of the 31 cells of RFC 8219, this one in every third campaign.
pub(super) const DRIFT_P: f64 = 0.01;

/// Minimum size of a drift, in per cent of the median: the error of a test of 60 s with a timeout of 1 s (Lencse et al.
/// 2017, equation 2).
const DRIFT_PCT: f64 = 2.0;

/// Number of runs that RFC 8219 section 9.2 requires.
const RUNS: usize = 20;

/// Statistics of the rates of the runs, in queries per second unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Summary {
    /// Number of runs.
    pub runs: usize,
    /// Mean.
    pub average: f64,
    /// Median: the main result (RFC 8219 section 9.2).
    pub median: f64,
    /// 1st percentile by the empirical distribution function (RFC 2330 section 11.3).
    pub p1: f64,
    /// 99th percentile by the same function.
    pub p99: f64,
    /// Sample standard deviation (n - 1); 0 for a single run.
    pub standard_deviation: f64,
    /// Margin of error at 99.9 %: 3.2905 SD / sqrt n (tables 1 to 5 of Lencse et al. 2017).
    pub margin_of_error_999: f64,
    /// Median absolute deviation times 1.4826 (ibid.).
    pub median_absolute_deviation: f64,
    /// (max - min) / median, in per cent (Lencse and Pivoda 2018, equation 3).
    pub dispersion_pct: f64,
    /// median / (1 + timeout / duration): the sustainable rate of a DUT that stores requests (Lencse et al. 2017,
    /// equation 1).
    pub calculated: f64,
    /// 95 % percentile bootstrap interval of the median; `None` for fewer than
    /// [`INTERVAL_RUNS_MIN`] runs.
    pub median_interval: Option<(f64, f64)>,
    /// Warnings for the reader.
    pub flags: Vec<Flag>,
}

/// Reason to doubt a summary.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case", tag = "flag")]
pub enum Flag {
    /// The mean is far from the median: the distribution is skewed (Lencse and Bakai 2017, section 4.3).
    Skewed {
        /// (mean - median) / median.
        by_pct: f64,
    },
    /// The standard deviation is above 10 % of the mean (Lencse and Bakai 2017, section 4.3).
    Scattered {
        /// Standard deviation in per cent of the mean.
        standard_deviation_pct: f64,
    },
    /// The runs rise or fall with time.
    Drift {
        /// Change from the first to the last run along the fitted slope, in per cent of the median.
        by_pct: f64,
        /// p-value of the trend.
        p: f64,
    },
    /// Fewer runs than the 20 that RFC 8219 section 9.2 requires.
    FewRuns {
        /// Number of runs.
        runs: usize,
    },
}

/// Summarises `rates`, in queries per second in the order of the runs, from trials of `duration_s` with `timeout_s`,
/// both above 0.
///
/// `None` if there are no rates, or one of them is not finite.
pub fn summarise(rates: &[f64], duration_s: f64, timeout_s: f64) -> Option<Summary> {
    let sorted = sorted(rates)?;
    let median = median_of_sorted(&sorted)?;
    let runs = rates.len();
    let average = rates.iter().sum::<f64>() / runs as f64;
    let standard_deviation = standard_deviation(rates, average);
    let deviations: Vec<f64> = rates.iter().map(|rate| (rate - median).abs()).collect();
    Some(Summary {
        runs,
        average,
        median,
        p1: percentile_of_sorted(&sorted, 1.0)?,
        p99: percentile_of_sorted(&sorted, 99.0)?,
        standard_deviation,
        margin_of_error_999: QUANTILE_999 * standard_deviation / (runs as f64).sqrt(),
        median_absolute_deviation: MAD_SCALE * self::median(&deviations)?,
        dispersion_pct: dispersion_pct(rates),
        calculated: calculated_rate(median, duration_s, timeout_s),
        median_interval: bootstrap::median_interval(rates).filter(|_| runs >= INTERVAL_RUNS_MIN),
        flags: flags(rates, average, median, standard_deviation),
    })
}

/// Returns the warnings for the reader.
fn flags(rates: &[f64], average: f64, median: f64, standard_deviation: f64) -> Vec<Flag> {
    let mut flags = Vec::new();
    let by_pct = share_pct(average - median, median);
    if by_pct.abs() > SKEW_PCT {
        flags.push(Flag::Skewed { by_pct });
    }
    let standard_deviation_pct = share_pct(standard_deviation, average);
    if standard_deviation_pct > SCATTER_PCT {
        flags.push(Flag::Scattered {
            standard_deviation_pct,
        });
    }
    let points: Vec<_> = (0..rates.len())
        .map(|run| run as f64)
        .zip(rates.iter().copied())
        .collect();
    if let Some(trend) = trend::trend(&points) {
        let by_pct = share_pct(trend.slope * (rates.len() - 1) as f64, median);
        if trend.p < DRIFT_P && by_pct.abs() > DRIFT_PCT {
            flags.push(Flag::Drift { by_pct, p: trend.p });
        }
    }
    if rates.len() < RUNS {
        flags.push(Flag::FewRuns { runs: rates.len() });
    }
    flags
}

/// Returns median / (1 + timeout / duration), in the unit of `median`: the sustainable rate of a DUT that stores
/// requests and answers them shortly before their timeout (Lencse et al. 2017, equation 1). `duration_s` is above 0.
pub fn calculated_rate(median: f64, duration_s: f64, timeout_s: f64) -> f64 {
    median / (1.0 + timeout_s / duration_s)
}

/// (max - min) / median, in per cent (Lencse and Pivoda 2018, equation 3); 0 if there are no values or all are
/// equal.
pub fn dispersion_pct(values: &[f64]) -> f64 {
    let sorted = sorted(values).unwrap_or_default();
    let ends = sorted.first().zip(sorted.last());
    let range = ends.map_or(0.0, |(min, max)| max - min);
    share_pct(range, median_of_sorted(&sorted).unwrap_or_default())
}

/// Returns `part` in per cent of `whole`; 0 if both are 0.
fn share_pct(part: f64, whole: f64) -> f64 {
    if part == 0.0 {
        0.0
    } else {
        part / whole * 100.0
    }
}

/// Returns the sample standard deviation (n - 1); 0 for a single value.
fn standard_deviation(values: &[f64], average: f64) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|value| (value - average).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::statistics::quantile::percentile;

    #[test]
    fn summary_of_one_run_and_of_none() {
        let one = summarise(&[500.0], 60.0, 1.0).unwrap();
        assert_eq!(
            (one.median, one.p1, one.p99, one.average),
            (500.0, 500.0, 500.0, 500.0)
        );
        assert_eq!(
            (one.standard_deviation, one.margin_of_error_999),
            (0.0, 0.0)
        );
        assert_eq!((one.dispersion_pct, one.median_interval), (0.0, None));
        assert_eq!(one.flags, [Flag::FewRuns { runs: 1 }]);
        assert_eq!(summarise(&[], 60.0, 1.0), None);
        assert_eq!(summarise(&[1.0, f64::INFINITY], 60.0, 1.0), None);
    }

    #[test]
    fn steady_runs_have_no_flag() {
        let rates: Vec<f64> = (0..20)
            .map(|run| 1000.0 + f64::from(run * 7 % 20))
            .collect();
        assert_eq!(summarise(&rates, 60.0, 1.0).unwrap().flags, []);
        // A significant trend that is too small: 1.9 per mille.
        let small: Vec<f64> = (0..20).map(|run| 10_000.0 + f64::from(run)).collect();
        assert_eq!(summarise(&small, 60.0, 1.0).unwrap().flags, []);
    }

    #[test]
    fn each_flag_is_raised_by_its_condition() {
        let drifting: Vec<f64> = (0..20).map(|run| 1000.0 - 2.0 * f64::from(run)).collect();
        let flags = summarise(&drifting, 60.0, 1.0).unwrap().flags;
        let [Flag::Drift { by_pct, p }] = flags[..] else {
            panic!("{flags:?}");
        };
        assert!(
            (by_pct + 38.0 / 981.0 * 100.0).abs() < 1e-9 && p < 1e-6,
            "{by_pct} {p}"
        );

        let mut outlier = vec![1000.0; 20];
        outlier[7] = 700.0;
        let flags = summarise(&outlier, 60.0, 1.0).unwrap().flags;
        assert_eq!(flags, [Flag::Skewed { by_pct: -1.5 }]);

        let halves: Vec<f64> = (0..20)
            .map(|run| if run % 2 == 0 { 800.0 } else { 1200.0 })
            .collect();
        let flags = summarise(&halves, 60.0, 1.0).unwrap().flags;
        let [
            Flag::Scattered {
                standard_deviation_pct,
            },
        ] = flags[..]
        else {
            panic!("{flags:?}");
        };
        assert!((standard_deviation_pct - 20.52).abs() < 0.01);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn summary_figures_are_ordered(rates in prop::collection::vec(1.0..1e7f64, 1..60)) {
            let found = summarise(&rates, 60.0, 1.0).unwrap();
            prop_assert!(rates.contains(&found.p1) && rates.contains(&found.p99));
            prop_assert!(found.p1 <= found.median && found.median <= found.p99);
            prop_assert!(found.calculated < found.median);
            prop_assert!(found.dispersion_pct >= 0.0 && found.standard_deviation >= 0.0);
            if let Some((low, high)) = found.median_interval {
                prop_assert!(found.p1 <= low && low <= high);
                prop_assert!(high <= percentile(&rates, 100.0).unwrap());
            }
        }

        #[test]
        fn percentiles_are_values_and_ascend(
            values in prop::collection::vec(-1e9..1e9f64, 1..300),
            percents in (0.0..=100.0f64, 0.0..=100.0f64),
        ) {
            let (low, high) = (percents.0.min(percents.1), percents.0.max(percents.1));
            let (at_low, at_high) = (percentile(&values, low), percentile(&values, high));
            prop_assert!(values.contains(&at_low.unwrap()));
            prop_assert!(at_low <= at_high);
        }
    }
}
