//! Interprets the keys of a plan.

use std::collections::BTreeSet;
use std::path::Path;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::socket::Segmentation;
use dns64_wire::pref64::Pref64;

use super::duts::resolved;
use super::fault::{Fault, Faults};
use super::file::{self, At, DUT, File, HOSTS};
use super::places::in_keys;
use super::values::{label, list_or, number, text, word_or};
use super::{Cell, Method, Overload, Plan, QueueCheck, SearchPlan, Soak, cells, duts, hosts};
use crate::authority::behaviour::Behaviour;
use crate::lab::LabKind;
use crate::lab::topology::Setup;
use crate::load::catch_up::Limits;
use crate::load::names::{Names, RESERVED};
use crate::load::pace::{self, Schedule};
use crate::namespace::{Cidr, Share, Zone, parse_suffix};
use crate::procedure::certificate::SELF_TESTS_DEFAULT;
use crate::procedure::search::Resolution;
use crate::quantity::{self, Span};
use crate::rig::sources;
use crate::rig::spec::{AuthorityChoice, LabSpec, Load};

/// The plan in `file`. Faults are added to `faults`; with any fault the plan must not be used.
pub(super) fn plan(file: &File, origin: &str, faults: &mut Faults<'_>) -> Plan {
    let hosts = lab(file, origin, faults);
    let search = search(&file.search, faults);
    let mut plan = Plan {
        name: name(file, origin, faults),
        description: file.description.clone(),
        lab: file
            .tester
            .lab
            .as_ref()
            .map_or_else(LabKind::default, |at| *at.get_ref()),
        load: load(file, search.stop_early, faults),
        uncertified: file.tester.uncertified,
        self_tests: number(file.tester.self_tests.as_ref()).unwrap_or(SELF_TESTS_DEFAULT.into()),
        raw: file.tester.raw.as_ref().map(|at| *at.get_ref()),
        variants: duts::variants(file, &hosts, search.restart, origin, faults),
        hosts,
        search,
        cells: cells::cells(&file.cells, faults),
        queue_check: file.queue_check.as_ref().map(|at| queue_check(at, faults)),
        overload: file.overload.as_ref().map(|at| overload(at, faults)),
        soak: file.soak.as_ref().map(|at| soak(at, faults)),
    };
    if file.tester.namespace.is_none() && faults.is_empty() {
        plan.load.cidr = plan.smallest_range();
    }
    together(&plan, file, faults);
    plan
}

/// Checks combinations of values that have no fault of their own.
fn together(plan: &Plan, file: &File, faults: &mut Faults<'_>) {
    if !faults.spoil(&["[cells]", "[queue-check]", DUT]) {
        check_size(plan, file, faults);
    }
    if !faults.spoil(&["[cells]", "[tester]", HOSTS, DUT]) {
        check_authorities(plan, file, faults);
    }
    if !faults.spoil(&["[tester]", HOSTS, DUT]) {
        check_sources(plan, file, faults);
    }
    if !faults.spoil(&[
        "[tester]",
        "[trial]",
        "[search]",
        "[cells]",
        "[queue-check]",
    ]) {
        check_names(plan, file, faults);
    }
    if !faults.spoil(&["[soak]", "[trial]", DUT]) {
        check_soak(plan, file, faults);
    }
}

fn name(file: &File, origin: &str, faults: &mut Faults<'_>) -> String {
    let given = faults.or(text(file.name.as_ref(), label), None);
    let of_file = || Path::new(origin).file_stem()?.to_str().map(str::to_owned);
    given.or_else(of_file).unwrap_or_else(|| "plan".to_owned())
}

/// The lab that all DUTs run in.
fn lab(file: &File, origin: &str, faults: &mut Faults<'_>) -> LabSpec {
    let written = &file.tester;
    let authority = |name: &str| resolved(name, origin).parse::<AuthorityChoice>();
    LabSpec {
        at: hosts::hosts(file, faults),
        setup: written
            .setup
            .as_ref()
            .map_or_else(Setup::default, |at| *at.get_ref()),
        dut: None,
        upstream: written.upstream_family,
        authority: optional(text(written.authority.as_ref(), authority), faults),
        authority_cpus: optional(text(written.authority_cpus.as_ref(), str::parse), faults),
        behaviour: Behaviour::default(),
    }
}

/// An optional value.
fn optional<T: Default>(read: Result<Option<T>, Fault>, faults: &mut Faults<'_>) -> T {
    faults.or(read, None).unwrap_or_default()
}

