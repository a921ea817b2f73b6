//! Heat maps of the rates of one server by both shares (RFC 8219 section 9.2, "Reporting format").

use super::super::analysis::{Analysis, PointResult};
use super::super::{numbers, words};
use super::{Figure, same};
use crate::report::chart::{Anchor, Diagram, LETTER, MEDIUM};

/// Height of a row.
const ROW: f64 = 44.0;

/// Width of the names of the rows: letters are larger on a phone.
const LEFT: f64 = 1.25 * LETTER * 8.0;

/// Minimum number of tiles: smaller maps show nothing more than the bars.
const TILES_MIN: usize = 6;

/// The shares and the points of one server.
struct Map<'a> {
    variant: usize,
    aaaa_pct: Vec<f64>,
    cached_pct: Vec<f64>,
    points: Vec<&'a PointResult>,
}

/// A map for each server with several values of both shares, without patterns of repeated names other than the papers'
/// single name, and without the points of a queue check.
pub(super) fn maps(analysis: &Analysis) -> Vec<Figure> {
    let map = |variant| {
        let own = analysis.points_of(variant);
        let points: Vec<_> = own.filter(|p| p.is_of_the_papers()).collect();
        Map {
            variant,
            aaaa_pct: ascending(points.iter().map(|p| p.aaaa_pct)),
            cached_pct: ascending(points.iter().map(|p| p.cached_pct)),
            points,
        }
    };
    let maps = (0..analysis.variants.len()).map(map).filter(|map| {
        let (columns, rows) = (map.aaaa_pct.len(), map.cached_pct.len());
        columns.min(rows) > 1 && columns * rows >= TILES_MIN
    });
    let maps: Vec<_> = maps.collect();
    let all = maps.iter().flat_map(|map| &map.points);
    let highest = all.filter_map(|p| p.median()).fold(0.0, f64::max);
    let maps = maps.iter();
    maps.map(|map| draw(analysis, map, highest)).collect()
}

fn draw(analysis: &Analysis, map: &Map<'_>, highest: f64) -> Figure {
    let width = (MEDIUM.0 - LEFT) / map.aaaa_pct.len() as f64;
    let height = ROW * (map.cached_pct.len() + 1) as f64 + 8.0;
    let mut drawing = Diagram::new((MEDIUM.0, height));
    for (column, aaaa_pct) in map.aaaa_pct.iter().enumerate() {
        let left = LEFT + width * column as f64;
        let middle = left + width / 2.0;
        let (at, pct) = ((middle, ROW / 2.0), numbers::pct(*aaaa_pct));
        drawing.word(Anchor::Middle, at, &pct);
        for (row, cached_pct) in map.cached_pct.iter().enumerate() {
            let top = ROW * (row + 1) as f64;
            let mut points = map.points.iter();
            let point =
                points.find(|p| same(p.aaaa_pct, *aaaa_pct) && same(p.cached_pct, *cached_pct));
            let rate = point.and_then(|p| p.median());
            let share = rate.unwrap_or(0.0) / highest.max(1.0);
            drawing.shade(share, (left + 2.0, top), (width - 4.0, ROW - 4.0));
            let word = point.map_or_else(|| numbers::NOTHING.to_owned(), |p| told(p));
            let at = (middle, top + ROW / 2.0 - 2.0);
            drawing.word(Anchor::Middle, at, &word);
        }
    }
    for (row, cached_pct) in map.cached_pct.iter().enumerate() {
        let middle = ROW * (row as f64 + 1.5);
        drawing.word(Anchor::Start, (0.0, middle), &numbers::pct(*cached_pct));
    }
    let title = format!(
        "{}: median rate by cached share, downwards, and AAAA share, to the right, in queries/s; the darker, the \
         faster; ?: the runs disagree",
        analysis.name_of(map.variant)
    );
    let certified = map.points.iter().map(|point| point.certified);
    let title = words::explained(&title, certified);
    Figure::new(&title, drawing.drawing())
}

/// The rate of a point in three digits, with its marks: a heat map shows orders, not values.
fn told(point: &PointResult) -> String {
    let Some(rate) = point.median() else {
        return numbers::NOTHING.to_owned();
    };
    let (sign, doubt) = match (point.is_unstable(), point.lower_bound) {
        (true, _) => ("", "?"),
        (false, true) => ("≥", ""),
        (false, false) => ("", ""),
    };
    let unit = 10f64.powf((rate.max(1.0).log10().floor() - 2.0).max(0.0));
    let rate = numbers::decimal((rate / unit).floor() * unit, 0);
    format!("{sign}{rate}{doubt}{}", words::dagger(point.certified))
}

/// The distinct shares in ascending order.
fn ascending(shares: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut shares: Vec<f64> = shares.collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup_by(|a, b| same(*a, *b));
    shares
}
