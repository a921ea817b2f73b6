//! Results for a terminal: the verdict first, then the conditions, then the evidence.

use std::io::{self, Write};

use dns64_transport::clock::Nanos;

use super::{Conditions, Span, Thousands, judged_qps};
use crate::authority::counts::AuthorityCounts;
use crate::procedure::search::{SearchEnd, SearchResult};
use crate::procedure::selftest::{
    SelfTestResult, literal_self_test_rate, self_test_rate, self_test_timeout,
};
use crate::trial::result::{Answers, Outcome, Rtt, TesterFault, Timing, TrialResult};

/// Writes the table of one trial.
///
/// # Errors
///
/// What the writer gives.
pub fn trial(
    out: &mut impl Write,
    result: &TrialResult,
    conditions: &Conditions,
) -> io::Result<()> {
    writeln!(out, "{}", trial_verdict(result))?;
    watermarks(out, &conditions.watermarks(result.rate_qps))?;
    write_conditions(
        out,
        conditions,
        Some((result.duration_ns, result.timeout_ns)),
    )?;
    evidence(out, result)?;
    achieved(out, result, conditions)?;
    notes(out, conditions.notes.iter().chain(&result.notes))
}

/// Writes the table of a self-test for a DUT with `timeout_ns`.
///
/// # Errors
///
/// What the writer gives.
pub fn self_test(
    out: &mut impl Write,
    result: &SelfTestResult,
    timeout_ns: Nanos,
    conditions: &Conditions,
) -> io::Result<()> {
    writeln!(out, "{}", self_test_verdict(result))?;
    watermarks(out, &conditions.not_a_measurement)?;
    let spans = result.trials.last().map(|t| (t.duration_ns, t.timeout_ns));
    write_conditions(out, conditions, spans)?;
    section(out, "Self-test (RFC 8219 section 9.2.1)")?;
    if let Some(rate) = result.wanted_rate_qps.or(result.certified_rate_qps) {
        line(
            out,
            "rate of the DUT, r",
            format!("{} queries/s", Thousands(rate)),
        )?;
        let needed = Thousands(self_test_rate(rate));
        line(
            out,
            "asked for, 2(1 + 0.1)r",
            format!("{needed} queries/s (the papers' reading)"),
        )?;
        let literal = Thousands(literal_self_test_rate(rate));
        line(
            out,
            "literally, 2(r + 0.1)",
            format!("{literal} queries/s (the RFC's words, rounded up)"),
        )?;
    }
    if let Some(rate) = result.passed_rate_qps {
        line(out, "passed at", format!("{} queries/s", Thousands(rate)))?;
    }
    line(
        out,
        "timeout, a quarter of t",
        format!(
            "{} (t = {})",
            Span(self_test_timeout(timeout_ns)),
            Span(timeout_ns)
        ),
    )?;
    match result.trials.as_slice() {
        [only] => evidence(out, only)?,
        several => trial_table(out, several)?,
    }
    let remarks = remarks(&result.trials);
    notes(out, conditions.notes.iter().chain(&remarks))
}

/// Writes the table of a search.
///
/// # Errors
///
/// What the writer gives.
pub fn search(
    out: &mut impl Write,
    result: &SearchResult,
    conditions: &Conditions,
) -> io::Result<()> {
    let verdict = search_verdict(result);
    writeln!(out, "{verdict}")?;
    watermarks(out, &conditions.watermarks(judged_qps(result)))?;
    let spans = result.trials.first().map(|t| (t.duration_ns, t.timeout_ns));
    write_conditions(out, conditions, spans)?;
    trial_table(out, &result.trials)?;
    section(out, "Result")?;
    let rate = |qps: Option<u64>| qps.map_or("-".into(), |q| format!("{} queries/s", Thousands(q)));
    line(out, "fastest that passed", rate(result.rate_qps))?;
    line(out, "slowest that failed", rate(result.failed_qps))?;
    line(out, "resolution", rate(Some(result.resolution_qps)))?;
    line(
        out,
        "Tester certified to",
        rate(conditions.certified_rate_qps),
    )?;
    let passed = |trial: &&TrialResult| Some(trial.rate_qps) == result.rate_qps;
    if let Some(fastest) = result.trials.iter().rfind(passed) {
        achieved(out, fastest, conditions)?;
    }
    let remarks = remarks(&result.trials);
    notes(out, conditions.notes.iter().chain(&remarks))
}

