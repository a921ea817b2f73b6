//! `run` and `resume`: a campaign in a directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use dns64_transport::clock::MonotonicClock;

use super::lab::in_user_namespace;
use super::plan::{directory, not_ready, refuse, settled};
use super::{Failure, exit, interrupt, report};
use crate::agent::program;
use crate::campaign::bench::RigBench;
use crate::campaign::environment;
use crate::campaign::journal::{Beginning, Journal, Reading, unix_ms};
use crate::campaign::plan::Plan;
use crate::campaign::plan::tasks::Task;
use crate::campaign::record::{Environment, Line, Record};
use crate::campaign::run::{Assignment, BenchError, Campaign, Parts};
use crate::campaign::state::State;
use crate::campaign::status::Status;
use crate::cli::args::{PushArgs, ResumeArgs, RunArgs, WatchArgs};
use crate::doctor::hosts::ready;
use crate::lab::topology::Lab;
use crate::lab::{Blame, LabError, LabKind};
use crate::machine::Role;
use crate::post::links::Links;
use crate::report::campaign::live::Live;
use crate::report::campaign::progress::CampaignProgress;
use crate::report::raw::RawFile;
use crate::trial::rows::Rows;

/// `dns64bench run`
pub(super) fn run(args: &RunArgs) -> Result<u8, Failure> {
    let plan = Plan::load(&args.plan)?;
    let lab = settled(&plan);
    let directory = directory(args, &plan);
    refuse(&plan, &directory, lab.as_ref(), false, args.may_load)?;
    start(&plan, &directory, lab, (&args.push, &args.watch), |lab| {
        let beginning = Beginning {
            tester: crate::PROGRAM.to_owned(),
            plan: plan.text.clone(),
            plan_origin: plan.origin.clone(),
            command: std::env::args().collect(),
            lab,
        };
        Journal::create(&directory, beginning).map(drop)
    })
}

/// `dns64bench resume`
pub(super) fn resume(args: &ResumeArgs) -> Result<u8, Failure> {
    let (plan, Reading { lines, .. }) = report::load(&args.directory)?;
    let last = lines.last().map(|line| &line.record);
    if matches!(last, Some(Record::Complete)) {
        return report::run(&args.directory);
    }
    let lab = lab_of(&lines).map(LabKind::settle);
    refuse(&plan, &args.directory, lab.as_ref(), true, args.may_load)?;
    let shown = (&args.push, &args.watch);
    start(&plan, &args.directory, lab, shown, |_| Ok(()))
}

/// Runs the remaining tasks of the journal in `directory`, which `begin` writes if it does not exist, and then writes
/// the report.
fn start(
    plan: &Plan,
    directory: &Path,
    lab: Option<Result<LabKind, LabError>>,
    (push, watch): (&PushArgs, &WatchArgs),
    begin: impl FnOnce(Option<LabKind>) -> Result<(), LabError>,
) -> Result<u8, Failure> {
    let interrupted = interrupt()?;
    let lab = lab.transpose()?;
    if let Some(code) = handed_over(lab, &interrupted)? {
        return Ok(code);
    }
    let (links, environment) = held(plan, lab, push, &interrupted)?;
    begin(lab)?;
    let resumed = Journal::resume(directory)?;
    work(
        plan,
        directory,
        resumed,
        (links, environment),
        watch,
        interrupted,
    )?;
    report::run(directory)
}

/// Kind of lab with which a campaign was begun.
fn lab_of(lines: &[Line]) -> Option<LabKind> {
    lines.iter().find_map(|line| match &line.record {
        Record::Campaign { lab, .. } => *lab,
        _ => None,
    })
}

/// Connects the hosts of a plan, if it has any, and refuses hosts that cannot be measured. The hosts are held from then
/// on. The links of a lab on this machine are created temporarily: a campaign whose lab is in use leaves no journal.
fn held(
    plan: &Plan,
    lab: Option<LabKind>,
    push: &PushArgs,
    interrupted: &Arc<AtomicBool>,
) -> Result<(Links, Environment), Failure> {
    let links = Links::new(
        &format!("plan {}", plan.name),
        push.push_binary,
        interrupted,
    );
    let Some(hosts) = &plan.hosts.at else {
        return Ok((links, environment(plan, lab)?));
    };
    let seen = ready::look(plan, hosts, links.try_reach(hosts.iter()));
    if !seen.obstacles.is_empty() {
        return Err(Failure::new(exit::ENVIRONMENT, not_ready(&seen.obstacles)));
    }
    let mut environment = environment(plan, lab)?;
    let interfaces = environment::of_hosts(hosts, &seen.facts);
    environment.interfaces.extend(interfaces);
    Ok((links, environment))
}

