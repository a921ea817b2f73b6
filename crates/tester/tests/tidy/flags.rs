//! Checks that each flag in a text of the Tester exists, and those of a fault wherever the fault can occur.

use std::collections::BTreeSet;
use std::fs::read_to_string;

use super::messages::{code, literals};
use super::{root, tester_file, tester_files};

/// Generated from the command line.
const PAGE: &str = "docs/cli-dns64bench.md";

/// Flags of other programs, and one that no page lists.
const FOREIGN: [&str; 23] = [
    "concurrency",
    "cpuset-cpus",
    "dnssec",
    "ednsopt",
    "features",
    "fork",
    "infile",
    "inner",
    "kill-child",
    "list",
    "map-root-user",
    "mount",
    "mount-proc",
    "net",
    "number",
    "package",
    "pdeathsig",
    "pid",
    "qps",
    "rate-limit",
    "release",
    "source",
    "user",
];

/// Files of the Tester with the texts of faults.
const FAULTS: [&str; 2] = ["trial/fault.rs", "trial/cause.rs"];

/// Commands that report faults; campaigns do too, and have keys instead.
const COMMANDS: [&str; 3] = ["trial", "selftest", "search"];

/// Returns the names of the flags in a text.
fn flags(text: &str) -> BTreeSet<&str> {
    let after = text.match_indices("--").filter_map(|(at, _)| {
        let is_start = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-');
        let rest = &text[at + 2..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-');
        let name = &rest[..end.unwrap_or(rest.len())];
        (is_start && name.starts_with(|c: char| c.is_ascii_lowercase())).then_some(name)
    });
    after.collect()
}

/// Returns the part of the page on a command.
fn section<'p>(page: &'p str, command: &str) -> &'p str {
    let (_, rest) = page
        .split_once(&format!("\n## dns64bench {command}\n"))
        .unwrap_or_else(|| panic!("no command {command}"));
    rest.split("\n## ").next().unwrap_or_default()
}

#[test]
fn every_flag_in_a_text_exists() {
    let page = read_to_string(root().join(PAGE)).unwrap();
    let known = flags(&page);
    let mut seen = 0;
    for file in tester_files() {
        for text in literals(&code(&file)) {
            for flag in flags(&text) {
                let is_known = known.contains(flag) || FOREIGN.contains(&flag);
                assert!(is_known, "{}: --{flag} in {text:?}", file.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn flags_of_remedies_exist_where_faults_occur() {
    let page = read_to_string(root().join(PAGE)).unwrap();
    let settings = read_to_string(tester_file("campaign/plan/settings.toml")).unwrap();
    let texts: String = FAULTS.iter().map(|file| code(&tester_file(file))).collect();
    let literals = literals(&texts).join("\n");
    let flags_of_faults = flags(&literals);
    for flag in &flags_of_faults {
        for command in COMMANDS {
            let known = flags(section(&page, command));
            assert!(known.contains(flag), "{command} has no --{flag}");
        }
        let key = format!(".{flag}\"\nflag = \"{flag}\"\n");
        assert!(settings.contains(&key), "plans have no key {flag}");
    }
    assert!(flags_of_faults.len() > 2, "{flags_of_faults:?}");
}

#[test]
fn flags_are_found_in_texts() {
    let text = "give it (--cpus) or use --authority-cpus=1; a--b, -- and ---x are none";
    assert_eq!(flags(text), BTreeSet::from(["authority-cpus", "cpus"]));
}
