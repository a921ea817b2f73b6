//! Validation of hosts: of each by itself, then of all together, then of their connections.

use std::net::IpAddr;

use super::link::{LinkAddress, LinkEnd, LinkName};
use super::{HOSTS_MAX, HostPart, HostSpec, Hosts, HostsError, Reach};
use crate::lab::profile::Family;
use crate::machine::Role;

impl Hosts {
    /// Performs all checks that need no contact with a host. The hosts have different names, and none has a role twice.
    ///
    /// # Errors
    ///
    /// Errors with their remedies. Those of [`HostSpec::faults`]; without any, a machine or an address of two hosts, one
    /// prefix on links of two names, a role without a host; without any, links that do not connect. A later kind would
    /// only follow from an earlier one.
    pub fn new(hosts: Vec<HostSpec>) -> Result<Self, Vec<HostsError>> {
        if hosts.len() > HOSTS_MAX {
            let what = format!("{} hosts", hosts.len());
            let remedy = format!("must be at most {HOSTS_MAX}");
            return Err(vec![HostsError::of_all(what, remedy)]);
        }
        let hosts = Self(hosts);
        let checks: [fn(&Self) -> Vec<HostsError>; 3] = [
            |hosts| hosts.iter().flat_map(HostSpec::faults).collect(),
            Self::contradictions,
            Self::disconnections,
        ];
        for check in checks {
            let found = check(&hosts);
            if !found.is_empty() {
                return Err(found);
            }
        }
        Ok(hosts)
    }

    /// Returns the hosts if self-tests query every authority: each Measurer queries one of them, in rotation.
    ///
    /// # Errors
    ///
    /// An error that names all of them, and the authorities without queries.
    pub fn self_tested(self) -> Result<Self, Vec<HostsError>> {
        let (measurers, authorities) = (self.measurers(), self.authorities());
        let unasked = authorities.get(measurers.len()..).unwrap_or_default();
        if unasked.is_empty() {
            return Ok(self);
        }
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
        Err(vec![HostsError::of_all(what, remedy)])
    }

    /// What is wrong between hosts: roles that none has, one machine as two hosts, addresses and prefixes in two places.
    fn contradictions(&self) -> Vec<HostsError> {
        let mut found = Vec::new();
        for role in [Role::Measurer, Role::Authority] {
            if !self.iter().any(|host| host.has(role)) {
                let word = word(role);
                let remedy = format!("add \"{word}\" to the roles of one");
                found.push(HostsError::of_all(format!("no host is the {word}"), remedy));
            }
        }
        for (number, host) in self.iter().enumerate() {
            let mut before = self.0[..number].iter();
            if let Some(other) = before.find(|other| other.reach == host.reach) {
                let what = format!("it is the same machine as host {}", other.name);
                let remedy = "give one host both roles, or correct ssh, netns or local of one";
                let part = HostPart::Reach;
                found.push(HostsError::of(&host.name, part, what, remedy));
            }
        }
        let mut seen: Vec<UsedAddress<'_>> = Vec::new();
        for (host, link, end) in self.iter().flat_map(ends) {
            for &address in &end.addresses {
                let mut own = UsedAddress {
                    host,
                    link,
                    interface: &end.interface,
                    address,
                    is_told: false,
                };
                let mut others = seen.iter_mut();
                let clash = others.find_map(|it| own.clash(it).map(|error| (it, error)));
                if let Some((other, error)) = clash {
                    (own.is_told, other.is_told) = (true, true);
                    found.push(error);
                }
                seen.push(own);
            }
        }
        found
    }

    /// Hosts without a connection that their roles need, each once.
    fn disconnections(&self) -> Vec<HostsError> {
        let of_dut = |dut: &HostSpec| {
            // One of the two IP versions must be possible; the plan later selects the one to use.
            let family = self.upstream_family(dut);
            self.site(Some(&dut.name), family).err()
        };
        let errors: Vec<_> = match self.duts().as_slice() {
            [] => self.site(None, Family::Ipv6).err().into_iter().collect(),
            duts => duts.iter().filter_map(|dut| of_dut(dut)).collect(),
        };
        let mut found: Vec<HostsError> = Vec::new();
        for error in errors.into_iter().flatten() {
            if !found.contains(&error) {
                found.push(error);
            }
        }
        // A self-test's path leads over links.
        let of_link = |error: &HostsError| error.part.link().is_some();
        if found.iter().any(of_link) {
            found.retain(of_link);
        }
        found
    }
}

