//! Checks that hold for any octets as a request for the metrics page. The fuzz target `http` and
//! the test that replays its corpus use them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};

use dns64d::cache::Cache;
use dns64d::config;
use dns64d::gateway::Mode;
use dns64d::health::InForce;
use dns64d::metrics::{self, Page};
use dns64d::stats::Stats;
use tokio::sync::watch;

/// The address of the page.
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Answers the request and panics if a property is violated.
pub(crate) fn check(bytes: &[u8]) {
    let response = String::from_utf8(metrics::response(bytes, OWN, page())).expect("a text");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
    let status = status.expect("a status line");
    let field = |name: &str| {
        let mut lines = head.split("\r\n");
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let length = field("Content-Length").expect("a length");
    assert_eq!(field("Connection"), Some("close"));
    assert_eq!(field("Allow").is_some(), status.starts_with("405 "));
    // The response does not contain parts of the request.
    assert!(lines.all(|line| line.contains(": ")) && head.is_ascii());
    let whole = bytes.windows(4).any(|end| end == b"\r\n\r\n");
    assert_eq!(status.starts_with("431 "), !whole || bytes.len() > 8192);
    if bytes.starts_with(b"HEAD ") && std::str::from_utf8(bytes).is_ok() {
        return;
    }
    assert_eq!(length, body.len().to_string());
    if status.starts_with("200 ") {
        assert!(bytes.starts_with(b"GET /metrics") && body.starts_with("# HELP "));
    } else {
        assert_eq!(body, format!("{status}\n"));
        let is_foreign = status.starts_with("421 ") || std::str::from_utf8(bytes).is_err();
        let well_formed = [
            &b"GET /metrics HTTP/1.1\r\n"[..],
            b"GET /metrics HTTP/1.0\r\n",
        ];
        assert!(
            !whole
                || is_foreign
                || bytes.len() > 8192
                || !well_formed.iter().any(|line| bytes.starts_with(line))
        );
    }
}

/// A page, rendered once.
fn page() -> &'static Page {
    static PAGE: OnceLock<Page> = OnceLock::new();
    PAGE.get_or_init(|| {
        let settings = config::parse(config::template(), "template").expect("it is valid");
        let cache = Cache::new(&settings.cache, None);
        let mode = Mode {
            in_force: InForce::new(settings),
            draining: false,
        };
        let stats = Stats {
            workers: vec![Arc::default()],
            driver: None,
            cache: Arc::new(cache),
            gateway: Arc::default(),
        };
        Page::new(stats, watch::channel(mode).1, 0)
    })
}
