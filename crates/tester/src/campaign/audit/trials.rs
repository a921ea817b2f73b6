//! Checks one trial: its figures must be consistent.
//!
//! A rule is a function from a result to what is wrong with it. Each checks its own figures. A new rule is a new
//! function, listed in [`RULES`].

use std::collections::BTreeSet;

use dns64_transport::clock::Nanos;
use serde_json::Value;

use crate::load::pace::Schedule;
use crate::quantity::Thousands;
use crate::trial::achieved::Achieved;
use crate::trial::judge::judge;
use crate::trial::place::{LossFacts, LossKind, place};
use crate::trial::result::{AuthorityShare, Outcome, TrialResult};

type Rule = fn(&TrialResult) -> Option<String>;

/// The range and the counts come first: the other rules rely on sums that do not overflow.
const RULES: [Rule; 21] = [
    range,
    queries_due,
    queries_sent,
    classes,
    unsent,
    early_end,
    losses,
    evidence,
    verdict,
    clocks,
    lateness,
    percentiles,
    one_distribution,
    course,
    round_trips,
    authority,
    authorities,
    path,
    ways,
    achieved,
    service,
];

/// Returns the first contradiction in a trial.
pub(super) fn contradiction(result: &TrialResult) -> Option<String> {
    RULES.iter().find_map(|rule| rule(result))
}

/// Largest count or time: 2^53 ns are 104 days, and sums of some hundreds of such values fit 64 bits.
pub(super) const COUNT_MAX: u64 = 1 << 53;

/// No figure is too large for the sums of the rules, except those that are only compared.
fn range(result: &TrialResult) -> Option<String> {
    let spans = [
        ("duration_s", result.duration_ns),
        ("timeout_s", result.timeout_ns),
    ];
    let too_long = spans.into_iter().find(|(_, span_ns)| *span_ns > COUNT_MAX);
    let value = || serde_json::to_value(result).unwrap_or_default();
    let key = too_long.map(|(key, _)| key.to_owned());
    let key = key.or_else(|| beyond(&value(), "it"))?;
    Some(format!("its {key} is more than any trial has"))
}

/// The key of the first integer out of range.
fn beyond(value: &Value, key: &str) -> Option<String> {
    match value {
        Value::Number(number) => {
            let size = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
            (size > Some(COUNT_MAX)).then(|| key.to_owned())
        }
        Value::Array(all) => all.iter().find_map(|value| beyond(value, key)),
        Value::Object(keys) => {
            let mut figures = keys.iter().filter(|(key, _)| !is_compared(key));
            figures.find_map(|(key, value)| beyond(value, key))
        }
        _ => None,
    }
}

/// Whether a figure is only compared: limits, the offset between the clocks of two machines (one may have run for years
/// longer), and the error bound of a clock that was set (infinite).
fn is_compared(key: &str) -> bool {
    let is_limit = matches!(key, "limits" | "limit_ns" | "limit_queries" | "allowed");
    is_limit || matches!(key, "offset_ns" | "bound_ns")
}

fn queries_due(result: &TrialResult) -> Option<String> {
    let due = Schedule::new(result.rate_qps, result.duration_ns).queries();
    let is = result.queries_due;
    (is != due).then(|| {
        let (is, due) = (Thousands(is), Thousands(due));
        format!("{is} queries were due by its figures; rate and duration give {due}")
    })
}

/// No query leaves before it is due, so a trial that went to its end took at least until its last one.
pub(super) fn too_short(result: &TrialResult, took_ns: Nanos) -> Option<String> {
    let last = result.queries_due.saturating_sub(1);
    let least_ns = Schedule::new(result.rate_qps, result.duration_ns).due_ns(last);
    let is_whole = result.outcome.is_valid() && !result.ended_early;
    (is_whole && took_ns < least_ns)
        .then(|| format!("it took {took_ns} ns, but its last query was due after {least_ns} ns"))
}

fn queries_sent(result: &TrialResult) -> Option<String> {
    let (sent, due) = (result.queries_sent, result.queries_due);
    (sent > due).then(|| format!("{} queries sent of {} due", Thousands(sent), Thousands(due)))
}

