//! The metrics page: `GET /metrics` over HTTP/1.1, in the text format of OpenMetrics 1.0 or of Prometheus.
//!
//! - [`Page`]: the text;
//! - `exposition`: its two formats;
//! - `http`: connections for it; `message`: requests and responses.

#[path = "../../../exposition.rs"]
mod exposition;
mod http;
#[path = "../../../http.rs"]
mod message;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::watch;

use crate::counts::{BOUNDS_NS, Figure, Shape};
use crate::gateway::Mode;
use crate::health::{Health, InForce, UpstreamState};
use crate::settings::nets::ClientNetwork;
use crate::settings::{Settings, Upstream};
use crate::stats::{Distribution, Stats};
use crate::tls::Certificate;

#[doc(inline)]
pub use http::{response, serve};

/// Prefix of all names.
const PREFIX: &str = "dns64d_";

/// The source of the page.
#[derive(Clone, Debug)]
pub struct Page {
    stats: Stats,
    /// For the settings, which name the upstreams.
    mode: watch::Receiver<Mode>,
    started_s: f64,
}

impl Page {
    /// Creates a page of these figures, for a process that started at `started` on the monotonic clock.
    pub fn new(stats: Stats, mode: watch::Receiver<Mode>, started: Nanos) -> Self {
        let started_ns = started.cast_signed() + MonotonicClock.realtime_offset();
        Self {
            stats,
            mode,
            started_s: Duration::from_nanos(started_ns.cast_unsigned()).as_secs_f64(),
        }
    }

    /// The network that counts as one client of the page.
    fn network_of(&self, client: IpAddr) -> ClientNetwork {
        let mode = self.mode.borrow();
        mode.in_force.settings.client_prefixes.network(client)
    }

    /// The current text of the page, in OpenMetrics.
    pub fn text(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        let name = format!("{PREFIX}build");
        let help = "Version of the program";
        build.encode(encoder.encode_descriptor(&name, help, None, MetricType::Info)?)?;
        let started = ConstGauge::new(self.started_s);
        let help = "When the process started, in seconds since 1970";
        let name = "process_start_time_seconds";
        started.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        let figures = self.stats.figures();
        for family in figures.chunk_by(|a, b| a.name == b.name) {
            encode_family(&mut encoder, family)?;
        }
        let in_force = self.mode.borrow().in_force.clone();
        encode_upstreams(&mut encoder, &in_force.health)?;
        encode_sets(&mut encoder, &in_force)?;
        encode_prefixes(&mut encoder, &in_force)?;
        encode_certificate(&mut encoder, &in_force.settings)?;
        encode_faults(&mut encoder, &self.stats, &in_force.settings.upstreams)?;
        let distributions = self.stats.distributions(&in_force.settings.upstreams);
        for family in distributions.chunk_by(|a, b| a.name == b.name) {
            encode_distributions(&mut encoder, family)?;
        }
        Ok(())
    }
}

/// Encodes the figures of one name, at least one.
fn encode_family(encoder: &mut DescriptorEncoder<'_>, family: &[Figure]) -> fmt::Result {
    let Some(first) = family.first() else {
        return Ok(());
    };
    let shape = match first.shape {
        Shape::Counter => MetricType::Counter,
        Shape::Gauge => MetricType::Gauge,
    };
    let name = format!("{PREFIX}{}", first.name);
    let mut metric = encoder.encode_descriptor(&name, first.help, None, shape)?;
    for figure in family {
        if figure.label.0.is_empty() {
            encode_value(&mut metric, figure)?;
        } else {
            let labels = [figure.label];
            encode_value(&mut metric.encode_family(&labels)?, figure)?;
        }
    }
    Ok(())
}

/// Encodes the state of the sets of upstreams.
fn encode_sets(encoder: &mut DescriptorEncoder<'_>, in_force: &InForce) -> fmt::Result {
    let name = format!("{PREFIX}forward_upstreams_up");
    let help = "Number of upstreams that are up, of [upstream] and of each [[forward]]";
    let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
    for (set, up) in in_force.sets() {
        let labels = [("forward", set.name.as_str())];
        // There are at most 32.
        let up = f64::from(u32::try_from(up).unwrap_or_default());
        metric.encode_family(&labels)?.encode_gauge(&up)?;
    }
    Ok(())
}

