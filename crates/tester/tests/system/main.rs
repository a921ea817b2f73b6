//! Tests of whole systems, one module each:
//!
//! - `simulated`: the Measurer against good and bad DUTs on a simulated network, without real time;
//! - `truth`: every class of answers, alone and mixed, with exact counts, and search results, against scripted DUTs;
//! - `faulty`: dns64d behind an authority with injected faults;
//! - `mishaps`: faults on the Tester's side, which are never attributed to the DUT;
//! - `behind`: a Measurer that is always slightly late;
//! - `stalls`: bursts after stalls of the Tester, with DUTs with short queues;
//! - `path`: the joined ledgers of Measurer and authority, for DUTs with different upstream queries;
//! - `one_core`: Measurer and authority in turns on one thread;
//! - `dns64d`: the Measurer, a worker of dns64d and authorities on a simulated network; `whole` combines them;
//! - `procedures`: searches with that dns64d;
//! - `service`: the throughput of a DUT with a queue, estimated from one trial.
//!
//! All of them run turns of [`Sending`](dns64bench::trial::turns::Sending), like the threads of the Tester.

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
