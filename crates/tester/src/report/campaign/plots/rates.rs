//! Figures of rates: by cell, over shares with the models, over cores; and memory, also as bars.

use super::super::analysis::{Analysis, ModelResult, PointResult, Scaling};
use super::super::{numbers, tables, words};
use super::{Figure, Table, by_cell, legend, same, variant_name};
use crate::report::chart::{Axis, Chart, LETTER, MEDIUM, Mark, Role, Stroke};
use crate::statistics::summary::Summary;

/// Maximum number of bars in a figure: more are split over several figures, so that each fits on a page of paper.
const BARS_MAX: usize = 24;

/// Height of a bar with the space around it.
const ROW: f64 = 34.0;

/// Height of the name of a cell, in rows.
const NAME_ROWS: f64 = 1.4;

/// Median or size, 1st and 99th percentile if any, the text beside the bar, and the text in the table.
type OfBar = (f64, Option<[f64; 2]>, String, String);

/// One bar.
struct Bar {
    variant: usize,
    value: f64,
    whisker: Option<[f64; 2]>,
    /// Right end of the whisker, or of the bar.
    end: f64,
    /// Text beside it.
    word: String,
    /// Its row in the table.
    row: Vec<String>,
}

/// Medians with 1st and 99th percentile, grouped by cell, for the plan's duration and timeout.
pub(super) fn bars(analysis: &Analysis) -> Vec<Figure> {
    let bar = |point: &PointResult| {
        let summary = point.summary.as_ref()?;
        let sign = if point.lower_bound { "≥ " } else { "" };
        let mark = words::dagger(point.certified);
        let exact = format!("{sign}{}{mark}", numbers::rate(summary.median));
        let [word, ..] = tables::standings::rates(point);
        // Of unstable runs the whisker alone, as in the verdict.
        let unstable = point.agreement.is_some_and(|found| found.unstable);
        let value = if unstable { f64::NAN } else { summary.median };
        Some((value, Some([summary.p1, summary.p99]), word, exact))
    };
    let certified = analysis.points.iter().map(|point| point.certified);
    let title = "Median rate; whiskers from the 1st to the 99th percentile";
    let title = words::explained(title, certified);
    let heads = "Cell | Variant | Median (queries/s) | 1st percentile (queries/s) | \
                 99th percentile (queries/s)";
    bars_by_cell(analysis, &title, "queries/s", heads, bar)
}

/// Largest resident memory of each variant in each cell.
pub(super) fn memory(analysis: &Analysis) -> Vec<Figure> {
    let points = analysis.points.iter();
    let points = points.filter(|point| words::is_usual(analysis, point));
    let largest = points.filter_map(|point| point.memory_bytes_max).max();
    let (unit, name) = numbers::byte_unit(largest.unwrap_or(0) as f64);
    let bar = |point: &PointResult| {
        let value = point.memory_bytes_max? as f64 / unit;
        let word = numbers::decimal(value, 1);
        Some((value, None, word.clone(), word))
    };
    let title = "Largest resident memory of the DUT after a trial";
    let heads = format!("Cell | Variant | Memory ({name})");
    bars_by_cell(analysis, title, name, &heads, bar)
}

