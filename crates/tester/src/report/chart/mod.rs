//! Charts as SVG: axes, lines, bars, marks and words, each with the class of its [`Role`], so that a
//! style sheet gives them their colours for light, dark and paper.
//!
//! Lengths are units of the drawing, two for a pixel at its full size; a letter is 24 high.

mod axis;
mod diagram;

use std::fmt::Write as _;

pub(super) use axis::Axis;
pub(super) use diagram::{Diagram, Look};

/// Width and height, with the names of the axes.
pub(super) type Size = (f64, f64);

/// One of many beside each other.
pub(super) const SMALL: Size = (600.0, 400.0);
/// One or two beside each other.
pub(super) const MEDIUM: Size = (960.0, 600.0);
/// Alone in its row.
pub(super) const WIDE: Size = (1_600.0, 560.0);

/// Width of a letter of the names at ticks, with some space.
pub(super) const LETTER: f64 = 15.0;

/// What something stands for: its class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role(&'static str);

impl Role {
    /// Names and numbers.
    pub(super) const INK: Self = Self("ink");
    /// What helps to read, such as axes and ideal lines.
    pub(super) const MUTED: Self = Self("muted");
    /// The mesh.
    pub(super) const GRID: Self = Self("grid");
    /// A trial that passed.
    pub(super) const PASSED: Self = Self("passed");
    /// One that failed.
    pub(super) const FAILED: Self = Self("failed");
    /// One that says nothing.
    pub(super) const INVALID: Self = Self("invalid");
    /// What is the DUT's, where it is beside the Tester.
    pub(super) const DUT: Self = Self("dut");
    /// What is the Tester's.
    pub(super) const TESTER: Self = Self("tester");
    /// A rate, by how dark it is.
    pub(super) const HEAT: Self = Self("heat");

    /// A variant, by its place; the one after the last class begins again with another shape.
    pub(super) fn variant(place: usize) -> Self {
        const CLASSES: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];
        Self(CLASSES[place % CLASSES.len()])
    }
}

/// How a path is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stroke {
    /// Filled, without a line.
    Fill,
    /// By a line of this width.
    Solid(u8),
    /// By dashes: what is not measured.
    Dashed,
}

impl Stroke {
    /// As style sheets have it.
    pub(super) const THIN: Self = Self::Solid(2);
    /// For what is measured.
    pub(super) const THICK: Self = Self::Solid(3);
}

/// A mark: how it is drawn, where it begins to the right of its point and below it, and how it goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(Stroke, f64, f64, &'static str);

impl Mark {
    /// An oblique cross.
    pub(super) const CROSS: Self = Self(Stroke::THIN, -5.0, -5.0, "l10 10m0-10l-10 10");
    /// A hollow square on its corner.
    pub(super) const DIAMOND: Self = Self(Stroke::THIN, -8.0, 0.0, "l8-8 8 8-8 8z");
    /// The foot of an upright whisker.
    pub(super) const LEVEL: Self = Self(Stroke::THIN, -6.0, 0.0, "h12");
    /// The foot of a whisker along a bar.
    pub(super) const UPRIGHT: Self = Self(Stroke::THIN, 0.0, -6.0, "v12");

    /// A dot of this size: a line without length, by its round ends.
    pub(super) const fn dot(size: u8) -> Self {
        Self(Stroke::Solid(size), 0.0, 0.0, "h0")
    }

    /// The shape of a variant by its place, so that none is told by its colour alone; it is hollow for
    /// what is doubtful.
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

/// A chart in the making: what is added later stands before the rest. What is not a number is left out,
/// and what is beyond an axis stands at its end.
pub(super) struct Chart {
    size: Size,
    x: Axis,
    y: Axis,
    /// Left and right end of the level axis.
    across: (f64, f64),
    /// Lower and upper end of the upright axis.
    up: (f64, f64),
    svg: String,
}

impl Chart {
    /// The axes with their names.
    pub(super) fn new(size: Size, x: Axis, y: Axis) -> Self {
        Self::with_margin(size, x, y, 0.0)
    }

