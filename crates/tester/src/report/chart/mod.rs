//! Charts as SVG: axes, lines, bars, marks and words, each with the class of its [`Role`]. A style sheet gives them
//! their colours for light, dark and paper.
//!
//! Lengths are units of the drawing, two for a pixel at its full size; a letter is 24 high.

mod axis;
mod diagram;
mod drawing;

use std::fmt::Write as _;

pub(super) use axis::Axis;
pub(super) use diagram::Diagram;
pub(super) use drawing::{COLOURS, Drawing, Key, style};

/// Width and height, including the names of the axes.
pub(super) type Size = (f64, f64);

/// Size of most charts.
pub(super) const MEDIUM: Size = (960.0, 600.0);

/// Width of a letter in tick names, with some space.
pub(super) const LETTER: f64 = 15.0;

/// Meaning of an element: its class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role(&'static str);

impl Role {
    /// Names and numbers.
    pub(super) const INK: Self = Self("ink");
    /// Auxiliary elements such as axes and ideal lines.
    pub(super) const MUTED: Self = Self("muted");
    /// Grid lines.
    pub(super) const GRID: Self = Self("grid");
    /// A rate, shown by its darkness.
    pub(super) const HEAT: Self = Self("heat");

    /// A variant, by its index; after the last class the classes repeat with other shapes.
    pub(super) fn variant(place: usize) -> Self {
        const CLASSES: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];
        Self(CLASSES[place % CLASSES.len()])
    }
}

/// Style of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stroke {
    /// Filled, without a line.
    Fill,
    /// A line of this width.
    Solid(u8),
    /// Dashes, for values that are not measured.
    Dashed,
}

impl Stroke {
    /// Width as in the style sheet.
    pub(super) const THIN: Self = Self::Solid(2);
    /// For measured values.
    pub(super) const THICK: Self = Self::Solid(3);
}

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
    svg: String,
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
            path(&mut self.svg, role, stroke, &data);
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
        path(&mut self.svg, role, mark.0, &data);
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
            path(&mut self.svg, role, Stroke::Fill, &data);
        }
    }

    /// Draws a word to the right of a point, at a distance.
    pub(super) fn word(&mut self, point: (f64, f64), distance: f64, word: &str) {
        if let Some((x, y)) = self.place(point) {
            self.text("ink", (x + distance, y), MIDDLE, word);
        }
    }

    /// The finished drawing.
    pub(super) fn drawing(self) -> Drawing {
        Drawing {
            size: self.size,
            content: self.svg,
        }
    }

    /// The content of the drawing, without the surrounding element.
    pub(super) fn content(self) -> String {
        self.svg
    }

    /// The position of a pair of values, if both are numbers.
    fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let across = between(self.across, self.x.share(x));
        let up = between(self.up, self.y.share(y));
        (!across.is_nan() && !up.is_nan()).then_some((across, up))
    }

    fn text(&mut self, class: &str, (x, y): (f64, f64), dy: &str, text: &str) {
        write_text(&mut self.svg, class, (x, y), dy, text);
    }
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

/// Text escaped for attributes and for content between tags. Characters that XML forbids are replaced.
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

/// Vertical offset of a word: centred, below, above.
const MIDDLE: &str = ".35em";
const BELOW: &str = ".8em";
const ABOVE: &str = "0";

#[cfg(test)]
mod tests;
