//! From what is written to what it means.

use std::path::Path;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::socket::Segmentation;
use dns64_wire::pref64::Pref64;

use super::duts::resolved;
use super::file::{self, At, File, Word};
use super::values::{label, list_or, number, text, value, word_or};
use super::{
    Cell, Fault, Method, Overload, Plan, QueueCheck, SearchPlan, Soak, cells, duts, hosts,
};
use crate::authority::behaviour::Behaviour;
use crate::lab::LabKind;
use crate::lab::topology::Setup;
use crate::load::catch_up::Limits;
use crate::load::names::{Names, RESERVED};
use crate::load::pace::{self, Schedule};
use crate::namespace::{Cidr, Share, parse_suffix};
use crate::procedure::certificate::SELF_TESTS_DEFAULT;
use crate::procedure::search::Resolution;
use crate::quantity::{self, Span};
use crate::rig::spec::{AuthorityChoice, LabSpec, Load};

/// The plan that `file` stands for.
pub(super) fn plan(file: &File, origin: &str) -> Result<Plan, Fault> {
    let hosts = lab(file, origin)?;
    let search = search(&file.search)?;
    let mut plan = Plan {
        name: name(file, origin)?,
        description: file.description.clone(),
        lab: file
            .tester
            .lab
            .as_ref()
            .map_or_else(LabKind::default, |at| *at.get_ref()),
        load: load(file, search.stop_early)?,
        uncertified: file.tester.uncertified,
        self_tests: number(
            file.tester.self_tests.as_ref(),
            "self-tests",
            SELF_TESTS_MAX,
        )?
        .unwrap_or(SELF_TESTS_DEFAULT.into()),
        raw: file.tester.raw.as_ref().map(|at| *at.get_ref()),
        variants: duts::variants(&file.dut, &hosts, search.restart, origin)?,
        hosts,
        search,
        cells: cells::cells(&file.cells)?,
        queue_check: file.queue_check.as_ref().map(queue_check).transpose()?,
        overload: file.overload.as_ref().map(overload).transpose()?,
        soak: file.soak.as_ref().map(soak).transpose()?,
    };
    if file.tester.namespace.is_none() {
        plan.load.cidr = plan.smallest_range();
    }
    check_size(&plan, file)?;
    check_authorities(&plan, file)?;
    check_names(&plan, file)?;
    check_soak(&plan, file)?;
    Ok(plan)
}

fn name(file: &File, origin: &str) -> Result<String, Fault> {
    let given = text(file.name.as_ref(), label)?;
    let of_file = || Path::new(origin).file_stem()?.to_str().map(str::to_owned);
    Ok(given.or_else(of_file).unwrap_or_else(|| "plan".to_owned()))
}

/// The lab that all DUTs are started in.
fn lab(file: &File, origin: &str) -> Result<LabSpec, Fault> {
    let written = &file.tester;
    let authority = |name: &str| resolved(name, origin).parse::<AuthorityChoice>();
    Ok(LabSpec {
        at: hosts::hosts(file)?,
        setup: written
            .setup
            .as_ref()
            .map_or_else(Setup::default, |at| *at.get_ref()),
        dut: None,
        upstream: written.upstream_family,
        authority: text(written.authority.as_ref(), authority)?.unwrap_or_default(),
        authority_cpus: text(written.authority_cpus.as_ref(), str::parse)?.unwrap_or_default(),
        behaviour: Behaviour::default(),
    })
}