/// Each sent query is in one class, or was open at an early end.
fn classes(result: &TrialResult) -> Option<String> {
    let a = &result.answers;
    let classes = [
        a.valid,
        a.late,
        a.wrong,
        a.empty,
        a.error,
        a.truncated,
        a.missing,
        result.undecided,
    ];
    let sum: u128 = classes.into_iter().map(u128::from).sum();
    (sum != u128::from(result.queries_sent)).then(|| {
        let sent = Thousands(result.queries_sent);
        format!("{sum} queries by verdict, and {sent} were sent")
    })
}

/// Queries that are due are sent, unless the kernel does not accept them or the trial ends early.
fn unsent(result: &TrialResult) -> Option<String> {
    let evidence = &result.losses.evidence;
    let unsent = result.queries_due - result.queries_sent;
    let fits = match result.ended_early {
        true => evidence.not_sent <= unsent,
        false => evidence.not_sent == unsent,
    };
    (!fits).then(|| {
        let (refused, unsent) = (Thousands(evidence.not_sent), Thousands(unsent));
        format!("{unsent} queries that were due were not sent, but the kernel refused {refused}")
    })
}

/// Queries are open only if sending ended early, and it ends early only after a failure or a fault.
fn early_end(result: &TrialResult) -> Option<String> {
    if result.undecided > 0 && !result.ended_early {
        let open = Thousands(result.undecided);
        return Some(format!(
            "{open} queries are undecided, but it was not ended early"
        ));
    }
    let is_failure = result.outcome.shortfall() > 0;
    (result.ended_early && !is_failure && result.outcome.is_valid())
        .then(|| "it ended early without a failure".to_owned())
}

/// The verdict follows from the figures.
fn verdict(result: &TrialResult) -> Option<String> {
    let due = judge(result);
    (result.outcome != due).then(|| {
        let [is, due] = [&result.outcome, &due].map(|outcome| match outcome {
            Outcome::Passed => outcome.word().to_owned(),
            Outcome::Failed { shortfall } => format!("failed by {}", Thousands(*shortfall)),
            Outcome::Invalid(fault) => format!("invalid ({})", fault.what()),
        });
        format!("it is called {is}, and by its figures it is {due}")
    })
}

/// Each clock appears once, with actual exchanges and a possible drift.
fn clocks(result: &TrialResult) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut clocks = result.clocks.iter();
    let wrong = clocks.find(|clock| {
        let is_bound = clock.bound_ns <= COUNT_MAX || clock.bound_ns == Nanos::MAX;
        let can_be = is_bound && clock.exchanges > 0 && clock.drift_ppm.abs() <= DRIFT_PPM_MAX;
        !seen.insert(&clock.host) || !can_be
    })?;
    let host = &wrong.host;
    Some(format!(
        "the figures of the clock of host {host} are impossible"
    ))
}

/// Drift bound: no two clock readings differ by more, however inaccurate they are.
const DRIFT_PPM_MAX: f64 = 1e9;

/// Each query without a valid response counts as lost exactly once.
fn losses(result: &TrialResult) -> Option<String> {
    let losses = &result.losses;
    let a = &result.answers;
    let bad = a.answered() - a.valid + a.missing;
    let lows = losses.places.iter().map(|placed| u128::from(placed.low));
    let placed = lows.sum::<u128>() + u128::from(losses.undecided);
    let unsent = losses.queries.checked_sub(bad);
    let unsent_max = result.queries_due - result.queries_sent;
    let fits = unsent.is_some_and(|unsent| unsent <= unsent_max);
    let ranges = losses.places.iter().all(|placed| placed.low <= placed.high);
    (placed != u128::from(losses.queries) || !fits || !ranges).then(|| {
        let (queries, bad) = (Thousands(losses.queries), Thousands(bad));
        format!(
            "its losses are {queries} queries at {placed} places, and {bad} have no valid answer"
        )
    })
}