/// Encodes whether each prefix is in use.
fn encode_prefixes(encoder: &mut DescriptorEncoder<'_>, in_force: &InForce) -> fmt::Result {
    let name = format!("{PREFIX}nat64_up");
    let help =
        "Whether AAAA records are synthesised with the prefix; 0: its translator does not answer";
    let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
    for prefix in in_force.settings.prefixes() {
        let up = f64::from(u8::from(!in_force.settings.is_withdrawn(prefix)));
        let labels = [("prefix", prefix.to_string())];
        metric.encode_family(&labels)?.encode_gauge(&up)?;
    }
    Ok(())
}

/// Encodes when the certificate expires, if there is one.
fn encode_certificate(encoder: &mut DescriptorEncoder<'_>, settings: &Settings) -> fmt::Result {
    let certificate = settings
        .tls
        .as_ref()
        .and_then(|tls| tls.certificate.as_ref());
    let Some(validity_s) = certificate.and_then(Certificate::validity_s) else {
        return Ok(());
    };
    let name = format!("{PREFIX}tls_certificate_expiry_timestamp_seconds");
    let help = "When the certificate of [tls] expires, in seconds since 1970";
    let expiry = ConstGauge::new(Duration::from_secs(*validity_s.end()).as_secs_f64());
    expiry.encode(encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?)
}

