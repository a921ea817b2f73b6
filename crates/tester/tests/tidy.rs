//! Keeps the house in order: the one-way flow, the size of files, and the tables of clauses.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// The modules of the Tester in the order of `ARCHITECTURE.md`: each uses only those before it.
const FLOW: [&str; 15] = [
    "statistics",
    "quantity",
    "warning",
    "namespace",
    "load",
    "connections",
    "authority",
    "lab",
    "trial",
    "procedure",
    "rig",
    "campaign",
    "report",
    "doctor",
    "cli",
];

/// A file that is longer asks for a better cut.
const LINES_MAX: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Rust files below a folder of the repository.
fn rust_files(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// The text of a file without its unit tests, which may use whatever they like.
fn without_tests(path: &Path) -> String {
    let text = read_to_string(path).unwrap();
    text.split("#[cfg(test)]")
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn modules_use_only_what_comes_before_them() {
    let source = root().join("crates/tester/src");
    let mut wrong = Vec::new();
    for path in rust_files("crates/tester/src") {
        let inside = path
            .strip_prefix(&source)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let own = inside.split(['/', '.']).next().unwrap();
        let Some(place) = FLOW.iter().position(|module| *module == own) else {
            assert!(
                ["lib", "main"].contains(&own),
                "{inside} is in no room of the map"
            );
            continue;
        };
        if inside.ends_with("tests.rs") {
            continue;
        }
        let text = without_tests(&path);
        for later in &FLOW[place + 1..] {
            if text.contains(&format!("crate::{later}::")) {
                wrong.push(format!("{inside} uses {later}"));
            }
        }
    }
    assert!(wrong.is_empty(), "against the flow: {wrong:#?}");
}

/// The modules of dns64d in the order of the list at the top of its library.
fn flow_of_dns64d() -> Vec<String> {
    let text = read_to_string(root().join("crates/server/src/lib.rs")).unwrap();
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("//! - ")?.split(':').next())
        .flat_map(|names| names.split('`').skip(1).step_by(2));
    let flow: Vec<_> = names.map(str::to_owned).collect();
    let declared = text.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    let mut sorted = flow.clone();
    sorted.sort();
    let mut declared: Vec<_> = declared.collect();
    declared.sort_unstable();
    assert_eq!(sorted, declared, "the list and the modules differ");
    flow
}

/// The modules of its own crate that a text names outside of comments: `crate::this`, and each of
/// `crate::{these, and::those}`.
fn modules_named(text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let first_word = |path: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let path = path.trim_start();
        path[..path.find(|c| !plain(c)).unwrap_or(path.len())].to_owned()
    };
    let mut named = Vec::new();
    for path in code.split("crate::").skip(1) {
        let Some(list) = path.strip_prefix('{') else {
            named.push(first_word(path));
            continue;
        };
        let mut depth = 0;
        for part in list.split_inclusive(['{', '}', ',']) {
            if depth == 0 {
                named.push(first_word(part));
            }
            match part.chars().last() {
                Some('{') => depth += 1,
                Some('}') if depth == 0 => break,
                Some('}') => depth -= 1,
                _ => {}
            }
        }
    }
    named.retain(|word| !word.is_empty());
    named
}

#[test]
fn modules_of_dns64d_use_only_what_comes_before_them() {
    assert_eq!(
        modules_named("use crate::a::B;\n// crate::no\nuse crate::{b, c::{d, e}, f};crate::g"),
        ["a", "b", "c", "f", "g"]
    );
    let flow = flow_of_dns64d();
    let place = |module: &str| flow.iter().position(|other| other == module);
    let source = root().join("crates/server/src");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in rust_files("crates/server/src") {
        let inside = path.strip_prefix(&source).unwrap().to_str().unwrap();
        let own = inside.split(['/', '.']).next().unwrap();
        let is_test = inside.contains("tests") || inside.ends_with("laws.rs");
        let Some(own) = place(own).filter(|_| !is_test) else {
            continue;
        };
        seen += 1;
        let named = modules_named(&without_tests(&path));
        for later in named.iter().filter(|named| place(named) > Some(own)) {
            wrong.push(format!("{inside} uses {later}"));
        }
    }
    assert!(wrong.is_empty(), "against the flow: {wrong:#?}");
    assert!(seen > 40, "the files were not found");
}

#[test]
fn dns64d_and_what_it_stands_on_do_not_know_the_tester() {
    for (folder, strangers) in [
        ("server", &["dns64bench", "tester"][..]),
        (
            "transport",
            &["dns64bench", "tester", "dns64d", "dns64-wire"],
        ),
        (
            "wire",
            &["dns64bench", "tester", "dns64d", "dns64-transport"],
        ),
    ] {
        let manifest = root().join("crates").join(folder).join("Cargo.toml");
        let text = read_to_string(manifest).unwrap();
        let (_, dependencies) = text.split_once("dependencies]").unwrap();
        for stranger in strangers {
            let names = dependencies
                .lines()
                .any(|line| line.contains(stranger) && !line.starts_with('#'));
            assert!(!names, "{folder} depends on {stranger}");
        }
    }
}

#[test]
fn every_file_can_be_read_in_one_sitting() {
    let long: Vec<_> = rust_files("crates")
        .into_iter()
        .map(|path| (read_to_string(&path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .collect();
    assert!(long.is_empty(), "more than {LINES_MAX} lines: {long:#?}");
}

#[test]
fn the_clauses_name_code_and_tests_that_exist() {
    let all: String = rust_files("crates")
        .iter()
        .map(|p| read_to_string(p).unwrap())
        .collect();
    let table = read_to_string(root().join("docs/rfc8219.md")).unwrap();
    let mut named = 0;
    for row in table.lines().filter(|row| row.starts_with("| B-")) {
        let columns: Vec<&str> = row.split('|').collect();
        let quoted = |column: &str| {
            let words = column.split('`').skip(1).step_by(2).map(str::to_owned);
            words.collect::<Vec<_>>()
        };
        for code in quoted(columns[4])
            .iter()
            .filter(|code| code.ends_with(".rs"))
        {
            let path = root().join("crates/tester/src").join(code);
            assert!(path.is_file(), "no {code}, named in: {row}");
        }
        for test in quoted(columns[5]) {
            assert!(
                all.contains(&format!("fn {test}(")),
                "no test {test}, named in: {row}"
            );
            named += 1;
        }
    }
    assert!(named > 20, "the table was not read");
}

#[test]
fn the_map_names_every_room() {
    let map = read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for module in FLOW {
        let room = format!("\n    {module}");
        assert!(
            map.contains(&room),
            "ARCHITECTURE.md does not list {module}"
        );
    }
}
