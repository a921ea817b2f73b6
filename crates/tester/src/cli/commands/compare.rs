//! `dns64bench compare`

use super::report::analysed;
use super::{Failure, exit, print, print_raw};
use crate::cli::args::CompareArgs;
use crate::report::campaign::compare::Comparison;
use crate::report::campaign::compare::changes::Changes;
use crate::report::json;

/// Prints what two campaigns differ in, or where the rates of more changed. The exit code says whether one fell.
pub(super) fn run(args: &CompareArgs) -> Result<u8, Failure> {
    let campaigns = [&args.before, &args.after].into_iter().chain(&args.more);
    let campaigns = campaigns.map(|dir| analysed(dir));
    let campaigns = campaigns.collect::<Result<Vec<_>, Failure>>()?;
    let is_slower = if let [before, after] = campaigns.as_slice() {
        let comparison = Comparison::of(before, after, args.max_regression);
        refuse_strangers(comparison.rows.len())?;
        match args.json {
            true => print_raw(&json::text(&comparison)?)?,
            false => print(|out| comparison.write(out))?,
        }
        comparison.has_regressions()
    } else {
        let changes = Changes::of(campaigns, args.max_regression);
        refuse_strangers(changes.points)?;
        match args.json {
            true => print_raw(&json::text(&changes)?)?,
            false => print(|out| changes.write(out))?,
        }
        changes.has_regressions()
    };
    Ok(if is_slower {
        exit::FAILED
    } else {
        exit::PASSED
    })
}

/// Refuses campaigns without common points.
fn refuse_strangers(points: usize) -> Result<(), Failure> {
    match points {
        0 => {
            let error = anyhow::anyhow!(
                "no point has a rate in two of the campaigns: its name, shares, duration and timeout must be equal"
            );
            Err(Failure::new(exit::USAGE, error))
        }
        _ => Ok(()),
    }
}
