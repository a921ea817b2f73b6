//! Figures of the evidence: the sender's timing, and the round-trip time without the authority.

use super::super::analyse::headline;
use super::super::analysis::{Analysis, Evidence, PointResult, SenderEvidence, Spread};
use super::super::{numbers, words};
use super::pairs::{self, GROUPS_MAX, Pair, Rows};
use super::{Figure, Table, variant_name};
use crate::report::chart::Axis;

/// File with the numbers of all of them.
const FILE: &str = "results.json";

/// The name of a row, the value over the trials if they report it, and the limit.
type Row = (&'static str, Option<Spread>, Option<f64>);

/// One kind of figure of the sender: its rows, with value, limit, and format of numbers.
struct Kind {
    title: &'static str,
    head: &'static str,
    rows: fn(&SenderEvidence) -> Vec<Row>,
    axis: fn(&[Rows]) -> Axis,
    words: fn(f64) -> String,
}

const LATENESS: Kind = Kind {
    title: "How late queries left, against their schedule, over all valid trials of each variant. Good: all marks are left \
            of the limit; a trial beyond it is invalid",
    head: "Lateness",
    rows: |sender| {
        let limit = sender.lateness_limit_ns.map(|ns| ns as f64);
        vec![
            ("p50", Some(sender.lateness_ns_p50), limit),
            ("p99", Some(sender.lateness_ns_p99), limit),
            ("p99.9", Some(sender.lateness_ns_p999), limit),
            ("max", Some(sender.lateness_ns_max), limit),
        ]
    },
    axis: |groups| Axis::times("lateness of a query", pairs::values(groups)),
    words: numbers::span,
};

const RATE_ERROR_AXIS: &str = "queries too many or too few";

const RATE_ERROR: Kind = Kind {
    title: "How far the load was from the offered rate in the worst bin of a trial, by the width of the bins. Good: \
            bins of 100 ms are left of their limit; narrow bins hold few queries, so that a short stall shows in them",
    head: "Bins of",
    rows: |sender| {
        vec![
            ("1 ms", sender.bin_1ms_deviation_pct_max, None),
            ("10 ms", Some(sender.bin_10ms_deviation_pct_max), None),
            (
                "100 ms",
                Some(sender.bin_100ms_deviation_pct_max),
                sender.rate_error_limit_pct,
            ),
        ]
    },
    axis: |groups| {
        Axis::parts(RATE_ERROR_AXIS, pairs::values(groups))
            .decades_only()
            .sparse()
    },
    words: |pct| format!("{} %", numbers::short((pct * 10.0).round() / 10.0)),
};

/// Lateness and rate error, with their limits.
pub(super) fn sender(analysis: &Analysis) -> Vec<Figure> {
    let known = analysis.evidence.iter();
    let known: Vec<_> = known
        .filter_map(|e| Some((e, e.sender.as_ref()?)))
        .collect();
    let portions = known.chunks(GROUPS_MAX);
    portions
        .flat_map(|portion| [LATENESS, RATE_ERROR].map(|kind| of_kind(analysis, portion, &kind)))
        .collect()
}

fn of_kind(analysis: &Analysis, known: &[(&Evidence, &SenderEvidence)], kind: &Kind) -> Figure {
    let rows = |(evidence, sender): &(&Evidence, &SenderEvidence)| {
        let pair = |(name, spread, limit): Row| {
            let Spread { median, worst } = spread?;
            let note = match [median, worst].map(kind.words) {
                [median, worst] if median == worst => median,
                [median, worst] => format!("{median} – {worst}"),
            };
            Some(Pair {
                name: name.to_owned(),
                values: [median, worst],
                limit,
                note,
            })
        };
        Rows {
            title: variant_name(analysis, evidence.variant).to_owned(),
            variant: evidence.variant,
            pairs: (kind.rows)(sender).into_iter().filter_map(pair).collect(),
        }
    };
    let groups: Vec<_> = known.iter().map(rows).collect();
    let limits = || {
        groups
            .iter()
            .flat_map(|rows| &rows.pairs)
            .filter_map(|pair| pair.limit)
    };
    let limit = limits().reduce(f64::min);
    let limit = limit.map(|limit| format!("limit: {}", (kind.words)(limit)));
    let words = |value: Option<f64>| value.map_or(numbers::NOTHING.to_owned(), kind.words);
    let table = groups.iter().flat_map(|rows| {
        rows.pairs.iter().map(move |pair| {
            let [median, worst] = pair.values.map(Some).map(words);
            [
                rows.title.clone(),
                pair.name.clone(),
                median,
                worst,
                words(pair.limit),
            ]
        })
    });
    let heads = format!(
        "Variant | {} | Median of the trials | Worst trial | Limit",
        kind.head
    );
    let table = Table::new(&heads, table);
    let svg = pairs::draw(kind.title, (kind.axis)(&groups), &groups);
    Figure {
        legend: pairs::legend(["median of the trials", "worst trial"], limit),
        ..Figure::new(kind.title, svg, table, FILE)
    }
}

/// Compared percentiles.
const PERCENTILES: [(f64, &str); 5] = [
    (50.0, "p50"),
    (90.0, "p90"),
    (99.0, "p99"),
    (99.9, "p99.9"),
    (100.0, "max"),
];

/// Round-trip time of the client with and without the authority, at the representative point of each variant.
pub(super) fn dut_only(analysis: &Analysis) -> Vec<Figure> {
    let points = (0..analysis.variants.len()).filter_map(|variant| headline(analysis, variant));
    let rows = |point: &PointResult| {
        let path = point
            .path
            .as_ref()
            .filter(|path| !path.dut_only_ns.is_empty())?;
        let pair = |(percent, name): (f64, &str)| {
            let values = [at(&path.dut_only_ns, percent)?, at(&point.rtt_ns, percent)?];
            let [dut_only, all] = values.map(numbers::span);
            Some(Pair {
                name: name.to_owned(),
                values,
                limit: None,
                note: format!("{dut_only} of {all}"),
            })
        };
        Some(Rows {
            title: words::point(analysis, point),
            variant: point.variant,
            pairs: PERCENTILES.into_iter().filter_map(pair).collect(),
        })
    };
    let groups: Vec<_> = points.filter_map(rows).collect();
    groups.chunks(GROUPS_MAX).map(dut_only_of).collect()
}

fn at(percentiles: &[(f64, u64)], percent: f64) -> Option<f64> {
    let found = percentiles.iter().find(|at| super::same(at.0, percent));
    found.map(|at| at.1 as f64)
}

fn dut_only_of(groups: &[Rows]) -> Figure {
    let title = "Round-trip time with and without the time of the authority, at the rate that was found. Good: both are \
                 close together, so that the latency is the DUT’s; the rest is the authority’s";
    let x = Axis::times("time", pairs::values(groups));
    let rows = groups.iter().flat_map(|rows| {
        rows.pairs.iter().map(|pair| {
            let [dut_only, all] = pair.values;
            let share = numbers::decimal(dut_only / all * 100.0, 1);
            let [dut_only, all] = [dut_only, all].map(numbers::span);
            [rows.title.clone(), pair.name.clone(), dut_only, all, share]
        })
    });
    let heads = "Point | Percentile | DUT only | Round-trip time | DUT only (%)";
    let table = Table::new(heads, rows);
    Figure {
        legend: pairs::legend(
            ["DUT only, with the links", "round-trip time of the client"],
            None,
        ),
        ..Figure::new(title, pairs::draw(title, x, groups), table, FILE)
    }
}