    /// The same with a margin of this width for notes at the right.
    pub(super) fn with_margin(size: Size, x: Axis, y: Axis, margin: f64) -> Self {
        let wide = |(_, name): &(f64, String)| LETTER * name.chars().count() as f64;
        let names = y.ticks.iter().map(wide).reduce(f64::max);
        let left = names.map_or(8.0, |width| 26.0 + width);
        let right = size.0 - margin - 12.0 - x.ticks.last().map_or(0.0, wide) / 2.0;
        // A line for the name of the upright axis, if it has one.
        let top = if y.label.is_empty() { 8.0 } else { 52.0 };
        let bottom = size.1 - 80.0;
        let mut chart = Self {
            size,
            across: (left, right),
            up: (bottom, top),
            svg: String::new(),
            x,
            y,
        };
        let mut mesh = String::new();
        let mut base = format!("M{left:.0} {bottom:.0}H{right:.0}");
        for (value, name) in chart.y.ticks.clone() {
            let y = between(chart.up, chart.y.share(value));
            let _ = write!(mesh, "M{left:.0} {y:.0}H{right:.0}");
            chart.text("end muted", (left - 14.0, y), MIDDLE, &name);
        }
        for (value, name) in chart.x.ticks.clone() {
            let x = between(chart.across, chart.x.share(value));
            let _ = write!(base, "M{x:.0} {bottom:.0}v8");
            chart.text("middle muted", (x, bottom + 14.0), BELOW, &name);
        }
        path(&mut chart.svg, Role::GRID, Stroke::THIN, &mesh);
        path(&mut chart.svg, Role::MUTED, Stroke::THIN, &base);
        let middle = (f64::midpoint(left, right), bottom + 46.0);
        chart.text("middle ink", middle, BELOW, &chart.x.label.clone());
        chart.text("ink", (8.0, top - 24.0), ABOVE, &chart.y.label.clone());
        chart
    }

    /// A line through points.
    pub(super) fn line(
        &mut self,
        role: Role,
        stroke: Stroke,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) {
        let places = points.into_iter().filter_map(|point| self.place(point));
        let places: Vec<_> = places.map(|(x, y)| format!("{x:.0} {y:.0}")).collect();
        if !places.is_empty() {
            // The line to nowhere at its end makes a lone point a dot.
            let data = format!("M{}h0", places.join("L"));
            path(&mut self.svg, role, stroke, &data);
        }
    }

    /// The same mark at points: one path, so that many trials stay small.
    pub(super) fn marks(
        &mut self,
        role: Role,
        mark: Mark,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) {
        let places = points.into_iter().filter_map(|point| self.place(point));
        let data: String = places.map(|place| mark.at(place)).collect();
        path(&mut self.svg, role, mark.0, &data);
    }

    /// A line between two points, with a foot at each.
    pub(super) fn whisker(&mut self, role: Role, foot: Mark, ends: [(f64, f64); 2]) {
        self.line(role, Stroke::THIN, ends);
        self.marks(role, foot, ends);
    }

    /// What was measured of a variant: a line through points, with a mark at each, which is hollow for
    /// what is doubtful.
    pub(super) fn curve(&mut self, variant: usize, points: &[(f64, f64, bool)]) {
        self.curve_of(Role::variant(variant), variant, points);
    }

    /// The same in any colour, with the shape of a place.
    pub(super) fn curve_of(&mut self, role: Role, shape: usize, points: &[(f64, f64, bool)]) {
        self.line(role, Stroke::THICK, points.iter().map(|&(x, y, _)| (x, y)));
        for hollow in [false, true] {
            let points = points.iter().filter(|point| point.2 == hollow);
            let mark = Mark::variant(shape, hollow);
            self.marks(role, mark, points.map(|&(x, y, _)| (x, y)));
        }
    }

    /// A bar from zero to a point.
    pub(super) fn bar(&mut self, role: Role, point: (f64, f64)) {
        if let Some((x, y)) = self.place(point) {
            let (zero, top) = (self.across.0, y - 12.0);
            let data = format!("M{zero:.0} {top:.0}H{x:.0}v24H{zero:.0}z");
            path(&mut self.svg, role, Stroke::Fill, &data);
        }
    }

