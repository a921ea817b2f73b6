//! `dns64bench verify`

use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::report::{FOLDER, load};
use super::{Failure, exit, print};
use crate::campaign::journal::PLAN_FILE;
use crate::campaign::record::{Line, Record};
use crate::report::campaign::files::{self, TEMPLATE};
use crate::report::campaign::verify::{Difference, check};

/// Recomputes every number from the journal.
pub(super) fn run(directory: &Path) -> Result<u8, Failure> {
    let text = verify(directory)?;
    print(|out| writeln!(out, "{text}"))?;
    Ok(exit::PASSED)
}

/// What was verified, in a line.
fn verify(dir: &Path) -> Result<String, Failure> {
    let loaded = load(dir)?;
    if let Some(torn) = loaded.torn {
        return Err(Failure::new(exit::TESTER, anyhow::anyhow!(torn)));
    }
    check_plan(dir, &loaded.lines)?;
    let folder = dir.join(FOLDER);
    let template = fs::read_to_string(folder.join(TEMPLATE)).ok();
    let analysis = loaded.analyse();
    let files = files::files(&analysis, &loaded.plan, &loaded.lines, template.as_deref())
        .map_err(|error| Failure::new(exit::TESTER, error))?;
    check(&files, |name| fs::read(folder.join(name)).ok()).map_err(|difference| {
        let code = match difference {
            Difference::Missing { .. } | Difference::OtherMaker { .. } => exit::ENVIRONMENT,
            Difference::Content { .. } => exit::TESTER,
        };
        let error = anyhow::Error::new(difference);
        Failure::new(code, error.context(format!("{}", folder.display())))
    })?;
    let is_trial = |line: &&Line| matches!(line.record, Record::Trial { .. });
    let trials = loaded.lines.iter().filter(is_trial).count();
    Ok(format!(
        "verified: {trials} trials, {} files, seal {}",
        files.len(),
        loaded.seal
    ))
}

/// The copy of the plan beside the journal, if there is one, is that of the journal, whose hash was
/// checked with its seal.
fn check_plan(dir: &Path, lines: &[Line]) -> Result<(), Failure> {
    let path = dir.join(PLAN_FILE);
    let Ok(copy) = fs::read(&path) else {
        return Ok(());
    };
    match lines.first().map(|line| &line.record) {
        Some(Record::Campaign { plan, .. }) if plan.as_bytes() != copy => {
            let error = anyhow::anyhow!(
                "{} is not the plan of the journal; remove it, or restore it from a copy",
                path.display()
            );
            Err(Failure::new(exit::TESTER, error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
