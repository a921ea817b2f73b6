//! Diagrams: boxes, lines and words at positions in the drawing, without axes.

use super::{Anchor, Baseline, Drawing, Role, Shapes, Size, Stroke};

/// A diagram under construction.
pub(in crate::report) struct Diagram {
    size: Size,
    shapes: Shapes,
}

impl Diagram {
    /// An empty diagram.
    pub(in crate::report) fn new(size: Size) -> Self {
        Self {
            size,
            shapes: Shapes::default(),
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
        self.shapes.path(role, Stroke::Fill, data);
    }

    /// Draws a box as dark as a share of the darkest one.
    pub(in crate::report) fn shade(
        &mut self,
        share: f64,
        (x, y): (f64, f64),
        (width, height): Size,
    ) {
        // Words are legible on the darkest box, and the lightest is still visible.
        let pct = 4.0 + 56.0 * share.clamp(0.0, 1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 4 to 60"
        )]
        let stroke = Stroke::Shade(pct.round() as u8);
        let data = format!("M{x:.0} {y:.0}h{width:.0}v{height:.0}h{:.0}z", -width);
        self.shapes.path(Role::HEAT, stroke, data);
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
        self.shapes.path(role, stroke, data);
    }

    /// Draws a word, vertically centred at a point.
    pub(in crate::report) fn word(&mut self, anchor: Anchor, at: (f64, f64), word: &str) {
        self.shapes
            .word(Role::INK, anchor, at, Baseline::MIDDLE, word);
    }

    /// The finished drawing.
    pub(in crate::report) fn drawing(self) -> Drawing {
        Drawing {
            size: self.size,
            shapes: self.shapes,
        }
    }
}
