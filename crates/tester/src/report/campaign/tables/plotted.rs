//! Tables for gnuplot: groups that it calls indices, each under the title of its series.

use super::{NAME, pick};
use crate::report::campaign::analysis::{Analysis, PointResult, SenderEvidence, Spread, Step};
use crate::report::campaign::table::{Column, Table, columns};
use crate::report::campaign::words;
use crate::trial::result::Outcome;

static TITLE: [Column<String>; 1] = columns![title: String; "title", "" => title;];

/// Owner of a series: the number of its variant and that of its cell, from [`owner`].
pub(super) static OWNER: [Column<(usize, usize)>; 2] = columns![owner: (usize, usize);
    "variant_number", "" => owner.0;
    "cell_number", "" => owner.1;
];

/// The number of a point's variant, and that of the point among those of the variant, both from 1.
pub(super) fn owner(analysis: &Analysis, point: &PointResult) -> (usize, usize) {
    let own = analysis.points.iter();
    let own = own.filter(|p| p.variant == point.variant);
    let before = own.take_while(|p| p.point != point.point);
    (point.variant + 1, before.count() + 1)
}

/// Medians with their percentiles: a group for each variant.
pub(in super::super) fn rates(analysis: &Analysis) -> Table {
    let place = columns![place: usize; "place", "" => *place;];
    let label = columns![label: String; "label", "" => label;];
    let of_variant = |v| {
        analysis
            .points
            .iter()
            .filter(move |p| p.variant == v)
            .enumerate()
    };
    let points = (0..analysis.variants.len()).flat_map(of_variant);
    let points: Vec<_> = points.filter(|(_, p)| p.summary.is_some()).collect();
    let own = points.iter().map(|(_, point)| *point);
    let caption = "place, median, 1st and 99th percentile in queries/s, AAAA/cached in per cent, certified: \
                   1 yes, 0 no, -1 need not be, number of the variant";
    let columns = columns![p: PointResult;
        "certified", "" => words::certified(p.certified);
        "variant_number", "" => p.variant + 1;
    ];
    Table::new("", "", caption)
        .with(&NAME, own.clone().map(|p| &analysis.variants[p.variant]))
        .with(&place, points.iter().map(|(place, _)| place))
        .with(pick("median_qps p1_qps p99_qps"), own.clone())
        .with(
            &label,
            own.clone().map(|point| self::label(analysis, point)),
        )
        .with(&columns, own)
        .grouped()
}

fn label(analysis: &Analysis, point: &PointResult) -> String {
    let mark = words::dagger(point.certified);
    let shares = format!("{}/{}{mark}", point.aaaa_pct, point.cached_pct);
    match words::is_usual(analysis, point) {
        true => shares,
        false => format!("{shares} {} s, {} s", point.duration_s, point.timeout_s),
    }
}

/// The trials of every search: a group for each run.
pub(in super::super) fn convergence(analysis: &Analysis) -> Table {
    let columns = columns![step: (usize, &Step);
        "trial", "" => step.0 + 1;
        "rate_qps", "" => step.1.rate_qps;
        "outcome", "" => match step.1.outcome {
            Outcome::Passed => 1.0,
            Outcome::Failed { .. } => 0.0,
            Outcome::Invalid(_) => -1.0,
        };
        "certified", "" => words::certified(step.1.certified);
    ];
    let points = analysis.points.iter();
    let runs = points.flat_map(|point| point.runs.iter().map(move |run| (point, run)));
    let titles = runs.clone().flat_map(|(point, run)| {
        let of = words::point(analysis, point);
        let mark = words::unless_certified(run.certified);
        let title = format!("{of}, run {}{mark}", run.run);
        run.trials.iter().map(move |_| title.clone())
    });
    let caption = "trial, rate in queries/s, outcome: 1 passed, 0 failed, -1 invalid, certified: 1 yes, 0 no, \
                   -1 need not be";
    Table::new("", "", caption)
        .with(&TITLE, titles)
        .with(
            &columns,
            runs.flat_map(|(_, run)| run.trials.iter().enumerate()),
        )
        .grouped()
}

