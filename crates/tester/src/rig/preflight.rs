//! Checks of connected hosts before anything is started on them.

use std::collections::{BTreeMap, BTreeSet};

use crate::lab::LabError;
use crate::lab::hosts::Hosts;
use crate::post::host::Host;
use crate::rig::Profiles;
use crate::rig::spec::Subject;

/// An installed program on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Name of the host.
    pub host: String,
    /// Name of its profile.
    pub profile: String,
    /// Its version, if it prints one.
    pub version: Option<String>,
}

/// Returns the programs of the measurement on their hosts, each queried once, or an error if a profile is unreadable or
/// a program is missing. Unconnected hosts are skipped.
pub fn programs<'a>(
    subjects: impl Iterator<Item = &'a Subject>,
    hosts: &Hosts,
    reached: &BTreeMap<String, Host>,
) -> Vec<Result<Installed, LabError>> {
    let mut asked = BTreeSet::new();
    let mut found = Vec::new();
    for subject in subjects {
        let profiles = match Profiles::load(subject) {
            Ok(profiles) => profiles,
            Err(error) => {
                found.push(Err(error));
                continue;
            }
        };
        let mut wanted = Vec::new();
        if let Some(profile) = &profiles.authority {
            let names = hosts.authorities().into_iter().map(|host| &host.name);
            wanted.extend(names.map(|name| (name.clone(), profile, None)));
        }
        if let (Some(profile), Some(choice)) = (profiles.dut.as_ref(), subject.dut()) {
            let first = || hosts.duts().first().map(|host| host.name.clone());
            let name = choice.host.clone().or_else(first);
            wanted.extend(name.map(|name| (name, profile, choice.program.clone())));
        }
        for (name, profile, program) in wanted {
            let Some(host) = reached.get(&name) else {
                continue;
            };
            if asked.insert((name.clone(), profile.name.clone(), program.clone())) {
                let version = host.find(profile, program.as_deref());
                let installed = version.map(|version| Installed {
                    host: name,
                    profile: profile.name.clone(),
                    version,
                });
                found.push(installed);
            }
        }
    }
    found
}
