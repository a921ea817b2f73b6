//! What has to hold of hosts before anybody looks who is connected to whom.

use std::net::IpAddr;

use super::link::{LinkAddress, LinkEnd, LinkName};
use super::{HOSTS_MAX, HostSpec, HostsError, Reach, Role, THREADS_MAX};

/// Names, reaches, numbers and links of each host by itself.
pub(super) fn each(hosts: &[HostSpec]) -> Result<(), HostsError> {
    if hosts.len() > HOSTS_MAX {
        let what = format!("{} hosts", hosts.len());
        return Err(HostsError::of_all(
            what,
            format!("must be at most {HOSTS_MAX}"),
        ));
    }
    for (number, host) in hosts.iter().enumerate() {
        name(&host.name)?;
        reach(host)?;
        for other in &hosts[..number] {
            if other.name == host.name {
                let what = "the name is given to two hosts";
                return Err(HostsError::of(&host.name, what, "rename one of them"));
            }
            if other.reach == host.reach {
                let what = format!("it is the same machine as host {}", other.name);
                let remedy = "give one host both roles, or correct ssh, netns or local of one";
                return Err(HostsError::of(&host.name, what, remedy));
            }
        }
        own_roles(host)?;
        numbers(host)?;
        links(host)?;
    }
    Ok(())
}

fn name(name: &str) -> Result<(), HostsError> {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(known) && !name.starts_with('-') {
        return Ok(());
    }
    let what = format!("{name:?} is not the name of a host");
    let remedy = format!("use 1-{NAME_MAX} of a-z, 0-9 and -, the first no -");
    Err(HostsError::of_all(what, remedy))
}

/// What is given to ssh or ip as a word must not be taken for an option.
fn reach(host: &HostSpec) -> Result<(), HostsError> {
    let plain = |c: char| !c.is_whitespace() && !c.is_control();
    let is_word =
        |text: &str| !text.is_empty() && !text.starts_with('-') && text.chars().all(plain);
    match &host.reach {
        Reach::Ssh(target) if !is_word(target) => Err(HostsError::of(
            &host.name,
            format!("ssh = {target:?} is not a destination of ssh"),
            "write \"gen1\", \"root@gen1\" or \"ssh://root@gen1:2222\"",
        )),
        Reach::Netns(name) if !is_word(name) || name.contains('/') || name.starts_with('.') => {
            Err(HostsError::of(
                &host.name,
                format!("netns = {name:?} is not the name of a network namespace"),
                "write one that `ip netns` lists",
            ))
        }
        Reach::Ssh(_) | Reach::Netns(_) | Reach::Local => Ok(()),
    }
}

fn own_roles(host: &HostSpec) -> Result<(), HostsError> {
    let fault = |what: &str, remedy: &str| Err(HostsError::of(&host.name, what, remedy));
    if host.roles.is_empty() {
        let example = "write such as roles = [\"measurer\"]; there are measurer, dut and authority";
        return fault("it has no role", example);
    }
    let mut roles = host.roles.iter().enumerate();
    if roles.any(|(number, role)| host.roles[..number].contains(role)) {
        return fault("it has a role twice", "omit one");
    }
    if host.has(Role::Dut) && host.roles.len() > 1 {
        return fault(
            "it is the host of a DUT and has another role",
            "the DUT has a host of its own (RFC 8219 section 9), so that nobody else takes its \
                 CPUs",
        );
    }
    Ok(())
}

fn numbers(host: &HostSpec) -> Result<(), HostsError> {
    let fault = |what: String, remedy: &str| Err(HostsError::of(&host.name, what, remedy));
    let (measurer, authority) = (host.has(Role::Measurer), host.has(Role::Authority));
    if !(1..=THREADS_MAX).contains(&host.threads) {
        let what = format!("invalid thread count {}", host.threads);
        return fault(what, &format!("must be 1-{THREADS_MAX}"));
    }
    if host.threads != 1 && !measurer {
        return fault(
            format!("threads = {} is for a Measurer", host.threads),
            "omit it, or add the role \"measurer\"",
        );
    }
    let is_shared = measurer && authority;
    if !(host.authority_cpus.is_unrestricted() || is_shared) {
        return fault(
            format!(
                "authority-cpus = \"{}\" without both roles",
                host.authority_cpus
            ),
            "it is for a host that is Measurer and authority; of any other, give cpus",
        );
    }
    let both = |cpu: &&usize| host.authority_cpus.cpus().contains(cpu);
    match host.cpus.cpus().iter().find(both) {
        Some(cpu) if host.cpus != host.authority_cpus => fault(
            format!("CPU {cpu} is in cpus and in authority-cpus"),
            "give each CPU to one role, or the same CPUs to both",
        ),
        _ => Ok(()),
    }
}

