//! Fuzzes responses of upstreams: `cargo +nightly fuzz run response`.

#![no_main]

#[path = "../src/response.rs"]
mod response;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| response::check(bytes));
