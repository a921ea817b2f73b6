//! The figures of paper 001 from the bins of a trial: one above the other, for 100 ms (figures 2 and
//! 4) and for 10 ms (figure 5), what was sent as a curve and what was due as a line.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::{Bins, Timing};

/// Size of the picture, in pixels.
const SIZE: (u32, u32) = (900, 640);

/// More bins than pixels are drawn as the lowest and the highest of those that share a pixel.
const COLUMNS: usize = 800;

/// The curve may take up the whole height, but what is flat shall look flat: the axis spans at least
/// this share of the due count on both sides of it.
const MARGIN: f64 = 0.05;

/// Colours that stay apart for the colour-blind (Okabe and Ito), on white.
const SENT: RGBColor = RGBColor(0, 114, 178);
const DUE: RGBColor = RGBColor(213, 94, 0);

/// Why a picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the figure: {0}")]
pub struct FigureError(String);

/// The picture as SVG, under `title`.
///
/// # Errors
///
/// What the library that draws could not do.
pub fn svg(timing: &Timing, title: &str) -> Result<String, FigureError> {
    let mut text = String::new();
    draw(timing, title, &mut text).map_err(|e| FigureError(e.to_string()))?;
    Ok(text)
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw<'a>(timing: &Timing, title: &str, text: &'a mut String) -> Drawn<'a> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 18))?;
    for (area, bins) in root.split_evenly((2, 1)).iter().zip(&timing.bins) {
        panel(area, timing, bins)?;
    }
    root.present()
}

fn panel<'a>(
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    timing: &Timing,
    bins: &Bins,
) -> Drawn<'a> {
    let sent = timing.whole(bins);
    let points = points(sent, seconds(bins.width_ns));
    let due = timing.due_in(bins.width_ns);
    let end_s = seconds(bins.width_ns) * count(sent.len());
    let (low, high) = heights(&points, due);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(38)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end_s, low..high)?;
    let width_ms = bins.width_ns / 1_000_000;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc("time [s]")
        .y_desc(format!("queries sent in {width_ms} ms"))
        .y_label_formatter(&|sent| format!("{sent:.0}"))
        .draw()?;
    let due_s = end_s.min(seconds(timing.length_ns()).max(seconds(bins.width_ns)));
    line(&mut chart, vec![(0.0, due), (due_s, due)], DUE, "due")?;
    line(&mut chart, points, SENT, "sent")?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
}

fn line<'a>(
    chart: &mut ChartContext<'_, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
    points: Vec<(f64, f64)>,
    colour: RGBColor,
    label: &str,
) -> Drawn<'a> {
    chart
        .draw_series(LineSeries::new(points, colour.stroke_width(1)))?
        .label(label)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    Ok(())
}

/// The curve: each bin at its middle, or the lowest and the highest of a few.
fn points(sent: &[u64], width_s: f64) -> Vec<(f64, f64)> {
    let together = sent.len().div_ceil(COLUMNS).max(1);
    let groups = sent.chunks(together).enumerate();
    let mut points = Vec::with_capacity(2 * COLUMNS);
    for (k, group) in groups {
        let middle = count(k * together) + count(group.len()) / 2.0;
        let low = group.iter().min().copied().unwrap_or(0);
        let high = group.iter().max().copied().unwrap_or(0);
        points.push((middle * width_s, precise(low)));
        if high != low {
            points.push((middle * width_s, precise(high)));
        }
    }
    points
}

/// The range of the vertical axis.
fn heights(points: &[(f64, f64)], due: f64) -> (f64, f64) {
    let (low, high) = (due * (1.0 - MARGIN), due * (1.0 + MARGIN));
    points.iter().fold((low, high), |(low, high), &(_, sent)| {
        (low.min(sent), high.max(sent))
    })
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn seconds(span_ns: u64) -> f64 {
    span_ns as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn count(n: usize) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn precise(n: u64) -> f64 {
    n as f64
}
