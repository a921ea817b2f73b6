//! Whether the hosts of a plan are ready for it: what `run` asks of them before it starts anything, and `run --dry-run`
//! alone.

use std::collections::{BTreeMap, BTreeSet};

use super::check;
use crate::agent::facts::HostFacts;
use crate::campaign::plan::{Plan, in_keys};
use crate::doctor::{Finding, Grade};
use crate::lab::LabError;
use crate::lab::hosts::Hosts;
use crate::rig::far::preflight::{self, Installed};
use crate::rig::remote::host::Remote;

/// What was seen of the hosts of a plan.
#[derive(Debug, Default)]
pub struct Readiness {
    /// What those say of themselves that do.
    pub facts: Vec<(String, HostFacts)>,
    /// Their programs of the profiles of the plan.
    pub programs: Vec<Installed>,
    /// All that keeps the plan from being run on them: the host, the thing and the remedy, each in one line.
    pub lacks: Vec<String>,
    /// What may disturb results.
    pub poor: Vec<Finding>,
}

/// Looks at the hosts of a plan, of which each was reached or could not be. Nothing is started there but programs that
/// are asked for their version.
pub fn look(
    plan: &Plan,
    hosts: &Hosts,
    tried: Vec<(String, Result<Remote, LabError>)>,
) -> Readiness {
    let mut seen = Readiness::default();
    let mut reached = BTreeMap::new();
    let mut lacks = BTreeSet::new();
    for (name, host) in tried {
        match host {
            Ok(host) => drop(reached.insert(name, host)),
            Err(error) => seen.lacks.push(error.to_string()),
        }
    }
    for (name, facts) in preflight::facts(&reached) {
        match facts {
            Ok(facts) => seen.facts.push((name, facts)),
            Err(error) => {
                reached.remove(&name);
                seen.lacks.push(error.to_string());
            }
        }
    }
    let subjects = plan.variants.iter().map(|variant| &variant.subject);
    for program in preflight::programs(subjects, hosts, &reached) {
        match program {
            Ok(installed) => seen.programs.push(installed),
            // One for all variants that need it.
            Err(error) => drop(lacks.insert(in_keys(&error.to_string()))),
        }
    }
    for finding in check(hosts, &seen.facts, &[]) {
        match finding.grade {
            Grade::Good => {}
            Grade::Poor => seen.poor.push(finding),
            Grade::Missing => drop(lacks.insert(finding.to_string())),
        }
    }
    lacks.extend(too_large(plan, hosts, &seen.facts));
    seen.lacks.extend(lacks);
    seen
}

/// Zones that a host of an authority has no memory for.
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
