//! Checks a plan against external resources: profiles and behaviours.

use std::collections::BTreeMap;
use std::error::Error;

use super::duts::{behaviours, resolved};
use super::fault::{Fault, Faults};
use super::file::{At, Dut, File, Grid, Word};
use super::hosts::host_of;
use crate::authority::behaviour::Rules;
use crate::lab::hosts::{Hosts, HostsErrors};
use crate::lab::profile::{Family, Profile, ProfileRole};
use crate::namespace::Share;
use crate::rig::spec::AuthorityChoice;

/// Checks that all profiles can be used as the plan uses them.
pub(super) fn profiles(file: &File, origin: &str, hosts: Option<&Hosts>, faults: &mut Faults<'_>) {
    if let Some(at) = &file.tester.authority {
        faults.or(authority(at, origin), None);
    }
    for written in &file.dut {
        let dut = written.get_ref();
        let profile = dut.profile.as_ref();
        let profile = profile.map(|at| (at, load(at, origin, ProfileRole::Dut)));
        if let Some((at, loaded)) = profile
            && let Some(profile) = faults.keep(loaded)
        {
            check_family(&profile, at, file, faults);
            if let Some(hosts) = hosts {
                check_site(&profile, written, file, hosts, faults);
            }
            check_settings(&profile, dut, faults);
        }
        if let Some(at) = &dut.authority_behaviour {
            for behaviour in behaviours(dut, origin, faults) {
                let rules = Rules::new(behaviour);
                faults.keep(rules.map_err(|error| at.fault(error.to_string())));
            }
        }
        let authority = dut.authority.as_ref().map(|at| authority(at, origin));
        if let Some(Some(profile)) = authority.and_then(|read| faults.keep(read)) {
            check_settings(&profile, dut, faults);
        }
    }
    check_patterns(file, faults);
}

/// Profile of an authority; `None` for the built-in one.
fn authority(at: &At<String>, origin: &str) -> Result<Option<Profile>, Fault> {
    match at.get_ref().parse() {
        Ok(AuthorityChoice::BuiltIn | AuthorityChoice::InDriver(_)) => Ok(None),
        Ok(AuthorityChoice::Profile { .. }) => load(at, origin, ProfileRole::Authority).map(Some),
    }
}

fn load(at: &At<String>, origin: &str, role: ProfileRole) -> Result<Profile, Fault> {
    let profile = Profile::load(&resolved(at.get_ref(), origin)).map_err(|error| {
        let reason = error.source().map(|reason| format!(": {reason}"));
        at.fault(format!("{error}{}", reason.unwrap_or_default()))
    })?;
    let name = at.get_ref();
    match (profile.role, role) {
        (ProfileRole::Authority, ProfileRole::Dut) => Err(at.fault(format!(
            "{name:?} is an authoritative server; measure it by itself with \
             authority = {name:?} in place of profile"
        ))),
        (ProfileRole::Dut, ProfileRole::Authority) => Err(at.fault(format!(
            "{name:?} is a DNS64 server, not an authority; write \"built-in\" or \"nsd\""
        ))),
        _ => Ok(profile),
    }
}

/// Checks that the DUT can query its upstreams over the address family of the plan.
fn check_family(profile: &Profile, at: &At<String>, file: &File, faults: &mut Faults<'_>) {
    let wanted = file.tester.upstream_family;
    if let (Some(needs), Some(wanted)) = (profile.requires.upstream_family, wanted)
        && needs != wanted
    {
        faults.add(at.fault(format!(
            "{} cannot ask the authority over the upstream-family of the plan; omit \
             upstream-family or measure it in a plan of its own",
            profile.name
        )));
    }
}

/// Checks that the DUT's host is connected to the authorities by the IP version of the DUT's queries, and that the DUT
/// can query all of them.
fn check_site(
    profile: &Profile,
    at: &At<Dut>,
    file: &File,
    hosts: &Hosts,
    faults: &mut Faults<'_>,
) {
    let wanted = file.tester.upstream_family;
    let family = wanted.or(profile.requires.upstream_family);
    let Some(host) = faults.keep(host_of(at, file)) else {
        return;
    };
    let upstreams = profile.check_upstreams(hosts.authorities().len());
    faults.keep(upstreams.map_err(|error| at.fault(error.to_string())));
    let site = hosts.site(host.as_deref(), family.unwrap_or(Family::Ipv4));
    let hint = match wanted {
        None => ", or give upstream-family in [tester]",
        Some(_) => "",
    };
    for error in site.err().iter().flat_map(|HostsErrors(errors)| errors) {
        faults.add(at.fault(format!("{error}{hint}")));
    }
}

/// Checks that the profile has the fixed and swept settings and accepts their values.
fn check_settings(profile: &Profile, dut: &Dut, faults: &mut Faults<'_>) {
    for (key, at) in dut.set.iter().chain(&dut.sweep) {
        for word in at.get_ref() {
            let Word(value) = word.get_ref();
            let chosen = BTreeMap::from([(key.clone(), value.clone())]);
            let checked = profile.check_settings(&chosen);
            faults.keep(checked.map_err(|error| word.fault(error.to_string())));
        }
    }
}

/// Refuses a pattern without repeated names. A plan in a journal may have one.
fn check_patterns(file: &File, faults: &mut Faults<'_>) {
    let cells = &file.cells;
    let is_none = |word: &At<Word>| word.get_ref().0.parse() == Ok(Share::NONE);
    let repeats = match (&cells.grid, &cells.cached_share) {
        (Some(grid), _) => matches!(grid.get_ref(), Grid::Cached | Grid::Rfc8219),
        (None, Some(shares)) => !shares.get_ref().0.iter().all(is_none),
        (None, None) => false,
    };
    if let Some(at) = &cells.pattern
        && !repeats
        && !faults.spoil(&["[cells]"])
    {
        faults.add(at.fault(
            "`pattern` has no effect because cached-share is 0; omit it, or add for example cached-share = \"80%\"",
        ));
    }
}
