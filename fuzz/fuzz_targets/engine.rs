//! Fuzzes the engine with clients, upstreams and the clock: `cargo +nightly fuzz run engine`.

#![no_main]

#[path = "../src/engine.rs"]
mod engine;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| engine::check(bytes));
