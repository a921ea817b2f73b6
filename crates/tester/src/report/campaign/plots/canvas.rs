//! What figures are drawn with: axes, lines, marks, bars and words.

use std::io;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::svg::{Role, themed};
use crate::report::campaign::html::ReportError;

/// Units of the drawing for one of a figure: lines and marks are placed to half a unit.
const SCALE: f64 = 2.0;

/// What drawing gives back.
pub(super) type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

/// Width and height of a figure; a letter is 12 high.
pub(super) type Size = (f64, f64);

/// One of many beside each other.
pub(super) const SMALL: Size = (300.0, 200.0);
/// One or two beside each other.
pub(super) const MEDIUM: Size = (480.0, 300.0);

/// Where a word stands against its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    /// To the right of it, halfway up.
    Right,
    /// To the left of it, halfway up.
    Left,
    /// Below it.
    Below,
    /// Above and to the right of it.
    Above,
}

/// A figure in the making.
pub(super) struct Plot<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    x: &'a Axis,
    y: &'a Axis,
    /// Of the space between the axes, left to right.
    across: Range<f64>,
    /// Of the same, bottom to top.
    up: Range<f64>,
}

/// Draws a figure; `title` is what a screen reader says.
pub(super) fn draw(
    title: &str,
    (width, height): Size,
    (x, y): (&Axis, &Axis),
    content: impl FnOnce(&Plot<'_>) -> Drawn,
) -> Result<String, ReportError> {
    let longest = |axis: &Axis| axis.ticks.iter().map(|(_, t)| t.chars().count()).max();
    let left = 15.0 + 7.0 * units(longest(y).unwrap_or(0));
    let right = 8.0 + 3.5 * units(x.ticks.last().map_or(0, |(_, name)| name.chars().count()));
    // A line for the name of the upright axis, if it has one.
    let top = if y.label.is_empty() { 4.0 } else { 26.0 };
    let mut svg = String::new();
    let size = (pixel(width).unsigned_abs(), pixel(height).unsigned_abs());
    let drawn = {
        let plot = Plot {
            area: SVGBackend::with_string(&mut svg, size).into_drawing_area(),
            x,
            y,
            across: left..width - right,
            up: height - 40.0..top,
        };
        let drawn = plot.axes().and_then(|()| content(&plot));
        drawn.and_then(|()| plot.area.present())
    };
    match drawn {
        Ok(()) => Ok(themed(&svg, title)),
        Err(error) => Err(ReportError::Figure {
            title: title.to_owned(),
            reason: error.to_string(),
        }),
    }
}

impl Plot<'_> {
    fn axes(&self) -> Drawn {
        let (left, right) = (self.across.start, self.across.end);
        let (bottom, top) = (self.up.start, self.up.end);
        for (at, name) in &self.y.ticks {
            let y = self.up_to(*at);
            self.path(&[(left, y), (right, y)], Role::Grid, 1.0)?;
            self.word((left - 8.0, y), Anchor::Left, name, Role::Muted)?;
        }
        self.path(&[(left, bottom), (right, bottom)], Role::Muted, 1.0)?;
        for (at, name) in &self.x.ticks {
            let x = self.across_to(*at);
            self.path(&[(x, bottom), (x, bottom + 4.0)], Role::Muted, 1.0)?;
            self.word((x, bottom + 7.0), Anchor::Below, name, Role::Muted)?;
        }
        let middle = f64::midpoint(left, right);
        self.word(
            (middle, bottom + 23.0),
            Anchor::Below,
            &self.x.label,
            Role::Ink,
        )?;
        self.word((4.0, top - 12.0), Anchor::Above, &self.y.label, Role::Ink)
    }

    fn across_to(&self, position: f64) -> f64 {
        let share = (position - self.x.from) / (self.x.to - self.x.from);
        self.across.start + share * (self.across.end - self.across.start)
    }

    fn up_to(&self, position: f64) -> f64 {
        let share = (position - self.y.from) / (self.y.to - self.y.from);
        self.up.start + share * (self.up.end - self.up.start)
    }

    /// The place of a pair of values.
    pub(super) fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let (x, y) = (self.x.position(x), self.y.position(y));
        (self.across_to(x), self.up_to(y))
    }

    /// The place of a percentile, on such an axis, and a value.
    pub(super) fn at_percentile(&self, percentile: f64, y: f64) -> (f64, f64) {
        let x = self.x.percentile_position(percentile);
        (self.across_to(x), self.up_to(self.y.position(y)))
    }

    /// A line through places.
    pub(super) fn path(&self, places: &[(f64, f64)], role: Role, width: f64) -> Drawn {
        path(&self.area, places, role, width)
    }

    /// A line through places, of dashes: what is not measured.
    pub(super) fn dashes(&self, places: &[(f64, f64)], role: Role) -> Drawn {
        const DASH: f64 = 5.0;
        for pair in places.windows(2) {
            let [(x0, y0), (x1, y1)] = *pair else {
                continue;
            };
            let length = (x1 - x0).hypot(y1 - y0);
            let mut done = 0.0;
            while done < length {
                let point = |at: f64| {
                    let share = at.min(length) / length;
                    (x0 + share * (x1 - x0), y0 + share * (y1 - y0))
                };
                self.path(&[point(done), point(done + DASH)], role, 1.0)?;
                done += 2.0 * DASH;
            }
        }
        Ok(())
    }

    /// A mark; the shape goes with the series, so that none is told by its colour alone.
    pub(super) fn mark(&self, place: (f64, f64), series: usize) -> Drawn {
        mark(&self.area, place, series)
    }

    /// A mark, or a ring for what is doubtful.
    pub(super) fn point(&self, place: (f64, f64), doubtful: bool, series: usize) -> Drawn {
        if doubtful {
            let ring = Circle::new(pixels(place), 8, Role::Series(series).colour());
            self.area.draw(&ring)
        } else {
            self.mark(place, series)
        }
    }

    /// A cross.
    pub(super) fn cross(&self, (x, y): (f64, f64), size: f64, role: Role) -> Drawn {
        self.path(&[(x - size, y - size), (x + size, y + size)], role, 1.0)?;
        self.path(&[(x - size, y + size), (x + size, y - size)], role, 1.0)
    }

    /// A dot of `size`: a line without length.
    pub(super) fn dot(&self, place: (f64, f64), size: f64, role: Role) -> Drawn {
        self.path(&[place, place], role, size)
    }

    /// An upright line from `low` to `high` with a foot and a head.
    pub(super) fn whisker(&self, x: f64, low: f64, high: f64, role: Role) -> Drawn {
        let ((left, bottom), (_, top)) = (self.at(x, low), self.at(x, high));
        self.path(&[(left, bottom), (left, top)], role, 1.0)?;
        self.path(&[(left - 3.0, bottom), (left + 3.0, bottom)], role, 1.0)?;
        self.path(&[(left - 3.0, top), (left + 3.0, top)], role, 1.0)
    }

    /// A filled bar between two corners.
    pub(super) fn bar(&self, from: (f64, f64), to: (f64, f64), role: Role) -> Drawn {
        let corners = [pixels(from), pixels(to)];
        self.area
            .draw(&Rectangle::new(corners, role.colour().filled()))
    }

    /// A word beside a place.
    pub(super) fn word(&self, at: (f64, f64), anchor: Anchor, text: &str, role: Role) -> Drawn {
        let (h_pos, v_pos) = match anchor {
            Anchor::Right => (HPos::Left, VPos::Center),
            Anchor::Left => (HPos::Right, VPos::Center),
            Anchor::Below => (HPos::Center, VPos::Top),
            Anchor::Above => (HPos::Left, VPos::Bottom),
        };
        let colour = role.colour();
        let style = TextStyle::from(("sans-serif", 24).into_font())
            .color(&colour)
            .pos(Pos::new(h_pos, v_pos));
        self.area.draw_text(text, &style, pixels(at))
    }
}

