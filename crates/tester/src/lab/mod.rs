//! The places in which the roles of a benchmark run, and the servers that are started for them.
//!
//! A *role* (Measurer, DUT, AuthDNS) runs in a [`Network`](crate::machine::network::Network): this machine's
//! own or a network namespace. A [`topology::Lab`] creates the namespaces and the links of a
//! [`topology::Setup`] and removes them again; [`userns`] does the same for users who are not
//! root. A [`profile::Profile`] describes how a server is configured and started; a [`server::Server`]
//! starts, monitors and stops it. [`hosts`] has the hosts of a plan over several machines.
//! [`routes`] leads to the source addresses of Measurers.
//!
//! This module prints nothing, and changes no setting of the machine outside the namespaces
//! and cgroups that it created, except for routes on the hosts of a plan.

pub mod cgroup;
pub mod hosts;
mod kind;
mod owned;
pub mod profile;
pub mod routes;
pub mod server;
pub mod topology;
pub mod userns;
pub mod zone;

pub use crate::machine::{Blame, LabError};
pub use kind::LabKind;

/// Port of DNS servers (RFC 1035 section 4.2).
pub(crate) const DNS_PORT: u16 = 53;
