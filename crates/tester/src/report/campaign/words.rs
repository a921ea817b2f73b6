//! Numbers and names in words, the same in every file of a report.

use dns64_transport::clock::{Nanos, SECOND};

use super::analysis::{Analysis, PointResult};
pub(super) use super::numbers::rate;
use crate::report::Thousands;
use crate::trial::result::{Outcome, TesterFault, TrialResult};

/// Nanoseconds as seconds.
pub(super) fn seconds(span_ns: Nanos) -> f64 {
    span_ns as f64 / SECOND as f64
}

/// A percentage with as many decimals as it has, but at most four.
pub(super) fn pct(pct: f64) -> String {
    let text = format!("{pct:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} %")
}

/// The shares of a point.
pub(super) fn cell(point: &PointResult) -> String {
    let mut text = format!(
        "AAAA {}, cached {}",
        pct(point.aaaa_pct),
        pct(point.cached_pct)
    );
    if !point.pattern.is_empty() {
        text += &format!(" ({})", point.pattern);
    }
    text
}

/// Duration and timeout of a point.
pub(super) fn spans(point: &PointResult) -> String {
    format!(
        "trials of {} s, timeout {} s",
        point.duration_s, point.timeout_s
    )
}

/// Whether a point has the duration and timeout of the first point: those of the plan.
pub(super) fn is_usual(analysis: &Analysis, point: &PointResult) -> bool {
    let first = &analysis.points[0];
    (point.duration_s, point.timeout_s) == (first.duration_s, first.timeout_s)
}

/// Variant and shares of a point, and its duration and timeout if they are not the plan's.
pub(super) fn point(analysis: &Analysis, point: &PointResult) -> String {
    let variant = &analysis.variants[point.variant].name;
    match is_usual(analysis, point) {
        true => format!("{variant}, {}", cell(point)),
        false => format!("{variant}, {}, {}", cell(point), spans(point)),
    }
}

/// What became of the queries of a failed trial.
pub(super) fn losses(result: &TrialResult) -> String {
    let a = &result.answers;
    let classes = [
        (a.missing, "without an answer"),
        (a.late, "answered late"),
        (a.wrong, "answered with another address"),
        (a.empty, "answered without an AAAA"),
        (a.error, "answered with an error"),
        (a.truncated, "answered truncated"),
        (result.undecided, "open when it ended early"),
    ];
    let words = classes.into_iter().filter(|(count, _)| *count > 0);
    let words: Vec<_> = words
        .map(|(count, what)| format!("{} {what}", Thousands(count)))
        .collect();
    words.join(", ")
}

/// The kind of a fault, without its numbers.
pub(super) fn fault(fault: &TesterFault) -> &'static str {
    match fault {
        TesterFault::NotSent { .. } => "queries not taken by the kernel",
        TesterFault::LateSchedule { .. } => "sender held up",
        TesterFault::ReceiveDrops { .. } => "replies lost at the Measurer",
        TesterFault::AuthorityDrops { .. } => "losses at the authority",
        TesterFault::AuthorityDied { .. } => "authority stopped",
        TesterFault::ClockStep { .. } => "clock stepped",
        TesterFault::Link { .. } => "a system call failed",
    }
}

/// "passed", "failed" or "invalid".
pub(super) fn outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed { .. } => "failed",
        Outcome::Invalid(_) => "invalid",
    }
}

/// The probability of something by chance.
pub(super) fn p(p: f64) -> String {
    match p < 0.001 {
        true => "p < 0.001".to_owned(),
        false => format!("p = {p:.3}"),
    }
}

/// "1 run", "2 runs".
pub(super) fn count(number: usize, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {what}{s}", Thousands(number as u64))
}

/// A moment of the real-time clock, RFC 3339, UTC.
pub(super) fn moment(unix_ms: u64) -> String {
    let since = std::time::Duration::from_millis(unix_ms);
    let moment = std::time::SystemTime::UNIX_EPOCH.checked_add(since);
    // Beyond the year 9999 there is no such form.
    let moment = moment.filter(|_| unix_ms < 253_402_300_800_000);
    moment.map_or_else(
        || format!("{unix_ms} ms after 1970"),
        |moment| humantime::format_rfc3339_seconds(moment).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_moment_has_a_form() {
        assert_eq!(moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(moment(253_402_300_799_999), "9999-12-31T23:59:59Z");
        assert_eq!(moment(u64::MAX), "18446744073709551615 ms after 1970");
    }
}
