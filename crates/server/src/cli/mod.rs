//! The command line: what the operator typed, and what it does.

pub mod exit;
mod generate;
pub mod run;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::control::SOCKET_DEFAULT;

/// A DNS64 server: AAAA records for IPv6-only clients where there are only A records.
///
/// dns64d forwards queries to recursive resolvers, makes AAAA records from A records (RFC 6147),
/// and caches. Without a command it runs in the foreground until SIGTERM; SIGHUP has it read its
/// configuration again.
#[derive(Debug, Parser)]
#[command(
    name = "dns64d",
    version,
    args_conflicts_with_subcommands = true,
    max_term_width = 100,
    after_help = EXIT_CODES
)]
pub struct Cli {
    /// The configuration
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "/etc/dns64d/dns64d.toml"
    )]
    pub config: PathBuf,

    /// An mtd64-ng.conf in place of the configuration
    #[arg(long = "mtd64-ng", value_name = "FILE", conflicts_with = "config")]
    pub mtd64_ng: Option<PathBuf>,

    /// What to do instead of running.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say whether a configuration is valid
    Check(CheckArgs),

    /// Print a configuration with every key, its default and its meaning
    Template,

    /// Ask or tell a running server
    Ctl(CtlArgs),

    /// Print man pages or shell completions
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// `dns64d check`
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The configuration
    pub file: PathBuf,

    /// It is an mtd64-ng.conf
    #[arg(long = "mtd64-ng")]
    pub mtd64_ng: bool,
}

/// `dns64d ctl`
#[derive(Args, Debug)]
pub struct CtlArgs {
    /// Control socket of the server
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    pub socket: PathBuf,

    /// Print the answer as a line of JSON
    #[arg(short, long, global = true)]
    pub json: bool,

    /// What to ask or tell.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// What a running server can be asked or told.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum CtlCommand {
    /// Print how it is
    Status,

    /// Print what it has counted since it started
    Stats,

    /// Forget what is cached
    Flush {
        /// Only this name and those below it
        name: Option<String>,
    },

    /// Read the configuration again; a bad one changes nothing
    Reload,
}

/// `dns64d generate`
#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// What to print.
    #[command(subcommand)]
    pub what: Generated,
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
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 the configuration is invalid or the server says no, 2 usage, \
3 a running server failed, 4 a file, a socket or a server is not there.";

#[cfg(test)]
mod tests;
