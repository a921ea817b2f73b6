//! Roles, addresses, interfaces and CPUs of one laboratory with one DUT.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::link::{LinkName, Meeting, meeting};
use super::{HostPart, HostSpec, Hosts, HostsError};
use crate::lab::DNS_PORT;
use crate::lab::profile::Family;
use crate::lab::routes::Route;
use crate::load::sources::Sources;
use crate::machine::Role;
use crate::machine::cpuset::CpuSet;

/// Roles and connections of one setup with one DUT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Measurers in the order of the plan; at least one.
    pub measurers: Vec<SiteMeasurer>,
    /// The DUT; `None` for a self-test, or for an authority that is measured directly.
    pub dut: Option<SiteDut>,
    /// Authorities in the order of the plan; at least one.
    pub authorities: Vec<SiteAuthority>,
    /// The used links, each once: client and upstream links of the DUT, and separate links of the self-test.
    pub links: Vec<SiteLink>,
}

/// A host that sends queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteMeasurer {
    /// Its name.
    pub host: String,
    /// Its address towards the DUT; without a DUT the same as `self_test_local`.
    pub local: Ipv6Addr,
    /// Address of the DUT for this Measurer; `None` without a DUT.
    pub dut: Option<SocketAddr>,
    /// Its address towards its authority in a self-test.
    pub self_test_local: Ipv6Addr,
    /// Index of the authority that it queries in a self-test; the Measurers use the authorities in rotation.
    pub authority: usize,
    /// Address of that authority for this Measurer in a self-test: over a separate link, over the loopback interface of
    /// their common host, or forwarded by the host of the DUT.
    pub self_test: SocketAddr,
    /// The host that forwards its self-tests, where one has to.
    pub router: Option<SiteRouter>,
    /// Number of sending threads.
    pub threads: usize,
    /// Their CPUs; unrestricted: chosen automatically.
    pub cpus: CpuSet,
}

/// The host of a DUT between a Measurer and its authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRouter {
    /// Its name.
    pub host: String,
    /// Its address toward the authority.
    pub local: Ipv6Addr,
}

/// The host of the DUT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteDut {
    /// Its name.
    pub host: String,
    /// Its listening address: `::` if Measurers reach it at different addresses.
    pub listen: Ipv6Addr,
    /// Its port, that of the DNS.
    pub port: u16,
    /// Addresses of the authorities, in their order.
    pub upstreams: Vec<SocketAddr>,
    /// Its CPUs, unless its variant of the plan overrides them.
    pub cpus: CpuSet,
}

/// The host of an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteAuthority {
    /// Its name.
    pub host: String,
    /// Its listening address for the DUT; without a DUT the same as `self_test_listen`.
    pub listen: SocketAddr,
    /// Its listening address in a self-test: `::` if Measurers reach it at different addresses, or if none queries it.
    pub self_test_listen: SocketAddr,
    /// Its CPUs; unrestricted: chosen automatically.
    pub cpus: CpuSet,
}

/// One link between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteLink {
    /// Its purpose.
    pub name: LinkName,
    /// The end at the Measurer; for an upstream link, the end at the DUT.
    pub near: SiteEnd,
    /// The other end.
    pub far: SiteEnd,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteEnd {
    /// Name of the host.
    pub host: String,
    /// Its interface.
    pub interface: String,
}

