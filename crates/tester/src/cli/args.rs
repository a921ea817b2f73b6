//! The arguments of the command line.

mod campaign;
mod own;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use dns64_transport::clock::Nanos;
use dns64_transport::socket::Segmentation;
use dns64_transport::xdp::program::Mode;
use dns64_wire::name::NameBuf;
use dns64_wire::pref64::Pref64;

use super::backend::BackendArgs;
use super::completion;
use super::values::{self, ServerName};
use crate::authority::answer::{NEGATIVE_TTL_DEFAULT_S, TTL_DEFAULT_S};
use crate::authority::behaviour::Behaviour;
use crate::lab::LabKind;
use crate::lab::profile::Family;
use crate::lab::topology::Setup;
use crate::lab::zone::Form;
use crate::load::pace::{BURST_MAX, Pacing};
use crate::load::sources::Sources;
use crate::machine::Role;
use crate::machine::cpuset::CpuSet;
use crate::namespace::{Cidr, DEFAULT_SUFFIX, Pattern, Share, parse_suffix};
use crate::procedure::certificate::SELF_TESTS_DEFAULT;
use crate::procedure::search::Resolution;
use crate::quantity;
use crate::report::timeline::Which;
use crate::rig::spec::AuthorityChoice;

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

    /// Pacing method
    #[arg(long, value_name = "PACING", default_value = "absolute")]
    pub pacing: Pacing,

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

/// `dns64bench search`
#[derive(Args, Debug)]
pub struct SearchArgs {
    /// Rate of the first trial, in queries per second, such as 10k [default: 10k, or --max-rate]
    #[arg(short = 'Q', long, visible_alias = "rate", value_name = "QPS", value_parser = quantity::rate, allow_negative_numbers = true)]
    pub start_rate: Option<u64>,

    /// Highest rate to try, in queries per second [default: the certified rate]
    #[arg(long, value_name = "QPS", value_parser = quantity::rate, allow_negative_numbers = true)]
    pub max_rate: Option<u64>,

    /// Resolution of the search: a share of the rate, or queries per second
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = quantity::resolution, allow_negative_numbers = true)]
    pub resolution: Resolution,

    /// Pacing method
    #[arg(long, value_name = "PACING", default_value = "absolute")]
    pub pacing: Pacing,

    /// The flags of every measurement.
    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// The flags of `trial`, `selftest` and `search`.
#[derive(Args, Debug)]
pub struct MeasureArgs {
    /// Which server to measure.
    #[command(flatten)]
    pub subject: SubjectArgs,

    /// What to send.
    #[command(flatten)]
    pub load: LoadArgs,

    /// Which names to ask and which answers to expect.
    #[command(flatten)]
    pub names: NameArgs,

    /// When a trial is invalid.
    #[command(flatten)]
    pub limits: LimitArgs,

    /// Where to write.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Disturbances of the Tester beyond which a trial is invalid.
#[derive(Args, Debug)]
#[command(next_help_heading = "Limits of a valid trial")]
pub struct LimitArgs {
    /// Maximum lateness of a query: us, ms, s
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = quantity::stall, allow_negative_numbers = true)]
    pub max_stall: Nanos,

    /// Maximum burst after a stall, in queries; losses in larger bursts do not count against the DUT
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub max_burst: u64,

    /// Maximum deviation from the rate in 100 ms, in per cent
    #[arg(long, value_name = "PCT", default_value_t = 10.0, value_parser = quantity::pct)]
    pub max_rate_error: f64,

    /// Maximum share of a failed trial in which other processes use a core of DUT or authority, in per cent
    #[arg(long, value_name = "PCT", default_value_t = 1.0, value_parser = quantity::pct)]
    pub max_stolen: f64,
}

/// Which server to measure, and where.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
pub struct SubjectArgs {
    /// Address or host name of a running server; in a self-test, of the authority
    #[arg(short, long, value_name = "ADDR|NAME", value_parser = values::server, conflicts_with_all = ["lab", "setup", "upstream_family", "authority", "authority_cpus", "authority_behaviour"])]
    pub server: Option<ServerName>,

