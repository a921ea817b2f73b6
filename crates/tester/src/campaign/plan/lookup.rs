//! What a plan names beyond itself: profiles and features of this program.

use std::collections::BTreeMap;
use std::error::Error;

use super::duts::{behaviours, resolved};
use super::file::{At, Dut, File};
use super::hosts::host_of;
use super::{Fault, RawFormat};
use crate::authority::behaviour::Rules;
use crate::lab::hosts::Hosts;
use crate::lab::profile::{Family, Profile, ProfileRole};
use crate::rig::spec::AuthorityChoice;

/// Whether all profiles can be used as the plan uses them.
pub(super) fn profiles(file: &File, origin: &str, hosts: Option<&Hosts>) -> Result<(), Fault> {
    if let Some(at) = &file.tester.raw
        && *at.get_ref() == RawFormat::Parquet
        && !cfg!(feature = "parquet")
    {
        return Err(Fault::new(
            at.span().start,
            "this program was built without Parquet; build it with --features parquet, or write \
             raw = \"csv\"",
        ));
    }
    if let Some(at) = &file.tester.authority {
        authority(at, origin)?;
    }
    for written in &file.dut {
        let dut = written.get_ref();
        if let Some(at) = &dut.profile {
            let profile = load(at, origin, ProfileRole::Dut)?;
            check_family(&profile, at, file)?;
            if let Some(hosts) = hosts {
                check_site(&profile, written, file, hosts)?;
            }
            check_settings(&profile, dut)?;
        }
        if let Some(at) = &dut.authority_behaviour {
            for behaviour in behaviours(dut, origin)? {
                let rules = Rules::new(behaviour);
                rules.map_err(|error| Fault::new(at.span().start, error.to_string()))?;
            }
        }
        if let Some(at) = &dut.authority
            && let Some(profile) = authority(at, origin)?
        {
            check_settings(&profile, dut)?;
        }
    }
    Ok(())
}

/// The profile of an authority, unless it is the Tester's own.
fn authority(at: &At<String>, origin: &str) -> Result<Option<Profile>, Fault> {
    match at.get_ref().parse() {
        Ok(AuthorityChoice::BuiltIn | AuthorityChoice::InDriver(_)) => Ok(None),
        Ok(AuthorityChoice::Profile { .. }) => load(at, origin, ProfileRole::Authority).map(Some),
    }
}

fn load(at: &At<String>, origin: &str, role: ProfileRole) -> Result<Profile, Fault> {
    let offset = at.span().start;
    let profile = Profile::load(&resolved(at.get_ref(), origin)).map_err(|error| {
        let reason = error.source().map(|reason| format!(": {reason}"));
        Fault::new(offset, format!("{error}{}", reason.unwrap_or_default()))
    })?;
    let name = at.get_ref();
    match (profile.role, role) {
        (ProfileRole::Authority, ProfileRole::Dut) => Err(Fault::new(
            offset,
            format!(
                "{name:?} is an authoritative server; measure it by itself with \
                 authority = {name:?} in place of profile"
            ),
        )),
        (ProfileRole::Dut, ProfileRole::Authority) => Err(Fault::new(
            offset,
            format!("{name:?} is a DNS64 server, no authority; write \"built-in\" or \"nsd\""),
        )),
        _ => Ok(profile),
    }
}

/// Whether the DUT can ask over the family of addresses that the plan wants.
fn check_family(profile: &Profile, at: &At<String>, file: &File) -> Result<(), Fault> {
    match (
        profile.requires.upstream_family,
        file.tester.upstream_family,
    ) {
        (Some(needs), Some(wanted)) if needs != wanted => Err(Fault::new(
            at.span().start,
            format!(
                "{} cannot ask the authority over the upstream-family of the plan; leave \
                 upstream-family away or measure it in a plan of its own",
                profile.name
            ),
        )),
        _ => Ok(()),
    }
}

/// Whether the DUT's host is connected to the authorities by the IP version that the DUT asks over, and whether it can ask
/// all of them.
fn check_site(profile: &Profile, at: &At<Dut>, file: &File, hosts: &Hosts) -> Result<(), Fault> {
    let wanted = file.tester.upstream_family;
    let family = wanted.or(profile.requires.upstream_family);
    let host = host_of(at, Some(hosts))?;
    let offset = at.span().start;
    let upstreams = profile.check_upstreams(hosts.authorities().len());
    upstreams.map_err(|error| Fault::new(offset, error.to_string()))?;
    let site = hosts.site(host.as_deref(), family.unwrap_or(Family::Ipv4));
    site.map(drop).map_err(|error| {
        let hint = match wanted {
            None => ", or give upstream-family in [tester]",
            Some(_) => "",
        };
        Fault::new(offset, format!("{error}{hint}"))
    })
}

/// Whether the profile has the settings that are set or swept.
fn check_settings(profile: &Profile, dut: &Dut) -> Result<(), Fault> {
    let set = dut.set.iter().map(|(key, at)| (key, at.span().start));
    let sweep = dut.sweep.iter().map(|(key, at)| (key, at.span().start));
    for (key, offset) in set.chain(sweep) {
        profile
            .check_settings(&BTreeMap::from([(key.clone(), String::new())]))
            .map_err(|error| Fault::new(offset, error.to_string()))?;
    }
    Ok(())
}
