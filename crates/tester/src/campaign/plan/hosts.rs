//! The hosts of a plan: from its tables to what they mean.

use std::sync::Arc;

use super::Fault;
use super::file::{At, Dut, File, Host, Link, Tester};
use super::values::text;
use crate::lab::hosts::{HostSpec, Hosts, HostsError, LinkAddress, LinkEnd, Reach};

/// The hosts, if the plan has any.
pub(super) fn hosts(file: &File) -> Result<Option<Arc<Hosts>>, Fault> {
    if let Some(at) = &file.inventory {
        return Err(Fault::new(
            at.span().start,
            "an inventory is read when a plan is run: give the path of this plan to `dns64bench run`, or write \
             its hosts as [hosts.NAME]",
        ));
    }
    let mut written: Vec<_> = file.hosts.iter().collect();
    written.sort_by_key(|(_, at)| at.span().start);
    let Some((_, first)) = written.first() else {
        return Ok(None);
    };
    contradictions(&file.tester)?;
    let specs = written.iter().map(|(name, at)| spec(name, at));
    let specs = specs.collect::<Result<Vec<_>, _>>()?;
    let locate = |error: HostsError| {
        let named = error.host.as_ref().and_then(|name| file.hosts.get(name));
        Fault::new(named.unwrap_or(first).span().start, error.to_string())
    };
    let hosts = Hosts::new(specs).map_err(locate)?;
    // An authority that is measured by itself is measured by the self-test.
    let is_self_tested =
        !file.tester.uncertified || file.dut.iter().any(|at| at.get_ref().authority.is_some());
    if is_self_tested {
        hosts.check_self_tests().map_err(locate)?;
    }
    Ok(Some(Arc::new(hosts)))
}

/// Keys that describe a lab on one machine.
fn contradictions(tester: &Tester) -> Result<(), Fault> {
    let of_host = "each host has its own";
    let keys = [
        ("lab", start(tester.lab.as_ref()), "the roles run on them"),
        (
            "setup",
            start(tester.setup.as_ref()),
            "it follows from their roles",
        ),
        ("cpus", start(tester.cpus.as_ref()), of_host),
        ("threads", start(tester.threads.as_ref()), of_host),
        (
            "authority-cpus",
            start(tester.authority_cpus.as_ref()),
            of_host,
        ),
    ];
    for (key, offset, why) in keys {
        if let Some(offset) = offset {
            let message = format!("{key} contradicts the hosts of the plan: {why}; omit it");
            return Err(Fault::new(offset, message));
        }
    }
    Ok(())
}

fn start<T>(at: Option<&At<T>>) -> Option<usize> {
    at.map(|at| at.span().start)
}

fn spec(name: &str, at: &At<Host>) -> Result<HostSpec, Fault> {
    let host = at.get_ref();
    let mut links = std::collections::BTreeMap::new();
    for (&link, ends) in &host.links {
        let ends = ends.0.iter().map(end).collect::<Result<Vec<_>, _>>()?;
        links.insert(link, ends);
    }
    let threads = host.threads.as_ref().map_or(1, |at| *at.get_ref());
    Ok(HostSpec {
        name: name.to_owned(),
        reach: reach(name, at)?,
        sudo: host.sudo,
        roles: host.roles.clone(),
        cpus: text(host.cpus.as_ref(), str::parse)?.unwrap_or_default(),
        authority_cpus: text(host.authority_cpus.as_ref(), str::parse)?.unwrap_or_default(),
        threads: usize::try_from(threads).unwrap_or(usize::MAX),
        links,
    })
}

fn end(link: &Link) -> Result<LinkEnd, Fault> {
    let read = |at: &At<String>| {
        let read = at.get_ref().parse::<LinkAddress>();
        read.map_err(|error| Fault::new(at.span().start, error.to_string()))
    };
    Ok(LinkEnd {
        interface: link.interface.clone(),
        addresses: link.addresses.iter().map(read).collect::<Result<_, _>>()?,
    })
}

fn reach(name: &str, at: &At<Host>) -> Result<Reach, Fault> {
    let host = at.get_ref();
    let local = host.local.then_some(Reach::Local);
    let ssh = host.ssh.clone().map(Reach::Ssh);
    let netns = host.netns.clone().map(Reach::Netns);
    let mut given = [ssh, netns, local].into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(reach), None) => Ok(reach),
        (found, _) => {
            let found = found.map_or("nothing", |_| "more than one thing");
            let message = format!(
                "host {name}: {found} says how it is reached; give one of ssh = \"root@{name}\", netns = \
                 \"{name}\" and local = true"
            );
            Err(Fault::new(at.span().start, message))
        }
    }
}

/// The host that the DUT of a `[[dut]]` with a profile runs on.
pub(super) fn host_of(at: &At<Dut>, hosts: Option<&Hosts>) -> Result<Option<String>, Fault> {
    let written = at.get_ref().host.as_ref();
    let Some(hosts) = hosts else {
        return match written {
            None => Ok(None),
            Some(host) => Err(Fault::new(
                host.span().start,
                "host is for a plan with [hosts.NAME] or an inventory; omit it",
            )),
        };
    };
    let names: Vec<_> = hosts.duts().iter().map(|host| host.name.as_str()).collect();
    match (written, names.as_slice()) {
        (Some(host), names) if names.contains(&host.get_ref().as_str()) => {
            Ok(Some(host.get_ref().clone()))
        }
        (Some(host), names) => Err(Fault::new(
            host.span().start,
            format!(
                "{:?} is not a host with the role \"dut\"; {}",
                host.get_ref(),
                match names {
                    [] => "there is none".to_owned(),
                    names => format!("there is {}", names.join(", ")),
                }
            ),
        )),
        (None, [only]) => Ok(Some((*only).to_owned())),
        (None, []) => Err(Fault::new(
            at.span().start,
            "no host has the role \"dut\"; add it to the roles of one",
        )),
        (None, names) => Err(Fault::new(
            at.span().start,
            format!(
                "several hosts have the role \"dut\"; give host = \"{}\" or another of them",
                names[0]
            ),
        )),
    }
}
