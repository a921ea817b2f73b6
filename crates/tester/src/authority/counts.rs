//! What an authority counts.

use std::net::Ipv4Addr;

use dns64_wire::codes::Rtype;

/// What the authority has seen, since it began or during a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AuthorityCounts {
    /// Queries for AAAA.
    pub aaaa: u64,
    /// Queries for A.
    pub a: u64,
    /// Queries for anything else.
    pub other: u64,
    /// Answers with records.
    pub answered: u64,
    /// NOERROR without an answer record.
    pub nodata: u64,
    /// NXDOMAIN.
    pub nxdomain: u64,
    /// FORMERR, NOTIMP, REFUSED, BADVERS.
    pub refused: u64,
    /// Datagrams that got no reply at all: too short, or themselves replies.
    pub ignored: u64,
    /// Queries that came over TCP (counted above as well).
    pub tcp: u64,
    /// What then became of the replies, where the authority misbehaves on purpose: the figures above
    /// are of the zone alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misbehaviour: Option<FaultCounts>,
}

/// Replies that an authority delayed, lost or spoiled on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FaultCounts {
    /// Held back for any time.
    pub delayed: u64,
    /// Not sent.
    pub lost: u64,
    /// SERVFAIL in place of the answer.
    pub servfail: u64,
    /// REFUSED in place of the answer.
    pub refused: u64,
    /// TC and no records.
    pub truncated: u64,
    /// Held back for longer, so that others overtook them.
    pub reordered: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Not sent because too many replies were held back already: a fault of the Tester.
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
    /// All queries of whatever type.
    pub fn queries(&self) -> u64 {
        self.aaaa + self.a + self.other
    }

    /// Adds what another worker has counted.
    pub fn add(&mut self, other: Self) {
        *self = self.zip(other, |a, b| a + b);
    }

    /// What has come since an earlier reading of the same counters.
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

/// What a question of the common kind is for: a name of the form, class IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The address that the name stands for.
    pub address: Ipv4Addr,
    /// The type.
    pub rtype: Rtype,
}

/// Under what a reply is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Answered,
    NoData,
    NxDomain,
    Refused,
}
