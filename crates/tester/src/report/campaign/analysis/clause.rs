//! Conformance of a campaign with the clauses of RFC 8219.

use schemars::JsonSchema;
use serde::Serialize;

/// A clause of RFC 8219.
#[derive(Clone, Debug, JsonSchema, Serialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub enum Met {
    /// Yes.
    #[serde(rename = "met")]
    Met,
    /// No.
    #[serde(rename = "not met")]
    NotMet,
    /// The clause does not apply.
    #[serde(rename = "not applicable")]
    NotApplicable,
    /// The campaign has no evidence for or against it.
    #[serde(rename = "not known")]
    NotKnown,
}
