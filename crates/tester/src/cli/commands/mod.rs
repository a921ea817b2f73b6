//! The subcommands: from resolved arguments to an exit code.

mod agent;
mod audit;
mod authority;
mod campaign;
mod compare;
mod conform;
mod demo;
mod dns64perf;
mod doctor;
mod lab;
mod learn;
mod measure;
mod plan;
mod profile;
mod report;
mod timing;
mod verify;
mod zone;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Command, exit, generate};
use crate::campaign::plan::PlanError;
use crate::lab::{Blame, LabError};
use crate::load::names::NamespaceTooSmall;
use crate::quantity::ValueError;
use crate::report::terminal;
use crate::rig::RigError;

/// Failure of a command, with its exit code.
#[derive(Debug)]
pub struct Failure {
    /// Exit code, see [`exit`].
    pub code: u8,
    /// Error for the user.
    pub error: anyhow::Error,
    /// Whether the object of `--json` is already written.
    pub told: bool,
}

impl Failure {
    fn new(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self {
            code,
            error: error.into(),
            told: false,
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        Self::new(code_of(error.as_ref()), error)
    }
}

/// Runs a command and returns its exit code.
///
/// # Errors
///
/// Any error that prevents a result.
pub fn run(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Trial(args) => measure::trial(args),
        Command::SelfTest(args) => measure::self_test(args),
        Command::Search(args) => measure::search(args),
        Command::Run(args) if args.dry_run => plan::dry_run(&args),
        Command::Run(args) => campaign::run(&args),
        Command::Resume(args) => campaign::resume(&args),
        Command::Report { directory } => report::run(&directory),
        Command::Verify(args) => verify::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Authority(args) => authority::run(args),
        Command::Zone(args) => zone::run(args),
        Command::Lab(command) => lab::run(command),
        Command::Profile(command) => profile::run(&command),
        Command::Learn(args) => learn::run(args),
        Command::Conform(args) => conform::run(&args),
        Command::Timing(args) => timing::run(&args),
        Command::Dns64Perf(args) => dns64perf::run(&args),
        Command::Agent { inner } => agent::run(inner),
        Command::Doctor { hosts: None, .. } => doctor::run(),
        Command::Doctor {
            hosts: Some(plan),
            push,
        } => doctor::of_hosts(&plan, &push),
        Command::Demo(args) => demo::run(args),
        Command::Generate(what) => {
            let mut text = Vec::new();
            generate::run(&what, &mut text)?;
            print_raw(&String::from_utf8_lossy(&text))?;
            Ok(exit::PASSED)
        }
    }
}

/// A flag that becomes true at the first SIGINT or SIGTERM; the second one ends the process.
fn interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))?;
    }
    Ok(flag)
}

/// Writes text for people to standard output, folded if that is a terminal.
fn print(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Result<(), Failure> {
    let mut text = Vec::new();
    write(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    print_raw(&terminal::fitting(&text, std::io::stdout()))
}

/// Writes to standard output, which may be closed.
fn print_raw(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

/// Exit code of an error: [`exit::ENVIRONMENT`], unless the error has a more specific one.
fn code_of(error: &(dyn std::error::Error + 'static)) -> u8 {
    if let Some(error) = error.downcast_ref::<RigError>() {
        return error.blame().map_or(exit::INTERRUPTED, code_of_blame);
    }
    if let Some(error) = error.downcast_ref::<LabError>() {
        return code_of_blame(error.blame);
    }
    let usage =
        error.is::<PlanError>() || error.is::<NamespaceTooSmall>() || error.is::<ValueError>();
    if usage {
        exit::USAGE
    } else {
        exit::ENVIRONMENT
    }
}

fn code_of_blame(blame: Blame) -> u8 {
    match blame {
        Blame::Request => exit::USAGE,
        Blame::Server | Blame::Machine => exit::ENVIRONMENT,
        Blame::Record => exit::TESTER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_error_keeps_its_exit_code() {
        let code = |error: RigError| Failure::from(error).code;
        let unknown = || Blame::Request.error("there is no such profile");
        let requires = Blame::Machine.error("it needs IPv6");
        assert_eq!(code(RigError::Interrupted), exit::INTERRUPTED);
        assert_eq!(code(unknown().into()), exit::USAGE);
        assert_eq!(Failure::from(unknown()).code, exit::USAGE);
        assert_eq!(code(requires.into()), exit::ENVIRONMENT);
        let changed = Failure::from(Blame::Record.error("line 3 was changed"));
        assert_eq!(changed.code, exit::TESTER);
        let full = Failure::from(std::io::Error::other("the disk is full"));
        assert_eq!(full.code, exit::ENVIRONMENT);
    }
}
