//! The hosts of a plan.

use std::sync::Arc;

use super::draft::{Draft, Dut, Host};
use super::places::{Faults, Place};
use crate::lab::hosts::{HostPart, HostSpec, Hosts, HostsError, LinkName, Reach};
use crate::machine::Role;

/// The hosts, if the plan has any and they have no fault.
pub(super) fn hosts(draft: &Draft, faults: &mut Faults) -> Option<Arc<Hosts>> {
    let inventory = Place::of(&["inventory"]);
    // An existing fault at this place already says why the inventory cannot be read.
    if draft.inventory.is_some() && !faults.spoil(&inventory) {
        faults.add(
            &inventory,
            "an inventory is read when a plan is run: give the path of this plan to `dns64bench run`, or write \
             its hosts as [hosts.NAME]",
        );
    }
    if draft.inventory.is_some() || !draft.hosts.is_empty() {
        contradictions(draft, faults);
    }
    let first = draft.hosts.first()?;
    let mut specs = Vec::new();
    for host in &draft.hosts {
        // After a fault its values are not known.
        let is_read = !faults.spoil(&host.place);
        if is_read && let Some(reach) = faults.keep(&host.place, reach(host)) {
            let spec = host.spec.clone();
            specs.push(HostSpec { reach, ..spec });
        }
    }
    // An authority as the DUT is measured by the self-test.
    let is_self_tested =
        !draft.plan.uncertified || draft.duts.iter().any(|dut| dut.authority.is_some());
    let checked = match faults.spoil(&Place::of(&["hosts"])) {
        true => Err(specs.iter().flat_map(HostSpec::faults).collect()),
        false if is_self_tested => Hosts::new(specs).and_then(Hosts::self_tested),
        false => Hosts::new(specs),
    };
    let fault = |error: HostsError| {
        let mut hosts = draft.hosts.iter();
        let named = hosts.find(|host| error.host.as_ref() == Some(&host.spec.name));
        let place = named.map_or_else(|| first.place.clone(), |host| place(host, error.part));
        faults.add(&place, error.to_string());
    };
    checked
        .map(Arc::new)
        .map_err(|errors| errors.into_iter().for_each(fault))
        .ok()
}

/// Place of a part of a host.
fn place(host: &Host, part: HostPart) -> Place {
    let key = |key| host.place.key(key);
    let link = |link: LinkName| key("links").key(link.as_ref());
    match part {
        HostPart::Whole => host.place.clone(),
        HostPart::Reach => key(match host.reach.first() {
            Some(Reach::Ssh(_)) => "ssh",
            Some(Reach::Netns(_)) => "netns",
            Some(Reach::Local) | None => "local",
        }),
        HostPart::Roles => key("roles"),
        HostPart::Cpus => key("cpus"),
        HostPart::AuthorityCpus => key("authority-cpus"),
        HostPart::Threads => key("threads"),
        HostPart::Link(name) => link(name).item(0),
        HostPart::End(name, number) => link(name).item(number),
        HostPart::Address(name, address) => {
            let ends = host.spec.ends(name).iter().enumerate();
            let mut found = ends.filter_map(|(number, end)| {
                let index = end.addresses.iter().position(|it| *it == address)?;
                Some(link(name).item(number).key("addresses").item(index))
            });
            found.next().unwrap_or_else(|| host.place.clone())
        }
    }
}

/// Refuses keys that describe a lab on one machine.
fn contradictions(draft: &Draft, faults: &mut Faults) {
    let of_host = "each host has its own";
    for (key, why) in [
        ("lab", "the roles run on them"),
        ("setup", "it follows from their roles"),
        ("cpus", of_host),
        ("threads", of_host),
        ("authority-cpus", of_host),
    ] {
        let place = Place::of(&["tester", key]);
        if draft.has(&place) {
            faults.add(
                &place,
                format!("`{key}` contradicts the hosts of the plan: {why}; omit it"),
            );
        }
    }
}

fn reach(host: &Host) -> Result<Reach, String> {
    let found = match host.reach.as_slice() {
        [reach] => return Ok(reach.clone()),
        [] => "nothing",
        _ => "more than one thing",
    };
    let name = &host.spec.name;
    Err(format!(
        "host {name}: {found} says how it is reached; give one of ssh = \"root@{name}\", netns = \"{name}\" and \
         local = true"
    ))
}

/// The host that runs the DUT of a `[[dut]]` with a profile; `None` also if the roles of the hosts are unknown. After a
/// fault, its place and message.
pub(super) fn host_of(dut: &Dut, draft: &Draft, faults: &mut Faults) -> Option<String> {
    let place = dut.place.key("host");
    let has_roles =
        |host: &Host| !host.spec.roles.is_empty() && !faults.spoil(&host.place.key("roles"));
    if draft.inventory.is_some() || !draft.hosts.iter().all(has_roles) {
        return None;
    }
    if draft.hosts.is_empty() {
        if dut.host.is_some() {
            faults.add(
                &place,
                "`host` is for a plan with [hosts.NAME] or an inventory; omit it",
            );
        }
        return None;
    }
    let hosts = draft.hosts.iter().map(|host| &host.spec);
    let duts: Vec<_> = hosts
        .filter(|host| host.has(Role::Dut))
        .map(|host| host.name.as_str())
        .collect();
    match (dut.host.as_deref(), duts.as_slice()) {
        (Some(host), duts) if duts.contains(&host) => return Some(host.to_owned()),
        (None, [only]) => return Some((*only).to_owned()),
        (Some(host), duts) => {
            let there = match duts {
                [] => "there is none".to_owned(),
                duts => format!("there is {}", duts.join(", ")),
            };
            faults.add(
                &place,
                format!("{host:?} is not a host with the role \"dut\"; {there}"),
            );
        }
        (None, []) => faults.add(
            &dut.place,
            "no host has the role \"dut\"; add it to the roles of one",
        ),
        (None, duts) => faults.add(
            &dut.place,
            format!(
                "several hosts have the role \"dut\"; give host = \"{}\" or another of them",
                duts[0]
            ),
        ),
    }
    None
}
