//! Checks that `docs/troubleshooting.md` explains every fault, warning and finding, in the words of the programs.
//!
//! A message is a literal of at least four words in one of the places below. Its figures, `{...}`, are `...` on the
//! page.

use std::fs::read_to_string;
use std::path::Path;

use super::{root, source_files, tester_file};

const PAGE: &str = "docs/troubleshooting.md";

/// Files of the Tester with explained messages, each from a line with this prefix to the tests or to the end
/// of that item.
const PLACES: [(&str, &str); 17] = [
    ("trial/fault.rs", ""),
    ("trial/cause.rs", ""),
    ("trial/connections.rs", ""),
    ("trial/summary.rs", ""),
    ("trial/path.rs", ""),
    ("trial/policy.rs", ""),
    ("trial/disturbance.rs", ""),
    ("trial/surroundings.rs", ""),
    ("report/campaign/analyse/warnings.rs", ""),
    ("report/campaign/analyse/contradictions.rs", ""),
    ("campaign/environment.rs", "pub fn warnings("),
    ("campaign/plan/mod.rs", "    pub fn remarks("),
    ("rig/recommended.rs", ""),
    ("doctor.rs", ""),
    ("doctor/hosts.rs", ""),
    ("doctor/hosts/links.rs", ""),
    ("machine/mod.rs", "pub const SMT_REMEDY"),
];

const WORDS_MIN: usize = 4;

/// Returns the string literals of a piece of Rust, without those in comments.
pub(super) fn literals(code: &str) -> Vec<String> {
    let mut literals = Vec::new();
    let mut rest = code.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '/' if rest.peek() == Some(&'/') => while rest.next().is_some_and(|c| c != '\n') {},
            '\'' if rest.peek() == Some(&'"') => drop(rest.next()),
            '"' => literals.push(literal(&mut rest)),
            _ => {}
        }
    }
    literals
}

/// Returns the rest of a literal after its first quotation mark.
fn literal(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(c) = rest.next() {
        match c {
            '"' => break,
            '\\' => match rest.next() {
                Some('\n') => while rest.next_if(|c| c.is_whitespace()).is_some() {},
                Some(escaped) => text.push(escaped),
                None => {}
            },
            c => text.push(c),
        }
    }
    text
}

/// Returns a message in the form of the page: `...` for each figure, without code marks, single spaces.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let text = text.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let mut parts = text.split('{');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let after = part.split_once('}').map_or("", |(_, after)| after);
        plain = format!("{plain}...{after}");
    }
    let plain = plain.replace('\u{1}', "{").replace('\u{2}', "}");
    let words: Vec<_> = plain.split_whitespace().collect();
    let words = words.join(" ").replace(['`', '\\'], "");
    words.trim_end_matches(['.', ' ', ';']).to_owned()
}

fn words(text: &str) -> usize {
    let is_word = |word: &&str| word.chars().filter(|c| c.is_alphabetic()).count() > 1;
    text.split_whitespace().filter(is_word).count()
}

/// Returns a file up to its tests.
pub(super) fn code(path: &Path) -> String {
    let text = read_to_string(path).unwrap();
    let (code, _) = text.split_once("\n#[cfg(test)]").unwrap_or((&text, ""));
    let is_lint = |line: &&str| line.trim_start().starts_with("reason = \"");
    let lines = code.lines().filter(|line| !is_lint(line));
    lines.map(|line| format!("{line}\n")).collect()
}

fn explained(messages: impl IntoIterator<Item = String>) -> usize {
    let page = read_to_string(root().join(PAGE)).unwrap();
    let page = plain(&page.replace("\n> ", " "));
    let messages: Vec<_> = messages.into_iter().collect();
    let unknown: Vec<_> = messages
        .iter()
        .filter(|text| !page.contains(text.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{PAGE} does not explain: {unknown:#?}");
    messages.len()
}

#[test]
fn every_fault_warning_and_finding_of_tester_is_explained() {
    let messages = PLACES.into_iter().flat_map(|(file, from)| {
        let code = code(&tester_file(file));
        let at = code
            .find(from)
            .unwrap_or_else(|| panic!("{file}: no {from:?}"));
        let indented = from.len() - from.trim_start().len();
        let end = match from {
            "" => None,
            _ => code[at..].find(&format!("\n{}}}\n", &from[..indented])),
        };
        let end = end.map_or(code.len(), |end| at + end);
        let texts = literals(&code[at..end]);
        let texts = texts.iter().map(|text| plain(text));
        texts
            .filter(|text| words(text) >= WORDS_MIN)
            .collect::<Vec<_>>()
    });
    assert!(explained(messages) > 70, "the messages were not found");
}

#[test]
fn every_kind_of_fault_has_heading() {
    let fault = code(&tester_file("trial/fault.rs"));
    let (_, kinds) = fault.split_once("pub enum TesterFault {\n").unwrap();
    let (kinds, _) = kinds.split_once("\n}\n").unwrap();
    let names = kinds.lines().filter_map(|line| {
        let name = line.strip_prefix("    ")?;
        let name = name.split(|c: char| !c.is_alphanumeric()).next()?;
        name.starts_with(char::is_uppercase)
            .then(|| snake_case(name))
    });
    let names: Vec<_> = names.collect();
    let page = read_to_string(root().join(PAGE)).unwrap();
    for name in &names {
        let heading = format!("\n### `{name}`\n");
        assert!(page.contains(&heading), "{PAGE} has no heading for {name}");
    }
    assert!(names.len() > 15, "{names:?}");
}

/// Returns the name of a variant in journals.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}

#[test]
fn every_warning_in_log_of_dns64d_is_explained() {
    let files = source_files("crates/server/src").into_iter();
    let messages = files.flat_map(|file| {
        let code = code(&file);
        let calls = ["tracing::warn!(", "tracing::error!("].map(|call| code.split(call).skip(1));
        let first = |call: &str| literals(call).into_iter().next();
        let texts: Vec<_> = calls.into_iter().flatten().filter_map(first).collect();
        texts
            .iter()
            .map(|text| plain(text))
            .filter(|text| words(text) > 1)
            .collect::<Vec<_>>()
    });
    assert!(explained(messages) >= 15, "the messages were not found");
}
