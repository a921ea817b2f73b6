//! Divisions of the rules for published numbers, `docs/rules.md`.

use schemars::JsonSchema;
use serde::Serialize;

/// Where a rate belongs, by the rules that the journal shows.
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
