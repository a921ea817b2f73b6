//! Whole systems, one room each.
//!
//! - `simulated`: the Measurer against good and bad DUTs on a simulated network, without real time;
//! - `dns64d`: the Measurer, a worker of dns64d and authorities, likewise; `whole` puts them
//!   together.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod dns64d;
mod dut;
mod pacing;
mod simulated;
mod whole;
