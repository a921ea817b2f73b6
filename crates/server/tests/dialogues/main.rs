//! Dialogues of the server with clients and upstreams, as scripts: see `script`. `docs/rfc6147.md`
//! lists the clause that each of them tests. `laws` has the laws for every dialogue.
//!
//! `UPDATE_EXPECT=1 cargo test -p dns64d --test dialogues` writes the current output of the engine
//! into the scripts. Compare changes with the RFCs.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod laws;
mod messages;
mod script;
mod stage;
mod text;
mod twins;

use std::path::Path;

#[test]
fn server_output_matches_the_scripts() {
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

/// Plays a script and prints the difference. Returns whether there is none.
fn is_true(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap();
    let outcome = std::panic::catch_unwind(|| {
        expect_test::expect_file![path].assert_eq(&script::play(&text));
    });
    outcome.is_ok()
}
