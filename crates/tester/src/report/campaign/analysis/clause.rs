//! What a campaign says of the clauses of RFC 8219.

use serde::{Serialize, Serializer};

/// A clause of RFC 8219.
#[derive(Clone, Debug, Serialize)]
pub struct Clause {
    /// "B-1" to "B-28".
    pub id: &'static str,
    /// What it asks for.
    pub asks: &'static str,
    /// "MUST", "SHOULD", "MAY" or "REQUIRED".
    pub level: &'static str,
    /// Whether the campaign meets it.
    pub met: Met,
    /// Why.
    pub why: String,
}

/// Whether a campaign meets a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It does.
    Met,
    /// It does not.
    NotMet,
    /// There is nothing to meet.
    NotApplicable,
    /// What the campaign has seen does not say it.
    NotKnown,
}

impl Met {
    /// The same in words, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::NotApplicable => "not applicable",
            Self::NotKnown => "not known",
        }
    }
}

impl Serialize for Met {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}
