//! The hosts of a plan: from its tables to what they mean.

use std::sync::Arc;

use super::fault::{Fault, Faults};
use super::file::{At, Dut, File, Host, Link, Tester};
use super::values::{number, text};
use crate::lab::hosts::{HostSpec, Hosts, HostsError, LinkAddress, LinkEnd, Reach};

/// The hosts, if the plan has any and they have no fault.
pub(super) fn hosts(file: &File, faults: &mut Faults<'_>) -> Option<Arc<Hosts>> {
    if let Some(at) = &file.inventory {
        faults.add(at.fault(
            "an inventory is read when a plan is run: give the path of this plan to `dns64bench run`, or write \
             its hosts as [hosts.NAME]",
        ));
        return None;
    }
    let mut written: Vec<_> = file.hosts.iter().collect();
    written.sort_by_key(|(_, at)| at.span().start);
    let (_, first) = written.first()?;
    contradictions(&file.tester, faults);
    let specs = written.iter().map(|(name, at)| spec(name, at, faults));
    let specs: Vec<_> = specs.collect();
    let specs = specs.into_iter().collect::<Option<Vec<_>>>()?;
    if faults.spoil(&["[hosts"]) {
        return None;
    }
    let locate = |error: HostsError| {
        let named = error.host.as_ref().and_then(|name| file.hosts.get(name));
        named.unwrap_or(first).fault(error.to_string())
    };
    let hosts = faults.keep(Hosts::new(specs).map_err(locate))?;
    // An authority that is measured by itself is measured by the self-test.
    let is_self_tested =
        !file.tester.uncertified || file.dut.iter().any(|at| at.get_ref().authority.is_some());
    if is_self_tested {
        faults.keep(hosts.check_self_tests().map_err(locate))?;
    }
    Some(Arc::new(hosts))
}

/// Keys that describe a lab on one machine.
fn contradictions(tester: &Tester, faults: &mut Faults<'_>) {
    let of_host = "each host has its own";
    let keys = [
        ("lab", whole(tester.lab.as_ref()), "the roles run on them"),
        (
            "setup",
            whole(tester.setup.as_ref()),
            "it follows from their roles",
        ),
        ("cpus", whole(tester.cpus.as_ref()), of_host),
        ("threads", whole(tester.threads.as_ref()), of_host),
        (
            "authority-cpus",
            whole(tester.authority_cpus.as_ref()),
            of_host,
        ),
    ];
    for (key, at, why) in keys {
        if let Some(at) = at {
            faults.add(at.fault(format!(
                "`{key}` contradicts the hosts of the plan: {why}; omit it"
            )));
        }
    }
}

fn whole<T>(at: Option<&At<T>>) -> Option<At<()>> {
    at.map(At::whole)
}

fn spec(name: &str, at: &At<Host>, faults: &mut Faults<'_>) -> Option<HostSpec> {
    let host = at.get_ref();
    let mut links = std::collections::BTreeMap::new();
    for (link, ends) in &host.links {
        let ends = ends.iter().map(|at| end(at.get_ref(), faults)).collect();
        links.insert(*link, ends);
    }
    let cpus = faults.or(text(host.cpus.as_ref(), str::parse), None);
    let authority_cpus = faults.or(text(host.authority_cpus.as_ref(), str::parse), None);
    Some(HostSpec {
        name: name.to_owned(),
        reach: faults.keep(reach(name, at))?,
        sudo: host.sudo,
        roles: host.roles.clone(),
        cpus: cpus.unwrap_or_default(),
        authority_cpus: authority_cpus.unwrap_or_default(),
        threads: number(host.threads.as_ref()).unwrap_or(1),
        links,
    })
}

fn end(link: &Link, faults: &mut Faults<'_>) -> LinkEnd {
    let mut read = |at: &At<String>| {
        let read = at.get_ref().parse::<LinkAddress>();
        faults.keep(read.map_err(|error| at.refused(at.get_ref(), &error.to_string())))
    };
    LinkEnd {
        interface: link.interface.clone(),
        addresses: link.addresses.iter().filter_map(&mut read).collect(),
    }
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
            Err(at.fault(format!(
                "host {name}: {found} says how it is reached; give one of ssh = \"root@{name}\", netns = \
                 \"{name}\" and local = true"
            )))
        }
    }
}

/// The host that the DUT of a `[[dut]]` with a profile runs on.
pub(super) fn host_of(at: &At<Dut>, hosts: Option<&Hosts>) -> Result<Option<String>, Fault> {
    let written = at.get_ref().host.as_ref();
    let Some(hosts) = hosts else {
        return match written {
            None => Ok(None),
            Some(host) => {
                Err(host.fault("`host` is for a plan with [hosts.NAME] or an inventory; omit it"))
            }
        };
    };
    let names: Vec<_> = hosts.duts().iter().map(|host| host.name.as_str()).collect();
    match (written, names.as_slice()) {
        (Some(host), names) if names.contains(&host.get_ref().as_str()) => {
            Ok(Some(host.get_ref().clone()))
        }
        (Some(host), names) => Err(host.fault(format!(
            "{:?} is not a host with the role \"dut\"; {}",
            host.get_ref(),
            match names {
                [] => "there is none".to_owned(),
                names => format!("there is {}", names.join(", ")),
            }
        ))),
        (None, [only]) => Ok(Some((*only).to_owned())),
        (None, []) => Err(at.fault("no host has the role \"dut\"; add it to the roles of one")),
        (None, names) => Err(at.fault(format!(
            "several hosts have the role \"dut\"; give host = \"{}\" or another of them",
            names[0]
        ))),
    }
}
