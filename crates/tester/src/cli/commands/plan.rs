//! `dns64bench run --dry-run`, and the checks that `run` makes before it starts anything.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::{Failure, exit, interrupt, print};
use crate::campaign::estimate::estimate;
use crate::campaign::plan::{Laboratory, Plan};
use crate::campaign::preflight::{self, Surroundings};
use crate::cli::args::{MayLoadArgs, RunArgs};
use crate::doctor::hosts::ready::{self, Readiness};
use crate::lab::hosts::{HostSpec, Hosts};
use crate::lab::{Blame, LabError, LabKind, userns, zone};
use crate::machine::Machine;
use crate::post::links::Links;
use crate::report::campaign::dry_run;
use crate::rig::sources;

/// Prints the tasks of a plan and their duration, then everything that prevents its run here: the user may inspect a
/// plan on another machine than its own.
pub(super) fn dry_run(args: &RunArgs) -> Result<u8, Failure> {
    let plan = Plan::load(&args.plan)?;
    let (rooms, estimate) = (plan.rooms(), estimate(&plan));
    let seen = seen(&plan, args)?;
    print(|out| {
        dry_run::write(out, &plan, &estimate, &rooms)?;
        for remark in preflight::remarks(&plan) {
            writeln!(out, "Remark: {remark}.")?;
        }
        match &plan.hosts.at {
            Some(hosts) => told(out, hosts, &seen, &args.plan),
            None => Ok(()),
        }
    })?;
    let lab = settled(&plan);
    let refused = refuse(
        &plan,
        &directory(args, &plan),
        lab.as_ref(),
        false,
        args.may_load,
    );
    match (refused, seen.obstacles.as_slice()) {
        (Ok(()), []) => Ok(exit::PASSED),
        (Err(failure), []) => Err(failure),
        (Ok(()), obstacles) => Err(Failure::new(exit::ENVIRONMENT, not_ready(obstacles))),
        (Err(failure), obstacles) => {
            let both = anyhow!("{}\n{}", failure.error, not_ready(obstacles));
            Err(Failure::new(exit::ENVIRONMENT, both))
        }
    }
}

/// Findings on the hosts of a plan, which are held only during the check.
fn seen(plan: &Plan, args: &RunArgs) -> Result<Readiness, Failure> {
    let Some(hosts) = &plan.hosts.at else {
        return Ok(Readiness::default());
    };
    let purpose = format!("dry run of plan {}", plan.name);
    let links = Links::new(&purpose, args.push.push_binary, &interrupt()?);
    Ok(ready::look(plan, hosts, links.try_reach(hosts.iter())))
}

/// Prints the hosts and their programs.
fn told(out: &mut dyn Write, hosts: &Hosts, seen: &Readiness, plan: &Path) -> std::io::Result<()> {
    writeln!(out, "Hosts:")?;
    let width = hosts.iter().map(|host| host.name.len()).max().unwrap_or(0);
    for HostSpec { name, .. } in hosts.iter() {
        write!(out, "  {name:<width$}  ")?;
        match seen.facts.iter().find(|(host, _)| host == name) {
            Some((_, facts)) => {
                let (identity, cpus) = (&facts.identity, &facts.cpus);
                let (tester, kernel) = (&identity.tester, &identity.host.kernel);
                write!(out, "{tester}, Linux {kernel}, CPUs {cpus}")?;
            }
            None => write!(out, "not known")?,
        }
        for program in seen.programs.iter().filter(|it| it.host == *name) {
            let version = program.version.as_deref().unwrap_or("tells no version");
            write!(out, ", {} ({version})", program.profile)?;
        }
        writeln!(out)?;
    }
    let more = match seen.poor.len() {
        0 => "nothing there that would disturb results was found".to_owned(),
        1 => "1 finding there may disturb results".to_owned(),
        several => format!("{several} findings there may disturb results"),
    };
    let plan = plan.display();
    writeln!(
        out,
        "Remark: {more}; `dns64bench doctor --hosts {plan}` tells all of each host."
    )
}

/// Why a plan cannot run on its hosts.
pub(super) fn not_ready(obstacles: &[String]) -> anyhow::Error {
    anyhow!("the hosts are not ready:\n{}", obstacles.join("\n"))
}

/// The kind of lab that a plan needs on this machine, if any. It is selected once, since it must not change during a
/// campaign.
pub(super) fn settled(plan: &Plan) -> Option<Result<LabKind, LabError>> {
    match plan.laboratory() {
        Laboratory::Here(kind) => Some(kind.settle()),
        Laboratory::Elsewhere | Laboratory::Hosts(_) => None,
    }
}

/// Directory of the journal and the report.
pub(super) fn directory(args: &RunArgs, plan: &Plan) -> PathBuf {
    let by_name = || PathBuf::from(&plan.name);
    args.output.clone().unwrap_or_else(by_name)
}

/// Refuses a plan that cannot run, before anything is started. `lab` is the one that it needs on this machine.
pub(super) fn refuse(
    plan: &Plan,
    directory: &Path,
    lab: Option<&Result<LabKind, LabError>>,
    is_resumed: bool,
    may_load: MayLoadArgs,
) -> Result<(), Failure> {
    // The user namespace has no network to check addresses against, and the outer process has made the other
    // checks.
    if userns::inside() {
        return Ok(());
    }
    let mut variants = plan.variants.iter();
    let no_sources =
        variants.find_map(|variant| sources::possible_here(&variant.subject, &plan.load).err());
    let around = Surroundings {
        machine: &Machine::here(),
        no_lab: lab.and_then(|lab| lab.as_ref().err()),
        no_sources: no_sources.map(|why| format!("{why:#}")),
        directory,
        free: zone::free(&std::path::absolute(directory)?),
        is_resumed,
        may_load: may_load.i_may_load_this_network,
    };
    let obstacles = preflight::check(plan, &around);
    if obstacles.is_empty() {
        return Ok(());
    }
    let is_requested = obstacles
        .iter()
        .all(|obstacle| obstacle.blame == Blame::Request);
    let code = if is_requested {
        exit::USAGE
    } else {
        exit::ENVIRONMENT
    };
    let texts: String = obstacles
        .iter()
        .map(|obstacle| format!("\n{}", obstacle.problem))
        .collect();
    let error = anyhow!("the plan cannot be run here:{texts}");
    Err(Failure::new(code, error))
}
