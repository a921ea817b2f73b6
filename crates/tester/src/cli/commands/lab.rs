//! `dns64bench lab`

use std::path::Path;
use std::process::ExitStatus;

use super::{Failure, exit, print};
use crate::cli::args::{LabArgs, LabCommand, LabExecArgs, LabHost};
use crate::lab::host::{CpuSet, Host};
use crate::lab::topology::{self, Lab, Role, Setup};

/// Makes, uses or removes the hosts.
pub(super) fn run(args: LabArgs) -> Result<u8, Failure> {
    match args.command {
        LabCommand::Up(args) => {
            let setup = Setup::from(args.setup);
            let lab = Lab::up(setup)?;
            print(|out| setup.describe(out))?;
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
    let role = match args.host {
        LabHost::Measurer => Role::Measurer,
        LabHost::Dut => Role::Dut,
        LabHost::Authority => Role::Authority,
    };
    let up = topology::leftovers();
    let host = [Setup::ThreeDevice, Setup::TwoDevice]
        .map(|setup| setup.host(role))
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
