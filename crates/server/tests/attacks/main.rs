//! Attacks the built program on loopback: with hostile clients, hostile upstreams and high loads.
//!
//! - `queries`: hostile queries over UDP; `streams`: over TCP; `encrypted`: over TLS;
//! - `replies`: hostile and forged responses;
//! - `operator`: hostile peers of the metrics page and of the control socket;
//! - `pressure`: more queries than the tables hold, and silent upstreams;
//! - `flood`: the most costly datagrams from a client outside the access list;
//! - `overload`: measures the statements of the operators' page about overload;
//! - `soak`: all of it for a given time;
//! - `classes`: attack classes of recent years that use upstreams;
//! - `packets`, `upstream`, `victim`: parts of the attacks.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod classes;
mod encrypted;
mod flood;
mod operator;
mod overload;
mod packets;
mod pressure;
mod queries;
mod replies;
mod soak;
mod streams;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
mod tls;
mod upstream;
mod victim;
