//! Checks whether the hosts are ready for a plan. `run` does this before it starts anything; `run --dry-run` does only
//! this.

use std::collections::{BTreeMap, BTreeSet};

use super::check;
use crate::agent::facts::HostFacts;
use crate::campaign::plan::Plan;
use crate::doctor::{Finding, Grade};
use crate::lab::LabError;
use crate::lab::hosts::Hosts;
use crate::post::host::{Host, at_once};
use crate::rig::preflight::{self, Installed};

/// Result of the check of a plan's hosts.
#[derive(Debug, Default)]
pub struct Readiness {
    /// Facts of the hosts that could be reached.
    pub facts: Vec<(String, HostFacts)>,
    /// Versions of the servers of the plan's profiles that are installed on them.
    pub programs: Vec<Installed>,
    /// Everything that prevents a run of the plan: host, problem and remedy, one line each.
    pub obstacles: Vec<String>,
    /// Findings that may disturb results.
    pub poor: Vec<Finding>,
}

/// Checks the hosts of a plan, each of which is connected or has an error. It starts nothing on them except programs
/// that print their version.
pub fn look(plan: &Plan, hosts: &Hosts, tried: Vec<(String, Result<Host, LabError>)>) -> Readiness {
    let mut seen = Readiness::default();
    let mut reached = BTreeMap::new();
    let mut obstacles = BTreeSet::new();
    for (name, host) in tried {
        match host {
            Ok(host) => drop(reached.insert(name, host)),
            Err(error) => seen.obstacles.push(error.to_string()),
        }
    }
    let looked = at_once(reached.values().collect(), |host: &Host| {
        (host.name().to_owned(), host.facts())
    });
    for (name, facts) in looked {
        match facts {
            Ok(facts) => seen.facts.push((name, facts)),
            Err(error) => {
                reached.remove(&name);
                seen.obstacles.push(error.to_string());
            }
        }
    }
    let subjects = plan.variants.iter().map(|variant| &variant.subject);
    for program in preflight::programs(subjects, hosts, &reached) {
        match program {
            Ok(installed) => seen.programs.push(installed),
            // One line for all variants that need it.
            Err(error) => drop(obstacles.insert(format!("{error:#}"))),
        }
    }
    for finding in check(hosts, &seen.facts, &[]) {
        match finding.grade {
            Grade::Good => {}
            Grade::Poor => seen.poor.push(finding),
            Grade::Missing => drop(obstacles.insert(finding.to_string())),
        }
    }
    obstacles.extend(too_large(plan, hosts, &seen.facts));
    seen.obstacles.extend(obstacles);
    seen
}

/// Reports zones that are too large for the memory of an authority's host.
fn too_large(plan: &Plan, hosts: &Hosts, facts: &[(String, HostFacts)]) -> Vec<String> {
    let authorities = hosts.authorities();
    let told = facts.iter().filter_map(|(name, facts)| {
        authorities.iter().find(|host| host.name == *name)?;
        Some((name, facts.memory_available_bytes?))
    });
    let rooms = plan.rooms();
    let refused = told.flat_map(|(name, available)| {
        let mib = available >> 20;
        let large = rooms
            .iter()
            .filter(move |room| room.memory.is_some_and(|memory| memory > available));
        large.map(move |room| {
            format!(
                "{name}: memory: {room}, and {mib} MiB are available; use a smaller namespace or another host"
            )
        })
    });
    refused.collect()
}
