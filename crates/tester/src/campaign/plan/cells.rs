//! Combinations of shares.

use super::Cell;
use super::draft::Draft;
use super::places::{Faults, Place};
use crate::namespace::{Pattern, Share};

/// The cells without duplicates. The first one has the first value of each share.
pub(super) fn cells(draft: &Draft, faults: &mut Faults) -> Vec<Cell> {
    let fifths = || {
        FIFTHS
            .into_iter()
            .filter_map(|text| text.parse().ok())
            .collect()
    };
    let none = || vec![Share::NONE];
    let (aaaa, cached) = match draft.grid.as_deref() {
        None => (draft.aaaa_shares.clone(), draft.cached_shares.clone()),
        Some("aaaa") => (fifths(), none()),
        Some("cached") => (none(), fifths()),
        Some("rfc8219") => (fifths(), fifths()),
        Some(_) => (none(), none()),
    };
    let shares = ["aaaa-share", "cached-share"].map(|key| Place::of(&["cells", key]));
    for place in shares
        .iter()
        .filter(|it| draft.grid.is_some() && draft.has(it))
    {
        faults.add(
            place,
            "grid already sets the shares; omit it, or aaaa-share and cached-share",
        );
    }
    match draft.patterns.as_slice() {
        [] => product(&aaaa, &cached, &[Pattern::default()]),
        patterns => product(&aaaa, &cached, patterns),
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
