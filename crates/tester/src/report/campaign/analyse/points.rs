//! The rows of the results: runs, their figures, and what the authority and the sender observed.

use super::about::is_authority;
use super::told::{TaskTold, Told, TrialTold};
use crate::authority::counts::AuthorityCounts;
use crate::campaign::plan::Plan;
use crate::campaign::tasks::{Point, Task};
use crate::machine::Role;
use crate::namespace::{Pattern, Share};
use crate::procedure::search::SearchEnd;
use crate::report::campaign::analysis::{
    Achieved, PathResult, PointResult, RunEnd, RunResult, Step, Stored, TimingResult,
};
use crate::report::campaign::{numbers, words};
use crate::rig::spec::Subject;
use crate::statistics::agreement::{RateBounds, agreement};
use crate::statistics::quantile::median;
use crate::statistics::summary::{Summary, summarise};
use crate::trial::achieved;
use crate::trial::path::{AnsweredNames, Path};
use crate::trial::result::{Outcome, TrialResult};
use crate::trial::service::Service;

/// The results of all points.
pub(super) fn results(plan: &Plan, points: &[Point], told: &Told<'_>) -> Vec<PointResult> {
    let results = points.iter().enumerate();
    let results = results.map(|(index, point)| result(plan, index, point, told));
    let mut results: Vec<_> = results.collect();
    for index in 0..results.len() {
        let is_own = |first: &usize| points[*first].variant == points[index].variant;
        let spans = |index: usize| (points[index].duration_ns, points[index].timeout_ns);
        // Of a rate that may be higher, or that runs disagree about, no ratio follows.
        let known = |index: usize| {
            let result: &PointResult = &results[index];
            let unstable = result.agreement.is_some_and(|found| found.unstable);
            let known = !result.lower_bound && !unstable;
            let summary = result.summary.as_ref().filter(|_| known);
            summary.map(|summary| summary.median)
        };
        let first = (0..index).find(is_own);
        let base = first.filter(|first| spans(*first) == spans(index));
        let medians = base.and_then(known).zip(known(index));
        results[index].of_first = medians.map(|(base, own)| own / base);
    }
    results
}

fn result(plan: &Plan, index: usize, point: &Point, told: &Told<'_>) -> PointResult {
    let task = |run| told.tasks.get(&Task::Search { point: index, run });
    let tasks = || (1..=plan.search.runs).filter_map(task);
    let runs = (1..=plan.search.runs).map(|run| run_result(run, task(run)));
    let mut runs: Vec<_> = runs.collect();
    let certified_rate_qps = certificate(plan, point, tasks());
    for run in &mut runs {
        let is_within = |lowest| run.rate_qps <= Some(lowest);
        let certified = run.certified.filter(|_| !is_authority(plan, point.variant));
        run.certified = certified.map(|is| is && certified_rate_qps.is_none_or(is_within));
    }
    let duration_s = numbers::seconds(point.duration_ns);
    let timeout_s = numbers::seconds(point.timeout_ns);
    let rates: Vec<f64> = rates(&runs).map(|(_, rate)| rate).collect();
    let summary = summarise(&rates, duration_s, timeout_s);
    let brackets: Vec<_> = runs.iter().filter_map(bracket).collect();
    let trials = tasks().flat_map(|task| task.trials.iter().copied());
    let trials: Vec<_> = trials.collect();
    let typical = typical(&runs, summary.as_ref(), task);
    let stored = stored(&runs, task);
    let dut_cpu_pct = dut_cpu_pct(&runs, task);
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
        agreement: agreement(&brackets),
        lower_bound: runs.iter().any(|run| run.ended.is_lower_bound()),
        headroom: certified_rate_qps
            .zip(summary.as_ref())
            .map(|(certified, summary)| certified as f64 / summary.median),
        certified_rate_qps,
        certified: certified(&runs),
        summary,
        of_first: None,
        runs,
        achieved: achieved(&trials),
        stored,
        rtt_ns: typical.map_or(Vec::new(), |t| t.rtt_percentiles.clone()),
        rtt_mean_ns: typical.and_then(|t| t.rtt.mean),
        path: path(typical, &trials),
        timing: typical.map(|typical| timing(typical, &trials)),
        memory_bytes_max: trials.iter().filter_map(TrialTold::memory_bytes).max(),
        dut_cpu_pct,
        dut_cpu_unknown: match dut_cpu_pct {
            Some(_) => None,
            None => Some(why_no_cpu(plan, point, typical.is_some())),
        },
    }
}

