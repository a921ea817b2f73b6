//! What a reader has to know before a number is quoted, in plain words.

use std::collections::BTreeMap;

use super::about::is_authority;
use super::told::{TaskTold, Told};
use crate::campaign::history::SessionHistory;
use crate::campaign::plan::Plan;
use crate::campaign::record::VariantFacts;
use crate::campaign::tasks::Task;
use crate::report::Thousands;
use crate::report::campaign::analysis::{Analysis, PointResult};
use crate::report::campaign::words;
use crate::rig::recommended::RUNS_MIN;
use crate::statistics::summary::Flag;
use crate::trial::result::{Outcome, TrialResult};

/// A bin of 100 ms may hold this much more or less than is due in it, in per cent: the accuracy
/// that the papers' scripts ask of the whole trial (paper 002, figure 3).
const BIN_DEVIATION_PCT_MAX: f64 = 1.0;

/// Bins with so few queries more or less are no deviation: a query may fall on either side of an
/// edge, at both ends.
const BIN_DEVIATION_QUERIES: f64 = 2.0;

/// Shares may be so far off, in percentage points.
const SHARE_OFF_MAX: f64 = 1.0;

/// All warnings, the gravest first.
pub(super) fn all(plan: &Plan, told: &Told<'_>, analysis: &Analysis) -> Vec<String> {
    let mut warnings = Vec::new();
    unfinished(plan, told, analysis, &mut warnings);
    sessions(told, analysis, &mut warnings);
    warnings.extend(plan.remarks());
    certificates(plan, analysis, &mut warnings);
    if plan.search.runs >= RUNS_MIN {
        few_runs(analysis, &mut warnings);
    }
    runs(analysis, &mut warnings);
    for point in &analysis.points {
        figures(analysis, point, &mut warnings);
    }
    for variant in 0..analysis.variants.len() {
        trials(told, analysis, variant, &mut warnings);
    }
    warnings
}

fn unfinished(plan: &Plan, told: &Told<'_>, analysis: &Analysis, warnings: &mut Vec<String>) {
    if !analysis.complete {
        let all = analysis.points.len() * usize::try_from(plan.search.runs).unwrap_or(0);
        let runs = analysis.points.iter().flat_map(|point| &point.runs);
        let done = runs.filter(|run| run.ended != "unfinished").count();
        warnings.push(format!(
            "the campaign is not complete: {} of {all} searches are done",
            Thousands(done as u64)
        ));
    }
    for (task, told) in &told.tasks {
        if let Some(reason) = &told.abandoned
            && let Some(point) = analysis.points.get(task.point())
        {
            warnings.push(format!(
                "{}: {task} was given up, and no number is made from it: {reason}",
                words::point(analysis, point)
            ));
        }
    }
}

fn sessions(told: &Told<'_>, analysis: &Analysis, warnings: &mut Vec<String>) {
    for (index, session) in analysis.sessions.iter().enumerate() {
        let number = index + 1;
        let last = number == analysis.sessions.len();
        if session.ended == "without a word" && !last {
            warnings.push(format!(
                "session {number}, begun {}, ended without a word: a crash, or it was killed",
                session.began
            ));
        }
        if session.torn_bytes > 0 {
            warnings.push(format!(
                "session {number} found half a line of {} at the end of the journal and cut it off",
                words::count(usize::try_from(session.torn_bytes).unwrap_or(0), "octet")
            ));
        }
    }
    for (index, pair) in told.sessions.windows(2).enumerate() {
        let changes = changes(&pair[0], &pair[1]);
        if !changes.is_empty() {
            warnings.push(format!(
                "the machine changed between sessions {} and {}: {}",
                index + 1,
                index + 2,
                changes.join("; ")
            ));
        }
    }
    for (variant, records) in analysis.variants.iter().zip(&told.variants) {
        let program = |r: &VariantFacts| (r.version.clone(), r.program_sha256.clone());
        if records
            .windows(2)
            .any(|pair| program(&pair[0]) != program(&pair[1]))
        {
            warnings.push(format!(
                "{}: its program changed during the campaign; the report shows the last",
                variant.name
            ));
        }
    }
}