impl HostSpec {
    /// Returns the faults that it has by itself, each with its remedy: an invalid name, way to it, interface or address;
    /// roles that cannot be on one host; numbers and links that are not for its roles.
    pub fn faults(&self) -> Vec<HostsError> {
        let mut found = Vec::new();
        found.extend(name(&self.name).err());
        found.extend(reach(self).err());
        self.role_faults(&mut found);
        if !self.roles.is_empty() {
            self.number_faults(&mut found);
            for (&link, ends) in &self.links {
                self.link_faults(link, ends, &mut found);
            }
        }
        found
    }

    fn role_faults(&self, found: &mut Vec<HostsError>) {
        let mut fault = |what: &str, remedy: &str| {
            found.push(HostsError::of(&self.name, HostPart::Roles, what, remedy));
        };
        if self.roles.is_empty() {
            let example =
                "write such as roles = [\"measurer\"]; there are measurer, dut and authority";
            fault("it has no role", example);
        }
        if self.has(Role::Dut) && self.roles.len() > 1 {
            fault(
                "it is the host of a DUT and has another role",
                "the DUT has a host of its own (RFC 8219 section 9), so that nobody else takes its \
                 CPUs",
            );
        }
    }

    fn number_faults(&self, found: &mut Vec<HostsError>) {
        let mut fault = |part, what: String, remedy: &str| {
            found.push(HostsError::of(&self.name, part, what, remedy));
        };
        let is_measurer = self.has(Role::Measurer);
        if self.threads != 1 && !is_measurer {
            let what = format!("threads = {} is for a Measurer", self.threads);
            let remedy = "omit it, or add the role \"measurer\"";
            fault(HostPart::Threads, what, remedy);
        }
        let is_shared = is_measurer && self.has(Role::Authority);
        let (cpus, authority_cpus) = (&self.cpus, &self.authority_cpus);
        if !(authority_cpus.is_unrestricted() || is_shared) {
            let what = format!("authority-cpus = \"{authority_cpus}\" without both roles");
            let remedy = "it is for a host that is Measurer and authority; of any other, give cpus";
            fault(HostPart::AuthorityCpus, what, remedy);
        }
        let both = |cpu: &&usize| authority_cpus.cpus().contains(cpu);
        if let Some(cpu) = cpus.cpus().iter().find(both)
            && cpus != authority_cpus
        {
            let what = format!("CPU {cpu} is in cpus and in authority-cpus");
            let remedy = "give each CPU to one role, or the same CPUs to both";
            fault(HostPart::Cpus, what, remedy);
        }
    }

    /// Checks its ends of the links of one name.
    fn link_faults(&self, link: LinkName, ends: &[LinkEnd], found: &mut Vec<HostsError>) {
        let mut fault = |part, what: String, remedy: &str| {
            found.push(HostsError::of(&self.name, part, what, remedy));
        };
        let users = users(link);
        if !users.iter().any(|&role| self.has(role)) {
            let [one, other] = users.map(word);
            let what = format!("link {link} is between {one} and {other}");
            fault(HostPart::Link(link), what, "omit the link, or add the role");
            return;
        }
        for (number, end) in ends.iter().enumerate() {
            let interface = &end.interface;
            let at = HostPart::End(link, number);
            if !is_interface(interface) {
                let what = format!("{interface:?} of link {link} is not the name of an interface");
                fault(at, what, "write one that `ip link` lists");
            } else if is_given_before(self, link, number) {
                let what = format!("interface {interface} is given twice");
                let remedy =
                    "give each link an interface of its own, all addresses of one in one list";
                fault(at, what, remedy);
            }
            if end.addresses.is_empty() {
                let what = format!("interface {interface} of link {link} has no address");
                fault(at, what, "add one, such as \"2001:2:0:1::1/64\"");
            }
            for &address in &end.addresses {
                if !is_of_a_host(address.address()) {
                    let what = format!("{address} of link {link} is not the address of a host");
                    let remedy =
                        "use a global unicast address, such as one of 2001:2::/48 or 198.18.0.0/15";
                    fault(HostPart::Address(link, address), what, remedy);
                }
            }
        }
    }
}

/// An address at an end of a link.
struct UsedAddress<'a> {
    host: &'a HostSpec,
    link: LinkName,
    interface: &'a str,
    address: LinkAddress,
    /// Its clash was reported: other clashes in its prefix are consequences.
    is_told: bool,
}

