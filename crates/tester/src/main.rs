//! dns64bench: the table of contents. What each command does is in the modules that it calls.

use std::process::ExitCode;

use clap::Parser as _;
use dns64bench::cli::args::GenerateArgs;
use dns64bench::cli::{Cli, Command, exit, generate};

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Generate(GenerateArgs { what }) => {
            match generate::run(&what, &mut std::io::stdout().lock()) {
                Ok(()) => ExitCode::from(exit::PASSED),
                Err(_) => ExitCode::from(exit::ENVIRONMENT),
            }
        }
        _ => ExitCode::from(exit::USAGE),
    }
}