fn load(file: &File, stop_early: bool, faults: &mut Faults<'_>) -> Load {
    let (written, trial) = (&file.tester, &file.trial);
    let threads = number(written.threads.as_ref()).unwrap_or(1);
    let ports = number(written.sockets.as_ref());
    if let (Some(ports), Some(at)) = (ports, &written.sockets)
        && ports < threads
    {
        faults.add(at.fault(format!(
            "`sockets` is {ports}, fewer source ports than the {threads} threads: each thread needs one; write \
             sockets = {threads} or more"
        )));
    }
    let pref64 = text(written.pref64.as_ref(), |text| match text {
        "auto" => Ok(None),
        prefix => prefix.parse::<Pref64>().map(Some),
    });
    let default = Load::default();
    let (duration_ns, timeout_ns) = (default.duration_ns, default.timeout_ns);
    let duration = word_or(&trial.duration, quantity::duration, duration_ns);
    let timeout = word_or(&trial.timeout, quantity::timeout, timeout_ns);
    let namespace = text(written.namespace.as_ref(), str::parse);
    let suffix = text(written.suffix.as_ref(), parse_suffix);
    Load {
        threads,
        ports,
        local: faults.or(text(written.local.as_ref(), str::parse), None),
        segmentation: faults
            .or(text(written.segmentation.as_ref(), str::parse), None)
            .unwrap_or(Segmentation::On),
        backend: optional(text(written.backend.as_ref(), str::parse), faults),
        burst_max: number(written.burst.as_ref()).unwrap_or(pace::BURST_MAX),
        cpus: optional(text(written.cpus.as_ref(), str::parse), faults),
        pref64: optional(pref64, faults),
        stop_early,
        duration_ns: faults.or(duration, duration_ns),
        timeout_ns: faults.or(timeout, timeout_ns),
        limits: limits(trial, faults),
        cidr: faults.or(namespace, None).unwrap_or(default.cidr),
        zone: Zone {
            suffix: faults
                .or(suffix, None)
                .unwrap_or(default.zone.suffix.clone()),
            ..default.zone.clone()
        },
        ..default
    }
}

fn limits(written: &file::Trial, faults: &mut Faults<'_>) -> Limits {
    let default = Limits::default();
    let stall_ns = default.max_stall_ns;
    let stall = word_or(&written.max_stall, quantity::stall, stall_ns);
    let mut pct = |key, default| faults.or(word_or(key, quantity::pct, default), default);
    Limits {
        max_rate_error_pct: pct(&written.max_rate_error, default.max_rate_error_pct),
        max_stolen_pct: pct(&written.max_stolen, default.max_stolen_pct),
        max_stall_ns: faults.or(stall, stall_ns),
        max_burst_queries: number(written.max_burst.as_ref()).unwrap_or(default.max_burst_queries),
    }
}

fn search(written: &file::Search, faults: &mut Faults<'_>) -> SearchPlan {
    let method = method(written, faults);
    let default = Resolution::default();
    let resolution = word_or(&written.resolution, quantity::resolution, default);
    SearchPlan {
        runs: number(written.runs.as_ref()).unwrap_or(RUNS_DEFAULT),
        resolution: faults.or(resolution, default),
        method,
        stop_early: written
            .stop_early
            .unwrap_or(matches!(method, Method::Galloping { .. })),
        restart: written.restart,
        settle_ns: faults.or(word_or(&written.settle, quantity::rest, 0), 0),
        order: written.order,
    }
}

fn method(written: &file::Search, faults: &mut Faults<'_>) -> Method {
    let max_qps = word_or(&written.max_rate, |t| quantity::rate(t).map(Some), None);
    let max_qps = faults.or(max_qps, None);
    let default = START_QPS.min(max_qps.unwrap_or(u64::MAX));
    let start = word_or(&written.start_rate, quantity::rate, default);
    let start_qps = faults.or(start, default);
    match &written.method {
        Some(at) if *at.get_ref() == file::Method::FixedRange => {
            let strangers = [
                ("start-rate", written.start_rate.as_ref().map(At::whole)),
                ("reuse", written.reuse.as_ref().map(At::whole)),
            ];
            for (key, at) in strangers {
                if let Some(at) = at {
                    faults.add(at.fault(format!("`{key}` is for the galloping method; omit it")));
                }
            }
            if written.max_rate.is_none() {
                faults.add(at.fault(
                    "`method` is \"fixed-range\", which bisects from 0 to max-rate: it must be given; write max-rate = \
                     16384",
                ));
            }
            Method::FixedRange {
                max_qps: max_qps.unwrap_or(START_QPS),
            }
        }
        _ => {
            if let (Some(at), Some(max)) = (&written.start_rate, max_qps)
                && start_qps > max
            {
                faults.add(at.fault(format!(
                    "`start-rate` is {start_qps}, beyond the max-rate of {max}: lower the one or raise the other"
                )));
            }
            Method::Galloping {
                start_qps,
                max_qps,
                reuse: written.reuse.as_ref().is_none_or(|at| *at.get_ref()),
            }
        }
    }
}

