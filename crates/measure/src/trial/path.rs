//! The path of the queries of a trial through DUT and authority: the six messages of each (RFC 8219 section 9.1), and
//! statistics of all. `docs/latency.md` says what each figure includes.

use dns64_transport::clock::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::authority::ledger::{ANSWER_MAX_NS, Question, Questions};
use crate::load::ledger::{Entry, Fate};

/// Timestamps of the messages of one query, on the link's clock. Sent messages are stamped right before the system
/// call, received ones by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Time at which the query left the Measurer.
    pub sent_at: Nanos,
    /// Time of its first response.
    pub received_at: Option<Nanos>,
    /// Queries at the authority for its name; `None` for a repeated name, whose upstream queries belong to several
    /// queries, and without a built-in authority.
    pub questions: Option<Questions>,
}

impl Timeline {
    /// Creates the timeline of a query that was sent.
    pub fn new(sent_at: Nanos, entry: Entry, questions: Option<Questions>) -> Self {
        let is_answered = !matches!(entry.fate, Fate::Pending | Fate::Unsent);
        Self {
            sent_at,
            received_at: is_answered.then(|| sent_at + entry.rtt_ns),
            questions,
        }
    }

    /// Returns the time from the query to its first response.
    pub fn rtt_ns(&self) -> Option<Nanos> {
        Some(self.received_at?.saturating_sub(self.sent_at))
    }

    /// Returns how long the authority had queries for the name while the query was open; the overlap of both types
    /// counts once. `None` without a response, and if an upstream query was not answered or timed.
    pub fn authority_ns(&self) -> Option<Nanos> {
        let received_at = self.received_at?;
        let Questions { aaaa, a } = self.questions?;
        // The resolution of the timestamps can place it before the query.
        let within = |at: Nanos| at.clamp(self.sent_at, received_at);
        let interval = |question: Question| {
            if question.asked == 0 {
                return Some((received_at, received_at));
            }
            let (from, answer_ns) = (question.arrived_at?, question.answer_ns?);
            let until = from + answer_ns;
            let is_known = answer_ns < ANSWER_MAX_NS || until >= received_at;
            is_known.then(|| (within(from), within(until)))
        };
        let (first, second) = (interval(aaaa)?, interval(a)?);
        let both_ns = first.1.min(second.1).saturating_sub(first.0.max(second.0));
        Some(first.1 - first.0 + second.1 - second.0 - both_ns)
    }

    /// Returns the round-trip time minus the time of the authority: that of the DUT, of the links, and of the system
    /// calls with which the Tester sends.
    pub fn dut_only_ns(&self) -> Option<Nanos> {
        Some(self.rtt_ns()?.saturating_sub(self.authority_ns()?))
    }

    /// Returns the order of the DUT's upstream queries; `None` without any, or if one was not timed.
    pub fn order(&self) -> Option<UpstreamOrder> {
        let Questions { aaaa, a } = self.questions?;
        match (aaaa.asked, a.asked) {
            (0, 0) => None,
            (_, 0) => Some(UpstreamOrder::AaaaOnly),
            (0, _) => Some(UpstreamOrder::AOnly),
            _ => {
                let (first, second) = (aaaa.arrived_at?, a.arrived_at?);
                let before =
                    |a: Question, next: Nanos| a.answered_at().is_some_and(|at| at <= next);
                Some(match () {
                    () if before(aaaa, second) => UpstreamOrder::AaaaThenA,
                    () if before(a, first) => UpstreamOrder::AThenAaaa,
                    () => UpstreamOrder::Parallel,
                })
            }
        }
    }
}

/// Order of the DUT's upstream queries for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamOrder {
    /// A after the response for AAAA, as in RFC 8219 section 9.1 and RFC 6147 section 5.1.
    AaaaThenA,
    /// AAAA after the response for A.
    AThenAaaa,
    /// One before the response for the other.
    Parallel,
    /// Only AAAA.
    AaaaOnly,
    /// Only A.
    AOnly,
}

/// Statistics of the messages of all AAAA queries of a trial. The names are its fresh ones, which no earlier query of the
/// trial contained.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Path {
    /// Fresh names that were queried.
    pub fresh_names: u64,
    /// Queries at the authority.
    pub questions: QuestionCounts,
    /// Names with a valid answer in time, by their upstream queries.
    pub answered: AnsweredNames,
    /// Names without any response.
    pub lost: LostNames,
    /// Round-trip time of the answered names minus the time of the authority: percentiles and nanoseconds, at the
    /// percentiles of the round-trip times.
    pub dut_only_percentiles_ns: Vec<(f64, Nanos)>,
    /// Answered names whose upstream queries were not all answered and timed, which are not included.
    pub untimed_names: u64,
    /// Response times of the authority.
    pub authority: AuthorityTimes,
}

impl Path {
    /// Returns the notes for readers of a trial with a DUT.
    pub(super) fn notes(&self) -> Vec<String> {
        let Self {
            answered,
            authority,
            ..
        } = self;
        let mut notes = Vec::new();
        if answered.unasked > 0 {
            notes.push(format!(
                "{} of {} fresh names were answered without a question to the authority: the DUT had them in \
                 its cache, and RFC 8219 section 9.2 requires all names to be different",
                answered.unasked, answered.names
            ));
        }
        notes.extend(authority.note());
        notes
    }

