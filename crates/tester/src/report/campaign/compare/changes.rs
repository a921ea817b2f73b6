//! Where the rates of many campaigns changed.

use std::io::{self, Write};

use serde::Serialize;

use super::super::analyse::grouped;
use super::super::analysis::{Analysis, PointResult};
use super::super::numbers;
use super::{Row, Side, Verdict, differences, keyed, row, table};
use crate::statistics::changes::change_points;
use crate::statistics::quantile::median;

/// The changes of the rates in successive campaigns.
#[derive(Clone, Debug, Serialize)]
pub struct Changes {
    /// The campaigns in the order in which they began.
    pub campaigns: Vec<Campaign>,
    /// Tolerated slowdown, in per cent.
    pub max_regression_pct: f64,
    /// Number of points with a rate in several campaigns.
    pub points: usize,
    /// The changes, by point.
    pub changes: Vec<Change>,
}

/// A campaign.
#[derive(Clone, Debug, Serialize)]
pub struct Campaign {
    /// Its name.
    pub name: String,
    /// Start of its first process: RFC 3339, UTC.
    pub began: String,
    /// Why its rates are doubtful.
    pub warnings: Vec<String>,
}

/// A change.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Index of the first campaign with the new rate.
    pub at: usize,
    /// What else differs from the campaign before.
    pub differences: Vec<String>,
    /// The campaigns with the rate before and with that after it.
    #[serde(flatten)]
    pub row: Row,
}

/// A point of a campaign.
struct Measured {
    campaign: usize,
    side: Side,
    median: f64,
    /// Standard error of the median, as if the rates were normally distributed.
    error: f64,
}

impl Measured {
    fn of(campaign: usize, point: &PointResult) -> Option<Self> {
        let side = Side::of(point);
        let is_exact = !side.lower_bound && !side.is_unstable;
        let summary = point.summary.as_ref().filter(|_| is_exact)?;
        Some(Self {
            campaign,
            median: summary.median,
            error: summary.standard_deviation / (side.rates.len() as f64).sqrt(),
            side,
        })
    }
}

impl Changes {
    /// Finds the changes of each point. Campaigns in which its runs disagree, or its rate is a lower bound, are left out.
    pub fn of(mut all: Vec<Analysis>, max_regression_pct: f64) -> Self {
        let began = |it: &Analysis| {
            it.sessions
                .first()
                .map(|it| it.began.clone())
                .unwrap_or_default()
        };
        all.sort_by_key(began);
        let points = all.iter().enumerate().flat_map(|(campaign, analysis)| {
            let points = keyed(analysis).into_iter();
            points.filter_map(move |(key, point)| Some((key, Measured::of(campaign, point)?)))
        });
        let mut points = grouped(points);
        points.retain(|(_, series)| series.len() > 1);
        let count = points.len();
        let changes = points.into_iter();
        let changes =
            changes.flat_map(|(key, series)| of_point(&key, &series, &all, max_regression_pct));
        Self {
            changes: changes.collect(),
            campaigns: all.iter().map(|it| campaign(it, began(it))).collect(),
            max_regression_pct,
            points: count,
        }
    }

    /// Whether a rate fell by more than tolerated.
    pub fn has_regressions(&self) -> bool {
        self.count(Verdict::Slower) > 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        let changes = self.changes.iter();
        changes.filter(|it| it.row.verdict == verdict).count()
    }

    /// Writes a table, warnings first.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for campaign in &self.campaigns {
            for warning in &campaign.warnings {
                writeln!(out, "warning: {} {warning}", campaign.name)?;
            }
        }
        let title = |it: &Change| {
            let Campaign { name, began, .. } = &self.campaigns[it.at];
            let differences = it.differences.iter().map(|it| format!("\n  {it}"));
            let differences: String = differences.collect();
            format!("{name}, {began}: {}{differences}", it.row.title())
        };
        let rows: Vec<_> = self.changes.iter().map(|it| (title(it), &it.row)).collect();
        if !rows.is_empty() {
            table(out, ["before", "after"], &rows)?;
        }
        let campaigns = numbers::count(self.campaigns.len(), "campaign");
        let points = numbers::count(self.points, "point");
        let changes = numbers::count(rows.len(), "change");
        let allowed = numbers::pct(self.max_regression_pct);
        let (slower, faster) = (self.count(Verdict::Slower), self.count(Verdict::Faster));
        writeln!(
            out,
            "{changes} of {points} in {campaigns}: {slower} slower by more than {allowed}, {faster} faster"
        )
    }
}

fn campaign(analysis: &Analysis, began: String) -> Campaign {
    let incomplete = (!analysis.complete).then(|| "is not complete".to_owned());
    let reasons = analysis.not_a_measurement.iter();
    let reasons = reasons.map(|reason| format!("is not a measurement: {reason}"));
    Campaign {
        name: analysis.name.clone(),
        began,
        warnings: incomplete.into_iter().chain(reasons).collect(),
    }
}

fn of_point(
    key: &str,
    series: &[Measured],
    all: &[Analysis],
    max_regression_pct: f64,
) -> Vec<Change> {
    let medians: Vec<f64> = series.iter().map(|it| it.median).collect();
    let errors: Vec<f64> = series.iter().map(|it| it.error).collect();
    let noise = median(&errors).unwrap_or_default();
    let begins = change_points(&medians, noise).unwrap_or_default();
    let begins: Vec<usize> = [vec![0], begins, vec![series.len()]].concat();
    let changes = begins.windows(3).map(|it| {
        let [before, after] = [&series[it[0]..it[1]], &series[it[1]..it[2]]].map(joined);
        let (last, first) = (series[it[1] - 1].campaign, series[it[1]].campaign);
        Change {
            at: first,
            differences: differences(&all[last], &all[first]),
            row: row(key.to_owned(), &before, &after, max_regression_pct),
        }
    });
    changes.collect()
}

