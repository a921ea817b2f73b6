//! Rows of the evidence of a trial: times, timing, cores.

use dns64_transport::clock::Nanos;

use super::super::{Span, Thousands};
use super::span;
use crate::load::catch_up::Limits;
use crate::machine::usage::RoleUsage;
use crate::trial::path::Path;
use crate::trial::result::{CatchUp, Connections, Rtt, TimeSeries, Timing};
use crate::trial::service::{By, Service};

pub(super) fn round_trips(rtt: Rtt) -> Vec<(&'static str, String)> {
    let spans = [rtt.p50, rtt.p99, rtt.p999, rtt.max];
    let rows = QUANTILES.into_iter().zip(spans);
    let known: Vec<_> = rows
        .filter_map(|(label, ns)| Some((label, span(ns?))))
        .collect();
    match known.as_slice() {
        [] => vec![("none", "no query was answered".to_owned())],
        _ => known,
    }
}

/// Share of the queries that were lost over the time of a trial, as a row of bars.
pub(super) fn losses_over_time(series: &TimeSeries) -> (String, String) {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |[sent, lost]: [u64; 2]| {
        let eighths = (lost * 8).div_ceil(sent.max(1));
        BARS[usize::try_from(eighths).unwrap_or(8).min(8)]
    };
    let (slice_ns, slices) = series.thinned(BARS_MAX);
    (
        format!("{} each, full: all", Span(slice_ns)),
        format!("[{}]", slices.into_iter().map(bar).collect::<String>()),
    )
}

/// Most bars in a row of a terminal.
const BARS_MAX: usize = 50;

pub(super) fn service_rows(service: Service) -> [(&'static str, String); 2] {
    let by = match service.by {
        By::Delay => "by the slope of their delay",
        By::Drain => "by those after the last query",
    };
    let until = match (service.by, service.stores_queries) {
        (By::Drain, _) => "too quickly to be followed",
        (By::Delay, true) => "until the last query: the DUT stores them",
        (By::Delay, false) => "until a queue was full",
    };
    let (served, slope) = (
        Thousands(service.sustainable_qps),
        service.slope_ns_per_s / 1e6,
    );
    [
        ("answers per second", format!("{served:>16}  {by}")),
        ("their delay grew, ms/s", format!("{slope:>16.1}  {until}")),
    ]
}

/// Connections, and queries lost with those that the server ended.
pub(super) fn connection_rows(connections: &Connections) -> Vec<(&'static str, String)> {
    let before = connections.before_trial;
    let text = |n: u64, meaning: String| format!("{:>16}  {meaning}", Thousands(n));
    let before = format!("{} of them before the first query", Thousands(before));
    let mut rows = vec![("established", text(connections.established, before))];
    let times = connections.set_up_ns;
    if let (Some(p50), Some(p99), Some(max)) = (times.p50, times.p99, times.max) {
        let (p50, p99, max) = (Span(p50), Span(p99), Span(max));
        rows.push((
            "set-up time",
            format!("p50 {p50}, p99 {p99}, largest {max}"),
        ));
    }
    let mut some = |label, n: u64, meaning: String| {
        rows.extend((n > 0).then(|| (label, text(n, meaning))));
    };
    let idle = "without an open query, which is normal".to_owned();
    some("ended by the server", connections.ended_idle, idle);
    for (ended, how) in connections.endings() {
        let lost = format!("{how}: {} queries lost", Thousands(ended.queries));
        some("ended by the server", ended.connections, lost);
    }
    let not_read = "the server did not read them".to_owned();
    some("queries lost", connections.queries_not_read, not_read);
    let again = "sent again by the Measurer's kernel".to_owned();
    some("segments", connections.segments_retransmitted, again);
    rows
}

/// Times without those of the authority, and the types of the DUT's queries.
pub(super) fn without_authority(path: &Path) -> String {
    let span = |ns: Option<Nanos>| ns.map_or("-".to_owned(), |ns| Span(ns).to_string());
    let dut = [50.0, 99.0].map(|percent| span(path.dut_only_ns(percent)));
    let [p50, p99] = dut;
    let authority = span(path.authority.p50_ns);
    let questions = path.questions_per_name();
    let questions = questions.map_or("-".to_owned(), |per_name| format!("{per_name:.2}"));
    format!(
        "p50 {p50}, p99 {p99}, authority p50 {authority}; questions per query {questions} ({})",
        path.order()
    )
}

pub(super) fn timing(timing: &Timing, backend: &str) -> Vec<(&'static str, String)> {
    let spans = [
        timing.lateness_ns_p50,
        timing.lateness_ns_p99,
        timing.lateness_ns_p999,
        timing.lateness_ns_max,
    ];
    let off = |pct: f64| format!("{pct:>16.3} %  off the schedule");
    let (burst, quantum) = (timing.burst, Span(timing.quantum_ns));
    let mut rows: Vec<_> = QUANTILES.into_iter().zip(spans.map(span)).collect();
    let bin_1ms = timing.bin_1ms_deviation_pct_max;
    rows.extend(bin_1ms.map(|pct| ("worst bin of 1 ms", off(pct))));
    rows.extend([
        ("worst bin of 10 ms", off(timing.bin_10ms_deviation_pct_max)),
        (
            "worst bin of 100 ms",
            off(timing.bin_100ms_deviation_pct_max),
        ),
        (
            "sent in one call",
            format!("up to {burst} queries within {quantum}, over {backend}"),
        ),
    ]);
    rows.extend(timing.self_correcting.map(|kept| {
        let (held_up, overrun) = (Span(kept.held_up_ns_max), Span(kept.overrun_ns));
        let text =
            format!("at most {held_up} later than it let a query leave; {overrun} over time");
        ("self-correcting timer", text)
    }));
    if timing.self_correcting.is_none() {
        rows.push(("catch-up bursts", bursts(&timing.catch_up, &timing.limits)));
    }
    rows
}

/// Backlog that the sender had to catch up.
fn bursts(catch_up: &CatchUp, limits: &Limits) -> String {
    let allowed = limits.max_burst_queries;
    match catch_up.stalls {
        0 => format!("none of more than {allowed} queries"),
        stalls => format!(
            "after {stalls} stalls of up to {}: {} queries kept back, {allowed} allowed; {} \
             without a valid answer in them",
            Span(catch_up.stall_ns_max),
            Thousands(catch_up.burst_queries_max),
            Thousands(catch_up.lost_in_bursts)
        ),
    }
}

/// Use of the cores by a role and by other programs.
pub(super) fn processor(row: &RoleUsage) -> (String, String) {
    let (role, cores) = (row.role, row.cores.as_ref());
    let label = cores.map_or(role.to_string(), |cores| format!("{role}, cpu {cores}"));
    let mut parts = vec![format!("waited {}", Span(row.run_delay_ns))];
    let mut part = |span_ns: Option<Nanos>, what: &str| {
        parts.extend(span_ns.map(|ns| format!("{what} {}", Span(ns))));
    };
    part(row.steal_ns, "stolen by the host");
    part(row.throttled_ns.filter(|ns| *ns > 0), "stopped by a quota");
    part(row.foreign_ns, "used by others");
    if let Some(neighbour) = &row.neighbour {
        let (name, pid) = (&neighbour.name, neighbour.pid);
        parts.push(format!("most by {name} ({pid})"));
    }
    (label, parts.join(", "))
}

/// Labels of the figures of a distribution of times.
const QUANTILES: [&str; 4] = ["median", "99th percentile", "99.9th percentile", "largest"];
