//! dns64bench: the table of contents. What each command does is in `cli::commands`.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser as _;
use dns64bench::cli::{Cli, commands};

fn main() -> ExitCode {
    abort_on_panic();
    match commands::run(Cli::parse().command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            // If standard error is closed, the exit code has to do.
            let _ = writeln!(std::io::stderr(), "dns64bench: {:#}", failure.error);
            ExitCode::from(failure.code)
        }
    }
}

/// A panicking worker must end the trial, never shrink it.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
