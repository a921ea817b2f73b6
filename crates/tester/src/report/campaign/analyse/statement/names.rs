//! B-10 and B-12: the names that the DNS64 servers actually queried in the worst case.

use super::{Facts, Finding, met, not_applicable, not_known, not_met};
use crate::authority::counts::AuthorityCounts;
use crate::campaign::names::asked_twice;
use crate::campaign::plan::tasks::Point;
use crate::report::Thousands;
use crate::report::campaign::analysis::Met;
use crate::trial::achieved::hits;
use crate::trial::path::AnsweredNames;
use crate::trial::result::{Outcome, TrialResult};

/// Tolerated share of the AAAA queries at the authority that have a record: a DUT sends a few queries of its own.
const OWN_AAAA_MAX: f64 = 0.01;

/// Judges the trials of the worst case of each DNS64 server; the most severe verdict is that of all.
pub(super) fn of_each(
    f: &Facts<'_>,
    judge: fn(&Facts<'_>, usize, &[&TrialResult]) -> Finding,
) -> Finding {
    let servers = f.dns64_servers();
    if servers.is_empty() {
        return not_applicable("no DNS64 server was measured");
    }
    let judged = servers.iter().map(|&(variant, name)| {
        let worst = |point: &Point| point.variant == variant && point.cell.is_worst_case();
        let valid = f.history.trials_of(worst).filter(|t| t.outcome.is_valid());
        let valid: Vec<_> = valid.collect();
        let (verdict, why) = match valid.is_empty() {
            true => not_met("no valid trial without AAAA and cache"),
            false => judge(f, variant, &valid),
        };
        (verdict, format!("{name}: {why}"))
    });
    let judged: Vec<Finding> = judged.collect();
    let grave = |wanted: &Met| judged.iter().any(|(verdict, _)| verdict == wanted);
    let gravest = [Met::NotMet, Met::NotKnown].into_iter().find(grave);
    let gravest = gravest.unwrap_or(Met::Met);
    let of_it = judged.iter().filter(|(verdict, _)| *verdict == gravest);
    let why: Vec<&str> = of_it.map(|(_, why)| why.as_str()).collect();
    (gravest, why.join("; "))
}

/// B-10: whether the server queried the authority for each answer, so that no cache had it.
pub(super) fn were_different(f: &Facts<'_>, variant: usize, trials: &[&TrialResult]) -> Finding {
    if let Some(names) = seen(trials) {
        return match names.unasked {
            0 => met(format!(
                "the authority was asked for each of {} names that were answered",
                Thousands(names.names)
            )),
            unasked => not_met(format!(
                "{} of {} names were answered without a question to the authority",
                Thousands(unasked),
                Thousands(names.names)
            )),
        };
    }
    let (mut all, mut known, mut counted) = (0, 0, false);
    for trial in trials {
        if let Some(counts) = &trial.authority {
            let (_, answered) = trial.aaaa();
            counted = true;
            all += answered;
            known += hits(answered, counts);
        }
    }
    let (all, known) = (Thousands(all), (known > 0).then_some(Thousands(known)));
    match known {
        _ if !counted => by_the_names_alone(f, variant),
        None => met(format!(
            "the authority was asked for an AAAA for each of {all} answers"
        )),
        Some(known) => not_met(format!(
            "the authority was asked for no AAAA for {known} of {all} answers"
        )),
    }
}

/// Judges B-10 by the names alone, if the queries at the authority were not counted.
fn by_the_names_alone(f: &Facts<'_>, variant: usize) -> Finding {
    let server = |variant: usize| f.analysis.variants[variant].planned.subject.server();
    let Some(own) = server(variant) else {
        return not_known(
            "the authority is not the Tester's own: what the cache answered is not counted",
        );
    };
    let is_same = |point: &Point| server(point.variant) == Some(own);
    let trials = f.history.all_trials_of(is_same);
    let used: Option<Vec<_>> = trials.map(|t| t.names.as_ref()).collect();
    match used.map(|used| asked_twice(used.into_iter())) {
        None => not_known("the journal does not say which names were asked"),
        Some(0) => not_known(
            "no name was asked twice, but the authority is not the Tester's own: what the cache answered \
             is not counted",
        ),
        Some(names) => not_met(format!("{} names were asked twice", Thousands(names))),
    }
}

/// Records of the authority on the answered names; `None` if a trial has none.
fn seen(trials: &[&TrialResult]) -> Option<AnsweredNames> {
    let mut seen = AnsweredNames::default();
    for trial in trials {
        seen.add(trial.path.as_ref()?.answered);
    }
    (seen.names > 0).then_some(seen)
}

/// B-12: whether each response had the AAAA that follows from the one A of its name, and the authority had no AAAA.
pub(super) fn had_one_a(_: &Facts<'_>, _: usize, trials: &[&TrialResult]) -> Finding {
    let passed = || trials.iter().filter(|t| t.outcome == Outcome::Passed);
    let mut counts = AuthorityCounts::default();
    for counted in passed().filter_map(|t| t.authority) {
        counts.add(counted);
    }
    let answers: u64 = passed().map(|t| t.aaaa().1).sum();
    let (own, asked) = (counts.aaaa.saturating_sub(counts.nodata), counts.aaaa);
    if own as f64 > asked as f64 * OWN_AAAA_MAX {
        return not_met(format!(
            "the authority answered {} of {} AAAA queries with a record",
            Thousands(own),
            Thousands(asked)
        ));
    }
    let without_a = |names: &AnsweredNames| names.without_a() > 0;
    if let Some(names) = seen(trials).filter(without_a) {
        return not_met(format!(
            "{} of {} names were answered without a question for A to the authority",
            Thousands(names.without_a()),
            Thousands(names.names)
        ));
    }
    match answers {
        0 => not_known("no trial passed"),
        answers => met(format!(
            "each of {} answers was the one AAAA that is synthesised from the one A of its name",
            Thousands(answers)
        )),
    }
}