/// Bars below the names of their cells, split over figures with the same axis.
fn bars_by_cell(
    analysis: &Analysis,
    title: &str,
    unit: &str,
    heads: &str,
    of: impl Fn(&PointResult) -> Option<OfBar>,
) -> Vec<Figure> {
    let cells = by_cell(analysis, |point| {
        let (value, whisker, word, exact) =
            of(point).filter(|_| words::is_usual(analysis, point))?;
        let ends = whisker.into_iter().flatten();
        let name = variant_name(analysis, point.variant).to_owned();
        let mut row = vec![words::cell_and_spans(analysis, point), name, exact];
        row.extend(ends.clone().map(numbers::rate));
        Some(Bar {
            variant: point.variant,
            value,
            whisker,
            end: ends.fold(value, f64::max),
            word,
            row,
        })
    });
    let bars = || cells.iter().flat_map(|(_, bars)| bars);
    // The axis includes the texts beside the bars. It is as wide as the figure without its margins.
    let longest = bars().map(|bar| bar.word.chars().count()).max();
    let free = 1.0 - LETTER * longest.unwrap_or(0) as f64 / (MEDIUM.0 - 60.0);
    let x = Axis::from_zero(unit, bars().map(|bar| bar.end / free));
    let portions = (bars().count() + cells.len()).div_ceil(BARS_MAX).max(1);
    let portions = cells.chunks(cells.len().div_ceil(portions).max(1));
    let all = portions.len();
    let figure = |(i, cells): (usize, &[(String, Vec<Bar>)])| {
        let portion = format!(" ({} of {all})", i + 1);
        let title = title.to_owned() + if all > 1 { &portion } else { "" };
        let bars = || cells.iter().flat_map(|(_, bars)| bars);
        let table = Table::new(heads, bars().map(|bar| bar.row.clone()));
        let svg = draw_bars(&title, x.clone(), cells);
        Figure {
            legend: legend(analysis, bars().map(|bar| bar.variant)),
            ..Figure::new(&title, svg, table, "points.csv")
        }
    };
    portions.enumerate().map(figure).collect()
}

fn draw_bars(title: &str, x: Axis, cells: &[(String, Vec<Bar>)]) -> String {
    let rows = |(_, bars): &(_, Vec<Bar>)| bars.len() as f64 + NAME_ROWS;
    // Some space above the axis.
    let rows = cells.iter().map(rows).sum::<f64>() + 0.2;
    let mut chart = Chart::new((MEDIUM.0, 88.0 + ROW * rows), x, Axis::rows(rows));
    let mut row = 0.0;
    for (cell, bars) in cells {
        row += NAME_ROWS;
        chart.word((0.0, row - 0.5), 0.0, cell);
        for bar in bars {
            let y = row + 0.5;
            chart.bar(Role::variant(bar.variant), (bar.value, y));
            if let Some(whisker) = bar.whisker {
                chart.whisker(Role::INK, Mark::UPRIGHT, whisker.map(|rate| (rate, y)));
            }
            chart.word((bar.end, y), 10.0, &bar.word);
            row += 1.0;
        }
    }
    chart.svg(title)
}

/// A point of a curve: the share in per cent, the result, and its summary.
type OnCurve<'a> = (f64, &'a PointResult, &'a Summary);

/// Rates over the AAAA share and over the cached share, with the other share at zero and the papers' single cached
/// name.
pub(super) fn curves(analysis: &Analysis) -> Vec<Figure> {
    let figure = |over| {
        let points = analysis.points.iter().filter_map(|point| {
            let (share, other) = match over {
                "AAAA share" => (point.aaaa_pct, point.cached_pct),
                _ => (point.cached_pct, point.aaaa_pct),
            };
            let alone = same(other, 0.0) && point.pattern.is_empty();
            let summary = point.summary.as_ref().filter(|_| alone)?;
            words::is_usual(analysis, point).then_some((share, point, summary))
        });
        let points: Vec<OnCurve<'_>> = points.collect();
        let several = points.iter().any(|(share, ..)| !same(*share, points[0].0));
        several.then(|| curve(analysis, &points, over))
    };
    let shares = ["AAAA share", "cached share"].into_iter();
    shares.filter_map(figure).collect()
}

