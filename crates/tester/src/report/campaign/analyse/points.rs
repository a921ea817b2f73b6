//! The rows of the results: runs, their figures, and what the authority and the sender observed.

use crate::authority::counts::AuthorityCounts;
use crate::campaign::history::{Recorded, TaskHistory};
use crate::campaign::plan::tasks::{Point, Task};
use crate::machine::Role;
use crate::namespace::{Pattern, Share};
use crate::procedure::search::{self, SearchEnd};
use crate::report::campaign::analysis::{
    Achieved, Division, LostOverTime, PathResult, PointResult, RunEnd, RunResult, Step, Stored,
};
use crate::report::campaign::numbers;
use crate::report::losses;
use crate::statistics::agreement::{RateBounds, agreement};
use crate::statistics::pass::{loss_ratio_max, pass_probability};
use crate::statistics::quantile::median;
use crate::statistics::summary::summarise;
use crate::trial::achieved;
use crate::trial::path::{AnsweredNames, Path};
use crate::trial::result::{Outcome, TrialResult};
use crate::trial::service::Service;

type Search<'a> = TaskHistory<&'a TrialResult>;

/// The rate that a run found, and its passed trial at that rate.
type Found<'a> = (f64, Option<&'a TrialResult>);

/// The results of all points.
pub(super) fn results(history: &Recorded<'_>) -> Vec<PointResult> {
    let points = history.plan.points.iter().enumerate();
    points
        .map(|(index, point)| result(history, index, point))
        .collect()
}

/// The searches of a point with their runs, and the lowest certified rate.
fn runs(searches: &[Option<&Search<'_>>], is_authority: bool) -> (Vec<RunResult>, Option<u64>) {
    let certified_rate_qps = certificate(searches.iter().copied().flatten());
    let certified_rate_qps = certified_rate_qps.filter(|_| !is_authority);
    let is_within = |rate| certified_rate_qps.is_none_or(|lowest| rate <= Some(lowest));
    let run = |(run, search): (u32, &Option<&Search<'_>>)| {
        let run = run_result(run, *search);
        let certified = run.certified.filter(|_| !is_authority);
        RunResult {
            certified: certified.map(|is| is && is_within(run.rate_qps)),
            ..run
        }
    };
    let mut runs: Vec<_> = (1..).zip(searches).map(run).collect();
    let is_disturbed = |run: &RunResult| run.ended == RunEnd::TesterFault;
    // Bounds of disturbed runs would only make the figures of the others less exact.
    if runs
        .iter()
        .any(|run| run.rate_qps.is_some() && !is_disturbed(run))
    {
        for run in runs.iter_mut().filter(|run| is_disturbed(run)) {
            (run.rate_qps, run.certified) = (None, None);
        }
    }
    (runs, certified_rate_qps)
}

fn result(history: &Recorded<'_>, index: usize, point: &Point) -> PointResult {
    let is_authority = history.plan.variants[point.variant].subject.is_authority();
    let search = |run| history.tasks.get(&Task::Search { point: index, run });
    let searches: Vec<_> = (1..=history.plan.search.runs).map(search).collect();
    let (runs, certified_rate_qps) = runs(&searches, is_authority);
    let found = runs.iter().zip(&searches).filter_map(|(run, search)| {
        let passed = search.and_then(|search| passed(run.rate_qps, search));
        Some((run.rate_qps? as f64, passed))
    });
    let found: Vec<Found<'_>> = found.collect();
    let rates: Vec<f64> = found.iter().map(|(rate, _)| *rate).collect();
    let trials = searches.iter().flatten().flat_map(|task| &task.trials);
    let trials: Vec<_> = trials.map(|trial| trial.result).collect();
    let [duration_s, timeout_s] = spans(point, &trials).map(numbers::seconds);
    let summary = summarise(&rates, duration_s, timeout_s);
    let median = summary.as_ref().map_or(0.0, |summary| summary.median);
    let typical = typical(&found, median);
    let brackets: Vec<_> = runs.iter().filter_map(bracket).collect();
    PointResult {
        planned: *point,
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
        pass_probability: pass_probability(&outcomes(&runs)),
        loss_ratio_max: typical.map(|trial| loss_ratio_max(trial.queries_sent)),
        lower_bound: runs
            .iter()
            .any(|run| run.rate_qps.is_some() && run.ended.is_lower_bound()),
        division: Division::default(),
        rules_failed: Vec::new(),
        headroom: certified_rate_qps
            .filter(|_| summary.is_some())
            .map(|certified| certified as f64 / median),
        certified_rate_qps,
        certified: certified(&runs),
        achieved: achieved(&trials).filter(|_| !is_authority),
        stored: stored(&found),
        rtt_ns: typical.map_or(Vec::new(), |t| t.rtt_percentiles.clone()),
        rtt_mean_ns: typical.and_then(|t| t.rtt.mean),
        path: path(typical, &trials),
        tester_drops: trials.iter().map(|t| t.tester_drops).sum(),
        memory_bytes_max: trials
            .iter()
            .filter_map(|t| Some(t.resources?.memory_bytes))
            .max(),
        dut_cpu_pct: median_of(&found, |trial| trial.machine.cpu_pct(Role::Dut)),
        authority_cpu_ns: median_of(&found, authority_cpu_ns),
        lost: lost(&trials),
        summary,
        runs,
    }
}

/// Rate of each valid trial of the runs, and whether it passed.
fn outcomes(runs: &[RunResult]) -> Vec<Vec<(u64, bool)>> {
    let of_run = |run: &RunResult| {
        let valid = run.trials.iter().filter(|step| step.outcome.is_valid());
        valid
            .map(|step| (step.rate_qps, step.outcome == Outcome::Passed))
            .collect()
    };
    runs.iter().map(of_run).collect()
}

/// Duration and timeout of the trials of a point, in nanoseconds. Those of an authority wait for a quarter of the timeout
/// of the plan.
fn spans(point: &Point, trials: &[&TrialResult]) -> [u64; 2] {
    let planned = [point.duration_ns, point.timeout_ns];
    trials
        .first()
        .map_or(planned, |trial| [trial.duration_ns, trial.timeout_ns])
}

/// The passed trial of the run nearest to the median.
fn typical<'a>(found: &[Found<'a>], median: f64) -> Option<&'a TrialResult> {
    let distance = |found: &Found<'_>| (found.0 - median).abs();
    let nearest = found
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)));
    nearest.and_then(|(_, passed)| *passed)
}

