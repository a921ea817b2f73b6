//! Checks that no text contains a phrase of `words.txt`, which also lists the replacements.

use std::fs::read_to_string;
use std::path::PathBuf;

use super::{files, root};

const LIST: &str = include_str!("words.txt");

/// Returns pairs of a phrase in lower case and its replacement.
fn phrases() -> Vec<(&'static str, &'static str)> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter(|line| !line.trim().is_empty());
    let pairs = lines.map(|line| {
        line.split_once(" -> ")
            .unwrap_or_else(|| panic!("{line:?}"))
    });
    pairs
        .map(|(phrase, instead)| (phrase.trim(), instead.trim()))
        .collect()
}

/// Returns a text as one line without comment marks, and the offset of each of its lines.
fn joined(text: &str) -> (String, Vec<usize>) {
    let (mut whole, mut begins) = (String::new(), Vec::new());
    for line in text.lines() {
        begins.push(whole.len());
        let line = line.trim_start().trim_start_matches(['/', '!', '#', '>']);
        let line = line.trim_end_matches('\\').to_ascii_lowercase();
        for word in line.split_whitespace() {
            whole.push_str(word);
            whole.push(' ');
        }
    }
    (whole, begins)
}

/// Returns the offsets at which a phrase occurs as whole words. "is no name" is an error, and "there is no name" is
/// not.
fn places(text: &str, phrase: &str) -> Vec<usize> {
    let is_inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let whole = |at: &usize| {
        let (before, after) = (&text[..*at], &text[at + phrase.len()..]);
        let is_part = is_inside(before.chars().next_back()) || is_inside(after.chars().next());
        let is_absence = phrase.starts_with("is no ") && before.ends_with("there ");
        !is_part && !is_absence
    };
    let found = text.match_indices(phrase).map(|(at, _)| at);
    found.filter(whole).collect()
}

/// Returns all texts for readers: pages, sources, templates, profiles and plans.
fn texts() -> Vec<PathBuf> {
    let mut texts: Vec<_> = ["crates", "docs", "examples", "bench", "deploy"]
        .into_iter()
        .flat_map(|folder| files(folder, &["md", "rs", "toml", "jinja"]))
        .collect();
    let root = root();
    let pages = root.read_dir().unwrap().map(|entry| entry.unwrap().path());
    texts.extend(pages.filter(|path| path.extension().is_some_and(|e| e == "md")));
    // This file contains phrases to test the list.
    texts.retain(|path| !path.ends_with("tidy/words.rs"));
    texts
}

#[test]
fn no_text_contains_listed_phrase() {
    let mut found = Vec::new();
    let texts = texts();
    for path in &texts {
        let (text, begins) = joined(&read_to_string(path).unwrap());
        for (phrase, instead) in phrases() {
            found.extend(places(&text, phrase).into_iter().map(|at| {
                let line = begins.partition_point(|begin| *begin <= at);
                let path = path.strip_prefix(root()).unwrap_or(path).display();
                format!("{path}:{line}: \"{phrase}\": write {instead}")
            }));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    assert!(texts.len() > 300, "the files were not found");
}

#[test]
fn phrases_are_found_across_lines_and_as_whole_words() {
    let (text, begins) =
        joined("/// The file is\n/// no number. There is no\n/// number; is no numbers");
    assert_eq!(places(&text, "is no number").len(), 1, "{text}");
    assert_eq!(begins.len(), 3);
}
