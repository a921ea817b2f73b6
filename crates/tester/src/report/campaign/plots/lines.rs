//! Figures of values over a quantity: a line with marks for each series.

use super::Figure;
use crate::report::chart::{Axis, Chart, Key, MEDIUM, Mark, Role, Stroke};

/// Values of one server, or of one of its conditions.
pub(super) struct Series {
    /// Name in the legend.
    pub(super) name: String,
    /// Index of its colour and of the shape of its marks.
    index: usize,
    values: Vec<Value>,
    /// Lines of what is not measured, such as a model.
    dashes: Vec<Vec<(f64, f64)>>,
}

/// A measured value.
struct Value {
    at: (f64, f64),
    /// Ends of its whisker.
    range: Option<[f64; 2]>,
    /// Whether it is a lower bound or doubtful.
    hollow: bool,
}

impl Series {
    /// A series without values: the index gives it a colour and a shape.
    pub(super) fn new(index: usize, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            index,
            values: Vec::new(),
            dashes: Vec::new(),
        }
    }

    /// Adds a value, hollow if it is doubtful.
    pub(super) fn add(&mut self, at: (f64, f64), range: Option<[f64; 2]>, hollow: bool) {
        self.values.push(Value { at, range, hollow });
    }

    /// Adds exact values.
    pub(super) fn with(mut self, values: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let values = values.into_iter().map(|at| Value {
            at,
            range: None,
            hollow: false,
        });
        self.values.extend(values);
        self
    }

    /// Adds a line of what is not measured. Marks of a series with such a line are not joined.
    pub(super) fn dash(&mut self, line: impl IntoIterator<Item = (f64, f64)>) {
        self.dashes.push(line.into_iter().collect());
    }

    fn draw(&self, chart: &mut Chart) {
        let role = Role::variant(self.index);
        for line in &self.dashes {
            chart.line(role, Stroke::Dashed, line.iter().copied());
        }
        if self.dashes.is_empty() {
            let places = self.values.iter().map(|value| value.at);
            chart.line(role, Stroke::THICK, places);
        }
        for Value { at, range, .. } in &self.values {
            if let Some(ends) = range {
                chart.whisker(role, Mark::LEVEL, ends.map(|end| (at.0, end)));
            }
        }
        for hollow in [false, true] {
            let alike = self.values.iter().filter(|value| value.hollow == hollow);
            let mark = Mark::variant(self.index, hollow);
            chart.marks(role, mark, alike.map(|value| value.at));
        }
    }
}

/// All values, with the ends of their whiskers and dashed lines, for the range of an axis.
pub(super) fn values(series: &[Series]) -> impl Iterator<Item = f64> {
    let of = |series: &Series| -> Vec<f64> {
        let measured = series.values.iter();
        let measured = measured.flat_map(|v| v.range.into_iter().flatten().chain([v.at.1]));
        let dashes = series.dashes.iter().flatten().map(|at| at.1);
        measured.chain(dashes).collect()
    };
    series.iter().flat_map(of)
}

/// Where the values are, for the range of the other axis.
pub(super) fn places(series: &[Series]) -> impl Iterator<Item = f64> {
    let values = series.iter().flat_map(|series| &series.values);
    values.map(|value| value.at.0)
}

/// The figure of these series, with a legend if there are several.
pub(super) fn lines(title: &str, (x, y): (Axis, Axis), series: &[Series]) -> Figure {
    let mut chart = Chart::new(MEDIUM, x, y);
    series.iter().for_each(|series| series.draw(&mut chart));
    let key = |series: &Series| (Key::variant(series.index), series.name.clone());
    let listed = series.iter().filter(|_| series.len() > 1);
    Figure {
        legend: listed.map(key).collect(),
        ..Figure::new(title, chart.drawing())
    }
}
