//! What the subcommands do, from resolved arguments to an exit code.

mod authority;
mod campaign;
mod compare;
mod demo;
mod dns64perf;
mod doctor;
mod lab;
mod measure;
mod plan;
mod report;
mod timing;
mod verify;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::args::GenerateArgs;
use super::resolve::UsageError;
use super::{Command, exit, generate};
use crate::campaign::journal::JournalError;
use crate::campaign::plan::PlanError;
use crate::lab::{Blame, LabError};
use crate::load::names::NamespaceTooSmall;
use crate::quantity::ValueError;
use crate::report::raw::RawError;
use crate::rig::RigError;
use crate::trial::TrialError;

/// Why a command came to nothing, and the exit code that says so.
#[derive(Debug)]
pub struct Failure {
    /// Exit code, see [`exit`].
    pub code: u8,
    /// What to tell the user.
    pub error: anyhow::Error,
}

impl Failure {
    fn new(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self {
            code,
            error: error.into(),
        }
    }
}

/// Carries out what was asked for; returns the exit code.
///
/// # Errors
///
/// Whatever kept the command from giving a result.
pub fn run(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Trial(args) => measure::trial(args),
        Command::SelfTest(args) => measure::self_test(args),
        Command::Search(args) => measure::search(args),
        Command::Run(args) if args.dry_run => plan::dry_run(&args.plan),
        Command::Run(args) => campaign::run(&args),
        Command::Resume(args) => campaign::resume(&args),
        Command::Report(args) => report::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Authority(args) => authority::run(&args),
        Command::Lab(args) => lab::run(args),
        Command::Timing(args) => timing::run(&args),
        Command::Dns64Perf(args) => dns64perf::run(&args),
        Command::Doctor(_) => doctor::run(),
        Command::Demo(args) => demo::run(args),
        Command::Generate(GenerateArgs { what }) => {
            generate::run(&what, &mut std::io::stdout().lock())
                .map_err(|e| Failure::new(exit::ENVIRONMENT, e))?;
            Ok(exit::PASSED)
        }
    }
}

/// A flag that becomes true at the first SIGINT or SIGTERM; the second one ends the process.
fn interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|e| Failure::new(exit::ENVIRONMENT, e))?;
    }
    Ok(flag)
}

/// Writes to standard output; whoever closed it does not want the rest.
fn print(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Result<(), Failure> {
    let mut text = Vec::new();
    let written = write(&mut text).and_then(|()| std::io::stdout().lock().write_all(&text));
    match written {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(exit::ENVIRONMENT, e))
        }
        _ => Ok(()),
    }
}

impl From<UsageError> for Failure {
    fn from(error: UsageError) -> Self {
        Self::new(exit::USAGE, error)
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        let code = match error {
            JournalError::BadLine { .. } | JournalError::Torn(_) => exit::TESTER,
            JournalError::Exists { .. }
            | JournalError::OtherPlan { .. }
            | JournalError::PlanChanged { .. } => exit::USAGE,
            _ => exit::ENVIRONMENT,
        };
        Self::new(code, error)
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::new(exit::USAGE, error)
    }
}

impl From<NamespaceTooSmall> for Failure {
    fn from(error: NamespaceTooSmall) -> Self {
        Self::new(exit::USAGE, error)
    }
}

impl From<ValueError> for Failure {
    fn from(error: ValueError) -> Self {
        Self::new(exit::USAGE, error)
    }
}

impl From<RawError> for Failure {
    fn from(error: RawError) -> Self {
        let code = if error.is_usage() {
            exit::USAGE
        } else {
            exit::ENVIRONMENT
        };
        Self::new(code, error)
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        let code = match error.blame {
            Blame::Request => exit::USAGE,
            Blame::Server | Blame::Machine => exit::ENVIRONMENT,
        };
        Self::new(code, error)
    }
}

impl From<TrialError> for Failure {
    fn from(error: TrialError) -> Self {
        let code = match error {
            TrialError::NoQueries { .. } | TrialError::Ports { .. } => exit::USAGE,
            _ => exit::ENVIRONMENT,
        };
        Self::new(code, error)
    }
}

impl From<RigError> for Failure {
    fn from(error: RigError) -> Self {
        match error {
            RigError::Trial(error) => error.into(),
            RigError::Names(error) => error.into(),
            RigError::Pattern(error) => error.into(),
            RigError::Lab(error) => error.into(),
            RigError::WrongRole { .. } => Self::new(exit::USAGE, error),
            RigError::Interrupted => Self::new(exit::INTERRUPTED, error),
            other => Self::new(exit::ENVIRONMENT, other),
        }
    }
}
