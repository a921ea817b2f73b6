//! Whole systems, one room each.
//!
//! - `simulated`: the Measurer against good and bad DUTs on a simulated network, without real time;
//! - `truth`: every class of answers, alone and mixed, counted to the last, and rates found, against a
//!   DUT of known truth;
//! - `faulty`: dns64d behind an authority that misbehaves on purpose;
//! - `mishaps`: what goes wrong on the side of the Tester, and is never taken for a fault of the DUT;
//! - `behind`: a Measurer that is a little behind all the time;
//! - `stalls`: bursts after stalls of the Tester against DUTs with short queues;
//! - `path`: the ledgers of Measurer and authority put together, for DUTs that ask in various ways;
//! - `one_core`: Measurer and authority in turns on one thread;
//! - `dns64d`: the Measurer, a worker of dns64d and authorities, likewise; `whole` puts them
//!   together;
//! - `procedures`: searches with that dns64d;
//! - `service`: what a DUT with a queue serves, as one trial tells it.
//!
//! All of them turn [`Sending`](dns64bench::trial::turns::Sending), as the threads of the Tester do.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod behind;
mod dns64d;
mod dut;
mod faulty;
mod lagging;
mod mishaps;
mod one_core;
mod pacing;
mod path;
mod procedures;
mod rough;
#[path = "../support/script.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod script;
mod service;
mod simulated;
mod stalls;
mod trial;
mod truth;
mod whole;
