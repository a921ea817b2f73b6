//! The rows of the results: runs, their figures, and what the authority and the sender saw.

use super::told::{TaskTold, Told, TrialTold};
use crate::authority::counts::AuthorityCounts;
use crate::campaign::plan::Plan;
use crate::campaign::tasks::{Point, Task};
use crate::namespace::{Pattern, Share};
use crate::procedure::search::SearchEnd;
use crate::report::campaign::analysis::{
    Achieved, PointResult, RunEnd, RunResult, Step, TimingResult,
};
use crate::report::campaign::{numbers, words};
use crate::statistics::summary::{Summary, degradation_pct, summarise};
use crate::trial::achieved;
use crate::trial::result::{Outcome, TrialResult};

/// The results of all points.
pub(super) fn results(plan: &Plan, points: &[Point], told: &Told<'_>) -> Vec<PointResult> {
    let mut results: Vec<_> = points
        .iter()
        .enumerate()
        .map(|(index, point)| result(plan, index, point, told))
        .collect();
    for index in 0..results.len() {
        let first = points
            .iter()
            .position(|p| p.variant == points[index].variant);
        let Some(first) = first.filter(|first| *first != index) else {
            continue;
        };
        let same_spans = points[index].duration_ns == points[first].duration_ns
            && points[index].timeout_ns == points[first].timeout_ns;
        // Of a rate that may be higher no degradation follows.
        let known = |result: &PointResult| result.summary.clone().filter(|_| !result.lower_bound);
        if let (Some(base), Some(this), true) =
            (known(&results[first]), known(&results[index]), same_spans)
        {
            results[index].degradation_pct = Some(degradation_pct(base.median, this.median));
        }
    }
    results
}

fn result(plan: &Plan, index: usize, point: &Point, told: &Told<'_>) -> PointResult {
    let task = |run| told.tasks.get(&Task::Search { point: index, run });
    let runs: Vec<_> = (1..=plan.search.runs)
        .map(|run| run_result(run, task(run)))
        .collect();
    let duration_s = numbers::seconds(point.duration_ns);
    let timeout_s = numbers::seconds(point.timeout_ns);
    let rates: Vec<f64> = rates(&runs).map(|(_, rate)| rate).collect();
    let summary = summarise(&rates, duration_s, timeout_s);
    let trials: Vec<_> = (1..=plan.search.runs)
        .filter_map(task)
        .flat_map(|task| task.trials.iter().copied())
        .collect();
    let certified_rate_qps = certified(plan, point, (1..=plan.search.runs).filter_map(task));
    let typical = typical(&runs, summary.as_ref(), task);
    PointResult {
        point: index,
        variant: point.variant,
        aaaa_pct: pct(point.cell.aaaa_share),
        cached_pct: pct(point.cell.cached_share),
        pattern: match point.cell.pattern {
            Pattern::OneName => String::new(),
            pattern => pattern.to_string(),
        },
        duration_s,
        timeout_s,
        lower_bound: runs.iter().any(|run| run.ended.is_lower_bound()),
        headroom: certified_rate_qps
            .zip(summary.as_ref())
            .map(|(certified, summary)| certified as f64 / summary.median),
        certified_rate_qps,
        summary,
        degradation_pct: None,
        runs,
        achieved: achieved(&trials),
        rtt_ns: typical.map_or(Vec::new(), |t| t.rtt_percentiles.clone()),
        timing: typical.map(|typical| timing(typical, &trials)),
        memory_bytes_max: trials.iter().filter_map(TrialTold::memory_bytes).max(),
    }
}

/// A share in per cent.
fn pct(share: Share) -> f64 {
    share.below(1_000_000) as f64 / 10_000.0
}

/// Runs that found a rate, and the rates.
fn rates(runs: &[RunResult]) -> impl Iterator<Item = (&RunResult, f64)> {
    runs.iter()
        .filter_map(|run| Some((run, run.rate_qps? as f64)))
}

/// The highest rate for which the Tester was certified in these searches, none of which goes beyond
/// its own certificate; `None` as soon as one was without. An authority is measured by the self-test itself.
fn certified<'t>(
    plan: &Plan,
    point: &Point,
    searches: impl Iterator<Item = &'t TaskTold<'t>>,
) -> Option<u64> {
    let subject = &plan.variants.get(point.variant)?.subject;
    if subject.is_authority() {
        return None;
    }
    let ceilings = searches.filter_map(|task| task.search.as_ref().map(|spec| spec.ceiling_qps));
    ceilings
        .collect::<Option<Vec<u64>>>()
        .and_then(|ceilings| ceilings.into_iter().max())
}