/// Round-trip times by percentile: a group for each point, at its run nearest to the median.
pub(in super::super) fn latency(analysis: &Analysis) -> Table {
    let columns = columns![at: (f64, u64, Option<bool>);
        "pct", "" => at.0;
        "slower_pct", "" => ((100.0 - at.0) * 1e6).round() / 1e6;
        "rtt_us", "" => at.1 as f64 / 1000.0;
        "certified", "" => words::certified(at.2);
    ];
    let points = analysis.points.iter();
    let of_rows = points
        .clone()
        .flat_map(|point| point.rtt_ns.iter().map(move |_| point));
    let title = |point| words::point(analysis, point) + words::unless_certified(point.certified);
    let caption = "percentile, share of slower answers in per cent, round-trip time in us, certified: 1 yes, \
                   0 no, -1 need not be, numbers of the variant and of its cell";
    let rows = points.flat_map(|point| {
        let times = point.rtt_ns.iter();
        times.map(|&(pct, ns)| (pct, ns, point.certified))
    });
    Table::new("", "", caption)
        .with(&TITLE, of_rows.clone().map(title))
        .with(&columns, rows)
        .with(&OWNER, of_rows.map(|point| owner(analysis, point)))
        .grouped()
}

/// Lateness against its limit: a group for each variant.
pub(in super::super) fn lateness(analysis: &Analysis) -> Table {
    let columns = columns![row: LatenessRow;
        "place", "" => row.0;
        "median_us", "" => row.2.median / 1000.0;
        "worst_us", "" => row.2.worst / 1000.0;
        "limit_us", "" => row.3.map_or(0.0, |limit_ns| limit_ns as f64 / 1000.0);
        "figure", "" => row.1;
        "variant_number", "" => row.4 + 1;
    ];
    let known = analysis.evidence.iter();
    let known = known.filter_map(|e| Some((e.variant, e.sender.as_ref()?)));
    let of_sender = |(variant, s): (usize, &SenderEvidence)| {
        let figures = [
            ("p50", s.lateness_ns_p50),
            ("p99", s.lateness_ns_p99),
            ("p99.9", s.lateness_ns_p999),
            ("max", s.lateness_ns_max),
        ];
        let limit = s.lateness_limit_ns;
        (0_usize..)
            .zip(figures)
            .map(move |(place, (name, spread))| (place, name, spread, limit, variant))
    };
    let rows: Vec<_> = known.flat_map(of_sender).collect();
    let caption = "place, lateness of queries in us: median of the valid trials, worst of them, limit (0: not known), \
                   which figure of a trial, number of the variant";
    Table::new("", "", caption)
        .with(&NAME, rows.iter().map(|row| &analysis.variants[row.4]))
        .with(&columns, &rows)
        .grouped()
}

/// Place, name, the figure over all trials, the limit, the variant.
type LatenessRow = (usize, &'static str, Spread, Option<u64>, usize);

/// Round-trip times with and without the time of the authority, by percentile: a group for each point.
pub(in super::super) fn dut_only(analysis: &Analysis) -> Table {
    let columns = columns![at: (f64, u64, u64);
        "pct", "" => at.0;
        "slower_pct", "" => ((100.0 - at.0) * 1e6).round() / 1e6;
        "dut_only_us", "" => at.1 as f64 / 1000.0;
        "rtt_us", "" => at.2 as f64 / 1000.0;
    ];
    let of_point = |point: &PointResult| {
        let path = point.path.iter().flat_map(|path| &path.dut_only_ns);
        let both = path.filter_map(|&(pct, dut_only_ns)| {
            let rtt = point.rtt_ns.iter().find(|rtt| (rtt.0 - pct).abs() < 1e-9);
            Some((pct, dut_only_ns, rtt?.1))
        });
        both.collect::<Vec<_>>()
    };
    let points = analysis.points.iter().map(|point| (point, of_point(point)));
    let points: Vec<_> = points.collect();
    let of_rows = points
        .iter()
        .flat_map(|(point, rows)| rows.iter().map(move |_| *point));
    let title = |point| words::point(analysis, point) + words::unless_certified(point.certified);
    let caption = "percentile, share of slower answers in per cent, round-trip time without the authority in us, \
                   round-trip time in us, numbers of the variant and of its cell";
    Table::new("", "", caption)
        .with(&TITLE, of_rows.clone().map(title))
        .with(&columns, points.iter().flat_map(|(_, rows)| rows))
        .with(&OWNER, of_rows.map(|point| owner(analysis, point)))
        .grouped()
}