fn trial_verdict(result: &TrialResult) -> String {
    let rate = Thousands(result.rate_qps);
    match &result.outcome {
        Outcome::Passed => {
            format!("PASSED at {rate} queries/s: every query got a valid answer in time")
        }
        Outcome::Failed { shortfall } => format!(
            "FAILED at {rate} queries/s: {} queries without a valid answer in time",
            at_least(*shortfall, result.ended_early)
        ),
        Outcome::Invalid(fault) => {
            format!("INVALID at {rate} queries/s, nothing follows about the DUT: {fault}")
        }
    }
}

fn self_test_verdict(result: &SelfTestResult) -> String {
    match (&result.end, result.certified_rate_qps) {
        (Outcome::Invalid(fault), _) => format!("NOT CERTIFIED: {fault}"),
        (Outcome::Passed, Some(rate)) => {
            format!("CERTIFIED for DUTs up to {} queries/s", Thousands(rate))
        }
        (Outcome::Failed { shortfall }, _) => format!(
            "NOT CERTIFIED: {} queries without a valid answer within a quarter of the timeout; \
             lower the rate or give the Tester more cores",
            Thousands(*shortfall)
        ),
        (Outcome::Passed, None) => "NOT CERTIFIED for any rate".to_owned(),
    }
}

fn search_verdict(result: &SearchResult) -> String {
    match &result.end {
        SearchEnd::Found => format!(
            "RESULT: {} queries/s",
            Thousands(result.rate_qps.unwrap_or(0))
        ),
        SearchEnd::LimitedByTester { rate_qps } => format!(
            "AT LEAST {} queries/s: the DUT passed at the highest rate for which the Tester is good; \
             give the Tester more cores",
            Thousands(*rate_qps)
        ),
        SearchEnd::LimitedByRequest { rate_qps } => format!(
            "AT LEAST {} queries/s: the DUT passed at the highest rate asked for; raise --max-rate",
            Thousands(*rate_qps)
        ),
        SearchEnd::NothingPasses => {
            let lowest_qps = result.failed_qps.unwrap_or(1);
            format!(
                "NOTHING PASSES: the DUT fails even at {}; check with `trial -Q {lowest_qps}`",
                match lowest_qps {
                    1 => "1 query/s".to_owned(),
                    more => format!("{} queries/s", Thousands(more)),
                }
            )
        }
        SearchEnd::TesterFault(fault) => format!("NO RESULT: {fault}"),
    }
}

fn watermarks(out: &mut impl Write, reasons: &[String]) -> io::Result<()> {
    for reason in reasons {
        writeln!(out, "not a measurement: {reason}")?;
    }
    Ok(())
}

fn write_conditions(
    out: &mut impl Write,
    conditions: &Conditions,
    spans: Option<(Nanos, Nanos)>,
) -> io::Result<()> {
    section(out, "Conditions")?;
    let optional = [
        ("device under test", &conditions.dut),
        ("authority", &conditions.authority),
        ("lab", &conditions.lab),
        ("setup", &conditions.setup),
        ("upstream", &conditions.upstream_family),
        ("pref64", &conditions.pref64),
    ];
    line(out, "tester", &conditions.tester)?;
    line(out, "server", &conditions.server)?;
    for (label, value) in optional {
        if let Some(value) = value {
            line(out, label, value)?;
        }
    }
    line(out, "names", &conditions.namespace)?;
    line(out, "names with an AAAA", &conditions.aaaa_share)?;
    line(out, "queries for a cached name", &conditions.cached_share)?;
    if let Some(pattern) = &conditions.cached_pattern {
        line(out, "cached names", pattern)?;
    }
    if let Some((duration_ns, timeout_ns)) = spans {
        line(out, "duration of a trial", Span(duration_ns).to_string())?;
        line(out, "timeout of a query", Span(timeout_ns).to_string())?;
    }
    let sockets = match conditions.sockets {
        Some(sockets) => sockets.to_string(),
        None => "as many as the rate needs".to_owned(),
    };
    line(
        out,
        "threads, source ports",
        format!("{}, {sockets}", conditions.threads),
    )?;
    for (role, cpus) in &conditions.cpus {
        line(out, &format!("cpus of {role}"), cpus)?;
    }
    Ok(())
}

