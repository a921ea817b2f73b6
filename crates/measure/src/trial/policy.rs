//! Recognises policies of a server in the pattern of its answers: rate limits and refusals. Its rate is then that of the
//! policy, not of its capacity. Pure functions on the figures of a finished trial.

use std::fmt;

use dns64_transport::clock::{Nanos, SECOND};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::generator::Finished;
use crate::load::ledger::{Entry, Fate};

/// A policy that explains answers which are missing, truncated or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// RCODE REFUSED: an access list, or a rate limit.
    Refused {
        /// Number of such answers.
        answers: u64,
    },
    /// TC in an answer that fits any datagram: response rate limiting, which sends some such answers instead of silence.
    Truncated {
        /// Number of such answers.
        answers: u64,
        /// Queries without an answer.
        silent: u64,
    },
    /// Answers in each second up to a number, and then hardly any until the next: a rate limit.
    PerSecond {
        /// Answers in a second.
        answers: u64,
    },
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { answers } => write!(
                f,
                "{answers} answers were REFUSED: an access list or a rate limit of the server"
            ),
            Self::Truncated { answers, silent } => write!(
                f,
                "{answers} small answers had TC and {silent} queries got none: a response rate limit of the server"
            ),
            Self::PerSecond { answers } => write!(
                f,
                "the answers stopped at {answers} in a second and came again in the next: a rate limit of the server"
            ),
        }
    }
}

/// Returns the policy that the answers of a trial show: the refused and the truncated ones, and the silent queries.
/// `started_at_ns` is the real time of its start, in nanoseconds since 1970.
pub(super) fn find(
    (refused, truncated, silent): (u64, u64, u64),
    shards: &[&Finished],
    started_at_ns: Nanos,
) -> Option<Policy> {
    if refused > 0 {
        return Some(Policy::Refused { answers: refused });
    }
    if truncated > 0 {
        let answers = truncated;
        return Some(Policy::Truncated { answers, silent });
    }
    let bins = Bins::of(shards);
    bins.per_second(started_at_ns)
        .map(|answers| Policy::PerSecond { answers })
}

/// Width of a bin: short against the second of a limit.
const BIN_NS: Nanos = SECOND / 100;

/// Bins in a second.
const PER_SECOND: usize = 100;

/// Maximum number of bins: of a minute.
const BINS_MAX: usize = 60 * PER_SECOND;

/// Largest deviation of an edge from a second, in bins.
const EDGE_BINS: usize = 3;

/// Queries and answers by time of sending.
struct Bins(Vec<Bin>);

#[derive(Clone, Copy, Default)]
struct Bin {
    sent: u64,
    answered: u64,
}

impl Bin {
    /// Whether all of its queries were answered, or hardly any: limits let one query in ten pass (Unbound,
    /// `ip-ratelimit-factor`). `None` for anything between.
    fn is_open(self) -> Option<bool> {
        match (self.sent, self.answered) {
            (0, _) => None,
            (sent, answered) if sent == answered => Some(true),
            (sent, answered) if answered * 3 <= sent => Some(false),
            _ => None,
        }
    }
}

impl Bins {
    fn of(shards: &[&Finished]) -> Self {
        let mut bins = Vec::new();
        for query in shards.iter().flat_map(|finished| finished.queries()) {
            let place = usize::try_from(query.sent_ns() / BIN_NS).ok();
            let Some(place) = place.filter(|place| *place < BINS_MAX) else {
                continue;
            };
            if place >= bins.len() {
                bins.resize(place + 1, Bin::default());
            }
            bins[place].sent += u64::from(query.was_sent());
            bins[place].answered += u64::from(is_answered(&query.entry));
        }
        Self(bins)
    }

