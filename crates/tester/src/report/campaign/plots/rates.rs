//! Figures of rates: by cell, over shares with the models, over cores; and memory, as bars likewise.

use super::super::analysis::{Analysis, ModelResult, PointResult};
use super::super::html::ReportError;
use super::super::numbers;
use super::axis::Axis;
use super::canvas::{self, Anchor, Drawn, MEDIUM, Plot};
use super::svg::Role;
use super::{Figure, Table, cell_name, float, is_of_the_plan, legend, real, same, variant_name};

/// Bars of one figure: more of them are spread over several, which a page of paper can hold.
const BARS_MAX: usize = 24;

/// Height of a bar with the space around it.
const ROW: f64 = 17.0;

/// Height of the name of a cell, in rows.
const NAME_ROWS: f64 = 1.4;

/// One bar: median or size, with whiskers if there are percentiles.
struct Bar {
    variant: usize,
    value: f64,
    whiskers: Option<(f64, f64)>,
    lower_bound: bool,
}

/// Bars under the name of their cell.
struct Cluster {
    name: String,
    bars: Vec<Bar>,
}

/// Medians with 1st and 99th percentile, grouped by cell, for the plan's duration and timeout.
pub(super) fn bars(analysis: &Analysis) -> Result<Vec<Figure>, ReportError> {
    let bar = |point: &PointResult| {
        let summary = point.summary.as_ref()?;
        Some(Bar {
            variant: point.variant,
            value: summary.median,
            whiskers: Some((summary.p1, summary.p99)),
            lower_bound: point.lower_bound,
        })
    };
    let figures = clusters(analysis, bar);
    let highest = highest(&figures);
    let x = Axis::from_zero("queries/s", highest * 1.2, 4, |v| numbers::decimal(v, 0));
    let title = "Median rate; whiskers from the 1st to the 99th percentile";
    let columns = [
        "Cell",
        "Variant",
        "Median (queries/s)",
        "1st percentile (queries/s)",
        "99th percentile (queries/s)",
    ];
    let file = "points.csv";
    draw_clusters(analysis, &figures, title, &x, file, &columns, |bar| {
        numbers::rate(bar)
    })
}

/// Largest resident memory of each variant in each cell.
pub(super) fn memory(analysis: &Analysis) -> Result<Vec<Figure>, ReportError> {
    let bar = |point: &PointResult| {
        Some(Bar {
            variant: point.variant,
            value: float(point.memory_bytes_max?),
            whiskers: None,
            lower_bound: false,
        })
    };
    let mut figures = clusters(analysis, bar);
    let (unit, name) = numbers::byte_unit(highest(&figures));
    let all = figures.iter_mut().flatten();
    for bar in all.flat_map(|cluster| &mut cluster.bars) {
        bar.value /= unit;
    }
    let x = Axis::from_zero(name, highest(&figures) * 1.2, 4, numbers::short);
    let size = format!("Memory ({name})");
    let columns = ["Cell", "Variant", &size];
    let title = "Largest resident memory of the DUT after a trial";
    let file = "points.csv";
    draw_clusters(analysis, &figures, title, &x, file, &columns, |bar| {
        numbers::decimal(bar, 1)
    })
}

/// The bars by cell, in portions for one figure each.
fn clusters(analysis: &Analysis, bar: impl Fn(&PointResult) -> Option<Bar>) -> Vec<Vec<Cluster>> {
    let mut all: Vec<Cluster> = Vec::new();
    for point in &analysis.points {
        if !is_of_the_plan(analysis, point) {
            continue;
        }
        let Some(bar) = bar(point) else { continue };
        let name = cell_name(analysis, point);
        match all.iter_mut().find(|cluster| cluster.name == name) {
            Some(cluster) => cluster.bars.push(bar),
            None => all.push(Cluster {
                name,
                bars: vec![bar],
            }),
        }
    }
    let rows = |clusters: &[Cluster]| -> usize {
        clusters.iter().map(|cluster| cluster.bars.len() + 1).sum()
    };
    let portions = rows(&all).div_ceil(BARS_MAX).max(1);
    let size = all.len().div_ceil(portions).max(1);
    let mut figures = Vec::new();
    while !all.is_empty() {
        let rest = all.split_off(size.min(all.len()));
        figures.push(std::mem::replace(&mut all, rest));
    }
    figures
}

fn highest(figures: &[Vec<Cluster>]) -> f64 {
    let all = figures.iter().flatten().flat_map(|cluster| &cluster.bars);
    all.map(|bar| bar.whiskers.map_or(bar.value, |(_, p99)| p99))
        .fold(0.0, f64::max)
}

