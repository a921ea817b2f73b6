//! Warnings that a reader needs before quoting a number.

use std::collections::BTreeMap;

use super::{authorities, contradictions, grouped};
use crate::campaign::history::Recorded;
use crate::campaign::plan::Laboratory;
use crate::campaign::record::{Environment, VariantFacts};
use crate::campaign::{environment, facts};
use crate::conform::report::Verdict;
use crate::report::Thousands;
use crate::report::campaign::analysis::{Analysis, PointResult, RunEnd, SoakResult, VariantInfo};
use crate::report::campaign::{numbers, words};
use crate::statistics::summary::Flag;
use crate::trial::result::TrialResult;
use crate::warning::{Section, Severity, Warning};

/// A warning follows if one trial in this number, or more, is invalid.
const DISTURBED_MAX: u64 = 10;

/// Tolerated deviation of shares, in percentage points.
const SHARE_OFF_MAX: f64 = 1.0;

/// All warnings, the most severe first.
pub(super) fn all(history: &Recorded<'_>, analysis: &Analysis) -> Vec<Warning> {
    let plan = &history.plan;
    let mut all = Vec::new();
    let mut add = |section: Option<Section>, warnings: Vec<Warning>| {
        all.extend(warnings.into_iter().map(|warning| Warning {
            section: warning.section.or(section).filter(|it| has(analysis, *it)),
            ..warning
        }));
    };
    let (results, evidence) = (Some(Section::Results), Some(Section::Evidence));
    add(results, unfinished(history, analysis));
    add(None, plan.remarks());
    add(None, in_driver(analysis).collect());
    add(
        None,
        analysis.variants.iter().filter_map(conformance).collect(),
    );
    add(None, doubts(analysis).collect());
    add(results, contradictions::all(analysis));
    add(results, authorities::limited(analysis).collect());
    for (variant, info) in analysis.variants.iter().enumerate() {
        let points: Vec<_> = analysis.points_of(variant).collect();
        add(results, runs(&info.name, &points));
        add(
            results,
            disagreement(&info.name, &points).into_iter().collect(),
        );
        add(results, spread(&info.name, &points));
    }
    let soaks = analysis.soaks.iter();
    let soaks = soaks.filter_map(|soak| failed_soak(analysis, soak));
    add(Some(Section::Soak), soaks.collect());
    for point in &analysis.points {
        add(results, figures(analysis, point));
    }
    for (variant, info) in analysis.variants.iter().enumerate() {
        let trials = history.all_trials_of(|point| point.variant == variant);
        let trials: Vec<_> = trials.collect();
        let own = analysis.evidence.iter().find(|it| it.variant == variant);
        let invalid = own.map_or(&[][..], |it| &it.invalid);
        add(evidence, self::trials(&info.name, &trials, invalid));
    }
    // Warnings about the machine come after those about the servers.
    add(Some(Section::Sessions), sessions(history, analysis));
    add(Some(Section::Sessions), machines(history));
    all.sort_by_key(|warning| warning.severity);
    all
}

/// Whether the page has a section.
fn has(analysis: &Analysis, section: Section) -> bool {
    match section {
        Section::Results => !analysis.points.is_empty(),
        Section::SelfTest => !analysis.certificates.is_empty(),
        Section::Evidence => !analysis.evidence.is_empty(),
        Section::Overload => !analysis.overloads.is_empty(),
        Section::Soak => !analysis.soaks.is_empty(),
        Section::Sessions => !analysis.sessions.is_empty(),
    }
}

fn unfinished(history: &Recorded<'_>, analysis: &Analysis) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if !analysis.complete {
        let runs = analysis.points.iter().flat_map(|point| &point.runs);
        let all = runs.clone().count();
        let done = runs.filter(|run| run.ended != RunEnd::Unfinished).count();
        let text = format!(
            "the campaign is not complete: {} of {all} searches are done",
            Thousands(done as u64)
        );
        let remedy = "continue it with `dns64bench resume`";
        warnings.push(Severity::Critical.warning(text).remedy(remedy));
    }
    for (task, history) in &history.tasks {
        if let Some(reason) = &history.abandoned
            && let Some(point) = analysis.points.get(task.point())
        {
            let text = format!("{task} was abandoned and has no result: {reason}");
            let about = words::point(analysis, point);
            warnings.push(Severity::Critical.warning(text).about(about));
        }
    }
    warnings
}

