//! The Tester of RFC 8219 section 9: measures DNS64 servers and proves each number.
//!
//! In the order of the flow, each module using only those before it:
//!
//! - [`statistics`]: the figures of repeated measurements;
//! - [`hash`]: of octets and files, by SHA-256;
//! - [`quantity`]: rates, times and resolutions as texts;
//! - [`warning`]: what a reader has to know before a number is quoted;
//! - [`namespace`]: the names of a trial and what each must be answered with;
//! - [`load`]: the Measurer, from the octets of a query to the verdict on its answer;
//! - [`connections`]: those of a few TCP clients, on one thread;
//! - [`authority`]: the AuthDNS subsystem, which the DUT asks;
//! - [`lab`]: hosts, links, and the servers that are started on them;
//! - [`trial`]: one trial, run by threads that turn Measurer and authority over links;
//! - [`agent`]: the connection between the controller of a laboratory and its hosts;
//! - [`procedure`]: what to try next, and what the trials add up to;
//! - [`rig`]: lab, servers and Tester put together;
//! - [`campaign`]: many searches by one plan, which survive crashes;
//! - [`report`]: what the user sees;
//! - [`doctor`]: what this machine can do;
//! - [`cli`]: what the user types, and what it does.

pub mod agent;
pub mod authority;
pub mod campaign;
pub mod cli;
pub mod connections;
pub mod doctor;
pub mod hash;
pub mod lab;
pub mod load;
pub mod namespace;
pub mod procedure;
pub mod quantity;
pub mod report;
pub mod rig;
pub mod statistics;
pub mod trial;
pub mod warning;

/// This program and its version, as it signs what it finds.
pub const PROGRAM: &str = concat!("dns64bench ", env!("CARGO_PKG_VERSION"));
