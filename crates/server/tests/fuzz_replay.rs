//! Replays the corpora of the fuzz targets of the server, so that they keep their worth without
//! nightly.

#[path = "../../../fuzz/src/config.rs"]
mod config;
#[path = "../../../fuzz/src/control.rs"]
mod control;
#[path = "../../../fuzz/src/dialogue.rs"]
mod dialogue;
#[path = "../../../fuzz/src/engine.rs"]
mod engine;
#[path = "../../../fuzz/src/http.rs"]
mod http;
#[path = "../../../fuzz/src/response.rs"]
mod response;

use std::fs;
use std::path::Path;

/// Beginnings that are tried of one input.
const CUTS: usize = 200;

fn replay(target: &str, check: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let corpus = corpus.join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&corpus).expect("the corpus is part of the repository") {
        let path = entry.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        check(&bytes);
        // Each beginning of an input is an input.
        let cuts = (0..bytes.len()).step_by(1 + bytes.len() / CUTS);
        cuts.for_each(|len| check(&bytes[..len]));
        inputs += 1;
    }
    assert!(inputs >= 12, "{inputs} inputs in {}", corpus.display());
}

#[test]
fn the_corpus_of_the_engine_target_holds() {
    replay("engine", engine::check);
}

#[test]
fn the_corpus_of_the_response_target_holds() {
    replay("response", response::check);
}

#[test]
fn the_corpus_of_the_dialogue_target_holds() {
    replay("dialogue", dialogue::check);
}

#[test]
fn the_corpus_of_the_http_target_holds() {
    replay("http", http::check);
}

#[test]
fn the_corpus_of_the_config_target_holds() {
    replay("config", config::check);
}

#[test]
fn the_corpus_of_the_control_target_holds() {
    replay("control", control::check);
}