    /// UDP port of that server [default: 53]
    #[arg(short, long, value_name = "PORT", requires = "server", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Whose servers may be measured.
    #[command(flatten)]
    pub may_load: MayLoadArgs,

    /// Authority in self-test mode that certifies the Tester, with --server
    #[arg(long, value_name = "ADDR:PORT", requires = "server")]
    pub self_test_server: Option<SocketAddr>,

    /// Measure without a certificate; the result is marked as not a measurement
    #[arg(long)]
    pub uncertified: bool,

    /// Number of self-tests; the lowest result counts, with more than 100 the 1st percentile
    #[arg(long, value_name = "N", default_value_t = SELF_TESTS_DEFAULT, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub self_tests: u16,

    /// DNS64 server to start in a lab: a built-in profile (`dns64bench profile list`) or a file
    #[arg(long, value_name = "PROFILE|FILE.toml", add = ArgValueCompleter::new(completion::duts))]
    pub dut: Option<String>,

    /// Program of that DNS64 server [default: found in PATH]
    #[arg(long, value_name = "PATH", requires = "dut")]
    pub dut_binary: Option<PathBuf>,

    /// Setting of its profile, such as threads=2; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "dut", value_parser = values::setting, add = ArgValueCompleter::new(completion::settings))]
    pub dut_set: Vec<(String, String)>,

    /// Restart the DNS64 server before each trial
    #[arg(long, requires = "dut")]
    pub restart: bool,

    /// Kind of lab [default: auto]
    #[arg(long, value_name = "KIND")]
    pub lab: Option<LabKind>,

    /// Setup of the lab [default: three-device]
    #[arg(long, value_name = "SETUP")]
    pub setup: Option<Setup>,

    /// IP version between DNS64 server and authority [default: ipv4, or what the DUT needs]
    #[arg(long, value_name = "FAMILY")]
    pub upstream_family: Option<Family>,

    /// Authoritative server of the lab: built-in, in-driver, a profile or a file [default: built-in]
    ///
    /// in-driver is the built-in server with an XDP program that answers A and AAAA queries before the
    /// network stack of the kernel; in-driver:generic runs it in generic mode.
    #[arg(long, value_name = "NAME|FILE.toml", add = ArgValueCompleter::new(completion::authorities))]
    pub authority: Option<AuthorityChoice>,

    /// CPUs of the authority, such as 0 or 0,2-3 [default: a CPU of its own if there are three]
    #[arg(long, value_name = "LIST")]
    pub authority_cpus: Option<CpuSet>,

    /// Faults injected by the built-in authority, such as delay=5ms,loss=0.1% [default: none]
    ///
    /// Self-tests run without faults. A list of: delay=TIME, delay=TIME+-TIME (evenly spread) or delay=@FILE
    /// (quantiles: lines such as "50% 2ms"); loss=SHARE, servfail=SHARE, refused=SHARE, truncate=SHARE,
    /// duplicate=SHARE and reorder=SHARE:TIME (delayed by TIME) of the names; seed=NUMBER. Repeated queries
    /// for one name and type get the same fault. SERVFAIL and REFUSED apply to TCP as well.
    #[arg(long, value_name = "LIST")]
    pub authority_behaviour: Option<Behaviour>,

    /// CPUs of the DNS64 server, such as 1 [default: the CPUs that the Tester does not use]
    #[arg(long, value_name = "LIST", requires = "dut")]
    pub dut_cpus: Option<CpuSet>,
}