    /// Returns the answers in a second, if they stop in each and resume at the next. Without two such seconds they have
    /// to resume at a second of the real time, by which servers count.
    fn per_second(&self, started_at_ns: Nanos) -> Option<u64> {
        let (mut openings, mut last, mut between) = (Vec::new(), None, 0);
        for (place, bin) in self.0.iter().enumerate() {
            match bin.is_open() {
                None => between += usize::from(bin.sent > 0),
                Some(open) => {
                    if open && last == Some(false) {
                        openings.push(place);
                    }
                    last = Some(open);
                }
            }
        }
        // An overloaded server answers some of the queries at any time.
        let (first, whole) = (*openings.first()?, self.0.len());
        let phase = match openings.len() {
            1 => PER_SECOND - usize::try_from(started_at_ns % SECOND / BIN_NS).ok()?,
            _ => first,
        };
        let is_edge = |place: &usize| {
            let off = (place + PER_SECOND - phase % PER_SECOND) % PER_SECOND;
            off.min(PER_SECOND - off) <= EDGE_BINS
        };
        let is_steady = openings.iter().all(is_edge) && between * 10 <= whole;
        let second = match first.checked_sub(PER_SECOND) {
            Some(before) => before..first,
            None => first..(first + PER_SECOND).min(whole),
        };
        // A bin without answers can be a stall of the server.
        let open = self.0[second].iter();
        let open = open.filter(|bin| bin.is_open() != Some(false));
        is_steady.then(|| open.map(|bin| bin.answered).sum())
    }
}

fn is_answered(entry: &Entry) -> bool {
    matches!(entry.fate, Fate::Valid | Fate::Late)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// Bins of `each` queries, of which `answered` tells the answered ones by their place and number.
    fn bins(spans: usize, each: u64, answered: impl Fn(usize, u64) -> u64) -> Bins {
        let bin = |place| Bin {
            sent: each,
            answered: answered(place, each),
        };
        Bins((0..spans).map(bin).collect())
    }

    /// A limit of 1000 a second that begins a second at bin `phase`; of what exceeds it one in ten passes.
    fn limited(spans: usize, each: u64, phase: usize) -> Bins {
        bins(spans, each, |place, each| {
            let before = (place + PER_SECOND - phase) % PER_SECOND;
            let seen = before as u64 * each;
            match seen + each <= 1000 {
                true => each,
                false => each / 10,
            }
        })
    }

    #[test]
    fn limit_per_second_is_found_at_any_rate_above_it() {
        for each in [11, 20, 50, 200] {
            for phase in [0, 30, 99] {
                let found = limited(300, each, phase).per_second(123 * MS);
                let found = found.unwrap_or_else(|| panic!("{each} {phase}"));
                assert!((900..=1000).contains(&found), "{each} {phase}: {found}");
            }
        }
    }

    #[test]
    fn stall_below_a_limit_does_not_lower_it() {
        let mut stalled = limited(300, 20, 30);
        stalled.0[132].answered = 0;
        let found = stalled.per_second(123 * MS).unwrap();
        assert!((900..=1000).contains(&found), "{found}");
    }

    #[test]
    fn one_pause_is_a_limit_if_it_ends_with_a_second_of_real_time() {
        let once = |phase| limited(120, 20, phase);
        assert!(once(40).per_second(600 * MS).is_some());
        assert_eq!(once(40).per_second(300 * MS), None);
    }

    #[test]
    fn overload_stalls_and_passes_are_no_limit() {
        let overloaded = bins(300, 20, |_, each| each * 9 / 10);
        let stalled = bins(300, 20, |place, each| match (100..140).contains(&place) {
            true => 0,
            false => each,
        });
        let stalls = bins(300, 20, |place, each| match place % 37 {
            0..5 => 0,
            _ => each,
        });
        let dead = bins(300, 20, |place, each| if place < 90 { each } else { 0 });
        let good = bins(300, 20, |_, each| each);
        for (what, bins) in [overloaded, stalled, stalls, dead, good].iter().enumerate() {
            assert_eq!(bins.per_second(0), None, "{what}");
        }
    }

    #[test]
    fn refusals_and_truncation_are_policies() {
        let truncated = Policy::Truncated {
            answers: 40,
            silent: 41,
        };
        assert_eq!(find((0, 40, 41), &[], 0), Some(truncated));
        let refused = Policy::Refused { answers: 7 };
        assert_eq!(find((7, 40, 41), &[], 0), Some(refused));
        assert_eq!(find((0, 0, 41), &[], 0), None);
    }
}
