//! Man pages and completions, from the same definitions that parse the command line.

use std::io::{self, Write};

use clap::CommandFactory as _;
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
    }
}
