//! The arguments of the command line.

mod campaign;
mod own;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use dns64_transport::xdp::program::Mode;

use super::flags::Flags;
use super::values;
use crate::authority::answer::TTL_DEFAULT_S;
use crate::authority::behaviour::Behaviour;
use crate::campaign::plan::settings::{choice, named};
use crate::conform::report::Form;
use crate::machine::Role;
use crate::machine::cpuset::CpuSet;
use crate::namespace::{Cidr, DEFAULT_SUFFIX, Prefixes};
use crate::procedure::search::Resolution;
use crate::quantity;
use crate::report::timeline::Which;

pub use campaign::{MayLoadArgs, PushArgs, ResumeArgs, RunArgs, WatchArgs};
pub use own::{Generated, ProfileCommand};

/// `dns64bench trial`
#[derive(Args, Debug)]
pub struct TrialArgs {
    /// Offered rate, in queries per second, such as 500 or 10k
    #[arg(short = 'Q', long, value_name = "QPS", value_parser = quantity::rate, allow_negative_numbers = true)]
    pub rate: u64,

    /// File for the raw data of each query, as CSV
    #[arg(long, value_name = "FILE")]
    pub raw: Option<PathBuf>,

    /// Query whose messages are printed: a number from 0, or slowest
    #[arg(long, value_name = "N|slowest")]
    pub timeline: Option<Which>,

    /// The flags of every measurement.
    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// `dns64bench selftest`
#[derive(Args, Debug)]
pub struct SelfTestArgs {
    /// Rate of the DUT to certify for, in queries per second [default: the highest that passes]
    #[arg(short = 'Q', long, value_name = "QPS", value_parser = quantity::rate, allow_negative_numbers = true)]
    pub rate: Option<u64>,

    /// Resolution of the search: a share of the rate, or queries per second
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = quantity::resolution, allow_negative_numbers = true)]
    pub resolution: Resolution,

    /// The flags of every measurement.
    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// The flags of `trial`, `selftest` and `search`.
#[derive(Args, Debug)]
pub struct MeasureArgs {
    /// The settings.
    #[command(flatten)]
    pub settings: Flags,

    /// Whose servers may be measured.
    #[command(flatten, next_help_heading = "Server")]
    pub may_load: MayLoadArgs,

    /// Where to write.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Where to write.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// File for the result as JSON; - for standard output
    #[arg(short, long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,

    /// No progress, and only the first line of the table
    #[arg(short, long)]
    pub quiet: bool,
}

/// `dns64bench authority`
// Here `--force` is for `--in-driver` as well.
#[derive(Args, Debug)]
#[command(mut_arg("force", |force| force.requires(clap::builder::Resettable::Reset)))]
pub struct AuthorityArgs {
    /// Listen address, IPv6 or IPv4; :: stands for both
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "::", value_parser = values::listen)]
    pub listen: SocketAddr,

    /// UDP and TCP port [default: 53]
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Self-test mode: an AAAA record for every name, 2001:db8:: and its IPv4 address
    #[arg(long, conflicts_with = "aaaa-share")]
    pub self_test: bool,

    /// Threads, each with its own socket
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,

    /// CPUs of the threads, such as 0 or 0,2-3 [default: any]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,

    /// Backend and zone.
    #[command(flatten)]
    pub settings: Flags,

    /// TTL of the records, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = TTL_DEFAULT_S, value_parser = clap::value_parser!(u32).range(..=TTL_MAX_S))]
    pub ttl: u32,

    /// Injected faults, such as delay=5ms,loss=0.1% [default: none]
    ///
    /// The same list as --authority-behaviour of `dns64bench trial`.
    #[arg(long, value_name = "LIST", conflicts_with = "self_test")]
    pub behaviour: Option<Behaviour>,

    /// Interface whose A and AAAA queries an XDP program answers in the driver
    ///
    /// Needs root. All other queries, and those over TCP, are answered by the sockets.
    #[arg(long, value_name = "INTERFACE", conflicts_with_all = ["behaviour", "backend"])]
    pub in_driver: Option<String>,

    /// Mode of that XDP program: native, generic or auto
    ///
    /// auto is native if the driver supports it, and generic on veth devices, where native needs a program at the other end.
    #[arg(long, value_name = "MODE", default_value = "auto", requires = "in_driver", value_parser = str::parse::<Mode>)]
    pub xdp_mode: Mode,
}