fn sessions(history: &Recorded<'_>, analysis: &Analysis) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let last = history.sessions.len().saturating_sub(1);
    for (index, session) in history.sessions.iter().enumerate() {
        let mut note = |text: String| {
            let about = format!("session {}", index + 1);
            warnings.push(Severity::Note.warning(text).about(about));
        };
        if session.ended.is_none() && index < last {
            note(format!(
                "begun {}, ended without a stop record: a crash, or it was killed",
                numbers::moment(session.began_unix_ms)
            ));
        }
        if session.torn_bytes > 0 {
            note(format!(
                "found half a line of {} at the end of the journal and cut it off",
                numbers::count(session.torn_bytes, "octet")
            ));
        }
    }
    for (variant, records) in analysis.variants.iter().zip(&history.variants) {
        warnings.extend(changed(&variant.name, records));
    }
    warnings
}

/// Changes of a variant at a later start. Others stop a campaign.
fn changed(name: &str, starts: &[VariantFacts]) -> Option<Warning> {
    let pairs = starts.windows(2);
    let changes = pairs.flat_map(|pair| facts::changes(&pair[0], &pair[1]));
    let changes: Vec<_> = changes.map(|change| change.to_string()).collect();
    (!changes.is_empty()).then(|| {
        let text = format!(
            "changed during the campaign: {}; this does not affect the measurement",
            changes.join("; ")
        );
        Severity::Note.warning(text).about(name)
    })
}

/// Doubts about the machine, once for consecutive sessions with the same doubts, and changes between sessions.
fn machines(history: &Recorded<'_>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let (machine, of) = match history.laboratory() {
        Laboratory::Hosts(_) => ("controller", "controller of "),
        Laboratory::Elsewhere | Laboratory::Here(_) => ("machine", ""),
    };
    let mut before = None;
    for (index, session) in history.sessions.iter().enumerate() {
        let environment = &session.environment;
        let known = before.map_or(Vec::new(), environment::warnings);
        let new = environment::warnings(environment).into_iter();
        let new = new.filter(|warning| !known.contains(warning));
        let about = format!("{of}session {}", index + 1);
        warnings.extend(new.map(|warning| warning.about(&about)));
        let before = before.replace(environment);
        let changes = before.map_or(Vec::new(), |before| changes(before, environment));
        if !changes.is_empty() {
            let text = format!(
                "the {machine} changed between sessions {index} and {}: {}",
                index + 1,
                changes.join("; ")
            );
            warnings.push(Severity::Warning.warning(text));
        }
    }
    warnings
}

/// Differences between two machines.
fn changes(a: &Environment, b: &Environment) -> Vec<String> {
    let mut changes = Vec::new();
    if a.boot_id != b.boot_id {
        changes.push("it was restarted".to_owned());
    }
    let mut say = |name: &str, was: &dyn ToString, is: &dyn ToString| {
        let [was, is] = [was, is].map(|value| match value.to_string() {
            empty if empty.is_empty() => "unknown".to_owned(),
            text => text,
        });
        if was != is {
            changes.push(format!("{name} was {was}, is {is}"));
        }
    };
    say("host", &a.host, &b.host);
    say("kernel", &a.kernel, &b.kernel);
    say("distribution", &a.os, &b.os);
    say("processor", &a.cpu, &b.cpu);
    say("processors", &a.cpus, &b.cpus);
    say("octets of memory", &a.memory_bytes, &b.memory_bytes);
    let mut names: Vec<&String> = a.details.keys().chain(b.details.keys()).collect();
    names.sort_unstable();
    names.dedup();
    // The load always differs; a session that began under load has its own warning.
    for name in names.into_iter().filter(|name| *name != environment::LOAD) {
        let of = |e: &Environment| e.details.get(name).cloned().unwrap_or_default();
        say(name, &of(a), &of(b));
    }
    changes
}

/// Why a variant is not a measurement, unless the verdict on all variants says it already.
fn doubts(analysis: &Analysis) -> impl Iterator<Item = Warning> {
    analysis.variants.iter().flat_map(|info| {
        let own = info.not_a_measurement.iter();
        let own = own.filter(|reason| !analysis.not_a_measurement.contains(reason));
        own.map(|reason| {
            let text = format!("not a measurement: {reason}");
            Severity::Critical.warning(text).about(&info.name)
        })
    })
}

/// What a test of conformance found against a variant.
fn conformance(info: &VariantInfo) -> Option<Warning> {
    let found = info.conformance.as_ref()?;
    let name = &info.name;
    if let Some(why) = &found.incomplete {
        let text = format!("conformance is not known: {why}");
        return Some(Severity::Warning.warning(text).about(name));
    }
    info.fails_a_must().then(|| {
        let cases: Vec<&str> = found.musts(Verdict::Failed).collect();
        let cases = cases.join(", ");
        let mark = words::FAILS_A_MUST;
        let text = format!("fails cases of level must ({mark}): {cases}");
        let remedy = "see the messages with `dns64bench conform --case NAME`";
        Severity::Warning.warning(text).about(name).remedy(remedy)
    })
}

