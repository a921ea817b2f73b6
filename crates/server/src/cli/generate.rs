//! Man pages, completions and a page of the book, from the same definitions that parse the command line.

use std::io::{self, Write};

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use super::{Cli, Generated};

/// Writes what was asked for to `out`, or man pages into the directory that was given, which is
/// made if it is not there.
///
/// # Errors
///
/// What the writer or the directory gives.
pub(super) fn run(what: &Generated, out: &mut impl Write) -> io::Result<()> {
    let mut command = Cli::command();
    match what {
        Generated::Man { directory: None } => Man::new(command).render(out),
        Generated::Man {
            directory: Some(directory),
        } => {
            std::fs::create_dir_all(directory)?;
            clap_mangen::generate_to(command, directory)
        }
        Generated::Completions { shell } => {
            // The generator panics when its writer fails, so it writes into memory.
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command, "dns64d", &mut text);
            out.write_all(&text)
        }
        Generated::Markdown => {
            let mut command = Cli::command().term_width(WIDTH);
            command.build();
            writeln!(
                out,
                "# The command line of {0}\n\nPrinted by `{0} generate markdown`.",
                command.get_name()
            )?;
            markdown(&mut command, out)
        }
    }
}

/// The help of a command and of all below it, each under a heading of its own. Hidden commands are left out.
fn markdown(command: &mut Command, out: &mut impl Write) -> io::Result<()> {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let name = name.to_owned();
    let help = command.render_long_help().to_string();
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    write!(
        out,
        "\n## {name}\n\n```text\n{}\n```\n",
        lines.join("\n").trim_end()
    )?;
    let shown = |command: &&mut Command| !command.is_hide_set() && command.get_name() != "help";
    let mut subcommands = command.get_subcommands_mut().filter(shown);
    subcommands.try_for_each(|subcommand| markdown(subcommand, out))
}

/// Columns of the text, whatever the terminal.
const WIDTH: usize = 100;
