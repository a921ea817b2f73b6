//! Checks a plan against external resources: profiles and behaviours.

use std::collections::BTreeMap;
use std::error::Error;

use super::Plan;
use super::draft::{Draft, Dut};
use super::hosts::host_of;
use super::places::{Faults, Place};
use super::read::check_patterns;
use crate::authority::behaviour::Rules;
use crate::lab::hosts::Hosts;
use crate::lab::profile::{Family, Profile, ProfileRole};
use crate::rig::spec::AuthorityChoice;

/// Checks that all profiles can be used as the plan uses them.
pub(super) fn profiles(draft: &Draft, plan: &Plan, faults: &mut Faults) {
    let behind = &plan.hosts.authority;
    faults.keep(
        &Place::of(&["tester", "authority"]),
        authority(&behind.to_string()),
    );
    for dut in &draft.duts {
        let place = dut.place.key("profile");
        let profile = dut
            .profile
            .as_ref()
            .map(|name| load(name, ProfileRole::Dut));
        if let Some(profile) = profile.and_then(|read| faults.keep(&place, read)) {
            check_family(&profile, &place, plan, faults);
            if let Some(hosts) = &plan.hosts.at {
                check_site(&profile, dut, draft, hosts, faults);
            }
            check_settings(&profile, dut, faults);
        }
        if draft.has(&dut.place.key("authority-behaviour")) {
            for behaviour in &dut.behaviours {
                faults.keep(
                    &dut.place.key("authority-behaviour"),
                    Rules::new(behaviour.clone()),
                );
            }
        }
        let alone = dut.authority.as_ref().map(|name| authority(name));
        let alone = alone.and_then(|read| faults.keep(&dut.place.key("authority"), read));
        if let Some(Some(profile)) = alone {
            check_settings(&profile, dut, faults);
        }
    }
    check_patterns(draft, plan, faults);
}

/// Profile of an authority; `None` for the built-in one.
fn authority(name: &str) -> Result<Option<Profile>, String> {
    let Ok(authority) = name.parse::<AuthorityChoice>();
    let profile = authority.profile();
    profile
        .map(|name| load(name, ProfileRole::Authority))
        .transpose()
}

fn load(name: &str, role: ProfileRole) -> Result<Profile, String> {
    let profile = Profile::load(name).map_err(|error| {
        let reason = error.source().map(|reason| format!(": {reason}"));
        format!("{error}{}", reason.unwrap_or_default())
    })?;
    match (profile.role, role) {
        (ProfileRole::Authority, ProfileRole::Dut) => Err(format!(
            "{name:?} is an authoritative server; measure it by itself with \
             authority = {name:?} in place of profile"
        )),
        (ProfileRole::Dut, ProfileRole::Authority) => Err(format!(
            "{name:?} is a DNS64 server, not an authority; write \"built-in\" or \"nsd\""
        )),
        _ => Ok(profile),
    }
}

/// Checks that the DUT can query its upstreams over the address family of the plan.
fn check_family(profile: &Profile, place: &Place, plan: &Plan, faults: &mut Faults) {
    if let (Some(needs), Some(wanted)) = (profile.requires.upstream_family, plan.hosts.upstream)
        && needs != wanted
    {
        faults.add(
            place,
            format!(
                "{} cannot ask the authority over the upstream-family of the plan; omit \
                 upstream-family or measure it in a plan of its own",
                profile.name
            ),
        );
    }
}

/// Checks that the DUT's host is connected to the authorities by the IP version of the DUT's queries, and that the DUT
/// can query all of them.
fn check_site(profile: &Profile, dut: &Dut, draft: &Draft, hosts: &Hosts, faults: &mut Faults) {
    let wanted = draft.plan.hosts.upstream;
    let family = wanted.or(profile.requires.upstream_family);
    let Some(host) = host_of(dut, draft, faults) else {
        return;
    };
    let upstreams = profile.check_upstreams(hosts.authorities().len());
    faults.keep(&dut.place, upstreams);
    let site = hosts.site(Some(&host), family.unwrap_or(Family::Ipv4));
    let hint = match wanted {
        None => ", or give upstream-family in [tester]",
        Some(_) => "",
    };
    for error in site.err().iter().flatten() {
        faults.add(&dut.place, format!("{error}{hint}"));
    }
}

/// Checks that the profile has the fixed and swept settings and accepts their values.
fn check_settings(profile: &Profile, dut: &Dut, faults: &mut Faults) {
    let fixed = dut.set.iter().map(|(key, value)| ("set", key, 0, value));
    let swept = dut.sweep.iter().flat_map(|(key, values)| {
        let numbered = values.iter().enumerate();
        numbered.map(move |(number, value)| ("sweep", key, number, value))
    });
    for (table, key, number, value) in fixed.chain(swept) {
        let chosen = BTreeMap::from([(key.clone(), value.clone())]);
        let place = dut.place.key(table).key(key).item(number);
        faults.keep(&place, profile.check_settings(&chosen));
    }
}