/// Processor time of the DUT at the measured rates: the median over the runs.
fn dut_cpu_pct<'t>(
    runs: &[RunResult],
    task: impl Fn(u32) -> Option<&'t TaskTold<'t>>,
) -> Option<f64> {
    let found = rates(runs).filter_map(|(run, _)| passed(run.rate_qps, task(run.run)?));
    let each = found.filter_map(|trial| trial.machine.cpu_pct(Role::Dut));
    median(&each.collect::<Vec<_>>())
}

fn why_no_cpu(plan: &Plan, point: &Point, has_rate: bool) -> &'static str {
    let subject = plan.variants.get(point.variant).map(|v| &v.subject);
    match subject {
        Some(Subject::Server { .. }) => "a server that runs already is not watched",
        Some(subject) if subject.is_authority() => "an authority is measured without a DUT",
        _ if has_rate => "its trials do not tell it",
        _ => "no run found a rate",
    }
}

/// A share in per cent.
fn pct(share: Share) -> f64 {
    share.below(1_000_000) as f64 / 10_000.0
}

/// The bounds of the true rate from a run, if it ended with a result.
fn bracket(run: &RunResult) -> Option<RateBounds> {
    let failed = run.failed_qps.map(|rate| rate as f64);
    let passed = run.rate_qps.map(|rate| rate as f64);
    match run.ended {
        RunEnd::NothingPasses => Some(RateBounds {
            passed: 0.0,
            failed: failed.or(Some(0.0)),
        }),
        ended => passed.map(|passed| RateBounds {
            passed,
            failed: failed.or(Some(passed)).filter(|_| !ended.is_lower_bound()),
        }),
    }
}

/// Runs that found a rate, and the rates.
fn rates(runs: &[RunResult]) -> impl Iterator<Item = (&RunResult, f64)> {
    runs.iter()
        .filter_map(|run| Some((run, run.rate_qps? as f64)))
}

/// Whether the Tester was certified for all rates of a point.
fn certified(runs: &[RunResult]) -> Option<bool> {
    let runs = runs.iter().filter_map(|run| run.certified);
    runs.reduce(|all, run| all && run)
}

/// The lowest certified rate of these searches. No search exceeds its own certificate, but a later self-test may have
/// shown that the certificate was too high. `None` if any search had no certificate, or for an authority, which the
/// self-test measures.
fn certificate<'t>(
    plan: &Plan,
    point: &Point,
    searches: impl Iterator<Item = &'t TaskTold<'t>>,
) -> Option<u64> {
    if is_authority(plan, point.variant) {
        return None;
    }
    let ceilings = searches.filter_map(|task| task.search.as_ref().map(|spec| spec.ceiling_qps));
    let ceilings: Option<Vec<u64>> = ceilings.collect();
    ceilings?.into_iter().min()
}

fn run_result(run: u32, task: Option<&TaskTold<'_>>) -> RunResult {
    let finished = task.filter(|task| task.abandoned.is_none());
    let finished = finished.and_then(|task| task.finished.as_ref());
    let in_trials_ns = || task.map_or(0, TaskTold::took_ns);
    let trials = task.into_iter().flat_map(|task| &task.trials);
    let (ended, why) = ended(task);
    let has_rate = ended == RunEnd::Found || ended.is_lower_bound();
    let rate_qps = finished.and_then(|f| f.rate_qps).filter(|_| has_rate);
    let ceiling_qps = task.and_then(|task| task.search.as_ref()?.ceiling_qps);
    let passed = task.and_then(|task| passed(rate_qps, task));
    // The trials show whether another process continued the search with another certificate.
    let was_certified = passed.and_then(|trial| trial.certified) != Some(false);
    let is_certified = |rate| was_certified && ceiling_qps.is_some_and(|ceiling| rate <= ceiling);
    RunResult {
        run,
        ended,
        why,
        rate_qps,
        certified: rate_qps.map(is_certified),
        failed_qps: finished.and_then(|f| f.failed_qps),
        took_s: numbers::seconds(finished.map_or_else(in_trials_ns, |f| f.took_ns)),
        trials: trials.map(|t| step(t.result)).collect(),
    }
}

