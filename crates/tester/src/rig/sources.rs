//! Whether a measurement can be made from source addresses, and from how many of them it is.

use std::net::{IpAddr, SocketAddr};

use dns64_transport::socket::check_sources;

use super::spec::{Load, Subject};
use crate::lab::LabError;
use crate::lab::hosts::{Hosts, Site};
use crate::lab::topology::Setup;
use crate::load::sources::Sources;
use crate::naming::{LOCAL, Message, Naming, SERVER};
use crate::quantity::Thousands;
use crate::trial::PORTS_DEFAULT;
use crate::trial::backend::allow_ports;

/// A prefix for benchmarking (RFC 5180 section 8) that no lab uses.
const EXAMPLE: &str = "2001:2:0:78::/116";

/// Whether a subject can be measured from these addresses.
///
/// # Errors
///
/// It cannot, whatever the machine.
pub fn check(subject: &Subject, local: Sources) -> Result<(), Message> {
    match subject {
        Subject::Server { server, .. } => of_server(local, *server),
        Subject::Lab(lab) => {
            is_ipv6(local)?;
            match &lab.at {
                Some(hosts) => of_hosts(local, hosts),
                None => of_lab(local, lab.setup),
            }
        }
    }
}

fn of_server(local: Sources, server: SocketAddr) -> Result<(), Message> {
    let server = server.ip();
    let named = |naming: Naming| (naming.value(LOCAL, local), naming.value(SERVER, server));
    match local.address(0).is_ipv4() == server.is_ipv4() {
        false => Err(Message::new(|naming| {
            let ((local, server), name) = (named(naming), naming.name(LOCAL));
            format!(
                "{local} and {server} are of different IP versions; omit {name}, or give an address of the server's IP \
                 version"
            )
        })),
        true if is_link_local(local.address(0)) && !is_link_local(server) => {
            Err(Message::new(|naming| {
                let (local, server) = named(naming);
                format!(
                    "{local} is link-local and {server} is not; give another source address, or the link-local address of \
                     the server"
                )
            }))
        }
        // Such a prefix cannot be local to this host.
        true if local.count() > 1 && local.covers(server) => Err(Message::new(|naming| {
            let (local, server) = named(naming);
            format!("{local} contains {server}; give a prefix that only this host uses")
        })),
        true => Ok(()),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// RFC 8219 section 9.1 has the clients ask over IPv6, and nobody is answered at other than unicast addresses.
fn is_ipv6(local: Sources) -> Result<(), Message> {
    let IpAddr::V6(first) = local.address(0) else {
        return refused(
            local,
            &format!(
                "is IPv4, and in a lab the Measurer queries over IPv6; give an IPv6 prefix such as {EXAMPLE}"
            ),
        );
    };
    let is_of_hosts = !(first.is_loopback()
        || first.is_unspecified()
        || first.is_multicast()
        || first.is_unicast_link_local());
    let why = "is not a prefix of hosts; give a global unicast prefix such as";
    match is_of_hosts {
        true => Ok(()),
        false => refused(local, &format!("{why} {EXAMPLE}")),
    }
}

fn of_lab(local: Sources, setup: Setup) -> Result<(), Message> {
    let mut addresses = setup.addresses().into_iter();
    let taken = addresses.find(|address| local.covers(*address));
    taken.map_or(Ok(()), |address| is_taken(local, address, "the lab"))
}

fn of_hosts(local: Sources, hosts: &Hosts) -> Result<(), Message> {
    for host in hosts.iter() {
        let ends = host.links.values().flatten();
        let mut addresses = ends.flat_map(|end| &end.addresses);
        if let Some(taken) = addresses.find(|it| local.covers(it.address())) {
            return is_taken(local, taken.address(), &format!("host {}", host.name));
        }
    }
    let measurers = hosts.measurers().len();
    // Replies to an address have one way.
    match local.part(0, measurers) {
        Some(_) => Ok(()),
        None => {
            let longest = local.len_for(measurers);
            refused(
                local,
                &format!(
                    "has fewer addresses than there are Measurers, {measurers}; give a prefix of /{longest} or shorter"
                ),
            )
        }
    }
}

/// An address of the lab cannot be behind the Measurer.
fn is_taken(local: Sources, address: IpAddr, of: &str) -> Result<(), Message> {
    let why = format!("contains {address}, an address of {of}; give a prefix without it, such as");
    refused(local, &format!("{why} {EXAMPLE}"))
}

/// The error for these addresses, whose name `why` continues.
fn refused(local: Sources, why: &str) -> Result<(), Message> {
    Err(Message::new(|naming| {
        format!("{} {why}", naming.value(LOCAL, local))
    }))
}

/// Whether the Measurer of a measurement on this machine can send: there are files enough for its source ports, and its source
/// addresses are this machine's where no lab makes them. Whoever finds this out by a trial takes it for a server that does not
/// answer.
///
/// # Errors
///
/// It cannot.
pub fn possible_here(subject: &Subject, load: &Load) -> Result<(), LabError> {
    if subject.hosts().is_some() {
        return Ok(());
    }
    allow_ports(least_ports(load, None).into_iter().sum())?;
    let is_made = subject
        .lab()
        .is_some_and(|lab| lab.setup != Setup::Loopback);
    if let (Some(local), Some(count), false) = (load.local, used(load, None), is_made) {
        let all: Vec<IpAddr> = (0..count).map(|flow| local.address(flow)).collect();
        check_sources(&all)?;
    }
    Ok(())
}

/// The source addresses of a plan or a measurement in words: "4,095 of 2001:2:0:78::/116".
pub fn told(load: &Load, site: Option<&Site>) -> Option<String> {
    let count = used(load, site)?;
    Some(words(&load.local?.to_string(), count))
}

/// So many addresses of a prefix, or the one.
pub(super) fn words(local: &str, count: usize) -> String {
    match count {
        1 => local.to_owned(),
        _ => format!("{} of {local}", Thousands(count as u64)),
    }
}

/// How many source addresses trials use: a source port has one. `None` if the routing table chooses.
pub fn used(load: &Load, site: Option<&Site>) -> Option<usize> {
    let ports = least_ports(load, site);
    let each = ports.iter().enumerate().map(|(k, own)| {
        let part = load.local?.part(k, ports.len())?;
        Some(part.count().min(*own))
    });
    each.sum()
}

/// Source ports of each Measurer at least. A thread has as many of those that were asked for as the others.
pub fn least_ports(load: &Load, site: Option<&Site>) -> Vec<usize> {
    let threads: Vec<usize> = match site {
        Some(site) => site.measurers.iter().map(|it| it.threads.max(1)).collect(),
        None => vec![load.threads.max(1)],
    };
    let shards: usize = threads.iter().sum();
    let of_measurer = |(k, own): (usize, &usize)| match load.ports {
        Some(ports) => ports.div_ceil(shards) * own,
        None => {
            let part = load.local.and_then(|local| local.part(k, threads.len()));
            part.map_or(1, |part| part.count()).max(PORTS_DEFAULT)
        }
    };
    threads.iter().enumerate().map(of_measurer).collect()
}
