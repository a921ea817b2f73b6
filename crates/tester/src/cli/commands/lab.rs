//! `dns64bench lab`

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;

use super::{Failure, exit, print};
use crate::cli::args::LabCommand;
use crate::lab::topology::{self, Lab, Setup};
use crate::lab::{LabKind, userns};
use crate::machine::cpuset::CpuSet;
use crate::machine::network::Network;
use crate::machine::{Machine, Role};

/// Creates, uses or removes the hosts.
pub(super) fn run(command: LabCommand) -> Result<u8, Failure> {
    match command {
        LabCommand::Up { settings } => {
            let setup = settings.0.plan.hosts.setup;
            let lab = Lab::up(setup, None)?;
            print(|out| setup.describe(out))?;
            lab.leave_up()?;
            Ok(exit::PASSED)
        }
        LabCommand::Down => {
            topology::down()?;
            Ok(exit::PASSED)
        }
        LabCommand::Exec { host, command } => exec(host, &command),
    }
}

/// Replaces this process with a program on a host of the active lab, so that signals reach the program. Returns only errors.
fn exec(role: Role, command: &[String]) -> Result<u8, Failure> {
    let up = topology::leftovers(&Machine::here());
    let host = [Setup::ThreeDevice, Setup::TwoDevice]
        .map(|setup| setup.network(role))
        .into_iter()
        .find(|host| matches!(host, Network::Netns(name) if up.contains(name)))
        .context("there is no lab; create one with `dns64bench lab up`")?;
    let mut program = host.command(Path::new(&command[0]), &CpuSet::unrestricted());
    let error = anyhow::Error::new(program.args(&command[1..]).exec());
    Err(error
        .context(format!("cannot run {} on {host}", command[0]))
        .into())
}

/// Exit code of a program; that of an interrupt if a signal ended it.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.unwrap_or(exit::INTERRUPTED)
}

/// Runs the command line in a user namespace, if the lab needs one. Returns the exit code of that process.
pub(super) fn in_user_namespace(
    kind: LabKind,
    interrupted: &AtomicBool,
) -> Result<Option<u8>, Failure> {
    if kind != LabKind::Userns || userns::inside() {
        return Ok(None);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    Ok(Some(code_of(userns::reexec(&arguments, interrupted)?)))
}
