//! Figures of rates: by cell, over shares with the models, over cores.

use super::super::analysis::{Analysis, Curve, ModelResult, Over, PointResult};
use super::super::{tables, words};
use super::lines::places;
use super::{Figure, Series, by_cell, legend, lines, same, values};
use crate::report::chart::{Axis, Chart, Drawing, LETTER, MEDIUM, Mark, Role};

/// Maximum number of bars in a figure: more are split over several figures, so that each fits on a page of paper.
const BARS_MAX: usize = 24;

/// Height of a bar with the space around it.
const ROW: f64 = 34.0;

/// Height of the name of a cell, in rows.
const NAME_ROWS: f64 = 1.4;

/// One bar.
struct Bar {
    variant: usize,
    /// Median; NaN of unstable runs, which have the whisker alone.
    rate: f64,
    whisker: [f64; 2],
    /// Right end of the whisker, or of the bar.
    end: f64,
    /// Text beside it.
    word: String,
}

fn bar(point: &PointResult) -> Option<Bar> {
    let summary = point.summary.as_ref()?;
    let rate = match point.is_unstable() {
        true => f64::NAN,
        false => summary.median,
    };
    Some(Bar {
        variant: point.variant,
        rate,
        whisker: [summary.p1, summary.p99],
        end: summary.p99.max(rate),
        word: tables::standings::rate(point),
    })
}

/// Medians with 1st and 99th percentile, grouped by cell, for the plan's duration and timeout, split over figures with the same axis.
pub(super) fn bars(analysis: &Analysis) -> Vec<Figure> {
    let cells = by_cell(analysis, |point| {
        bar(point).filter(|_| point.planned.is_usual)
    });
    let certified = analysis.points.iter().map(|point| point.certified);
    let title = words::explained(
        "Median rate; whiskers from the 1st to the 99th percentile",
        certified,
    );
    let bars = || cells.iter().flat_map(|(_, bars)| bars);
    // The axis includes the texts beside the bars. It is as wide as the figure without its margins.
    let longest = bars().map(|bar| bar.word.chars().count()).max();
    let free = 1.0 - LETTER * longest.unwrap_or(0) as f64 / (MEDIUM.0 - 60.0);
    let x = Axis::from_zero("queries/s", bars().map(|bar| bar.end / free));
    let portions = (bars().count() + cells.len()).div_ceil(BARS_MAX).max(1);
    let portions = cells.chunks(cells.len().div_ceil(portions).max(1));
    let all = portions.len();
    let figure = |(i, cells): (usize, &[(String, Vec<Bar>)])| {
        let portion = format!(" ({} of {all})", i + 1);
        let title = title.clone() + if all > 1 { &portion } else { "" };
        let bars = cells.iter().flat_map(|(_, bars)| bars);
        Figure {
            legend: legend(analysis, bars.map(|bar| bar.variant)),
            ..Figure::new(&title, draw_bars(x.clone(), cells))
        }
    };
    portions.enumerate().map(figure).collect()
}

fn draw_bars(x: Axis, cells: &[(String, Vec<Bar>)]) -> Drawing {
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
            chart.bar(Role::variant(bar.variant), (bar.rate, y));
            chart.whisker(Role::INK, Mark::UPRIGHT, bar.whisker.map(|rate| (rate, y)));
            chart.word((bar.end, y), 10.0, &bar.word);
            row += 1.0;
        }
    }
    chart.drawing()
}

/// Rates over the AAAA share and over the cached share, with the other share at zero and the papers' single cached
/// name.
pub(super) fn curves(analysis: &Analysis) -> Vec<Figure> {
    let shares: [(&str, Shares); 2] = [
        ("AAAA share", |point| (point.aaaa_pct, point.cached_pct)),
        ("cached share", |point| (point.cached_pct, point.aaaa_pct)),
    ];
    let figures = shares.into_iter();
    figures
        .filter_map(|(over, of)| curve(analysis, over, of))
        .collect()
}

/// A share of a point, and the other one.
type Shares = fn(&PointResult) -> (f64, f64);

/// The curve over a share, which has the name of its models.
fn curve(analysis: &Analysis, over: &str, of: Shares) -> Option<Figure> {
    let mut series: Vec<Series> = Vec::new();
    let (mut shares, mut bounds, mut dashes) = (Vec::new(), "", "");
    for variant in 0..analysis.variants.len() {
        let mut own = Series::new(variant, analysis.name_of(variant));
        let points = analysis.points.iter().filter(|p| p.variant == variant);
        for point in points.filter(|p| p.pattern.is_empty() && p.planned.is_usual) {
            let (share, other) = of(point);
            let Some(summary) = point.summary.as_ref().filter(|_| same(other, 0.0)) else {
                continue;
            };
            let range = Some([summary.p1, summary.p99]);
            own.add((share, summary.median), range, point.lower_bound);
            shares.push(share);
            if point.lower_bound {
                bounds = "; hollow: lower bound";
            }
        }
        let holds =
            |m: &&ModelResult| m.model == over && m.variant == variant && m.refused.is_none();
        for model in analysis.models.iter().filter(holds) {
            own.dash(smooth(model));
            dashes = "; dashes: the model";
        }
        series.push(own);
    }
    let first = *shares.first()?;
    let several = shares.iter().any(|share| !same(*share, first));
    let whiskers = "whiskers from the 1st to the 99th percentile";
    let title = format!("Median rate over the {over}; {whiskers}{bounds}{dashes}");
    let x = Axis::linear(&format!("{over} (%)"), (0.0, 100.0));
    let y = Axis::from_zero("queries/s", values(&series));
    several.then(|| lines(&title, (x, y), &series))
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

/// Rates over cores, delays or working sets. Cores have the ideal linear scaling as well.
pub(super) fn over(analysis: &Analysis, over: Over) -> Option<Figure> {
    let place = |value: f64| match over {
        Over::Cores | Over::DelayMs => value,
        Over::Names => value.log2(),
    };
    let series = |(index, curve): (usize, &Curve)| {
        let mut series = Series::new(index, &curve.of);
        let rows = curve.rows.iter();
        for (value, point) in rows.map(|(value, point)| (*value, &analysis.points[*point])) {
            if let Some(summary) = &point.summary {
                let at = (place(value), summary.median);
                series.add(at, Some([summary.p1, summary.p99]), point.lower_bound);
            }
        }
        if let (Over::Cores, Some((fewest, point))) = (over, curve.rows.first()) {
            let per_core = analysis.points[*point].median().unwrap_or(0.0) / fewest;
            let cores = curve.rows.iter().map(|row| row.0);
            series.dash(cores.map(|cores| (cores, per_core * cores)));
        }
        series
    };
    let own = analysis.curves.iter().filter(|curve| curve.over == over);
    let series: Vec<_> = own.enumerate().map(series).collect();
    let most = places(&series).reduce(f64::max)?;
    let (over, x) = match over {
        Over::Cores => (
            "cores; dashes: ideal",
            Axis::linear("cores", (0.0, most + 0.5)).whole(),
        ),
        Over::DelayMs => (
            "the delay of the authority",
            Axis::linear("delay of the authority (ms)", (0.0, most)),
        ),
        Over::Names => {
            let least = places(&series).fold(most, f64::min);
            let x = Axis::linear("names, as a power of 2", (least, most));
            ("the working set", x.whole())
        }
    };
    let title = format!(
        "Median rate over {over}; whiskers from the 1st to the 99th percentile; hollow: lower bound"
    );
    let y = Axis::from_zero("queries/s", values(&series));
    Some(lines(&title, (x, y), &series))
}
