//! What an authority counts.

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
        }
    }
}

/// Under what a reply is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Answered,
    NoData,
    NxDomain,
    Refused,
}
