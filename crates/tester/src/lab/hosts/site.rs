//! Who asks whom in one laboratory with one DUT: addresses, interfaces and CPUs.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::link::{LinkName, Meeting, meeting};
use super::{HostSpec, Hosts, HostsError, HostsErrors, Part, Role};
use crate::lab::cpuset::CpuSet;
use crate::lab::profile::Family;

/// Who speaks to whom, in one setup with one DUT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// In the order of the plan; at least one.
    pub measurers: Vec<SiteMeasurer>,
    /// `None` for a self-test alone, or an authority that is measured by itself.
    pub dut: Option<SiteDut>,
    /// In the order of the plan; at least one.
    pub authorities: Vec<SiteAuthority>,
    /// The links that are used, each once: client and upstream of the DUT, and those of the self-test
    /// that are links of their own.
    pub links: Vec<SiteLink>,
}

/// A host that sends queries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteMeasurer {
    /// Its name.
    pub host: String,
    /// Its address toward the DUT; without a DUT the same as `self_test_local`.
    pub local: Ipv6Addr,
    /// The DUT as this Measurer reaches it; `None` without one.
    pub dut: Option<SocketAddr>,
    /// Its address toward its authority in a self-test.
    pub self_test_local: Ipv6Addr,
    /// The authority that it asks in a self-test, by its place among them: the Measurers take them in turn.
    pub authority: usize,
    /// That authority as this Measurer reaches it in a self-test: over a link of its own, over the
    /// loopback interface of their common host, or through the host of the DUT, which forwards.
    pub self_test: SocketAddr,
    /// Threads that send.
    pub threads: usize,
    /// Their CPUs; unrestricted to have them chosen.
    pub cpus: CpuSet,
}

/// The host of the DUT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteDut {
    /// Its name.
    pub host: String,
    /// Where it listens: `::` if Measurers reach it at different addresses.
    pub listen: Ipv6Addr,
    /// That of the DNS.
    pub port: u16,
    /// Where a first query shows that it is ready: as the first Measurer reaches it.
    pub probe: SocketAddr,
    /// Where it finds the authorities, in their order.
    pub upstreams: Vec<SocketAddr>,
    /// Its CPUs, unless its variant of the plan says otherwise.
    pub cpus: CpuSet,
}

/// The host of an authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteAuthority {
    /// Its name.
    pub host: String,
    /// Where it listens behind the DUT; without a DUT the same as `self_test_listen`.
    pub listen: SocketAddr,
    /// Where it listens in a self-test: `::` if Measurers reach it at different addresses, or none asks it.
    pub self_test_listen: SocketAddr,
    /// Its CPUs; unrestricted to have them chosen.
    pub cpus: CpuSet,
}

/// One link between two hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteLink {
    /// What it is for.
    pub name: LinkName,
    /// Its end at the Measurer; of an upstream link that at the DUT.
    pub near: SiteEnd,
    /// Its other end.
    pub far: SiteEnd,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteEnd {
    /// Name of the host.
    pub host: String,
    /// Its interface.
    pub interface: String,
}

impl Site {
    /// The names of its hosts, each once: Measurers, DUT, authorities.
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

    /// What a host is for; nothing if it is not of this site.
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

    /// The authority on a host, if it has that role.
    pub fn authority_on(&self, host: &str) -> Option<&SiteAuthority> {
        self.authorities.iter().find(|it| it.host == host)
    }

    /// Whether Measurer and authority share a host: the two-device setup of RFC 8219 section 9.1.
    pub fn is_two_device(&self) -> bool {
        let mut measurers = self.measurers.iter();
        measurers.any(|it| self.authority_on(&it.host).is_some())
    }
}

