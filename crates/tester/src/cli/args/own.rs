//! Arguments of the commands that print built-in data.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

/// `dns64bench profile`
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// List the built-in profiles, their programs and settings
    List,

    /// Print a profile
    Show {
        /// Built-in profile, or a file
        #[arg(value_name = "NAME|FILE.toml", value_hint = ValueHint::FilePath)]
        name: String,
    },
}

/// What the binary can print about itself.
#[derive(Debug, Subcommand)]
pub enum Generated {
    /// The main man page to standard output, or all of them into a directory
    Man {
        /// Directory to write one page for each subcommand into
        directory: Option<PathBuf>,
    },

    /// The completions of a shell to standard output
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },

    /// The help of all commands as a page of Markdown
    Markdown,
}
