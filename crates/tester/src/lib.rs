//! The Tester of RFC 8219 section 9: measures DNS64 servers and shows the evidence for each number.
//!
//! The modules in the order of the data flow; each uses only those before it:
//!
//! - [`statistics`]: statistics of repeated measurements;
//! - [`hash`]: SHA-256 of octets and files;
//! - [`quantity`]: rates, times and resolutions as text;
//! - [`warning`]: warnings for readers of results;
//! - [`namespace`]: the names of a trial and their expected answers;
//! - [`load`]: the Measurer, from the octets of a query to the verdict on its response;
//! - [`connections`]: connections of a few TCP clients, on one thread;
//! - [`authority`]: the AuthDNS subsystem, which the DUT queries;
//! - [`machine`]: what Linux tells of a machine: processors, links, counters, processes;
//! - [`lab`]: hosts, links, and the servers that are started on them;
//! - [`trial`]: one trial, run by threads that drive Measurer and authority over links;
//! - [`agent`]: the connection between the controller of a laboratory and its hosts;
//! - [`post`]: what a host does for a measurement, in this process or behind a connection;
//! - [`procedure`]: the choice of the next trial, and the results of all trials;
//! - [`rig`]: the test setup of lab, servers and Tester;
//! - [`campaign`]: many searches by one plan, which survive crashes;
//! - [`report`]: the output for users;
//! - [`doctor`]: the capabilities of this machine;
//! - [`cli`]: the command line and its commands.

pub mod agent;
pub mod authority;
pub mod campaign;
pub mod cli;
pub mod connections;
pub mod doctor;
pub mod hash;
pub mod lab;
pub mod load;
pub mod machine;
pub mod namespace;
pub mod naming;
pub mod post;
pub mod procedure;
pub mod quantity;
pub mod report;
pub mod rig;
pub mod statistics;
pub mod trial;
pub mod warning;

/// Name and version of this program in its results.
pub const PROGRAM: &str = concat!("dns64bench ", env!("CARGO_PKG_VERSION"));
