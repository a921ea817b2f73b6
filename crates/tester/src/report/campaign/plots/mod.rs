//! The figures of a report, and their legends in words.

mod distribution;
mod heat;
mod latency;
mod lines;
mod load;
mod rates;
pub(super) mod standings;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::analyse::grouped;
use super::analysis::{Analysis, Over, PointResult};
use super::words;
use crate::report::chart::{Drawing, Key};
use lines::{Series, lines, values};

/// A figure with its legend.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    /// Title.
    pub(super) title: String,
    /// The drawing: SVG that can be embedded in a page unchanged.
    pub(super) svg: String,
    /// Keys (SVG) and names of the series; empty for a single one.
    pub(super) legend: Vec<(Key, String)>,
    #[serde(skip)]
    drawing: Drawing,
}

impl Figure {
    /// A figure without a legend.
    fn new(title: &str, drawing: Drawing) -> Self {
        Self {
            title: title.to_owned(),
            svg: drawing.element(title),
            legend: Vec::new(),
            drawing,
        }
    }

    /// The figure with its legend and a caption, which says `conditions` too, for files.
    pub(super) fn captioned(&self, conditions: &str) -> Drawing {
        let caption = format!("{}. {conditions}", self.title);
        self.drawing.captioned(&self.legend, &caption)
    }
}

/// All figures of a report by their subject, which may have none.
pub(super) type Figures = BTreeMap<&'static str, Vec<Figure>>;

/// Draws all figures.
pub(super) fn figures(analysis: &Analysis) -> Figures {
    let over = |quantity| rates::over(analysis, quantity).into_iter().collect();
    BTreeMap::from([
        ("rates", rates::bars(analysis)),
        ("heat", heat::maps(analysis)),
        ("distributions", distribution::distributions(analysis)),
        ("losses_over_time", load::losses_over_time(analysis)),
        ("common_loads", latency::common_loads(analysis)),
        ("latency", latency::latency(analysis)),
        ("curves", rates::curves(analysis)),
        ("scaling", over(Over::Cores)),
        ("delays", over(Over::DelayMs)),
        ("working_sets", over(Over::Names)),
        ("overload", load::overload(analysis)),
        ("soak", load::soak(analysis)),
    ])
}

/// What a figure alone would not say: runs, length and timeout of the trials, and whether they are a measurement.
pub(super) fn conditions(analysis: &Analysis) -> String {
    let points = analysis.points.iter();
    let points = points.filter(|point| point.planned.is_usual);
    let runs = || {
        points
            .clone()
            .filter_map(|p| Some(p.summary.as_ref()?.runs))
    };
    let (Some(point), Some(least), Some(most)) =
        (points.clone().next(), runs().min(), runs().max())
    else {
        return String::new();
    };
    let runs = match least == most {
        true => most.to_string(),
        false => format!("{least} to {most}"),
    };
    let doubts = match analysis.not_a_measurement.is_empty() {
        true => String::new(),
        false => format!(
            " NOT A MEASUREMENT: {}.",
            analysis.not_a_measurement.join("; ")
        ),
    };
    format!("n = {runs}; {}.{doubts}", words::spans(point))
}

/// Whether two copied numbers are equal.
fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// Keys and names of these variants; empty for a single one.
fn legend(analysis: &Analysis, variants: impl Iterator<Item = usize>) -> Vec<(Key, String)> {
    let variants: BTreeSet<_> = variants.collect();
    let several = variants.len() > 1;
    let entry = |variant| {
        let name = analysis.name_of(variant).to_owned();
        (Key::variant(variant), name)
    };
    let listed = variants.into_iter().filter(|_| several);
    listed.map(entry).collect()
}

/// Values `of` the points, by the names of their cells.
fn by_cell<'a, T>(
    analysis: &'a Analysis,
    of: impl Fn(&'a PointResult) -> Option<T>,
) -> Vec<(String, Vec<T>)> {
    let points = analysis.points.iter();
    grouped(points.filter_map(|point| Some((words::cell_and_spans(point), of(point)?))))
}

#[cfg(test)]
mod tests;
