//! One trial, from the names that are queried to its figures and its outcome: what is measured, and what must be fast. It knows no
//! plan, no lab and no report.
//!
//! The modules in the order of the data flow; each uses only those before it:
//!
//! - [`statistics`]: statistics of repeated measurements;
//! - [`quantity`]: rates, times and resolutions as text;
//! - [`naming`]: settings in messages, as flags or as keys;
//! - [`namespace`]: the names of a trial and their expected answers;
//! - [`load`]: the Measurer, from the octets of a query to the verdict on its response;
//! - [`connections`]: connections of TCP clients, served by one thread;
//! - [`authority`]: the AuthDNS subsystem, which the DUT queries;
//! - [`machine`]: what Linux tells of a machine: processors, links, counters, processes;
//! - [`trial`]: one trial, run by threads that drive Measurer and authority over links.

pub mod authority;
pub mod connections;
pub mod load;
pub mod machine;
pub mod namespace;
pub mod naming;
pub mod quantity;
pub mod statistics;
pub mod trial;
