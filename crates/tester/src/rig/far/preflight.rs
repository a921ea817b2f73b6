//! What can be told before anything is started on hosts that were reached.

use std::collections::BTreeMap;

use crate::agent::facts::HostFacts;
use crate::lab::LabError;
use crate::lab::hosts::Hosts;
use crate::rig::remote::at_once;
use crate::rig::remote::host::Remote;
use crate::rig::spec::Subject;
use crate::rig::{Profiles, RigError};

/// What each host says of itself, all at the same time: a second.
///
/// # Errors
///
/// A host does not answer.
pub fn facts(hosts: &BTreeMap<String, Remote>) -> Result<Vec<(String, HostFacts)>, LabError> {
    let told = at_once(hosts.values().collect(), |host| {
        Ok((host.name().to_owned(), host.facts()?))
    });
    told.into_iter().collect()
}

/// Whether the hosts have the programs of what is to be measured.
///
/// # Errors
///
/// A profile cannot be read, or a host lacks its program.
pub fn programs(
    subject: &Subject,
    hosts: &Hosts,
    reached: &BTreeMap<String, Remote>,
) -> Result<(), RigError> {
    let profiles = Profiles::load(subject)?;
    if let Some(profile) = profiles.authority() {
        for host in hosts.authorities() {
            reached[&host.name].find(profile, None)?;
        }
    }
    if let (Some(profile), Some(choice)) = (profiles.dut(), subject.dut()) {
        let first = || hosts.duts().first().map(|host| host.name.clone());
        if let Some(host) = choice.host.clone().or_else(first) {
            reached[&host].find(profile, choice.program.as_deref())?;
        }
    }
    Ok(())
}
