//! Dialogues of the server with clients and upstreams, as scripts: see `script`. Which clause each
//! of them proves stands in docs/rfc6147.md. What is true of any dialogue stands in `laws`.
//!
//! `UPDATE_EXPECT=1 cargo test -p dns64d --test dialogues` writes into the scripts what the engine
//! says now; what has changed is then to be read against the RFCs.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod laws;
mod messages;
mod script;
mod stage;
mod text;
mod twins;

use std::path::Path;

#[test]
fn the_server_says_what_the_scripts_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialogues/scripts");
    let mut paths: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    let wrong: Vec<_> = paths.iter().filter(|path| !is_true(path)).collect();
    assert!(
        wrong.is_empty(),
        "the server says something else: {wrong:#?}"
    );
}

/// Plays a script; whether the engine says what it says. The difference is printed.
fn is_true(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap();
    let outcome = std::panic::catch_unwind(|| {
        expect_test::expect_file![path].assert_eq(&script::play(&text));
    });
    outcome.is_ok()
}
