//! `dns64bench report`, and the code that it shares with `verify` and `compare`.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Failure, exit, print};
use crate::campaign::journal::{self, Reading};
use crate::campaign::plan::Plan;
use crate::campaign::record::Record;
use crate::report::campaign::analyse::analyse;
use crate::report::campaign::analysis::Analysis;
use crate::report::campaign::files;
use crate::report::numbers;

/// Folder of the report in the directory of a campaign.
pub(super) const FOLDER: &str = "report";

/// Reads the journal of a campaign, and its plan.
pub(super) fn load(dir: &Path) -> Result<(Plan, Reading), Failure> {
    let reading = journal::read(dir)?;
    let (origin, text) = match reading.lines.first().map(|line| &line.record) {
        Some(Record::Campaign {
            plan, plan_origin, ..
        }) => (plan_origin.as_str(), plan.as_str()),
        _ => ("", ""),
    };
    Ok((Plan::parse(origin, text)?, reading))
}

/// Reads and analyses a campaign.
pub(super) fn analysed(dir: &Path) -> Result<Analysis, Failure> {
    let (plan, reading) = load(dir)?;
    Ok(analyse(&plan, &reading.lines, &reading.seal))
}

/// Writes all files of the report and prints the results.
pub(super) fn run(directory: &Path) -> Result<u8, Failure> {
    let loaded = load(directory)?;
    let (analysis, folder) = write(directory, &loaded)?;
    print(|out| {
        for sentence in &analysis.verdict {
            writeln!(out, "{sentence}")?;
        }
        if let Some(torn) = &loaded.1.torn {
            writeln!(out, "left out: {torn}")?;
        }
        writeln!(
            out,
            "{} and all figures: {}",
            numbers::count(analysis.warnings.len(), "warning"),
            folder.join("index.html").display()
        )
    })?;
    Ok(exit::PASSED)
}

/// Writes all files of the report below `dir`, each atomically, and returns their analysis and their folder.
pub(super) fn write(
    dir: &Path,
    (plan, reading): &(Plan, Reading),
) -> Result<(Analysis, PathBuf), Failure> {
    let analysis = analyse(plan, &reading.lines, &reading.seal);
    let files = files::files(&analysis, &reading.lines)?;
    let folder = dir.join(FOLDER);
    let failed = |path: &Path| format!("cannot write {}", path.display());
    // An earlier report of the campaign may have other figures.
    let figures = folder.join(files::FIGURES);
    if figures.exists() {
        fs::remove_dir_all(&figures).with_context(|| failed(&figures))?;
    }
    for (name, octets) in &files {
        let path = folder.join(name);
        replace(&path, octets).with_context(|| failed(&path))?;
    }
    Ok((analysis, folder))
}

/// Replaces a file atomically: a reader sees the old or the new one.
fn replace(path: &Path, octets: &[u8]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    fs::write(&draft, octets)?;
    fs::rename(&draft, path).inspect_err(|_| {
        // The draft is useless; the returned error explains why it may remain.
        let _ = fs::remove_file(&draft);
    })
}