fn queue_check(written: &At<file::QueueCheck>, faults: &mut Faults<'_>) -> QueueCheck {
    let file::QueueCheck {
        durations,
        timeouts,
    } = written.get_ref();
    let tenths = |tenths: &[u64]| tenths.iter().map(|t| t * (SECOND / 10)).collect::<Vec<_>>();
    let (of_duration, of_timeout) = (tenths(&QUEUE_DURATIONS), tenths(&QUEUE_TIMEOUTS));
    QueueCheck {
        durations_ns: list_or(durations, quantity::duration, of_duration, faults),
        timeouts_ns: list_or(timeouts, quantity::timeout, of_timeout, faults),
    }
}

fn overload(written: &At<file::Overload>, faults: &mut Faults<'_>) -> Overload {
    let factors = &written.get_ref().factors;
    Overload {
        factors_milli: list_or(factors, quantity::factor, FACTORS_MILLI, faults),
    }
}

fn soak(written: &At<file::Soak>, faults: &mut Faults<'_>) -> Soak {
    let file::Soak { share, length } = written.get_ref();
    let nonzero = |text: &str| match text.parse::<Share>() {
        Ok(Share::NONE) => Err("a soak without load shows nothing; give a share above 0".into()),
        Ok(share) => Ok(share),
        Err(error) => Err(error.to_string()),
    };
    let default = SOAK_SHARE.parse().unwrap_or(Share::ALL);
    let length = word_or(length, quantity::soak_length, SOAK_LENGTH_NS);
    Soak {
        share: faults.or(word_or(share, nonzero, default), default),
        length_ns: faults.or(length, SOAK_LENGTH_NS),
    }
}

/// Refuses a plan that is too large for a report: probably a typing error.
fn check_size(plan: &Plan, file: &File, faults: &mut Faults<'_>) {
    let queue = plan.queue_check.as_ref().map_or(0, |check| {
        check.durations_ns.len() * check.timeouts_ns.len()
    });
    let points = plan.variants.len() * (plan.cells.len() + queue);
    if let Some(first) = file.dut.first()
        && points > POINTS_MAX
    {
        faults.add(first.fault(format!(
            "{} variants with {} cells each, and {queue} of the queue check, are more than \
             {POINTS_MAX} points; make several plans of it",
            plan.variants.len(),
            plan.cells.len()
        )));
    }
}

/// Checks the authorities as DUTs. In a self-test every name has an AAAA record, so AAAA shares have no effect.
/// Repeated names are its working set.
fn check_authorities(plan: &Plan, file: &File, faults: &mut Faults<'_>) {
    let labs = plan
        .variants
        .iter()
        .filter_map(|variant| variant.subject.lab());
    if let Some(error) = labs.map(LabSpec::check_driver).find_map(Result::err) {
        let written = file.tester.authority.as_ref().map(At::whole);
        let at = written.or(file.dut.first().map(At::whole));
        let message = in_keys(&error.to_string());
        at.iter()
            .for_each(|at| faults.add(at.fault(message.clone())));
    }
    let mut authorities = file.dut.iter();
    let at = authorities.find_map(|dut| dut.get_ref().authority.as_ref());
    if let Some(at) = at
        && plan.cells.iter().any(|cell| cell.aaaa_share != Share::NONE)
    {
        faults.add(at.fault(format!(
            "the authority {:?} is measured by the self-test, in which every name has an AAAA: \
             omit aaaa-share, or put the DUTs into another plan",
            at.get_ref()
        )));
    }
}

/// Source addresses from which something cannot be measured: each reason once.
fn check_sources(plan: &Plan, file: &File, faults: &mut Faults<'_>) {
    let (Some(local), Some(at)) = (plan.load.local, &file.tester.local) else {
        return;
    };
    let subjects = plan.variants.iter().map(|variant| &variant.subject);
    let refused = subjects.filter_map(|subject| sources::check(subject, local).err());
    let messages: BTreeSet<_> = refused.map(|error| in_keys(&error.to_string())).collect();
    for message in messages {
        faults.add(at.fault(message));
    }
}

