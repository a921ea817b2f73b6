//! What the user sees: the results as text, as JSON, and the progress towards them.
//!
//! Everything is computed from plain data. Text and JSON go to a writer that the caller gives;
//! only [`progress`] writes to standard error by itself.

pub mod campaign;
pub mod json;
pub mod progress;
pub mod raw;
pub mod text;
pub mod timing;

use crate::procedure::search::SearchResult;
pub use crate::quantity::{Span, Thousands};
use crate::trial::result::Answers;

/// Under which conditions the trials of a report ran.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Conditions {
    /// Program and version of the Tester.
    pub tester: String,
    /// What was asked: address and port.
    pub server: String,
    /// The DUT in a lab: its profile and version.
    pub dut: Option<String>,
    /// The authority: "built-in", NSD and its version, or unknown if the server was there before.
    pub authority: Option<String>,
    /// Where the roles ran: "netns", "userns", "loopback"; nothing for a server that was there.
    pub lab: Option<String>,
    /// "three-device" or "two-device".
    pub setup: Option<String>,
    /// Family of the addresses between DUT and authority: "IPv4" or "IPv6".
    pub upstream_family: Option<String>,
    /// The prefix of the expected answers.
    pub pref64: Option<String>,
    /// The IPv4 addresses whose names are asked.
    pub namespace: String,
    /// Share of the names with an AAAA of their own.
    pub aaaa_share: String,
    /// Share of the queries for names that were asked before.
    pub cached_share: String,
    /// Which names those are, if there are any.
    pub cached_pattern: Option<String>,
    /// Threads of the Measurer.
    pub threads: usize,
    /// Source ports of the Measurer; `None` for as many as the rate needs.
    pub sockets: Option<usize>,
    /// Who runs on which CPUs: role and list, such as ("DUT", "1").
    pub cpus: Vec<(String, String)>,
    /// The highest rate for which the Tester passed its self-test.
    pub certified_rate_qps: Option<u64>,
    /// Why the result is no measurement in the sense of RFC 8219; empty if it is one. That a rate
    /// is not certified need not be said here.
    pub not_a_measurement: Vec<String>,
    /// Deviations from the recommendations of RFC 8219 and other remarks.
    pub notes: Vec<String>,
}

impl Conditions {
    /// Whether the Tester passed its self-test for a DUT at `rate_qps`.
    pub fn certifies(&self, rate_qps: u64) -> bool {
        self.certified_rate_qps
            .is_some_and(|certified| rate_qps <= certified)
    }

    /// All reasons why trials at rates up to `rate_qps` are no measurement.
    pub fn watermarks(&self, rate_qps: u64) -> Vec<String> {
        let mut reasons = self.not_a_measurement.clone();
        if !self.certifies(rate_qps) {
            reasons.push(match self.certified_rate_qps {
                Some(certified) => format!(
                    "the Tester is certified up to {} queries/s only (RFC 8219 section 9.2.1)",
                    Thousands(certified)
                ),
                None => "the Tester is not certified (RFC 8219 section 9.2.1)".to_owned(),
            });
        }
        reasons
    }
}

/// The highest rate on which the answer of a search rests: its failure too must be the DUT's.
fn judged_qps(result: &SearchResult) -> u64 {
    result.failed_qps.max(result.rate_qps).unwrap_or(0)
}

/// Queries that got an answer of whatever kind: those that have a round-trip time.
fn answered(answers: &Answers) -> u64 {
    let Answers {
        valid,
        late,
        wrong,
        empty,
        error,
        truncated,
        ..
    } = answers;
    valid + late + wrong + empty + error + truncated
}

#[cfg(test)]
mod tests;
