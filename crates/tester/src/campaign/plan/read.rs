//! The plan of the settings, and faults of their combinations.

use std::collections::BTreeSet;
use std::path::Path;

use dns64_transport::Backend;
use dns64_transport::clock::Nanos;
use dns64_wire::codes::Rtype;

use super::draft::Draft;
use super::places::{Faults, Place};
use super::tasks;
use super::{Cell, Method, Plan, cells, duts, hosts};
use crate::load::names::{Names, RESERVED};
use crate::load::pace::Schedule;
use crate::load::transport::Protocol;
use crate::namespace::{Cidr, Share};
use crate::quantity::{Span, written};
use crate::rig::sources;
use crate::rig::spec::{AuthorityChoice, LabSpec};

/// The plan of a draft that was read from `origin`. Faults are added to `faults`; with any fault the plan must not be used.
pub(super) fn plan(draft: &Draft, faults: &mut Faults) -> Plan {
    let mut plan = measured(draft, faults);
    if plan.name.is_empty() {
        let stem = Path::new(&plan.origin)
            .file_stem()
            .and_then(|stem| stem.to_str());
        plan.name = stem.unwrap_or("plan").to_owned();
    }
    if draft.namespace.is_none() && faults.is_empty() {
        plan.load.cidr = plan.smallest_range();
    }
    plan.points = tasks::points(&plan);
    plan.tasks = tasks::tasks(&plan);
    if sound(faults, &["cells", "queue-check", "dut"]) {
        check_size(&plan, faults);
    }
    if sound(faults, &["cells", "tester", "hosts", "dut"]) {
        check_shares(draft, &plan, faults);
    }
    if sound(
        faults,
        &["tester", "trial", "search", "cells", "queue-check"],
    ) {
        check_names(draft, &plan, faults);
    }
    if sound(faults, &["soak", "trial", "dut"]) {
        check_soak(&plan, faults);
    }
    if sound(faults, &["search", "trial"]) {
        check_goal_trials(&plan, faults);
    }
    plan
}

/// The plan of one measurement by flags.
///
/// # Errors
///
/// Contradictory flags: all faults.
pub fn measurement(draft: &Draft) -> Result<Plan, Vec<String>> {
    let mut faults = Faults::default();
    let mut draft = draft.clone();
    draft.duts = vec![draft.dut.clone()];
    let mut plan = measured(&draft, &mut faults);
    check_patterns(&draft, &plan, &mut faults);
    plan.points = tasks::points(&plan);
    match faults.is_empty() {
        true => Ok(plan),
        false => Err(faults.messages()),
    }
}

/// What is measured, with the checks of plans and flags.
fn measured(draft: &Draft, faults: &mut Faults) -> Plan {
    let mut plan = draft.plan.clone();
    plan.hosts.at = hosts::hosts(draft, faults);
    plan.search.method = method(draft, faults);
    let is_galloping = matches!(plan.search.method, Method::Galloping { .. });
    plan.search.stop_early = draft.stop_early.unwrap_or(is_galloping);
    plan.load.stop_early = plan.search.stop_early;
    plan.load.cidr = draft.namespace.unwrap_or(plan.load.cidr);
    plan.variants = duts::variants(draft, &plan, faults);
    plan.cells = cells::cells(draft, faults);
    check_goals(draft, &plan, faults);
    if sound(faults, &["tester"]) {
        check_ports(draft, faults);
        check_transport(draft, faults);
    }
    if sound(faults, &["tester", "hosts", "dut"]) {
        check_driver(draft, &plan, faults);
        check_tls(draft, &plan, faults);
        check_records(draft, &plan, faults);
        check_sources(draft, &plan, faults);
    }
    plan
}

/// Whether these tables have no fault yet.
fn sound(faults: &Faults, tables: &[&str]) -> bool {
    !tables
        .iter()
        .any(|table| faults.spoil(&Place::of(&[table])))
}