/// The places of the losses follow from their evidence, which contains the drops of the Tester's sockets.
fn evidence(result: &TrialResult) -> Option<String> {
    let losses = &result.losses;
    let evidence = &losses.evidence;
    let at_sockets = evidence.found.iter();
    let at_sockets = at_sockets.filter(|it| it.kind == LossKind::Sockets);
    let counted: u128 = at_sockets.map(|it| u128::from(it.source.count)).sum();
    if counted < u128::from(result.tester_drops) || evidence.hanging > result.undecided {
        return Some("the evidence of its losses lacks some of its counts".to_owned());
    }
    let due = place(LossFacts::of(result)).losses;
    let is_same = (losses.queries, losses.undecided) == (due.queries, due.undecided)
        && (&losses.places, &losses.between) == (&due.places, &due.between);
    (!is_same).then(|| "the places of its losses do not follow from their evidence".to_owned())
}

fn lateness(result: &TrialResult) -> Option<String> {
    let t = &result.timing;
    let figures = [
        t.lateness_ns_p50,
        t.lateness_ns_p99,
        t.lateness_ns_p999,
        t.lateness_ns_max,
    ];
    (!figures.is_sorted()).then(|| "the percentiles of its lateness do not rise".to_owned())
}

fn percentiles(result: &TrialResult) -> Option<String> {
    let rtt = &result.rtt;
    let figures = [rtt.p50, rtt.p99, rtt.p999, rtt.max];
    let all = &result.rtt_percentiles;
    let rise = figures.is_sorted() && all.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
    (!rise).then(|| "the percentiles of its round-trip times do not rise".to_owned())
}

/// Figures of the same distribution agree. The 99.9th percentile is excluded: its two quotients differ in the last
/// digit.
fn one_distribution(result: &TrialResult) -> Option<String> {
    let rtt = &result.rtt;
    let pairs = [(50.0, rtt.p50), (99.0, rtt.p99), (100.0, rtt.max)];
    let told = |percent: f64| {
        let mut all = result.rtt_percentiles.iter();
        all.find(|at| (at.0 - percent).abs() < PERCENT_STEP)
            .map(|at| at.1)
    };
    let differs = |(percent, other): &(f64, Option<Nanos>)| {
        let told = told(*percent);
        told.is_some() && told != *other
    };
    pairs
        .into_iter()
        .find(differs)
        .map(|(percent, _)| format!("its round-trip times have two values at {percent} per cent"))
}

/// The slices of its course have its queries and its losses.
fn course(result: &TrialResult) -> Option<String> {
    let series = result.series.as_ref()?;
    let sums = [&series.sent, &series.lost].map(|each| each.iter().sum::<u64>());
    let differ = sums != [result.queries_sent, result.unanswered()];
    differ.then(|| "its series has other queries or losses than its totals".to_owned())
}

/// The percentiles of a journal differ by more than this.
const PERCENT_STEP: f64 = 1e-9;

/// Responses have round-trip times: at most the timeout if valid, above it if late.
fn round_trips(result: &TrialResult) -> Option<String> {
    let answers = &result.answers;
    let answered = answers.answered();
    let Some(max_ns) = result.rtt.max else {
        return (answered > 0).then(|| "it has answers but no round-trip time".to_owned());
    };
    if answered == 0 {
        return Some("it has a round-trip time but no answer".to_owned());
    }
    let (in_time, timeout_ns) = (answers.valid == answered, result.timeout_ns);
    let too_long = in_time && max_ns - max_ns / HISTOGRAM_STEP > timeout_ns;
    let too_short = answers.late > 0 && max_ns <= timeout_ns;
    (too_long || too_short).then(|| {
        let count = if too_long {
            "all answers in time"
        } else {
            "late answers"
        };
        format!("it has {count}, but its longest round-trip time is {max_ns} ns")
    })
}

/// A histogram has three significant digits: its values exceed the true ones by less than one part in this number.
const HISTOGRAM_STEP: u64 = 1000;

/// The counts of several authorities add up to their common total.
fn authorities(result: &TrialResult) -> Option<String> {
    let counts = result
        .authority
        .filter(|_| !result.authorities.is_empty())?;
    let of = |told: fn(&AuthorityShare) -> u64| {
        let all = result.authorities.iter();
        all.map(|share| u128::from(told(share))).sum::<u128>()
    };
    let asked: u128 = [counts.aaaa, counts.a, counts.other]
        .map(u128::from)
        .iter()
        .sum();
    let (told, drops) = (of(|share| share.questions), of(|share| share.drops));
    (told != asked || drops > u128::from(u64::MAX)).then(|| {
        format!("its authorities got {told} questions by their own counts, but {asked} together")
    })
}

