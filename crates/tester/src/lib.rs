//! The Tester of RFC 8219 section 9: measures DNS64 servers and shows the evidence for each number.
//!
//! The modules in the order of the data flow; each uses only those before it, and the modules of [`dns64_measure`], which are
//! re-exported here:
//!
//! - [`hash`]: SHA-256 of octets and files;
//! - [`warning`]: warnings for readers of results;
//! - [`lab`]: hosts, links, and the servers that are started on them;
//! - [`agent`]: the connection between the controller of a laboratory and its hosts;
//! - [`post`]: what a host does for a measurement, in this process or behind a connection;
//! - [`procedure`]: the choice of the next trial, and the results of all trials;
//! - [`rig`]: the test setup of lab, servers and Tester;
//! - [`conform`]: whether a server does what the standards say, clause by clause;
//! - [`campaign`]: many searches by one plan, which survive crashes;
//! - [`learn`]: the load of clients from a trace of their queries;
//! - [`report`]: the output for users;
//! - [`doctor`]: the capabilities of this machine;
//! - [`cli`]: the command line and its commands.

pub use dns64_measure::{
    authority, connections, load, machine, namespace, naming, quantity, statistics, trial,
};

pub mod agent;
pub mod campaign;
pub mod cli;
pub mod conform;
pub mod doctor;
pub mod hash;
pub mod lab;
pub mod learn;
pub mod post;
pub mod procedure;
pub mod report;
pub mod rig;
pub mod warning;

/// Name and version of this program in its results.
pub const PROGRAM: &str = concat!("dns64bench ", env!("CARGO_PKG_VERSION"));