/// Every trial needs at least one query, and a name for each query.
fn check_names(plan: &Plan, file: &File, faults: &mut Faults<'_>) {
    let (first_qps, rate) = match plan.search.method {
        Method::Galloping { start_qps, .. } => (start_qps, &file.search.start_rate),
        Method::FixedRange { max_qps } => ((max_qps / 2).max(1), &file.search.max_rate),
    };
    let checks = plan.queue_check.iter();
    let more = checks.flat_map(|check| check.durations_ns.iter().copied());
    let shortest = more.clone().fold(plan.load.duration_ns, Nanos::min);
    let longest = more.fold(plan.load.duration_ns, Nanos::max);
    let rate = rate.as_ref().map(At::whole);
    let first = file.dut.first().map(At::whole);
    if Schedule::new(first_qps, shortest).queries() == 0 {
        let duration = file.trial.duration.as_ref().map(At::whole);
        let at = duration.or(rate.clone()).or(first);
        let message = format!(
            "a trial of {} at the first rate, {first_qps} queries per second, has no query; give \
             a longer duration or a rate of at least {}",
            Span(shortest),
            Schedule::lowest_rate_qps(shortest)
        );
        at.iter()
            .for_each(|at| faults.add(at.fault(message.clone())));
        return;
    }
    let at = file.tester.namespace.as_ref().map(At::whole);
    let trial = (first_qps, longest);
    let ranges = file
        .dut
        .iter()
        .filter_map(|dut| dut.get_ref().namespace.as_ref());
    let ranges = ranges.flat_map(|many| &many.get_ref().0);
    let own = ranges.filter_map(|at| Some((at.get_ref().0.parse().ok()?, at.whole())));
    for (range, at) in own {
        check_range(plan, file, range, &at, trial, faults);
    }
    if let Some(at) = at.or(rate).or(first) {
        check_range(plan, file, plan.load.cidr, &at, trial, faults);
    }
}

/// Checks that a range has enough names for a trial of this rate and length, and for the patterns.
fn check_range(
    plan: &Plan,
    file: &File,
    namespace: Cidr,
    at: &At<()>,
    (first_qps, length_ns): (u64, Nanos),
    faults: &mut Faults<'_>,
) {
    let pattern = file.cells.pattern.as_ref().map(At::whole);
    for cell in &plan.cells {
        if let Err(error) = cell.pattern.fits(namespace) {
            let at = pattern.as_ref().unwrap_or(at);
            faults.add(at.fault(in_keys(&error.to_string())));
        }
    }
    let queries = Schedule::new(first_qps, length_ns).queries();
    let of_cell = |cell: &Cell| {
        let fresh = Names::fresh(cell.cached_share, queries);
        fresh.saturating_add(RESERVED)
    };
    let needed = plan.cells.iter().map(of_cell).max().unwrap_or(0);
    if needed > namespace.names() {
        let remedy = match namespace.widened_to(needed) {
            Some(wider) => format!("give namespace = \"{wider}\""),
            None => "even 0.0.0.0/0 is too small: give a lower rate or a shorter duration".into(),
        };
        faults.add(at.fault(format!(
            "the namespace {namespace} has {} names, and a trial of {} at the first rate, \
             {first_qps} queries per second, needs {needed}; {remedy}",
            namespace.names(),
            Span(length_ns)
        )));
    }
}

fn check_soak(plan: &Plan, file: &File, faults: &mut Faults<'_>) {
    let (Some(soak), Some(at)) = (&plan.soak, &file.soak) else {
        return;
    };
    if soak.length_ns < plan.load.duration_ns {
        let written = at.get_ref().length.as_ref().map(At::whole);
        faults.add(written.unwrap_or_else(|| at.whole()).fault(format!(
            "a soak of {} is shorter than one trial of {}, which is its segment; lengthen it",
            Span(soak.length_ns),
            Span(plan.load.duration_ns)
        )));
    }
    if plan.variants.iter().all(|v| v.subject.is_authority()) {
        faults.add(
            at.fault("[soak] needs a DNS64 server; authorities by themselves are searched only"),
        );
    }
}

/// The default of the command line.
const START_QPS: u64 = 10_000;

/// RFC 8219 section 9.2.
const RUNS_DEFAULT: u32 = 20;

/// A year of searches of one hour each.
const POINTS_MAX: usize = 10_000;

/// In tenths of a second: Lencse et al. 2017, section 6.5.
const QUEUE_DURATIONS: [u64; 4] = [50, 100, 300, 600];

/// In tenths of a second: Lencse et al. 2017, section 6.5.
const QUEUE_TIMEOUTS: [u64; 3] = [5, 10, 50];

/// From half the rate to five times the rate.
const FACTORS_MILLI: [u32; 6] = [500, 1000, 1500, 2000, 3000, 5000];

/// A typical load of a server in operation.
const SOAK_SHARE: &str = "80%";

/// Long enough for a leak to show.
const SOAK_LENGTH_NS: Nanos = 4 * 60 * 60 * SECOND;
