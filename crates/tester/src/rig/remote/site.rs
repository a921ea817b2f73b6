//! The connected hosts of a measurement, with their roles.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::crew::Crew;
use super::host::{PROMPT_NS, Remote};
use super::order::Request;
use crate::agent::handshake::Welcome;
use crate::lab::hosts::{HostSpec, Hosts, LinkName, Site, SiteEnd, SiteMeasurer};
use crate::lab::profile::Family;
use crate::lab::{Blame, LabError};
use crate::load::sources::Sources;
use crate::machine::Role;
use crate::machine::counters::Reading;
use crate::machine::watch::{Counting, HostOf, Leg, Watched};
use crate::rig::spec::{DutChoice, SelfTestPath};

/// A host with Measurer threads.
pub struct Sender {
    /// The host.
    pub host: Remote,
    /// Number of its threads, and thus of its shards.
    pub threads: usize,
    /// Address of the server as seen from this host.
    pub server: SocketAddr,
}

/// Connected hosts of a measurement with at most one DUT.
#[derive(Debug)]
pub struct Reached {
    site: Site,
    hosts: BTreeMap<String, Remote>,
    /// Hosts that were given routes to source addresses, those of `hosts` and others between them.
    routing: Vec<Remote>,
}

impl Reached {
    /// Reaches the hosts that a measurement needs, and gives them the routes to the source addresses.
    ///
    /// # Errors
    ///
    /// A host that cannot be reached or routed, with what to do.
    pub fn to(
        hosts: &Hosts,
        dut: Option<&str>,
        upstream: Family,
        (crew, local): (&Crew, Option<Sources>),
    ) -> Result<Self, LabError> {
        let site = hosts.site(dut, upstream);
        let site = site.map_err(|error| Blame::Request.error(error.to_string()))?;
        let routes = local.and_then(|local| site.routes(local));
        let routes = routes.unwrap_or_default();
        let is_needed = |host: &&HostSpec| {
            site.hosts().contains(&host.name.as_str()) || routes.contains_key(&host.name)
        };
        let mut all = crew.reach(hosts.iter().filter(is_needed))?;
        let mut reached = Self {
            routing: Vec::new(),
            hosts: BTreeMap::new(),
            site,
        };
        for (name, routes) in routes {
            // Noted first: whatever is there then is removed.
            reached.routing.push(all[&name].clone());
            all[&name].ask(&Request::Routes(routes), PROMPT_NS)?;
        }
        all.retain(|name, _| reached.site.hosts().contains(&name.as_str()));
        reached.hosts = all;
        Ok(reached)
    }

    /// Returns the roles and addresses of the hosts.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Returns a host of the site.
    pub fn host(&self, name: &str) -> Remote {
        self.hosts[name].clone()
    }

    /// Returns all hosts.
    pub fn all(&self) -> Vec<Remote> {
        self.hosts.values().cloned().collect()
    }

    /// Returns the hosts that send, with the server of each.
    pub fn senders(&self, self_test: bool) -> Vec<Sender> {
        let sender = |it: &SiteMeasurer| Sender {
            host: self.host(&it.host),
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

    /// Returns "three-device", or "two-device" if Measurer and authority share a host.
    pub fn setup(&self) -> &'static str {
        match self.site.is_two_device() {
            true => "two-device",
            false => "three-device",
        }
    }

    /// Returns the path that a self-test covers.
    pub fn self_test_path(&self) -> SelfTestPath {
        match self.site.is_two_device() {
            _ if self.self_test_is_forwarded() => SelfTestPath::BothLinks,
            true => SelfTestPath::TesterLoopback,
            false => SelfTestPath::DirectLink,
        }
    }

    /// Cores of the roles with an affinity, each with its host: role and list.
    pub fn cpus(&self, dut: Option<&DutChoice>) -> Vec<(HostOf, String)> {
        let measurers = self.site.measurers.iter();
        let on = |role, host: &str| HostOf::Role(role, Some(host.to_owned()));
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

    /// Returns each host by name, with its roles and its greeting.
    pub fn welcomes(&self) -> Vec<(String, Vec<Role>, Welcome)> {
        let told = self.hosts.values().map(|host| {
            let welcome = host.link().welcome().clone();
            let roles = self.site.roles_of(host.name());
            (host.name().to_owned(), roles, welcome)
        });
        told.collect()
    }

    /// Returns the identity of each host, by its name, to which a certificate of the Tester is tied: the boot of its
    /// machine, and its kernel.
    pub fn identities(&self) -> BTreeMap<String, String> {
        let identity = |host: &Remote| {
            let link = host.link();
            let welcome = link.welcome();
            let program = welcome.sha256.clone().unwrap_or_default();
            let about = &welcome.host;
            let told = format!("{}, {}, program {program}", about.boot_id, about.kernel);
            (format!("host {}", host.name()), told)
        };
        self.hosts.values().map(identity).collect()
    }

    /// Returns their counters. Interfaces have the names of their links. Several Measurers count as one, and so do
    /// several authorities at the link to the Measurers; each of them is also listed individually.
    pub fn watched(&self, self_test: bool) -> Watched {
        let site = &self.site;
        let measurers: Vec<&str> = site.measurers.iter().map(|it| it.host.as_str()).collect();
        let authorities: Vec<&str> = site.authorities.iter().map(|it| it.host.as_str()).collect();
        let is_tester = measurers == authorities;
        let tester = match is_tester {
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
            })
        };
        let dut = site
            .dut
            .as_ref()
            .filter(|_| !self_test || self.self_test_is_forwarded());
        let (client, upstreams) = match dut {
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
                (leg(0, dut, LinkName::Client.name()), upstreams)
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
                (leg(0, authority, LinkName::SelfTest.name()), Vec::new())
            }
        };
        let counting = hosts.into_iter().map(|(of, hosts)| {
            let counted = Counted(
                hosts
                    .into_iter()
                    .map(|host| (self.host(host), self.links_of(host)))
                    .collect(),
            );
            (of, Arc::new(counted) as Arc<dyn Counting>)
        });
        Watched::hosts(counting.collect(), client, upstreams)
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
        let name = LinkName::Upstream.name();
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
                other => other.name().to_owned(),
            };
            [&link.near, &link.far].map(|end| (end, name.clone()))
        });
        let own = ends.filter(|(end, _)| end.host == host);
        let own = own.map(|(end, name)| (end.interface.clone(), name));
        own.chain([(LOOPBACK.to_owned(), LOOPBACK.to_owned())])
            .collect()
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        for host in &self.routing {
            // A destructor has nobody to tell; the end of the connection removes them too.
            let _ = host.ask(&Request::Routes(Vec::new()), PROMPT_NS);
        }
    }
}

const LOOPBACK: &str = "lo";

/// Hosts whose counters are added up, each with the links of its interfaces.
#[derive(Debug)]
struct Counted(Vec<(Remote, BTreeMap<String, String>)>);

impl Counting for Counted {
    fn reading(&self, queues: bool) -> Option<Reading> {
        let mut sum: Option<Reading> = None;
        for (host, links) in &self.0 {
            let reading = host.reading(queues)?.of_links(links);
            sum = Some(match sum {
                Some(sum) => sum.with(reading),
                None => reading,
            });
        }
        sum
    }

    /// A host of a laboratory has no other load, and only its test links are observed.
    fn is_private(&self) -> bool {
        true
    }
}
