//! Errors for programs: with `--json` every failing command writes the same object.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use schemars::JsonSchema;
use serde::Serialize;

use crate::report::json;

/// The object that a failing command writes.
#[derive(JsonSchema, Serialize)]
pub struct Refusal<'a> {
    /// The error, with its remedy.
    error: &'a str,
    /// The exit code of the command.
    exit_code: u8,
}

/// Destination of JSON in these arguments, valid or not: a file, or `-` for standard output.
pub fn json_target(arguments: &[OsString]) -> Option<PathBuf> {
    let (command, flags) = arguments.get(1..)?.split_first()?;
    let is_flag_alone = match command.to_str()? {
        "compare" => true,
        "trial" | "selftest" | "search" => false,
        _ => return None,
    };
    let mut words = flags.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        match text.as_ref() {
            "--json" if is_flag_alone => return Some("-".into()),
            "--json" | "-j" if !is_flag_alone => return words.next().map(PathBuf::from),
            _ => {}
        }
        let joined = text.strip_prefix("--json=").or(text.strip_prefix("-j"));
        if let Some(path) = joined.filter(|_| !is_flag_alone) {
            return Some(path.trim_start_matches('=').into());
        }
    }
    None
}

/// Writes an error to the target. If that fails, the reader still has the exit code.
pub fn write(target: &Path, code: u8, error: &str) {
    let exit_code = code;
    let text = json::text(&Refusal { error, exit_code }).unwrap_or_default();
    if target.as_os_str() == "-" {
        let _ = std::io::stdout().write_all(text.as_bytes());
    } else {
        let _ = File::create(target).and_then(|mut file| file.write_all(text.as_bytes()));
    }
}

/// The message of clap for invalid arguments with its suggestions, without the usage below it.
pub fn in_words(refusal: &clap::Error) -> String {
    let text = refusal.render().to_string();
    let lines = text.lines().take_while(|line| !line.trim().is_empty());
    let mut words: Vec<_> = lines.map(|line| line.trim().to_owned()).collect();
    if let Some(ContextValue::StyledStrs(suggestions)) = refusal.get(ContextKind::Suggested) {
        words.extend(suggestions.iter().map(ToString::to_string));
    }
    words.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_target_is_found_in_invalid_arguments() {
        let target = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            let path = json_target(&words)?;
            Some(path.into_os_string().into_string().unwrap())
        };
        for line in [
            "dns64bench trial --frobnicate --json -",
            "dns64bench search -j -",
            "dns64bench selftest --json=-",
            "dns64bench trial -Q x -j-",
            "dns64bench compare --json a",
        ] {
            assert_eq!(target(line).as_deref(), Some("-"), "{line}");
        }
        let line = "dns64bench trial --json out/x.json -Q";
        assert_eq!(target(line).as_deref(), Some("out/x.json"));
        for line in [
            "dns64bench",
            "dns64bench trial",
            "dns64bench trial --json",
            "dns64bench trial -- --json -",
            "dns64bench lab exec dut prog --json -",
            "dns64bench compare a b",
        ] {
            assert_eq!(target(line), None, "{line}");
        }
    }
}