/// `dns64bench zone`
#[derive(Args, Debug)]
pub struct ZoneArgs {
    /// IPv4 addresses of the names in the zone
    #[arg(long, value_name = "CIDR", default_value = "10.0.0.0/8")]
    pub namespace: Cidr,

    /// Suffix of the names and their share with AAAA records.
    #[command(flatten)]
    pub settings: Flags,

    /// Self-test zone: an AAAA record for every name, 2001:db8:: and its IPv4 address
    #[arg(long, conflicts_with = "aaaa-share")]
    pub self_test: bool,

    /// TTL of the records, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = TTL_DEFAULT_S, value_parser = clap::value_parser!(u32).range(..=TTL_MAX_S))]
    pub ttl: u32,

    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE|-")]
    pub output: Option<PathBuf>,

    /// Server to compare with a sample of the zone; nothing is written
    #[arg(long, value_name = "ADDR[:PORT]", conflicts_with = "output", value_parser = values::server)]
    pub check: Option<SocketAddr>,
}

/// `dns64bench dns64perf`
#[derive(Args, Debug)]
#[command(override_usage = "\
dns64bench dns64perf [OPTIONS] <server> <port> <subnet>
           <number of requests> <burst size>
           [<number of threads> [<ports per thread>]]
           <delay between bursts in ns> <timeout in s>
       dns64bench dns64perf --classic <client number> <threads> <timeout in s>
           <server> [<port>]")]
pub struct Dns64PerfArgs {
    /// Arguments of dns64perf++ in their order; of dns64perf with --classic
    #[arg(value_name = "ARGUMENT", required = true)]
    pub arguments: Vec<String>,

    /// Whose servers may be measured.
    #[command(flatten)]
    pub may_load: MayLoadArgs,

    /// dns64perf mode (2015): 256 experiments of 256 queries, each sent after the previous answer
    #[arg(long, conflicts_with_all = ["pacing", "pref64"])]
    pub classic: bool,

    /// Prefixes of valid answers; any: every AAAA record is valid; auto: learn them from the server
    #[arg(long, value_name = "auto|any|PREFIX,...", default_value = "auto", value_parser = accepted)]
    pub pref64: AcceptedArg,

    /// Pacing method.
    #[command(flatten)]
    pub settings: Flags,
}

/// `dns64bench conform`
#[derive(Args, Debug)]
pub struct ConformArgs {
    /// DNS64 server to start in a lab: a built-in profile or a file
    #[arg(long, value_name = "PROFILE|FILE.toml", required_unless_present = "server", value_hint = ValueHint::FilePath)]
    pub dut: Option<String>,

    /// Setting of its profile, such as threads=2; may be repeated [default: those of the profile]
    #[arg(long, value_name = "NAME=VALUE", requires = "dut", value_parser = named)]
    pub dut_set: Vec<(String, String)>,

    /// DNS64 server that runs already, and forwards the zone of --suffix to the authority
    #[arg(short, long, value_name = "ADDR[:PORT]", conflicts_with = "dut", requires = "authority_listen", value_parser = values::server)]
    pub server: Option<SocketAddr>,

    /// Address at which the authority listens for that server
    #[arg(long, value_name = "ADDR[:PORT]", conflicts_with = "dut", value_parser = values::server)]
    pub authority_listen: Option<SocketAddr>,

    /// Zone of the names
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SUFFIX)]
    pub suffix: String,

    /// Text in the names of the cases to run, such as rfc6147, or a file of cases [default: all]
    #[arg(long, value_name = "TEXT|FILE.toml")]
    pub case: Option<String>,

    /// Rates of other queries beside which the cases are run again, such as 20k,36k [default: none]
    #[arg(long, value_name = "QPS,...", value_delimiter = ',', value_parser = quantity::rate)]
    pub load: Vec<u64>,

    /// Measure how hard its questions are to forge, and what queries of attackers cost others
    #[arg(long)]
    pub attacks: bool,

    /// Whose servers may be measured.
    #[command(flatten)]
    pub may_load: MayLoadArgs,

    /// Seed of the order of the cases [default: a random one, which the report has]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Form of the report: text, json, junit or markdown
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = str::parse::<Form>)]
    pub format: Form,
}