/// Variants whose authority responds in the driver, with its limitations.
fn in_driver(analysis: &Analysis) -> impl Iterator<Item = Warning> {
    analysis.variants.iter().filter_map(|info| {
        let remark = info.planned.subject.lab()?.authority.remark()?;
        Some(Severity::Note.warning(remark).about(&info.name))
    })
}

/// Runs of a variant without a result, or with a result that may be too low.
fn runs(name: &str, points: &[&PointResult]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (how, severity, what, remedy) in ENDS {
        let ended = |p: &&PointResult| p.runs.iter().filter(|run| run.ended == how).count();
        let runs: usize = points.iter().map(ended).sum();
        if runs > 0 {
            let points = points.iter().filter(|p| ended(p) > 0).count();
            let (runs, points) = (numbers::count(runs, "run"), numbers::count(points, "point"));
            let text = format!("{runs} of {points} {what}");
            warnings.push(Warning {
                remedy: remedy.map(str::to_owned),
                ..severity.warning(text).about(name)
            });
        }
    }
    warnings
}

/// Ends of searches without a definite result: meaning and remedy.
const ENDS: [(RunEnd, Severity, &str, Option<&str>); 4] = [
    (
        RunEnd::LimitedByTester,
        Severity::Warning,
        "ended at the rate that the Tester is certified for: the figures are lower bounds",
        Some("give the Tester more threads and cores"),
    ),
    (
        RunEnd::LimitedByRequest,
        Severity::Warning,
        "ended at the highest rate of the plan: the figures are lower bounds",
        Some("raise max-rate"),
    ),
    (
        RunEnd::NothingPasses,
        Severity::Critical,
        "without a rate: the DUT fails even at the lowest",
        None,
    ),
    (
        RunEnd::TesterFault,
        Severity::Critical,
        "ended before a rate was found: the Tester was disturbed in every repetition of a trial",
        None,
    ),
];

/// Points of a variant whose runs disagree on a rate.
fn disagreement(name: &str, points: &[&PointResult]) -> Option<Warning> {
    let unstable = points.iter().filter_map(|p| p.agreement);
    let unstable: Vec<_> = unstable.filter(|found| found.unstable).collect();
    let first = unstable.first()?;
    let which = match unstable.len() {
        1 => "",
        _ => "the first: ",
    };
    let text = format!(
        "the runs of {} disagree ({which}{} queries/s): no single rate represents them",
        numbers::count(unstable.len(), "point"),
        numbers::range(first)
    );
    let remedy =
        "look at what disturbed them (doctor, Evidence), and repeat them on a quiet machine";
    Some(Severity::Critical.warning(text).about(name).remedy(remedy))
}

/// A soak in which the DUT lost queries below the measured rate.
fn failed_soak(analysis: &Analysis, soak: &SoakResult) -> Option<Warning> {
    let segments = soak.rows.iter().filter(|row| row.shortfall > 0).count();
    (soak.shortfall > 0).then(|| {
        let text = format!(
            "the soak at {} queries/s failed: {} queries without a valid answer in time, in {segments} of {}",
            Thousands(soak.rate_qps),
            Thousands(soak.shortfall),
            numbers::count(soak.rows.len(), "segment")
        );
        let name = analysis.name_of(soak.variant);
        let remedy = "the DUT does not sustain the rate of the searches: report the soak with the result";
        Severity::Critical.warning(text).about(name).remedy(remedy)
    })
}

/// Points of a variant whose runs are skewed, scatter or drift; the table of results marks them. Of fewer runs than an
/// interval needs that is noise.
fn spread(name: &str, points: &[&PointResult]) -> Vec<Warning> {
    let summaries = points.iter().filter_map(|p| p.summary.as_ref());
    let told = summaries.filter(|summary| summary.median_interval.is_some());
    let flags = told.flat_map(|summary| &summary.flags);
    let flags = flags.filter_map(|flag| match *flag {
        Flag::Skewed { by_pct } => Some((
            "the runs are skewed, the mean is off the median by up to",
            by_pct.abs(),
        )),
        Flag::Scattered {
            standard_deviation_pct,
        } => Some((
            "the runs scatter, the standard deviation over the mean is up to",
            standard_deviation_pct,
        )),
        Flag::Drift { by_pct, .. } => Some((
            "the runs drift, the last are off the first by up to",
            by_pct.abs(),
        )),
        Flag::FewRuns { .. } => None,
    });
    let warning = |(what, by_pct): (&str, Vec<f64>)| {
        let worst = by_pct.iter().copied().fold(0.0, f64::max);
        let (some, all) = (by_pct.len(), numbers::count(points.len(), "point"));
        let text = format!("{some} of {all}: {what} {worst:.1} %");
        Severity::Warning.warning(text).about(name)
    };
    grouped(flags).into_iter().map(warning).collect()
}

