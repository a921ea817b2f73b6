//! Whole systems, one room each.
//!
//! - `simulated`: the Measurer against good and bad DUTs on a simulated network, without real time;
//! - `dns64d`: the Measurer, a worker of dns64d and authorities, likewise; `whole` puts them
//!   together;
//! - `procedures`: searches with that dns64d.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod dns64d;
mod dut;
mod pacing;
mod procedures;
mod simulated;
mod whole;
