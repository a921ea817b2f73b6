//! Man pages, completions and a page of the book, from the definitions that also parse the command line.

use std::io::{self, Write};

use clap::CommandFactory as _;

use super::args::Generated;
use super::{Cli, EXIT_CODES, pages};
use crate::campaign::plan;

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
            std::fs::write(directory.join(format!("{PLAN}.5")), plan_page())
        }
        Generated::Completions { shell } => {
            // The generator aborts if it cannot write.
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command, "dns64bench", &mut text);
            out.write_all(&text)
        }
        Generated::Markdown => pages::markdown(command, out),
    }
}

const MANUAL: pages::Manual = pages::Manual {
    // User commands.
    section: "1",
    exit_status: EXIT_CODES,
    file: (
        (PLAN, "5"),
        &[
            "dns64bench",
            "dns64bench-run",
            "dns64bench-resume",
            "dns64bench-doctor",
        ],
    ),
};

/// Name of the man page of plans.
const PLAN: &str = "dns64bench-plan";

/// The man page of plans.
fn plan_page() -> String {
    let lines = |text: &str| {
        text.lines()
            .map(|line| pages::roff(line) + "\n")
            .collect::<String>()
    };
    format!(
        ".TH {PLAN} 5 \"\" \"\" dns64bench\n.SH NAME\n{PLAN} \\- plan of a campaign\n.SH SYNOPSIS\n\
         .B dns64bench run\n.I PLAN.toml\n.SH DESCRIPTION\n{}.SH TABLES AND KEYS\n{}.SH EXAMPLES\n.nf\n{}.fi\n{}",
        lines(
            "A plan is a TOML file that describes a campaign. Only one [[dut]] is required. Values are written as on the \
             command line; quotes around numbers are optional. Paths are relative to the directory of the plan. \
             docs/plan.md describes the procedures."
        ),
        plan::pages::roff(pages::roff),
        lines(include_str!("../../../../examples/quick.toml")),
        pages::see_also(&[
            ("dns64bench", "1"),
            ("dns64bench-run", "1"),
            ("dns64bench-resume", "1"),
            ("dns64bench-profile", "1"),
        ])
    )
}