impl Site {
    /// Names of its hosts, each once: Measurers, DUT, authorities.
    pub fn hosts(&self) -> Vec<&str> {
        let measurers = self.measurers.iter().map(|it| it.host.as_str());
        let dut = self.dut.iter().map(|it| it.host.as_str());
        let mut names = Vec::new();
        let authorities = self.authorities.iter().map(|it| it.host.as_str());
        for name in measurers.chain(dut).chain(authorities) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The routes of each host, by its name, that let Measurers send from `sources`, each from a part of its own, and replies of
    /// DUT and authorities return. Hosts that only forward self-tests are among them. `None` if there are fewer addresses than
    /// Measurers.
    pub fn routes(&self, sources: Sources) -> Option<BTreeMap<String, Vec<Route>>> {
        let mut routes: BTreeMap<String, Vec<Route>> = BTreeMap::new();
        for (k, measurer) in self.measurers.iter().enumerate() {
            let part = sources.part(k, self.measurers.len())?;
            let mut add = |host: &str, route| {
                let known = routes.entry(host.to_owned()).or_default();
                if !known.contains(&route) {
                    known.push(route);
                }
            };
            add(&measurer.host, Route::Local(part));
            if let Some(dut) = &self.dut {
                add(&dut.host, Route::Via(part, measurer.local));
            }
            let authority = &self.authorities[measurer.authority].host;
            match &measurer.router {
                Some(router) => {
                    add(&router.host, Route::Via(part, measurer.self_test_local));
                    add(authority, Route::Via(part, router.local));
                }
                None if *authority == measurer.host => {}
                None => add(authority, Route::Via(part, measurer.self_test_local)),
            }
        }
        Some(routes)
    }

    /// Roles of a host; empty if it is not part of this site.
    pub fn roles_of(&self, host: &str) -> Vec<Role> {
        let is_measurer = self.measurers.iter().any(|it| it.host == host);
        let is_dut = self.dut.as_ref().is_some_and(|it| it.host == host);
        let roles = [
            (Role::Measurer, is_measurer),
            (Role::Dut, is_dut),
            (Role::Authority, self.authority_on(host).is_some()),
        ];
        let own = roles.into_iter().filter(|(_, is)| *is);
        own.map(|(role, _)| role).collect()
    }

    /// Returns the authority on a host, if it has that role.
    pub fn authority_on(&self, host: &str) -> Option<&SiteAuthority> {
        self.authorities.iter().find(|it| it.host == host)
    }

    /// Returns whether Measurer and authority share a host: the two-device setup of RFC 8219 section 9.1.
    pub fn is_two_device(&self) -> bool {
        let mut measurers = self.measurers.iter();
        measurers.any(|it| self.authority_on(&it.host).is_some())
    }
}

impl Hosts {
    /// Returns the setup with the DUT on the host of this name, which queries the authorities over `upstream`. Without
    /// a name it is the setup of a self-test or of an authority alone, and `upstream` is ignored.
    ///
    /// # Errors
    ///
    /// There is no such host of a DUT, or hosts that need a connection have none: one error for each pair.
    /// [`Self::new`] has checked everything except the name and the family.
    pub fn site(&self, dut: Option<&str>, upstream: Family) -> Result<Site, Vec<HostsError>> {
        let authorities = self.authorities();
        let dut = dut.map(|name| self.dut_named(name)).transpose()?;
        let mut faults = Vec::new();
        let upstreams = dut.map(|dut| upstreams_of(dut, &authorities, upstream, &mut faults));
        let in_turn = (0..authorities.len()).cycle();
        let ways: Vec<_> = self
            .measurers()
            .into_iter()
            .zip(in_turn)
            .map(|(host, k)| self.way(host, (k, authorities[k]), dut, &mut faults))
            .collect();
        let Some(ways) = ways.into_iter().collect::<Option<Vec<_>>>() else {
            return Err(faults);
        };
        if !faults.is_empty() {
            return Err(faults);
        }
        let (measurers, links): (Vec<_>, Vec<_>) = ways.into_iter().unzip();
        let mut links: Vec<_> = links.into_iter().flatten().collect();
        let at = |listen: Ipv6Addr| SocketAddr::from((listen, DNS_PORT));
        let dut = dut.zip(upstreams.as_ref()).map(|(dut, all)| {
            let ends = authorities.iter().zip(all);
            links.extend(ends.map(|(it, met)| SiteLink::of(LinkName::Upstream, (dut, it), met)));
            let listen = listen(measurers.iter().filter_map(|it| it.dut));
            SiteDut {
                host: dut.name.clone(),
                listen,
                port: DNS_PORT,
                upstreams: all.iter().map(|met| (met.far.1, DNS_PORT).into()).collect(),
                cpus: dut.cpus.clone(),
            }
        });
        let authority = |(k, host): (usize, &&HostSpec)| {
            let asking = measurers.iter().filter(|it| it.authority == k);
            let self_test_listen = at(listen(asking.map(|it| it.self_test)));
            SiteAuthority {
                host: host.name.clone(),
                listen: dut
                    .as_ref()
                    .map_or(self_test_listen, |dut| dut.upstreams[k]),
                self_test_listen,
                cpus: host.cpus_of_authority().clone(),
            }
        };
        Ok(Site {
            authorities: authorities.iter().enumerate().map(authority).collect(),
            measurers,
            dut,
            links,
        })
    }

