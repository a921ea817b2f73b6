//! The figures of a report: SVG with classes for colours, a legend in words, and the plotted numbers.

mod authorities;
mod authority;
mod course;
mod distribution;
mod evidence;
mod heat;
mod load;
mod margins;
mod messages;
mod pairs;
mod places;
mod rates;
pub(super) mod standings;
mod trials;

use std::collections::BTreeSet;

use serde::Serialize;

use super::analysis::{Analysis, PointResult};
use super::words;
use crate::report::chart;

/// A figure with its legend and numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Title.
    pub title: String,
    /// The drawing: SVG that can be embedded in a page unchanged.
    pub svg: String,
    /// Keys (SVG) and names of the series; empty for a single one.
    pub legend: Vec<(String, String)>,
    /// The plotted numbers.
    pub table: Table,
    /// The file beside the page that contains them and more.
    pub file: &'static str,
}

impl Figure {
    /// A figure without a legend.
    fn new(title: &str, svg: String, table: Table, file: &'static str) -> Self {
        Self {
            title: title.to_owned(),
            svg,
            legend: Vec::new(),
            table,
            file,
        }
    }
}

/// Numbers in rows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// Heads of the columns, with units.
    pub columns: Vec<String>,
    /// Rows as displayed.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Table with these column heads, separated by bars, and rows with as many cells.
    fn new<R: Into<Vec<String>>>(heads: &str, rows: impl IntoIterator<Item = R>) -> Self {
        Self {
            columns: heads.split(" | ").map(str::to_owned).collect(),
            rows: rows.into_iter().map(Into::into).collect(),
        }
    }
}

/// Figures of one variant, under its name.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// The variant.
    pub title: String,
    /// Its figures.
    pub figures: Vec<Figure>,
}

/// All figures of a report, without those that have no data.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Bars of the verdict, in the order of its rows: SVG without a title.
    pub standings: Vec<String>,
    /// Rates by cell, as heat maps.
    pub heat: Vec<Figure>,
    /// Goodput and processor time of the DUT over the time of the campaign.
    pub courses: Vec<Figure>,
    /// Round-trip times at the rate that all servers of a cell passed.
    pub common_loads: Vec<Figure>,
    /// Medians with their percentiles, as bars.
    pub rates: Vec<Figure>,
    /// Distribution of the runs, a figure for each cell.
    pub distributions: Vec<Figure>,
    /// Self-tests and the rates measured under them.
    pub margins: Vec<Figure>,
    /// Lateness and rate error, with their limits.
    pub sender: Vec<Figure>,
    /// Places of losses and outcomes of trials, for each variant.
    pub losses: Vec<Figure>,
    /// The messages of the typical query of each variant.
    pub messages: Vec<Figure>,
    /// Round-trip times with and without the time of the authority.
    pub dut_only: Vec<Figure>,
    /// Every search of every point, by variant.
    pub convergence: Vec<Group>,
    /// Round-trip times by percentile, a figure for each cell.
    pub latency: Vec<Figure>,
    /// Rates over the AAAA share and over the cached share, with the models.
    pub curves: Vec<Figure>,
    /// Rates over cores.
    pub scaling: Vec<Figure>,
    /// Rates of authorities over cores; their memory and start time over the names of the zone.
    pub authorities: Vec<Figure>,
    /// Rates over the delay of the authority.
    pub delays: Vec<Figure>,
    /// Rates over the working set.
    pub working_sets: Vec<Figure>,
    /// Goodput and latency over the offered rate, by variant.
    pub overload: Vec<Group>,
    /// Changes during soaks, by variant.
    pub soak: Vec<Group>,
    /// Largest resident memory.
    pub memory: Vec<Figure>,
}

impl Figures {
    /// Draws all figures.
    pub fn of(analysis: &Analysis) -> Self {
        Self {
            standings: standings::bars(analysis),
            heat: heat::maps(analysis),
            courses: course::courses(analysis),
            common_loads: trials::common_loads(analysis),
            rates: rates::bars(analysis),
            distributions: distribution::distributions(analysis),
            margins: margins::margins(analysis),
            sender: evidence::sender(analysis),
            losses: places::losses(analysis),
            messages: messages::of_queries(analysis),
            dut_only: evidence::dut_only(analysis),
            convergence: trials::convergence(analysis),
            latency: trials::latency(analysis),
            curves: rates::curves(analysis),
            scaling: rates::scaling(analysis),
            authorities: authorities::authorities(analysis),
            delays: authority::delays(analysis),
            working_sets: authority::working_sets(analysis),
            overload: load::overload(analysis),
            soak: load::soak(analysis),
            memory: rates::memory(analysis),
        }
    }
}

/// The name of a variant; empty for an index out of range, which an analysis never has.
fn variant_name(analysis: &Analysis, variant: usize) -> &str {
    analysis.variants.get(variant).map_or("", |v| &v.name)
}

/// Whether two copied numbers are equal.
fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// Keys and names of these variants; empty for a single one.
fn legend(analysis: &Analysis, variants: impl Iterator<Item = usize>) -> Vec<(String, String)> {
    let variants: BTreeSet<_> = variants.collect();
    let several = variants.len() > 1;
    let entry = |variant| {
        let name = variant_name(analysis, variant).to_owned();
        (chart::key(variant), name)
    };
    let listed = variants.into_iter().filter(|_| several);
    listed.map(entry).collect()
}

/// Values `of` the points, by the names of their cells.
fn by_cell<'a, T>(
    analysis: &'a Analysis,
    of: impl Fn(&'a PointResult) -> Option<T>,
) -> Vec<(String, Vec<T>)> {
    let mut cells: Vec<(String, Vec<T>)> = Vec::new();
    for point in &analysis.points {
        let Some(value) = of(point) else { continue };
        let name = words::cell_and_spans(analysis, point);
        match cells.iter_mut().find(|(cell, _)| *cell == name) {
            Some((_, values)) => values.push(value),
            None => cells.push((name, vec![value])),
        }
    }
    cells
}

/// Figures of variants under their names, without variants that have none.
fn groups(analysis: &Analysis, figures: impl Iterator<Item = (usize, Vec<Figure>)>) -> Vec<Group> {
    let figures = figures.filter(|(_, figures)| !figures.is_empty());
    let group = |(variant, figures)| Group {
        title: variant_name(analysis, variant).to_owned(),
        figures,
    };
    figures.map(group).collect()
}

#[cfg(test)]
mod tests;
