//! The programs accept every command of README, docs and the examples in help texts.
//!
//! A command is a line of a code block, fenced or indented, whose first word is `dns64bench` or `dns64d`, perhaps after
//! a prompt (`$`, `tester$`), assignments, `sudo` or a path. A `\` at the end of a line continues it. A line is cut at
//! `#`, `<`, `>`, `|` and `&&`; the text after a `|` or `&&` is a separate command. In a block fenced as `text`, such
//! as a help text, only indented lines are commands. Each command is parsed. Those that need neither root, a network
//! nor time are also run, in a temporary directory with `examples/` and the plans that a page tells its readers to
//! save. Commands between backquotes may be incomplete: only their flags must exist.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use dns64bench::cli::args::Generated;
use dns64bench::cli::{Cli, Command};
use dns64d::cli as server;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README, CONTRIBUTING and other pages at the root, and the pages of the book.
fn pages() -> Vec<PathBuf> {
    let folders = [root(), root().join("docs"), root().join("deploy/ansible")];
    let entries = folders.iter().flat_map(|folder| folder.read_dir().unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect()
}

/// The lines of all code blocks, continued ones joined.
fn code(page: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let (mut fence, mut goes_on) = (None, false);
    for line in page.lines() {
        let is_prose = fence == Some("text") && !line.starts_with("  ");
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = match fence {
                None => Some(language),
                Some(_) => None,
            };
        } else if (fence.is_some() && !is_prose) || line.starts_with("    ") {
            let text = line.trim();
            match lines.last_mut().filter(|_| goes_on) {
                Some(last) => *last = format!("{} {text}", last.trim_end_matches('\\')),
                None => lines.push(text.to_owned()),
            }
            goes_on = text.ends_with('\\');
        }
    }
    lines
}

/// Splits a line as a shell does; each piece has its words and whether a part was cut off. Quotation marks hold words
/// together.
fn pieces(line: &str) -> Vec<(Vec<String>, bool)> {
    let mut pieces = vec![(Vec::new(), false)];
    let (mut word, mut quote) = (String::new(), None);
    let end = |pieces: &mut Vec<(Vec<String>, bool)>, word: &mut String| {
        if !word.is_empty() {
            pieces.last_mut().unwrap().0.push(std::mem::take(word));
        }
    };
    // The name of a file, or of an argument in angle brackets, is not a command.
    let mut is_file = false;
    for c in line.chars() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') if word.is_empty() => break,
            (None, '<' | '>') => {
                end(&mut pieces, &mut word);
                pieces.last_mut().unwrap().1 = true;
                is_file = true;
            }
            (None, '|' | '&') => {
                end(&mut pieces, &mut word);
                pieces.push((Vec::new(), false));
                is_file = false;
            }
            _ if is_file => {}
            (None, c) if c.is_whitespace() => end(&mut pieces, &mut word),
            (_, c) => word.push(c),
        }
    }
    end(&mut pieces, &mut word);
    pieces
}

/// Returns the command of a piece, from the program name on; `None` for other programs.
fn command(words: &[String]) -> Option<Vec<String>> {
    let is_before = |word: &&String| word.ends_with('$') || *word == "sudo" || word.contains("=$");
    let before = words.iter().take_while(is_before).count();
    let (program, arguments) = words[before..].split_first()?;
    let name = program.rsplit('/').next()?;
    (name == "dns64bench" || name == "dns64d").then(|| {
        let name = std::iter::once(name.to_owned());
        name.chain(arguments.iter().cloned()).collect()
    })
}

fn parsed(command: &[String]) -> Result<(), clap::Error> {
    let definition = match command[0].as_str() {
        "dns64d" => server::Cli::command(),
        _ => Cli::command(),
    };
    definition.try_get_matches_from(command).map(drop)
}

/// Returns whether this error is expected: help is requested, or the command is incomplete.
fn is_allowed(kind: ErrorKind, is_part: bool) -> bool {
    let asked = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
    let lacks = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::InvalidValue,
        ErrorKind::TooFewValues,
        ErrorKind::WrongNumberOfValues,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    asked.contains(&kind) || is_part && lacks.contains(&kind)
}

/// All commands of the pages, with their page and whether they may be incomplete.
fn commands() -> Vec<(PathBuf, Vec<String>, bool)> {
    let mut commands = Vec::new();
    for path in pages() {
        let page = read_to_string(&path).unwrap();
        for (words, is_part) in code(&page).iter().flat_map(|line| pieces(line)) {
            commands.extend(command(&words).map(|it| (path.clone(), it, is_part)));
        }
    }
    commands
}

#[test]
fn programs_accept_every_command_of_the_pages() {
    let commands = commands();
    for (path, command, is_part) in &commands {
        if let Err(error) = parsed(command)
            && !is_allowed(error.kind(), *is_part)
        {
            panic!("{}: {}\n{error}", path.display(), command.join(" "));
        }
    }
    assert!(
        commands.len() > 80,
        "{} commands were found",
        commands.len()
    );
}

