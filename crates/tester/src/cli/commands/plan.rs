//! `dns64bench run --dry-run`, and what `run` tries as well before it starts anything.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::{Failure, exit, print};
use crate::campaign::estimate::estimate;
use crate::campaign::plan::{Places, Plan};
use crate::campaign::preflight::{self, Surroundings};
use crate::cli::args::{MayLoadArgs, RunArgs};
use crate::lab::machine::Machine;
use crate::lab::{Blame, LabError, LabKind, userns, zone};
use crate::report::campaign::dry_run;

/// Prints what a plan would do and how long it would take, then all that keeps it from being run here: a plan may be
/// looked at on another machine than it is for.
pub(super) fn dry_run(args: &RunArgs) -> Result<u8, Failure> {
    let (plan, text) = Plan::load(&args.plan)?;
    let (rooms, estimate) = (plan.rooms(), estimate(&plan));
    print(|out| {
        dry_run::write(out, &plan, &estimate, &rooms)?;
        for remark in preflight::remarks(&plan) {
            writeln!(out, "Remark: {remark}.")?;
        }
        match plan.hosts.at {
            Some(_) => writeln!(
                out,
                "The hosts are not asked; `dns64bench doctor --hosts {}` looks at them.",
                args.plan.display()
            ),
            None => Ok(()),
        }
    })?;
    let lab = settled(&plan);
    let attempt = Attempt {
        plan: &plan,
        origin: &args.plan.display().to_string(),
        text: &text,
        no_lab: lab.as_ref().and_then(|lab| lab.as_ref().err()),
        directory: &directory(args, &plan),
        is_resumed: false,
        may_load: args.may_load,
    };
    attempt.refuse()?;
    Ok(exit::PASSED)
}

/// The lab that a plan needs on this machine, if it needs one: what is chosen once must not change in the midst of a
/// campaign.
pub(super) fn settled(plan: &Plan) -> Option<Result<LabKind, LabError>> {
    let is_here = plan.uses_lab() && plan.hosts.at.is_none();
    is_here.then(|| plan.lab.settle())
}

/// Where the journal and the report are to be.
pub(super) fn directory(args: &RunArgs, plan: &Plan) -> PathBuf {
    let by_name = || PathBuf::from(&plan.name);
    args.output.clone().unwrap_or_else(by_name)
}

/// A plan that is to be run.
pub(super) struct Attempt<'a> {
    pub(super) plan: &'a Plan,
    /// Where its text was read.
    pub(super) origin: &'a str,
    /// All that it says.
    pub(super) text: &'a str,
    pub(super) no_lab: Option<&'a LabError>,
    pub(super) directory: &'a Path,
    pub(super) is_resumed: bool,
    pub(super) may_load: MayLoadArgs,
}

impl Attempt<'_> {
    /// Refuses what cannot be run, before anything is started.
    pub(super) fn refuse(&self) -> Result<(), Failure> {
        // There is no network there by which to judge an address, and all else was looked at outside.
        if userns::inside() {
            return Ok(());
        }
        let places = Places::of(self.origin, self.text);
        let around = Surroundings {
            machine: &Machine::here(),
            no_lab: self.no_lab,
            directory: self.directory,
            free: zone::free(&std::path::absolute(self.directory)?),
            is_resumed: self.is_resumed,
            may_load: self.may_load.i_may_load_this_network,
        };
        let lacks = preflight::check(self.plan, &places, &around);
        if lacks.is_empty() {
            return Ok(());
        }
        let is_requested = lacks.iter().all(|lack| lack.blame == Blame::Request);
        let code = if is_requested {
            exit::USAGE
        } else {
            exit::ENVIRONMENT
        };
        let texts: String = lacks
            .iter()
            .map(|lack| format!("\n{}", lack.problem))
            .collect();
        let error = anyhow!("the plan cannot be run here:{texts}");
        Err(Failure::new(code, error))
    }
}