fn load(file: &File, stop_early: bool) -> Result<Load, Fault> {
    let written = &file.tester;
    let threads = number(written.threads.as_ref(), "threads", THREADS_MAX)?.unwrap_or(1);
    let ports = number(written.sockets.as_ref(), "source ports", SOCKETS_MAX)?;
    if let (Some(ports), Some(at)) = (ports, &written.sockets)
        && ports < threads
    {
        let message = format!(
            "{ports} source ports are fewer than {threads} threads; each thread needs one, so \
             give {threads} or more"
        );
        return Err(Fault::new(at.span().start, message));
    }
    let pref64 = text(written.pref64.as_ref(), |text| match text {
        "auto" => Ok(None),
        prefix => prefix.parse::<Pref64>().map(Some),
    })?;
    let burst = number(written.burst.as_ref(), "queries", pace::BURST_MAX)?;
    let mut load = Load {
        threads,
        ports,
        segmentation: text(written.segmentation.as_ref(), str::parse)?.unwrap_or(Segmentation::On),
        backend: text(written.backend.as_ref(), str::parse)?.unwrap_or_default(),
        burst_max: burst.unwrap_or(pace::BURST_MAX),
        cpus: text(written.cpus.as_ref(), str::parse)?.unwrap_or_default(),
        pref64: pref64.flatten(),
        stop_early,
        ..Load::default()
    };
    load.duration_ns = word_or(&file.trial.duration, quantity::duration, load.duration_ns)?;
    load.timeout_ns = word_or(&file.trial.timeout, quantity::timeout, load.timeout_ns)?;
    load.limits = limits(&file.trial)?;
    if let Some(cidr) = text(written.namespace.as_ref(), str::parse)? {
        load.cidr = cidr;
    }
    if let Some(suffix) = text(written.suffix.as_ref(), parse_suffix)? {
        load.zone.suffix = suffix;
    }
    Ok(load)
}

fn limits(written: &file::Trial) -> Result<Limits, Fault> {
    let default = Limits::default();
    let burst = number(written.max_burst.as_ref(), "queries of a burst", BURST_MAX)?;
    let pct = |key, default| word_or(key, quantity::pct, default);
    Ok(Limits {
        max_stall_ns: word_or(&written.max_stall, quantity::stall, default.max_stall_ns)?,
        max_burst_queries: burst.unwrap_or(default.max_burst_queries),
        max_rate_error_pct: pct(&written.max_rate_error, default.max_rate_error_pct)?,
        max_stolen_pct: pct(&written.max_stolen, default.max_stolen_pct)?,
    })
}

fn search(written: &file::Search) -> Result<SearchPlan, Fault> {
    let method = method(written)?;
    Ok(SearchPlan {
        runs: number(written.runs.as_ref(), "runs", RUNS_MAX)?.unwrap_or(RUNS_DEFAULT),
        resolution: word_or(
            &written.resolution,
            quantity::resolution,
            Resolution::default(),
        )?,
        method,
        stop_early: written
            .stop_early
            .unwrap_or(matches!(method, Method::Galloping { .. })),
        restart: written.restart,
        settle_ns: word_or(&written.settle, quantity::rest, 0)?,
        order: written.order,
    })
}

fn method(written: &file::Search) -> Result<Method, Fault> {
    let max_qps = word_or(&written.max_rate, |t| quantity::rate(t).map(Some), None)?;
    let galloping = |key: &str| format!("{key} is for the galloping method; omit it");
    match written.method.as_ref().map(|at| (*at.get_ref(), at.span())) {
        Some((file::Method::FixedRange, span)) => {
            if let Some(at) = &written.start_rate {
                return Err(Fault::new(at.span().start, galloping("start-rate")));
            }
            if let Some(at) = &written.reuse {
                return Err(Fault::new(at.span().start, galloping("reuse")));
            }
            let max_qps = max_qps.ok_or_else(|| {
                Fault::new(
                    span.start,
                    "\"fixed-range\" bisects from 0 to max-rate; give max-rate, as in \
                     max-rate = 16384",
                )
            })?;
            Ok(Method::FixedRange { max_qps })
        }
        Some((file::Method::Galloping, _)) | None => {
            let default = START_QPS.min(max_qps.unwrap_or(u64::MAX));
            let start_qps = word_or(&written.start_rate, quantity::rate, default)?;
            if let (Some(at), Some(max)) = (&written.start_rate, max_qps)
                && start_qps > max
            {
                let message = format!(
                    "a start-rate of {start_qps} is beyond the max-rate of {max}; lower the one \
                     or raise the other"
                );
                return Err(Fault::new(at.span().start, message));
            }
            Ok(Method::Galloping {
                start_qps,
                max_qps,
                reuse: written.reuse.as_ref().is_none_or(|at| *at.get_ref()),
            })
        }
    }
}

