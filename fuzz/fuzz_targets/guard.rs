//! Fuzzes messages of clients: `cargo +nightly fuzz run guard`.

#![no_main]

#[path = "../src/guard.rs"]
mod guard;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| guard::check(bytes));