/// Encodes the state of the upstreams. An upstream without a response so far has no round-trip time.
fn encode_upstreams(encoder: &mut DescriptorEncoder<'_>, health: &Health) -> fmt::Result {
    let states: Vec<_> = health
        .states()
        .map(|(address, state)| (address.to_string(), state))
        .collect();
    let mut family = |name, help, unit, value: fn(&UpstreamState) -> Option<f64>| {
        let name = format!("{PREFIX}upstream_{name}");
        let mut metric = encoder.encode_descriptor(&name, help, unit, MetricType::Gauge)?;
        for (address, state) in &states {
            if let Some(value) = value(state) {
                let labels = [("upstream", address.as_str())];
                metric.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    };
    family(
        "up",
        "Whether an upstream is up: 1, or 0 if it is down",
        None,
        |state| Some(f64::from(u8::from(state.down_since.is_none()))),
    )?;
    let seconds_of = |state: &UpstreamState| state.rtt_ns.map(seconds);
    family(
        "rtt",
        "Smoothed round-trip time to an upstream",
        Some(&Unit::Seconds),
        seconds_of,
    )?;
    family(
        "loss_ratio",
        "Smoothed share of questions that an upstream did not answer in time",
        None,
        |state| Some(f64::from(state.loss_ppm) / 1e6),
    )?;
    family(
        "failed_ratio",
        "Smoothed share of names for which an upstream had no answer of use",
        None,
        |state| Some(f64::from(state.failed_ppm) / 1e6),
    )
}

/// Encodes the failures of the upstreams, by reason.
fn encode_faults(
    encoder: &mut DescriptorEncoder<'_>,
    stats: &Stats,
    upstreams: &[Upstream],
) -> fmt::Result {
    let name = format!("{PREFIX}upstream_faults");
    let help = "Questions that an upstream failed, by upstream and reason";
    let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
    for (server, upstream) in upstreams.iter().enumerate() {
        let address = upstream.address.to_string();
        for (fault, count) in stats.upstream_faults(server) {
            let labels = [("upstream", address.as_str()), ("reason", fault.name())];
            let mut metric = metric.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    Ok(())
}

/// Encodes the distributions of one name, at least one.
fn encode_distributions(
    encoder: &mut DescriptorEncoder<'_>,
    family: &[Distribution],
) -> fmt::Result {
    let Some(first) = family.first() else {
        return Ok(());
    };
    let name = format!("{PREFIX}{}", first.name);
    let (unit, shape) = (Some(&Unit::Seconds), MetricType::Histogram);
    let mut metric = encoder.encode_descriptor(&name, first.help, unit, shape)?;
    for distribution in family {
        let times = &distribution.times;
        let bounds = BOUNDS_NS.map(seconds).into_iter().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(times.buckets).collect();
        let labels = [(distribution.label.0, distribution.label.1.as_str())];
        metric
            .encode_family(&labels)?
            .encode_histogram::<NoLabelSet>(seconds(times.sum_ns), times.count(), &buckets, None)?;
    }
    Ok(())
}

fn seconds(time_ns: Nanos) -> f64 {
    Duration::from_nanos(time_ns).as_secs_f64()
}

fn encode_value(metric: &mut MetricEncoder<'_>, figure: &Figure) -> fmt::Result {
    match figure.shape {
        Shape::Counter => metric.encode_counter::<NoLabelSet, _, u64>(&figure.value, None),
        // A gauge is below 2^63: it counts octets or entries in memory.
        Shape::Gauge => metric.encode_gauge(&figure.value.cast_signed()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cache::Cache;
    use crate::config;
    use crate::counts::Fault;
    use crate::health::InForce;
    use expect_test::expect;

    pub(super) fn page() -> Page {
        let settings = config::parse(config::template(), "template").unwrap();
        let stats = Stats {
            workers: vec![Arc::default(), Arc::default()],
            driver: None,
            cache: Arc::new(Cache::new(&settings.cache, None)),
            gateway: Arc::default(),
        };
        stats.workers[0].queries_udp.add(2);
        stats.workers[1].queries_udp.add(3);
        stats.gateway.closed_idle.add(7);
        stats.workers[0].waited.observe(1_500_000);
        stats.workers[1].waited.observe(20_000_000_000);
        let in_force = InForce::new(settings);
        let state = UpstreamState {
            rtt_ns: Some(1_250_000),
            loss_ppm: 62_500,
            failed_ppm: 750_000,
            heard_at: Some(1),
            down_since: Some(2),
            fault: Some(Fault::Refused),
            ..UpstreamState::default()
        };
        stats.workers[0].upstream_fault(0, Fault::Refused).add(3);
        in_force.health.publish(0, 0, state);
        let (_, mode) = watch::channel(Mode {
            in_force,
            draining: false,
        });
        Page {
            stats,
            mode,
            started_s: 1_700_000_000.25,
        }
    }

    /// The lines that contain one of these words.
    fn lines(text: &str, words: &[&str]) -> String {
        let chosen = |line: &&str| words.iter().any(|word| line.contains(word));
        let lines: Vec<_> = text.lines().filter(chosen).collect();
        lines.join("\n")
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "it is the page")]
    fn page_contains_all_figures_with_labels() {
        let text = page().text();
        let chosen = [
            "dns64d_build",
            "start_time",
            "_queries ",
            "_queries_total",
            "cache_bytes",
            "tcp_closed",
            "duration_seconds_sum",
            "duration_seconds_count",
            "le=\"0.001\",outcome=\"asked\"",
            "le=\"0.002\",outcome=\"asked\"",
            "le=\"+Inf\",outcome=\"asked\"",
            "upstream_duration_seconds_count",
            "EOF",
        ];
        let shown = lines(&text, &chosen);
        expect![[r##"
            # HELP dns64d_build Version of the program
            # TYPE dns64d_build info
            dns64d_build_info{version="0.1.0"} 1
            # HELP process_start_time_seconds When the process started, in seconds since 1970
            # TYPE process_start_time_seconds gauge
            process_start_time_seconds 1700000000.25
            # HELP dns64d_queries Queries received, by transport
            # TYPE dns64d_queries counter
            dns64d_queries_total{transport="udp"} 5
            dns64d_queries_total{transport="tcp"} 0
            dns64d_queries_total{transport="tls"} 0
            # HELP dns64d_upstream_queries Questions sent to upstreams, by transport
            # TYPE dns64d_upstream_queries counter
            dns64d_upstream_queries_total{transport="udp"} 0
            dns64d_upstream_queries_total{transport="tcp"} 0
            dns64d_upstream_queries_total{transport="tls"} 0
            # HELP dns64d_cache_bytes Memory of the answers in the cache, in octets
            # TYPE dns64d_cache_bytes gauge
            dns64d_cache_bytes 0
            # HELP dns64d_cache_bytes_max Bound on the memory of the cache, in octets
            # TYPE dns64d_cache_bytes_max gauge
            dns64d_cache_bytes_max 268435456
            # HELP dns64d_tcp_closed Connections of clients that were closed, by reason
            # TYPE dns64d_tcp_closed counter
            dns64d_tcp_closed_total{reason="client"} 0
            dns64d_tcp_closed_total{reason="idle"} 7
            dns64d_tcp_closed_total{reason="unread"} 0
            dns64d_tcp_closed_total{reason="unanswered"} 0
            dns64d_tcp_closed_total{reason="format"} 0
            dns64d_tcp_closed_total{reason="tls"} 0
            dns64d_tcp_closed_total{reason="full"} 0
            dns64d_tcp_closed_total{reason="drain"} 0
            dns64d_query_duration_seconds_sum{outcome="cached"} 0.0
            dns64d_query_duration_seconds_count{outcome="cached"} 0
            dns64d_query_duration_seconds_sum{outcome="asked"} 20.0015
            dns64d_query_duration_seconds_count{outcome="asked"} 2
            dns64d_query_duration_seconds_bucket{le="0.001",outcome="asked"} 0
            dns64d_query_duration_seconds_bucket{le="0.002",outcome="asked"} 1
            dns64d_query_duration_seconds_bucket{le="+Inf",outcome="asked"} 2
            dns64d_upstream_duration_seconds_sum{upstream="192.0.2.53:53"} 0.0
            dns64d_upstream_duration_seconds_count{upstream="192.0.2.53:53"} 0
            # EOF"##]]
        .assert_eq(&shown);
    }

    #[test]
    fn page_contains_nothing_else() {
        let text = page().text();
        let samples = text.lines().filter(|line| !line.starts_with('#')).count();
        // Two queries and one upstream, each with a sum, a count and its buckets.
        let histograms = 3 * (2 + BOUNDS_NS.len() + 1);
        let upstream = 5 + Fault::ALL.len();
        // Version, start and the one prefix.
        assert_eq!(
            samples - upstream - histograms,
            3 + page().stats.figures().len()
        );
    }

    #[test]
    fn upstream_has_its_state_and_measurements() {
        let text = page().text();
        let shown = lines(
            &text,
            &[
                "upstream_up",
                "upstream_rtt",
                "upstream_loss",
                "upstream_fa",
            ],
        );
        expect![[r##"
            # HELP dns64d_upstream_failures Questions that an upstream failed, by reason
            # TYPE dns64d_upstream_failures counter
            dns64d_upstream_failures_total{reason="timeout"} 0
            dns64d_upstream_failures_total{reason="rcode"} 0
            dns64d_upstream_failures_total{reason="truncated"} 0
            dns64d_upstream_failures_total{reason="connection"} 0
            dns64d_upstream_failures_total{reason="unreachable"} 0
            dns64d_upstream_failures_total{reason="guessed-ids"} 0
            # HELP dns64d_upstream_up Whether an upstream is up: 1, or 0 if it is down
            # TYPE dns64d_upstream_up gauge
            dns64d_upstream_up{upstream="192.0.2.53:53"} 0.0
            # HELP dns64d_upstream_rtt_seconds Smoothed round-trip time to an upstream
            # TYPE dns64d_upstream_rtt_seconds gauge
            # UNIT dns64d_upstream_rtt_seconds seconds
            dns64d_upstream_rtt_seconds{upstream="192.0.2.53:53"} 0.00125
            # HELP dns64d_upstream_loss_ratio Smoothed share of questions that an upstream did not answer in time
            # TYPE dns64d_upstream_loss_ratio gauge
            dns64d_upstream_loss_ratio{upstream="192.0.2.53:53"} 0.0625
            # HELP dns64d_upstream_failed_ratio Smoothed share of names for which an upstream had no answer of use
            # TYPE dns64d_upstream_failed_ratio gauge
            dns64d_upstream_failed_ratio{upstream="192.0.2.53:53"} 0.75
            # HELP dns64d_upstream_faults Questions that an upstream failed, by upstream and reason
            # TYPE dns64d_upstream_faults counter
            dns64d_upstream_faults_total{upstream="192.0.2.53:53",reason="no-answer"} 0
            dns64d_upstream_faults_total{upstream="192.0.2.53:53",reason="connection"} 0
            dns64d_upstream_faults_total{upstream="192.0.2.53:53",reason="tls"} 0
            dns64d_upstream_faults_total{upstream="192.0.2.53:53",reason="refused"} 3
            dns64d_upstream_faults_total{upstream="192.0.2.53:53",reason="servfail"} 0
            dns64d_upstream_faults_total{upstream="192.0.2.53:53",reason="formerr"} 0
            dns64d_upstream_faults_total{upstream="192.0.2.53:53",reason="rcode"} 0
            dns64d_upstream_faults_total{upstream="192.0.2.53:53",reason="lame"} 0
            dns64d_upstream_faults_total{upstream="192.0.2.53:53",reason="loop"} 0"##]]
        .assert_eq(&shown);
    }
}
