//! The division of a rate by the rules for published numbers, `docs/rules.md`.

use schemars::JsonSchema;
use serde::Serialize;

/// Where a rate belongs, by the rules that the journal shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Placement {
    /// The division, if a reader finds the other rules met as well.
    pub division: Division,
    /// The rules that the rate fails.
    pub fails: Vec<&'static str>,
}

/// A division of the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Division {
    /// It meets all rules, so it can be compared with others.
    Closed,
    /// It meets those for all numbers, and states the others.
    Open,
    /// Neither.
    #[default]
    Estimate,
}