/// What to send and how.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Length of a trial, in us, ms, s, m or h; without unit in seconds
    #[arg(short = 'l', long, value_name = "TIME", default_value = "60s", value_parser = quantity::duration, allow_negative_numbers = true)]
    pub duration: Nanos,

    /// Timeout of a query, up to 60s; at most 1s by RFC 8219
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = quantity::timeout, allow_negative_numbers = true)]
    pub timeout: Nanos,

    /// Threads of the Measurer
    #[arg(short = 'T', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,

    /// Total number of source ports [default: as many as the rate needs]
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16384))]
    pub sockets: Option<u16>,

    /// UDP segmentation offload at the Tester's sockets; always off in self-tests
    #[arg(long, value_name = "on|off", default_value = "on")]
    pub segmentation: Segmentation,

    /// What carries the datagrams.
    #[command(flatten)]
    pub backend: BackendArgs,

    /// Maximum number of queries in one system call
    #[arg(long, value_name = "N", default_value_t = BURST_MAX, value_parser = clap::value_parser!(u64).range(1..=BURST_MAX))]
    pub burst: u64,

    /// CPUs of the Measurer, such as 0 or 0,2-3 [default: the first in a lab, otherwise any]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,

    /// Source address, or a prefix whose addresses are used in turn [default: chosen by the kernel]
    ///
    /// Each source port uses one address, and by default there is a port for each address. A prefix has up to 16384 addresses
    /// (IPv4 /18, IPv6 /114). In a lab any IPv6 prefix can be used: the lab makes it local to the Measurer and routes it
    /// there. With --server the prefix has to be local (`ip route add local PREFIX dev lo`), and the server needs a route to
    /// it. Not used: network and broadcast address of an IPv4 prefix, the first address of an IPv6 prefix.
    #[arg(short = 'a', long, value_name = "ADDR[/LEN]")]
    pub local: Option<Sources>,
}

/// Which names to ask and which answers to expect.
#[derive(Args, Debug)]
#[command(next_help_heading = "Names and answers")]
pub struct NameArgs {
    /// Range of IPv4 addresses; their names are queried, each at most once [default: 10.0.0.0/8]
    ///
    /// With an authority that loads a zone file, the default is the smallest part of 10.0.0.0/8 that has enough names for
    /// the trial and its self-test, because the authority keeps all of them in memory.
    #[arg(long, value_name = "CIDR")]
    pub namespace: Option<Cidr>,

    /// Suffix of the names, after the first label
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SUFFIX, value_parser = parse_suffix)]
    pub suffix: NameBuf,

    /// Share of the names with an AAAA record, 0 to 1 or in %
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0",
        allow_negative_numbers = true
    )]
    pub aaaa_share: Share,

    /// Share of the queries for repeated names, 0 to 1 or in %
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0",
        allow_negative_numbers = true
    )]
    pub cached_share: Share,

    /// Pattern of the repeated names: one-name, stack:N, window:N or zipf:N,S [default: one-name]
    #[arg(long, value_name = "PATTERN")]
    pub cached_pattern: Option<Pattern>,

    /// Prefix of the expected answers; auto learns it from the server
    #[arg(long, value_name = "auto|PREFIX", default_value = "auto", value_parser = pref64)]
    pub pref64: Pref64Arg,
}

/// Where to write.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// File for the result as JSON; - for standard output
    #[arg(short, long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,

    /// No progress and no table
    #[arg(short, long)]
    pub quiet: bool,
}

/// `dns64bench authority`
// Here `--force` is for `--in-driver` as well.
#[derive(Args, Debug)]
#[command(mut_arg("force", |force| force.requires(clap::builder::Resettable::Reset)))]
pub struct AuthorityArgs {
    /// Listen address, IPv6 or IPv4; :: stands for both
    #[arg(long, value_name = "ADDR", default_value = "::")]
    pub listen: IpAddr,

    /// UDP and TCP port
    #[arg(short, long, value_name = "PORT", default_value_t = 53, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Self-test mode: an AAAA record for every name, 2001:db8:: and its IPv4 address
    #[arg(long, conflicts_with = "aaaa_share")]
    pub self_test: bool,