impl UsedAddress<'_> {
    /// Returns why it conflicts with another address.
    fn clash(&self, other: &Self) -> Option<HostsError> {
        let Self {
            host,
            link,
            interface,
            address,
            ..
        } = self;
        let its = other.address;
        let there = format!("{its} of host {}", other.host.name);
        let (what, remedy) = if its.address() == address.address() {
            (
                format!("{address} is also the address of host {}", other.host.name),
                "give each interface addresses of its own",
            )
        } else if !address.overlaps(its) || other.is_told {
            return None;
        } else if other.link != *link {
            let of = format!("{there} of link {}", other.link);
            (
                format!("{address} of link {link} and {of} are in one prefix"),
                "give each link a prefix of its own",
            )
        } else if its.prefix() != address.prefix() {
            (
                format!("{address} and {there} have prefixes of different lengths on one link"),
                "give both ends the same length",
            )
        } else if other.host.name == host.name && other.interface != *interface {
            let of = format!("{} and {interface}", other.interface);
            (
                format!("its interfaces {of} have addresses in one prefix"),
                "give each interface a prefix of its own",
            )
        } else {
            return None;
        };
        let part = HostPart::Address(*link, *address);
        Some(HostsError::of(&host.name, part, what, remedy))
    }
}

fn name(name: &str) -> Result<(), HostsError> {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(known) && !name.starts_with('-') {
        return Ok(());
    }
    let what = format!("invalid name {name:?}");
    let remedy = format!("use 1 to {NAME_MAX} of a-z, 0-9 and -, not starting with -");
    Err(HostsError::of(name, HostPart::Whole, what, remedy))
}

/// An argument for ssh or ip must not look like an option.
fn reach(host: &HostSpec) -> Result<(), HostsError> {
    let plain = |c: char| !c.is_whitespace() && !c.is_control();
    let is_word =
        |text: &str| !text.is_empty() && !text.starts_with('-') && text.chars().all(plain);
    let (what, remedy) = match &host.reach {
        Reach::Ssh(target) if !is_word(target) => (
            format!("ssh = {target:?} is not a destination of ssh"),
            "write \"gen1\", \"root@gen1\" or \"ssh://root@gen1:2222\"",
        ),
        Reach::Netns(name) if !is_word(name) || name.contains('/') || name.starts_with('.') => (
            format!("netns = {name:?} is not the name of a network namespace"),
            "write one that `ip netns` lists",
        ),
        Reach::Ssh(_) | Reach::Netns(_) | Reach::Local => return Ok(()),
    };
    Err(HostsError::of(&host.name, HostPart::Reach, what, remedy))
}

/// Returns whether an earlier end, of an earlier link or of the same link, has the same interface.
fn is_given_before(host: &HostSpec, link: LinkName, number: usize) -> bool {
    let all = ends(host);
    let numbered = all.map(|(_, link, end)| (link, end));
    let own = &host.ends(link)[number];
    let before = numbered.take_while(|(_, end)| !std::ptr::eq(*end, own));
    let mut named = before.filter(|(_, end)| end.interface == own.interface);
    named.next().is_some()
}

fn ends(host: &HostSpec) -> impl Iterator<Item = (&HostSpec, LinkName, &LinkEnd)> {
    let all = host.links.iter();
    all.flat_map(move |(&link, ends)| ends.iter().map(move |end| (host, link, end)))
}

/// The roles at the two ends of a link.
fn users(link: LinkName) -> [Role; 2] {
    match link {
        LinkName::Client => [Role::Measurer, Role::Dut],
        LinkName::Upstream => [Role::Dut, Role::Authority],
        LinkName::SelfTest => [Role::Measurer, Role::Authority],
    }
}

/// Name of a role in plans.
fn word(role: Role) -> &'static str {
    match role {
        Role::Measurer => "measurer",
        Role::Dut => "dut",
        Role::Authority => "authority",
    }
}

/// Follows `dev_valid_name` of Linux (net/core/dev.c).
fn is_interface(name: &str) -> bool {
    let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    (1..=INTERFACE_MAX).contains(&name.len()) && name != "." && name != ".." && !name.contains(bad)
}

/// Returns whether an address can be used on a test link without a zone.
fn is_of_a_host(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V6(address) => address.is_unicast_link_local(),
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
    };
    !(link_local || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

/// Names appear in tables.
const NAME_MAX: usize = 32;

/// `IFNAMSIZ` without the final zero octet (linux/if.h).
const INTERFACE_MAX: usize = 15;