/// What is different on the machine of two sessions.
fn changes(before: &SessionHistory, after: &SessionHistory) -> Vec<String> {
    let (a, b) = (&before.environment, &after.environment);
    let mut changes = Vec::new();
    if a.boot_id != b.boot_id {
        changes.push("it was started anew".to_owned());
    }
    let number = |n: u64| n.to_string();
    let (cpus_a, cpus_b) = (number(a.cpus as u64), number(b.cpus as u64));
    let (memory_a, memory_b) = (number(a.memory_bytes), number(b.memory_bytes));
    let mut texts = vec![
        ("host", &a.host, &b.host),
        ("kernel", &a.kernel, &b.kernel),
        ("distribution", &a.os, &b.os),
        ("processor", &a.cpu, &b.cpu),
        ("processors", &cpus_a, &cpus_b),
        ("octets of memory", &memory_a, &memory_b),
    ];
    let none = String::new();
    let mut names: Vec<&String> = a.details.keys().chain(b.details.keys()).collect();
    names.sort_unstable();
    names.dedup();
    // The load differs always, and a session that began under load is warned of for itself.
    for name in names.into_iter().filter(|name| !name.starts_with("load")) {
        let (was, is) = (a.details.get(name), b.details.get(name));
        texts.push((name, was.unwrap_or(&none), is.unwrap_or(&none)));
    }
    let shown = |text: &str| match text {
        "" => "unknown".to_owned(),
        text => text.to_owned(),
    };
    let different = texts.into_iter().filter(|(_, was, is)| was != is);
    changes.extend(
        different.map(|(name, was, is)| format!("{name} was {}, is {}", shown(was), shown(is))),
    );
    changes
}

fn certificates(plan: &Plan, analysis: &Analysis, warnings: &mut Vec<String>) {
    for (variant, info) in analysis.variants.iter().enumerate() {
        for reason in &info.not_a_measurement {
            warnings.push(format!("{}: not a measurement: {reason}", info.name));
        }
        let own = || analysis.points.iter().filter(|p| p.variant == variant);
        let measured = own().filter(|p| p.summary.is_some());
        let uncertified = measured.filter(|p| p.certified_rate_qps.is_none()).count();
        if uncertified > 0 && !is_authority(plan, variant) {
            warnings.push(format!(
                "{}: {} measured by a Tester without a certificate (RFC 8219 section 9.2.1)",
                info.name,
                words::count(uncertified, "point")
            ));
        }
    }
}

/// Points of which runs are missing; that the plan asks for few is one of its remarks.
fn few_runs(analysis: &Analysis, warnings: &mut Vec<String>) {
    let few = analysis.points.iter().filter_map(|p| p.summary.as_ref());
    let few: Vec<usize> = few
        .filter(|s| s.flags.iter().any(|f| matches!(f, Flag::FewRuns { .. })))
        .map(|s| s.runs)
        .collect();
    if let (Some(least), Some(most)) = (few.iter().min(), few.iter().max()) {
        let runs = match least == most {
            true => words::count(*most, "run"),
            false => format!("{least} to {most} runs"),
        };
        warnings.push(format!(
            "{} rest on {runs} instead of the 20 of RFC 8219 section 9.2",
            words::count(few.len(), "point")
        ));
    }
}

/// Runs without an answer, and how far the others spread, by variants.
fn runs(analysis: &Analysis, warnings: &mut Vec<String>) {
    for (variant, info) in analysis.variants.iter().enumerate() {
        let own = || analysis.points.iter().filter(|p| p.variant == variant);
        for (how, what) in ENDS {
            let ended = |p: &PointResult| p.runs.iter().filter(|run| run.ended == how).count();
            let runs: usize = own().map(ended).sum();
            if runs > 0 {
                let points = own().filter(|p| ended(p) > 0).count();
                warnings.push(format!(
                    "{}: {} of {} {what}",
                    info.name,
                    words::count(runs, "run"),
                    words::count(points, "point")
                ));
            }
        }
        spread(&info.name, &own().collect::<Vec<_>>(), warnings);
    }
}

/// Ends of searches that are no answer, and what they mean.
const ENDS: [(&str, &str); 4] = [
    (
        "limited_by_tester",
        "ended at the rate that the Tester is certified for: the figures are lower bounds",
    ),
    (
        "limited_by_request",
        "ended at the highest rate of the plan: the figures are lower bounds",
    ),
    (
        "nothing_passes",
        "without a rate: the DUT fails even at the lowest",
    ),
    (
        "tester_fault",
        "without a rate: the Tester was disturbed again and again",
    ),
];

/// How many points of a variant are skewed, and how many scatter; the table of results marks them.
fn spread(name: &str, points: &[&PointResult], warnings: &mut Vec<String>) {
    let flags = || {
        points
            .iter()
            .filter_map(|p| p.summary.as_ref())
            .flat_map(|s| &s.flags)
    };
    let skewed = flags().filter_map(|flag| match flag {
        Flag::Skewed { by_pct } => Some(by_pct.abs()),
        _ => None,
    });
    let scattered = flags().filter_map(|flag| match flag {
        Flag::Scattered {
            standard_deviation_pct,
        } => Some(*standard_deviation_pct),
        _ => None,
    });
    let mut say = |by_pct: Vec<f64>, what: &str| {
        if let Some(worst) = by_pct.iter().copied().reduce(f64::max) {
            let (some, all) = (by_pct.len(), words::count(points.len(), "point"));
            warnings.push(format!("{name}: {some} of {all}: {what} {worst:.1} %"));
        }
    };
    say(
        skewed.collect(),
        "the runs are skewed, the mean is off the median by up to",
    );
    say(
        scattered.collect(),
        "the runs scatter, the standard deviation over the mean is up to",
    );
}

