//! Generates man pages, completions and a page of the book from the definitions that parse the command line.

use std::fmt::Write as _;
use std::io::{self, Write};

use clap::CommandFactory as _;

use super::{Cli, EXIT_CODES, Generated, pages};
use crate::config;

/// Writes the requested output to `out`, or man pages into the given directory, which is created if missing.
///
/// # Errors
///
/// An error of the writer or the directory.
pub(super) fn run(what: &Generated, out: &mut impl Write) -> io::Result<()> {
    let mut command = Cli::command();
    match what {
        Generated::Man { directory: None } => pages::man(command, &MANUAL, out),
        Generated::Man {
            directory: Some(directory),
        } => {
            std::fs::create_dir_all(directory)?;
            command.build();
            pages::man_pages(command, &MANUAL, directory)?;
            std::fs::write(directory.join("dns64d.toml.5"), config_page())
        }
        Generated::Completions { shell } => {
            // The generator panics when its writer fails, so it writes into memory.
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command, "dns64d", &mut text);
            out.write_all(&text)
        }
        Generated::Markdown => pages::markdown(command, out),
    }
}

const MANUAL: pages::Manual = pages::Manual {
    // Section of servers.
    section: "8",
    exit_status: EXIT_CODES,
    file: (("dns64d.toml", "5"), &["dns64d", "dns64d-check"]),
};

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
        writeln!(page, "{}", pages::roff(line)).expect("writing to memory cannot fail");
    }
    page + ".fi\n" + &pages::see_also(&[("dns64d", "8")])
}
