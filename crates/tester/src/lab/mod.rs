//! Where the roles of a benchmark run, and the servers that are started for them.
//!
//! A *role* (Measurer, DUT, AuthDNS) runs on a [`host::Host`]: this machine's own network or a
//! network namespace. A [`topology::Lab`] makes the namespaces and the links of a
//! [`topology::Setup`] and takes them down again; [`userns`] gives the same to users who are not
//! root. A [`profile::Profile`] says how a server is configured and started, [`server::Server`]
//! starts it, watches it and stops it. [`hosts`] are those of a plan over several machines. [`watch`] reads what the kernel counts of losses on the hosts.
//!
//! Nothing here prints, and nothing here changes a setting of the machine outside the namespaces
//! and cgroups that it made.

pub mod cgroup;
pub mod counters;
pub mod cpuset;
mod error;
pub mod host;
pub mod hosts;
pub mod interface;
mod kind;
pub mod machine;
mod owned;
pub mod process;
pub mod profile;
pub mod server;
pub mod topology;
pub mod usage;
pub mod userns;
pub mod watch;
pub mod zone;

pub use error::{Blame, LabError};
pub use kind::LabKind;
pub(crate) use owned::OwnedDir;
