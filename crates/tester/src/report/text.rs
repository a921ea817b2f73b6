//! Results for a terminal: the verdict first, then the conditions, then the evidence. Each section is a title with
//! rows; each row is a label with a text.

mod capacity;
mod goals;
mod rows;

use dns64_transport::clock::Nanos;

use super::numbers::whole;
use super::{
    Conditions, Span, Thousands, calculated_qps, judged_qps, losses, passed, stored, sustained,
};
use crate::authority::counts::FaultCounts;
use crate::procedure::capacity::Capacity;
use crate::procedure::certificate::SelfTests;
use crate::procedure::search::{SearchEnd, SearchResult};
use crate::procedure::selftest::{
    Meaning, literal_self_test_rate, self_test_rate, self_test_timeout,
};
use crate::trial::achieved::Achieved;
use crate::trial::fault::TesterFault;
use crate::trial::result::{Answers, Outcome, TrialResult, TypeResult};
use rows::{
    connection_rows, losses_over_time, processor, round_trips, service_rows, timing,
    without_authority,
};

/// The table of one trial.
pub fn trial(result: &TrialResult, conditions: &Conditions) -> String {
    let watermarks = conditions.watermarks(result.rate_qps);
    let mut page = Page::begin(&trial_verdict(result), &watermarks, conditions);
    if let Some(words) = result.losses.words() {
        page.line(&format!("lost: {words}"));
    }
    page.conditions(conditions, std::slice::from_ref(result));
    page.evidence(result);
    if conditions.certificate.is_some() {
        page.section("Certificate", [certified_row(conditions)]);
    }
    page.achieved(result.achieved.as_ref(), conditions);
    let stored = stored(result);
    page.notes(conditions.notes.iter().chain(&stored).chain(&result.notes));
    page.0
}

/// The table of the self-tests for a DUT with `timeout_ns`.
pub fn self_test(result: &SelfTests, timeout_ns: Nanos, conditions: &Conditions) -> String {
    let mut page = Page::begin(
        &self_test_verdict(result),
        &conditions.not_a_measurement,
        conditions,
    );
    let trials = result.trials();
    page.conditions(conditions, &trials);
    let title = "Self-test (RFC 8219 section 9.2.1)";
    page.section(title, self_test_rows(result, timeout_ns));
    match trials.as_slice() {
        [only] => page.evidence(only),
        several => page.trials(several),
    }
    page.notes(conditions.notes.iter().chain(&remarks(&trials)));
    page.0
}

/// The table of a search.
pub fn search(result: &SearchResult, conditions: &Conditions) -> String {
    let watermarks = conditions.watermarks(judged_qps(result));
    let (fastest, held) = (passed(result), Capacity::of(result));
    let verdict = match result.goals.as_slice() {
        [] => {
            let holds = held.map_or_else(String::new, |it| capacity::holds(&it));
            search_verdict(result) + &holds + &fastest.map_or_else(String::new, sustained)
        }
        goals => goals::verdict(goals, &result.end),
    };
    let mut page = Page::begin(&verdict, &watermarks, conditions);
    page.conditions(conditions, &result.trials);
    page.trials(&result.trials);
    let rates = [
        ("fastest that passed", result.rate_qps),
        ("slowest that failed", result.failed_qps),
        (
            "if it stores, equation (1)",
            calculated_qps(result).map(whole),
        ),
        ("resolution", Some(result.resolution_qps)),
    ];
    let rates = rates.into_iter().filter(|_| result.goals.is_empty());
    let rates = rates.map(|(l, qps)| (l, qps.map_or("-".into(), rate)));
    let policy = result.trials.iter().rev().find_map(|trial| trial.policy);
    let policy = policy.map(|policy| ("limited by", policy.to_string()));
    goals::sections(&mut page, &result.goals);
    let rows = rates.chain(policy);
    page.section("Result", rows.chain([certified_row(conditions)]));
    if let Some(held) = held {
        page.section("Capacity (after RFC 9693)", capacity::rows(&held));
    }
    page.achieved(
        fastest.and_then(|trial| trial.achieved.as_ref()),
        conditions,
    );
    let stored = fastest.and_then(stored);
    let remarks = remarks(&result.trials);
    page.notes(conditions.notes.iter().chain(&stored).chain(&remarks));
    page.0
}