impl Hosts {
    /// Who speaks to whom with the DUT on the host of this name, which asks the authorities over `upstream`.
    /// Without a name it is a self-test alone, or an authority by itself, and `upstream` says nothing.
    ///
    /// # Errors
    ///
    /// There is no such host of a DUT, or those that have to speak are not connected: each pair of them. All but the
    /// name and the family is known since [`Self::new`].
    pub fn site(&self, dut: Option<&str>, upstream: Family) -> Result<Site, HostsErrors> {
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
            return Err(HostsErrors(faults));
        };
        if !faults.is_empty() {
            return Err(HostsErrors(faults));
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
                probe: measurers.iter().find_map(|it| it.dut).unwrap_or(at(listen)),
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

    /// The host of a DUT by its name.
    fn dut_named(&self, name: &str) -> Result<&HostSpec, HostsError> {
        let duts = self.duts();
        let found = duts.iter().find(|host| host.name == name);
        found.copied().ok_or_else(|| {
            let names: Vec<_> = duts.iter().map(|host| host.name.as_str()).collect();
            let remedy = match names.as_slice() {
                [] => "add \"dut\" to the roles of one".to_owned(),
                names => format!("there is {}", names.join(", ")),
            };
            HostsError::of_all(format!("no host of a DUT is named {name:?}"), remedy)
        })
    }

    /// How a Measurer asks the DUT, and in self-tests its authority; the links are those that it uses.
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
        let (local, server) = self_test.map_err(|error| faults.push(error)).ok()?;
        let measurer = SiteMeasurer {
            host: host.name.clone(),
            local: client.map_or(local, |(local, _, _)| local),
            dut: client.map(|(_, dut, _)| SocketAddr::from((dut, DNS_PORT))),
            self_test_local: local,
            authority: k,
            self_test: SocketAddr::from((server, DNS_PORT)),
            threads: host.threads,
            cpus: host.cpus.clone(),
        };
        Some((measurer, links))
    }

    /// Local and remote address of a Measurer in a self-test.
    fn self_test(
        &self,
        host: &HostSpec,
        authority: &HostSpec,
        dut: Option<&HostSpec>,
        links: &mut Vec<SiteLink>,
    ) -> Result<(Ipv6Addr, Ipv6Addr), HostsError> {
        // A host is not connected to itself, though it meets itself in each of its prefixes.
        let own = host.name == authority.name;
        let direct = meeting(host, authority, LinkName::SelfTest, Family::Ipv6);
        if let Some(met) = direct.filter(|_| !own)
            && let (IpAddr::V6(local), IpAddr::V6(there)) = (met.near.1, met.far.1)
        {
            links.push(SiteLink::of(LinkName::SelfTest, (host, authority), &met));
            return Ok((local, there));
        }
        if own {
            return Ok((Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST));
        }
        let candidates = dut.map_or_else(|| self.duts(), |dut| vec![dut]);
        let through = |dut: &HostSpec| {
            let near = meeting(host, dut, LinkName::Client, Family::Ipv6)?;
            let far = meeting(dut, authority, LinkName::Upstream, Family::Ipv6)?;
            match (near.near.1, far.far.1) {
                (IpAddr::V6(local), IpAddr::V6(there)) => Some((local, there)),
                _ => None,
            }
        };
        let way = candidates.into_iter().find_map(through);
        way.ok_or_else(|| {
            let what = format!("no way to the authority {} for self-tests", authority.name);
            let remedy = "connect both by a link self-test, or give the upstream link IPv6 addresses \
                          of one prefix at the DUT and at the authority";
            HostsError::of(&host.name, Part::Whole, what, remedy).and(&authority.name)
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

/// Address of a Measurer toward a DUT, and that of the DUT.
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

/// Where a DUT meets each of the authorities: each at an interface of its own, so that counters tell on the way to which
/// of them a question was lost.
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
            let error = HostsError::of(&authority.name, Part::Link(link), what, remedy);
            faults.push(error.and(&dut.name));
        }
        all.push((authority, met));
    }
    all.into_iter().map(|(_, met)| met).collect()
}

/// Why two hosts are not connected, of which each is told that has no address.
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
    let mut fault = |host: &HostSpec, other: &HostSpec, what: String, remedy: &str| {
        let error = HostsError::of(&host.name, Part::Link(link), what, remedy);
        faults.push(error.and(&other.name));
    };
    let both = [(near, far), (far, near)];
    for (host, other) in both.into_iter().filter(|(host, _)| lacks(host)) {
        let what = format!("no {family} address on a link {link}");
        let remedy = format!("add one in the prefix of {}", other.name);
        fault(host, other, what, &remedy);
    }
    if !lacks(near) && !lacks(far) {
        let what = format!(
            "link {link} does not connect it to host {}: no two {family} addresses in one prefix",
            far.name
        );
        fault(near, far, what, "correct the addresses of one");
    }
}

/// The address, if all are the same; `::` otherwise.
fn listen(servers: impl Iterator<Item = SocketAddr>) -> Ipv6Addr {
    let mut all = servers.map(|server| server.ip());
    match all.next() {
        Some(IpAddr::V6(first)) if all.all(|other| other == first) => first,
        _ => Ipv6Addr::UNSPECIFIED,
    }
}

/// RFC 1035 section 4.2.
const DNS_PORT: u16 = 53;
