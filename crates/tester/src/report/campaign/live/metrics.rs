//! A [`Status`] as metrics for Prometheus, in the text format of OpenMetrics 1.0. `docs/live.md` describes them, and
//! `dist/dns64bench-dashboard.json` shows them.

use std::fmt;

use dns64_transport::clock::SECOND;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric as _,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use strum::VariantArray as _;

use crate::campaign::status::{Found, Phase, Status};
use crate::report::json::word;

/// The text of `/metrics`.
pub(super) fn text(status: Status) -> String {
    let mut registry = Registry::with_prefix("dns64bench");
    registry.register_collector(Box::new(Page(status)));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

/// Name, help and value of a figure.
type Figure<V> = (&'static str, &'static str, fn(&Status) -> V);

const COUNTERS: [Figure<u64>; 2] = [
    (
        "campaign_trials",
        "Trials, including those of earlier processes",
        |it| it.trials,
    ),
    (
        "campaign_invalid_trials",
        "Trials that the Tester disturbed",
        |it| it.invalid_trials,
    ),
];

/// Those without a value are left out.
const GAUGES: [Figure<Option<f64>>; 8] = [
    (
        "campaign_started_time_seconds",
        "When the process began, since 1970",
        |it| Some(it.started_unix_ms as f64 / 1e3),
    ),
    ("campaign_tasks", "Tasks of the plan", |it| {
        Some(it.tasks as f64)
    }),
    ("campaign_tasks_done", "Tasks that are over", |it| {
        Some(it.tasks_done as f64)
    }),
    ("campaign_left_seconds", "Estimated remaining time", |it| {
        Some((it.left_ns? / SECOND) as f64)
    }),
    (
        "campaign_offered_qps",
        "Offered rate of the current trial",
        |it| Some(it.trial?.rate_qps as f64),
    ),
    (
        "campaign_passed_qps",
        "Highest rate that passed in the current search",
        |it| Some(it.passed_qps? as f64),
    ),
    (
        "campaign_failed_qps",
        "Lowest rate that failed in the current search",
        |it| Some(it.failed_qps? as f64),
    ),
    (
        "campaign_certified_qps",
        "Rate for which the Tester is certified",
        |it| Some(it.certified_qps? as f64),
    ),
];

#[derive(Debug)]
struct Page(Status);

impl Collector for Page {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(status) = self;
        let info = Info::new([
            ("version", env!("CARGO_PKG_VERSION")),
            ("campaign", status.campaign.as_str()),
        ]);
        let help = "Version of the Tester and name of the campaign";
        info.encode(to.encode_descriptor("campaign", help, None, MetricType::Info)?)?;
        for (name, help, value) in COUNTERS {
            let counter = ConstCounter::new(value(status));
            counter.encode(to.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        for (name, help, value) in GAUGES {
            if let Some(value) = value(status) {
                to.encode_descriptor(name, help, None, MetricType::Gauge)?
                    .encode_gauge(&value)?;
            }
        }
        let is_it = |phase| u64::from(phase == status.phase);
        let phases = Phase::VARIANTS.iter();
        gauges(
            &mut to,
            "campaign_phase",
            "1 for the current phase, 0 for all others",
            phases.map(|&phase| ([("phase", word(phase))], is_it(phase))),
        )?;
        let found = || status.found.iter();
        gauges(
            &mut to,
            "campaign_found_qps",
            "Median of the rates that the runs of a point found",
            found().map(|it| (point(it), it.median_qps)),
        )?;
        gauges(
            &mut to,
            "campaign_found_runs",
            "Runs of a point that found a rate",
            found().map(|it| (point(it), it.rates_qps.len() as u64)),
        )
    }
}

fn point(found: &Found) -> [(&'static str, &str); 2] {
    [("variant", &found.variant), ("cell", &found.cell)]
}

/// Writes one gauge for each of these labels; nothing if there is none.
fn gauges(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    figures: impl IntoIterator<Item = (impl EncodeLabelSet, impl EncodeGaugeValue)>,
) -> fmt::Result {
    let mut figures = figures.into_iter().peekable();
    if figures.peek().is_none() {
        return Ok(());
    }
    let mut metric = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in figures {
        metric.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}
