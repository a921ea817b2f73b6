//! The hosts of a laboratory of several machines, as plain data: what a plan says of them, checked.
//!
//! ```text
//!   gen1 (measurer) ---client--- dut (dut) ---upstream--- auth (authority)
//!         |                                                  |
//!         +--------------------self-test---------------------+      (optional)
//! ```
//!
//! Each role can have several hosts. Who is connected to whom is not written down: two ends of links of one name
//! are connected if they have addresses in one prefix. A [`Site`] is what follows for one DUT: who asks whom, at
//! which address, over which interfaces. Nothing here looks at a host.

mod check;
mod error;
mod link;
mod site;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cpuset::CpuSet;
use super::profile::Family;

pub use super::topology::Role;
pub use check::Doubt;
pub use error::{HostsError, HostsErrors, Part};
pub use link::{LinkAddress, LinkEnd, LinkName};
pub use site::{Site, SiteAuthority, SiteDut, SiteEnd, SiteLink, SiteMeasurer};

/// One host, as the plan has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Its name in the plan, in results and in messages: 1 to 32 of a-z, 0-9 and -.
    pub name: String,
    /// How an agent is started there.
    pub reach: Reach,
    /// The agent is started with `sudo -n`.
    pub sudo: bool,
    /// What it is for; at least one.
    pub roles: Vec<Role>,
    /// CPUs of its role; on a host that is Measurer and authority those of the Measurer. Unrestricted to
    /// have them chosen.
    pub cpus: CpuSet,
    /// CPUs of the authority on a host that is Measurer and authority.
    pub authority_cpus: CpuSet,
    /// Threads of the Measurer, 1 to [`THREADS_MAX`].
    pub threads: usize,
    /// Its ends of the test links: one of each name, or several where it is connected by several
    /// interfaces, such as a DUT to each of two Measurers.
    pub links: BTreeMap<LinkName, Vec<LinkEnd>>,
}

/// How an agent is started on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// Over OpenSSH; the destination as ssh(1) takes it: `gen1`, `root@gen1`, `ssh://root@gen1:2222`.
    Ssh(String),
    /// In a network namespace of this machine, by its name.
    Netns(String),
    /// In this machine's own network.
    Local,
}

impl HostSpec {
    /// Whether it has this role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Its ends of the links of this name; none if it is not connected to one.
    pub fn ends(&self, link: LinkName) -> &[LinkEnd] {
        self.links.get(&link).map_or(&[], Vec::as_slice)
    }

    /// CPUs of the authority on it.
    fn cpus_of_authority(&self) -> &CpuSet {
        match self.has(Role::Measurer) {
            true => &self.authority_cpus,
            false => &self.cpus,
        }
    }
}

/// The hosts of a plan, at most [`HOSTS_MAX`]. They have at least one authority and one Measurer, and every
/// Measurer is connected to every DUT, and every DUT to every authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<HostSpec>", into = "Vec<HostSpec>")]
pub struct Hosts(Vec<HostSpec>);

impl Hosts {
    /// Checks everything that can be checked without a host.
    ///
    /// # Errors
    ///
    /// As [`Self::faults`], all of them.
    pub fn new(hosts: Vec<HostSpec>) -> Result<Self, HostsErrors> {
        match check::all(&hosts, Vec::new(), false) {
            faults if faults.is_empty() => Ok(Self(hosts)),
            faults => Err(HostsErrors(faults)),
        }
    }

    /// All that is wrong with hosts of which something may be in doubt, each with its remedy: an impossible name,
    /// address or number; the same address twice, or one prefix on links of two names; a role that no host has, or that
    /// a host cannot have; links that do not connect; where there are `self_tests`, an authority that none of them
    /// asks. What only follows from another fault or from a doubt is left out.
    pub fn faults(hosts: &[HostSpec], doubts: Vec<Doubt>, self_tests: bool) -> Vec<HostsError> {
        check::all(hosts, doubts, self_tests)
    }

    /// In the order of the plan.
    pub fn iter(&self) -> std::slice::Iter<'_, HostSpec> {
        self.0.iter()
    }

    /// The host of this name.
    pub fn by_name(&self, name: &str) -> Option<&HostSpec> {
        self.0.iter().find(|host| host.name == name)
    }

    /// The hosts that send queries, in the order of the plan.
    pub fn measurers(&self) -> Vec<&HostSpec> {
        self.with(Role::Measurer)
    }

    /// The hosts of DUTs, in the order of the plan.
    pub fn duts(&self) -> Vec<&HostSpec> {
        self.with(Role::Dut)
    }

    /// The hosts of authorities, in the order of the plan; at least one.
    pub fn authorities(&self) -> Vec<&HostSpec> {
        self.with(Role::Authority)
    }

    fn with(&self, role: Role) -> Vec<&HostSpec> {
        self.0.iter().filter(|host| host.has(role)).collect()
    }

    /// By what a DUT and the authorities are connected: IPv6 where both are possible.
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

impl<'a> IntoIterator for &'a Hosts {
    type Item = &'a HostSpec;
    type IntoIter = std::slice::Iter<'a, HostSpec>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl TryFrom<Vec<HostSpec>> for Hosts {
    type Error = HostsErrors;

    fn try_from(hosts: Vec<HostSpec>) -> Result<Self, HostsErrors> {
        Self::new(hosts)
    }
}

impl From<Hosts> for Vec<HostSpec> {
    fn from(hosts: Hosts) -> Self {
        hosts.0
    }
}

/// Hosts of a plan at most: each is a connection and an agent.
pub const HOSTS_MAX: usize = 64;

/// Threads of a Measurer on one host at most, as on the command line.
pub const THREADS_MAX: usize = 256;

#[cfg(test)]
mod tests;
