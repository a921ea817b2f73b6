//! The hosts of a laboratory of several machines, as described by a plan and validated.
//!
//! ```text
//!   gen1 (measurer) ---client--- dut (dut) ---upstream--- auth (authority)
//!         |                                                  |
//!         +--------------------self-test---------------------+      (optional)
//! ```
//!
//! Each role can have several hosts. Connections are not configured: two ends of links of one name are connected if
//! they have addresses in one prefix. A [`Site`] is the result for one DUT: which host queries which, at which address
//! and over which interfaces. Nothing here contacts a host.

mod check;
mod error;
mod link;
mod site;

use std::collections::BTreeMap;

use super::profile::Family;
use crate::machine::Role;
use crate::machine::cpuset::CpuSet;

pub use error::{HostPart, HostsError};
pub use link::{LinkAddress, LinkEnd, LinkName};
pub use site::{Site, SiteAuthority, SiteDut, SiteEnd, SiteLink, SiteMeasurer, SiteRouter};

/// A host of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSpec {
    /// Its name in the plan, in results and in messages: 1 to 32 of a-z, 0-9 and -.
    pub name: String,
    /// How an agent is started there.
    pub reach: Reach,
    /// Whether the agent is started with `sudo -n`.
    pub sudo: bool,
    /// Its roles; at least one.
    pub roles: Vec<Role>,
    /// CPUs of its role; those of the Measurer on a host that is Measurer and authority. Unrestricted: chosen
    /// automatically.
    pub cpus: CpuSet,
    /// CPUs of the authority on a host that is Measurer and authority.
    pub authority_cpus: CpuSet,
    /// Threads of the Measurer, at least 1.
    pub threads: usize,
    /// Its ends of the test links: one for each link name, or several if it has several interfaces for it, such as a
    /// DUT with a link to each of two Measurers.
    pub links: BTreeMap<LinkName, Vec<LinkEnd>>,
}

/// How an agent is started on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Over OpenSSH; a destination of ssh(1): `gen1`, `root@gen1`, `ssh://root@gen1:2222`.
    Ssh(String),
    /// In a network namespace of this machine, by its name.
    Netns(String),
    /// In this machine's own network.
    #[default]
    Local,
}

impl HostSpec {
    /// Returns whether it has this role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Its ends of the links of this name; empty if it has none.
    pub fn ends(&self, link: LinkName) -> &[LinkEnd] {
        self.links.get(&link).map_or(&[], Vec::as_slice)
    }

    /// CPUs of the authority on this host.
    fn cpus_of_authority(&self) -> &CpuSet {
        match self.has(Role::Measurer) {
            true => &self.authority_cpus,
            false => &self.cpus,
        }
    }
}

/// The hosts of a plan, at most [`HOSTS_MAX`]. There is at least one authority and one Measurer, every Measurer is
/// connected to every DUT, and every DUT to every authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts(Vec<HostSpec>);

impl Hosts {
    /// Iterates in the order of the plan.
    pub fn iter(&self) -> std::slice::Iter<'_, HostSpec> {
        self.0.iter()
    }

    /// Returns the host of this name.
    pub fn by_name(&self, name: &str) -> Option<&HostSpec> {
        self.0.iter().find(|host| host.name == name)
    }

    /// Hosts of Measurers, in the order of the plan.
    pub fn measurers(&self) -> Vec<&HostSpec> {
        self.with(Role::Measurer)
    }

    /// Hosts of DUTs, in the order of the plan.
    pub fn duts(&self) -> Vec<&HostSpec> {
        self.with(Role::Dut)
    }

    /// Hosts of authorities, in the order of the plan; at least one.
    pub fn authorities(&self) -> Vec<&HostSpec> {
        self.with(Role::Authority)
    }

    fn with(&self, role: Role) -> Vec<&HostSpec> {
        self.0.iter().filter(|host| host.has(role)).collect()
    }

    /// IP version between a DUT and the authorities: IPv6 if both are possible.
    fn upstream_family(&self, dut: &HostSpec) -> Family {
        let link = LinkName::Upstream;
        let are_connected = |family| {
            let mut authorities = self.authorities().into_iter();
            authorities.all(|host| link::meeting(dut, host, link, family).is_some())
        };
        let has_v6 = |host: &HostSpec| {
            let mut addresses = host.ends(link).iter().flat_map(|end| &end.addresses);
            addresses.any(|address| address.is_of(Family::Ipv6))
        };
        match are_connected(Family::Ipv4) {
            true if !are_connected(Family::Ipv6) => Family::Ipv4,
            false if !has_v6(dut) => Family::Ipv4,
            _ => Family::Ipv6,
        }
    }
}

/// Largest number of hosts of a plan: each needs a connection and an agent.
pub const HOSTS_MAX: usize = 64;

#[cfg(test)]
mod tests;
