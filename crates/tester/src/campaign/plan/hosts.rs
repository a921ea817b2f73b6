//! Converts the tables of hosts of a plan.

use std::sync::Arc;

use super::fault::{Fault, Faults};
use super::file::{At, Dut, File, Host, Link, Tester};
use super::values::{number, text};
use crate::lab::hosts::{Doubt, HostSpec, Hosts, LinkAddress, LinkEnd, LinkName, Part, Reach};
use crate::machine::Role;

/// The hosts, if the plan has any and they have no fault.
pub(super) fn hosts(file: &File, faults: &mut Faults<'_>) -> Option<Arc<Hosts>> {
    // An existing fault at this place already says why the inventory cannot be read.
    if let Some(at) = file
        .inventory
        .as_ref()
        .filter(|at| !faults.is_at(&at.span()))
    {
        faults.add(at.fault(
            "an inventory is read when a plan is run: give the path of this plan to `dns64bench run`, or write \
             its hosts as [hosts.NAME]",
        ));
    }
    if file.inventory.is_some() || !file.hosts.is_empty() {
        contradictions(&file.tester, faults);
    }
    let written = in_order(file);
    let (_, first) = written.first()?;
    let mut doubts = Vec::new();
    let specs = written
        .iter()
        .map(|(name, at)| spec(name, at, &mut doubts, faults));
    let specs: Vec<_> = specs.collect();
    // An authority as the DUT is measured by the self-test.
    let is_self_tested =
        !file.tester.uncertified || file.dut.iter().any(|at| at.get_ref().authority.is_some());
    for error in Hosts::faults(&specs, doubts, is_self_tested) {
        let named = error.host.as_ref().and_then(|name| file.hosts.get(name));
        let at = named.map_or_else(|| first.whole(), |at| place(at, error.part));
        faults.add(at.fault(error.to_string()));
    }
    if faults.spoil(&["[hosts"]) {
        return None;
    }
    Hosts::new(specs).map(Arc::new).ok()
}

/// The tables of hosts in the order of the plan.
fn in_order(file: &File) -> Vec<(&str, &At<Host>)> {
    let named = file.hosts.iter();
    let mut written: Vec<_> = named.map(|(name, at)| (name.as_str(), at)).collect();
    written.sort_by_key(|(_, at)| at.span().start);
    written
}

/// Place of a part of a host; its table, if the plan omits the part.
fn place(at: &At<Host>, part: Part) -> At<()> {
    let host = at.get_ref();
    let ends = |name: LinkName| {
        let mut all = host.links.iter();
        all.find(|(link, _)| *link == name)
            .map_or(&[][..], |(_, ends)| ends.as_slice())
    };
    let address = |link, address: LinkAddress| {
        let all = ends(link).iter().flat_map(|end| &end.get_ref().addresses);
        let mut same = all.filter(|at| at.get_ref().parse() == Ok(address));
        same.next().map(At::whole)
    };
    let found = match part {
        Part::Whole => None,
        Part::Reach => {
            let text = host.ssh.as_ref().or(host.netns.as_ref());
            whole(text).or_else(|| whole(host.local.as_ref()))
        }
        Part::Roles => whole(host.roles.as_ref()),
        Part::Cpus => whole(host.cpus.as_ref()),
        Part::AuthorityCpus => whole(host.authority_cpus.as_ref()),
        Part::Threads => whole(host.threads.as_ref()),
        Part::Link(link) => whole(ends(link).first()),
        Part::End(link, number) => whole(ends(link).get(number)),
        Part::Address(link, its) => address(link, its),
    };
    found.unwrap_or_else(|| at.whole())
}

/// Refuses keys that describe a lab on one machine.
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

/// Specification of a host, from the readable parts of its table.
fn spec(name: &str, at: &At<Host>, doubts: &mut Vec<Doubt>, faults: &mut Faults<'_>) -> HostSpec {
    let host = at.get_ref();
    let mut doubt = |part| {
        let host = name.to_owned();
        doubts.push(Doubt { host, part });
    };
    host.doubts.iter().copied().for_each(&mut doubt);
    let mut links = std::collections::BTreeMap::new();
    for (link, ends) in &host.links {
        let known = faults.count();
        let ends = ends.iter().map(|at| end(at.get_ref(), faults)).collect();
        links.insert(*link, ends);
        if faults.count() > known {
            doubt(Part::Link(*link));
        }
    }
    let cpus = faults.or(text(host.cpus.as_ref(), str::parse), None);
    let authority_cpus = faults.or(text(host.authority_cpus.as_ref(), str::parse), None);
    let reach = match host.doubts.contains(&Part::Reach) {
        true => None,
        false => faults.keep(reach(name, at)),
    };
    if reach.is_none() {
        doubt(Part::Reach);
    }
    let roles = host.roles.as_ref();
    HostSpec {
        name: name.to_owned(),
        reach: reach.unwrap_or(Reach::Local),
        sudo: host.sudo,
        roles: roles.map_or_else(Vec::new, |at| at.get_ref().clone()),
        cpus: cpus.unwrap_or_default(),
        authority_cpus: authority_cpus.unwrap_or_default(),
        threads: number(host.threads.as_ref()).unwrap_or(1),
        links,
    }
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
    let is_local = host.local.as_ref().is_some_and(|at| *at.get_ref());
    let local = is_local.then_some(Reach::Local);
    let value = |at: &Option<At<String>>| at.as_ref().map(|at| at.get_ref().clone());
    let (ssh, netns) = (
        value(&host.ssh).map(Reach::Ssh),
        value(&host.netns).map(Reach::Netns),
    );
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

/// The host that runs the DUT of a `[[dut]]` with a profile; `None` also if the roles of the hosts are unknown.
pub(super) fn host_of(at: &At<Dut>, file: &File) -> Result<Option<String>, Fault> {
    let written = at.get_ref().host.as_ref();
    let hosts = in_order(file);
    let roles = |host: &Host| {
        let known = host.roles.as_ref().filter(|at| !at.get_ref().is_empty());
        let is_certain = !host.doubts.contains(&Part::Roles);
        known.filter(|_| is_certain).map(|at| at.get_ref().clone())
    };
    let all: Option<Vec<_>> = hosts.iter().map(|(_, at)| roles(at.get_ref())).collect();
    let Some(all) = all.filter(|_| file.inventory.is_none()) else {
        return Ok(None);
    };
    if hosts.is_empty() {
        return match written {
            None => Ok(None),
            Some(host) => {
                Err(host.fault("`host` is for a plan with [hosts.NAME] or an inventory; omit it"))
            }
        };
    }
    let duts = hosts.iter().zip(&all);
    let duts = duts.filter(|(_, roles)| roles.contains(&Role::Dut));
    let names: Vec<_> = duts.map(|((name, _), _)| *name).collect();
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
