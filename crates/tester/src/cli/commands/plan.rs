//! `dns64bench run --dry-run`

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use super::{Failure, exit, print};
use crate::campaign::estimate::estimate;
use crate::campaign::plan::{Plan, Variant};
use crate::report::campaign::dry_run;
use crate::rig::{Profiles, placement};

/// Prints what the plan in the file of this path would do, how long it would take, and what of it this
/// machine lacks: a plan may be looked at on another machine than it is for.
pub(super) fn dry_run(path: &Path) -> Result<u8, Failure> {
    let (plan, _) = Plan::load(path)?;
    let rooms = plan.rooms()?;
    let estimate = estimate(&plan);
    let lacks = |variant: &Variant| {
        let program = Profiles::load(&variant.subject).err();
        let cpus = placement::check(&variant.subject, &plan.load).err();
        [
            program.map(|it| it.to_string()),
            cpus.map(|it| it.to_string()),
        ]
    };
    // What its hosts lack, they say themselves.
    let here = plan.variants.iter().filter(|_| plan.hosts.at.is_none());
    let missing: BTreeSet<String> = here.flat_map(lacks).flatten().collect();
    print(|out| {
        dry_run::write(out, &plan, &estimate, &rooms)?;
        missing
            .iter()
            .try_for_each(|why| writeln!(out, "This machine cannot run the plan: {why}."))
    })?;
    Ok(exit::PASSED)
}
