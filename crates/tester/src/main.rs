//! dns64bench.
fn main() {}
