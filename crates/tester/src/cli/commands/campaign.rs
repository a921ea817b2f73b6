//! `run` and `resume`: a campaign in a directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use dns64_transport::clock::MonotonicClock;

use super::bench::{RigBench, measure};
use super::{Failure, exit, interrupt, report, setup};
use crate::campaign::environment;
use crate::campaign::journal::{Beginning, Journal, unix_ms};
use crate::campaign::plan::Plan;
use crate::campaign::record::{Environment, Line, Record};
use crate::campaign::run::{Campaign, CampaignError, Ended, Parts};
use crate::campaign::status::Status;
use crate::campaign::tasks::{Point, points};
use crate::cli::args::{ReportArgs, ResumeArgs, RunArgs, WatchArgs};
use crate::lab::topology::{Role, Setup};
use crate::report::campaign::live::{Live, LiveError};
use crate::report::campaign::progress::CampaignProgress;
use crate::rig::{Place, Rig};

/// `dns64bench run`
pub(super) fn run(args: &RunArgs) -> Result<u8, Failure> {
    let (plan, text) = Plan::load(&args.plan)?;
    let interrupted = interrupt()?;
    if let Some(code) = prepare(&plan, &interrupted)? {
        return Ok(code);
    }
    let by_name = || PathBuf::from(&plan.name);
    let directory = args.output.clone().unwrap_or_else(by_name);
    let beginning = Beginning {
        tester: format!("dns64bench {}", env!("CARGO_PKG_VERSION")),
        plan: text,
        plan_origin: args.plan.display().to_string(),
        command: std::env::args().collect(),
    };
    let (journal, first) = Journal::create(&directory, beginning)?;
    let opened = Opened {
        plan: &plan,
        directory: &directory,
        journal,
        lines: vec![first],
        torn_bytes: 0,
    };
    opened.work(&args.watch, interrupted)
}

/// `dns64bench resume`
pub(super) fn resume(args: &ResumeArgs) -> Result<u8, Failure> {
    let directory = &args.directory;
    let interrupted = interrupt()?;
    let plan = report::load(directory)?.plan;
    if let Some(code) = prepare(&plan, &interrupted)? {
        return Ok(code);
    }
    let (journal, lines, torn_bytes) = Journal::resume(directory)?;
    if matches!(
        lines.last().map(|line| &line.record),
        Some(Record::Complete)
    ) {
        return report_of(directory);
    }
    let opened = Opened {
        plan: &plan,
        directory,
        journal,
        lines,
        torn_bytes,
    };
    opened.work(&args.watch, interrupted)
}

/// Hands a campaign over to a user namespace, if its lab is to be in one, and tells the exit code
/// of what ran there. Otherwise refuses what cannot be measured before anything is set up: a plan
/// for days must not fail at its last DUT for want of a package.
fn prepare(plan: &Plan, interrupted: &AtomicBool) -> Result<Option<u8>, Failure> {
    let first_of = |variant| {
        let points = points(plan);
        points
            .into_iter()
            .find(|point: &Point| point.variant == variant)
    };
    for point in (0..plan.variants.len()).filter_map(first_of) {
        let measure = measure(plan, &point, None);
        if let Some(code) = setup::in_user_namespace(&measure.subject, interrupted)? {
            return Ok(Some(code));
        }
        setup::spec(&measure, true)?;
    }
    Ok(None)
}

/// The machine, with the links of the lab that is used, which is made for a moment.
fn environment(plan: &Plan, interrupted: &Arc<AtomicBool>) -> Result<Environment, Failure> {
    let lab_of = |point: &Point| {
        let spec = setup::spec(&measure(plan, point, None), true).ok()?;
        matches!(spec.place, Place::Lab(_)).then_some(spec)
    };
    let Some(spec) = points(plan).iter().find_map(lab_of) else {
        return Ok(environment::capture(&[]));
    };
    let setup = match &spec.place {
        Place::Lab(lab) => lab.setup,
        Place::Running { .. } => Setup::Loopback,
    };
    let _lab = Rig::open(spec, Arc::clone(interrupted))?;
    let hosts = [Role::Measurer, Role::Dut, Role::Authority].map(|role| setup.host(role));
    Ok(environment::capture(&hosts))
}

/// A campaign whose journal is held.
struct Opened<'a> {
    plan: &'a Plan,
    directory: &'a Path,
    journal: Journal,
    lines: Vec<Line>,
    torn_bytes: u64,
}

impl Opened<'_> {
    fn work(mut self, watch: &WatchArgs, interrupted: Arc<AtomicBool>) -> Result<u8, Failure> {
        let environment = environment(self.plan, &interrupted)?;
        let session = Record::Session {
            environment: Box::new(environment.clone()),
            torn_bytes: self.torn_bytes,
        };
        self.lines.push(self.journal.append(session)?);
        let shared = Arc::new(Mutex::new(Status::default()));
        let _live = match watch.http {
            Some(listen) => Some(Live::start(listen, Arc::clone(&shared), unix_ms)?),
            None => None,
        };
        let mut progress = CampaignProgress::new(watch.quiet);
        let ended = {
            let bench = RigBench::new(self.plan, &environment, self.directory, interrupted);
            let mut known = false;
            let mut show = |status: &Status| {
                shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone_from(status);
                // What an earlier process has done was told by that.
                if std::mem::replace(&mut known, true) {
                    progress.show(status, unix_ms());
                } else {
                    progress.begin(status);
                }
            };
            let parts = Parts {
                lines: self.lines,
                journal: self.journal,
                bench,
                clock: MonotonicClock,
            };
            let directory = self.directory.display().to_string();
            Campaign::new(self.plan, parts, directory, &mut show).work()
        };
        progress.clear();
        match ended? {
            Ended::Complete => report_of(self.directory),
            Ended::Interrupted => {
                let directory = self.directory.display();
                let resume = format!("interrupted; go on with: dns64bench resume {directory}");
                Err(Failure::new(exit::INTERRUPTED, anyhow::anyhow!(resume)))
            }
        }
    }
}

/// The report, and what it found.
fn report_of(directory: &Path) -> Result<u8, Failure> {
    report::run(&ReportArgs {
        directory: directory.to_owned(),
        template: None,
    })
}

impl From<CampaignError> for Failure {
    fn from(error: CampaignError) -> Self {
        Self::new(exit::ENVIRONMENT, error)
    }
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Self {
        Self::new(exit::ENVIRONMENT, error)
    }
}