/// Most moments at which a figure shows losses.
const MOMENTS_MAX: usize = 60;

/// When the failed trial with the lowest rate lost queries.
fn lost(trials: &[&TrialResult]) -> Option<LostOverTime> {
    let failed = trials
        .iter()
        .filter(|it| matches!(it.outcome, Outcome::Failed { .. }));
    let trial = failed.min_by_key(|trial| trial.rate_qps)?;
    let series = trial.series.as_ref()?;
    let (slice_ns, slices) = series.thinned(MOMENTS_MAX);
    let pct = |[sent, lost]: [u64; 2]| 100.0 * lost as f64 / sent.max(1) as f64;
    let each = (1..).zip(slices);
    let each = each.map(|(k, slice)| (numbers::seconds(slice_ns * k), pct(slice)));
    Some(LostOverTime {
        rate_qps: trial.rate_qps,
        lost_pct: each.collect(),
    })
}

/// Median of a figure of the trials at the rates that were found.
fn median_of(found: &[Found<'_>], figure: impl Fn(&TrialResult) -> Option<f64>) -> Option<f64> {
    let each = found.iter().filter_map(|(_, passed)| figure((*passed)?));
    median(&each.collect::<Vec<_>>())
}

/// Processor time of the authority for each query.
fn authority_cpu_ns(trial: &TrialResult) -> Option<f64> {
    let used = trial.machine.of(Role::Authority)?;
    (trial.queries_sent > 0).then(|| used.cpu_ns as f64 / trial.queries_sent as f64)
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
            failed: failed.or((!ended.is_lower_bound()).then_some(passed)),
        }),
    }
}

/// Whether the Tester was certified for all rates of a point.
fn certified(runs: &[RunResult]) -> Option<bool> {
    let runs = runs.iter().filter_map(|run| run.certified);
    runs.reduce(|all, run| all && run)
}

/// The lowest certified rate of these searches. No search exceeds its own certificate, but a later self-test may have
/// shown that the certificate was too high. `None` if any search had no certificate.
fn certificate<'a>(searches: impl Iterator<Item = &'a Search<'a>>) -> Option<u64> {
    let ceilings = searches.filter_map(|task| task.search.as_ref().map(|spec| spec.ceiling_qps));
    let ceilings: Option<Vec<u64>> = ceilings.collect();
    ceilings?.into_iter().min()
}

