//! Actual shares of a trial, as observed by the authority.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::authority::counts::AuthorityCounts;
use crate::quantity::Thousands;

/// Achieved shares of a trial, without probes and warm-up: the counters of the authority cover only the trial.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Achieved {
    /// Share of the AAAA queries at the authority with an AAAA in the answer, 0 to 1; `None` without queries.
    pub aaaa_share: Option<f64>,
    /// Share of the Measurer's AAAA queries without an AAAA query at the authority, 0 to 1; `None` if some were not
    /// answered, because a lost query looks like a cached one. Retries of a DUT lower it, at most to 0; `amplification`
    /// shows by how much.
    pub cached_share: Option<f64>,
    /// Queries at the authority per query of the Measurer: 2 if nothing is cached and no name has an AAAA (RFC 8219
    /// section 9.1), more if the DUT retries.
    pub amplification: f64,
}

impl Achieved {
    /// Computes the shares from `sent` queries of one or more trials, `aaaa_sent` of them for AAAA, and the counters of the
    /// authority for them; `None` if nothing was sent.
    pub fn by_counts(
        (sent, aaaa_sent): (u64, u64),
        counts: &AuthorityCounts,
        all_answered: bool,
    ) -> Option<Self> {
        let without =
            |part: u64, whole: u64| (whole > 0).then(|| ratio(whole.saturating_sub(part), whole));
        Some(Self {
            // Every name has A and HTTPS, so only AAAA queries can have an answer without data.
            aaaa_share: without(counts.nodata, counts.aaaa),
            cached_share: without(counts.aaaa, aaaa_sent).filter(|_| all_answered),
            amplification: (sent > 0).then(|| ratio(counts.queries(), sent))?,
        })
    }
}

/// Returns how many of the answers to AAAA queries of a trial with unrepeated names needed no AAAA query at the authority: the DUT had
/// them in its cache, or never queries AAAA. Retries of a DUT hide some.
pub fn hits(answered: u64, counts: &AuthorityCounts) -> u64 {
    answered.saturating_sub(counts.aaaa)
}

/// Returns the remark on such answers, if there are any.
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
