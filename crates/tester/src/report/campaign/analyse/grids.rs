//! Rates by both shares at once (RFC 8219 section 9.2, "Reporting format").

use crate::report::campaign::analysis::{Analysis, Grid, GridRow, PointResult};

/// One table for each variant with at least two shares of each kind. It excludes patterns of repeated names other than
/// the papers' single name, and the points of a queue check.
pub(super) fn grids(analysis: &Analysis) -> Vec<Grid> {
    let table = |variant| {
        let own = analysis.points_of(variant);
        let own: Vec<_> = own.filter(|p| p.is_of_the_papers()).collect();
        grid(variant, &own)
    };
    (0..analysis.variants.len()).filter_map(table).collect()
}

fn grid(variant: usize, points: &[&PointResult]) -> Option<Grid> {
    let aaaa_pct = ascending(points.iter().map(|p| p.aaaa_pct));
    let cached_pct = ascending(points.iter().map(|p| p.cached_pct));
    if aaaa_pct.len() < 2 || cached_pct.len() < 2 {
        return None;
    }
    let cell = |aaaa: f64, cached: f64| {
        let at = |p: &&&PointResult| {
            shares_equal(p.aaaa_pct, aaaa) && shares_equal(p.cached_pct, cached)
        };
        let point = points.iter().find(at)?;
        point.summary.as_ref().map(|_| point.point)
    };
    let row = |cached_pct| GridRow {
        cached_pct,
        cells: aaaa_pct.iter().map(|&a| cell(a, cached_pct)).collect(),
    };
    Some(Grid {
        variant,
        rows: cached_pct.into_iter().map(row).collect(),
        aaaa_pct,
    })
}

/// Shares are multiples of one millionth, so equal ones differ by less than half of that.
fn shares_equal(a_pct: f64, b_pct: f64) -> bool {
    (a_pct - b_pct).abs() < 0.000_05
}

/// The distinct shares in ascending order.
pub(super) fn ascending(shares: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut shares: Vec<f64> = shares.collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup_by(|a, b| shares_equal(*a, *b));
    shares
}
