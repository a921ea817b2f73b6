//! Checks of the project, for all crates of the workspace: the one-way flow and cycles of modules, the size of files,
//! the tables of clauses, the book and its links, the page of messages, and the words.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod book;
mod clauses;
mod decisions;
mod flags;
mod imports;
mod messages;
mod schemas;
mod words;

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use imports::Sources;

/// The crates of the Tester with their modules in the order of `ARCHITECTURE.md`: each uses only those before it.
const TESTER: [(&str, &[&str]); 2] = [
    (
        "measure",
        &[
            "statistics",
            "quantity",
            "naming",
            "namespace",
            "load",
            "connections",
            "authority",
            "machine",
            "trial",
        ],
    ),
    (
        "tester",
        &[
            "hash",
            "warning",
            "lab",
            "agent",
            "post",
            "procedure",
            "rig",
            "conform",
            "campaign",
            "learn",
            "report",
            "doctor",
            "cli",
        ],
    ),
];

/// Maximum number of lines of a file; longer files should be divided.
const LINES_MAX: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all Rust files below a folder of the repository.
fn rust_files(folder: &str) -> Vec<PathBuf> {
    files(folder, &["rs"])
}

/// Returns the Rust files below a folder that are not tests.
fn source_files(folder: &str) -> Vec<PathBuf> {
    let mut files = rust_files(folder);
    files.retain(|path| {
        let path = path.to_string_lossy();
        !path.ends_with("tests.rs") && !path.contains("/tests/")
    });
    files
}

/// Returns the Rust files of the Tester, without tests.
fn tester_files() -> Vec<PathBuf> {
    let sources = TESTER.map(|(name, _)| source_files(&format!("crates/{name}/src")));
    sources.concat()
}

/// Returns a file of the Tester, by its path in the `src` of its crate.
fn tester_file(name: &str) -> PathBuf {
    let places = TESTER.map(|(of, _)| root().join("crates").join(of).join("src").join(name));
    let found = places.into_iter().find(|place| place.exists());
    found.unwrap_or_else(|| panic!("no {name} in the Tester"))
}

/// Returns all files below a folder of the repository with one of these extensions.
fn files(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|e| extensions.iter().any(|it| e == *it))
            {
                files.push(path);
            }
        }
    }
    files
}

/// Returns the modules of dns64d in the order of the list at the top of its library.
fn flow_of_dns64d() -> Vec<String> {
    let text = read_to_string(root().join("crates/server/src/lib.rs")).unwrap();
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("//! - ")?.split(':').next())
        .flat_map(|names| names.split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

#[test]
fn modules_use_only_earlier_modules() {
    let owned = |flow: &[&str]| flow.iter().copied().map(str::to_owned).collect();
    let mut crates = TESTER.map(|(name, flow)| (name, owned(flow))).to_vec();
    crates.push(("server", flow_of_dns64d()));
    for (name, flow) in crates {
        let sources = Sources::read(name);
        let (mut listed, rooms) = (flow.clone(), sources.rooms());
        listed.sort();
        assert_eq!(listed, rooms, "{name}: the list and the modules differ");
        let place = |room: &String| flow.iter().position(|other| other == room);
        let uses = sources.uses();
        let wrong: Vec<_> = uses
            .iter()
            .filter(|(user, used)| place(&used[0]) > place(&user[0]))
            .map(|(user, used)| format!("{} uses {}", user.join("::"), used.join("::")))
            .collect();
        assert!(wrong.is_empty(), "{name}, against the flow: {wrong:#?}");
        assert!(uses.len() > 100, "{name}: the files were not found");
    }
}

#[test]
fn sibling_modules_have_no_cycles() {
    let found = ["server", "measure", "tester"]
        .into_iter()
        .flat_map(|name| {
            let circles = Sources::read(name).circles();
            circles.into_iter().map(move |c| format!("{name}, {c}"))
        });
    let found: Vec<_> = found.collect();
    assert!(
        found.is_empty(),
        "move what both use to a module before both: {found:#?}"
    );
}

#[test]
fn dns64d_and_its_libraries_do_not_use_tester() {
    for (folder, strangers) in [
        ("server", &["dns64bench", "dns64-measure"][..]),
        (
            "transport",
            &["dns64bench", "dns64-measure", "dns64d", "dns64-wire"],
        ),
        (
            "wire",
            &["dns64bench", "dns64-measure", "dns64d", "dns64-transport"],
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
fn every_file_has_at_most_600_lines() {
    let long: Vec<_> = rust_files("crates")
        .into_iter()
        .map(|path| (read_to_string(&path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .collect();
    assert!(long.is_empty(), "more than {LINES_MAX} lines: {long:#?}");
}

#[test]
fn architecture_page_lists_every_module() {
    let map = read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for module in TESTER.iter().flat_map(|(_, flow)| *flow) {
        let room = format!("\n    {module}");
        assert!(
            map.contains(&room),
            "ARCHITECTURE.md does not list {module}"
        );
    }
}
