//! All refusals with their texts.

mod addresses;
mod dns64;
mod driver;
mod forward;
mod local;
mod nat64;
mod ports;
mod server;
mod tls;

use expect_test::Expect;

use super::{beside_upstream, parse};

/// The error for a text.
fn refusal(text: &str) -> String {
    parse(text, "dns64d.toml").map_or_else(|e| e.to_string(), |_| "accepted".to_owned())
}

/// The errors for several texts.
fn refused(texts: &[&str], expected: Expect) {
    let refusals: Vec<String> = texts.iter().map(|text| refusal(text)).collect();
    expected.assert_eq(&(refusals.join("\n---\n") + "\n"));
}

/// Like [`refused`], with an upstream before each text.
fn refused_beside_upstream(texts: &[&str], expected: Expect) {
    let whole: Vec<String> = texts.iter().map(|text| beside_upstream(text)).collect();
    let whole: Vec<&str> = whole.iter().map(String::as_str).collect();
    refused(&whole, expected);
}
