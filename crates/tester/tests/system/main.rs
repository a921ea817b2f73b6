//! Whole systems, one room each.
//!
//! - `simulated`: the Measurer against good and bad DUTs on a simulated network, without real time.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod dut;
mod simulated;
