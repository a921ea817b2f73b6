//! Fuzzes the connection of a client: `cargo +nightly fuzz run dialogue`.

#![no_main]

#[path = "../src/dialogue.rs"]
mod dialogue;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dialogue::check(bytes));