/// Deviations from the configured shares, and losses of the Tester.
fn figures(analysis: &Analysis, point: &PointResult) -> Vec<Warning> {
    let mut texts = Vec::new();
    if let Some(achieved) = point.achieved {
        let mut share = |what: &str, asked: f64, seen: f64| {
            if (asked - seen).abs() > SHARE_OFF_MAX {
                texts.push(format!(
                    "the authority saw {what} of {seen:.1} % instead of {asked:.1} %"
                ));
            }
        };
        share("a cached share", point.cached_pct, achieved.cached_pct);
        if let Some(seen) = achieved.aaaa_pct {
            share("an AAAA share", point.aaaa_pct, seen);
        }
    }
    let about = || words::point(analysis, point);
    let warning = |text: String| Severity::Warning.warning(text).about(about());
    let mut warnings: Vec<_> = texts.into_iter().map(&warning).collect();
    if point.tester_drops > 0 {
        let lost = numbers::count(point.tester_drops, "datagram");
        let text = format!("{lost} lost at the Tester's own sockets");
        let remedy = "raise net.core.rmem_max or use more threads";
        warnings.push(warning(text).remedy(remedy).section(Section::Evidence));
    }
    warnings
}

/// Disturbed trials, uneven bins and remarks, over all trials of a variant.
fn trials(name: &str, trials: &[&TrialResult], faults: &[(&str, u64)]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut add = |severity: Severity, text: String| {
        warnings.push(severity.warning(text).about(name));
    };
    let exits = trials.iter().filter_map(|t| t.dut_exit.as_deref());
    let exits: Vec<&str> = exits.collect();
    if let Some(first) = exits.first() {
        let times = numbers::count(exits.len(), "trial");
        let which = if exits.len() > 1 { "at first " } else { "" };
        let text = format!("the DUT ended by itself in {times}: {which}{first}");
        add(Severity::Warning, text);
    }
    let all = numbers::count(trials.len(), "trial");
    if !faults.is_empty() {
        let invalid: u64 = faults.iter().map(|(_, times)| times).sum();
        let kinds = faults.iter().map(|(kind, n)| format!("{kind} ({n})"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let text = format!("{invalid} of {all} invalid and repeated: {kinds}");
        let severity = match invalid * DISTURBED_MAX >= trials.len() as u64 {
            true => Severity::Warning,
            false => Severity::Note,
        };
        add(severity, text);
    }
    for (note, times) in alike(trials.iter().flat_map(|trial| &trial.notes)).values() {
        let text = match times {
            1 => (*note).to_owned(),
            times => format!("{note} (the same or similar in {times} trials)"),
        };
        add(Severity::Note, text);
    }
    warnings
}

/// The first of all remarks of trials that differ in numbers or in brackets only, such as "(rustc, pid 5)", and how many
/// there are. Journals have these remarks as texts.
fn alike<'t>(remarks: impl Iterator<Item = &'t String>) -> BTreeMap<String, (&'t str, usize)> {
    let mut alike = BTreeMap::new();
    for remark in remarks {
        let mut open = 0_u32;
        let is_kept = |c: &char| {
            match c {
                '(' => open += 1,
                ')' => open = open.saturating_sub(1),
                _ => {}
            }
            open == 0 && !c.is_ascii_digit() && *c != '.'
        };
        let kept = remark.chars().filter(is_kept).collect();
        alike.entry(kept).or_insert((remark.as_str(), 0)).1 += 1;
    }
    alike
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::record::Record;
    use crate::report::campaign::analyse::analyse;
    use crate::report::campaign::tests::sample::{SEAL, small};

    #[test]
    fn section_of_a_warning_does_not_depend_on_its_words() {
        let (plan, mut lines) = small();
        let exit = "session of a soak, certified by the model over a trial at its run";
        let mut trials = lines.iter_mut().filter_map(|line| match &mut line.record {
            Record::Trial { result, .. } => Some(result),
            _ => None,
        });
        trials.next().unwrap().dut_exit = Some(exit.to_owned());
        let warnings = analyse(&plan, &lines, SEAL).warnings;
        let mut exits = warnings.iter().filter(|it| it.text.ends_with(exit));
        assert_eq!(exits.next().unwrap().section, Some(Section::Evidence));
    }
}
