//! The hosts of a rig, with their roles: networks of this machine, or connected hosts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::placement::Placement;
use super::spec::{DutChoice, LabSpec, Load, SelfTestPath};
use super::tester::Sender;
use super::watched::{Counted, Watched};
use crate::agent::handshake::Welcome;
use crate::lab::hosts::{HostSpec, Hosts, HostsError, LinkName, Site, SiteEnd, SiteMeasurer};
use crate::lab::profile::Family;
use crate::lab::topology::{Lab, Setup};
use crate::lab::{Blame, LabError};
use crate::load::sources::Sources;
use crate::machine::Role;
use crate::machine::network::Network;
use crate::machine::watch::{HostOf, LOOPBACK, Leg};
use crate::post::Request;
use crate::post::host::{Host, PROMPT_NS};
use crate::post::links::Links;

/// The hosts of a measurement with at most one DUT.
#[derive(Debug)]
pub struct RigHosts {
    site: Site,
    /// By name, each with the network of its role. On this machine several names have one host.
    hosts: BTreeMap<String, (Host, Network)>,
    /// Hosts that were given routes to source addresses, those of `hosts` and others between them.
    routing: Vec<Host>,
    /// Setup of a lab on this machine.
    here: Option<Setup>,
    /// Its networks, which stay up while it is held.
    _up: Option<Lab>,
}

/// Names of hosts by their role.
type RoleHosts<'a> = Vec<(HostOf, Vec<&'a str>)>;

impl RigHosts {
    /// Creates the networks of a lab on this machine.
    ///
    /// # Errors
    ///
    /// They cannot be created.
    pub fn here(
        lab: &LabSpec,
        upstream: Family,
        load: &Load,
        placement: &Placement,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Self, LabError> {
        let setup = lab.setup;
        let up = Lab::up(setup, load.local)?;
        let mut site = setup.site(upstream);
        for measurer in &mut site.measurers {
            measurer.threads = load.threads;
            measurer.cpus = placement.measurer.clone();
        }
        for authority in &mut site.authorities {
            authority.cpus = placement.authority.clone();
        }
        if let Some(dut) = &mut site.dut {
            dut.cpus = placement.dut.clone();
        }
        let host = Host::here(interrupted);
        let hosts = Role::ALL.map(|role| {
            let network = setup.network(role);
            (setup.host_of(role).to_string(), (host.clone(), network))
        });
        Ok(Self {
            site,
            hosts: hosts.into(),
            routing: Vec::new(),
            here: Some(setup),
            _up: Some(up),
        })
    }

    /// Reaches the hosts that a measurement needs, and gives them the routes to the source addresses.
    ///
    /// # Errors
    ///
    /// A host that cannot be reached or routed, with what to do.
    pub fn to(
        hosts: &Hosts,
        dut: Option<&str>,
        upstream: Family,
        links: &Links,
        local: Option<Sources>,
    ) -> Result<Self, LabError> {
        let site = hosts.site(dut, upstream);
        let texts =
            |errors: Vec<HostsError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        let site = site.map_err(|errors| Blame::Request.error(texts(errors).join("\n")))?;
        let routes = local.and_then(|local| site.routes(local));
        let routes = routes.unwrap_or_default();
        let is_needed = |host: &&HostSpec| {
            site.hosts().contains(&host.name.as_str()) || routes.contains_key(&host.name)
        };
        let mut all = links.reach(hosts.iter().filter(is_needed))?;
        let mut reached = Self {
            routing: Vec::new(),
            hosts: BTreeMap::new(),
            site,
            here: None,
            _up: None,
        };
        for (name, routes) in routes {
            // Noted first: whatever is there then is removed.
            reached.routing.push(all[&name].clone());
            all[&name].ask(Request::Routes(routes), PROMPT_NS)?;
        }
        all.retain(|name, _| reached.site.hosts().contains(&name.as_str()));
        let own = all
            .into_iter()
            .map(|(name, host)| (name, (host, Network::Own)));
        reached.hosts = own.collect();
        Ok(reached)
    }

    /// Returns the roles and addresses of the hosts.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Returns a host of the site.
    pub fn host(&self, name: &str) -> &Host {
        &self.hosts[name].0
    }

    /// Returns the network of a role's host there.
    pub fn network(&self, name: &str) -> &Network {
        &self.hosts[name].1
    }

    /// Returns whether they are connected hosts, not networks of this machine.
    pub fn is_far(&self) -> bool {
        self.here.is_none()
    }

    /// Returns all hosts, each once.
    pub fn all(&self) -> Vec<Host> {
        let mut all: Vec<Host> = self.hosts.values().map(|(host, _)| host.clone()).collect();
        all.dedup_by(|a, b| a.name() == b.name());
        all
    }

    /// Returns the hosts that send, with the server of each.
    pub fn senders(&self, self_test: bool) -> Vec<Sender> {
        let sender = |it: &SiteMeasurer| Sender {
            host: self.host(&it.host).clone(),
            threads: it.threads,
            server: it.dut.filter(|_| !self_test).unwrap_or(it.self_test),
        };
        self.site.measurers.iter().map(sender).collect()
    }

    /// Returns the server of the first sender.
    pub fn server(&self, self_test: bool) -> SocketAddr {
        let first = &self.site.measurers[0];
        first.dut.filter(|_| !self_test).unwrap_or(first.self_test)
    }

    /// Returns whether the self-test crosses both links of the measurement, through the host of the DUT.
    pub fn self_test_is_forwarded(&self) -> bool {
        let first = &self.site.measurers[0];
        let has_own = |name| self.site.links.iter().any(|link| link.name == name);
        let is_own = self.site.authorities[first.authority].host == first.host;
        !has_own(LinkName::SelfTest) && !is_own
    }

    /// Returns whether all roles share the loopback interface of this machine.
    fn is_loopback(&self) -> bool {
        self.here == Some(Setup::Loopback)
    }

    /// Returns "three-device", or "two-device" if Measurer and authority share a host; `None` if all roles do.
    pub fn setup(&self) -> Option<&'static str> {
        match self.site.is_two_device() {
            _ if self.is_loopback() => None,
            true => Some("two-device"),
            false => Some("three-device"),
        }
    }

