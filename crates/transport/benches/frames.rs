//! Benchmark of AF_XDP frames, repeated: `frames frame COUNT`. For callgrind (`.ci/budget`): it counts instructions and
//! measures no time.

use std::hint::black_box;

// The module is private to the crate, and its tests are included.
#[path = "../src/xdp/frame.rs"]
#[allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "the bench uses a part of the module"
)]
mod frame;

/// Octets of a query of the Tester without EDNS, and of its synthesised response.
const QUERY_BYTES: usize = 48;
const ANSWER_BYTES: usize = 76;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (stage, count) = (arguments.next(), arguments.next());
    let count = count.and_then(|count| count.parse().ok());
    match (stage.as_deref(), count) {
        (Some("frame"), Some(count)) => frames(count),
        // `cargo bench` without arguments passes no stage.
        (None | Some("--bench"), _) => {}
        (stage, _) => panic!("expected: frames frame COUNT, got {stage:?}"),
    }
}

/// Parses the frame of a query and builds that of its response.
fn frames(count: u64) {
    let ip = |text: &str| text.parse().expect("an address");
    let addresses = frame::addresses(ip("2001:db8::2"), ip("2001:db8::1"));
    let flow = frame::Flow {
        macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
        addresses: addresses.expect("of one family"),
        ports: [4000, 53],
    };
    let mut query = vec![0; 2048];
    let mut answer = vec![0; 2048];
    let len = frame::build(&flow, &[0x5a; QUERY_BYTES], &mut query).expect("room");
    for _ in 0..count {
        let (flow, payload) = frame::parse(black_box(&query[..len]), false).expect("a datagram");
        assert_eq!(payload.len(), QUERY_BYTES);
        let payload = black_box(&[0xa5; ANSWER_BYTES]);
        let built = frame::build(&flow.reversed(), payload, black_box(&mut answer));
        assert!(built.is_some());
    }
}
