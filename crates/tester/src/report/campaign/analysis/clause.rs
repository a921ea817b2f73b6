//! Conformance of a campaign with the clauses of RFC 8219.

use serde::{Serialize, Serializer};

/// A clause of RFC 8219.
#[derive(Clone, Debug, Serialize)]
pub struct Clause {
    /// "B-1" to "B-28".
    pub id: &'static str,
    /// Requirement.
    pub asks: &'static str,
    /// "MUST", "SHOULD", "MAY" or "REQUIRED".
    pub level: &'static str,
    /// Whether the campaign meets it.
    pub met: Met,
    /// Reason.
    pub why: String,
}

/// Whether a campaign meets a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// Yes.
    Met,
    /// No.
    NotMet,
    /// The clause does not apply.
    NotApplicable,
    /// The campaign has no evidence for or against it.
    NotKnown,
}

impl Met {
    /// The verdict in words, as in JSON.
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
