//! Checks that no decision of the Tester reads a text that the Tester writes for people.

use super::messages::code;
use super::{tester_file, tester_files};

/// Files of the Tester that read what other programs, libraries and users write.
const READERS: [&str; 7] = [
    "agent/trouble.rs",
    "campaign/plan/reader.rs",
    "lab/routes.rs",
    "lab/topology.rs",
    "machine/interface.rs",
    "machine/mod.rs",
    "report/campaign/verify.rs",
];

/// Methods that look for a text in another one.
const LOOKS: [&str; 6] = [
    ".contains(\"",
    ".starts_with(\"",
    ".ends_with(\"",
    ".strip_prefix(\"",
    ".strip_suffix(\"",
    ".split_once(\"",
];

/// Names that values have when they are printed.
const NAMES: [&str; 7] = [
    "AuthDNS",
    "DUT",
    "Measurer",
    "Tester",
    "three-device",
    "two-device",
    "xdp",
];

/// Returns the texts that a piece of code looks for, if they are sentences.
fn sentences(code: &str) -> Vec<&str> {
    let looked_for = LOOKS.iter().flat_map(|look| {
        let after = code.split(look).skip(1);
        after.filter_map(|rest| rest.split('"').next())
    });
    let is_sentence = |text: &&str| {
        let words = text.split_whitespace();
        words
            .filter(|word| word.chars().any(char::is_alphabetic))
            .count()
            > 1
    };
    looked_for.filter(is_sentence).collect()
}

/// Returns the names that a piece of code compares with.
fn compared(code: &str) -> Vec<&'static str> {
    let is_compared = |name: &&str| {
        let begins_arm = |line: &str| {
            let rest = line.trim_start().strip_prefix(&format!("\"{name}\" "));
            rest.is_some_and(|rest| rest.starts_with("=>") || rest.starts_with('|'))
        };
        let forms = [format!("== \"{name}\""), format!("!= \"{name}\"")];
        forms.iter().any(|form| code.contains(form)) || code.lines().any(begins_arm)
    };
    NAMES.into_iter().filter(is_compared).collect()
}

#[test]
fn no_decision_reads_a_sentence_or_the_name_of_a_value() {
    let mut found = Vec::new();
    let readers = READERS.map(tester_file);
    for path in tester_files() {
        if readers.contains(&path) {
            continue;
        }
        let code = code(&path);
        let texts = sentences(&code).into_iter().chain(compared(&code));
        found.extend(texts.map(|text| format!("{}: {text:?}", path.display())));
    }
    assert_eq!(found, Vec::<String>::new(), "decide by values instead");
}

#[test]
fn decisions_by_texts_are_found() {
    assert_eq!(
        sentences("if text.contains(\"the kernel refused\") {"),
        ["the kernel refused"]
    );
    assert_eq!(
        sentences("line.strip_prefix(\"Udp: \")"),
        Vec::<&str>::new()
    );
    assert_eq!(compared("role != \"DUT\""), ["DUT"]);
    assert_eq!(compared("    \"two-device\" => true,"), ["two-device"]);
    assert_eq!(compared("\"dut\", \"DUT\" => &v.dut;"), Vec::<&str>::new());
}
