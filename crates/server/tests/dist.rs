//! Checks that the files for Prometheus and Grafana use metrics that exist, and that the unit
//! restarts the service.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use dns64d::cache::Cache;
use dns64d::config;
use dns64d::gateway::Mode;
use dns64d::health::{InForce, UpstreamState};
use dns64d::metrics::{Page, response};
use dns64d::settings::TlsSettings;
use dns64d::stats::Stats;
use dns64d::tls::Certificate;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::sync::watch;

const RULES: &str = include_str!("../dist/dns64d.rules.yml");
const DASHBOARD: &str = include_str!("../dist/dns64d-dashboard.json");
const UNIT: &str = include_str!("../dist/dns64d.service");
const WORKSPACE: &str = include_str!("../../../Cargo.toml");

/// The metrics page of a server with one worker, whose upstream has answered.
fn page() -> Page {
    let mut settings =
        config::parse(config::template(), "template").expect("the template is valid");
    let issued = generate_simple_self_signed(["dns.example".to_owned()]).expect("a certificate");
    let CertifiedKey { cert, signing_key } = issued;
    let (chain, key) = (cert.pem(), signing_key.serialize_pem());
    settings.tls = Some(TlsSettings {
        listen: Vec::new(),
        certificate_file: PathBuf::new(),
        key_file: PathBuf::new(),
        certificate: Certificate::read(chain.as_bytes(), key.as_bytes()).ok(),
    });
    let stats = Stats {
        workers: vec![Arc::default()],
        driver: None,
        cache: Arc::new(Cache::new(&settings.cache, None)),
        gateway: Arc::default(),
    };
    let in_force = InForce::new(settings);
    let state = UpstreamState {
        rtt_ns: Some(1),
        ..UpstreamState::default()
    };
    in_force.health.publish(0, 0, state);
    let (_sender, mode) = watch::channel(Mode {
        in_force,
        draining: false,
    });
    Page::new(stats, mode, 0)
}

#[test]
#[ignore = "needs promtool: run by .ci/run rules"]
fn promtool_accepts_the_metrics_page() {
    let response = response(
        b"GET /metrics HTTP/1.1\r\n\r\n",
        Ipv4Addr::LOCALHOST.into(),
        &page(),
    );
    let end = response
        .windows(4)
        .position(|end| end == b"\r\n\r\n")
        .unwrap();
    let mut promtool = Command::new("promtool");
    promtool
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(&response[end + 4..])
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{told}");
}

/// The metrics in a text, each with its selector in braces.
fn metrics(text: &str) -> Vec<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let found = text.match_indices("dns64d_").filter_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        let name = text[at..].split(|c| !is_part(c)).next()?;
        let labels = text[at + name.len()..].strip_prefix('{');
        let labels = labels.map_or("", |labels| labels.split('}').next().unwrap_or_default());
        (!before.is_some_and(is_part)).then_some((name, labels))
    });
    found.collect()
}

/// The labels of a selector that must equal one value, as `label="value"`.
fn equal(labels: &str) -> impl Iterator<Item = &str> {
    let labels = labels.split(',').map(str::trim);
    labels.filter(|label| label.contains("=\"") && !label.contains('$'))
}

#[test]
fn metrics_of_dashboard_and_rules_exist() {
    let page = page().text();
    let samples: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    let targets = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap());
    let mut texts: Vec<&str> = targets.collect();
    assert!(texts.len() > 30, "{texts:?}");
    texts.push(RULES);
    let mut missing = BTreeSet::new();
    for (name, labels) in texts.into_iter().flat_map(metrics) {
        let of_name = samples.iter().filter(|sample| {
            let rest = sample.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let mut fitting = of_name.filter(|sample| equal(labels).all(|l| sample.contains(l)));
        if fitting.next().is_none() {
            missing.insert((name, labels));
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn metrics_are_found_with_their_labels() {
    let text = "rate(dns64d_a_total{job=\"$job\", reason=\"full\"}[5m]) / dns64d_b > xdns64d_c";
    let found = metrics(text);
    let labels = "job=\"$job\", reason=\"full\"";
    assert_eq!(found, [("dns64d_a_total", labels), ("dns64d_b", "")]);
    assert_eq!(equal(labels).collect::<Vec<_>>(), ["reason=\"full\""]);
}

#[test]
fn service_restarts_after_panics_and_repeated_failures() {
    let sets = |text: &str, line: &str| text.lines().any(|l| l.replace(' ', "") == line);
    assert!(
        !sets(WORKSPACE, "panic=\"abort\""),
        "workers outlive panics"
    );
    assert!(sets(UNIT, "StartLimitIntervalSec=0"));
    assert!(sets(UNIT, "Restart=on-failure"));
}
