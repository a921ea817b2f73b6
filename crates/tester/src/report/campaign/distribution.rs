//! The distribution of the rates that the runs of a point found (Lencse, Georgescu and Kadobayashi 2017, figures
//! 4 and 5).

use super::analysis::PointResult;

/// A rate that was found in one or more runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    /// The rate, in queries per second.
    pub(super) rate_qps: u64,
    /// Runs that found it.
    pub(super) runs: usize,
    /// Their share of all runs with a rate: its probability, 0 to 1.
    pub(super) share: f64,
    /// Share of the runs with this rate or a lower one: the empirical distribution function of RFC 2330 section 11.3,
    /// which gives the percentiles.
    pub(super) cumulative: f64,
}

/// The distinct rates of a point in ascending order; empty for fewer than two runs with a rate.
pub(super) fn steps(point: &PointResult) -> Vec<Step> {
    let mut rates: Vec<u64> = point.runs.iter().filter_map(|run| run.rate_qps).collect();
    rates.sort_unstable();
    let all = rates.len();
    if all < 2 {
        return Vec::new();
    }
    let mut steps: Vec<Step> = Vec::new();
    for equal in rates.chunk_by(|a, b| a == b) {
        let before = steps.iter().map(|step| step.runs).sum::<usize>();
        steps.push(Step {
            rate_qps: equal[0],
            runs: equal.len(),
            share: equal.len() as f64 / all as f64,
            cumulative: (before + equal.len()) as f64 / all as f64,
        });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::campaign::tests::sample::{SMALL, analysed};

    #[test]
    fn each_rate_has_its_share_and_cumulative_share() {
        let mut point = analysed(SMALL).points.remove(0);
        let mut of = |rates: [Option<u64>; 3]| {
            for (run, rate_qps) in point.runs.iter_mut().zip(rates) {
                run.rate_qps = rate_qps;
            }
            let told = |s: &Step| (s.rate_qps, s.runs, s.share, s.cumulative);
            steps(&point).iter().map(told).collect::<Vec<_>>()
        };
        let third = 1.0 / 3.0;
        assert_eq!(
            of([Some(9_062), Some(9_000), Some(9_000)]),
            [(9_000, 2, 2.0 * third, 2.0 * third), (9_062, 1, third, 1.0)]
        );
        assert_eq!(of([Some(7), None, Some(7)]), [(7, 2, 1.0, 1.0)]);
        assert_eq!(of([Some(7), None, None]), [], "one run has no distribution");
    }
}