/// Refuses a pattern without repeated names. A plan in a journal may have one.
pub(super) fn check_patterns(draft: &Draft, plan: &Plan, faults: &mut Faults) {
    let repeats = plan
        .cells
        .iter()
        .any(|cell| cell.cached_share != Share::NONE);
    let pattern = Place::of(&["cells", "pattern"]);
    if draft.has(&pattern) && !repeats && sound(faults, &["cells"]) {
        let message = format!(
            "{} has no effect because {} is 0; omit it, or add for example {}",
            draft.name("cells.pattern"),
            draft.name("cells.cached-share"),
            draft.with("cells.cached-share", "80%")
        );
        faults.add(&pattern, message);
    }
}

fn method(draft: &Draft, faults: &mut Faults) -> Method {
    let key = |name| Place::of(&["search", name]);
    let default_qps = START_QPS.min(draft.max_qps.unwrap_or(START_QPS));
    let start_qps = draft.start_qps.unwrap_or(default_qps);
    if !draft.is_fixed_range {
        if let (Some(start), Some(max)) = (draft.start_qps, draft.max_qps)
            && start > max
        {
            let start = draft.with("search.start-rate", start);
            let max = draft.with("search.max-rate", max);
            let message = format!("{start} is beyond {max}; lower the one or raise the other");
            faults.add(&key("start-rate"), message);
        }
        return Method::Galloping {
            start_qps,
            max_qps: draft.max_qps,
            reuse: draft.reuse.unwrap_or(true),
        };
    }
    for name in ["start-rate", "reuse"]
        .map(key)
        .iter()
        .filter(|place| draft.has(place))
    {
        let what = name.name();
        faults.add(
            name,
            format!("`{what}` is for the galloping method; omit it"),
        );
    }
    if !draft.has(&key("max-rate")) {
        faults.add(
            &key("method"),
            "`method` is \"fixed-range\", which bisects from 0 to max-rate: it must be given; write max-rate = 16384",
        );
    }
    Method::FixedRange {
        max_qps: draft.max_qps.unwrap_or(START_QPS),
    }
}

/// Refuses more goals than a search may have, and an interval after others.
fn check_goals(draft: &Draft, plan: &Plan, faults: &mut Faults) {
    let (number, name) = (plan.search.goals.len(), draft.name("search.goals"));
    let mut refuse = |message| faults.add(&Place::of(&["search", "goals"]), message);
    if number > GOALS_MAX {
        refuse(format!(
            "{number} of {name} are more than {GOALS_MAX}; omit some of them"
        ));
    }
    let mut others = plan.search.goals.iter().skip(1);
    if let Some(goal) = others.find(|goal| goal.is_interval) {
        refuse(format!(
            "{goal} is not the first of {name}; put it before the others, and omit a second interval"
        ));
    }
}

/// Refuses trials of goals for which the Tester is not certified.
fn check_goal_trials(plan: &Plan, faults: &mut Faults) {
    let mut goals = plan.search.goals.iter();
    let duration_ns = plan.load.duration_ns;
    let Some(goal) = goals.find(|goal| goal.trial_ns > duration_ns) else {
        return;
    };
    let (trial, duration) = (written(goal.trial_ns), written(duration_ns));
    let message = format!(
        "trial={trial} of {goal} is longer than `duration` = \"{duration}\" of [trial], for which the Tester is certified; \
         shorten the one or lengthen the other"
    );
    faults.add(&Place::of(&["search", "goals"]), message);
}

fn check_ports(draft: &Draft, faults: &mut Faults) {
    let load = &draft.plan.load;
    if let Some(ports) = load.ports.filter(|ports| *ports < load.threads) {
        let message = format!(
            "{} is fewer than {}; each thread needs one, so use {} or more",
            draft.with("tester.sockets", ports),
            draft.with("tester.threads", load.threads),
            draft.with("tester.sockets", load.threads)
        );
        faults.add(&Place::of(&["tester", "sockets"]), message);
    }
}

/// Refuses settings of connections for datagrams, and datagrams of AF_XDP for connections.
fn check_transport(draft: &Draft, faults: &mut Faults) {
    let load = &draft.plan.load;
    let key = |name| Place::of(&["tester", name]);
    if load.transport.is_stream() {
        if let Some(backend @ Backend::Xdp { .. }) = load.backend {
            let message = format!(
                "{} carries UDP datagrams only; omit it, or use {}",
                draft.with("tester.backend", backend),
                draft.with("tester.transport", "udp")
            );
            faults.add(&key("backend"), message);
        }
        return;
    }
    let of_connections = ["queries-per-connection", "pipeline"];
    for name in of_connections
        .into_iter()
        .filter(|name| draft.has(&key(name)))
    {
        let message = format!(
            "{} has no effect over UDP; omit it, or add {}",
            draft.name(&format!("tester.{name}")),
            draft.with("tester.transport", "tcp")
        );
        faults.add(&key(name), message);
    }
}