#[test]
fn every_flag_between_backquotes_exists() {
    let mut seen = 0;
    for path in pages() {
        let page = read_to_string(&path).unwrap();
        let lines = page.lines().filter(|line| !line.starts_with("    "));
        for quoted in lines.flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let words = pieces(quoted).swap_remove(0).0;
            let Some(command) = command(&words).filter(|command| command.len() > 1) else {
                continue;
            };
            seen += 1;
            // Words in capitals are placeholders for values.
            if let Err(error) = parsed(&command)
                && error.kind() != ErrorKind::ValueValidation
                && !is_allowed(error.kind(), true)
            {
                panic!("{}: `{quoted}`\n{error}", path.display());
            }
        }
    }
    assert!(seen > 20, "{seen} commands were found");
}

/// Returns whether a command of dns64bench can be run here: no root, no network, no time.
fn is_quick(command: &Command) -> bool {
    match command {
        Command::Run(args) => args.dry_run && args.plan.is_relative(),
        Command::Zone(args) => args.check.is_none() && args.namespace.names() <= 1 << 16,
        Command::Generate(Generated::Man { directory }) => directory
            .as_ref()
            .is_none_or(|directory| directory.is_relative()),
        Command::Generate(_) => true,
        _ => false,
    }
}

/// Plans that a page tells its readers to save: "... as `NAME.toml`:", followed by a block of TOML.
fn saved(page: &str) -> Vec<(String, String)> {
    let blocks = page.split("```toml\n").skip(1);
    let before = page.split("```toml\n").map(str::trim_end);
    let named = before.zip(blocks).filter_map(|(before, block)| {
        let (_, name) = before.strip_suffix("`:")?.rsplit_once(" as `")?;
        let (text, _) = block.split_once("```")?;
        Some((name.to_owned(), text.to_owned()))
    });
    named.collect()
}

#[test]
fn commands_without_requirements_run_as_on_the_pages() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("examples"), directory.path().join("examples")).unwrap();
    let pages = pages();
    let plans = pages
        .iter()
        .flat_map(|path| saved(&read_to_string(path).unwrap()));
    for (name, text) in plans {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let mut ran = 0;
    for (path, command, _) in commands() {
        let asks_help = parsed(&command).is_err_and(|e| e.kind() == ErrorKind::DisplayHelp);
        let quick = Cli::try_parse_from(&command).is_ok_and(|cli| is_quick(&cli.command));
        if command[0] != "dns64bench" || !(quick || asks_help) {
            continue;
        }
        let program = env!("CARGO_BIN_EXE_dns64bench");
        let mut process = Process::new(program);
        let output = process
            .args(&command[1..])
            .current_dir(&directory)
            .output()
            .unwrap();
        // Exit code 4: this machine lacks programs, CPUs or memory for the plan.
        let codes: &[i32] = if command[1] == "run" { &[0, 4] } else { &[0] };
        let is_well = output
            .status
            .code()
            .is_some_and(|code| codes.contains(&code));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(is_well, "{}: {}\n{told}", path.display(), command.join(" "));
        ran += 1;
    }
    assert!(ran >= 4, "{ran} commands were run");
}

#[test]
fn commands_of_dns64d_without_requirements_run_as_on_the_pages() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dns64d.toml");
    let template = dns64d::config::template();
    // The file on the pages contains an upstream of the reader.
    std::fs::write(&file, template.replace("192.0.2.53", "192.0.2.1")).unwrap();
    let mut ran = 0;
    for (path, mut command, _) in commands() {
        for word in command
            .iter_mut()
            .filter(|word| word.ends_with("dns64d.toml"))
        {
            file.to_str().unwrap().clone_into(word);
        }
        let Ok(cli) = server::Cli::try_parse_from(&command) else {
            continue;
        };
        let is_quick = match &cli.command {
            Some(server::Command::Template) => true,
            Some(server::Command::Check(args)) => args.file == file,
            Some(server::Command::Generate(args)) => {
                !matches!(args.what, server::Generated::Man { directory: Some(_) })
            }
            _ => false,
        };
        if command[0] == "dns64d" && is_quick {
            let code = server::run::run(cli, &mut Vec::new());
            assert_eq!(
                code.unwrap(),
                0,
                "{}: {}",
                path.display(),
                command.join(" ")
            );
            ran += 1;
        }
    }
    assert!(ran >= 3, "{ran} commands were run");
}

#[test]
fn lines_are_split_as_by_a_shell() {
    let page = "text\n\n    $ dns64bench trial -s ::1 \\\n        -Q '20 k' | jq . # much\n";
    let lines = code(page);
    let words = |piece: &(Vec<String>, bool)| piece.0.join("+");
    let split: Vec<_> = pieces(&lines[0]).iter().map(words).collect();
    assert_eq!(split, ["$+dns64bench+trial+-s+::1+-Q+20 k", "jq+."]);
    let found = command(&pieces(&lines[0])[0].0).unwrap();
    assert_eq!(found[..2], ["dns64bench", "trial"]);
}
