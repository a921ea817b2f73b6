//! Keeps docs/rfc6147.md true: what it names exists, and every dialogue has its place there.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of all Rust files below a folder.
fn source(folder: &Path) -> String {
    let entries = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let text = |path: PathBuf| match path.is_dir() {
        true => source(&path),
        false if path.extension().is_some_and(|e| e == "rs") => read_to_string(path).unwrap(),
        false => String::new(),
    };
    entries.map(text).collect()
}

#[test]
fn the_clauses_of_rfc_6147_name_code_and_tests_that_exist() {
    let server = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scripts = server.join("tests/dialogues/scripts");
    let all = source(&server.join("src")) + &source(&server.join("tests"));
    let table = read_to_string(root().join("docs/rfc6147.md")).unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|row| row.split('|').collect())
        .filter(|columns: &Vec<&str>| columns.len() == 8)
        .collect();
    let quoted = |column: &str| -> Vec<String> {
        let words = column.split('`').skip(1).step_by(2);
        words.map(str::to_owned).collect()
    };
    for row in &rows {
        for code in quoted(row[5]) {
            let exists = server.join("src").join(&code).is_file() || root().join(&code).is_file();
            assert!(exists, "no {code}, named in: {row:?}");
        }
        for proof in quoted(row[6]) {
            let exists = match proof.ends_with(".txt") {
                true => scripts.join(&proof).is_file(),
                false => all.contains(&format!("fn {proof}(")),
            };
            assert!(exists, "no {proof}, named in: {row:?}");
        }
    }
    for number in 1..=23 {
        let named = format!("D-{number}");
        assert!(
            rows.iter().any(|row| row[1].trim() == named),
            "no row {named}"
        );
    }
    for script in scripts.read_dir().unwrap() {
        let name = format!("`{}`", script.unwrap().file_name().display());
        assert!(table.contains(&name), "no row names {name}");
    }
}