/// Refuses TLS to servers that the Tester starts: they have no certificates.
fn check_tls(draft: &Draft, plan: &Plan, faults: &mut Faults) {
    let mut labs = plan.variants.iter().filter(|it| it.subject.lab().is_some());
    if plan.load.transport.protocol == Protocol::Tls && labs.next().is_some() {
        let message = format!(
            "{} is for servers that already run, because those of a lab have no certificate; use {}, or give the server",
            draft.with("tester.transport", "tls"),
            draft.with("tester.transport", "tcp")
        );
        faults.add(&Place::of(&["tester", "transport"]), message);
    }
}

/// Refuses a plan that is too large for a report: probably a typing error.
fn check_size(plan: &Plan, faults: &mut Faults) {
    let queue = plan.queue_check.as_ref().map_or(0, |check| {
        check.durations_ns.len() * check.timeouts_ns.len()
    });
    let (variants, cells) = (plan.variants.len(), plan.cells.len());
    if variants * (cells + queue) > POINTS_MAX {
        faults.add(
            &Place::of(&["dut"]).item(0),
            format!(
                "{variants} variants with {cells} cells each, and {queue} of the queue check, are more than \
                 {POINTS_MAX} points; split it into several plans"
            ),
        );
    }
}

/// Refuses an authority in the driver of a lab in which it is not possible.
fn check_driver(draft: &Draft, plan: &Plan, faults: &mut Faults) {
    let mut labs = plan
        .variants
        .iter()
        .filter_map(|variant| variant.subject.lab());
    if let Some(error) = labs.find_map(|lab| LabSpec::check_driver(lab).err()) {
        let behind = Place::of(&["tester", "authority"]);
        let place = match draft.has(&behind) {
            true => behind,
            false => Place::of(&["dut"]).item(0),
        };
        faults.add(&place, draft.naming.text(&error));
    }
}

/// Refuses records that an authority of a lab does not serve. HTTPS queries reach the sockets behind the driver.
fn check_records(draft: &Draft, plan: &Plan, faults: &mut Faults) {
    let (form, records) = (&plan.load.form, &plan.load.zone.records);
    let labs = plan.variants.iter().filter_map(|it| it.subject.lab());
    let mut authorities: Vec<_> = labs.map(|lab| &lab.authority).collect();
    authorities.retain(|authority| **authority != AuthorityChoice::BuiltIn);
    let program = authorities.iter().find(|authority| authority.is_program());
    let (has_https, cname_share) = (form.types.has(Rtype::HTTPS), records.cname_share);
    for (table, key, value, authority) in [
        (
            "trial",
            "types",
            form.types.to_string(),
            program.filter(|_| has_https),
        ),
        (
            "tester",
            "cname-share",
            cname_share.to_string(),
            authorities.first().filter(|_| cname_share != Share::NONE),
        ),
        (
            "tester",
            "addresses",
            records.addresses.to_string(),
            authorities.first().filter(|_| records.addresses > 1),
        ),
    ] {
        if let Some(authority) = authority {
            let message = format!(
                "{}: the authority {authority} has only an A and an AAAA record for a name; use the built-in authority, or omit {}",
                draft.with(&format!("{table}.{key}"), value),
                draft.name(&format!("{table}.{key}"))
            );
            faults.add(&Place::of(&[table, key]), message);
        }
    }
}

/// In a self-test every name has an AAAA record, so AAAA shares have no effect on an authority that is measured alone.
/// Repeated names are its working set.
fn check_shares(draft: &Draft, plan: &Plan, faults: &mut Faults) {
    let mut alone = draft
        .duts
        .iter()
        .filter_map(|dut| Some((dut, dut.authority.as_ref()?)));
    if let Some((dut, name)) = alone.next()
        && plan.cells.iter().any(|cell| cell.aaaa_share != Share::NONE)
    {
        faults.add(
            &dut.place.key("authority"),
            format!(
                "the authority {name:?} is measured by the self-test, in which every name has an AAAA: \
                 omit aaaa-share, or put the DUTs into another plan"
            ),
        );
    }
}