/// `dns64bench timing`
#[derive(Args, Debug)]
pub struct TimingArgs {
    /// Raw data of a trial, written by `trial --raw`, `dns64perf` or dns64perf++
    #[arg(value_name = "RAW.csv")]
    pub raw: PathBuf,

    /// Output file [default: the name of the raw data with .svg]
    #[arg(short, long, value_name = "FILE.svg")]
    pub output: Option<PathBuf>,
}

/// `dns64bench learn`
#[derive(Args, Debug)]
pub struct LearnArgs {
    /// Trace of queries: pcap, pcapng, dnstap, or lines with a name and a type
    #[arg(value_name = "FILE")]
    pub trace: PathBuf,

    /// File for the plan; - for standard output
    #[arg(short, long, value_name = "FILE|-", default_value = "-")]
    pub output: PathBuf,

    /// Print a table of the figures instead of a plan
    #[arg(long, conflicts_with = "output")]
    pub describe: bool,

    /// Prefixes of the synthesised AAAA records in the trace
    #[arg(long, value_name = "PREFIX,...", default_value = "64:ff9b::/96")]
    pub pref64: Prefixes,
}

/// `dns64bench lab`
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Create the hosts and their links, and remove what a crash left of a lab
    Up {
        /// Setup of the lab.
        #[command(flatten)]
        settings: Flags,
    },

    /// Remove the hosts and stop everything that runs in them
    Down,

    /// Run a program on a host of the lab
    Exec {
        /// Role of the host; with two devices, measurer and authority are the same host
        #[arg(value_parser = roles())]
        host: Role,

        /// Program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

/// The roles by name.
fn roles() -> impl TypedValueParser<Value = Role> {
    let roles = [
        ("measurer", "Sends the queries and judges the answers"),
        ("dut", "The device under test"),
        ("authority", "Answers the queries of the DUT"),
    ];
    let names = roles.map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names).try_map(|name| choice(&name))
}

/// `dns64bench verify`
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// Directory of the campaign
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// SSH key that signs the journal after a successful verification
    ///
    /// ssh-keygen writes the signature to journal.jsonl.sig beside the journal. A public
    /// key is enough if ssh-agent has the private key.
    #[arg(long, value_name = "KEY", conflicts_with = "check_signature")]
    pub sign: Option<PathBuf>,

    /// File of allowed signers for journal.jsonl.sig, see ssh-keygen(1)
    #[arg(long, value_name = "ALLOWED_SIGNERS")]
    pub check_signature: Option<PathBuf>,
}

/// `dns64bench compare`
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Directory of the campaign before the change
    #[arg(value_name = "A")]
    pub before: PathBuf,

    /// Directory of the campaign after the change
    #[arg(value_name = "B")]
    pub after: PathBuf,

    /// Further campaigns: where did the rates of all of them change?
    #[arg(value_name = "C")]
    pub more: Vec<PathBuf>,

    /// Allowed slowdown of B, in per cent of A
    #[arg(long, value_name = "PCT", default_value_t = 5.0, value_parser = quantity::pct)]
    pub max_regression: f64,

    /// JSON output
    #[arg(long)]
    pub json: bool,
}

/// `dns64bench audit`
#[derive(Args, Debug)]
pub struct AuditArgs {
    /// Directory of the campaign
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// JSON output
    #[arg(long)]
    pub json: bool,
}

/// `dns64bench demo`
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// DNS64 server to measure: a built-in profile or a file [default: dns64d, or an installed
    /// server]
    #[arg(long, value_name = "PROFILE|FILE.toml", value_hint = ValueHint::FilePath)]
    pub dut: Option<String>,
}

/// Value of `dns64perf --pref64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptedArg {
    /// Learn the prefixes from some answers.
    Auto,
    /// Valid if synthesised with one of these; with any prefix, every AAAA record is valid.
    Given(Prefixes),
}

fn accepted(text: &str) -> Result<AcceptedArg, quantity::ValueError> {
    match text {
        "auto" => Ok(AcceptedArg::Auto),
        prefixes => prefixes.parse().map(AcceptedArg::Given),
    }
}

/// A TTL has 31 bits (RFC 2181 section 8).
const TTL_MAX_S: i64 = 0x7fff_ffff;
