//! Combines repeated searches of one point: whether they agree, and which figures may be quoted.

use schemars::JsonSchema;
use serde::Serialize;

use super::bootstrap;
use super::quantile::median;

/// Bounds of the true rate from one search, in queries per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateBounds {
    /// Highest rate that passed; 0 if none did.
    pub passed: f64,
    /// Lowest rate that failed above it; `None` if the search ended at a limit that is not the DUT's.
    pub failed: Option<f64>,
}

/// Combined result of several searches, in queries per second.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Agreement {
    /// Number of searches with a result, including those in which no rate passed.
    pub runs: usize,
    /// No single rate represents them.
    pub unstable: bool,
    /// Lower end of [`interval`](Self::interval) or range, from the rates that passed.
    pub low_qps: f64,
    /// Upper end, from the rates that failed, so that it includes the resolution of the searches; `None` if a search
    /// ended at a limit.
    pub high_qps: Option<f64>,
    /// Whether the ends are those of the 95 % bootstrap interval of the median, instead of the lowest and highest rate.
    pub interval: bool,
    /// Highest rate that passed.
    pub fastest_qps: f64,
    /// Median of the rates that failed, which is above the median of the true rates. `None` if so many searches ended
    /// at a limit that the median is a lower bound.
    pub failed_qps: Option<f64>,
}

/// Minimum number of runs for an interval: the median lies outside the range of n values with a probability of 2^(1 -
/// n), 6 % for five and 3 % for six. Five values therefore cannot contain it with 95 % (David and Nagaraja, "Order
/// statistics", section 7.1).
pub const INTERVAL_RUNS_MIN: usize = 6;

/// Maximum spread of stable runs, as a fraction of their median. Lencse and Bakai 2017, section 4.3, reject a standard
/// deviation above 10 % of the mean; at that limit 20 runs span 37 % on average, 100 runs 50 %.
const APART_MAX: f64 = 0.5;

/// One run in this number may be an outlier at either end.
const OFF: usize = 10;

/// Combines these searches; `None` if none of them found a rate.
pub fn agreement(runs: &[RateBounds]) -> Option<Agreement> {
    let passed: Vec<f64> = runs.iter().map(|run| run.passed).collect();
    let failed: Option<Vec<f64>> = runs.iter().map(|run| run.failed).collect();
    let fastest_qps = passed.iter().copied().fold(0.0, f64::max);
    if fastest_qps <= 0.0 {
        return None;
    }
    let interval = runs.len() >= INTERVAL_RUNS_MIN;
    let slowest = || passed.iter().copied().fold(f64::INFINITY, f64::min);
    let range_of_failed = |failed: &Vec<f64>| match interval {
        true => Some(bootstrap::median_interval(failed)?.1),
        false => failed.iter().copied().reduce(f64::max),
    };
    Some(Agreement {
        runs: runs.len(),
        unstable: is_unstable(runs, median(&passed)?),
        low_qps: match interval {
            true => bootstrap::median_interval(&passed)?.0,
            false => slowest(),
        },
        high_qps: failed.as_ref().and_then(range_of_failed),
        interval,
        fastest_qps,
        failed_qps: median_of_failed(runs),
    })
}

/// Returns the median of the rates that failed; searches that ended at a limit count as higher than all.
fn median_of_failed(runs: &[RateBounds]) -> Option<f64> {
    let failed = runs.iter().map(|run| run.failed.unwrap_or(f64::INFINITY));
    let mut failed: Vec<f64> = failed.collect();
    failed.sort_by(f64::total_cmp);
    let middle = f64::midpoint(failed[(failed.len() - 1) / 2], failed[failed.len() / 2]);
    middle.is_finite().then_some(middle)
}

/// Returns whether some searches found a rate and others none, or the brackets are too far apart. The distance of two
/// brackets counts from their ends, so that a coarse resolution is not a disagreement.
fn is_unstable(runs: &[RateBounds], median: f64) -> bool {
    if runs.iter().any(|run| run.passed <= 0.0) {
        return true;
    }
    let mut passed: Vec<f64> = runs.iter().map(|run| run.passed).collect();
    let failed = runs.iter().map(|run| run.failed.unwrap_or(f64::INFINITY));
    let mut failed: Vec<f64> = failed.collect();
    passed.sort_by(|a, b| b.total_cmp(a));
    failed.sort_by(f64::total_cmp);
    let off = runs.len() / OFF;
    passed[off] - failed[off] > APART_MAX * median
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(passed: f64) -> RateBounds {
        let failed = Some(passed * 1.02);
        RateBounds { passed, failed }
    }

    fn limited(passed: f64) -> RateBounds {
        let failed = None;
        RateBounds { passed, failed }
    }

    const NONE: RateBounds = RateBounds {
        passed: 0.0,
        failed: Some(1.0),
    };

    fn is_unstable(runs: &[RateBounds]) -> bool {
        agreement(runs).unwrap().unstable
    }

    #[test]
    fn distant_runs_and_runs_without_rate_are_unstable() {
        assert!(is_unstable(&[NONE, found(4296.0), limited(35_000.0)]));
        assert!(is_unstable(&[found(75_000.0), found(142_200.0)]));
        let mut one_without = vec![found(9000.0); 19];
        one_without.push(NONE);
        assert!(is_unstable(&one_without));
        assert_eq!(agreement(&[NONE, NONE]), None);
        assert_eq!(agreement(&[]), None);
    }

    #[test]
    fn scatter_resolution_and_one_outlier_in_ten_are_stable() {
        assert!(!is_unstable(&[
            found(9000.0),
            found(10_000.0),
            found(11_000.0)
        ]));
        let coarse = |passed| RateBounds {
            passed,
            failed: Some(2.0 * passed),
        };
        assert!(!is_unstable(&[coarse(4000.0), coarse(8000.0)]));
        assert!(!is_unstable(&[found(28_000.0), limited(30_000.0)]));
        let mut one_off = vec![found(9000.0); 9];
        one_off.push(found(90_000.0));
        assert!(!is_unstable(&one_off));
        one_off.pop();
        one_off.extend([found(90_000.0), found(90_000.0)]);
        one_off.remove(0);
        assert!(is_unstable(&one_off));
    }

    #[test]
    fn few_runs_have_range_and_many_have_interval() {
        let few = agreement(&[found(100.0), found(110.0), found(105.0)]).unwrap();
        assert_eq!((few.low_qps, few.interval), (100.0, false));
        assert!((few.high_qps.unwrap() - 112.2).abs() < 1e-9);
        assert!((few.failed_qps.unwrap() - 107.1).abs() < 1e-9);
        let many: Vec<_> = (0..20).map(|run| found(100.0 + f64::from(run))).collect();
        let many = agreement(&many).unwrap();
        assert!(many.interval && many.low_qps > 100.0);
        assert!(many.high_qps.unwrap() < 119.0 * 1.02);
    }

    #[test]
    fn run_at_limit_leaves_upper_end_open() {
        let open = agreement(&[found(28_000.0), limited(30_000.0)]).unwrap();
        assert_eq!((open.high_qps, open.failed_qps), (None, None));
        assert_eq!(open.fastest_qps, 30_000.0);
    }
}
