//! `dns64bench lab`

use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::AtomicBool;

use super::{Failure, exit, print};
use crate::cli::args::{LabArgs, LabCommand, LabExecArgs};
use crate::lab::host::{CpuSet, Host};
use crate::lab::topology::{self, Lab, Setup};
use crate::lab::{LabKind, userns};

/// Makes, uses or removes the hosts.
pub(super) fn run(args: LabArgs) -> Result<u8, Failure> {
    match args.command {
        LabCommand::Up(args) => {
            let lab = Lab::up(args.setup)?;
            print(|out| args.setup.describe(out))?;
            lab.leave_up();
            Ok(exit::PASSED)
        }
        LabCommand::Down => {
            topology::down()?;
            Ok(exit::PASSED)
        }
        LabCommand::Exec(args) => exec(&args),
    }
}

/// Runs a program on a host of the lab that is up, and passes its exit code on.
fn exec(args: &LabExecArgs) -> Result<u8, Failure> {
    let environment = |what: String| Failure::new(exit::ENVIRONMENT, anyhow::anyhow!(what));
    let up = topology::leftovers();
    let host = [Setup::ThreeDevice, Setup::TwoDevice]
        .map(|setup| setup.host(args.host))
        .into_iter()
        .find(|host| matches!(host, Host::Netns(name) if up.contains(name)))
        .ok_or_else(|| environment("no lab is up; make one with `dns64bench lab up`".into()))?;
    let mut command = host.command(Path::new(&args.command[0]), &CpuSet::unrestricted());
    let status: ExitStatus = command
        .args(&args.command[1..])
        .status()
        .map_err(|e| environment(format!("cannot run {} on {host}: {e}", args.command[0])))?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(exit::INTERRUPTED))
}

/// Hands the command line over to a user namespace, if the lab is to be in one. Returns the exit
/// code of what ran there.
pub(super) fn in_user_namespace(
    kind: LabKind,
    interrupted: &AtomicBool,
) -> Result<Option<u8>, Failure> {
    if kind != LabKind::Userns || userns::inside() {
        return Ok(None);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let status = userns::reexec(&arguments, interrupted)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(code.unwrap_or(exit::INTERRUPTED)))
}