    /// Returns the upstream queries per fresh name; `None` without names.
    pub fn questions_per_name(&self) -> Option<f64> {
        let asked = self.questions.aaaa.saturating_add(self.questions.a);
        (self.fresh_names > 0).then(|| asked as f64 / self.fresh_names as f64)
    }

    /// Returns a percentile of the time without the authority, if there are enough answers.
    pub fn dut_only_ns(&self, percent: f64) -> Option<Nanos> {
        let all = &self.dut_only_percentiles_ns;
        let found = all.iter().find(|at| (at.0 - percent).abs() < 1e-9);
        found.map(|at| at.1)
    }

    /// Describes the order of the DUT's upstream queries for most of the names.
    pub fn order(&self) -> &'static str {
        let names = &self.answered;
        let orders = [
            (names.aaaa_then_a, "AAAA then A"),
            (names.a_then_aaaa, "A then AAAA"),
            (names.parallel, "AAAA and A in parallel"),
            (names.aaaa_only, "AAAA alone"),
            (names.a_only, "A alone"),
            (names.unasked, "answered from the cache"),
        ];
        let most = orders.into_iter().max_by_key(|order| order.0);
        most.filter(|most| most.0 > 0)
            .map_or("unknown", |most| most.1)
    }
}

/// Queries at the authority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct QuestionCounts {
    /// AAAA queries for fresh names.
    pub aaaa: u64,
    /// A queries for fresh names.
    pub a: u64,
    /// AAAA queries for other names: repeated ones that are not in the DUT's cache, and remaining queries of earlier
    /// trials.
    pub other_aaaa: u64,
    /// A queries for other names.
    pub other_a: u64,
    /// A queries for fresh names that the Measurer requests with another type than AAAA: they are in no other figure of the path.
    /// `None` if all queries are for AAAA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_a: Option<u64>,
}

/// Names by their upstream queries. All classes but `again` are disjoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct AnsweredNames {
    /// All names.
    pub names: u64,
    /// AAAA was queried, and A after the response.
    pub aaaa_then_a: u64,
    /// A was queried, and AAAA after the response.
    pub a_then_aaaa: u64,
    /// One was queried before the response for the other.
    pub parallel: u64,
    /// Both were queried at unknown times, 18 min after the start of the trial.
    pub untimed: u64,
    /// Only AAAA was queried.
    pub aaaa_only: u64,
    /// Only A was queried.
    pub a_only: u64,
    /// Nothing was queried: the DUT had the answer in its cache.
    pub unasked: u64,
    /// One type was queried at least twice.
    pub again: u64,
}

impl AnsweredNames {
    /// Returns the number of names without an A query at the authority.
    pub fn without_a(&self) -> u64 {
        self.aaaa_only.saturating_add(self.unasked)
    }

    /// Adds the names of another trial.
    pub fn add(&mut self, other: Self) {
        let sums = [
            (&mut self.names, other.names),
            (&mut self.aaaa_then_a, other.aaaa_then_a),
            (&mut self.a_then_aaaa, other.a_then_aaaa),
            (&mut self.parallel, other.parallel),
            (&mut self.untimed, other.untimed),
            (&mut self.aaaa_only, other.aaaa_only),
            (&mut self.a_only, other.a_only),
            (&mut self.unasked, other.unasked),
            (&mut self.again, other.again),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Names without any response, by their progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LostNames {
    /// All names.
    pub names: u64,
    /// No query reached the authority.
    pub unasked: u64,
    /// A query reached the authority and was not answered.
    pub unserved: u64,
    /// The authority answered, but the DUT sent no response.
    pub served: u64,
}

/// Response times of the authority, from the arrival of a query until its response is passed to the network: the first
/// query of each type for each fresh name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct AuthorityTimes {
    /// Median.
    pub p50_ns: Option<Nanos>,
    /// 99th percentile.
    pub p99_ns: Option<Nanos>,
    /// Longest, at most 1.07 s.
    pub max_ns: Option<Nanos>,
    /// A quarter of the timeout (RFC 8219 section 9.2.1), less than 1.07 s for an authority with a ledger, plus the
    /// configured delay.
    pub limit_ns: Nanos,
    /// Number of responses above the limit. Unknown for a limit above 1.07 s.
    pub slow: u64,
    /// Number of queries without a response.
    pub unanswered: u64,
}

impl AuthorityTimes {
    /// Returns the note for readers; `None` if it was fast enough.
    pub(super) fn note(&self) -> Option<String> {
        (self.slow > 0).then(|| {
            format!(
                "the authority took more than the allowed {:.1} ms (RFC 8219 section 9.2.1) for {} answers; if the \
                 trial passed, it passed in spite of that",
                self.limit_ns as f64 / 1e6,
                self.slow
            )
        })
    }
}

#[cfg(test)]
mod tests;