/// Runs the campaign in a user namespace, if its lab needs one. Returns the exit code of that process.
fn handed_over(lab: Option<LabKind>, interrupted: &AtomicBool) -> Result<Option<u8>, Failure> {
    lab.map_or(Ok(None), |kind| in_user_namespace(kind, interrupted))
}

/// The environment of the machine, including the links of its lab.
fn environment(plan: &Plan, lab: Option<LabKind>) -> Result<Environment, Failure> {
    let setup = match lab {
        None | Some(LabKind::Loopback) => return Ok(environment::capture(&[])),
        Some(_) => plan.hosts.setup,
    };
    let _lab = Lab::up(setup, None)?;
    let hosts = [Role::Measurer, Role::Dut, Role::Authority].map(|role| setup.network(role));
    Ok(environment::capture(&hosts))
}

/// Does what a locked journal leaves to do, on the held hosts of the plan.
fn work(
    plan: &Plan,
    directory: &Path,
    (mut journal, mut lines, torn_bytes): (Journal, Vec<Line>, u64),
    (links, environment): (Links, Environment),
    watch: &WatchArgs,
    interrupted: Arc<AtomicBool>,
) -> Result<(), Failure> {
    let session = Record::Session {
        environment: Box::new(environment.clone()),
        torn_bytes,
        tester: crate::PROGRAM.to_owned(),
        tester_sha256: program::sha256(),
    };
    lines.push(journal.append(session)?);
    let shared = Arc::new(Mutex::new(Status::default()));
    let live = |listen| Live::start(listen, Arc::clone(&shared), unix_ms);
    let _live = watch.http.map(live).transpose()?;
    let mut progress = CampaignProgress::new(watch.quiet);
    let ended = {
        let lab = lab_of(&lines).unwrap_or_default();
        let mut keep = keep_raw(plan.raw, directory.join("raw"));
        let names = State::of(plan, &lines).names;
        let bench = RigBench::new(
            plan,
            &environment,
            (lab, links),
            names,
            &mut keep,
            interrupted,
        );
        let mut known = false;
        let mut show = |status: &Status| {
            shared
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone_from(status);
            // The earlier process has shown its own events.
            if std::mem::replace(&mut known, true) {
                progress.show(status, unix_ms());
            } else {
                progress.begin(status);
            }
        };
        let parts = Parts {
            lines,
            journal,
            bench,
            clock: MonotonicClock,
        };
        let directory = directory.display().to_string();
        Campaign::new(plan, parts, directory, &mut show).work()
    };
    progress.clear();
    ended.map_err(|error| left_off(&error, directory))
}

/// Why a campaign stopped, and how to continue it.
fn left_off(error: &BenchError, directory: &Path) -> Failure {
    let resume = format!("dns64bench resume {}", directory.display());
    let (code, text) = match error {
        BenchError::Interrupted => (
            exit::INTERRUPTED,
            format!("interrupted; continue with: {resume}"),
        ),
        error => (
            exit::ENVIRONMENT,
            format!("{error}\nafter correcting that, continue with: {resume}"),
        ),
    };
    Failure::new(code, anyhow::anyhow!(text))
}

/// Writes the queries of each trial beside the journal, if the plan requests it: after the trial, never during it.
fn keep_raw(
    is_kept: bool,
    folder: PathBuf,
) -> impl FnMut(&Assignment, u64, Rows<'_>) -> Result<(), LabError> {
    move |job, number, rows| {
        if !is_kept {
            return Ok(());
        }
        let task = match job.task {
            Task::Search { point, run } => format!("point-{point}-run-{run}"),
            Task::Goals { point } => format!("point-{point}-goals"),
            Task::Overload { point } => format!("point-{point}-overload"),
            Task::Soak { point } => format!("point-{point}-soak"),
        };
        let cannot = format!("cannot create directory {}", folder.display());
        std::fs::create_dir_all(&folder).map_err(Blame::Machine.because(cannot))?;
        let path = folder.join(format!("{task}-trial-{number}.csv"));
        RawFile::create(&path)?.write(rows).map(drop)
    }
}
