//! Combinations of shares.

use super::Cell;
use super::fault::Faults;
use super::file::{Cells, Grid};
use super::values::list_or;
use crate::namespace::{Pattern, Share};

/// The cells without duplicates. The first one has the first value of each share.
pub(super) fn cells(written: &Cells, faults: &mut Faults<'_>) -> Vec<Cell> {
    let patterns = list_or(
        &written.pattern,
        str::parse::<Pattern>,
        [Pattern::default()],
        faults,
    );
    let mut shares = |at| list_or(at, str::parse::<Share>, [Share::NONE], faults);
    let (mut aaaa, mut cached) = (shares(&written.aaaa_share), shares(&written.cached_share));
    if let Some(grid) = &written.grid {
        let both = [&written.aaaa_share, &written.cached_share];
        for at in both.into_iter().flatten() {
            faults.add(
                at.fault("grid names the shares already; omit it, or aaaa-share and cached-share"),
            );
        }
        (aaaa, cached) = grid_shares(*grid.get_ref());
    }
    product(&aaaa, &cached, &patterns)
}

/// Shares of AAAA records and of cached names.
fn grid_shares(grid: Grid) -> (Vec<Share>, Vec<Share>) {
    let fifths = || FIFTHS.into_iter().filter_map(|text| text.parse().ok());
    let none = || vec![Share::NONE];
    match grid {
        Grid::WorstCase => (none(), none()),
        Grid::Aaaa => (fifths().collect(), none()),
        Grid::Cached => (none(), fifths().collect()),
        Grid::Rfc8219 => (fifths().collect(), fifths().collect()),
    }
}

fn product(aaaa: &[Share], cached: &[Share], patterns: &[Pattern]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for &cached_share in cached {
        for &pattern in patterns {
            // If the cache answers every query, the DUT sends no AAAA query.
            let of_them = if cached_share == Share::ALL {
                1
            } else {
                aaaa.len()
            };
            for &aaaa_share in &aaaa[..of_them] {
                let cell = Cell {
                    aaaa_share,
                    cached_share,
                    pattern: match cached_share {
                        Share::NONE => Pattern::default(),
                        _ => pattern,
                    },
                };
                if !cells.contains(&cell) {
                    cells.push(cell);
                }
            }
        }
    }
    cells
}

/// RFC 8219 section 9.2: 20, 40, 60, 80 and 100 %, in addition to 0 %.
const FIFTHS: [&str; 6] = ["0%", "20%", "40%", "60%", "80%", "100%"];