    /// A word to the right of a point, at a distance.
    pub(super) fn word(&mut self, point: (f64, f64), distance: f64, word: &str) {
        if let Some((x, y)) = self.place(point) {
            self.text("ink", (x + distance, y), MIDDLE, word);
        }
    }

    /// A note in the margin at the right, on the level of `y`.
    pub(super) fn note(&mut self, y: f64, note: &str) {
        let y = between(self.up, self.y.share(y));
        self.text("end ink", (self.size.0 - 8.0, y), MIDDLE, note);
    }

    /// The drawing for a page; `spoken` is what a screen reader says.
    pub(super) fn svg(&self, spoken: &str) -> String {
        element(self.size, &self.svg, spoken)
    }

    /// What stands in the drawing, without the element around it.
    pub(super) fn content(self) -> String {
        self.svg
    }

    /// The place of a pair of values, if both are numbers.
    fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let across = between(self.across, self.x.share(x));
        let up = between(self.up, self.y.share(y));
        (!across.is_nan() && !up.is_nan()).then_some((across, up))
    }

    fn text(&mut self, class: &str, (x, y): (f64, f64), dy: &str, text: &str) {
        write_text(&mut self.svg, class, (x, y), dy, text);
    }
}

/// The line and the shape of a variant, for a legend; a screen reader passes over it.
pub(super) fn key(variant: usize) -> String {
    let (role, mark) = (Role::variant(variant), Mark::variant(variant, false));
    let mut content = String::new();
    path(&mut content, role, Stroke::THICK, "M2 12H50");
    path(&mut content, role, mark.0, &mark.at((26.0, 12.0)));
    key_of(&content)
}

/// A mark for a legend.
pub(super) fn mark_key(role: Role, mark: Mark) -> String {
    let mut content = String::new();
    path(&mut content, role, mark.0, &mark.at((26.0, 12.0)));
    key_of(&content)
}

/// An upright limit for a legend.
pub(super) fn limit_key() -> String {
    let mut content = String::new();
    path(&mut content, Role::INK, Stroke::Dashed, "M26 -6V30");
    key_of(&content)
}

fn key_of(content: &str) -> String {
    format!("<svg viewBox=\"0 0 52 24\" aria-hidden=\"true\">{content}</svg>")
}

/// A drawing for a page; `spoken` is what a screen reader says.
fn element((width, height): Size, content: &str, spoken: &str) -> String {
    let look = format!("role=\"img\" aria-label=\"{}\"", escaped(spoken));
    format!("<svg viewBox=\"0 0 {width} {height}\" {look}>{content}</svg>")
}

fn write_text(svg: &mut String, class: &str, (x, y): (f64, f64), dy: &str, text: &str) {
    if !text.is_empty() {
        let place = format!("x=\"{x:.0}\" y=\"{y:.0}\" dy=\"{dy}\"");
        let text = escaped(text);
        let _ = write!(svg, "<text class=\"{class}\" {place}>{text}</text>");
    }
}

fn path(svg: &mut String, Role(role): Role, stroke: Stroke, data: &str) {
    let (class, look) = match stroke {
        Stroke::Fill => ("fill", String::new()),
        Stroke::THIN => ("line", String::new()),
        Stroke::Solid(width) => ("line", format!(" style=\"stroke-width:{width}\"")),
        Stroke::Dashed => ("line", " stroke-dasharray=\"10 10\"".to_owned()),
    };
    if !data.is_empty() {
        let _ = write!(svg, "<path class=\"{class} {role}\"{look} d=\"{data}\"/>");
    }
}

fn between((from, to): (f64, f64), share: f64) -> f64 {
    from + share * (to - from)
}

/// Text that can stand in an attribute or between tags. Characters that XML forbids are replaced.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' | '\0'..' ' => safe.push(char::REPLACEMENT_CHARACTER),
            c => safe.push(c),
        }
    }
    safe
}

/// Where a word stands against the height of its place: halfway, below, above.
const MIDDLE: &str = ".35em";
const BELOW: &str = ".8em";
const ABOVE: &str = "0";

#[cfg(test)]
mod tests;