/// Drift, shares that were not achieved and losses of the Tester.
fn figures(analysis: &Analysis, point: &PointResult, warnings: &mut Vec<String>) {
    let name = words::point(analysis, point);
    let flags = point.summary.iter().flat_map(|summary| &summary.flags);
    warnings.extend(flags.filter_map(|flag| match flag {
        Flag::Drift { by_pct, p } => Some(format!(
            "{name}: the runs drift by {by_pct:+.1} % from the first to the last ({})",
            words::p(*p)
        )),
        Flag::Skewed { .. } | Flag::Scattered { .. } | Flag::FewRuns { .. } => None,
    }));
    if let Some(achieved) = point.achieved {
        let mut share = |what: &str, asked: f64, seen: f64| {
            if (asked - seen).abs() > SHARE_OFF_MAX {
                warnings.push(format!(
                    "{name}: the authority saw {what} of {seen:.1} % instead of {asked:.1} %"
                ));
            }
        };
        share("a cached share", point.cached_pct, achieved.cached_pct);
        if let Some(seen) = achieved.aaaa_pct {
            share("an AAAA share", point.aaaa_pct, seen);
        }
    }
    if let Some(drops) = point
        .timing
        .map(|t| t.tester_drops)
        .filter(|drops| *drops > 0)
    {
        warnings.push(format!(
            "{name}: {} lost at the Tester's own sockets",
            words::count(usize::try_from(drops).unwrap_or(usize::MAX), "datagram")
        ));
    }
}

/// Disturbed trials, uneven bins and remarks, over all trials of a variant.
fn trials(told: &Told<'_>, analysis: &Analysis, variant: usize, warnings: &mut Vec<String>) {
    let name = &analysis.variants[variant].name;
    let own = |point: usize| {
        analysis
            .points
            .get(point)
            .is_some_and(|p| p.variant == variant)
    };
    let tasks: Vec<(Task, &TaskTold<'_>)> = told.tasks_of(own).collect();
    let trials = || {
        tasks
            .iter()
            .flat_map(|(_, task)| task.earlier.iter().chain(&task.trials))
            .map(|t| t.result)
    };
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    let mut uneven = 0;
    for trial in trials() {
        match &trial.outcome {
            Outcome::Invalid(fault) => *faults.entry(words::fault(fault)).or_default() += 1,
            Outcome::Passed | Outcome::Failed { .. } => uneven += usize::from(is_uneven(trial)),
        }
    }
    let exits = trials().filter_map(|trial| trial.dut_exit.as_deref());
    for (exit, times) in alike(exits).values() {
        warnings.push(format!(
            "{name}: the DUT ended by itself in {}: {exit}",
            words::count(*times, "trial")
        ));
    }
    let all = trials().count();
    if !faults.is_empty() {
        let invalid: usize = faults.values().sum();
        let kinds: Vec<_> = faults
            .iter()
            .map(|(kind, n)| format!("{kind} ({n})"))
            .collect();
        warnings.push(format!(
            "{name}: {invalid} of {} invalid and repeated: {}",
            words::count(all, "trial"),
            kinds.join(", ")
        ));
    }
    if uneven > 0 {
        warnings.push(format!(
            "{name}: in {uneven} of {} a bin of 100 ms is off by more than 1 %",
            words::count(all, "trial")
        ));
    }
    let notes = trials().flat_map(|trial| &trial.notes).map(String::as_str);
    for (note, times) in alike(notes).values() {
        warnings.push(match times {
            1 => format!("{name}: {note}"),
            times => format!("{name}: {note} (so or alike in {times} trials)"),
        });
    }
}

fn is_uneven(trial: &TrialResult) -> bool {
    let deviation_pct = trial.timing.bin_100ms_deviation_pct_max;
    let queries = deviation_pct / 100.0 * trial.rate_qps as f64 / 10.0;
    deviation_pct > BIN_DEVIATION_PCT_MAX && queries > BIN_DEVIATION_QUERIES
}

/// The first of all remarks that are alike, and how many there are.
fn alike<'t>(remarks: impl Iterator<Item = &'t str>) -> BTreeMap<String, (&'t str, usize)> {
    let mut alike = BTreeMap::new();
    for remark in remarks {
        alike
            .entry(without_numbers(remark))
            .or_insert((remark, 0))
            .1 += 1;
    }
    alike
}

/// A remark with a mark for each number, so that remarks that differ in numbers only are one.
fn without_numbers(note: &str) -> String {
    let mut text = String::with_capacity(note.len());
    for c in note.chars() {
        match c {
            '0'..='9' if text.ends_with('#') => {}
            '0'..='9' => text.push('#'),
            c => text.push(c),
        }
    }
    text
}
