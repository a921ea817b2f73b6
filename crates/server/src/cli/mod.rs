//! The definition of the command line.

pub mod exit;
mod generate;
#[path = "../../../pages.rs"]
mod pages;
pub mod run;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::control::SOCKET_DEFAULT;

/// Run a DNS64 server: AAAA records for IPv6-only clients from A records.
///
/// dns64d forwards queries to recursive resolvers, synthesises AAAA records from A records (RFC 6147),
/// and caches responses. Without a command it runs in the foreground until SIGTERM; SIGHUP reloads
/// the configuration.
#[derive(Debug, Parser)]
#[command(
    name = "dns64d",
    version,
    long_version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD"), ")"),
    args_conflicts_with_subcommands = true,
    max_term_width = 100,
    after_help = EXIT_CODES
)]
pub struct Cli {
    /// Configuration file
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "/etc/dns64d/dns64d.toml"
    )]
    pub config: PathBuf,

    /// mtd64-ng.conf to use instead of a configuration file
    #[arg(long = "mtd64-ng", value_name = "FILE", conflicts_with = "config")]
    pub mtd64_ng: Option<PathBuf>,

    /// Take the sockets of the server that runs with the same control socket, and let it end once
    /// this one serves
    #[arg(long)]
    pub take_over: bool,

    /// What to do instead of running.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a configuration file
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),

    /// Print a configuration with every key, its default and its meaning
    Template,

    /// Convert an unbound.conf or named.conf
    ///
    /// Prints the nearest configuration of dns64d, and what has no counterpart: to standard error, and as comments.
    Import {
        /// Configuration file of Unbound or BIND
        file: PathBuf,
    },

    /// Query or control a running server
    #[command(after_help = CTL_EXAMPLES)]
    Ctl(CtlArgs),

    /// Print man pages or shell completions
    #[command(hide = true)]
    Generate(GenerateArgs),
}

/// `dns64d check`
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Configuration file
    pub file: PathBuf,

    /// Format of mtd64-ng.conf
    #[arg(long = "mtd64-ng")]
    pub mtd64_ng: bool,
}

/// `dns64d ctl`
#[derive(Args, Debug)]
pub struct CtlArgs {
    /// Control socket of the server
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    pub socket: PathBuf,

    /// Output as a line of JSON
    #[arg(short, long, global = true)]
    pub json: bool,

    /// What to ask or tell.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// What a running server can be asked or told.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum CtlCommand {
    /// Print the state of the server, its upstreams and its cache
    Status,

    /// Print all counters since the start
    Stats,

    /// Flush the cache
    Flush {
        /// Name to flush, with all names below it [default: everything]
        name: Option<String>,

        /// Type of the answers to flush, for exactly this name
        #[arg(value_name = "TYPE")]
        rtype: Option<String>,
    },

    /// Print what a query would get, and from where
    Lookup {
        /// Name to look up
        name: String,

        /// Type to look up
        #[arg(value_name = "TYPE", default_value = "AAAA")]
        rtype: String,

        /// Address of the client [default: ::1]
        #[arg(long, value_name = "ADDRESS")]
        client: Option<IpAddr>,
    },

    /// Print a line for each answer in the cache
    Dump,

    /// Print the questions that clients wait for, the oldest of each worker first
    Inflight,

    /// Stop querying an upstream, or query it again
    Upstream {
        /// Address of the upstream, with its port if that is not 53
        address: String,

        /// Whether it is queried
        state: UpstreamChange,
    },

    /// Change the level of the log, until a restart
    LogLevel {
        /// error, warn, info or debug
        level: String,
    },

    /// Reload the configuration; an invalid file changes nothing
    Reload,
}

/// A change of an upstream by the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UpstreamChange {
    /// Query it as usual
    Up,
    /// Do not query it
    Down,
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

    /// The help of all commands as a page of Markdown
    Markdown,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success, 1 invalid configuration or request refused, 2 usage, \
3 a running server failed, 4 file, socket or server not available.";

const CHECK_EXAMPLES: &str = "\
Examples:
  dns64d check /etc/dns64d/dns64d.toml
  dns64d check --mtd64-ng /etc/mtd64-ng.conf";

const CTL_EXAMPLES: &str = "\
Examples:
  dns64d ctl status
  dns64d ctl --json stats
  dns64d ctl flush example.com
  dns64d ctl lookup www.example.com";

#[cfg(test)]
mod tests;