    /// Returns the path that a self-test covers.
    pub fn self_test_path(&self) -> SelfTestPath {
        match self.site.is_two_device() {
            _ if self.self_test_is_forwarded() => SelfTestPath::BothLinks,
            _ if self.is_loopback() => SelfTestPath::Loopback,
            true => SelfTestPath::TesterLoopback,
            false => SelfTestPath::DirectLink,
        }
    }

    /// Returns the cores of the roles with an affinity: role, with its host if they are connected hosts, and list.
    pub fn cpus(&self, dut: Option<&DutChoice>) -> Vec<(HostOf, String)> {
        let on = |role, host: &str| HostOf::Role(role, self.is_far().then(|| host.to_owned()));
        let measurers = self.site.measurers.iter();
        let measurers = measurers.map(|it| (on(Role::Measurer, &it.host), &it.cpus));
        let authorities = self.site.authorities.iter();
        let authorities = authorities.map(|it| (on(Role::Authority, &it.host), &it.cpus));
        let dut = self.site.dut.as_ref().zip(dut).map(|(at, dut)| {
            let cpus = if dut.cpus.is_unrestricted() {
                &at.cpus
            } else {
                &dut.cpus
            };
            (Role::Dut.into(), cpus)
        });
        let all = measurers.chain(authorities).chain(dut);
        let kept = all.filter(|(_, cpus)| !cpus.is_unrestricted());
        kept.map(|(of, cpus)| (of, cpus.to_string())).collect()
    }

    /// Returns each connected host by name, with its roles and its greeting.
    pub fn welcomes(&self) -> Vec<(String, Vec<Role>, Welcome)> {
        let welcomes = self.hosts.iter().filter_map(|(name, (host, _))| {
            let welcome = host.link()?.welcome().clone();
            Some((name.clone(), self.site.roles_of(name), welcome))
        });
        welcomes.collect()
    }

    /// Returns the identity of each host, by its name, to which a certificate of the Tester is tied: the boot of its
    /// machine, and its kernel.
    pub fn identities(&self) -> BTreeMap<String, String> {
        let welcomes = self.welcomes().into_iter();
        let identities = welcomes.map(|(name, _, Welcome { sha256, host, .. })| {
            let program = sha256.unwrap_or_default();
            let identity = format!("{}, {}, program {program}", host.boot_id, host.kernel);
            (format!("host {name}"), identity)
        });
        identities.collect()
    }

    /// Returns their counters. Interfaces have the names of their links. On a network that others use too, all count.
    pub fn watched(&self, self_test: bool) -> Watched {
        let (hosts, client, upstreams) = self.legs(self_test);
        let hosts = hosts.into_iter().map(|(role, names)| {
            let counted = names.into_iter().map(|name| Counted {
                host: self.host(name).clone(),
                network: self.network(name).clone(),
                links: (!self.is_loopback()).then(|| self.links_of(name)),
            });
            (role, counted.collect())
        });
        Watched::new(hosts.collect(), client, upstreams)
    }

