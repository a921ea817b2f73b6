//! `dns64bench doctor`

use std::io::Write;
use std::path::Path;

use super::{Failure, exit, print};
use crate::agent::facts::HostFacts;
use crate::campaign::plan::Plan;
use crate::doctor::{self, Finding, Grade};
use crate::lab::host::Host;
use crate::lab::hosts::{HostSpec, Reach};

/// Prints what this machine can do, worst findings included, and always succeeds: it is advice.
pub(super) fn run() -> Result<u8, Failure> {
    show(&doctor::examine())
}

/// Prints the same of the hosts of a plan.
pub(super) fn of_hosts(plan: &Path) -> Result<u8, Failure> {
    let (plan, _) = Plan::load(plan)?;
    let Some(hosts) = &plan.hosts.at else {
        let why = "the plan has no hosts; add [hosts.NAME] or an inventory, or omit --hosts";
        return Err(Failure::new(exit::USAGE, anyhow::anyhow!(why)));
    };
    let mut facts = Vec::new();
    let mut unknown = Vec::new();
    for host in hosts.iter() {
        match facts_of(host) {
            Ok(found) => facts.push((host.name.clone(), found)),
            Err(why) => unknown.push((host.name.as_str(), why)),
        }
    }
    show(&doctor::hosts::check(hosts, &facts, &unknown))
}

/// What a host says of itself.
fn facts_of(host: &HostSpec) -> Result<HostFacts, String> {
    let told = |name: &str| HostFacts::of(&Host::Netns(name.to_owned())).map_err(|e| e.to_string());
    match &host.reach {
        Reach::Local => Ok(HostFacts::here()),
        Reach::Netns(name) => told(name),
        Reach::Ssh(target) => Err(format!(
            "{target} cannot be reached over ssh by this version yet"
        )),
    }
}

fn show(findings: &[Finding]) -> Result<u8, Failure> {
    let width = findings
        .iter()
        .map(|f| f.what.chars().count())
        .max()
        .unwrap_or(0);
    print(|out| {
        for finding in findings {
            let mark = match finding.grade {
                Grade::Good => "ok  ",
                Grade::Poor => "poor",
                Grade::Missing => "MISS",
            };
            writeln!(out, "{mark}  {:width$}  {}", finding.what, finding.value)?;
            if let Some(remedy) = &finding.remedy {
                writeln!(out, "      {:width$}  -> {remedy}", "")?;
            }
        }
        Ok(())
    })?;
    Ok(exit::PASSED)
}
