//! `dns64bench compare`

use std::io::Write as _;

use super::report::analysed;
use super::{Failure, exit, print, print_raw};
use crate::cli::args::CompareArgs;
use crate::report::campaign::analysis::Analysis;
use crate::report::campaign::compare::Comparison;
use crate::report::json;

/// Prints the comparisons. The exit code says whether any campaign is slower than the first.
pub(super) fn run(args: &CompareArgs) -> Result<u8, Failure> {
    let others = || std::iter::once(&args.after).chain(&args.more);
    let all = std::iter::once(&args.before).chain(others());
    let campaigns = all.map(|dir| analysed(dir));
    let campaigns = campaigns.collect::<Result<Vec<_>, Failure>>()?;
    let compare = |other: &Analysis| Comparison::of(&campaigns[0], other, args.max_regression);
    let comparisons: Vec<_> = campaigns[1..].iter().map(compare).collect();
    for (comparison, dir) in comparisons.iter().zip(others()) {
        if comparison.rows.is_empty() {
            let error = anyhow::anyhow!(
                "{} and {} have no point in common: name, shares, duration and timeout of a point must be equal",
                args.before.display(),
                dir.display()
            );
            return Err(Failure::new(exit::USAGE, error));
        }
    }
    match (args.json, comparisons.as_slice()) {
        (true, [one]) => print_raw(&json::text(one)?)?,
        (true, several) => print_raw(&json::text(&several)?)?,
        (false, several) => print(|out| {
            several.iter().try_for_each(|comparison| {
                if several.len() > 1 {
                    let (first, other) = &comparison.names;
                    writeln!(out, "A: {first}, B: {other}")?;
                }
                comparison.write(out)
            })
        })?,
    }
    Ok(match comparisons.iter().any(Comparison::has_regressions) {
        true => exit::FAILED,
        false => exit::PASSED,
    })
}