/// Source addresses from which something cannot be measured: each reason once.
fn check_sources(draft: &Draft, plan: &Plan, faults: &mut Faults) {
    let Some(local) = plan.load.local else {
        return;
    };
    let subjects = plan.variants.iter().map(|variant| &variant.subject);
    let refused = subjects.filter_map(|subject| sources::check(subject, local).err());
    let messages: BTreeSet<_> = refused.map(|error| draft.naming.text(&error)).collect();
    for message in messages {
        faults.add(&Place::of(&["tester", "local"]), message);
    }
}

/// Every trial needs at least one query, and a name for each query.
fn check_names(draft: &Draft, plan: &Plan, faults: &mut Faults) {
    let first_qps = plan.search.method.first_qps();
    let rate = match draft.is_fixed_range {
        true => Place::of(&["search", "max-rate"]),
        false => Place::of(&["search", "start-rate"]),
    };
    let first_given = |places: [Place; 2]| {
        let given = places.into_iter().find(|place| draft.has(place));
        given.unwrap_or_else(|| Place::of(&["dut"]).item(0))
    };
    let checks = plan.queue_check.iter();
    let more = checks.flat_map(|check| check.durations_ns.iter().copied());
    let shortest = more.clone().fold(plan.load.duration_ns, Nanos::min);
    let longest = more.fold(plan.load.duration_ns, Nanos::max);
    if Schedule::new(first_qps, shortest).queries() == 0 {
        let message = format!(
            "a trial of {} at the first rate, {first_qps} queries per second, has no query; give \
             a longer duration or a rate of at least {}",
            Span(shortest),
            Schedule::lowest_rate_qps(shortest)
        );
        faults.add(
            &first_given([Place::of(&["trial", "duration"]), rate]),
            message,
        );
        return;
    }
    let mut check = |range, place: &Place| {
        check_range((draft, plan), range, place, (first_qps, longest), faults)
    };
    for dut in &draft.duts {
        for (number, range) in dut.namespaces.iter().enumerate() {
            check(*range, &dut.place.key("namespace").item(number));
        }
    }
    check(
        plan.load.cidr,
        &first_given([Place::of(&["tester", "namespace"]), rate]),
    );
}

/// Checks that a range has enough names for a trial of this rate and length, and for the patterns.
fn check_range(
    (draft, plan): (&Draft, &Plan),
    namespace: Cidr,
    place: &Place,
    (first_qps, length_ns): (u64, Nanos),
    faults: &mut Faults,
) {
    for cell in &plan.cells {
        if let Err(error) = cell.pattern.fits(namespace) {
            faults.add(&Place::of(&["cells", "pattern"]), draft.naming.text(&error));
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
        faults.add(
            place,
            format!(
                "the namespace {namespace} has {} names, and a trial of {} at the first rate, \
                 {first_qps} queries per second, needs {needed}; {remedy}",
                namespace.names(),
                Span(length_ns)
            ),
        );
    }
}

fn check_soak(plan: &Plan, faults: &mut Faults) {
    let Some(soak) = &plan.soak else {
        return;
    };
    if soak.length_ns < plan.load.duration_ns {
        faults.add(
            &Place::of(&["soak", "length"]),
            format!(
                "a soak of {} is shorter than one trial of {}, which is its segment; lengthen it",
                Span(soak.length_ns),
                Span(plan.load.duration_ns)
            ),
        );
    }
    if plan.variants.iter().all(|v| v.subject.is_authority()) {
        faults.add(
            &Place::of(&["soak"]),
            "[soak] needs a DNS64 server; authorities by themselves are searched only",
        );
    }
}

/// The first rate by default.
pub(super) const START_QPS: u64 = 10_000;

/// Most goals of a search: each takes hundreds of trials.
const GOALS_MAX: usize = 8;

/// A year of searches of one hour each.
const POINTS_MAX: usize = 10_000;
