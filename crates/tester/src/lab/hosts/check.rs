//! Validation of hosts: finds all errors, each once.

use std::net::IpAddr;

use super::link::{LinkAddress, LinkEnd, LinkName};
use super::{HOSTS_MAX, HostPart, HostSpec, Hosts, HostsError, Reach, THREADS_MAX};
use crate::lab::profile::Family;
use crate::machine::Role;

/// A part of a host that is unknown because it could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Name of the host.
    pub host: String,
    /// The unknown part. For a link, every end of it is in doubt.
    pub part: HostPart,
}

/// Returns all errors of the hosts, each once. Errors that follow from another error, or from a part in doubt, are
/// omitted.
pub(super) fn all(hosts: &[HostSpec], doubts: Vec<Doubt>, self_tests: bool) -> Vec<HostsError> {
    let mut check = Check {
        hosts,
        doubts,
        found: Vec::new(),
    };
    if hosts.len() > HOSTS_MAX {
        let what = format!("{} hosts", hosts.len());
        let remedy = format!("must be at most {HOSTS_MAX}");
        return vec![HostsError::of_all(what, remedy)];
    }
    check.roles();
    for (number, host) in hosts.iter().enumerate() {
        check.one(host, &hosts[..number]);
    }
    check.addresses();
    if self_tests && !check.is_any(|part| part == HostPart::Roles) {
        let covered = self_tests_cover(hosts);
        covered.unwrap_or_else(|error| check.add(error));
    }
    check.connections();
    check.found
}

/// State of the validation.
struct Check<'a> {
    hosts: &'a [HostSpec],
    doubts: Vec<Doubt>,
    found: Vec<HostsError>,
}

impl<'a> Check<'a> {
    /// Adds an error; the part that it concerns is in doubt afterwards.
    fn add(&mut self, error: HostsError) {
        if self.found.contains(&error) {
            return;
        }
        for host in error.host.iter().chain(&error.other) {
            let part = error.part.link().map_or(error.part, HostPart::Link);
            let host = host.clone();
            self.doubts.push(Doubt { host, part });
        }
        self.found.push(error);
    }

    fn doubts(&self, host: &str, part: HostPart) -> bool {
        let mut doubts = self.doubts.iter();
        doubts.any(|doubt| doubt.host == host && doubt.part == part)
    }

    fn is_any(&self, of: impl Fn(HostPart) -> bool) -> bool {
        self.doubts.iter().any(|doubt| of(doubt.part))
    }

    /// Checks name, reach, roles, numbers and links of a single host.
    fn one(&mut self, host: &HostSpec, before: &[HostSpec]) {
        name(&host.name).unwrap_or_else(|error| self.add(error));
        if !self.doubts(&host.name, HostPart::Reach) {
            reach(host).unwrap_or_else(|error| self.add(error));
        }
        let of = |part, what: String, remedy: &str| HostsError::of(&host.name, part, what, remedy);
        for other in before {
            if other.name == host.name {
                let what = "the name is given to two hosts".to_owned();
                self.add(of(HostPart::Whole, what, "rename one of them"));
            }
            let is_known = ![host, other]
                .iter()
                .any(|host| self.doubts(&host.name, HostPart::Reach));
            if is_known && other.reach == host.reach {
                let what = format!("it is the same machine as host {}", other.name);
                let remedy = "give one host both roles, or correct ssh, netns or local of one";
                self.add(of(HostPart::Reach, what, remedy));
            }
        }
        if !self.doubts(&host.name, HostPart::Roles) {
            self.own_roles(host);
        }
        if !host.roles.is_empty() {
            self.numbers(host);
        }
        for (&link, ends) in &host.links {
            self.link(host, link, ends);
        }
    }

    fn own_roles(&mut self, host: &HostSpec) {
        let mut fault = |what: &str, remedy: &str| {
            self.add(HostsError::of(&host.name, HostPart::Roles, what, remedy));
        };
        if host.roles.is_empty() {
            let example =
                "write such as roles = [\"measurer\"]; there are measurer, dut and authority";
            fault("it has no role", example);
        }
        let mut roles = host.roles.iter().enumerate();
        if roles.any(|(number, role)| host.roles[..number].contains(role)) {
            fault("it has a role twice", "omit one");
        }
        if host.has(Role::Dut) && host.roles.iter().any(|role| *role != Role::Dut) {
            fault(
                "it is the host of a DUT and has another role",
                "the DUT has a host of its own (RFC 8219 section 9), so that nobody else takes its \
                 CPUs",
            );
        }
    }

    fn numbers(&mut self, host: &HostSpec) {
        let mut fault = |part, what: String, remedy: &str| {
            self.add(HostsError::of(&host.name, part, what, remedy));
        };
        let (measurer, authority) = (host.has(Role::Measurer), host.has(Role::Authority));
        if !(1..=THREADS_MAX).contains(&host.threads) {
            let what = format!("invalid thread count {}", host.threads);
            fault(HostPart::Threads, what, &format!("must be 1-{THREADS_MAX}"));
        } else if host.threads != 1 && !measurer {
            let what = format!("threads = {} is for a Measurer", host.threads);
            let remedy = "omit it, or add the role \"measurer\"";
            fault(HostPart::Threads, what, remedy);
        }
        let is_shared = measurer && authority;
        if !(host.authority_cpus.is_unrestricted() || is_shared) {
            let cpus = &host.authority_cpus;
            let what = format!("authority-cpus = \"{cpus}\" without both roles");
            let remedy = "it is for a host that is Measurer and authority; of any other, give cpus";
            fault(HostPart::AuthorityCpus, what, remedy);
        }
        let both = |cpu: &&usize| host.authority_cpus.cpus().contains(cpu);
        if let Some(cpu) = host.cpus.cpus().iter().find(both)
            && host.cpus != host.authority_cpus
        {
            let what = format!("CPU {cpu} is in cpus and in authority-cpus");
            let remedy = "give each CPU to one role, or the same CPUs to both";
            fault(HostPart::Cpus, what, remedy);
        }
    }