/// An authority sends at most as many responses as it receives queries.
fn authority(result: &TrialResult) -> Option<String> {
    let c = result.authority.as_ref()?;
    let sum = |counts: &[u64]| counts.iter().copied().map(u128::from).sum::<u128>();
    let asked = sum(&[c.aaaa, c.a, c.other]);
    let answered = sum(&[c.answered, c.nodata, c.nxdomain, c.refused]);
    (answered > asked || asked > u128::from(u64::MAX))
        .then(|| format!("its authority answered {answered} of {asked} queries"))
}

/// The path counts cover at most as many names as were queried.
fn path(result: &TrialResult) -> Option<String> {
    let path = result.path.as_ref()?;
    let (valid, missing) = (result.answers.valid, result.answers.missing);
    let lost = &path.lost;
    let ways = [lost.unasked, lost.unserved, lost.served];
    let ways: u128 = ways.into_iter().map(u128::from).sum();
    let fits = path.fresh_names <= result.queries_sent
        && path.answered.names <= valid
        && lost.names <= missing
        && ways == u128::from(lost.names);
    (!fits).then(|| "its path has more names than it queried".to_owned())
}

/// Each name is in one class, and its time without the authority is at most the round-trip time.
fn ways(result: &TrialResult) -> Option<String> {
    let path = result.path.as_ref()?;
    let a = &path.answered;
    let classes = [
        a.aaaa_then_a,
        a.a_then_aaaa,
        a.parallel,
        a.untimed,
        a.aaaa_only,
        a.a_only,
        a.unasked,
    ];
    let sum: u64 = classes.into_iter().sum();
    let names = [a.names + path.lost.names, a.again, path.untimed_names];
    if sum != a.names || names.iter().any(|names| *names > path.fresh_names) {
        let (names, fresh) = (Thousands(a.names), Thousands(path.fresh_names));
        return Some(format!(
            "{} answered names by their questions, and {names} of {fresh} were answered",
            Thousands(sum)
        ));
    }
    let times = &path.authority;
    let dut_only = &path.dut_only_percentiles_ns;
    let longest = dut_only.last().map(|at| at.1);
    let fits = dut_only.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1)
        && longest <= result.rtt.max
        && [times.p50_ns, times.p99_ns, times.max_ns].is_sorted();
    (!fits).then(|| "the times of DUT and authority do not fit its round-trip times".to_owned())
}

/// A DUT serves at most the offered rate.
fn service(result: &TrialResult) -> Option<String> {
    let service = result.service.as_ref()?;
    (!service.fits(result.rate_qps)).then(|| {
        let (rate, offered) = (service.service_rate_qps, Thousands(result.rate_qps));
        format!("the DUT served {rate} queries/s, and {offered} queries/s were offered to it")
    })
}

/// The achieved shares follow from the counts.
fn achieved(result: &TrialResult) -> Option<String> {
    let is = result.achieved?;
    let all_answered = result.answers.missing == 0 && result.undecided == 0;
    let due =
        |counts| Achieved::by_counts((result.queries_sent, result.aaaa().0), counts, all_answered);
    let due = result.authority.as_ref().and_then(due);
    let figures = |a: &Achieved| [a.aaaa_share, a.cached_share, Some(a.amplification)];
    let same = due.is_some_and(|due| {
        let mut pairs = figures(&is).into_iter().zip(figures(&due));
        pairs.all(|pair| match pair {
            (Some(is), Some(due)) => (is - due).abs() <= SHARE_STEP * due.abs().max(1.0),
            (is, due) => is == due,
        })
    });
    (!same).then(|| "its achieved shares do not follow from the counts of its authority".to_owned())
}

/// Quotients may differ in the last digit after they were written and read back.
const SHARE_STEP: f64 = 1e-12;
