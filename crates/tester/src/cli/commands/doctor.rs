//! `dns64bench doctor`

use std::io::Write;
use std::path::Path;

use super::{Failure, exit, interrupt, print};
use crate::campaign::plan::Plan;
use crate::cli::args::PushArgs;
use crate::doctor::{self, Finding, Grade};
use crate::post::links::Links;

/// Prints the findings on this machine. Always succeeds, even with poor findings: they are advice.
pub(super) fn run() -> Result<u8, Failure> {
    show(&doctor::examine())
}

/// Prints the findings on the hosts of a plan.
pub(super) fn of_hosts(plan: &Path, push: &PushArgs) -> Result<u8, Failure> {
    let plan = Plan::load(plan)?;
    let Some(hosts) = &plan.hosts.at else {
        let why = "the plan has no hosts; add [hosts.NAME] or an inventory, or omit --hosts";
        return Err(Failure::new(exit::USAGE, anyhow::anyhow!(why)));
    };
    let links = Links::new("doctor", push.push_binary, &interrupt()?);
    let mut facts = Vec::new();
    let mut unknown = Vec::new();
    for (name, reached) in links.try_reach(hosts.iter()) {
        match reached.and_then(|host| host.facts()) {
            Ok(found) => facts.push((name, found)),
            Err(why) => unknown.push((name, why.to_string())),
        }
    }
    show(&doctor::hosts::check(hosts, &facts, &unknown))
}

fn show(findings: &[Finding]) -> Result<u8, Failure> {
    print(|out| list(out, findings))?;
    Ok(exit::PASSED)
}

/// Prints one line for each finding, and one for its remedy.
pub(super) fn list(out: &mut dyn Write, findings: &[Finding]) -> std::io::Result<()> {
    let width = findings
        .iter()
        .map(|f| f.what.chars().count())
        .max()
        .unwrap_or(0);
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
}
