//! Man pages, completions and a page of the book, from the same definitions that parse the command line.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use super::{Cli, Generated};
use crate::config;

/// Writes what was asked for to `out`, or man pages into the directory that was given, which is
/// made if it is not there.
///
/// # Errors
///
/// What the writer or the directory gives.
pub(super) fn run(what: &Generated, out: &mut impl Write) -> io::Result<()> {
    let mut command = Cli::command();
    match what {
        Generated::Man { directory: None } => page(command).render(out),
        Generated::Man {
            directory: Some(directory),
        } => {
            std::fs::create_dir_all(directory)?;
            command.build();
            write_pages(command, directory)?;
            std::fs::write(directory.join("dns64d.toml.5"), config_page())
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

/// The page of a command. Servers are in section 8.
fn page(command: Command) -> Man {
    Man::new(command).section("8").manual("dns64d")
}

fn write_pages(command: Command, directory: &Path) -> io::Result<()> {
    let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    for subcommand in subcommands.cloned() {
        write_pages(subcommand, directory)?;
    }
    page(command).generate_to(directory).map(|_| ())
}

/// dns64d.toml(5): the configuration with every key.
fn config_page() -> String {
    let mut page = String::from(
        ".TH dns64d.toml 5 \"\" \"\" dns64d\n\
         .SH NAME\ndns64d.toml \\- configuration of dns64d\n\
         .SH DESCRIPTION\nA TOML file with the keys below; each has the value shown if it is omitted.\n\
         .B dns64d check\nvalidates a file, and\n.B dns64d ctl reload\nreads it again.\n\
         .SH KEYS\n.nf\n",
    );
    for line in config::template().lines() {
        // A dot or an apostrophe at the beginning of a line would be a request.
        writeln!(page, "\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))
            .expect("memory takes all");
    }
    page + ".fi\n.SH SEE ALSO\n.BR dns64d (8)\n"
}