fn ended(task: Option<&TaskTold<'_>>) -> (RunEnd, Option<String>) {
    let Some(task) = task else {
        return (RunEnd::Unfinished, Some("not begun".to_owned()));
    };
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
    Step {
        rate_qps: result.rate_qps,
        certified: result.certified,
        outcome: result.outcome.clone(),
        shortfall: result.outcome.shortfall(),
        why: match &result.outcome {
            Outcome::Passed => String::new(),
            Outcome::Failed { .. } => words::losses(result),
            Outcome::Invalid(fault) => fault.to_string(),
        },
    }
}

/// Passed trial of the run nearest to the median.
fn typical<'t>(
    runs: &[RunResult],
    summary: Option<&Summary>,
    task: impl Fn(u32) -> Option<&'t TaskTold<'t>>,
) -> Option<&'t TrialResult> {
    let median = summary?.median;
    let distance = |rate: f64| (rate - median).abs();
    let (run, _) = rates(runs).min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)))?;
    passed(run.rate_qps, task(run.run)?)
}

/// The passed trial at the rate that a run found.
fn passed<'t>(rate_qps: Option<u64>, task: &TaskTold<'t>) -> Option<&'t TrialResult> {
    let passed = |t: &&TrialTold<'t>| {
        t.result.outcome == Outcome::Passed && Some(t.result.rate_qps) == rate_qps
    };
    task.trials.iter().rfind(passed).map(|t| t.result)
}

/// The sustainable rate of the DUT, if most runs show that it stores queries.
fn stored<'t>(
    runs: &[RunResult],
    task: impl Fn(u32) -> Option<&'t TaskTold<'t>>,
) -> Option<Stored> {
    let found = rates(runs).count();
    let services = rates(runs).filter_map(|(run, _)| passed(run.rate_qps, task(run.run)?)?.service);
    let stored: Vec<_> = services.filter(|service| service.stores_queries).collect();
    let median_of = |of: fn(&Service) -> f64| median(&stored.iter().map(of).collect::<Vec<_>>());
    (2 * stored.len() > found).then_some(Stored {
        runs: stored.len(),
        slope_ns_per_s: median_of(|service| service.slope_ns_per_s)?,
        sustainable_qps: median_of(|service| service.service_rate_qps)?,
    })
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

/// Path of the queries: the DUT's queries in all trials that report them, and the times of the typical trial.
fn path(typical: Option<&TrialResult>, trials: &[TrialTold<'_>]) -> Option<PathResult> {
    let typical = typical.and_then(|trial| trial.path.as_ref());
    let mut answered = AnsweredNames::default();
    for trial in trials.iter().map(|t| t.result) {
        if !matches!(trial.outcome, Outcome::Invalid(_)) {
            // `None` if one of them has no path, as in a journal that an earlier version began.
            answered.add(trial.path.as_ref()?.answered);
        }
    }
    (answered.names > 0).then(|| PathResult {
        answered,
        questions_per_name: typical.and_then(Path::questions_per_name),
        dut_only_ns: typical.map_or(Vec::new(), |path| path.dut_only_percentiles_ns.clone()),
        authority: typical.map(|path| path.authority).unwrap_or_default(),
        typical: typical.and_then(|path| path.typical),
    })
}

/// Totals of the authority over the trials that passed.
///
/// A DUT sends one AAAA query for each name that it does not know. The authority answers each A query with a record, so
/// the other answers with records are for names with an AAAA.
fn achieved(trials: &[TrialTold<'_>]) -> Option<Achieved> {
    let (mut sent, mut counts) = (0, AuthorityCounts::default());
    for trial in trials.iter().map(|t| t.result) {
        if let (Outcome::Passed, Some(counted)) = (&trial.outcome, trial.authority) {
            sent += trial.queries_sent;
            counts.add(counted);
        }
    }
    // In trials that passed every query has a response.
    let shares = achieved::Achieved::by_counts(sent, &counts, true)?;
    Some(Achieved {
        aaaa_pct: shares.aaaa_share.map(|share| share * 100.0),
        cached_pct: shares.cached_share? * 100.0,
        amplification: shares.amplification,
    })
}
