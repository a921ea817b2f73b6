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
pub use error::HostsError;
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
    /// An impossible name, address or number; the same address twice, or one prefix on links of
    /// two names; a role that no host has, or that a host cannot have; links that do not connect. The
    /// first of them, with its host and remedy.
    pub fn new(hosts: Vec<HostSpec>) -> Result<Self, HostsError> {
        check::each(&hosts)?;
        check::addresses(&hosts)?;
        check::roles(&hosts)?;
        let hosts = Self(hosts);
        for dut in hosts.duts() {
            // One of the two has to be there; which of them is used, a plan says later.
            let family = hosts.upstream_family(dut);
            hosts.site(Some(&dut.name), family)?;
        }
        if hosts.duts().is_empty() {
            hosts.site(None, Family::Ipv6)?;
        }
        Ok(hosts)
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

    /// Whether self-tests ask every authority: each Measurer asks one of them, the Measurers in turn.
    ///
    /// # Errors
    ///
    /// There are more authorities than Measurers; names both, and the authorities that nobody asks.
    pub fn check_self_tests(&self) -> Result<(), HostsError> {
        let (measurers, authorities) = (self.measurers(), self.authorities());
        let Some(unasked) = authorities
            .get(measurers.len()..)
            .filter(|it| !it.is_empty())
        else {
            return Ok(());
        };
        let names = |hosts: &[&HostSpec]| {
            let names: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
            names.join(", ")
        };
        let what = format!(
            "self-tests cannot cover {} authorities ({}) with {} ({}): each Measurer asks one of them, so there must be at \
             most as many authorities as Measurers",
            authorities.len(),
            names(&authorities),
            match measurers.len() {
                1 => "1 Measurer".to_owned(),
                several => format!("{several} Measurers"),
            },
            names(&measurers),
        );
        let remedy = format!(
            "add \"measurer\" to the roles of other hosts, remove \"authority\" from {}, or write uncertified = true in \
             [tester]",
            names(unasked)
        );
        Err(HostsError::of_all(what, remedy))
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
    type Error = HostsError;

    fn try_from(hosts: Vec<HostSpec>) -> Result<Self, HostsError> {
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
