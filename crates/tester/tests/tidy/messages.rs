//! Checks that `docs/troubleshooting.md` quotes messages in the words of the programs, and has every kind of fault.
//!
//! Messages state their remedies themselves: the page has what else there is to know, and `...` for figures.

use std::fs::read_to_string;
use std::path::Path;

use super::{root, source_files, tester_file};

const PAGE: &str = "docs/troubleshooting.md";

/// Shorter pieces of a message are in no literal of their own.
const WORDS_MIN: usize = 2;

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

/// Returns the messages of the page's tables: the cells of the column that is headed so.
fn quoted(page: &str) -> Vec<&str> {
    let mut messages = Vec::new();
    let mut column = None;
    for line in page.lines() {
        let cells: Vec<_> = line
            .split(" |")
            .map(|cell| cell.trim_start_matches("| "))
            .collect();
        match column {
            _ if !line.starts_with('|') => column = None,
            None => column = Some(cells.iter().position(|cell| cell.trim() == "message")),
            Some(Some(at)) if !line.starts_with("|--") => messages.push(cells[at].trim()),
            Some(_) => {}
        }
    }
    messages
}

#[test]
fn quoted_messages_are_those_of_the_programs() {
    let page = read_to_string(root().join(PAGE)).unwrap();
    let said: String = source_files("crates")
        .iter()
        .flat_map(|file| literals(&code(file)))
        .map(|text| format!("{}\n", plain(&text)))
        .collect();
    let quoted = quoted(&page);
    let unknown: Vec<_> = quoted
        .iter()
        .flat_map(|message| message.split("..."))
        .map(|piece| piece.trim_matches([' ', ',', ':', ';']))
        .filter(|piece| words(piece) >= WORDS_MIN && !said.contains(piece))
        .collect();
    assert!(unknown.is_empty(), "no program says: {unknown:#?}");
    assert!(quoted.len() > 46, "the messages were not found");
}

#[test]
fn every_kind_of_fault_has_row() {
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
        let row = format!("\n| `{name}` | ");
        assert!(page.contains(&row), "{PAGE} has no row for {name}");
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
