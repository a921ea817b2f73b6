//! `dns64bench verify`

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;

use super::report::{FOLDER, load};
use super::{Failure, exit, print};
use crate::campaign::audit::{Contradiction, audit};
use crate::campaign::journal::{JOURNAL_FILE, PLAN_FILE};
use crate::campaign::record::{Line, Record};
use crate::campaign::signature::{self, SIGNATURE_FILE};
use crate::cli::args::VerifyArgs;
use crate::report::campaign::analyse::analyse;
use crate::report::campaign::files;
use crate::report::campaign::verify::{check, check_no_others};
use crate::report::numbers::count;

/// Recomputes everything from the trials in the journal, and signs it or checks its signature.
pub(super) fn run(args: &VerifyArgs) -> Result<u8, Failure> {
    let (seal, result) = verify(&args.directory)?;
    let signature = signature(args, &seal)?;
    print(|out| writeln!(out, "{result}\n{signature}"))?;
    Ok(exit::PASSED)
}

/// Checks a campaign and its report. Returns the last seal of its journal, and the result in words.
fn verify(dir: &Path) -> Result<(String, String), Failure> {
    let (plan, reading) = load(dir)?;
    if let Some(torn) = reading.torn {
        return Err(Failure::new(exit::TESTER, torn));
    }
    let (lines, seal) = (reading.lines, reading.seal);
    check_plan(dir, &lines)?;
    check_repetitions(dir, &lines)?;
    let audited = audit(&plan, &lines).map_err(|contradiction| refused(&lines, &contradiction))?;
    let folder = dir.join(FOLDER);
    let analysis = analyse(&plan, &lines, &seal);
    let files =
        files::files(&analysis, &lines).map_err(|error| Failure::new(exit::TESTER, error))?;
    check(&files, |name| fs::read(folder.join(name)).ok())
        .and_then(|()| check_no_others(&files, below(&folder)))
        .map_err(|error| {
            let text = format!("{}: {error}", folder.display());
            error.blame.error(text)
        })?;
    let result = format!(
        "verified: {} recounted, {} replayed, {} recomputed, {}, seal {}",
        count(audited.trials, "trial"),
        count(audited.searches, "search"),
        count(audited.certificates, "certificate"),
        count(files.len(), "file"),
        seal
    );
    Ok((seal, result))
}

/// Some keys repeat others for readers of the file, such as the text of a fault: reading a journal does not look at them, so
/// each must be what it would be written as.
fn check_repetitions(dir: &Path, lines: &[Line]) -> Result<(), Failure> {
    let octets = fs::read(dir.join(JOURNAL_FILE)).unwrap_or_default();
    for (line, text) in lines.iter().zip(octets.split(|&octet| octet == b'\n')) {
        let is = serde_json::from_slice(text).unwrap_or_default();
        let due = serde_json::to_value(line).unwrap_or_default();
        if let Some(key) = otherwise(&is, &due) {
            let (line, what) = (line.number + 1, format!("its{key} does not follow"));
            return Err(refused(lines, &Contradiction { line, what }));
        }
    }
    Ok(())
}

/// The path of the first key whose value differs. Keys that only one of the two has are not compared: other programs
/// write and read them.
fn otherwise(is: &Value, due: &Value) -> Option<String> {
    match (is, due) {
        (Value::Object(is), Value::Object(due)) => is.iter().find_map(|(key, value)| {
            let below = otherwise(value, due.get(key)?)?;
            Some(format!(" {key}{below}"))
        }),
        (Value::Array(is), Value::Array(due)) if is.len() == due.len() => {
            is.iter().zip(due).find_map(|(is, due)| otherwise(is, due))
        }
        _ => (is != due).then(String::new),
    }
}

/// The error for a contradiction in the journal. It names the program that wrote the journal if it is another version,
/// since the rules may have changed.
fn refused(lines: &[Line], contradiction: &Contradiction) -> Failure {
    let mut text = format!("{contradiction}; do not trust the journal or its report");
    let made = lines.first().map(|line| &line.record);
    if let Some(Record::Campaign { tester, .. }) = made
        && tester != crate::PROGRAM
    {
        text += &format!(
            "; it was written by {tester}, which may have other rules: verify it with that version"
        );
    }
    Failure::new(exit::TESTER, anyhow::anyhow!(text))
}

/// All files below a folder, as relative paths. Anything that is not a folder counts as a file.
fn below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        // Unreadable entries count as missing and were reported.
        let entries = fs::read_dir(&next).into_iter().flatten().flatten();
        for entry in entries {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(path),
                _ => {
                    let path = path.strip_prefix(folder).unwrap_or(&path);
                    found.push(path.display().to_string());
                }
            }
        }
    }
    found
}

/// Makes or checks the signature, and returns its description.
fn signature(args: &VerifyArgs, seal: &str) -> Result<String, Failure> {
    let dir = &args.directory;
    if let Some(key) = &args.sign {
        let path = signature::sign(dir, seal, key)?;
        return Ok(format!("signed: {}", path.display()));
    }
    if let Some(allowed) = &args.check_signature {
        let signer = signature::check(dir, seal, allowed)?;
        return Ok(format!("signed by {signer}"));
    }
    Ok(match dir.join(SIGNATURE_FILE).exists() {
        true => format!(
            "{SIGNATURE_FILE} is not checked; check it with --check-signature ALLOWED_SIGNERS"
        ),
        false => "not signed".to_owned(),
    })
}

/// Checks that the copy of the plan beside the journal, if any, equals the plan in the journal, whose hash was checked
/// with its seal.
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
