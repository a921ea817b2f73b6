//! What drawings consist of, for every format, and its form in SVG.

/// Meaning of an element: its class.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct Role(pub(super) &'static str);

impl Role {
    /// Names and numbers.
    pub(in crate::report) const INK: Self = Self("ink");
    /// Auxiliary elements such as axes and ideal lines.
    pub(in crate::report) const MUTED: Self = Self("muted");
    /// Grid lines.
    pub(super) const GRID: Self = Self("grid");
    /// A rate, shown by its darkness.
    pub(super) const HEAT: Self = Self("heat");

    /// A variant, by its index; after the last class the classes repeat with other shapes.
    pub(in crate::report) fn variant(place: usize) -> Self {
        const CLASSES: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];
        Self(CLASSES[place % CLASSES.len()])
    }
}

/// Style of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Stroke {
    /// Filled, without a line.
    Fill,
    /// Filled, with this opacity in per cent.
    Shade(u8),
    /// A line of this width.
    Solid(u8),
    /// Dashes, for values that are not measured.
    Dashed,
}

impl Stroke {
    /// Width as in the style sheet.
    pub(in crate::report) const THIN: Self = Self::Solid(2);
    /// For measured values.
    pub(in crate::report) const THICK: Self = Self::Solid(3);
}

/// The part of a word that is at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// Distance of the baseline of a word below its point: as `dy` of SVG, and in heights of a letter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Baseline(&'static str, pub(super) f64);

impl Baseline {
    /// The word is above its point.
    pub(super) const ABOVE: Self = Self("0", 0.0);
    /// The point is in the middle.
    pub(super) const MIDDLE: Self = Self(".35em", 0.35);
    /// The word is below its point.
    pub(super) const BELOW: Self = Self(".8em", 0.8);
}

/// An element of a drawing.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// Path data of SVG, with the commands M, L, H, h, l, v, z, and a for half of a circle.
    Path(Role, Stroke, String),
    /// A word at a point.
    Word(Role, Anchor, (f64, f64), Baseline, String),
    /// Elements moved to the right and down.
    Group((f64, f64), Shapes),
}

/// Elements of a drawing: later ones are drawn over earlier ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Shapes(pub(super) Vec<Shape>);

impl Shapes {
    /// Adds a path, unless it is empty.
    pub(super) fn path(&mut self, role: Role, stroke: Stroke, data: String) {
        if !data.is_empty() {
            self.0.push(Shape::Path(role, stroke, data));
        }
    }

    /// Adds a word, unless it is empty.
    pub(super) fn word(
        &mut self,
        role: Role,
        anchor: Anchor,
        at: (f64, f64),
        baseline: Baseline,
        word: &str,
    ) {
        if !word.is_empty() {
            let word = word.to_owned();
            self.0.push(Shape::Word(role, anchor, at, baseline, word));
        }
    }

    /// Adds these elements, moved to the right and down.
    pub(super) fn group(&mut self, by: (f64, f64), shapes: Self) {
        self.0.push(Shape::Group(by, shapes));
    }

    /// The elements of SVG.
    pub(super) fn svg(&self) -> String {
        self.0.iter().map(element).collect()
    }
}

fn element(shape: &Shape) -> String {
    match shape {
        Shape::Path(Role(role), stroke, data) => {
            let (class, look) = look(*stroke);
            format!("<path class=\"{class} {role}\"{look} d=\"{data}\"/>")
        }
        Shape::Word(Role(role), anchor, (x, y), Baseline(dy, _), word) => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => "middle ",
                Anchor::End => "end ",
            };
            let place = format!("x=\"{x:.0}\" y=\"{y:.0}\" dy=\"{dy}\"");
            let word = escaped(word);
            format!("<text class=\"{anchor}{role}\" {place}>{word}</text>")
        }
        Shape::Group((x, y), shapes) => {
            let shapes = shapes.svg();
            format!("<g transform=\"translate({x:.0} {y:.0})\">{shapes}</g>")
        }
    }
}

/// Class and attribute of a path.
fn look(stroke: Stroke) -> (&'static str, String) {
    match stroke {
        Stroke::Fill => ("fill", String::new()),
        Stroke::Shade(pct) => ("fill", format!(" style=\"fill-opacity:0.{pct:02}\"")),
        Stroke::THIN => ("line", String::new()),
        Stroke::Solid(width) => ("line", format!(" style=\"stroke-width:{width}\"")),
        Stroke::Dashed => ("line", " stroke-dasharray=\"10 10\"".to_owned()),
    }
}

/// Text escaped for attributes and for content between tags. Characters that XML forbids are replaced.
pub(in crate::report) fn escaped(text: &str) -> String {
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
