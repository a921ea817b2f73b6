//! The hosts of a plan: their clocks, cores and links over all trials.

use crate::campaign::plan::Plan;
use crate::campaign::record::HostNote;
use crate::campaign::tasks;
use crate::lab::hosts::{HostSpec, LinkName, SiteEnd};
use crate::lab::profile::Family;
use crate::machine::Role;
use crate::report::Span;
use crate::report::campaign::analysis::{ClockRow, HostRow, Hosts, LinkEndRow, LinkRow, ShareRow};
use crate::report::campaign::numbers;
use crate::trial::disturbance::taken_pct;
use crate::trial::judge::CLOCK_BOUND_MAX_NS;
use crate::trial::result::{HostClock, TrialResult};
use dns64_transport::clock::Nanos;

use super::told::Told;

/// Hosts of the plan; none if it uses one machine.
pub(super) fn hosts(plan: &Plan, told: &Told<'_>) -> Hosts {
    let Some(planned) = &plan.hosts.at else {
        return Hosts::default();
    };
    let trials = trials(told);
    let threads: usize = planned.measurers().iter().map(|host| host.threads).sum();
    let row = |host: &HostSpec| {
        let rows = rows_of(&trials, &host.name);
        HostRow {
            host: host.name.clone(),
            roles: host.roles.clone(),
            machine: machine(told, &host.name),
            queries_pct: host
                .has(Role::Measurer)
                .then(|| 100.0 * host.threads as f64 / threads as f64),
            waited_pct_max: largest(rows.iter().map(|it| it.0)),
            taken_pct_max: largest(rows.iter().map(|it| it.1)),
            clock: clock(&trials, &host.name),
        }
    };
    let rows: Vec<HostRow> = planned.iter().map(row).collect();
    Hosts {
        weakest: weakest(&rows),
        links: links(plan, told),
        shares: shares(plan, told),
        rows,
    }
}

/// All trials: of self-tests, and of tasks with their earlier attempts.
fn trials<'a>(told: &'a Told<'_>) -> Vec<&'a TrialResult> {
    let self_tests = told.self_tests.iter().flat_map(|told| &told.test.trials);
    let tasks = told.tasks.values();
    let of_tasks = tasks.flat_map(|task| task.earlier.iter().chain(&task.trials));
    self_tests
        .chain(of_tasks.map(|trial| trial.result))
        .collect()
}

/// Queries to each of several authorities: in all self-tests, and in all trials of each variant.
fn shares(plan: &Plan, told: &Told<'_>) -> Vec<ShareRow> {
    let points = tasks::points(plan);
    let self_tests = told.self_tests.iter().flat_map(|told| &told.test.trials);
    let self_tests = self_tests.map(|trial| (SELF_TESTS, trial));
    let of_tasks = told.tasks.iter().flat_map(|(task, it)| {
        let name = plan.variants[points[task.point()].variant].name.as_str();
        let all = it.earlier.iter().chain(&it.trials);
        all.map(move |trial| (name, trial.result))
    });
    let mut rows: Vec<ShareRow> = Vec::new();
    for (trials, result) in self_tests.chain(of_tasks) {
        for share in &result.authorities {
            let is_same = |row: &&mut ShareRow| row.trials == trials && row.host == share.host;
            match rows.iter_mut().find(is_same) {
                Some(row) => {
                    row.questions = row.questions.saturating_add(share.questions);
                    row.drops = row.drops.saturating_add(share.drops);
                }
                None => rows.push(ShareRow {
                    trials: trials.to_owned(),
                    host: share.host.clone(),
                    questions: share.questions,
                    pct: 0.0,
                    drops: share.drops,
                }),
            }
        }
    }
    let all = rows.clone();
    for row in &mut rows {
        let same = all.iter().filter(|other| other.trials == row.trials);
        let sum: u128 = same.map(|other| u128::from(other.questions)).sum();
        row.pct = 100.0 * row.questions as f64 / sum.max(1) as f64;
    }
    rows
}

const SELF_TESTS: &str = "self-tests";

/// The machine of a host at its last connection.
fn machine(told: &Told<'_>, host: &str) -> Option<HostNote> {
    let starts = told.variants.iter().flatten();
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

/// The host with the least accurate clock, and the host of the Tester whose threads waited longest for cores. A DUT is
/// excluded: it waits when it is overloaded.
fn weakest(rows: &[HostRow]) -> Vec<String> {
    let clocks = rows.iter().filter_map(|row| Some((row, row.clock?)));
    let by_clock = clocks.max_by_key(|(_, clock)| match clock {
        _ if clock.set > 0 => Nanos::MAX,
        _ => clock.bound_ns_max.unwrap_or(0),
    });
    let by_clock = by_clock.map(|(row, clock)| match (clock.set, clock.bound_ns_max) {
        (0, Some(bound_ns)) => format!(
            "The clock of {} is known least, to within {} ({} are allowed).",
            row.host,
            Span(bound_ns),
            Span(CLOCK_BOUND_MAX_NS)
        ),
        (set, _) => format!(
            "The clock of {} was set during {}.",
            row.host,
            numbers::count(usize::try_from(set).unwrap_or(usize::MAX), "trial")
        ),
    });
    let of_tester = rows.iter().filter(|row| row.roles != [Role::Dut]);
    let waits = of_tester.filter_map(|row| Some((row, row.waited_pct_max?)));
    let by_cores = waits.max_by(|a, b| a.1.total_cmp(&b.1));
    let by_cores = by_cores
        .filter(|(_, waited_pct)| *waited_pct > 0.0)
        .map(|(row, waited_pct)| {
            format!(
                "Of the Tester's hosts {} had to wait most for its cores: {} of a trial at the worst.",
                row.host,
                numbers::pct(waited_pct)
            )
        });
    by_clock.into_iter().chain(by_cores).collect()
}

/// Links of all variants in order, without duplicates.
fn links(plan: &Plan, told: &Told<'_>) -> Vec<LinkRow> {
    let families = told.self_tests.iter();
    let mut families = families.map(|told| told.test.conditions.upstream_family.as_str());
    let family = families.find_map(|family| match family {
        "IPv4" => Some(Family::Ipv4),
        "IPv6" => Some(Family::Ipv6),
        _ => None,
    });
    let sites = plan.variants.iter();
    let sites = sites.filter_map(|variant| variant.subject.site(family));
    let mut links: Vec<LinkRow> = Vec::new();
    for link in sites.flat_map(|site| site.links) {
        let row = LinkRow {
            name: link.name,
            near: end(told, link.near),
            far: end(told, link.far),
        };
        if !links.contains(&row) {
            links.push(row);
        }
    }
    links.sort_by_key(|link| match link.name {
        LinkName::Client => 0,
        LinkName::Upstream => 1,
        LinkName::SelfTest => 2,
    });
    links
}

fn end(told: &Told<'_>, end: SiteEnd) -> LinkEndRow {
    let sessions = told.sessions.iter().rev();
    let mut interfaces = sessions.flat_map(|session| &session.environment.interfaces);
    let known = interfaces
        .find(|it| it.host.as_deref() == Some(end.host.as_str()) && it.name == end.interface);
    LinkEndRow {
        host: end.host,
        interface: end.interface,
        driver: known.and_then(|it| it.driver.clone()),
        mtu: known.map(|it| it.mtu),
        speed_mbps: known.and_then(|it| it.speed_mbps),
    }
}
