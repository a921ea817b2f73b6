//! Counters of an authority.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Queries that the authority received, since its start or during a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct AuthorityCounts {
    /// Queries for AAAA.
    pub aaaa: u64,
    /// Queries for A.
    pub a: u64,
    /// Queries for other types.
    pub other: u64,
    /// Answers with records.
    pub answered: u64,
    /// NOERROR without an answer record.
    pub nodata: u64,
    /// NXDOMAIN.
    pub nxdomain: u64,
    /// FORMERR, NOTIMP, REFUSED, BADVERS.
    pub refused: u64,
    /// Datagrams without a reply: too short, or replies themselves.
    pub ignored: u64,
    /// Queries over TCP (included above).
    pub tcp: u64,
    /// Deliberate faults of the replies, if configured: the counters above do not reflect them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misbehaviour: Option<FaultCounts>,
}

/// Replies that an authority delayed, dropped or altered on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct FaultCounts {
    /// Delayed by any time.
    pub delayed: u64,
    /// Not sent.
    pub lost: u64,
    /// SERVFAIL instead of the answer.
    pub servfail: u64,
    /// REFUSED instead of the answer.
    pub refused: u64,
    /// TC set, without records.
    pub truncated: u64,
    /// Delayed so that others overtook them.
    pub reordered: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Dropped because too many replies were delayed already: a fault of the Tester.
    pub overflowed: u64,
}

impl FaultCounts {
    fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            delayed: with(self.delayed, other.delayed),
            lost: with(self.lost, other.lost),
            servfail: with(self.servfail, other.servfail),
            refused: with(self.refused, other.refused),
            truncated: with(self.truncated, other.truncated),
            reordered: with(self.reordered, other.reordered),
            duplicated: with(self.duplicated, other.duplicated),
            overflowed: with(self.overflowed, other.overflowed),
        }
    }
}

impl AuthorityCounts {
    /// All queries, of any type.
    pub fn queries(&self) -> u64 {
        self.aaaa + self.a + self.other
    }

    /// Adds the counters of another worker.
    pub fn add(&mut self, other: Self) {
        *self = self.zip(other, |a, b| a + b);
    }

    /// Returns the increase since an earlier reading of the same counters.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        self.zip(before, |a, b| a - b)
    }

    fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            aaaa: with(self.aaaa, other.aaaa),
            a: with(self.a, other.a),
            other: with(self.other, other.other),
            answered: with(self.answered, other.answered),
            nodata: with(self.nodata, other.nodata),
            nxdomain: with(self.nxdomain, other.nxdomain),
            refused: with(self.refused, other.refused),
            ignored: with(self.ignored, other.ignored),
            tcp: with(self.tcp, other.tcp),
            misbehaviour: match (self.misbehaviour, other.misbehaviour) {
                (None, None) => None,
                (one, two) => Some(one.unwrap_or_default().zip(two.unwrap_or_default(), with)),
            },
        }
    }
}

/// The counter for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    Answered,
    NoData,
    NxDomain,
    Refused,
}