fn trial_verdict(result: &TrialResult) -> String {
    let rate = rate(result.rate_qps);
    let at_least = if result.ended_early { "at least " } else { "" };
    match &result.outcome {
        Outcome::Passed => {
            let all = "every query got a valid answer in time";
            format!("PASSED at {rate}: {all}{}", sustained(result))
        }
        Outcome::Failed { shortfall } => format!(
            "FAILED at {rate}: {at_least}{} queries without a valid answer in time",
            Thousands(*shortfall)
        ),
        Outcome::Invalid(TesterFault::Interrupted) => format!(
            "INTERRUPTED at {rate} after {} of {} queries, which says nothing about the DUT",
            Thousands(result.queries_sent),
            Thousands(result.queries_due)
        ),
        Outcome::Invalid(fault) => {
            format!("INVALID at {rate}, which says nothing about the DUT: {fault}")
        }
    }
}

/// Certified rate of the Tester, and its self-tests.
fn certified_row(conditions: &Conditions) -> (&'static str, String) {
    let told = match (conditions.certificate, conditions.certified_rate_qps) {
        (Some(certificate), _) => certificate.to_string(),
        (None, Some(qps)) => rate(qps),
        (None, None) => "-".to_owned(),
    };
    ("Tester certified to", told)
}

fn self_test_verdict(result: &SelfTests) -> String {
    match (result.end(), result.certificate()) {
        (Outcome::Invalid(fault), _) => format!("NOT CERTIFIED: {fault}"),
        (Outcome::Passed, Some(certificate)) => {
            format!("CERTIFIED for DUTs up to {certificate}")
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
        SearchEnd::Found => {
            let passed = rate(result.rate_qps.unwrap_or(0));
            match result.failed_qps {
                Some(failed) => format!("RESULT: {passed} passed, {} failed", Thousands(failed)),
                None => format!("RESULT: {passed}"),
            }
        }
        SearchEnd::LimitedByTester { rate_qps } => format!(
            "AT LEAST {}: the DUT passed at the highest rate for which the Tester is certified; \
             give the Tester more cores, or use --authority in-driver in a lab",
            rate(*rate_qps)
        ),
        SearchEnd::LimitedByRequest { rate_qps } => format!(
            "AT LEAST {}: the DUT passed at the highest rate of the search; raise --max-rate",
            rate(*rate_qps)
        ),
        SearchEnd::NothingPasses => {
            let lowest_qps = result.failed_qps.unwrap_or(1);
            format!(
                "NOTHING PASSES: the DUT fails even at {}; check with `trial -Q {lowest_qps}`",
                match lowest_qps {
                    1 => "1 query/s".to_owned(),
                    more => rate(more),
                }
            )
        }
        SearchEnd::TooWide { .. } => "THE INTERVAL IS TOO WIDE".to_owned(),
        SearchEnd::TesterFault {
            fault: TesterFault::Interrupted,
        } => match result.rate_qps {
            Some(passed) => format!("INTERRUPTED, AT LEAST {}: it passed", rate(passed)),
            None => "INTERRUPTED: no rate had passed".to_owned(),
        },
        SearchEnd::TesterFault { fault } => {
            let why = match result.trials.last() {
                Some(last) if last.outcome.fault().is_some() => {
                    format!(
                        "every trial at {} was invalid: {fault}",
                        rate(last.rate_qps)
                    )
                }
                _ => fault.to_string(),
            };
            match result.rate_qps {
                Some(passed) => format!("AT LEAST {}: it passed, and {why}", rate(passed)),
                None => format!("NO RESULT: {why}"),
            }
        }
    }
}

/// The text below each headline, equal for all commands: why the result is not a measurement, and what is other than
/// RFC 8219 requires.
pub fn caveats<'a>(
    watermarks: &'a [String],
    conditions: &'a Conditions,
) -> impl Iterator<Item = String> + 'a {
    let reasons = watermarks.iter();
    let reasons = reasons.map(|reason| format!("NOT A MEASUREMENT: {reason}"));
    reasons.chain(conditions.deviation.clone())
}