/// The runs of successive campaigns as one side.
fn joined(group: &[Measured]) -> Side {
    let rates: Vec<f64> = group.iter().flat_map(|it| it.side.rates.clone()).collect();
    Side {
        median: median(&rates),
        rates,
        lower_bound: false,
        is_unstable: false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use dns64_transport::random::SplitMix64;
    use expect_test::expect;

    use super::*;
    use crate::report::campaign::tests::sample::{SMALL, analysed};

    /// A campaign of one point.
    static SAMPLE: LazyLock<Analysis> = LazyLock::new(|| {
        let mut analysis = analysed(SMALL);
        analysis.points.truncate(1);
        analysis
    });

    /// Runs with the figures that Lencse et al. 2017 print of two servers in trials of 60 s: table 4, with one run 10 % below the
    /// others, and table 5, with a standard deviation of 2.2 %.
    const RUNS: [[u32; 20]; 2] = [
        [
            3470, 3472, 3466, 3473, 3465, 3124, 3441, 3459, 3468, 3484, 3490, 3475, 3469, 3492,
            3474, 3515, 3472, 3454, 3453, 3484,
        ],
        [
            2406, 2502, 2434, 2397, 2372, 2449, 2420, 2502, 2332, 2439, 2403, 2357, 2455, 2334,
            2332, 2480, 2334, 2381, 2434, 2418,
        ],
    ];

    /// A rate with the deviation of a run from the median of its server.
    fn noisy_qps(level: f64, draw: u64) -> u64 {
        let [server, run] = [draw / 20 % 2, draw % 20].map(|at| usize::try_from(at).unwrap());
        let runs = RUNS[server].map(f64::from);
        let rate = 40_000.0 * level * runs[run] / median(&runs).unwrap();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive rate"
        )]
        let rate_qps = rate as u64;
        rate_qps
    }

    /// Campaigns of one point with five runs each, whose rates are these with the noise of real runs.
    fn campaigns(levels: &[f64], seed: u64) -> Vec<Analysis> {
        let mut random = SplitMix64(seed);
        let mut campaign = |(number, level): (usize, &f64)| {
            let mut analysis = SAMPLE.clone();
            analysis.name = format!("c{number:02}");
            analysis.sessions[0].began = format!("2026-01-{:02}T00:00:00Z", number + 1);
            let point = &mut analysis.points[0];
            let first = point.runs[0].clone();
            point.runs = vec![first; 5];
            let rates = [(); 5].map(|()| noisy_qps(*level, random.draw()));
            let floats = rates.map(|it| it as f64);
            for (run, rate) in point.runs.iter_mut().zip(rates) {
                run.rate_qps = Some(rate);
            }
            let summary = point.summary.as_mut().unwrap();
            summary.median = median(&floats).unwrap();
            let mean = floats.iter().sum::<f64>() / 5.0;
            let squares: f64 = floats.iter().map(|it| (it - mean).powi(2)).sum();
            summary.standard_deviation = (squares / 4.0).sqrt();
            analysis
        };
        levels.iter().enumerate().map(&mut campaign).collect()
    }

    /// Changes beyond this limit.
    fn alarms(levels: &[f64], seed: u64, limit_pct: f64) -> Vec<(usize, Verdict)> {
        let changes = Changes::of(campaigns(levels, seed), limit_pct).changes;
        let changes = changes.iter().map(|it| (it.at, it.row.verdict));
        changes.filter(|it| it.1 != Verdict::Within).collect()
    }

    #[test]
    fn loss_of_five_per_cent_is_found_within_three_campaigns() {
        for (before, seed) in [3, 5, 10, 20].into_iter().zip(1..) {
            let levels = [vec![1.0; before], vec![0.95; 3]].concat();
            assert_eq!(
                alarms(&levels, seed, 3.0),
                [(before, Verdict::Slower)],
                "{before}"
            );
            let levels: Vec<f64> = levels.iter().map(|it| 1.95 - it).collect();
            assert_eq!(
                alarms(&levels, seed, 3.0),
                [(before, Verdict::Faster)],
                "{before}"
            );
        }
    }

    #[test]
    fn noise_of_thirty_campaigns_gives_no_alarm() {
        let alarms = (1..=30).flat_map(|seed| alarms(&[1.0; 30], seed, 5.0));
        assert_eq!(alarms.collect::<Vec<_>>(), []);
    }

    #[test]
    fn change_is_told_with_what_else_changed() {
        let mut all = campaigns(&[1.0, 1.0, 1.0, 0.9, 0.9], 7);
        all[3].variants[0].version = Some("dns64d 0.2.0".into());
        all[4].complete = false;
        // In any order.
        all.swap(0, 4);
        let changes = Changes::of(all, 5.0);
        assert!(changes.has_regressions());
        let mut out = Vec::new();
        changes.write(&mut out).unwrap();
        expect![[r#"
            warning: c04 is not complete
              before   after   change         interval        p
            c03, 2026-01-04T00:00:00Z: dns64d cores=1, AAAA 0 %, cached 0 %, trials of 1 s, timeout 1 s: slower
              the version of dns64d cores=1 not the same: 1.2.3 and dns64d 0.2.0
              40,023  35,989  -10.1 %  -11.0 to -9.1 %  < 0.001
            1 change of 1 point in 5 campaigns: 1 slower by more than 5 %, 0 faster
        "#]].assert_eq(&String::from_utf8(out).unwrap());
    }
}
