//! `dns64bench run --dry-run`

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use super::{Failure, exit, print};
use crate::campaign::estimate::estimate;
use crate::campaign::plan::Plan;
use crate::report::campaign::dry_run;
use crate::rig::Profiles;

/// Prints what the plan in the file of this path would do, how long it would take, and which of its programs
/// are not here: a plan may be looked at on another machine than it is for.
pub(super) fn dry_run(path: &Path) -> Result<u8, Failure> {
    let (plan, _) = Plan::load(path)?;
    let rooms = plan.rooms()?;
    let estimate = estimate(&plan);
    let loaded = plan.variants.iter().map(|it| Profiles::load(&it.subject));
    let missing: BTreeSet<_> = loaded
        .filter_map(|it| Some(it.err()?.to_string()))
        .collect();
    print(|out| {
        dry_run::write(out, &plan, &estimate, &rooms)?;
        missing
            .iter()
            .try_for_each(|why| writeln!(out, "This machine cannot run the plan: {why}."))
    })?;
    Ok(exit::PASSED)
}