    /// Returns the host of a DUT by its name.
    fn dut_named(&self, name: &str) -> Result<&HostSpec, Vec<HostsError>> {
        let duts = self.duts();
        let found = duts.iter().find(|host| host.name == name);
        found.copied().ok_or_else(|| {
            let names: Vec<_> = duts.iter().map(|host| host.name.as_str()).collect();
            let remedy = match names.as_slice() {
                [] => "add \"dut\" to the roles of one".to_owned(),
                names => format!("there is {}", names.join(", ")),
            };
            let what = format!("no host of a DUT is named {name:?}");
            vec![HostsError::of_all(what, remedy)]
        })
    }

    /// Returns the connections of a Measurer: to the DUT, and in self-tests to its authority, with the links that they
    /// use.
    fn way(
        &self,
        host: &HostSpec,
        (k, authority): (usize, &HostSpec),
        dut: Option<&HostSpec>,
        faults: &mut Vec<HostsError>,
    ) -> Option<(SiteMeasurer, Vec<SiteLink>)> {
        let mut links = Vec::new();
        let client = match dut {
            Some(dut) => Some(client(host, dut, faults)?),
            None => None,
        };
        if let (Some(dut), Some((_, _, met))) = (dut, &client) {
            links.push(SiteLink::of(LinkName::Client, (host, dut), met));
        }
        let self_test = self.self_test(host, authority, dut, &mut links);
        let (local, server, router) = self_test.map_err(|error| faults.push(error)).ok()?;
        let measurer = SiteMeasurer {
            host: host.name.clone(),
            local: client.map_or(local, |(local, _, _)| local),
            dut: client.map(|(_, dut, _)| SocketAddr::from((dut, DNS_PORT))),
            self_test_local: local,
            authority: k,
            self_test: SocketAddr::from((server, DNS_PORT)),
            router,
            threads: host.threads,
            cpus: host.cpus.clone(),
        };
        Some((measurer, links))
    }

    /// Local and remote address of a Measurer in a self-test, and who forwards it.
    fn self_test(
        &self,
        host: &HostSpec,
        authority: &HostSpec,
        dut: Option<&HostSpec>,
        links: &mut Vec<SiteLink>,
    ) -> Result<(Ipv6Addr, Ipv6Addr, Option<SiteRouter>), HostsError> {
        // A host has no link to itself, although its addresses match its own prefixes.
        let own = host.name == authority.name;
        let direct = meeting(host, authority, LinkName::SelfTest, Family::Ipv6);
        if let Some(met) = direct.filter(|_| !own)
            && let (IpAddr::V6(local), IpAddr::V6(there)) = (met.near.1, met.far.1)
        {
            links.push(SiteLink::of(LinkName::SelfTest, (host, authority), &met));
            return Ok((local, there, None));
        }
        if own {
            return Ok((Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, None));
        }
        let candidates = dut.map_or_else(|| self.duts(), |dut| vec![dut]);
        let through = |dut: &HostSpec| {
            let near = meeting(host, dut, LinkName::Client, Family::Ipv6)?;
            let far = meeting(dut, authority, LinkName::Upstream, Family::Ipv6)?;
            match (near.near.1, far.near.1, far.far.1) {
                (IpAddr::V6(local), IpAddr::V6(between), IpAddr::V6(there)) => {
                    let router = SiteRouter {
                        host: dut.name.clone(),
                        local: between,
                    };
                    Some((local, there, Some(router)))
                }
                _ => None,
            }
        };
        let way = candidates.into_iter().find_map(through);
        way.ok_or_else(|| {
            let what = format!("no way to the authority {} for self-tests", authority.name);
            let remedy = "connect both by a link self-test, or give the upstream link IPv6 addresses \
                          of one prefix at the DUT and at the authority";
            HostsError::of(&host.name, HostPart::Whole, what, remedy)
        })
    }
}

impl SiteLink {
    fn of(name: LinkName, (near, far): (&HostSpec, &HostSpec), met: &Meeting<'_>) -> Self {
        let end = |host: &HostSpec, interface: &str| SiteEnd {
            host: host.name.clone(),
            interface: interface.to_owned(),
        };
        Self {
            name,
            near: end(near, met.near.0),
            far: end(far, met.far.0),
        }
    }
}

/// Returns the addresses of a Measurer and a DUT towards each other.
fn client<'a>(
    host: &'a HostSpec,
    dut: &'a HostSpec,
    faults: &mut Vec<HostsError>,
) -> Option<(Ipv6Addr, Ipv6Addr, Meeting<'a>)> {
    let met = meeting(host, dut, LinkName::Client, Family::Ipv6);
    match met.map(|met| (met.near.1, met.far.1, met)) {
        Some((IpAddr::V6(local), IpAddr::V6(there), met)) => Some((local, there, met)),
        _ => {
            unconnected(host, dut, LinkName::Client, Family::Ipv6, faults);
            None
        }
    }
}