/// A text under construction.
struct Page(String);

impl Page {
    fn begin(verdict: &str, watermarks: &[String], conditions: &Conditions) -> Self {
        let mut page = Self(String::new());
        page.line(verdict);
        for line in caveats(watermarks, conditions) {
            page.line(&line);
        }
        page
    }

    fn line(&mut self, text: &str) {
        self.0 += text.trim_end();
        self.0.push('\n');
    }

    fn section<L: AsRef<str>>(&mut self, title: &str, rows: impl IntoIterator<Item = (L, String)>) {
        self.line("");
        self.line(title);
        for (label, text) in rows {
            self.line(&format!("  {:<26}  {text}", label.as_ref()));
        }
    }

    /// The common conditions of the trials.
    fn conditions(&mut self, conditions: &Conditions, trials: &[TrialResult]) {
        let known = |value: &str| Some(value.to_owned());
        let span = |of: fn(&TrialResult) -> Nanos| trials.first().map(|t| Span(of(t)).to_string());
        let ports = || trials.iter().map(|trial| trial.source_ports);
        let sockets = match (ports().min(), ports().max()) {
            (Some(least), Some(most)) if least < most => format!("{least} to {most} by the rate"),
            (least, _) => least.map_or_else(|| "-".to_owned(), |ports| ports.to_string()),
        };
        // Without a certificate there is nothing for them to cover.
        let certified = conditions.certificate.is_some();
        let covers = conditions.self_test_covers.clone();
        let covers = covers.filter(|_| certified);
        let rows = [
            ("tester", known(&conditions.tester)),
            ("server", known(&conditions.server)),
            ("device under test", conditions.dut.clone()),
            ("authority", conditions.authority.clone()),
            ("lab", conditions.lab.clone()),
            ("setup", conditions.setup.clone()),
            ("upstream", conditions.upstream_family.clone()),
            ("pref64", conditions.pref64.clone()),
            ("names", known(&conditions.namespace)),
            ("names with an AAAA", known(&conditions.aaaa_share)),
            ("records of the names", conditions.name_records.clone()),
            ("queries for a cached name", known(&conditions.cached_share)),
            ("cached names", conditions.cached_pattern.clone()),
            ("types of the queries", conditions.types.clone()),
            ("EDNS of the queries", conditions.edns.clone()),
            ("duration of a trial", span(|t| t.duration_ns)),
            ("timeout of a query", span(|t| t.timeout_ns)),
            ("transport", conditions.transport.map(|it| it.to_string())),
            (
                "threads, source ports",
                Some(format!("{}, {sockets}", conditions.threads)),
            ),
            ("source addresses", conditions.sources()),
            (
                "datagrams",
                (conditions.transport.is_none()).then(|| conditions.datagrams()),
            ),
            ("self-tests cover", covers),
        ];
        let rows = rows
            .into_iter()
            .filter_map(|(l, text)| Some((l.to_owned(), text?)));
        let cpus = conditions.cpus.iter();
        let cpus = cpus.map(|(role, list)| (format!("cpus of {role}"), list.clone()));
        self.section("Conditions", rows.chain(cpus));
    }

    fn evidence(&mut self, result: &TrialResult) {
        let (sent, due) = (result.queries_sent, result.queries_due);
        let early = "the trial ended as soon as it had failed";
        let early = if result.ended_early { early } else { "" };
        self.section(
            "Queries",
            [
                ("due", count(due, None, "")),
                ("sent", count(sent, Some(due), early)),
            ],
        );
        self.section(
            "Answers, in queries and in per cent of those sent",
            classes(&result.answers)
                .map(|(class, n, meaning)| (class, count(n, Some(sent), meaning))),
        );
        if !result.types.is_empty() {
            self.section("Queries by type", result.types.iter().map(of_type));
        }
        self.section("Datagrams beyond those", beyond(result).map(counted));
        let path = result.path.as_ref();
        let label = match result.certified {
            Some(_) => "DUT only",
            None => "without the authority",
        };
        self.section(
            "Round-trip time of the answered queries",
            round_trips(result.rtt)
                .into_iter()
                .chain(path.map(|path| (label, without_authority(path)))),
        );
        if let Some(series) = &result.series {
            self.section("Course of the losses", [losses_over_time(series)]);
        }
        self.section(
            "Timing of the Tester: how late the queries left",
            timing(&result.timing, &result.backend),
        );
        let roles = &result.machine.roles;
        if !roles.is_empty() {
            self.section("Processors during the trial", roles.iter().map(processor));
        }
        let counts = result.authority.as_ref();
        if let Some(faults) = counts.and_then(|counts| counts.misbehaviour.as_ref()) {
            self.section(
                "Deliberate faults of the authority",
                misbehaviour(faults).map(counted),
            );
        }
        self.dut(result);
    }