fn path(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    places: &[(f64, f64)],
    role: Role,
    width: f64,
) -> Drawn {
    let places: Vec<_> = places.iter().copied().map(pixels).collect();
    let style = role
        .colour()
        .stroke_width(pixel(width).unsigned_abs().max(1));
    area.draw(&PathElement::new(places, style))
}

fn mark(area: &DrawingArea<SVGBackend<'_>, Shift>, (x, y): (f64, f64), series: usize) -> Drawn {
    let colour = Role::Series(series).colour();
    let corners: &[(f64, f64)] = match series % 5 {
        0 => return area.draw(&Circle::new(pixels((x, y)), 8, colour.filled())),
        1 => &[(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)],
        2 => &[(0.0, -4.5), (4.5, 3.5), (-4.5, 3.5)],
        3 => &[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)],
        _ => &[(0.0, 4.5), (4.5, -3.5), (-4.5, -3.5)],
    };
    let corners: Vec<_> = corners
        .iter()
        .map(|(dx, dy)| pixels((x + dx, y + dy)))
        .collect();
    area.draw(&Polygon::new(corners, colour.filled()))
}

/// The line and the mark of a series, for a legend.
pub(super) fn key(series: usize) -> Result<String, ReportError> {
    let mut svg = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut svg, (52, 24)).into_drawing_area();
        path(&area, &[(1.0, 6.0), (25.0, 6.0)], Role::Series(series), 1.5)
            .and_then(|()| mark(&area, (13.0, 6.0), series))
            .and_then(|()| area.present())
    };
    match drawn {
        Ok(()) => Ok(themed(&svg, "")),
        Err(error) => Err(ReportError::Figure {
            title: "legend".to_owned(),
            reason: error.to_string(),
        }),
    }
}

fn pixels((x, y): (f64, f64)) -> (i32, i32) {
    (pixel(x), pixel(y))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a place on a figure of at most some thousand units; `as` saturates"
)]
fn pixel(unit: f64) -> i32 {
    (unit * SCALE).round() as i32
}

fn units(letters: usize) -> f64 {
    f64::from(u32::try_from(letters).unwrap_or(u32::MAX))
}