fn queue_check(written: &At<file::QueueCheck>) -> Result<QueueCheck, Fault> {
    let file::QueueCheck {
        durations,
        timeouts,
    } = written.get_ref();
    let tenths = |tenths: &[u64]| tenths.iter().map(|t| t * (SECOND / 10)).collect::<Vec<_>>();
    Ok(QueueCheck {
        durations_ns: list_or(durations, quantity::duration, tenths(&QUEUE_DURATIONS))?,
        timeouts_ns: list_or(timeouts, quantity::timeout, tenths(&QUEUE_TIMEOUTS))?,
    })
}

fn overload(written: &file::Overload) -> Result<Overload, Fault> {
    let factors_milli = list_or(&written.factors, quantity::factor, FACTORS_MILLI)?;
    Ok(Overload { factors_milli })
}

fn soak(written: &At<file::Soak>) -> Result<Soak, Fault> {
    let file::Soak { share, length } = written.get_ref();
    let nonzero = |text: &str| match text.parse::<Share>() {
        Ok(Share::NONE) => Err("a soak without load shows nothing; give a share above 0".into()),
        Ok(share) => Ok(share),
        Err(error) => Err(error.to_string()),
    };
    let default = value(SOAK_SHARE, 0, nonzero)?;
    Ok(Soak {
        share: word_or(share, nonzero, default)?,
        length_ns: word_or(length, quantity::soak_length, SOAK_LENGTH_NS)?,
    })
}

/// More than a report could show is a slip of the pen.
fn check_size(plan: &Plan, file: &File) -> Result<(), Fault> {
    let queue = plan.queue_check.as_ref().map_or(0, |check| {
        check.durations_ns.len() * check.timeouts_ns.len()
    });
    let points = plan.variants.len() * (plan.cells.len() + queue);
    if points > POINTS_MAX {
        let message = format!(
            "{} variants with {} cells each, and {queue} of the queue check, are more than \
             {POINTS_MAX} points; make several plans of it",
            plan.variants.len(),
            plan.cells.len()
        );
        let first_dut = file.dut.first().map_or(0, |dut| dut.span().start);
        return Err(Fault::new(first_dut, message));
    }
    Ok(())
}

