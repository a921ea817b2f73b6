//! The metrics page: `GET /metrics` over HTTP/1.1, in the text format of OpenMetrics 1.0.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::counts::{Figure, Shape};
use crate::stats::Stats;

/// Requests that are worked on at once; others wait in the kernel.
const REQUESTS_MAX: usize = 8;

/// Octets of a request that are read: scrapers send a few hundred.
const REQUEST_LEN_MAX: usize = 8 * 1024;

/// How long one request may take in all; scrapers give up after 10 s by default.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// How long no request is accepted after the kernel refused one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What stands before all names.
const PREFIX: &str = "dns64d_";

/// What the page shows.
#[derive(Clone, Debug)]
pub struct Page {
    stats: Stats,
    started_s: f64,
}

impl Page {
    /// A page of these figures, for a process that started at `started` on the monotonic clock.
    pub fn new(stats: Stats, started: Nanos) -> Self {
        let started_ns = started.cast_signed() + MonotonicClock.realtime_offset();
        Self {
            stats,
            started_s: Duration::from_nanos(started_ns.cast_unsigned()).as_secs_f64(),
        }
    }

    /// The text of the page now.
    pub fn text(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        // Writing into a string does not fail.
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
        Ok(())
    }
}

/// Figures of one name, at least one.
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

fn encode_value(metric: &mut MetricEncoder<'_>, figure: &Figure) -> fmt::Result {
    match figure.shape {
        Shape::Counter => metric.encode_counter::<NoLabelSet, _, u64>(&figure.value, None),
        // A gauge is below 2^63: it counts octets or entries in memory.
        Shape::Gauge => metric.encode_gauge(&figure.value.cast_signed()),
    }
}

/// Serves the page for as long as the runtime turns. Needs a [`tokio::task::LocalSet`].
///
/// # Errors
///
/// A socket that tokio does not take.
pub async fn serve(listener: TcpListener, page: Page) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let page = Rc::new(page);
    let places = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        // Fails only once it is closed, which nobody does.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return Ok(());
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Mostly for want of descriptors.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let page = Rc::clone(&page);
        tokio::task::spawn_local(async move {
            // Whoever is too slow, or gone, does not get the page.
            let _ = tokio::time::timeout(REQUEST_TIME, answer(stream, &page)).await;
            drop(place);
        });
    }
}

async fn answer(mut stream: TcpStream, page: &Page) -> io::Result<()> {
    let mut request = Vec::new();
    while !is_whole(&request) && request.len() < REQUEST_LEN_MAX {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    stream.write_all(&response(&request, page)).await?;
    stream.shutdown().await
}

/// Whether the head of a request has ended; requests for the page have no body.
fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|end| end == b"\r\n\r\n")
}

/// The response to a request.
fn response(request: &[u8], page: &Page) -> Vec<u8> {
    let line = request.split(|&octet| octet == b'\r').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let path = target.map(|target| target.split('?').next().unwrap_or_default());
    let status = match (method, path, version) {
        _ if !is_whole(request) => "431 Request Header Fields Too Large",
        (Some("GET"), Some("/metrics"), Some("HTTP/1.1" | "HTTP/1.0")) => "200 OK",
        (Some(_), Some("/metrics"), Some(_)) => "405 Method Not Allowed",
        (Some(_), Some(_), Some(_)) => "404 Not Found",
        _ => "400 Bad Request",
    };
    let (content, body) = if status == "200 OK" {
        (
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            page.text(),
        )
    } else {
        ("text/plain; charset=utf-8", format!("{status}\n"))
    };
    let allow = if status.starts_with("405") {
        "Allow: GET\r\n"
    } else {
        ""
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::thread;

    use expect_test::expect;
    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    use super::*;
    use crate::cache::Cache;
    use crate::config;

    fn page() -> Page {
        let settings = config::parse(config::template(), "template").unwrap();
        let stats = Stats {
            workers: vec![Arc::default(), Arc::default()],
            cache: Arc::new(Cache::new(&settings.cache, None)),
            gateway: Arc::default(),
        };
        stats.workers[0].queries_udp.add(2);
        stats.workers[1].queries_udp.add(3);
        stats.gateway.closed_idle.add(7);
        Page {
            stats,
            started_s: 1_700_000_000.25,
        }
    }

    fn respond(request: &str) -> String {
        String::from_utf8(response(request.as_bytes(), &page())).unwrap()
    }

    #[test]
    fn the_page_has_all_figures_with_their_labels() {
        let text = page().text();
        let chosen = [
            "dns64d_build",
            "start_time",
            "_queries ",
            "_queries_total",
            "cache_bytes",
            "tcp_closed",
            "EOF",
        ];
        let chosen = |line: &&str| chosen.iter().any(|word| line.contains(word));
        let shown: Vec<_> = text.lines().filter(chosen).collect();
        expect![[r##"
            # HELP dns64d_build Version of the program
            # TYPE dns64d_build info
            dns64d_build_info{version="0.1.0"} 1
            # HELP process_start_time_seconds When the process started, in seconds since 1970
            # TYPE process_start_time_seconds gauge
            process_start_time_seconds 1700000000.25
            # HELP dns64d_queries Queries taken in, by transport
            # TYPE dns64d_queries counter
            dns64d_queries_total{transport="udp"} 5
            dns64d_queries_total{transport="tcp"} 0
            # HELP dns64d_upstream_queries Questions sent to upstreams, by transport
            # TYPE dns64d_upstream_queries counter
            dns64d_upstream_queries_total{transport="udp"} 0
            dns64d_upstream_queries_total{transport="tcp"} 0
            # HELP dns64d_cache_bytes Memory of the answers in the cache, in octets
            # TYPE dns64d_cache_bytes gauge
            dns64d_cache_bytes 0
            # HELP dns64d_tcp_closed Connections of clients that were closed, by reason
            # TYPE dns64d_tcp_closed counter
            dns64d_tcp_closed_total{reason="client"} 0
            dns64d_tcp_closed_total{reason="idle"} 7
            dns64d_tcp_closed_total{reason="unread"} 0
            dns64d_tcp_closed_total{reason="unanswered"} 0
            dns64d_tcp_closed_total{reason="format"} 0
            dns64d_tcp_closed_total{reason="full"} 0
            dns64d_tcp_closed_total{reason="drain"} 0
            # EOF"##]]
        .assert_eq(&shown.join("\n"));
        let samples = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(samples, 2 + page().stats.figures().len());
    }

    #[test]
    fn only_the_page_is_there() {
        let (head, body) = {
            let whole = respond("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            let (head, body) = whole.split_once("\r\n\r\n").unwrap();
            (head.to_owned(), body.to_owned())
        };
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", body.len())),
            "{head}"
        );
        assert_eq!(body, page().text());
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/x HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
            ("GET /metrics HTTP/1.1\r\nX: ", "431"),
        ] {
            let got = respond(request);
            assert!(
                got.starts_with(&format!("HTTP/1.1 {status} ")),
                "{request:?}: {got}"
            );
        }
    }

    #[test]
    fn whoever_asks_gets_the_page_and_the_end_of_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        // Ends with the process of the tests.
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, serve(listener, page()))
        });
        let idle: Vec<_> = (1..REQUESTS_MAX)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        for piece in ["GET /metr", "ics HTTP/1.1\r\n", "Host: x\r\n\r\n"] {
            stream.write_all(piece.as_bytes()).unwrap();
        }
        let mut got = String::new();
        stream.read_to_string(&mut got).unwrap();
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{got}");
        assert!(got.ends_with("# EOF\n"), "{got}");
        drop(idle);
    }
}
