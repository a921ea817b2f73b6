//! What a trial really asked of the DUT, as the authority saw it.

use serde::{Deserialize, Serialize};

use crate::authority::counts::AuthorityCounts;
use crate::quantity::Thousands;

/// The shares that a trial achieved. Probes and warm-up are not in it: the authority's counts are
/// those of the trial alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Achieved {
    /// Share of the AAAA queries at the authority that it answered with an AAAA, 0 to 1; `None` if
    /// it got none.
    pub aaaa_share: Option<f64>,
    /// Share of the Measurer's queries for which the authority was not asked for an AAAA, 0 to 1;
    /// `None` if some were not answered, because a lost query looks like a cached one. A DUT that
    /// asks again lowers it, at most to 0; `amplification` shows by how much.
    pub cached_share: Option<f64>,
    /// Queries at the authority for one of the Measurer: 2 where nothing is cached and no name has an
    /// AAAA (RFC 8219 section 9.1), above where the DUT asks again.
    pub amplification: f64,
}

impl Achieved {
    /// What `sent` queries tell, of one trial or of several together, that made the authority count
    /// this; `None` if nothing was sent.
    pub fn by_counts(sent: u64, counts: &AuthorityCounts, all_answered: bool) -> Option<Self> {
        let without =
            |part: u64, whole: u64| (whole > 0).then(|| ratio(whole.saturating_sub(part), whole));
        Some(Self {
            // Every name has an A, so only AAAA queries have no data for an answer.
            aaaa_share: without(counts.nodata, counts.aaaa),
            cached_share: without(counts.aaaa, sent).filter(|_| all_answered),
            amplification: (sent > 0).then(|| ratio(counts.queries(), sent))?,
        })
    }
}

/// Of so many answers of a trial that asked for each name once, those for which the authority was asked
/// for no AAAA: the DUT had them before, or never asks for one. A DUT that asks again hides some.
pub fn hits(answered: u64, counts: &AuthorityCounts) -> u64 {
    answered.saturating_sub(counts.aaaa)
}

/// The remark on such a trial, if there are any.
pub(super) fn warm(answered: u64, counts: &AuthorityCounts) -> Option<String> {
    let hits = hits(answered, counts);
    (hits > 0).then(|| {
        format!(
            "each name was asked once, but {} of {} answers came without an AAAA query at the \
             authority: the DUT had them in its cache, or does not ask for AAAA",
            Thousands(hits),
            Thousands(answered)
        )
    })
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
