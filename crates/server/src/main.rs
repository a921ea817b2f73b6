//! dns64d: the commands are implemented in `cli::run`.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser as _;
use dns64d::cli::{Cli, run};

fn main() -> ExitCode {
    match run::run(Cli::parse(), &mut std::io::stdout()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            // If standard error is closed, the exit code must suffice.
            let _ = writeln!(std::io::stderr(), "dns64d: {:#}", failure.error);
            ExitCode::from(failure.code)
        }
    }
}