fn run_result(run: u32, task: Option<&TaskTold<'_>>) -> RunResult {
    let Some(task) = task else {
        return RunResult {
            run,
            ended: RunEnd::Unfinished,
            why: Some("not begun".to_owned()),
            rate_qps: None,
            failed_qps: None,
            took_s: 0.0,
            trials: Vec::new(),
        };
    };
    let finished = task.finished.as_ref().filter(|_| task.abandoned.is_none());
    let (ended, why) = ended(task);
    let has_rate = ended == RunEnd::Found || ended.is_lower_bound();
    RunResult {
        run,
        ended,
        why,
        rate_qps: finished.and_then(|f| f.rate_qps).filter(|_| has_rate),
        failed_qps: finished.and_then(|f| f.failed_qps),
        took_s: numbers::seconds(finished.map_or_else(|| task.took_ns(), |f| f.took_ns)),
        trials: task.trials.iter().map(|t| step(t.result)).collect(),
    }
}

fn ended(task: &TaskTold<'_>) -> (RunEnd, Option<String>) {
    if let Some(reason) = &task.abandoned {
        return (RunEnd::Abandoned, Some(reason.clone()));
    }
    match task.finished.as_ref().and_then(|f| f.end.as_ref()) {
        None => (
            RunEnd::Unfinished,
            Some("under way, or cut short".to_owned()),
        ),
        Some(SearchEnd::Found) => (RunEnd::Found, None),
        Some(SearchEnd::LimitedByTester { .. }) => (RunEnd::LimitedByTester, None),
        Some(SearchEnd::LimitedByRequest { .. }) => (RunEnd::LimitedByRequest, None),
        Some(SearchEnd::NothingPasses) => (
            RunEnd::NothingPasses,
            Some("the DUT fails even at the lowest rate".to_owned()),
        ),
        Some(SearchEnd::TesterFault(fault)) => (RunEnd::TesterFault, Some(fault.to_string())),
    }
}

fn step(result: &TrialResult) -> Step {
    let (shortfall, why) = match &result.outcome {
        Outcome::Passed => (0, String::new()),
        Outcome::Failed { shortfall } => (*shortfall, words::losses(result)),
        Outcome::Invalid(fault) => (0, fault.to_string()),
    };
    Step {
        rate_qps: result.rate_qps,
        outcome: result.outcome.clone(),
        shortfall,
        why,
    }
}

/// The passed trial of the run nearest to the median.
fn typical<'t>(
    runs: &[RunResult],
    summary: Option<&Summary>,
    task: impl Fn(u32) -> Option<&'t TaskTold<'t>>,
) -> Option<&'t TrialResult> {
    let median = summary?.median;
    let distance = |rate: f64| (rate - median).abs();
    let (run, _) = rates(runs).min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)))?;
    let trials = &task(run.run)?.trials;
    let passed = |t: &&TrialTold<'t>| {
        t.result.outcome == Outcome::Passed && Some(t.result.rate_qps) == run.rate_qps
    };
    trials.iter().rfind(passed).map(|t| t.result)
}

fn timing(typical: &TrialResult, trials: &[TrialTold<'_>]) -> TimingResult {
    let valid = |t: &&TrialTold<'_>| !matches!(t.result.outcome, Outcome::Invalid(_));
    let lateness = |t: &TrialTold<'_>| t.result.timing.lateness_ns_max;
    TimingResult {
        lateness_ns_p99: typical.timing.lateness_ns_p99,
        lateness_ns_max: typical.timing.lateness_ns_max,
        bin_10ms_deviation_pct_max: typical.timing.bin_10ms_deviation_pct_max,
        bin_100ms_deviation_pct_max: typical.timing.bin_100ms_deviation_pct_max,
        worst_lateness_ns: trials.iter().filter(valid).map(lateness).max().unwrap_or(0),
        tester_drops: trials.iter().map(|t| t.result.tester_drops).sum(),
    }
}

/// What the authority counted in the trials that passed, all together.
///
/// A DUT asks for AAAA once for each name that it does not know. The authority answers each A query
/// with a record, so that the other answers with records are those of names with an AAAA.
fn achieved(trials: &[TrialTold<'_>]) -> Option<Achieved> {
    let (mut sent, mut counts) = (0, AuthorityCounts::default());
    for trial in trials.iter().map(|t| t.result) {
        if let (Outcome::Passed, Some(counted)) = (&trial.outcome, trial.authority) {
            sent += trial.queries_sent;
            counts.add(counted);
        }
    }
    // In trials that passed every query was answered.
    let shares = achieved::Achieved::by_counts(sent, &counts, true)?;
    Some(Achieved {
        aaaa_pct: shares.aaaa_share.map(|share| share * 100.0),
        cached_pct: shares.cached_share? * 100.0,
        amplification: shares.amplification,
    })
}