fn evidence(out: &mut impl Write, result: &TrialResult) -> io::Result<()> {
    section(out, "Queries")?;
    count(out, "due", result.queries_due, None, "")?;
    let early = if result.ended_early {
        "the trial ended as soon as it had failed"
    } else {
        ""
    };
    count(
        out,
        "sent",
        result.queries_sent,
        Some(result.queries_due),
        early,
    )?;
    section(out, "Answers, in queries and in per cent of those sent")?;
    for (class, queries, meaning) in classes(&result.answers) {
        count(out, class, queries, Some(result.queries_sent), meaning)?;
    }
    section(out, "Datagrams beyond those")?;
    count(
        out,
        "duplicate",
        result.answers.duplicate,
        None,
        "second reply to a query",
    )?;
    count(
        out,
        "stray",
        result.answers.stray,
        None,
        "answers no query of this trial",
    )?;
    count(
        out,
        "lost by the Tester",
        result.tester_drops,
        None,
        "at its own sockets",
    )?;
    round_trips(out, result)?;
    timing(out, &result.timing, &result.backend)?;
    if let Some(counts) = &result.authority {
        authority(out, counts)?;
    }
    if let Some(bytes) = result.resources.map(|r| r.memory_bytes) {
        section(out, "Device under test")?;
        line(out, "resident memory", format!("{} MiB", bytes >> 20))?;
    }
    Ok(())
}

fn round_trips(out: &mut impl Write, result: &TrialResult) -> io::Result<()> {
    section(out, "Round-trip time of the answered queries")?;
    let Rtt {
        p50: Some(p50),
        p99: Some(p99),
        p999: Some(p999),
        max: Some(max),
    } = result.rtt
    else {
        return line(out, "none", "no query was answered");
    };
    spans(
        out,
        &[
            ("median", p50),
            ("99th percentile", p99),
            ("99.9th percentile", p999),
            ("largest", max),
        ],
    )
}

fn timing(out: &mut impl Write, timing: &Timing, backend: &str) -> io::Result<()> {
    section(out, "Timing of the Tester: how late the queries left")?;
    spans(
        out,
        &[
            ("median", timing.lateness_ns_p50),
            ("99th percentile", timing.lateness_ns_p99),
            ("99.9th percentile", timing.lateness_ns_p999),
            ("largest", timing.lateness_ns_max),
        ],
    )?;
    line(
        out,
        "worst bin of 10 ms",
        format!(
            "{:>16.3} %  off the schedule",
            timing.bin_10ms_deviation_pct_max
        ),
    )?;
    line(
        out,
        "worst bin of 100 ms",
        format!(
            "{:>16.3} %  off the schedule",
            timing.bin_100ms_deviation_pct_max
        ),
    )?;
    let burst = format!(
        "up to {} queries within {}, over {backend}",
        timing.burst,
        Span(timing.quantum_ns)
    );
    line(out, "sent in one call", burst)
}

fn authority(out: &mut impl Write, counts: &AuthorityCounts) -> io::Result<()> {
    section(out, "Authority")?;
    let AuthorityCounts {
        aaaa,
        a,
        other,
        answered,
        nodata,
        nxdomain,
        refused,
        ignored,
        tcp,
    } = *counts;
    for (label, queries, meaning) in [
        ("AAAA queries", aaaa, ""),
        ("A queries", a, ""),
        ("other queries", other, ""),
        ("answered", answered, "with records"),
        ("no data", nodata, "NOERROR without an answer record"),
        ("NXDOMAIN", nxdomain, ""),
        ("refused", refused, "FORMERR, NOTIMP, REFUSED, BADVERS"),
        ("ignored", ignored, "not even a query"),
        ("over TCP", tcp, "counted above as well"),
    ] {
        count(out, label, queries, None, meaning)?;
    }
    Ok(())
}

/// The shares as the authority saw them, beside those that were asked for.
fn achieved(out: &mut impl Write, result: &TrialResult, conditions: &Conditions) -> io::Result<()> {
    let Some(achieved) = &result.achieved else {
        return Ok(());
    };
    section(out, "Achieved, as the authority saw it")?;
    let row = |out: &mut _, label, value: String, meaning: String| {
        line(out, label, format!("{value:>18}  {meaning}"))
    };
    let percent = |share: Option<f64>| {
        share.map_or("unknown".into(), |share| format!("{:.4} %", 100.0 * share))
    };
    row(
        out,
        "cached names",
        percent(achieved.cached_share),
        format!("of the queries; asked for {}", conditions.cached_share),
    )?;
    row(
        out,
        "names with an AAAA",
        percent(achieved.aaaa_share),
        format!(
            "of the names not cached; asked for {}",
            conditions.aaaa_share
        ),
    )?;
    row(
        out,
        "queries of the DUT",
        format!("{:.4}  ", achieved.amplification),
        "for each of the Measurer".to_owned(),
    )
}

/// What went wrong, for a line of a table: the remedy stands behind a semicolon.
fn without_remedy(fault: &TesterFault) -> String {
    let text = fault.to_string();
    text.split("; ").next().unwrap_or_default().to_owned()
}