fn draw_clusters(
    analysis: &Analysis,
    figures: &[Vec<Cluster>],
    title: &str,
    x: &Axis,
    file: &'static str,
    columns: &[&str],
    number: impl Fn(f64) -> String,
) -> Result<Vec<Figure>, ReportError> {
    let mut drawn = Vec::new();
    for (place, clusters) in figures.iter().enumerate() {
        let of_how_many = match figures.len() {
            1 => String::new(),
            all => format!(" ({} of {all})", place + 1),
        };
        let title = format!("{title}{of_how_many}");
        let bars: usize = clusters.iter().map(|cluster| cluster.bars.len()).sum();
        let rows = real(bars) + NAME_ROWS * real(clusters.len());
        let y = Axis::rows("", rows);
        let size = (MEDIUM.0, 44.0 + ROW * rows);
        let svg = canvas::draw(&title, size, (x, &y), |plot| {
            draw_bars(plot, clusters, &number)
        })?;
        let mut table = Table {
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: Vec::new(),
        };
        for cluster in clusters {
            for bar in &cluster.bars {
                let name = variant_name(analysis, bar.variant);
                let mut row = vec![
                    cluster.name.clone(),
                    name.to_owned(),
                    bound(bar, number(bar.value)),
                ];
                if let Some((p1, p99)) = bar.whiskers {
                    row.extend([number(p1), number(p99)]);
                }
                table.rows.push(row);
            }
        }
        let variants = clusters.iter().flat_map(|cluster| &cluster.bars);
        drawn.push(Figure {
            title,
            svg,
            legend: legend(analysis, variants.map(|bar| bar.variant))?,
            table,
            file,
        });
    }
    Ok(drawn)
}

/// The number of a bar, marked if it is a lower bound.
fn bound(bar: &Bar, number: String) -> String {
    if bar.lower_bound {
        format!("≥ {number}")
    } else {
        number
    }
}

fn draw_bars(plot: &Plot<'_>, clusters: &[Cluster], number: impl Fn(f64) -> String) -> Drawn {
    let mut row = 0.0;
    for cluster in clusters {
        let (x, y) = plot.at(0.0, row + NAME_ROWS - 0.5);
        plot.word((x, y), Anchor::Right, &cluster.name, Role::Ink)?;
        row += NAME_ROWS;
        for bar in &cluster.bars {
            let (x, top) = plot.at(bar.value, row + 0.14);
            let (zero, bottom) = plot.at(0.0, row + 0.86);
            plot.bar((zero, top), (x, bottom), Role::Series(bar.variant))?;
            let mut end = x;
            if let Some((p1, p99)) = bar.whiskers {
                let ((low, middle), (high, _)) = (plot.at(p1, row + 0.5), plot.at(p99, row + 0.5));
                plot.path(&[(low, middle), (high, middle)], Role::Ink, 1.0)?;
                for at in [low, high] {
                    plot.path(&[(at, middle - 3.0), (at, middle + 3.0)], Role::Ink, 1.0)?;
                }
                end = high.max(x);
            }
            let (_, middle) = plot.at(0.0, row + 0.5);
            let text = bound(bar, number(bar.value));
            plot.word((end + 5.0, middle), Anchor::Right, &text, Role::Ink)?;
            row += 1.0;
        }
    }
    Ok(())
}

/// Which share a curve goes over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Aaaa,
    Cached,
}

impl Over {
    /// As models are named.
    fn name(self) -> &'static str {
        match self {
            Self::Aaaa => "AAAA share",
            Self::Cached => "cached share",
        }
    }

    fn share(self, point: &PointResult) -> f64 {
        match self {
            Self::Aaaa => point.aaaa_pct,
            Self::Cached => point.cached_pct,
        }
    }

    /// Whether the other share is none, and the cached names are the papers' one.
    fn has(self, point: &PointResult) -> bool {
        let other = match self {
            Self::Aaaa => point.cached_pct,
            Self::Cached => point.aaaa_pct,
        };
        same(other, 0.0) && point.pattern.is_empty()
    }
}

/// Rates over the AAAA share and over the cached share, each with the other at none.
pub(super) fn curves(analysis: &Analysis) -> Result<Vec<Figure>, ReportError> {
    let mut figures = Vec::new();
    for over in [Over::Aaaa, Over::Cached] {
        let points: Vec<_> = analysis
            .points
            .iter()
            .filter(|point| is_of_the_plan(analysis, point) && over.has(point))
            .filter(|point| point.summary.is_some())
            .collect();
        let shares = points.iter().map(|point| over.share(point));
        let lowest = shares.clone().fold(f64::INFINITY, f64::min);
        if shares.fold(0.0, f64::max) > lowest {
            figures.push(curve(analysis, &points, over)?);
        }
    }
    Ok(figures)
}

