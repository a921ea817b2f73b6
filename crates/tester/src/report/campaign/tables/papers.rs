//! Tables for papers: all servers, and those of Lencse et al. 2017 with figures in rows and durations or shares in
//! columns (tables 1 to 5, and 6 and 7).

use super::point::{self, by_point};
use super::standings;
use crate::report::campaign::analysis::{Analysis, PointResult};
use crate::report::campaign::table::{Column, Table};
use crate::report::campaign::{numbers, words};

/// All of them: first that of all servers, then those of each variant.
pub(in super::super) fn papers(analysis: &Analysis) -> Vec<Table> {
    let variants = 0..analysis.variants.len();
    let tables = variants.flat_map(|v| of_variant(analysis, v));
    let all = Some(across(analysis)).filter(|table| !table.rows.is_empty());
    all.into_iter()
        .chain(tables)
        .map(Table::explained)
        .collect()
}

/// A row for each server and cell, with the interval of its median.
fn across(analysis: &Analysis) -> Table {
    let found = analysis.points.iter().filter_map(|p| p.agreement);
    let caption = format!(
        "DNS64 performance: number of answered queries per second, all servers. Median and range are rounded to the digits that the range allows. {} p1, p99: 1st and 99th percentile. \
         ≥ marks a lower bound.",
        standings::range_means(found)
    );
    let figures = [
        point::RUNS,
        point::RATE,
        point::RANGE,
        point::P1,
        point::P99,
    ];
    let table = Table::new("", "all servers", &caption);
    by_point(analysis, table, &figures, |p| p.summary.is_some())
}

fn of_variant(analysis: &Analysis, variant: usize) -> Vec<Table> {
    let own = analysis.points.iter();
    let mut own: Vec<_> = own
        .filter(|p| p.variant == variant && p.summary.is_some())
        .collect();
    let Some(first) = own.first() else {
        return Vec::new();
    };
    let variant_name = analysis.name_of(variant);
    let subject =
        format!("{variant_name} DNS64 performance: number of answered queries per second");
    let mut tables = Vec::new();
    for timeout_s in distinct(&own, |p| p.timeout_s) {
        let cell = words::cell(first);
        let same = |p: &&&PointResult| p.timeout_s == timeout_s && words::cell(p) == cell;
        let caption = format!("{subject}, {cell}, {timeout_s} s timeout");
        let head: Headed<'_> = ("Duration (s)", |p| p.duration_s);
        let title = format!("{variant_name} durations, {timeout_s} s timeout");
        tables.push(turned(
            (&title, &caption),
            head,
            &FULL,
            own.iter().filter(same),
        ));
    }
    tables.retain(|table| table.columns.len() > 1);
    own.retain(|p| p.pattern.is_empty() && p.planned.is_usual);
    let Some(spans) = own.first().map(|p| words::spans(p)) else {
        return tables;
    };
    let aaaa_pct: fn(&PointResult) -> f64 = |p| p.aaaa_pct;
    let cached_pct: fn(&PointResult) -> f64 = |p| p.cached_pct;
    let aaaa = ("AAAA record rate", aaaa_pct, "with AAAA records");
    let cached = ("cache hit rate", cached_pct, "cached");
    for ((name, share, _), (_, fixed, what)) in [(aaaa, cached), (cached, aaaa)] {
        for pct in distinct(&own, fixed) {
            let same: Vec<_> = own.iter().filter(|p| fixed(p) == pct).collect();
            if same.len() > 1 {
                let fixed = numbers::pct(pct);
                let caption = format!("{subject} as a function of {name}, {fixed} {what}, {spans}");
                let head = name.replacen("cache", "Cache", 1) + " (%)";
                let title = format!("{variant_name} {name}, {fixed} {what}");
                let head = (head.as_str(), share);
                tables.push(turned((&title, &caption), head, &SHORT, same.into_iter()));
            }
        }
    }
    tables
}

fn distinct(points: &[&PointResult], value: fn(&PointResult) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = points.iter().map(|point| value(point)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// A column for each point, in the order of their heads.
fn turned<'a>(
    (title, caption): (&str, &str),
    (head, value): Headed<'_>,
    figures: &[Named],
    points: impl Iterator<Item = &'a &'a PointResult>,
) -> Table {
    let mut points: Vec<_> = points.collect();
    points.sort_by(|a, b| value(a).total_cmp(&value(b)));
    let mut table = Table::new("", title, caption);
    for (column, name) in figures {
        let cells = points.iter().map(|p| (column.cell)(p));
        table
            .rows
            .push(std::iter::once((*name).into()).chain(cells).collect());
    }
    table.add_head("", head);
    for point in points {
        table.add_head("", &numbers::short(value(point)));
    }
    table
}

/// Head of the columns, and the value in the head of each.
type Headed<'a> = (&'a str, fn(&PointResult) -> f64);

/// A column, and its name in the papers.
type Named = (Column<PointResult>, &'static str);

/// Rows of tables 1 to 5, with the names of the paper.
const FULL: [Named; 8] = [
    (point::AVERAGE, "Average"),
    (point::MEDIAN, "Median"),
    (point::P1, "1st Perc. (min)"),
    (point::P99, "99th Perc. (max)"),
    (point::STANDARD_DEVIATION, "Standard Deviat."),
    (point::MARGIN_OF_ERROR, "MoE 99.9"),
    (point::MEDIAN_DEVIATION, "Median Abs. Dev."),
    (point::CALCULATED, "Calculated rate"),
];

/// Rows of tables 6 and 7.
const SHORT: [Named; 3] = [
    (point::MEDIAN, "Median"),
    (point::P1, "1st Percentile (minimum)"),
    (point::P99, "99th Percentile (maximum)"),
];