    /// Connections to the DUT, its service and its resources.
    fn dut(&mut self, result: &TrialResult) {
        if let Some(connections) = &result.connections {
            self.section("Connections of the Measurer", connection_rows(connections));
        }
        if let Some(service) = result.service {
            self.section(
                "Service while queries waited in the DUT",
                service_rows(service),
            );
        }
        if let Some(resources) = result.resources {
            let memory = format!("{} MiB", resources.memory_bytes >> 20);
            self.section("Device under test", [("resident memory", memory)]);
        }
    }

    /// Shares observed at the authority, beside the configured ones.
    fn achieved(&mut self, achieved: Option<&Achieved>, conditions: &Conditions) {
        let Some(achieved) = achieved else { return };
        let percent = |share: Option<f64>| {
            share.map_or("unknown".into(), |share| format!("{:.4} %", 100.0 * share))
        };
        let (cached, own) = (&conditions.cached_share, &conditions.aaaa_share);
        let rows = [
            (
                "cached names",
                percent(achieved.cached_share),
                format!("of the queries; asked for {cached}"),
            ),
            (
                "names with an AAAA",
                percent(achieved.aaaa_share),
                format!("of the names not cached; asked for {own}"),
            ),
            (
                "queries of the DUT",
                format!("{:.4}  ", achieved.amplification),
                "for each of the Measurer".to_owned(),
            ),
        ];
        let rows = rows.map(|(label, value, meaning)| (label, format!("{value:>18}  {meaning}")));
        self.section("Achieved, as the authority saw it", rows);
    }

    fn trials(&mut self, trials: &[TrialResult]) {
        self.line("\nTrials");
        self.line("    #  rate, queries/s  outcome      shortfall  why");
        for (number, trial) in (1..).zip(trials) {
            let (rate, outcome) = (Thousands(trial.rate_qps), trial.outcome.word());
            let shortfall = Thousands(trial.outcome.shortfall()).to_string();
            let (shortfall, why) = match &trial.outcome {
                Outcome::Passed => (shortfall, String::new()),
                Outcome::Failed { .. } => (shortfall, losses(trial)),
                Outcome::Invalid(fault) => ("-".to_owned(), fault.what()),
            };
            self.line(&format!(
                "  {number:>3}  {rate:>15}  {outcome:<7}  {shortfall:>13}  {why}"
            ));
        }
    }

    /// Remarks without duplicates.
    fn notes<'a>(&mut self, notes: impl Iterator<Item = &'a String>) {
        let mut told: Vec<&String> = Vec::new();
        for note in notes {
            if told.is_empty() {
                self.line("\nNotes");
            }
            if !told.contains(&note) {
                self.line(&format!("  - {note}"));
                told.push(note);
            }
        }
    }
}

/// Datagrams that answer no query for the first time, or that the Tester lost.
fn beyond(result: &TrialResult) -> [(&'static str, u64, &'static str); 3] {
    let Answers {
        duplicate, stray, ..
    } = result.answers;
    [
        ("duplicate", duplicate, "second reply to a query"),
        ("stray", stray, "answers no query of this trial"),
        (
            "lost by the Tester",
            result.tester_drops,
            "at its own sockets",
        ),
    ]
}

/// The queries of one type.
fn of_type(it: &TypeResult) -> (String, String) {
    let [sent, valid, lost, wrong] = [it.sent, it.valid, it.lost, it.wrong].map(Thousands);
    let hints = match it.synthesised_hints {
        0 => String::new(),
        hints => format!("; {} answers with synthesised hints", Thousands(hints)),
    };
    let counts =
        format!("{sent} sent, {valid} valid, {lost} without a response, {wrong} others{hints}");
    (it.rtype.clone(), counts)
}

