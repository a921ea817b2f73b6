//! Fuzzes requests for the metrics page: `cargo +nightly fuzz run http`.

#![no_main]

#[path = "../src/http.rs"]
mod http;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http::check(bytes));
