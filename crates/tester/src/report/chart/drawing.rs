//! Finished drawings, as elements of a page and as files, and the keys of their legends.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use super::{Anchor, Baseline, MEDIUM, Mark, Role, Shapes, Size, Stroke, escaped, pdf};

/// Colours on white paper by class: servers have the palette of Okabe and Ito, darker where white paper needs it.
pub(in crate::report) const COLOURS: [(&str, &str); 10] = [
    ("ink", "#1b1b1a"),
    ("muted", "#5a5d60"),
    ("grid", "#dedfe0"),
    ("heat", "#8a7326"),
    ("s1", "#0072b2"),
    ("s2", "#c98600"),
    ("s3", "#008c66"),
    ("s4", "#b65a8f"),
    ("s5", "#3f9fd0"),
    ("s6", "#d55e00"),
];

/// The style of a file. Image viewers support neither variables nor the dark scheme.
pub(in crate::report) fn style() -> String {
    let mut style = "svg{background:#fff;font:24px sans-serif}\
                     .line{fill:none;stroke-width:2;stroke-linecap:round;stroke-linejoin:round}\
                     text.middle{text-anchor:middle}text.end{text-anchor:end}"
        .to_owned();
    for (class, colour) in COLOURS {
        let _ = write!(
            style,
            ".line.{class}{{stroke:{colour}}}.fill.{class},text.{class}{{fill:{colour}}}"
        );
    }
    style
}

/// A finished drawing.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct Drawing {
    pub(super) size: Size,
    pub(super) shapes: Shapes,
}

impl Drawing {
    /// The element of a page; `spoken` is the text for screen readers.
    pub(in crate::report) fn element(&self, spoken: &str) -> String {
        self.embedded(&format!("role=\"img\" aria-label=\"{}\"", escaped(spoken)))
    }

    /// The element beside words with the same content: hidden from screen readers.
    pub(in crate::report) fn decoration(&self) -> String {
        self.embedded("aria-hidden=\"true\"")
    }

    fn embedded(&self, look: &str) -> String {
        let ((width, height), content) = (self.size, self.shapes.svg());
        format!("<svg viewBox=\"0 0 {width} {height}\" {look}>{content}</svg>")
    }

    /// The drawing of a file for a paper, as wide as a column of it, with legend and caption below this one.
    pub(in crate::report) fn captioned(&self, legend: &[(Key, String)], caption: &str) -> Self {
        let (width, mut y) = (self.size.0, self.size.1 + GAP);
        let mut shapes = self.shapes.clone();
        for (Key(key), name) in legend {
            shapes.group((8.0, y), key.clone());
            shapes.word(Role::INK, Anchor::Start, (72.0, y), Baseline::BELOW, name);
            y += LINE;
        }
        for line in lines(caption, width) {
            shapes.word(Role::MUTED, Anchor::Start, (8.0, y), Baseline::BELOW, &line);
            y += LINE;
        }
        Self {
            size: (width, y + GAP),
            shapes,
        }
    }

    /// The drawing as a file of SVG.
    pub(in crate::report) fn svg_file(&self) -> String {
        let ((width, height), content) = (self.size, self.shapes.svg());
        let (width_mm, height_mm) = self.size_mm();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width_mm:.0}mm\" height=\"{height_mm:.0}mm\" \
             viewBox=\"0 0 {width} {height:.0}\"><style>{}</style>{content}</svg>\n",
            style()
        )
    }

    /// The drawing as a file of PDF.
    pub(in crate::report) fn pdf_file(&self) -> String {
        pdf::file(self.size, self.size_mm(), &self.shapes)
    }

    fn size_mm(&self) -> Size {
        let mm = |length| COLUMN_MM * length / MEDIUM.0;
        (mm(self.size.0), mm(self.size.1))
    }
}

/// Width of a column in a journal with two.
const COLUMN_MM: f64 = 88.0;

/// Height of a line of text, and the space between drawing, text and edge.
const LINE: f64 = 32.0;
const GAP: f64 = 8.0;

/// Mean width of a letter in a line of text.
const TEXT_LETTER: f64 = 12.5;

/// A text in lines of this width.
fn lines(text: &str, width: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| {
            let letters = line.chars().count() + word.chars().count();
            line.is_empty() || letters as f64 * TEXT_LETTER < width
        });
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A sign in a legend, 52 wide and 24 high.
#[derive(Clone, Debug)]
pub(in crate::report) struct Key(Shapes);

impl Key {
    /// The line and the mark of a variant, by its index.
    pub(in crate::report) fn variant(index: usize) -> Self {
        let (role, mark) = (Role::variant(index), Mark::variant(index, false));
        let mut shapes = Shapes::default();
        shapes.path(role, Stroke::THICK, "M2 12H50".to_owned());
        shapes.path(role, mark.0, mark.at((26.0, 12.0)));
        Self(shapes)
    }
}

/// For pages: a small drawing that is hidden from screen readers.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let drawing = Drawing {
            size: (52.0, 24.0),
            shapes: self.0.clone(),
        };
        to.serialize_str(&drawing.decoration())
    }
}
