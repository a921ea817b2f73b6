//! Implements the commands, up to the exit code.

use std::io::{self, Write};
use std::path::Path;

use super::{
    CheckArgs, Cli, Command, CtlArgs, CtlCommand, GenerateArgs, UpstreamChange, exit, generate,
};
use crate::cache::Place;
use crate::control::{self, Answer, Request};
use crate::daemon::{self, Source};
use crate::{config, control::AskError};

/// The error and the exit code of a failed command.
#[derive(Debug)]
pub struct Failure {
    /// Exit code, see [`exit`].
    pub code: u8,
    /// Error message for the user.
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

/// Runs the command, writing to `out`; returns the exit code.
///
/// # Errors
///
/// Any error that ends the command.
pub fn run(cli: Cli, out: &mut impl Write) -> Result<u8, Failure> {
    match cli.command {
        None => {
            let source = match cli.mtd64_ng {
                Some(path) => Source::Mtd64Ng(path),
                None => Source::Toml(cli.config),
            };
            daemon::run(source, cli.take_over).map_err(|e| Failure::new(exit::of_daemon(&e), e))?;
            Ok(exit::DONE)
        }
        Some(Command::Check(args)) => check(args, out),
        Some(Command::Template) => print(out, config::template()),
        Some(Command::Import { file }) => import(&file, out),
        Some(Command::Ctl(args)) => ctl(&args, out),
        Some(Command::Generate(GenerateArgs { what })) => {
            let mut text = Vec::new();
            generate::run(&what, &mut text).map_err(|e| Failure::new(exit::ENVIRONMENT, e))?;
            print(out, &String::from_utf8_lossy(&text))
        }
    }
}

fn check(args: CheckArgs, out: &mut impl Write) -> Result<u8, Failure> {
    let name = args.file.display().to_string();
    let source = if args.mtd64_ng {
        Source::Mtd64Ng(args.file)
    } else {
        Source::Toml(args.file)
    };
    let loaded = source
        .load()
        .and_then(|loaded| source.check_host(&loaded.settings).map(|()| loaded))
        .map_err(|e| Failure::new(exit::of_config(&e), e))?;
    let notes = loaded.notes.iter().map(|note| format!("note: {note}\n"));
    let text: String = std::iter::once(format!("{name}: valid\n"))
        .chain(notes)
        .collect();
    print(out, &text)
}

fn import(file: &Path, out: &mut impl Write) -> Result<u8, Failure> {
    let imported = config::import(file).map_err(|e| Failure::new(exit::of_config(&e), e))?;
    for left in &imported.left {
        // The comments have them, too.
        let _ = writeln!(io::stderr(), "dns64d: without a counterpart: {left}");
    }
    print(out, &imported.toml)
}

fn ctl(args: &CtlArgs, out: &mut impl Write) -> Result<u8, Failure> {
    let request = match args.command.clone() {
        CtlCommand::Status => Request::Status,
        CtlCommand::Stats => Request::Stats,
        CtlCommand::Flush { name, rtype } => Request::Flush { name, rtype },
        CtlCommand::Reload => Request::Reload,
        CtlCommand::Lookup {
            name,
            rtype,
            client,
        } => Request::Lookup {
            name,
            rtype: Some(rtype),
            client,
        },
        CtlCommand::Dump => Request::Dump {
            from: Place::default(),
        },
        CtlCommand::Inflight => Request::Inflight,
        CtlCommand::Upstream { address, state } => Request::Upstream {
            address,
            up: state == UpstreamChange::Up,
        },
        CtlCommand::LogLevel { level } => Request::LogLevel { level },
    };
    let mut part = Some(request);
    let mut code = exit::DONE;
    while let Some(request) = part {
        let answer;
        (code, answer) = ask(args, &request, out)?;
        part = match answer {
            Answer::Lines {
                next: Some(from), ..
            } => Some(Request::Dump { from }),
            _ => None,
        };
    }
    Ok(code)
}

/// Asks, and prints the answer; returns it with the exit code.
fn ask(args: &CtlArgs, request: &Request, out: &mut impl Write) -> Result<(u8, Answer), Failure> {
    let answer = match control::ask(&args.socket, request) {
        Ok(answer) => answer,
        Err(error) => return Err(no_answer(&error, args.json, out)?),
    };
    let code = exit::of_answer(&answer);
    if args.json {
        let line = serde_json::to_string(&answer);
        let line = line.map_err(|e| Failure::new(exit::ENVIRONMENT, e))?;
        print(out, &format!("{line}\n"))?;
    } else if let Answer::Refused { message } = answer {
        return Err(Failure::new(code, anyhow::anyhow!(message)));
    } else {
        print(out, &answer.to_string())?;
    }
    Ok((code, answer))
}

/// The error of a request without an answer, also written as JSON if requested.
fn no_answer(error: &AskError, json: bool, out: &mut impl Write) -> Result<Failure, Failure> {
    let error = error.to_string();
    if json {
        let object = serde_json::json!({ "error": &error, "exit_code": exit::ENVIRONMENT });
        print(out, &format!("{object}\n"))?;
    }
    Ok(Failure::new(exit::ENVIRONMENT, anyhow::anyhow!(error)))
}

/// Writes; a closed pipe is not an error.
fn print(out: &mut impl Write, text: &str) -> Result<u8, Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(exit::ENVIRONMENT, error))
        }
        _ => Ok(exit::DONE),
    }
}
