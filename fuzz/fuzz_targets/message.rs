//! Fuzzes DNS messages: `cargo +nightly fuzz run message`.

#![no_main]

#[path = "../src/message.rs"]
mod message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| message::check(bytes));
