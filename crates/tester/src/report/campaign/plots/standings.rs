//! The bars of the verdict: one small drawing for each row of its table, all on the same scale.

use super::super::analysis::{Analysis, PointResult};
use crate::report::chart::{Diagram, Role, Stroke};

/// Size of a drawing, and height of its bar.
const SIZE: (f64, f64) = (400.0, 36.0);
const BAR: f64 = 20.0;

/// Half of the length of the end of a whisker.
const FOOT: f64 = 9.0;

/// The drawings, in the order of the rows.
pub(in super::super) fn bars(analysis: &Analysis) -> Vec<String> {
    let points = analysis.standings.rows.iter();
    let points = points.filter_map(|row| analysis.points.get(row.point));
    let scale = scale(points.clone());
    points.map(|point| bar(point, scale)).collect()
}

/// Drawing units for one query per second, so that all of these points fit.
fn scale<'a>(points: impl Iterator<Item = &'a PointResult>) -> f64 {
    let found = points.filter_map(|point| point.agreement);
    let ends = found.map(|found| {
        found
            .high_qps
            .unwrap_or(found.fastest_qps)
            .max(found.fastest_qps)
    });
    (SIZE.0 - 4.0) / ends.fold(1.0, f64::max)
}

/// A bar with its range as a whisker, dashed if the range is open; for unstable runs only the whisker.
fn bar(point: &PointResult, scale: f64) -> String {
    let mut drawing = Diagram::new(SIZE);
    let (Some(found), Some(summary)) = (point.agreement, &point.summary) else {
        return drawing.drawing().decoration();
    };
    let middle = SIZE.1 / 2.0;
    if !found.unstable {
        let size = (summary.median * scale, BAR);
        drawing.block(
            Role::variant(point.variant),
            (0.0, middle - BAR / 2.0),
            size,
        );
    }
    let low = found.low_qps * scale;
    let (high, stroke) = match found.high_qps {
        Some(high) => (high * scale, Stroke::THICK),
        None => (SIZE.0, Stroke::Dashed),
    };
    drawing.line(Role::INK, stroke, (low, middle), (high, middle));
    let ends = [Some(low), found.high_qps.map(|_| high)];
    for end in ends.into_iter().flatten() {
        let (top, bottom) = (middle - FOOT, middle + FOOT);
        drawing.line(Role::INK, Stroke::THICK, (end, top), (end, bottom));
    }
    drawing.drawing().decoration()
}