    /// Returns the hosts by role, and the links between them. Several Measurers count as one, and so do several
    /// authorities at the link to the Measurers; each of them is also listed individually.
    fn legs(&self, self_test: bool) -> (RoleHosts<'_>, Option<Leg>, Vec<Leg>) {
        let site = &self.site;
        let measurers: Vec<&str> = site.measurers.iter().map(|it| it.host.as_str()).collect();
        let authorities: Vec<&str> = site.authorities.iter().map(|it| it.host.as_str()).collect();
        let is_tester = measurers == authorities;
        let is_one = self.is_loopback();
        let tester = match is_tester {
            _ if is_one => HostOf::Machine,
            true => HostOf::Tester,
            false => Role::Measurer.into(),
        };
        let authority_on = |host: &str| HostOf::Role(Role::Authority, Some(host.to_owned()));
        let mut hosts = vec![(tester, measurers)];
        let mut at = |of: HostOf, here: Vec<_>| {
            hosts.push((of, here));
            hosts.len() - 1
        };
        let leg = |near, far, link: &str| {
            Some(Leg {
                near,
                far: Some(far),
                link: Some(link.to_owned()),
                is_elsewhere: false,
            })
        };
        let dut = site
            .dut
            .as_ref()
            .filter(|_| !self_test || self.self_test_is_forwarded());
        let (client, upstreams) = match dut {
            Some(_) if is_one => (
                leg(0, 0, LOOPBACK),
                leg(0, 0, LOOPBACK).into_iter().collect(),
            ),
            Some(dut) => {
                let dut = at(Role::Dut.into(), vec![&dut.host]);
                let upstreams = authorities.iter().filter_map(|host| {
                    let authority = match (is_tester, authorities.len()) {
                        (true, _) => 0,
                        (false, 1) => at(Role::Authority.into(), vec![host]),
                        (false, _) => at(authority_on(host), vec![host]),
                    };
                    leg(dut, authority, &self.upstream_to(host))
                });
                let upstreams: Vec<Leg> = upstreams.collect();
                (leg(0, dut, LinkName::Client.as_ref()), upstreams)
            }
            None if is_tester => (leg(0, 0, LOOPBACK), Vec::new()),
            None => {
                let several = authorities.iter().filter(|_| authorities.len() > 1);
                let several: Vec<_> = several.copied().collect();
                let authority = at(Role::Authority.into(), authorities);
                // In addition to the link: queries and losses of each.
                for host in several {
                    at(authority_on(host), vec![host]);
                }
                (leg(0, authority, LinkName::SelfTest.as_ref()), Vec::new())
            }
        };
        (hosts, client, upstreams)
    }

    /// Returns the test links, by their ends.
    pub fn links(&self) -> BTreeMap<String, String> {
        let links = self.site.links.iter().map(|link| {
            let end = |end: &SiteEnd| format!("{} of {}", end.interface, end.host);
            (
                format!("{} - {}", end(&link.near), end(&link.far)),
                link.name.to_string(),
            )
        });
        links.collect()
    }

    /// Returns the name of the link between the DUT and an authority, for counters.
    fn upstream_to(&self, authority: &str) -> String {
        let name = LinkName::Upstream.as_ref();
        match self.site.authorities.len() {
            1 => name.to_owned(),
            _ => format!("{name} to {authority}"),
        }
    }

    /// Returns the interfaces of a host that belong to test links, with the names of the links.
    fn links_of(&self, host: &str) -> BTreeMap<String, String> {
        let ends = self.site.links.iter().flat_map(|link| {
            let name = match link.name {
                LinkName::Upstream => self.upstream_to(&link.far.host),
                other => other.to_string(),
            };
            [&link.near, &link.far].map(|end| (end, name.clone()))
        });
        let own = ends.filter(|(end, _)| end.host == host);
        let own = own.map(|(end, name)| (end.interface.clone(), name));
        own.chain([(LOOPBACK.to_owned(), LOOPBACK.to_owned())])
            .collect()
    }
}

impl Drop for RigHosts {
    fn drop(&mut self) {
        for host in &self.routing {
            // A destructor has nobody to tell; the end of the connection removes them too.
            let _ = host.ask(Request::Routes(Vec::new()), PROMPT_NS);
        }
    }
}

#[cfg(test)]
mod tests;
