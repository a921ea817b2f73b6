//! Checks the test links: interfaces, addresses and other traffic on them.

use super::{PLAY, about, broken, of as facts_of};
use crate::agent::facts::HostFacts;
use crate::doctor::{Finding, unless};
use crate::lab::hosts::{HostSpec, Hosts, LinkAddress, LinkEnd, LinkName, Site, SiteEnd, SiteLink};
use crate::lab::profile::Family;
use crate::machine::interface::Interface;

/// Checks the ends of a host's test links.
pub(super) fn of(host: &HostSpec, facts: &HostFacts) -> Vec<Finding> {
    let ends = host.links.iter();
    let ends = ends.flat_map(|(link, ends)| ends.iter().map(move |end| (*link, end)));
    ends.map(|(link, end)| one_end(host, facts, link, end))
        .collect()
}

/// Returns the worst finding about an end.
fn one_end(host: &HostSpec, facts: &HostFacts, link: LinkName, end: &LinkEnd) -> Finding {
    let LinkEnd { interface, .. } = end;
    let what = format!("link {link} ({interface})");
    let bad = |value: String, remedy: String| broken(&host.name, &what, value, remedy);
    let poor = |value: String, remedy: String| about(&host.name, &what, value, Some(remedy));
    let Some(found) = interface_of(facts, interface) else {
        let remedy = "correct the interface in the plan; `ip link` on the host lists them";
        return bad("no such interface".into(), remedy.into());
    };
    if !found.is_up {
        return bad(
            "down".into(),
            format!("`ip link set {interface} up`, or {PLAY}"),
        );
    }
    if !found.has_carrier {
        return bad(
            "no carrier".into(),
            "check the cable and that the other end is up".into(),
        );
    }
    let lacks = |it: &&LinkAddress| !found.addresses.contains(&(it.address(), it.prefix_len()));
    let absent = end.addresses.iter().filter(lacks);
    let absent: Vec<_> = absent.map(ToString::to_string).collect();
    if let Some(first) = absent.first() {
        let remedy = format!("`ip address add {first} dev {interface}`, or {PLAY}");
        return bad(format!("without the address {}", absent.join(", ")), remedy);
    }
    if facts.default_routes.contains(interface) {
        let value = "has a default route".to_owned();
        let remedy = "other traffic of the host goes over it: move the default route to the management network";
        return poor(value, remedy.into());
    }
    if found.packets > IDLE_PACKETS_MAX {
        let value = format!("{} packets in 1 s while idle", found.packets);
        let remedy = format!(
            "find out who sends (`tcpdump -ni {interface}`), and connect nothing else to it"
        );
        return poor(value, remedy);
    }
    if let Some(flow) = found.unspread.first() {
        let value = format!(
            "RSS spreads {} by addresses only",
            found.unspread.join(" and ")
        );
        let remedy = format!(
            "all queries of a host arrive at one queue, and so at one core: `ethtool -N {interface} rx-flow-hash {flow} sdfn`, or {PLAY}"
        );
        return poor(value, remedy);
    }
    about(&host.name, &what, told(found), None)
}

/// Formats an interface: "ixgbe, MTU 1500, 10000 Mbit/s".
fn told(interface: &Interface) -> String {
    let driver = interface.driver.as_deref().unwrap_or("unknown driver");
    let speed = interface
        .speed_mbps
        .map(|speed| format!(", {speed} Mbit/s"));
    format!(
        "{driver}, MTU {}{}",
        interface.mtu,
        speed.unwrap_or_default()
    )
}

fn interface_of<'a>(facts: &'a HostFacts, name: &str) -> Option<&'a Interface> {
    facts.interfaces.iter().find(|it| it.name == name)
}

/// Checks the properties that two hosts must have in common.
pub(super) fn between(hosts: &Hosts, facts: &[(String, HostFacts)]) -> Vec<Finding> {
    let sites = sites(hosts);
    let mut findings = Vec::new();
    let mut seen: Vec<&SiteLink> = Vec::new();
    for link in sites.iter().flat_map(|site| &site.links) {
        if !seen.contains(&link) {
            seen.push(link);
            findings.extend(mtu(link, facts));
        }
    }
    let duts = sites.iter().filter(|site| is_forwarded(site));
    let duts = duts.filter_map(|site| site.dut.as_ref());
    findings.extend(duts.filter_map(|dut| forwarding(&dut.host, facts_of(&dut.host, facts)?)));
    findings
}

/// The laboratory of each DUT, or the one without a DUT.
fn sites(hosts: &Hosts) -> Vec<Site> {
    let duts = hosts.duts();
    let names: Vec<_> = match duts.as_slice() {
        [] => vec![None],
        duts => duts.iter().map(|host| Some(host.name.as_str())).collect(),
    };
    let site = |name| {
        let by = |family| hosts.site(name, family).ok();
        by(Family::Ipv4).or_else(|| by(Family::Ipv6))
    };
    names.into_iter().filter_map(site).collect()
}

/// Reports a link whose ends have different MTUs.
fn mtu(link: &SiteLink, facts: &[(String, HostFacts)]) -> Option<Finding> {
    let of_end = |end: &SiteEnd| {
        let found = interface_of(facts_of(&end.host, facts)?, &end.interface)?;
        Some(found.mtu)
    };
    let (near, far) = (of_end(&link.near)?, of_end(&link.far)?);
    let what = format!("MTU of link {} to {}", link.name, link.far.host);
    let value = format!("{near}, there {far}");
    let remedy = format!("large packets are lost: give both ends one MTU, or {PLAY}");
    (near != far).then(|| broken(&link.near.host, &what, value, remedy))
}

/// Returns whether a self-test is forwarded by the host of the DUT.
fn is_forwarded(site: &Site) -> bool {
    site.measurers.iter().any(|measurer| {
        let has_own = site
            .links
            .iter()
            .any(|link| link.name == LinkName::SelfTest && link.near.host == measurer.host);
        !has_own && !measurer.self_test.ip().is_loopback()
    })
}

fn forwarding(host: &str, facts: &HostFacts) -> Option<Finding> {
    let forwards = facts.forwards_ipv6?;
    let value = if forwards { "on" } else { "off" };
    let remedy = format!(
        "self-tests go through this host: `sysctl net.ipv6.conf.all.forwarding=1`, or {PLAY}"
    );
    Some(match unless(forwards, remedy) {
        None => about(host, "forwarding of IPv6", value, None),
        Some(remedy) => broken(host, "forwarding of IPv6", value, remedy),
    })
}

/// Neighbour discovery and router advertisements take a few packets; a service takes more.
const IDLE_PACKETS_MAX: u64 = 10;