fn curve(analysis: &Analysis, points: &[&PointResult], over: Over) -> Result<Figure, ReportError> {
    let models: Vec<_> = analysis
        .models
        .iter()
        .filter(|model| model.model == over.name())
        .collect();
    let summaries = points.iter().filter_map(|point| point.summary.as_ref());
    let highest = summaries.map(|summary| summary.p99).fold(0.0, f64::max);
    let x = Axis::linear(
        format!("{} (%)", over.name()),
        0.0,
        100.0,
        5,
        numbers::short,
    );
    let y = Axis::from_zero("queries/s", highest, 5, |v| numbers::decimal(v, 0));
    let bounds = points.iter().any(|point| point.lower_bound);
    let title = format!(
        "Median rate over the {}; whiskers from the 1st to the 99th percentile{}{}",
        over.name(),
        if bounds { "; hollow: lower bound" } else { "" },
        if models.is_empty() {
            ""
        } else {
            "; lines: the model"
        }
    );
    let svg = canvas::draw(&title, MEDIUM, (&x, &y), |plot| {
        for model in &models {
            let places: Vec<_> = smooth(model)
                .into_iter()
                .map(|(share, rate)| plot.at(share, rate))
                .collect();
            plot.path(&places, Role::Series(model.variant), 1.5)?;
        }
        points
            .iter()
            .try_for_each(|point| draw_point(plot, point, over))
    })?;
    Ok(Figure {
        title,
        svg,
        legend: legend(analysis, points.iter().map(|point| point.variant))?,
        table: table_of_curve(analysis, points, &models, over),
        file: "points.csv",
    })
}

fn draw_point(plot: &Plot<'_>, point: &PointResult, over: Over) -> Drawn {
    let Some(summary) = &point.summary else {
        return Ok(());
    };
    let share = over.share(point);
    let role = Role::Series(point.variant);
    plot.whisker(share, summary.p1, summary.p99, role)?;
    let place = plot.at(share, summary.median);
    plot.point(place, point.lower_bound, point.variant)
}

/// The model between its fitted shares: by equations 7 and 8 of paper 000 the reciprocal of the rate
/// is a straight line over the share.
fn smooth(model: &ModelResult) -> Vec<(f64, f64)> {
    const STEPS: u32 = 12;
    let mut ends: Vec<(f64, f64)> = model
        .fitted
        .iter()
        .map(|row| (row.share_pct, row.modelled))
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut line = Vec::new();
    for pair in ends.windows(2) {
        let [(from, high), (to, low)] = *pair else {
            continue;
        };
        for step in 0..=STEPS {
            let part = f64::from(step) / f64::from(STEPS);
            let rate = 1.0 / ((1.0 - part) / high + part / low);
            line.push((from + part * (to - from), rate));
        }
    }
    line.retain(|(_, rate)| rate.is_finite());
    line
}

fn table_of_curve(
    analysis: &Analysis,
    points: &[&PointResult],
    models: &[&ModelResult],
    over: Over,
) -> Table {
    let mut table = Table::new([
        "Variant",
        "Share (%)",
        "Median (queries/s)",
        "Model (queries/s)",
        "Residual (%)",
    ]);
    for point in points {
        let Some(summary) = &point.summary else {
            continue;
        };
        let share = over.share(point);
        let model = models
            .iter()
            .filter(|model| model.variant == point.variant)
            .flat_map(|model| &model.fitted)
            .find(|row| same(row.share_pct, share))
            .map_or(f64::NAN, |row| row.modelled);
        let residual = (model - summary.median) / summary.median * 100.0;
        table.row([
            variant_name(analysis, point.variant).to_owned(),
            numbers::short(share),
            numbers::rate(summary.median),
            numbers::decimal(model, 0),
            numbers::decimal(residual, 2),
        ]);
    }
    table
}

/// Rates of each DUT by its cores, against what as many times the cores would ideally give.
pub(super) fn scaling(analysis: &Analysis) -> Result<Vec<Figure>, ReportError> {
    let mut figures = Vec::new();
    for scaling in &analysis.scaling {
        let rows = &scaling.rows;
        let Some(first) = rows.iter().min_by_key(|row| row.cores) else {
            continue;
        };
        let (fewest, single) = (first.cores, first.median);
        let most = rows.iter().map(|row| row.cores).max().unwrap_or(fewest);
        let ideal = single * real(most) / real(fewest.max(1));
        let best = rows.iter().map(|row| row.median).fold(ideal, f64::max);
        let mut x = Axis::linear("cores", 0.0, real(most) + 0.5, 8, numbers::short);
        x.ticks.retain(|(at, _)| at.fract().abs() < 1e-9);
        let y = Axis::from_zero("queries/s", best, 5, |v| numbers::decimal(v, 0));
        let title = format!("{}: median rate over cores; dashes: ideal", scaling.dut);
        let svg = canvas::draw(&title, MEDIUM, (&x, &y), |plot| {
            let ends = [plot.at(real(fewest), single), plot.at(real(most), ideal)];
            plot.dashes(&ends, Role::Muted)?;
            let places: Vec<_> = rows
                .iter()
                .map(|row| plot.at(real(row.cores), row.median))
                .collect();
            plot.path(&places, Role::Series(0), 1.5)?;
            places.into_iter().try_for_each(|place| plot.mark(place, 0))
        })?;
        let mut table = Table::new([
            "Cores",
            "Median (queries/s)",
            "Rate per core (queries/s)",
            "Factor",
        ]);
        for row in rows {
            table.row([
                row.cores.to_string(),
                numbers::rate(row.median),
                numbers::decimal(row.per_core, 0),
                numbers::decimal(row.factor, 2),
            ]);
        }
        figures.push(Figure {
            title,
            svg,
            legend: Vec::new(),
            table,
            file: "results.json",
        });
    }
    Ok(figures)
}
