//! Arguments of the commands that run campaigns.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::cli::values;

/// `dns64bench run`
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Plan
    #[arg(value_name = "PLAN.toml")]
    pub plan: PathBuf,

    /// Print the tasks of the plan and their duration, and check whether it can run here
    #[arg(long)]
    pub dry_run: bool,

    /// New directory for journal and report [default: the name of the plan]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Whose servers may be measured.
    #[command(flatten)]
    pub may_load: MayLoadArgs,

    /// How hosts get their program.
    #[command(flatten)]
    pub push: PushArgs,

    /// How to watch it.
    #[command(flatten)]
    pub watch: WatchArgs,
}

/// Whose servers may be measured.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct MayLoadArgs {
    /// Allow servers at public addresses; all operators on the path must have agreed
    #[arg(long)]
    pub i_may_load_this_network: bool,
}

/// How the hosts of a plan get their program.
#[derive(Args, Clone, Debug)]
pub struct PushArgs {
    /// Copy this program to the hosts of the plan over ssh and run it there
    #[arg(long)]
    pub push_binary: bool,
}

/// `dns64bench resume`
#[derive(Args, Debug)]
pub struct ResumeArgs {
    /// Directory of the campaign
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Whose servers may be measured.
    #[command(flatten)]
    pub may_load: MayLoadArgs,

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
    /// Port on the loopback interface, or address, of the live page and metrics
    #[arg(long, value_name = "PORT|ADDR:PORT", value_parser = values::http_listen)]
    pub http: Option<SocketAddr>,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}
