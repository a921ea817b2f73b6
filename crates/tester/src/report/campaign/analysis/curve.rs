//! Rates over a quantity that a plan varies.

use schemars::JsonSchema;
use serde::Serialize;

/// Rates of points that differ in one quantity only.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Curve {
    /// The quantity.
    pub over: Over,
    /// What is the same for all points: the server, with the order in which names of a working set are asked.
    pub of: String,
    /// Value of the quantity, and index into [`Analysis::points`](super::Analysis::points), by ascending value.
    pub rows: Vec<(f64, usize)>,
}

/// The quantity of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// Cores of the server.
    Cores,
    /// Delay of each response of the authority behind the server, in milliseconds (Lencse et al. 2017, section 8.2).
    DelayMs,
    /// Names of the working set that all queries repeat (Lencse et al. 2017, section 8.6).
    Names,
}
