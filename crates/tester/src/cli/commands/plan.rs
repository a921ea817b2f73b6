//! `dns64bench run --dry-run`

use std::path::Path;

use super::{Failure, exit, print};
use crate::campaign::estimate::estimate;
use crate::campaign::plan::Plan;
use crate::report::campaign::dry_run;

/// Prints what the plan in the file of this path would do, and how long it would take.
pub(super) fn dry_run(path: &Path) -> Result<u8, Failure> {
    let (plan, _) = Plan::load(path)?;
    let rooms = plan.rooms()?;
    let estimate = estimate(&plan);
    print(|out| dry_run::write(out, &plan, &estimate, &rooms))?;
    Ok(exit::PASSED)
}
