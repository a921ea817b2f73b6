//! Replays the corpus of the fuzz target `message`, so that it keeps its worth without nightly.

#[path = "../../../fuzz/src/message.rs"]
mod message;

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_of_the_message_target_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/message");
    let mut packets = 0;
    for entry in fs::read_dir(&corpus).expect("the corpus is part of the repository") {
        let path = entry.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        message::check(&bytes);
        // Each beginning of a packet is a packet cut off by the network.
        (0..bytes.len()).for_each(|len| message::check(&bytes[..len]));
        packets += 1;
    }
    assert!(packets >= 12, "{packets} packets in {}", corpus.display());
}
