//! Man pages, completions and a page of the book, from the definitions that also parse the command line.

use std::io::{self, Write};

use clap::CommandFactory as _;
use clap_complete::env::Shells;

use super::args::Generated;
use super::completion::VARIABLE;
use super::{Cli, EXIT_CODES, pages, plan_page};

/// Writes the requested output to `out`, or man pages to the given directory, which is created if necessary.
///
/// # Errors
///
/// Those of the writer or the directory.
pub fn run(what: &Generated, out: &mut impl Write) -> io::Result<()> {
    let mut command = Cli::command();
    match what {
        Generated::Man { directory: None } => pages::man(command, &MANUAL, out),
        Generated::Man {
            directory: Some(directory),
        } => {
            std::fs::create_dir_all(directory)?;
            command.build();
            pages::man_pages(command, &MANUAL, directory)?;
            let name = format!("{}.5", plan_page::NAME);
            std::fs::write(directory.join(name), plan_page::page())
        }
        Generated::Completions { shell } => {
            let shells = Shells::builtins();
            let shell = shells.completer(&shell.to_string());
            let shell = shell.ok_or_else(|| io::Error::other("no completions for this shell"))?;
            let name = command.get_name();
            shell.write_registration(VARIABLE, name, name, name, out)
        }
        Generated::Markdown => pages::markdown(command, out),
    }
}

const MANUAL: pages::Manual = pages::Manual {
    // User commands.
    section: "1",
    exit_status: EXIT_CODES,
    file: (
        (plan_page::NAME, "5"),
        &[
            "dns64bench",
            "dns64bench-run",
            "dns64bench-resume",
            "dns64bench-doctor",
        ],
    ),
};