    /// Share of the names with an AAAA record, 0 to 1 or in %
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0",
        allow_negative_numbers = true
    )]
    pub aaaa_share: Share,

    /// Threads, each with its own socket
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,

    /// CPUs of the threads, such as 0 or 0,2-3 [default: any]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,

    /// What carries the datagrams.
    #[command(flatten)]
    pub backend: BackendArgs,

    /// TTL of the records, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = TTL_DEFAULT_S, value_parser = clap::value_parser!(u32).range(..=TTL_MAX_S))]
    pub ttl: u32,

    /// TTL and MINIMUM of the SOA in negative answers, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = NEGATIVE_TTL_DEFAULT_S, value_parser = clap::value_parser!(u32).range(..=TTL_MAX_S))]
    pub negative_ttl: u32,

    /// Injected faults, such as delay=5ms,loss=0.1% [default: none]
    ///
    /// The same list as --authority-behaviour of `dns64bench trial`.
    #[arg(long, value_name = "LIST", conflicts_with = "self_test")]
    pub behaviour: Option<Behaviour>,

    /// Name of the zone: the suffix of the names, after the first label
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SUFFIX, value_parser = parse_suffix)]
    pub suffix: NameBuf,

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

    /// Name of the zone
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SUFFIX, value_parser = parse_suffix)]
    pub suffix: NameBuf,

    /// Share of the names with an AAAA record, 0 to 1 or in %
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0",
        allow_negative_numbers = true
    )]
    pub aaaa_share: Share,

    /// Self-test zone: an AAAA record for every name, 2001:db8:: and its IPv4 address
    #[arg(long, conflicts_with = "aaaa_share")]
    pub self_test: bool,

    /// TTL of the records, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = TTL_DEFAULT_S, value_parser = clap::value_parser!(u32).range(..=TTL_MAX_S))]
    pub ttl: u32,

    /// TTL and MINIMUM of the SOA record, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = NEGATIVE_TTL_DEFAULT_S, value_parser = clap::value_parser!(u32).range(..=TTL_MAX_S))]
    pub negative_ttl: u32,

    /// Form of the records
    #[arg(long, value_name = "FORM", default_value = "master")]
    pub form: Form,

    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE|-")]
    pub output: Option<PathBuf>,

    /// Server to compare with a sample of the zone; nothing is written
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "output")]
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

    /// Prefix of valid answers; any: every AAAA record is valid; auto: learn it from the server
    #[arg(long, value_name = "auto|any|PREFIX", default_value = "auto", value_parser = accepted)]
    pub pref64: AcceptedArg,

    /// Pacing method
    #[arg(long, value_name = "PACING", default_value = "absolute")]
    pub pacing: Pacing,
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

/// `dns64bench lab`
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Create the hosts and their links; an earlier lab is removed first
    Up {
        /// Setup of the lab
        #[arg(long, value_name = "SETUP", default_value = "three-device")]
        setup: Setup,
    },

    /// Remove the hosts and stop everything that runs in them
    Down,

    /// Run a program on a host of the lab
    Exec {
        /// Role of the host; with two devices, measurer and authority are the same host
        host: Role,

        /// Program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
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

    /// Further campaigns, each compared with A
    #[arg(value_name = "C")]
    pub more: Vec<PathBuf>,

    /// HTML page with bars and, for three campaigns or more, the history of the rates
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Allowed slowdown of B, in per cent of A
    #[arg(long, value_name = "PCT", default_value_t = 5.0, value_parser = quantity::pct)]
    pub max_regression: f64,

    /// JSON output
    #[arg(long)]
    pub json: bool,
}

/// `dns64bench demo`
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// DNS64 server to measure: a built-in profile or a file [default: dns64d, or an installed
    /// server]
    #[arg(long, value_name = "PROFILE|FILE.toml", add = ArgValueCompleter::new(completion::duts))]
    pub dut: Option<String>,
}

/// Value of `--pref64`; `None` learns the prefix from an answer of the server.
pub type Pref64Arg = Option<Pref64>;

fn pref64(text: &str) -> Result<Pref64Arg, dns64_wire::pref64::Pref64Error> {
    match text {
        "auto" => Ok(None),
        prefix => prefix.parse().map(Some),
    }
}

/// Value of `dns64perf --pref64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedArg {
    /// Learn the prefix from some answers.
    Auto,
    /// Any AAAA record is valid.
    Any,
    /// Valid if synthesised with this prefix.
    Given(Pref64),
}

fn accepted(text: &str) -> Result<AcceptedArg, dns64_wire::pref64::Pref64Error> {
    match text {
        "auto" => Ok(AcceptedArg::Auto),
        "any" => Ok(AcceptedArg::Any),
        prefix => prefix.parse().map(AcceptedArg::Given),
    }
}

/// A TTL has 31 bits (RFC 2181 section 8).
const TTL_MAX_S: i64 = 0x7fff_ffff;
