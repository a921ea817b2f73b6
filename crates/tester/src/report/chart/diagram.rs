//! Diagrams: boxes, lines and words at positions in the drawing, without axes.

use std::fmt::Write as _;

use super::{Drawing, MIDDLE, Role, Size, Stroke, path, write_text};

/// A diagram under construction.
pub(in crate::report) struct Diagram {
    size: Size,
    svg: String,
}

impl Diagram {
    /// An empty diagram.
    pub(in crate::report) fn new(size: Size) -> Self {
        Self {
            size,
            svg: String::new(),
        }
    }

    /// Draws a filled box from its upper left corner.
    pub(in crate::report) fn block(
        &mut self,
        role: Role,
        (x, y): (f64, f64),
        (width, height): Size,
    ) {
        let data = format!("M{x:.1} {y:.0}h{width:.1}v{height:.0}h{:.1}z", -width);
        path(&mut self.svg, role, Stroke::Fill, &data);
    }

    /// Draws a box as dark as a share of the darkest one.
    pub(in crate::report) fn shade(
        &mut self,
        share: f64,
        (x, y): (f64, f64),
        (width, height): Size,
    ) {
        // Words are legible on the darkest box, and the lightest is still visible.
        let opacity = 0.04 + 0.56 * share.clamp(0.0, 1.0);
        let class = Role::HEAT.0;
        let _ = write!(
            self.svg,
            "<path class=\"fill {class}\" style=\"fill-opacity:{opacity:.2}\" \
             d=\"M{x:.0} {y:.0}h{width:.0}v{height:.0}h{:.0}z\"/>",
            -width
        );
    }

    /// Draws a straight line.
    pub(in crate::report) fn line(
        &mut self,
        role: Role,
        stroke: Stroke,
        from: (f64, f64),
        to: (f64, f64),
    ) {
        let data = format!("M{:.0} {:.0}L{:.0} {:.0}", from.0, from.1, to.0, to.1);
        path(&mut self.svg, role, stroke, &data);
    }

    /// Draws a word vertically centred at a point: `class` is its role, and its anchor if that is not its beginning.
    pub(in crate::report) fn word(&mut self, class: &str, at: (f64, f64), word: &str) {
        write_text(&mut self.svg, class, at, MIDDLE, word);
    }

    /// The finished drawing.
    pub(in crate::report) fn drawing(self) -> Drawing {
        Drawing {
            size: self.size,
            content: self.svg,
        }
    }
}