fn links(host: &HostSpec) -> Result<(), HostsError> {
    let mut interfaces: Vec<&str> = Vec::new();
    for (&link, ends) in &host.links {
        let fault = |what: String, remedy: &str| Err(HostsError::of(&host.name, what, remedy));
        let users = users(link);
        if !users.iter().any(|&role| host.has(role)) {
            let [one, other] = users.map(word);
            return fault(
                format!("link {link} is between {one} and {other}"),
                "omit the link, or add the role",
            );
        }
        if ends.is_empty() {
            return fault(format!("link {link} has no end"), "omit it");
        }
        for LinkEnd {
            interface,
            addresses,
        } in ends
        {
            if !is_interface(interface) {
                return fault(
                    format!("{interface:?} of link {link} is not the name of an interface"),
                    "write one that `ip link` lists",
                );
            }
            if interfaces.contains(&interface.as_str()) {
                return fault(
                    format!("interface {interface} is given twice"),
                    "give each link an interface of its own, all addresses of one in one list",
                );
            }
            interfaces.push(interface);
            if addresses.is_empty() {
                return fault(
                    format!("interface {interface} of link {link} has no address"),
                    "add one, such as \"2001:2:0:1::1/64\"",
                );
            }
            if let Some(address) = addresses.iter().find(|it| !is_of_a_host(it.address())) {
                return fault(
                    format!("{address} of link {link} is not the address of a host"),
                    "use a global unicast address, such as one of 2001:2::/48 or 198.18.0.0/15",
                );
            }
        }
    }
    Ok(())
}

/// Addresses that two hosts share, and prefixes that make it unclear which link is meant.
pub(super) fn addresses(hosts: &[HostSpec]) -> Result<(), HostsError> {
    let mut seen: Vec<(&HostSpec, LinkName, &str, LinkAddress)> = Vec::new();
    for (host, link, end) in hosts.iter().flat_map(ends) {
        for &address in &end.addresses {
            for &(other, its_link, interface, its) in &seen {
                let fault = |what, remedy| Err(HostsError::of(&host.name, what, remedy));
                let there = format!("{its} of host {}", other.name);
                if its.address() == address.address() {
                    let what = format!("{address} is also the address of host {}", other.name);
                    return fault(what, "give each interface addresses of its own");
                }
                if !address.overlaps(its) {
                    continue;
                }
                if its_link != link {
                    let what = format!(
                        "{address} of link {link} and {there} of link {its_link} are in one prefix"
                    );
                    return fault(what, "give each link a prefix of its own");
                }
                if its.prefix() != address.prefix() {
                    let what = format!(
                        "{address} and {there} have prefixes of different lengths on one link"
                    );
                    return fault(what, "give both ends the same length");
                }
                if other.name == host.name && interface != end.interface {
                    let what = format!(
                        "its interfaces {interface} and {} have addresses in one prefix",
                        end.interface
                    );
                    return fault(what, "give each interface a prefix of its own");
                }
            }
            seen.push((host, link, &end.interface, address));
        }
    }
    Ok(())
}

fn ends(host: &HostSpec) -> impl Iterator<Item = (&HostSpec, LinkName, &LinkEnd)> {
    let all = host.links.iter();
    all.flat_map(move |(&link, ends)| ends.iter().map(move |end| (host, link, end)))
}

/// Who has which role.
pub(super) fn roles(hosts: &[HostSpec]) -> Result<(), HostsError> {
    let with = |role: Role| hosts.iter().filter(move |host| host.has(role));
    for role in [Role::Measurer, Role::Authority] {
        if with(role).next().is_none() {
            let word = word(role);
            return Err(HostsError::of_all(
                format!("no host is the {word}"),
                format!("add \"{word}\" to the roles of one"),
            ));
        }
    }
    Ok(())
}

/// The roles at the two ends of a link.
fn users(link: LinkName) -> [Role; 2] {
    match link {
        LinkName::Client => [Role::Measurer, Role::Dut],
        LinkName::Upstream => [Role::Dut, Role::Authority],
        LinkName::SelfTest => [Role::Measurer, Role::Authority],
    }
}

/// As plans have it.
fn word(role: Role) -> &'static str {
    match role {
        Role::Measurer => "measurer",
        Role::Dut => "dut",
        Role::Authority => "authority",
    }
}

/// As `dev_valid_name` of Linux has it (net/core/dev.c).
fn is_interface(name: &str) -> bool {
    let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    (1..=INTERFACE_MAX).contains(&name.len()) && name != "." && name != ".." && !name.contains(bad)
}

/// Whether an address can be used on a test link without a zone.
fn is_of_a_host(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V6(address) => address.is_unicast_link_local(),
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
    };
    !(link_local || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

/// Names stand in tables.
const NAME_MAX: usize = 32;

/// `IFNAMSIZ` less the final zero octet (linux/if.h).
const INTERFACE_MAX: usize = 15;
