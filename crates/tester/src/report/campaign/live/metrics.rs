//! A [`Status`] as metrics for Prometheus, in the text format of OpenMetrics 1.0. They stand in
//! `docs/live.md`.

use std::fmt;

use dns64_transport::clock::{Nanos, SECOND};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::campaign::status::{Found, Phase, Status};

/// What stands before all names.
const PREFIX: &str = "dns64bench_campaign";

/// The text of `/metrics`.
pub(super) fn text(status: Status) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page(status)));
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Page(Status);

/// Figures of one name.
struct Family<'a> {
    name: &'static str,
    help: &'static str,
    figures: Vec<(Labels<'a>, Value)>,
}

/// Names and values of labels.
type Labels<'a> = Vec<(&'static str, &'a str)>;

#[derive(Clone, Copy)]
enum Value {
    /// Only grows.
    Counter(u64),
    Whole(u64),
    Real(f64),
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = &self.0;
        let info = Info::new([
            ("version", env!("CARGO_PKG_VERSION")),
            ("campaign", status.campaign.as_str()),
        ]);
        let help = "Version of the Tester and name of the campaign";
        info.encode(encoder.encode_descriptor(PREFIX, help, None, MetricType::Info)?)?;
        for family in families(status) {
            encode_family(&mut encoder, &family)?;
        }
        Ok(())
    }
}

/// Everything but the name of the campaign. What is not known at the moment has no figure.
fn families(status: &Status) -> Vec<Family<'_>> {
    let mut families = amounts(status);
    families.extend(rates(status));
    families.push(phase(status));
    let help = "Median of the rates that the runs of a point found";
    families.push(found(status, "found_qps", help, |found| {
        Value::Real(found.median_qps)
    }));
    let help = "Runs of a point that found a rate";
    families.push(found(status, "found_runs", help, |found| {
        Value::Whole(found.rates_qps.len() as u64)
    }));
    families
}

/// How far the campaign is.
fn amounts(status: &Status) -> Vec<Family<'static>> {
    use Value::{Counter, Whole};
    let started = milliseconds(status.started_unix_ms);
    let left = status.left_ns.map(seconds);
    [
        (
            "started_time_seconds",
            "When the process began, since 1970",
            Some(started),
        ),
        ("tasks", "Tasks of the plan", Some(Whole(status.tasks))),
        (
            "tasks_done",
            "Tasks that are over",
            Some(Whole(status.tasks_done)),
        ),
        (
            "trials",
            "Trials, those of earlier processes included",
            Some(Counter(status.trials)),
        ),
        (
            "invalid_trials",
            "Trials that the Tester disturbed",
            Some(Counter(status.invalid_trials)),
        ),
        ("left_seconds", "Estimate of the time that is left", left),
    ]
    .map(one)
    .into()
}

/// What is tried at the moment.
fn rates(status: &Status) -> Vec<Family<'static>> {
    let offered = status.trial.map(|trial| trial.rate_qps);
    [
        (
            "offered_qps",
            "Offered rate of the trial under way",
            offered,
        ),
        (
            "passed_qps",
            "Highest rate that passed in the search under way",
            status.passed_qps,
        ),
        (
            "failed_qps",
            "Lowest rate that failed in the search under way",
            status.failed_qps,
        ),
        (
            "certified_qps",
            "Rate for which the Tester is certified",
            status.certified_qps,
        ),
    ]
    .map(|(name, help, qps)| one((name, help, qps.map(Value::Whole))))
    .into()
}

fn phase(status: &Status) -> Family<'static> {
    let figure = |(phase, name): &(Phase, &'static str)| {
        let is_it = u64::from(*phase == status.phase);
        (vec![("phase", *name)], Value::Whole(is_it))
    };
    Family {
        name: "phase",
        help: "1 for what the campaign is busy with, 0 for all else",
        figures: PHASES.iter().map(figure).collect(),
    }
}

/// A figure without labels, if it is known.
fn one((name, help, value): (&'static str, &'static str, Option<Value>)) -> Family<'static> {
    Family {
        name,
        help,
        figures: value.map(|value| (Vec::new(), value)).into_iter().collect(),
    }
}

/// A figure for each point.
fn found<'a>(
    status: &'a Status,
    name: &'static str,
    help: &'static str,
    value: impl Fn(&Found) -> Value,
) -> Family<'a> {
    let figure = |found: &'a Found| {
        let labels = vec![
            ("variant", found.variant.as_str()),
            ("cell", found.cell.as_str()),
        ];
        (labels, value(found))
    };
    Family {
        name,
        help,
        figures: status.found.iter().map(figure).collect(),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "53 bits of milliseconds last long enough"
)]
fn milliseconds(unix_ms: u64) -> Value {
    Value::Real(unix_ms as f64 / 1e3)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn seconds(span_ns: Nanos) -> Value {
    Value::Real((span_ns / SECOND) as f64)
}

fn encode_family(encoder: &mut DescriptorEncoder<'_>, family: &Family<'_>) -> fmt::Result {
    let Some((_, first)) = family.figures.first() else {
        return Ok(());
    };
    let kind = match first {
        Value::Counter(_) => MetricType::Counter,
        Value::Whole(_) | Value::Real(_) => MetricType::Gauge,
    };
    let name = format!("{PREFIX}_{}", family.name);
    let mut metric = encoder.encode_descriptor(&name, family.help, None, kind)?;
    for (labels, value) in &family.figures {
        if labels.is_empty() {
            encode_value(&mut metric, *value)?;
        } else {
            encode_value(&mut metric.encode_family(labels)?, *value)?;
        }
    }
    Ok(())
}

fn encode_value(metric: &mut MetricEncoder<'_>, value: Value) -> fmt::Result {
    match value {
        Value::Counter(count) => metric.encode_counter::<NoLabelSet, _, u64>(&count, None),
        Value::Whole(whole) => metric.encode_gauge(&whole),
        Value::Real(real) => metric.encode_gauge(&real),
    }
}

/// As they are called in `status.json`.
const PHASES: [(Phase, &str); 6] = [
    (Phase::Preparing, "preparing"),
    (Phase::SelfTest, "self_test"),
    (Phase::Search, "search"),
    (Phase::Overload, "overload"),
    (Phase::Soak, "soak"),
    (Phase::Over, "over"),
];