fn self_test_rows(result: &SelfTests, timeout_ns: Nanos) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let certified = result.certificate().map(|certificate| certificate.rate_qps);
    if let Some(dut_qps) = result.wanted_rate_qps().or(certified) {
        let (needed, literal) = (self_test_rate(dut_qps), literal_self_test_rate(dut_qps));
        rows.extend([
            ("rate of the DUT, r", rate(dut_qps)),
            (
                "asked for, 2(1 + 0.1)r",
                rate(needed) + " (the papers' reading)",
            ),
            (
                "literally, 2(r + 0.1)",
                rate(literal) + " (the RFC's words, rounded up)",
            ),
        ]);
    }
    rows.extend(result.passed_rate_qps().map(|qps| ("passed at", rate(qps))));
    let each = result.all.iter().map(|test| match test.meaning() {
        Meaning::Rate(qps) => Thousands(qps).to_string(),
        Meaning::Nothing => "none".to_owned(),
        Meaning::Disturbed => "disturbed".to_owned(),
    });
    let each: Vec<_> = each.collect();
    rows.push(("found by each self-test", each.join(" | ")));
    let quarter = Span(self_test_timeout(timeout_ns));
    let timeout = format!("{quarter} (t = {})", Span(timeout_ns));
    rows.push(("timeout, a quarter of t", timeout));
    rows
}

/// Configured faults in the responses of an authority, each with its meaning.
pub(crate) fn misbehaviour(faults: &FaultCounts) -> [(&'static str, u64, &'static str); 8] {
    [
        ("delayed", faults.delayed, "replies that were held back"),
        ("lost", faults.lost, "replies that were not sent"),
        ("SERVFAIL", faults.servfail, "in place of the answer"),
        ("REFUSED", faults.refused, "in place of the answer"),
        ("truncated", faults.truncated, "TC and no records"),
        (
            "reordered",
            faults.reordered,
            "held back for others to overtake",
        ),
        ("duplicated", faults.duplicated, "sent twice"),
        (
            "overflowed",
            faults.overflowed,
            "not sent: no room to delay them",
        ),
    ]
}

/// Classes of the sent queries, each with its meaning.
fn classes(answers: &Answers) -> [(&'static str, u64, &'static str); 7] {
    [
        ("valid", answers.valid, "the expected AAAA, in time"),
        ("late", answers.late, "the expected AAAA, after the timeout"),
        (
            "wrong",
            answers.wrong,
            "an AAAA other than the expected one",
        ),
        ("empty", answers.empty, "NOERROR without an AAAA"),
        ("error", answers.error, "another RCODE, or malformed"),
        ("truncated", answers.truncated, "TC set"),
        ("missing", answers.missing, "no answer at all"),
    ]
}

/// Remarks on several trials, each with the number of its trial.
fn remarks(trials: &[TrialResult]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (number, trial) in (1..).zip(trials) {
        let notes = trial.notes.iter();
        remarks.extend(notes.map(|note| format!("trial {number}: {note}")));
    }
    remarks
}

fn rate(qps: u64) -> String {
    format!("{} queries/s", Thousands(qps))
}

fn span(ns: Nanos) -> String {
    format!("{:>18}", Span(ns))
}

fn counted<L>((label, n, meaning): (L, u64, &str)) -> (L, String) {
    (label, count(n, None, meaning))
}

/// A count, its share of `whole`, and its meaning. The share is rounded down: 100 % means all.
fn count(n: u64, whole: Option<u64>, meaning: &str) -> String {
    let share = whole.filter(|whole| *whole > 0).map(|whole| {
        let ten_thousandths = u128::from(n) * 1_000_000 / u128::from(whole);
        let (percent, rest) = (ten_thousandths / 10_000, ten_thousandths % 10_000);
        format!("{percent:>4}.{rest:04} %")
    });
    format!(
        "{:>16}  {:<11}  {meaning}",
        Thousands(n),
        share.unwrap_or_default()
    )
}
