//! The hosts of a plan: their clocks and cores over all trials.

use crate::campaign::history::Recorded;
use crate::campaign::plan::Laboratory;
use crate::campaign::record::HostNote;
use crate::lab::hosts::HostSpec;
use crate::machine::Role;
use crate::report::campaign::analysis::{ClockRow, HostRow, Hosts, ShareRow};
use crate::trial::disturbance::taken_pct;
use crate::trial::result::{AuthorityShare, HostClock, TrialResult};
use dns64_transport::clock::Nanos;

use super::grouped;

/// Hosts of the plan; none if it uses one machine.
pub(super) fn hosts(history: &Recorded<'_>) -> Hosts {
    let Laboratory::Hosts(planned) = history.laboratory() else {
        return Hosts::default();
    };
    let trials = of_self_tests(history).chain(history.all_trials_of(|_| true));
    let trials: Vec<_> = trials.collect();
    let threads: usize = planned.measurers().iter().map(|host| host.threads).sum();
    let row = |host: &HostSpec| {
        let rows = rows_of(&trials, &host.name);
        HostRow {
            host: host.name.clone(),
            roles: host.roles.clone(),
            machine: machine(history, &host.name),
            queries_pct: host
                .has(Role::Measurer)
                .then(|| 100.0 * host.threads as f64 / threads as f64),
            waited_pct_max: largest(rows.iter().map(|it| it.0)),
            taken_pct_max: largest(rows.iter().map(|it| it.1)),
            clock: clock(&trials, &host.name),
        }
    };
    Hosts {
        rows: planned.iter().map(row).collect(),
        shares: shares(history),
    }
}

/// Queries to each of several authorities: in all self-tests, and in all trials of each variant.
fn shares(history: &Recorded<'_>) -> Vec<ShareRow> {
    let self_tests = of_self_tests(history).map(|trial| (SELF_TESTS, trial));
    let variants = history.plan.variants.iter().enumerate();
    let of_tasks = variants.flat_map(|(variant, it)| {
        let trials = history.all_trials_of(move |point| point.variant == variant);
        trials.map(|trial| (it.name.as_str(), trial))
    });
    let shares = self_tests.chain(of_tasks).flat_map(|(trials, result)| {
        let shares = result.authorities.iter();
        shares.map(move |share| ((trials, share.host.as_str()), share))
    });
    let row = |((trials, host), shares): ((&str, &str), Vec<&AuthorityShare>)| {
        let sum = |of: fn(&AuthorityShare) -> u64| {
            let shares = shares.iter().map(|share| of(share));
            shares.fold(0, u64::saturating_add)
        };
        ShareRow {
            trials: trials.to_owned(),
            host: host.to_owned(),
            questions: sum(|share| share.questions),
            pct: 0.0,
            drops: sum(|share| share.drops),
        }
    };
    let mut rows: Vec<_> = grouped(shares).into_iter().map(row).collect();
    let all = rows.clone();
    for row in &mut rows {
        let same = all.iter().filter(|other| other.trials == row.trials);
        let sum: u128 = same.map(|other| u128::from(other.questions)).sum();
        row.pct = 100.0 * row.questions as f64 / sum.max(1) as f64;
    }
    rows
}

const SELF_TESTS: &str = "self-tests";

fn of_self_tests<'h>(history: &'h Recorded<'_>) -> impl Iterator<Item = &'h TrialResult> {
    let self_tests = history.self_tests.iter();
    self_tests.flat_map(|it| &it.test.trials)
}

/// The machine of a host at its last connection.
fn machine(history: &Recorded<'_>, host: &str) -> Option<HostNote> {
    let starts = history.variants.iter().flatten();
    let mut notes = starts.flat_map(|facts| &facts.hosts);
    // Variants are in the order of the plan, and their starts in order of time: this is the last start of the last
    // variant with the host.
    notes.rfind(|note| note.host == host).cloned()
}

/// Shares of each trial in which a role on this host waited for a core, and in which others used its core.
fn rows_of(trials: &[&TrialResult], host: &str) -> Vec<(f64, f64)> {
    let usages = trials.iter().map(|trial| &trial.machine);
    let shares = usages.flat_map(|usage| {
        let own = usage.roles.iter();
        let own = own.filter(|row| row.host.as_deref() == Some(host));
        own.map(move |row| {
            let span_ns = usage.span_ns.saturating_mul(row.threads.max(1)).max(1);
            let waited_pct = 100.0 * row.run_delay_ns as f64 / span_ns as f64;
            (waited_pct, taken_pct(usage, row))
        })
    });
    shares.collect()
}

fn clock(trials: &[&TrialResult], host: &str) -> Option<ClockRow> {
    let clocks = trials.iter().flat_map(|trial| &trial.clocks);
    let own: Vec<&HostClock> = clocks.filter(|clock| clock.host == host).collect();
    let late_ns_max = own.iter().map(|clock| clock.late_ns).max()?;
    let steady = own.iter().filter(|clock| clock.bound_ns != Nanos::MAX);
    let drifts = steady.clone().map(|clock| clock.drift_ppm);
    Some(ClockRow {
        trials: own.len() as u64,
        bound_ns_max: steady.clone().map(|clock| clock.bound_ns).max(),
        set: (own.len() - steady.count()) as u64,
        drift_ppm_min: drifts.clone().reduce(f64::min),
        drift_ppm_max: largest(drifts),
        late_ns_max,
    })
}

fn largest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::max)
}
