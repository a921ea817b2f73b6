//! Charts as SVG and PDF: axes, lines, bars, marks and words, each with its [`Role`]. In SVG that is a class, and a style
//! sheet gives it its colour for light, dark and paper.
//!
//! Lengths are units of the drawing, two for a pixel at its full size; a letter is 24 high.

mod axis;
mod diagram;
mod drawing;
mod pdf;
mod shapes;

use std::fmt::Write as _;

pub(super) use axis::Axis;
pub(super) use diagram::Diagram;
pub(super) use drawing::{COLOURS, Drawing, Key, style};
pub(super) use shapes::{Anchor, Role, Stroke, escaped};
use shapes::{Baseline, Shapes};

/// Width and height, including the names of the axes.
pub(super) type Size = (f64, f64);

/// Size of most charts.
pub(super) const MEDIUM: Size = (960.0, 600.0);

/// Width of a letter in tick names, with some space.
pub(super) const LETTER: f64 = 15.0;

/// A mark: its style, its start to the right of its point and below it, and the rest of its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(Stroke, f64, f64, &'static str);

impl Mark {
    /// The end of a vertical whisker.
    pub(super) const LEVEL: Self = Self(Stroke::THIN, -6.0, 0.0, "h12");
    /// The end of a horizontal whisker along a bar.
    pub(super) const UPRIGHT: Self = Self(Stroke::THIN, 0.0, -6.0, "v12");

    /// The shape of a variant by its index, so that variants differ by more than their colour; hollow for doubtful
    /// values.
    pub(super) fn variant(place: usize, hollow: bool) -> Self {
        const SHAPES: [(f64, f64, &str); 5] = [
            (-8.0, 0.0, "a8 8 0 1 0 16 0a8 8 0 1 0-16 0z"),
            (-7.0, -7.0, "h14v14h-14z"),
            (0.0, -9.0, "l9 16h-18z"),
            (0.0, -10.0, "l10 10-10 10-10-10z"),
            (0.0, 9.0, "l9-16h-18z"),
        ];
        let (right, down, rest) = SHAPES[place % SHAPES.len()];
        let stroke = if hollow { Stroke::THIN } else { Stroke::Fill };
        Self(stroke, right, down, rest)
    }

    fn at(self, (x, y): (f64, f64)) -> String {
        format!("M{:.0} {:.0}{}", x + self.1, y + self.2, self.3)
    }
}

/// A chart under construction: later elements are drawn over earlier ones. Values that are not numbers are omitted, and
/// values beyond an axis are drawn at its end.
pub(super) struct Chart {
    size: Size,
    x: Axis,
    y: Axis,
    /// Left and right end of the horizontal axis.
    across: (f64, f64),
    /// Lower and upper end of the vertical axis.
    up: (f64, f64),
    shapes: Shapes,
}

impl Chart {
    /// A chart with these axes and their names.
    pub(super) fn new(size: Size, x: Axis, y: Axis) -> Self {
        let wide = |(_, name): &(f64, String)| LETTER * name.chars().count() as f64;
        let names = y.ticks.iter().map(wide).reduce(f64::max);
        let left = names.map_or(8.0, |width| 26.0 + width);
        let right = size.0 - 12.0 - x.ticks.last().map_or(0.0, wide) / 2.0;
        // A line for the name of the vertical axis, if it has one.
        let top = if y.label.is_empty() { 8.0 } else { 52.0 };
        let bottom = size.1 - 80.0;
        let (across, up) = ((left, right), (bottom, top));
        let mut shapes = Shapes::default();
        let mut mesh = String::new();
        let mut base = format!("M{left:.0} {bottom:.0}H{right:.0}");
        for (value, name) in &y.ticks {
            let y = between(up, y.share(*value));
            let _ = write!(mesh, "M{left:.0} {y:.0}H{right:.0}");
            let at = (left - 14.0, y);
            shapes.word(Role::MUTED, Anchor::End, at, Baseline::MIDDLE, name);
        }
        for (value, name) in &x.ticks {
            let x = between(across, x.share(*value));
            let _ = write!(base, "M{x:.0} {bottom:.0}v8");
            let at = (x, bottom + 14.0);
            shapes.word(Role::MUTED, Anchor::Middle, at, Baseline::BELOW, name);
        }
        shapes.path(Role::GRID, Stroke::THIN, mesh);
        shapes.path(Role::MUTED, Stroke::THIN, base);
        let middle = (f64::midpoint(left, right), bottom + 46.0);
        shapes.word(Role::INK, Anchor::Middle, middle, Baseline::BELOW, &x.label);
        let corner = (8.0, top - 24.0);
        shapes.word(Role::INK, Anchor::Start, corner, Baseline::ABOVE, &y.label);
        Self {
            size,
            x,
            y,
            across,
            up,
            shapes,
        }
    }

    /// Draws a line through points.
    pub(super) fn line(
        &mut self,
        role: Role,
        stroke: Stroke,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) {
        let places = points.into_iter().filter_map(|point| self.place(point));
        let places: Vec<_> = places.map(|(x, y)| format!("{x:.0} {y:.0}")).collect();
        if !places.is_empty() {
            // The zero-length segment at its end turns a single point into a dot.
            let data = format!("M{}h0", places.join("L"));
            self.shapes.path(role, stroke, data);
        }
    }

    /// Draws the same mark at several points, as one path, so that many trials need little space.
    pub(super) fn marks(
        &mut self,
        role: Role,
        mark: Mark,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) {
        let places = points.into_iter().filter_map(|point| self.place(point));
        let data: String = places.map(|place| mark.at(place)).collect();
        self.shapes.path(role, mark.0, data);
    }

    /// Draws a line between two points, with a mark at each end.
    pub(super) fn whisker(&mut self, role: Role, foot: Mark, ends: [(f64, f64); 2]) {
        self.line(role, Stroke::THIN, ends);
        self.marks(role, foot, ends);
    }

    /// Draws a bar from zero to a point.
    pub(super) fn bar(&mut self, role: Role, point: (f64, f64)) {
        if let Some((x, y)) = self.place(point) {
            let (zero, top) = (self.across.0, y - 12.0);
            let data = format!("M{zero:.0} {top:.0}H{x:.0}v24H{zero:.0}z");
            self.shapes.path(role, Stroke::Fill, data);
        }
    }

    /// Draws a word to the right of a point, at a distance.
    pub(super) fn word(&mut self, point: (f64, f64), distance: f64, word: &str) {
        if let Some((x, y)) = self.place(point) {
            let (at, shapes) = ((x + distance, y), &mut self.shapes);
            shapes.word(Role::INK, Anchor::Start, at, Baseline::MIDDLE, word);
        }
    }

    /// The finished drawing.
    pub(super) fn drawing(self) -> Drawing {
        Drawing {
            size: self.size,
            shapes: self.shapes,
        }
    }

    /// The content of the drawing as SVG, without the surrounding element.
    pub(super) fn content(&self) -> String {
        self.shapes.svg()
    }

    /// The position of a pair of values, if both are numbers.
    fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let across = between(self.across, self.x.share(x));
        let up = between(self.up, self.y.share(y));
        (!across.is_nan() && !up.is_nan()).then_some((across, up))
    }
}

fn between((from, to): (f64, f64), share: f64) -> f64 {
    from + share * (to - from)
}

#[cfg(test)]
mod tests;
