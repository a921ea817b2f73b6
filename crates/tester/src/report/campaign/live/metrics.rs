//! A [`Status`] as metrics for Prometheus, in the text format of OpenMetrics 1.0. `docs/live.md` describes them, and
//! `dist/dns64bench-dashboard.json` shows them.

use std::fmt;

use dns64_transport::clock::SECOND;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
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

#[derive(Debug)]
struct Page(Status);

impl Collector for Page {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = &self.0;
        let mut page = Writer(encoder);
        page.info(status)?;
        page.amounts(status)?;
        page.rates(status)?;
        let is_it = |phase| u64::from(phase == status.phase);
        page.gauges(
            "campaign_phase",
            "1 for what the campaign is busy with, 0 for all else",
            Phase::VARIANTS
                .iter()
                .map(|&phase| ([("phase", word(phase))], is_it(phase))),
        )?;
        page.gauges(
            "campaign_found_qps",
            "Median of the rates that the runs of a point found",
            status.found.iter().map(|f| (point(f), f.median_qps)),
        )?;
        let runs = |found: &Found| found.rates_qps.len() as u64;
        page.gauges(
            "campaign_found_runs",
            "Runs of a point that found a rate",
            status.found.iter().map(|f| (point(f), runs(f))),
        )
    }
}

fn point(found: &Found) -> [(&'static str, &str); 2] {
    [("variant", &found.variant), ("cell", &found.cell)]
}

struct Writer<'e>(DescriptorEncoder<'e>);

impl Writer<'_> {
    fn info(&mut self, status: &Status) -> fmt::Result {
        let info = Info::new([
            ("version", env!("CARGO_PKG_VERSION")),
            ("campaign", status.campaign.as_str()),
        ]);
        let help = "Version of the Tester and name of the campaign";
        self.metric("campaign", help, &info)
    }

    /// Progress of the campaign.
    fn amounts(&mut self, status: &Status) -> fmt::Result {
        self.gauge(
            "campaign_started_time_seconds",
            "When the process began, since 1970",
            Some(status.started_unix_ms as f64 / 1e3),
        )?;
        self.gauge("campaign_tasks", "Tasks of the plan", Some(status.tasks))?;
        self.gauge(
            "campaign_tasks_done",
            "Tasks that are over",
            Some(status.tasks_done),
        )?;
        self.metric(
            "campaign_trials",
            "Trials, those of earlier processes included",
            &ConstCounter::new(status.trials),
        )?;
        self.metric(
            "campaign_invalid_trials",
            "Trials that the Tester disturbed",
            &ConstCounter::new(status.invalid_trials),
        )?;
        self.gauge(
            "campaign_left_seconds",
            "Estimate of the time that is left",
            status.left_ns.map(|ns| (ns / SECOND) as f64),
        )
    }

    /// Rates of the current search.
    fn rates(&mut self, status: &Status) -> fmt::Result {
        self.gauge(
            "campaign_offered_qps",
            "Offered rate of the trial under way",
            status.trial.map(|trial| trial.rate_qps),
        )?;
        self.gauge(
            "campaign_passed_qps",
            "Highest rate that passed in the search under way",
            status.passed_qps,
        )?;
        self.gauge(
            "campaign_failed_qps",
            "Lowest rate that failed in the search under way",
            status.failed_qps,
        )?;
        self.gauge(
            "campaign_certified_qps",
            "Rate for which the Tester is certified",
            status.certified_qps,
        )
    }

    fn metric(&mut self, name: &str, help: &str, metric: &impl EncodeMetric) -> fmt::Result {
        let kind = metric.metric_type();
        metric.encode(self.0.encode_descriptor(name, help, None, kind)?)
    }

    /// A gauge without a line if its value is unknown.
    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        value: Option<impl EncodeGaugeValue>,
    ) -> fmt::Result {
        let value = value.map(ConstGauge::new);
        value.map_or(Ok(()), |gauge| self.metric(name, help, &gauge))
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        figures: impl IntoIterator<Item = (impl EncodeLabelSet, impl EncodeGaugeValue)>,
    ) -> fmt::Result {
        let mut figures = figures.into_iter().peekable();
        if figures.peek().is_none() {
            return Ok(());
        }
        let kind = MetricType::Gauge;
        let mut metric = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in figures {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}
