//! Fuzzes requests over the control socket: `cargo +nightly fuzz run control`.

#![no_main]

#[path = "../src/control.rs"]
mod control;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| control::check(bytes));