/// A self-test has an AAAA for every name, so AAAA shares mean nothing to it. Repeated names are its
/// working set.
fn check_authorities(plan: &Plan, file: &File) -> Result<(), Fault> {
    let labs = plan
        .variants
        .iter()
        .filter_map(|variant| variant.subject.lab());
    if let Some(error) = labs.map(LabSpec::check_driver).find_map(Result::err) {
        let written = file.tester.authority.as_ref().map(|at| at.span().start);
        return Err(Fault::new(written.unwrap_or_default(), error.to_string()));
    }
    let at = file
        .dut
        .iter()
        .find_map(|dut| dut.get_ref().authority.as_ref());
    match at {
        Some(at) if plan.cells.iter().any(|cell| cell.aaaa_share != Share::NONE) => {
            Err(Fault::new(
                at.span().start,
                format!(
                    "the authority {:?} is measured by the self-test, in which every name has an AAAA: \
                 leave aaaa-share away, or put its DUTs in a plan of their own",
                    at.get_ref()
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// Every trial needs a query, and a name for each of them.
fn check_names(plan: &Plan, file: &File) -> Result<(), Fault> {
    let (first_qps, rate_at) = match plan.search.method {
        Method::Galloping { start_qps, .. } => (start_qps, &file.search.start_rate),
        Method::FixedRange { max_qps } => ((max_qps / 2).max(1), &file.search.max_rate),
    };
    let rate_at = rate_at.as_ref().map(|at| at.span().start);
    let checks = plan.queue_check.iter();
    let more = checks.flat_map(|check| check.durations_ns.iter().copied());
    let shortest = more.clone().fold(plan.load.duration_ns, Nanos::min);
    let longest = more.fold(plan.load.duration_ns, Nanos::max);
    let duration_at = file.trial.duration.as_ref().map(|at| at.span().start);
    if Schedule::new(first_qps, shortest).queries() == 0 {
        let message = format!(
            "a trial of {} at the first rate, {first_qps} queries per second, has no query; give \
             a longer duration or a rate of at least {}",
            Span(shortest),
            Schedule::lowest_rate_qps(shortest)
        );
        return Err(Fault::new(duration_at.or(rate_at).unwrap_or(0), message));
    }
    let at = file.tester.namespace.as_ref().map(|at| at.span().start);
    let trial = (first_qps, longest);
    check_range(plan, file, plan.load.cidr, (at, rate_at), trial)?;
    for at in file
        .dut
        .iter()
        .filter_map(|dut| dut.get_ref().namespace.as_ref())
    {
        let ranges = at.get_ref().0.iter();
        for range in ranges.filter_map(|Word(text)| text.parse().ok()) {
            check_range(plan, file, range, (Some(at.span().start), None), trial)?;
        }
    }
    Ok(())
}

/// Whether a range has names enough for a trial of this rate and length, and for the patterns.
fn check_range(
    plan: &Plan,
    file: &File,
    namespace: Cidr,
    (at, rate_at): (Option<usize>, Option<usize>),
    (first_qps, length_ns): (u64, Nanos),
) -> Result<(), Fault> {
    let pattern_at = file.cells.pattern.as_ref().map(|at| at.span().start);
    for cell in &plan.cells {
        let offset = pattern_at.or(at).unwrap_or(0);
        let fits = cell.pattern.fits(namespace);
        fits.map_err(|error| Fault::new(offset, error.to_string()))?;
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
            None => "not even 0.0.0.0/0 would do: give a lower rate or a shorter duration".into(),
        };
        let message = format!(
            "the namespace {namespace} has {} names, and a trial of {} at the first rate, \
             {first_qps} queries per second, needs {needed}; {remedy}",
            namespace.names(),
            Span(length_ns)
        );
        return Err(Fault::new(at.or(rate_at).unwrap_or(0), message));
    }
    Ok(())
}

fn check_soak(plan: &Plan, file: &File) -> Result<(), Fault> {
    let (Some(soak), Some(at)) = (&plan.soak, &file.soak) else {
        return Ok(());
    };
    let message = if soak.length_ns < plan.load.duration_ns {
        format!(
            "a soak of {} is shorter than one trial of {}, which is its segment; lengthen it",
            Span(soak.length_ns),
            Span(plan.load.duration_ns)
        )
    } else if plan.variants.iter().all(|v| v.subject.is_authority()) {
        "[soak] needs a DNS64 server; authorities by themselves are searched only".to_owned()
    } else {
        return Ok(());
    };
    Err(Fault::new(at.span().start, message))
}

/// That of the command line.
const START_QPS: u64 = 10_000;

/// RFC 8219 section 9.2.
const RUNS_DEFAULT: u32 = 20;

/// Fifty times what RFC 8219 section 9.2 asks for.
const RUNS_MAX: u64 = 1000;

/// As on the command line.
const THREADS_MAX: u64 = 256;

/// As on the command line.
const SOCKETS_MAX: u64 = 16_384;

/// As on the command line.
const BURST_MAX: u64 = 1_000_000;

/// As on the command line.
const SELF_TESTS_MAX: u64 = 1000;

/// A year of searches of an hour each.
const POINTS_MAX: usize = 10_000;

/// In tenths of a second: paper 000, section 6.5.
const QUEUE_DURATIONS: [u64; 4] = [50, 100, 300, 600];

/// In tenths of a second: paper 000, section 6.5.
const QUEUE_TIMEOUTS: [u64; 3] = [5, 10, 50];

/// From half to five times the rate.
const FACTORS_MILLI: [u32; 6] = [500, 1000, 1500, 2000, 3000, 5000];

/// A load that a server is operated at.
const SOAK_SHARE: &str = "80%";

/// Long enough for a leak to show.
const SOAK_LENGTH_NS: Nanos = 4 * 60 * 60 * SECOND;