/// The curve over a share, which has the name of its models.
fn curve(analysis: &Analysis, points: &[OnCurve<'_>], over: &str) -> Figure {
    let holds = |model: &&ModelResult| model.model == over && model.refused.is_none();
    let models = analysis.models.iter().filter(holds);
    let models: Vec<_> = models.collect();
    let x = Axis::linear(&format!("{over} (%)"), (0.0, 100.0));
    let y = Axis::from_zero("queries/s", points.iter().map(|(.., summary)| summary.p99));
    let mut chart = Chart::new(MEDIUM, x, y);
    let (mut lines, mut bounds) = ("", "");
    for model in &models {
        chart.line(Role::variant(model.variant), Stroke::THICK, smooth(model));
        lines = "; lines: the model";
    }
    for &(share, point, summary) in points {
        let role = Role::variant(point.variant);
        let ends = [summary.p1, summary.p99].map(|rate| (share, rate));
        chart.whisker(role, Mark::LEVEL, ends);
        let mark = Mark::variant(point.variant, point.lower_bound);
        chart.marks(role, mark, [(share, summary.median)]);
        if point.lower_bound {
            bounds = "; hollow: lower bound";
        }
    }
    let whiskers = "whiskers from the 1st to the 99th percentile";
    let title = format!("Median rate over the {over}; {whiskers}{bounds}{lines}");
    let table = table_of_curve(analysis, points, &models);
    Figure {
        legend: legend(analysis, points.iter().map(|(_, point, _)| point.variant)),
        ..Figure::new(&title, chart.svg(&title), table, "points.csv")
    }
}

/// The model between its fitted shares: by equations 7 and 8 of Lencse et al. 2017 the reciprocal of the rate is a
/// linear function of the share.
fn smooth(model: &ModelResult) -> Vec<(f64, f64)> {
    const STEPS: u32 = 12;
    let fitted = model.fitted.iter();
    let mut ends: Vec<_> = fitted.map(|row| (row.share_pct, row.modelled)).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let between = ends.windows(2).flat_map(|pair| {
        let ((from, high), (to, low)) = (pair[0], pair[1]);
        (0..=STEPS).map(move |step| {
            let part = f64::from(step) / f64::from(STEPS);
            let rate = 1.0 / ((1.0 - part) / high + part / low);
            (from + part * (to - from), rate)
        })
    });
    between.filter(|(_, rate)| rate.is_finite()).collect()
}

fn table_of_curve(analysis: &Analysis, points: &[OnCurve<'_>], models: &[&ModelResult]) -> Table {
    let row = |&(share, point, Summary { median, .. }): &OnCurve<'_>| {
        let models = models.iter().filter(|model| model.variant == point.variant);
        let mut fitted = models.flat_map(|model| &model.fitted);
        let model = fitted.find(|row| same(row.share_pct, share));
        let model = model.map_or(f64::NAN, |row| row.modelled);
        [
            variant_name(analysis, point.variant).to_owned(),
            numbers::short(share),
            numbers::rate(*median) + words::dagger(point.certified),
            numbers::decimal(model, 0),
            numbers::decimal((model - median) / median * 100.0, 2),
        ]
    };
    let heads = "Variant | Share (%) | Median (queries/s) | Model (queries/s) | Residual (%)";
    Table::new(heads, points.iter().map(row))
}

/// Rates of each DUT by its cores, with the ideal linear scaling.
pub(super) fn scaling(analysis: &Analysis) -> Vec<Figure> {
    analysis.scaling.iter().filter_map(scaling_of).collect()
}

fn scaling_of(scaling: &Scaling) -> Option<Figure> {
    let rates = scaling.rows.iter();
    let rates = rates.map(|row| (row.cores as f64, row.median, false));
    let rates: Vec<_> = rates.collect();
    let (&(fewest, single, _), &(most, ..)) = rates.first().zip(rates.last())?;
    let ideal = single * most / fewest.max(1.0);
    let highest = rates.iter().map(|rate| rate.1).chain([ideal]);
    let x = Axis::linear("cores", (0.0, most + 0.5)).whole();
    let mut chart = Chart::new(MEDIUM, x, Axis::from_zero("queries/s", highest));
    let ends = [(fewest, single), (most, ideal)];
    chart.line(Role::MUTED, Stroke::Dashed, ends);
    chart.curve(0, &rates);
    let rows = scaling.rows.iter().map(|row| {
        let factor = numbers::decimal(row.factor, 2);
        let per_core = numbers::decimal(row.per_core, 0);
        [
            row.cores.to_string(),
            numbers::rate(row.median) + words::dagger(row.certified),
            per_core,
            factor,
        ]
    });
    let title = format!("{}: median rate over cores; dashes: ideal", scaling.dut);
    let heads = "Cores | Median (queries/s) | Rate per core (queries/s) | Factor";
    let (table, svg) = (Table::new(heads, rows), chart.svg(&title));
    Some(Figure::new(&title, svg, table, "results.json"))
}