fn trial_table(out: &mut impl Write, trials: &[TrialResult]) -> io::Result<()> {
    section(out, "Trials")?;
    writeln!(
        out,
        "  {:>3}  {:>15}  {:<7}  {:>13}  why",
        "#", "rate, queries/s", "outcome", "shortfall"
    )?;
    for (i, trial) in trials.iter().enumerate() {
        let (outcome, shortfall, why) = match &trial.outcome {
            Outcome::Passed => ("passed", "0".to_owned(), String::new()),
            Outcome::Failed { shortfall } => (
                "failed",
                Thousands(*shortfall).to_string(),
                first_classes(trial),
            ),
            Outcome::Invalid(fault) => ("invalid", "-".to_owned(), without_remedy(fault)),
        };
        let row = format!(
            "  {:>3}  {:>15}  {outcome:<7}  {shortfall:>13}  {why}",
            i + 1,
            Thousands(trial.rate_qps)
        );
        writeln!(out, "{}", row.trim_end())?;
    }
    Ok(())
}

/// The two largest classes other than valid, and whether the trial was cut short.
fn first_classes(trial: &TrialResult) -> String {
    let mut bad: Vec<_> = classes(&trial.answers)
        .into_iter()
        .skip(1)
        .filter(|(_, queries, _)| *queries > 0)
        .collect();
    bad.sort_by_key(|(_, queries, _)| std::cmp::Reverse(*queries));
    let mut parts: Vec<String> = bad
        .iter()
        .take(2)
        .map(|(class, queries, _)| format!("{} {class}", Thousands(*queries)))
        .collect();
    if trial.ended_early {
        parts.push("ended early".to_owned());
    }
    parts.join(", ")
}

/// The classes of the queries that were sent, with what each means.
fn classes(answers: &Answers) -> [(&'static str, u64, &'static str); 7] {
    [
        ("valid", answers.valid, "the expected AAAA, in time"),
        ("late", answers.late, "the expected AAAA, after the timeout"),
        ("wrong", answers.wrong, "another AAAA than the expected one"),
        ("empty", answers.empty, "NOERROR without an AAAA"),
        ("error", answers.error, "another RCODE, or not to be parsed"),
        ("truncated", answers.truncated, "TC set"),
        ("missing", answers.missing, "no answer at all"),
    ]
}

/// The remarks on several trials, each with the number of its trial.
fn remarks(trials: &[TrialResult]) -> Vec<String> {
    let numbered = (1..).zip(trials);
    let of_trial = |(number, trial): (u32, &TrialResult)| {
        trial
            .notes
            .iter()
            .map(|note| format!("trial {number}: {note}"))
            .collect::<Vec<_>>()
    };
    numbered.flat_map(of_trial).collect()
}

fn notes<'a>(out: &mut impl Write, notes: impl Iterator<Item = &'a String>) -> io::Result<()> {
    let mut told: Vec<&String> = Vec::new();
    for note in notes {
        if told.contains(&note) {
            continue;
        }
        if told.is_empty() {
            section(out, "Notes")?;
        }
        writeln!(out, "  - {note}")?;
        told.push(note);
    }
    Ok(())
}

fn section(out: &mut impl Write, title: &str) -> io::Result<()> {
    writeln!(out, "\n{title}")
}

fn line(out: &mut impl Write, label: &str, value: impl AsRef<str>) -> io::Result<()> {
    writeln!(out, "  {label:<26}  {}", value.as_ref())
}

fn spans(out: &mut impl Write, rows: &[(&str, Nanos)]) -> io::Result<()> {
    for (label, ns) in rows {
        line(out, label, format!("{:>18}", Span(*ns)))?;
    }
    Ok(())
}

/// A count, its share of `whole`, and what it counts. The share is rounded down: 100 % is all.
fn count(
    out: &mut impl Write,
    label: &str,
    queries: u64,
    whole: Option<u64>,
    meaning: &str,
) -> io::Result<()> {
    let share = match whole {
        Some(whole) if whole > 0 => {
            let ten_thousandths = u128::from(queries) * 1_000_000 / u128::from(whole);
            format!(
                "{:>4}.{:04} %",
                ten_thousandths / 10_000,
                ten_thousandths % 10_000
            )
        }
        Some(_) | None => String::new(),
    };
    let row = format!(
        "  {label:<26}  {:>16}  {share:<11}  {meaning}",
        Thousands(queries)
    );
    writeln!(out, "{}", row.trim_end())
}

fn at_least(shortfall: u64, ended_early: bool) -> String {
    if ended_early {
        format!("at least {}", Thousands(shortfall))
    } else {
        Thousands(shortfall).to_string()
    }
}
