//! The figures of Lencse and Pivoda 2018 from the bins of a trial, one above the other: for 100 ms (figures 2 and 4)
//! and for 10 ms (figure 5), sent queries as a curve and due queries as a line.

use super::{Bins, Evenness};
use crate::report::chart::{self, Axis, Chart, Role, Size, Stroke, escaped};
use crate::report::numbers::seconds;

/// Size of one panel, in half pixels.
const PANEL: Size = (1800.0, 600.0);

/// Maximum number of columns. If there are more bins, each column shows the lowest and the highest of its bins.
const COLUMNS: usize = 800;

/// Minimum range of the axis on each side of the due count, as a share of that count: a steady rate must look flat.
const MARGIN: f64 = 0.05;

/// Legend of the two lines, at the right of the title.
const LEGEND: &str = "\
<path class=\"line s1\" style=\"stroke-width:4\" d=\"M1556 66h44\"/><text class=\"ink\" x=\"1612\" y=\"74\">sent</text>\
<path class=\"line s2\" style=\"stroke-width:4\" d=\"M1690 66h44\"/><text class=\"ink\" x=\"1746\" y=\"74\">due</text>";

/// The picture as SVG, under `title`.
pub fn svg(timing: &Evenness, title: &str) -> String {
    let [above, below] = timing.bins.each_ref().map(|bins| panel(timing, bins));
    let (title, style) = (escaped(title), chart::style());
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"640\" viewBox=\"0 0 1800 1280\">\
         <style>{style}</style>\
         <text class=\"middle ink\" style=\"font-size:32px\" x=\"900\" y=\"40\">{title}</text>{LEGEND}\
         <g transform=\"translate(0 60)\">{above}</g><g transform=\"translate(0 670)\">{below}</g></svg>\n"
    )
}

/// One of the two panels.
fn panel(timing: &Evenness, bins: &Bins) -> String {
    let sent = timing.whole(bins);
    let points = points(sent, seconds(bins.width_ns));
    let due = timing.due_in(bins.width_ns);
    let end_s = seconds(bins.width_ns) * sent.len() as f64;
    let due_s = end_s.min(seconds(timing.length_ns()).max(seconds(bins.width_ns)));
    let width_ms = bins.width_ns / 1_000_000;
    let x = Axis::linear("time [s]", (0.0, end_s));
    let sent_in = format!("queries sent in {width_ms} ms");
    let y = Axis::linear(&sent_in, heights(&points, due));
    let mut chart = Chart::new(PANEL, x, y);
    chart.line(Role::variant(1), Stroke::THIN, [(0.0, due), (due_s, due)]);
    chart.line(Role::variant(0), Stroke::THIN, points);
    chart.content()
}

/// The curve: each bin at its middle, or the lowest and the highest of several.
fn points(sent: &[u64], width_s: f64) -> Vec<(f64, f64)> {
    let together = sent.len().div_ceil(COLUMNS).max(1);
    let mut points = Vec::with_capacity(2 * COLUMNS);
    for (k, group) in sent.chunks(together).enumerate() {
        let middle = (k * together) as f64 + group.len() as f64 / 2.0;
        let low = group.iter().min().copied().unwrap_or(0);
        let high = group.iter().max().copied().unwrap_or(0);
        points.push((middle * width_s, low as f64));
        if high != low {
            points.push((middle * width_s, high as f64));
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
