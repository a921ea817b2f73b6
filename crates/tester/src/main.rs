//! dns64bench: dispatch of the commands. The commands are in `cli::commands`.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser as _;
use dns64bench::cli::{Cli, commands, exit, habits, refusal};
use dns64bench::report::terminal;

fn main() -> ExitCode {
    abort_on_panic();
    let arguments: Vec<_> = std::env::args_os().collect();
    let json = refusal::json_target(&arguments);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut refused) => {
            habits::explain(&mut refused, arguments.get(1).map_or("".as_ref(), |it| it));
            if let Some(target) = json.filter(|_| refused.use_stderr()) {
                refusal::write(&target, exit::USAGE, &refusal::in_words(&refused));
            }
            refused.exit();
        }
    };
    match commands::run(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let error = format!("{:#}", failure.error);
            if let Some(target) = json.filter(|_| !failure.told) {
                refusal::write(&target, failure.code, &error);
            }
            let line = terminal::fitting(&format!("dns64bench: {error}\n"), std::io::stderr());
            // If standard error is closed, only the exit code shows the error.
            let _ = std::io::stderr().write_all(line.as_bytes());
            ExitCode::from(failure.code)
        }
    }
}

/// Aborts on a panic: a panicking worker must end the trial, never shrink it.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