    /// Checks the ends of a host's links of one name.
    fn link(&mut self, host: &HostSpec, link: LinkName, ends: &[LinkEnd]) {
        let name = &host.name;
        let whole = HostPart::Link(link);
        let users = users(link);
        if !is_used(host, link) && !self.doubts(name, HostPart::Roles) {
            let [one, other] = users.map(word);
            let what = format!("link {link} is between {one} and {other}");
            let remedy = "omit the link, or add the role";
            self.add(HostsError::of(name, whole, what, remedy));
            return;
        }
        if self.doubts(name, whole) {
            return;
        }
        if ends.is_empty() {
            let what = format!("link {link} has no end");
            self.add(HostsError::of(name, whole, what, "omit it"));
        }
        for (number, end) in ends.iter().enumerate() {
            let interface = &end.interface;
            let mut fault = |part, what: String, remedy: &str| {
                self.add(HostsError::of(name, part, what, remedy));
            };
            let at = HostPart::End(link, number);
            if !is_interface(interface) {
                let what = format!("{interface:?} of link {link} is not the name of an interface");
                fault(at, what, "write one that `ip link` lists");
            } else if is_given_before(host, link, number) {
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

    /// Checks for addresses that two hosts share, and for prefixes that make a link ambiguous.
    fn addresses(&mut self) {
        let mut seen: Vec<UsedAddress<'_>> = Vec::new();
        let used = self.hosts.iter().flat_map(ends);
        for (host, link, end) in used.filter(|(host, link, _)| is_used(host, *link)) {
            for &address in &end.addresses {
                let interface = end.interface.as_str();
                let mut own = UsedAddress {
                    host,
                    link,
                    interface,
                    address,
                    is_told: false,
                };
                let mut others = seen.iter_mut();
                let clash = others.find_map(|it| own.clash(it).map(|error| (it, error)));
                if let Some((other, error)) = clash {
                    (own.is_told, other.is_told) = (true, true);
                    self.add(error);
                    let (host, part) = (other.host.name.clone(), HostPart::Link(other.link));
                    self.doubts.push(Doubt { host, part });
                }
                seen.push(own);
            }
        }
    }

    /// Checks the assignment of the roles.
    fn roles(&mut self) {
        let is_without = |host: &HostSpec| host.roles.is_empty();
        if self.is_any(|part| part == HostPart::Roles) || self.hosts.iter().any(is_without) {
            return;
        }
        for role in [Role::Measurer, Role::Authority] {
            if !self.hosts.iter().any(|host| host.has(role)) {
                let word = word(role);
                self.add(HostsError::of_all(
                    format!("no host is the {word}"),
                    format!("add \"{word}\" to the roles of one"),
                ));
            }
        }
    }

    /// Checks the connections between the roles.
    fn connections(&mut self) {
        let hosts = Hosts(self.hosts.to_vec());
        let of_dut = |dut: &&HostSpec| {
            // One of the two IP versions must be possible; the plan later selects the one to use.
            let family = hosts.upstream_family(dut);
            hosts.site(Some(&dut.name), family).err()
        };
        let mut errors: Vec<_> = hosts.duts().iter().filter_map(of_dut).collect();
        if hosts.duts().is_empty() {
            errors.extend(hosts.site(None, Family::Ipv6).err());
        }
        let errors = errors.into_iter().flatten();
        let (links, ways): (Vec<_>, Vec<_>) = errors.partition(|error| error.part.link().is_some());
        let doubts = self.doubts.clone();
        let follows = |error: &HostsError| {
            let mut of = doubts.iter().filter(|doubt| {
                let mut hosts = error.host.iter().chain(&error.other);
                hosts.any(|name| *name == doubt.host)
            });
            of.any(|doubt| [HostPart::Roles, error.part].contains(&doubt.part))
        };
        for error in links.into_iter().filter(|error| !follows(error)) {
            self.add(error);
        }
        // A self-test's path leads over several hosts.
        if !self.is_any(|part| part == HostPart::Roles || part.link().is_some()) {
            ways.into_iter().for_each(|error| self.add(error));
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
        Some(HostsError::of(&host.name, part, what, remedy).and(&other.host.name))
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

/// Checks that self-tests query every authority: each Measurer queries one of them, in rotation. The error names all
/// of them, and the authorities without queries.
fn self_tests_cover(hosts: &[HostSpec]) -> Result<(), HostsError> {
    let with = |role: Role| hosts.iter().filter(move |host| host.has(role));
    let (measurers, authorities): (Vec<_>, Vec<_>) = (
        with(Role::Measurer).collect(),
        with(Role::Authority).collect(),
    );
    let unasked = authorities.get(measurers.len()..).unwrap_or_default();
    if unasked.is_empty() || measurers.is_empty() {
        return Ok(());
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
    Err(HostsError::of_all(what, remedy))
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

fn is_used(host: &HostSpec, link: LinkName) -> bool {
    users(link).iter().any(|&role| host.has(role))
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
