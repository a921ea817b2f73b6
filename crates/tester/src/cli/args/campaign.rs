//! Arguments of the commands that run campaigns.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::cli::values;

/// `dns64bench run`
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The plan
    #[arg(value_name = "PLAN.toml")]
    pub plan: PathBuf,

    /// Say what would be done and how long it would take, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Directory for journal and report, which is made [default: the name of the plan]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// How hosts get their program.
    #[command(flatten)]
    pub push: PushArgs,

    /// How to watch it.
    #[command(flatten)]
    pub watch: WatchArgs,
}

/// How the hosts of a plan get their program.
#[derive(Args, Clone, Debug)]
pub struct PushArgs {
    /// Copy this program to the hosts of the plan over ssh and use it there
    #[arg(long)]
    pub push_binary: bool,
}

/// `dns64bench resume`
#[derive(Args, Debug)]
pub struct ResumeArgs {
    /// Directory of the campaign
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// How hosts get their program.
    #[command(flatten)]
    pub push: PushArgs,

    /// How to watch it.
    #[command(flatten)]
    pub watch: WatchArgs,
}

/// How to watch a campaign.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// Serve a live page and metrics on this port of the loopback interface, or at this address
    #[arg(long, value_name = "PORT|ADDR:PORT", value_parser = values::http_listen)]
    pub http: Option<SocketAddr>,

    /// No progress, only errors
    #[arg(short, long)]
    pub quiet: bool,
}