fn run_result(run: u32, task: Option<&Search<'_>>) -> RunResult {
    let finished = task.filter(|task| task.abandoned.is_none());
    let finished = finished.and_then(|task| task.finished.as_ref());
    let in_trials_ns = || task.map_or(0, TaskHistory::took_ns);
    let trials = task.into_iter().flat_map(|task| &task.trials);
    let (ended, why) = ended(task);
    let rate_qps = match ended {
        RunEnd::TesterFault => task.and_then(fastest_passed),
        RunEnd::Found | RunEnd::LimitedByTester | RunEnd::LimitedByRequest => {
            finished.and_then(|f| f.rate_qps)
        }
        RunEnd::NothingPasses | RunEnd::Abandoned | RunEnd::Unfinished => None,
    };
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

fn ended(task: Option<&Search<'_>>) -> (RunEnd, Option<String>) {
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
        // Only of goals, which are no runs.
        Some(SearchEnd::TooWide { .. }) => (RunEnd::Unfinished, None),
        Some(SearchEnd::NothingPasses) => (
            RunEnd::NothingPasses,
            Some("the DUT fails even at the lowest rate".to_owned()),
        ),
        Some(SearchEnd::TesterFault { fault }) => (RunEnd::TesterFault, Some(fault.to_string())),
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
            Outcome::Failed { .. } => losses(result),
            Outcome::Invalid(fault) => fault.to_string(),
        },
    }
}

/// The highest rate that passed in the last attempt of a search and did not fail.
fn fastest_passed(task: &Search<'_>) -> Option<u64> {
    let mut search = task.search.clone().map(search::Search::new)?;
    for trial in &task.trials {
        search.observe(&trial.result.outcome);
    }
    search.bracket().passed_qps
}

/// The passed trial at the rate that a run found.
fn passed<'a>(rate_qps: Option<u64>, task: &Search<'a>) -> Option<&'a TrialResult> {
    let mut trials = task.trials.iter().map(|trial| trial.result);
    trials.rfind(|t| t.outcome == Outcome::Passed && Some(t.rate_qps) == rate_qps)
}

/// The sustainable rate of the DUT, if most runs show that it stores queries.
fn stored(found: &[Found<'_>]) -> Option<Stored> {
    let services = found.iter().filter_map(|(_, passed)| (*passed)?.service);
    let stored: Vec<_> = services.filter(|service| service.stores_queries).collect();
    let median_of = |of: fn(&Service) -> f64| median(&stored.iter().map(of).collect::<Vec<_>>());
    (2 * stored.len() > found.len()).then_some(Stored {
        runs: stored.len(),
        slope_ns_per_s: median_of(|service| service.slope_ns_per_s)?,
        sustainable_qps: median_of(|service| service.service_rate_qps)?,
    })
}

/// Path of the queries: the DUT's queries in all trials that report them, and the times of the typical trial.
fn path(typical: Option<&TrialResult>, trials: &[&TrialResult]) -> Option<PathResult> {
    let typical = typical.and_then(|trial| trial.path.as_ref());
    let mut answered = AnsweredNames::default();
    for trial in trials.iter().filter(|trial| trial.outcome.is_valid()) {
        // `None` if one of them has no path.
        answered.add(trial.path.as_ref()?.answered);
    }
    (answered.names > 0).then(|| PathResult {
        answered,
        questions_per_name: typical.and_then(Path::questions_per_name),
        dut_only_ns: typical.map_or(Vec::new(), |path| path.dut_only_percentiles_ns.clone()),
        authority: typical.map(|path| path.authority).unwrap_or_default(),
    })
}

/// Totals of the authority over the trials that passed.
///
/// A DUT sends one AAAA query for each name that it does not know. The authority answers each A query with a record, so
/// the other answers with records are for names with an AAAA.
fn achieved(trials: &[&TrialResult]) -> Option<Achieved> {
    let (mut sent, mut aaaa, mut counts) = (0, 0, AuthorityCounts::default());
    for trial in trials {
        if let (Outcome::Passed, Some(counted)) = (&trial.outcome, trial.authority) {
            sent += trial.queries_sent;
            aaaa += trial.aaaa().0;
            counts.add(counted);
        }
    }
    // In trials that passed every query has a response.
    let shares = achieved::Achieved::by_counts((sent, aaaa), &counts, true)?;
    Some(Achieved {
        aaaa_pct: shares.aaaa_share.map(|share| share * 100.0),
        cached_pct: shares.cached_share? * 100.0,
        amplification: shares.amplification,
    })
}