/// Returns the connections of a DUT to each authority: each at its own interface, so that counters show on which path a
/// query was lost.
fn upstreams_of<'a>(
    dut: &'a HostSpec,
    authorities: &[&'a HostSpec],
    family: Family,
    faults: &mut Vec<HostsError>,
) -> Vec<Meeting<'a>> {
    let link = LinkName::Upstream;
    let mut all: Vec<(&HostSpec, Meeting<'a>)> = Vec::new();
    for authority in authorities {
        let Some(met) = meeting(dut, authority, link, family) else {
            unconnected(dut, authority, link, family, faults);
            continue;
        };
        if let Some((other, _)) = all.iter().find(|(_, other)| other.near.0 == met.near.0) {
            let what = format!(
                "it is behind interface {} of host {}, as authority {} is",
                met.near.0, dut.name, other.name
            );
            let remedy = "give each authority a link of its own, with an interface of the DUT's host; an interface of a \
                          VLAN is one";
            let part = HostPart::Link(link);
            faults.push(HostsError::of(&authority.name, part, what, remedy));
        }
        all.push((authority, met));
    }
    all.into_iter().map(|(_, met)| met).collect()
}

/// Reports two unconnected hosts; each host without an address gets its own error.
fn unconnected(
    near: &HostSpec,
    far: &HostSpec,
    link: LinkName,
    family: Family,
    faults: &mut Vec<HostsError>,
) {
    let lacks = |host: &HostSpec| {
        let mut addresses = host.ends(link).iter().flat_map(|end| &end.addresses);
        !addresses.any(|address| address.is_of(family))
    };
    let mut fault = |host: &HostSpec, what: String, remedy: &str| {
        let part = HostPart::Link(link);
        faults.push(HostsError::of(&host.name, part, what, remedy));
    };
    let both = [(near, far), (far, near)];
    for (host, other) in both.into_iter().filter(|(host, _)| lacks(host)) {
        let what = format!("no {family} address on a link {link}");
        let remedy = format!("add one in the prefix of {}", other.name);
        fault(host, what, &remedy);
    }
    if !lacks(near) && !lacks(far) {
        let what = format!(
            "link {link} does not connect it to host {}: no two {family} addresses in one prefix",
            far.name
        );
        fault(near, what, "correct the addresses of one");
    }
}

/// Returns the address if all are the same; otherwise `::`.
fn listen(servers: impl Iterator<Item = SocketAddr>) -> Ipv6Addr {
    let mut all = servers.map(|server| server.ip());
    match all.next() {
        Some(IpAddr::V6(first)) if all.all(|other| other == first) => first,
        _ => Ipv6Addr::UNSPECIFIED,
    }
}
