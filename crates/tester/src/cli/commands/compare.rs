//! `dns64bench compare`

use std::io::Write as _;

use super::report::load;
use super::{Failure, exit, print};
use crate::cli::args::CompareArgs;
use crate::report::campaign::compare::Comparison;
use crate::report::json;

/// Prints the comparison; the exit code says whether the second campaign is slower.
pub(super) fn run(args: &CompareArgs) -> Result<u8, Failure> {
    let (a, b) = (load(&args.before)?, load(&args.after)?);
    let comparison = Comparison::of(&a.analyse(), &b.analyse(), args.max_regression);
    if comparison.rows.is_empty() {
        let error = anyhow::anyhow!(
            "{} and {} have no point in common; names, shares, durations and timeouts have to be the \
             same",
            args.before.display(),
            args.after.display()
        );
        return Err(Failure::new(exit::USAGE, error));
    }
    print(|out| match args.json {
        true => out.write_all(json::text(&comparison)?.as_bytes()),
        false => comparison.write(out),
    })?;
    Ok(match comparison.has_regressions() {
        true => exit::FAILED,
        false => exit::PASSED,
    })
}
