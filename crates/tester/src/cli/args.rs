//! What the user can type.

mod campaign;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use dns64_transport::clock::Nanos;
use dns64_transport::socket::Segmentation;
use dns64_transport::xdp::program::Mode;
use dns64_wire::name::NameBuf;
use dns64_wire::pref64::Pref64;

use super::backend::BackendArgs;
use super::values;
use crate::authority::answer::{NEGATIVE_TTL_DEFAULT_S, TTL_DEFAULT_S};
use crate::authority::behaviour::Behaviour;
use crate::lab::LabKind;
use crate::lab::cpuset::CpuSet;
use crate::lab::profile::Family;
use crate::lab::topology::{Role, Setup};
use crate::lab::zone::Form;
use crate::load::pace::{BURST_MAX, Pacing};
use crate::namespace::{Cidr, DEFAULT_SUFFIX, Pattern, Share, parse_suffix};
use crate::procedure::certificate::SELF_TESTS_DEFAULT;
use crate::procedure::search::Resolution;
use crate::quantity;
use crate::report::timeline::Which;
use crate::rig::spec::AuthorityChoice;

pub use campaign::{PushArgs, ResumeArgs, RunArgs, WatchArgs};

/// `dns64bench trial`
#[derive(Args, Debug)]
pub struct TrialArgs {
    /// Offered rate, in queries per second; k and M are understood
    #[arg(short = 'Q', long, value_name = "QPS", value_parser = quantity::rate, allow_negative_numbers = true)]
    pub rate: u64,

    /// Write each query of the trial to a file when it is over, as .csv or .parquet
    #[arg(long, value_name = "FILE")]
    pub raw: Option<PathBuf>,

    /// Print the messages of one query: N, counted from 0, or slowest
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

    /// Resolution of the search for the highest rate: a share of it, or queries per second
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = quantity::resolution, allow_negative_numbers = true)]
    pub resolution: Resolution,

    /// The flags of every measurement.
    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// `dns64bench search`
#[derive(Args, Debug)]
pub struct SearchArgs {
    /// Rate of the first trial, in queries per second; k and M are understood
    #[arg(short = 'Q', long, visible_alias = "rate", value_name = "QPS", default_value = "10k", value_parser = quantity::rate, allow_negative_numbers = true)]
    pub start_rate: u64,

    /// Highest rate to try, in queries per second [default: what the Tester is certified for]
    #[arg(long, value_name = "QPS", value_parser = quantity::rate, allow_negative_numbers = true)]
    pub max_rate: Option<u64>,

    /// Distance of pass and fail at which to stop: a share of the rate, or queries per second
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
    /// Longest lateness of a query: us, ms, s
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = quantity::stall, allow_negative_numbers = true)]
    pub max_stall: Nanos,

    /// Queries that may leave at once after a stall; losses in larger bursts do not count against the DUT
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub max_burst: u64,

    /// Largest deviation from the rate in a span of 100 ms, in per cent
    #[arg(long, value_name = "PCT", default_value_t = 10.0, value_parser = quantity::pct)]
    pub max_rate_error: f64,

    /// Share of a failed trial for which others may have a core of DUT or authority, in per cent
    #[arg(long, value_name = "PCT", default_value_t = 1.0, value_parser = quantity::pct)]
    pub max_stolen: f64,
}

/// Which server to measure, and where.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
pub struct SubjectArgs {
    /// Address of a server that already runs, IPv6 or IPv4; in a self-test, of the authority
    #[arg(short, long, value_name = "ADDR", conflicts_with_all = ["lab", "setup", "upstream_family", "authority", "authority_cpus", "authority_behaviour"])]
    pub server: Option<IpAddr>,

    /// UDP port of that server [default: 53]
    #[arg(short, long, value_name = "PORT", requires = "server", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// An authority in self-test mode, to certify the Tester against when --server is used
    #[arg(long, value_name = "ADDR:PORT", requires = "server")]
    pub self_test_server: Option<SocketAddr>,

    /// Measure although the Tester is not certified; the result is marked as no measurement
    #[arg(long)]
    pub uncertified: bool,

    /// Self-tests of the Tester; the lowest of up to 100 counts, the 1st percentile of more
    #[arg(long, value_name = "N", default_value_t = SELF_TESTS_DEFAULT, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub self_tests: u16,

    /// DNS64 server to start in a lab: a built-in profile (see `dns64bench doctor`) or a file
    #[arg(long, value_name = "PROFILE|FILE.toml")]
    pub dut: Option<String>,

    /// Program of that DNS64 server [default: looked up in PATH by the profile]
    #[arg(long, value_name = "PATH", requires = "dut")]
    pub dut_binary: Option<PathBuf>,

    /// A setting of its profile, such as threads=2; may be given several times
    #[arg(long, value_name = "NAME=VALUE", requires = "dut", value_parser = values::setting)]
    pub dut_set: Vec<(String, String)>,

    /// Start the DNS64 server anew before each trial
    #[arg(long, requires = "dut")]
    pub restart: bool,

    /// Where the roles run [default: auto]
    #[arg(long, value_name = "KIND")]
    pub lab: Option<LabKind>,

    /// How many hosts the lab has [default: three-device]
    #[arg(long, value_name = "SETUP")]
    pub setup: Option<Setup>,

    /// Addresses between the DNS64 server and the authority [default: ipv4, or what the DUT needs]
    #[arg(long, value_name = "FAMILY")]
    pub upstream_family: Option<Family>,

    /// Authoritative server of the lab: built-in, in-driver, a profile or a file [default: built-in]
    ///
    /// in-driver is the built-in one with a program (XDP) at its link that answers A and AAAA queries before the
    /// kernel; in-driver:generic has it behind the driver.
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub authority: Option<AuthorityChoice>,

    /// CPUs of the authority, such as 0 or 0,2-3 [default: one apart if there are three]
    #[arg(long, value_name = "LIST")]
    pub authority_cpus: Option<CpuSet>,

    /// Faults of the built-in authority on purpose, such as delay=5ms,loss=0.1% [default: none]
    ///
    /// Self-tests are without them. A list of: delay=TIME, delay=TIME+-TIME (evenly spread) or delay=@FILE (quantiles: lines such as
    /// "50% 2ms"); loss=SHARE, servfail=SHARE, refused=SHARE, truncate=SHARE, duplicate=SHARE and
    /// reorder=SHARE:TIME (held back for so much longer) of the names; seed=NUMBER. A name and type
    /// meets the same fault whenever it is asked. SERVFAIL and REFUSED apply to TCP as well.
    #[arg(long, value_name = "LIST")]
    pub authority_behaviour: Option<Behaviour>,

    /// CPUs of the DNS64 server, such as 1 [default: those that the Tester leaves]
    #[arg(long, value_name = "LIST", requires = "dut")]
    pub dut_cpus: Option<CpuSet>,
}

/// What to send and how.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Length of a trial: us, ms, s, m, h; a bare number is in seconds
    #[arg(short = 'l', long, value_name = "TIME", default_value = "60s", value_parser = quantity::duration, allow_negative_numbers = true)]
    pub duration: Nanos,

    /// How long after its query an answer counts, up to 60s; RFC 8219 advises at most 1s
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = quantity::timeout, allow_negative_numbers = true)]
    pub timeout: Nanos,

    /// Threads that send and receive
    #[arg(short = 'T', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,

    /// Source ports of all threads together [default: as many as the rate needs]
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16384))]
    pub sockets: Option<u16>,

    /// Whether runs of datagrams pass the Tester's sockets as one; in self-tests they never do
    #[arg(long, value_name = "on|off", default_value = "on")]
    pub segmentation: Segmentation,

    /// What carries the datagrams.
    #[command(flatten)]
    pub backend: BackendArgs,

    /// Queries that leave in one system call at most; 1 sends each by itself
    #[arg(long, value_name = "N", default_value_t = BURST_MAX, value_parser = clap::value_parser!(u64).range(1..=BURST_MAX))]
    pub burst: u64,

    /// CPUs of those threads, such as 0 or 0,2-3 [default: in a lab the first ones, else any]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,

    /// Source address [default: chosen by the kernel]
    #[arg(short = 'a', long, value_name = "ADDR")]
    pub local: Option<IpAddr>,
}

/// Which names to ask and which answers to expect.
#[derive(Args, Debug)]
#[command(next_help_heading = "Names and answers")]
pub struct NameArgs {
    /// IPv4 addresses whose names are asked, each at most once [default: 10.0.0.0/8]
    ///
    /// For an authority that is a program the default is the smallest part of it that has the names of
    /// the trial and of its self-test, because the program keeps all of them in memory.
    #[arg(long, value_name = "CIDR")]
    pub namespace: Option<Cidr>,

    /// What stands after the first label of a name
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SUFFIX, value_parser = parse_suffix)]
    pub suffix: NameBuf,

    /// Share of the names that have an AAAA of their own, 0 to 1 or in %
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0",
        allow_negative_numbers = true
    )]
    pub aaaa_share: Share,

    /// Share of the queries for names that were asked before, 0 to 1 or in %
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0",
        allow_negative_numbers = true
    )]
    pub cached_share: Share,

    /// Which names those are: one-name, stack:N, window:N or zipf:N,S
    #[arg(long, value_name = "PATTERN", default_value = "one-name")]
    pub cached_pattern: Pattern,

    /// Prefix of the expected answers; auto asks the server for it
    #[arg(long, value_name = "auto|PREFIX", default_value = "auto", value_parser = pref64)]
    pub pref64: Pref64Arg,
}

/// Where to write.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Write the result as JSON to a file, or to standard output with -
    #[arg(short, long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,

    /// No progress and no table, only errors and what --json writes
    #[arg(short, long)]
    pub quiet: bool,
}

/// `dns64bench authority`
// Here `--force` is for `--in-driver` as well.
#[derive(Args, Debug)]
#[command(mut_arg("force", |force| force.requires(clap::builder::Resettable::Reset)))]
pub struct AuthorityArgs {
    /// Address to serve at, IPv6 or IPv4; :: serves both
    #[arg(long, value_name = "ADDR", default_value = "::")]
    pub listen: IpAddr,

    /// UDP and TCP port to serve at
    #[arg(short, long, value_name = "PORT", default_value_t = 53, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Answer every AAAA query, with 2001:db8:: and the IPv4 address of the name
    #[arg(long, conflicts_with = "aaaa_share")]
    pub self_test: bool,

    /// Share of the names that have an AAAA of their own, 0 to 1 or in %
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0",
        allow_negative_numbers = true
    )]
    pub aaaa_share: Share,

    /// Threads that answer, each with a socket of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,

    /// CPUs of those threads, such as 0 or 0,2-3 [default: any]
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

    /// Faults on purpose, such as delay=5ms,loss=0.1% [default: none]
    ///
    /// As --authority-behaviour of `dns64bench trial`.
    #[arg(long, value_name = "LIST", conflicts_with = "self_test")]
    pub behaviour: Option<Behaviour>,

    /// What stands after the first label of a name: the zone
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SUFFIX, value_parser = parse_suffix)]
    pub suffix: NameBuf,

    /// Interface at which A and AAAA queries are answered in the driver (XDP), before the kernel
    ///
    /// Needs root. All other queries, and those over TCP, go to the sockets as ever.
    #[arg(long, value_name = "INTERFACE", conflicts_with_all = ["behaviour", "backend"])]
    pub in_driver: Option<String>,

    /// Where that program runs: native, generic or auto
    ///
    /// auto is native where the driver can, and generic on veth devices, whose other end would need a program for native.
    #[arg(long, value_name = "MODE", default_value = "auto", requires = "in_driver", value_parser = str::parse::<Mode>)]
    pub xdp_mode: Mode,
}

/// `dns64bench zone`
#[derive(Args, Debug)]
pub struct ZoneArgs {
    /// IPv4 addresses whose names are in the zone
    #[arg(long, value_name = "CIDR", default_value = "10.0.0.0/8")]
    pub namespace: Cidr,

    /// Name of the zone
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SUFFIX, value_parser = parse_suffix)]
    pub suffix: NameBuf,

    /// Share of the names that have an AAAA of their own, 0 to 1 or in %
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0",
        allow_negative_numbers = true
    )]
    pub aaaa_share: Share,

    /// Give each name an AAAA of its own, with 2001:db8:: and its IPv4 address
    #[arg(long, conflicts_with = "aaaa_share")]
    pub self_test: bool,

    /// TTL of the records, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = TTL_DEFAULT_S, value_parser = clap::value_parser!(u32).range(..=TTL_MAX_S))]
    pub ttl: u32,

    /// TTL and MINIMUM of the SOA record, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = NEGATIVE_TTL_DEFAULT_S, value_parser = clap::value_parser!(u32).range(..=TTL_MAX_S))]
    pub negative_ttl: u32,

    /// How the records are written
    #[arg(long, value_name = "FORM", default_value = "master")]
    pub form: Form,

    /// Where to write [default: standard output]
    #[arg(short, long, value_name = "FILE|-")]
    pub output: Option<PathBuf>,

    /// Write nothing; compare a sample of the zone with what the server at this address answers
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "output")]
    pub check: Option<SocketAddr>,
}

/// `dns64bench dns64perf`
#[derive(Args, Debug)]
#[command(override_usage = "\
dns64bench dns64perf [OPTIONS] <server> <port> <subnet> <number of requests> <burst size> \
[<number of threads> [<ports per thread>]] <delay between bursts in ns> <timeout in s>
       dns64bench dns64perf --classic <client number> <threads> <timeout in s> <server> [<port>]")]
pub struct Dns64PerfArgs {
    /// The arguments of dns64perf++, in their order; with --classic those of dns64perf
    #[arg(value_name = "ARGUMENT", required = true)]
    pub arguments: Vec<String>,

    /// Be the dns64perf of 2015: 256 experiments of 256 queries, each sent when the last is answered
    #[arg(long, conflicts_with_all = ["pacing", "pref64"])]
    pub classic: bool,

    /// Which answers are valid: those with this prefix, any AAAA, or what a few probes show
    #[arg(long, value_name = "auto|any|PREFIX", default_value = "auto", value_parser = accepted)]
    pub pref64: AcceptedArg,

    /// Pacing method
    #[arg(long, value_name = "PACING", default_value = "absolute")]
    pub pacing: Pacing,
}

/// `dns64bench timing`
#[derive(Args, Debug)]
pub struct TimingArgs {
    /// Raw data of a trial: what `trial --raw`, `dns64perf` or dns64perf++ has written
    #[arg(value_name = "RAW.csv")]
    pub raw: PathBuf,

    /// Where the picture goes [default: beside the raw data, as .svg]
    #[arg(short, long, value_name = "FILE.svg")]
    pub output: Option<PathBuf>,
}

/// `dns64bench lab`
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Make the hosts and the links between them; what an earlier lab left is removed first
    Up {
        /// How many hosts the lab has
        #[arg(long, value_name = "SETUP", default_value = "three-device")]
        setup: Setup,
    },

    /// Remove the hosts with all that runs in them
    Down,

    /// Run a program on a host of the lab
    Exec {
        /// The host, by its role; with two devices measurer and authority are one
        host: Role,

        /// The program and its arguments
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

    /// Sign the journal with this SSH key, if everything is right
    ///
    /// The signature is journal.jsonl.sig beside the journal, made by ssh-keygen. The public half of a
    /// key does if an agent has the other.
    #[arg(long, value_name = "KEY", conflicts_with = "check_signature")]
    pub sign: Option<PathBuf>,

    /// Check journal.jsonl.sig against a file of allowed signers, see ssh-keygen(1)
    #[arg(long, value_name = "ALLOWED_SIGNERS")]
    pub check_signature: Option<PathBuf>,
}

/// `dns64bench compare`
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Directory of the campaign to compare with
    #[arg(value_name = "A")]
    pub before: PathBuf,

    /// Directory of the campaign that is judged
    #[arg(value_name = "B")]
    pub after: PathBuf,

    /// How much slower B may be, in per cent of A
    #[arg(long, value_name = "PCT", default_value_t = 5.0, value_parser = quantity::pct)]
    pub max_regression: f64,

    /// Write the comparison as JSON
    #[arg(long)]
    pub json: bool,
}

/// `dns64bench demo`
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// DNS64 server to measure: a built-in profile or a file [default: dns64d, else one that is
    /// installed]
    #[arg(long, value_name = "PROFILE|FILE.toml")]
    pub dut: Option<String>,
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

/// The value of `--pref64`; `None` learns it from an answer of the server.
pub type Pref64Arg = Option<Pref64>;

fn pref64(text: &str) -> Result<Pref64Arg, dns64_wire::pref64::Pref64Error> {
    match text {
        "auto" => Ok(None),
        prefix => prefix.parse().map(Some),
    }
}

/// The value of `dns64perf --pref64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedArg {
    /// Learn from some answers what the others must be.
    Auto,
    /// Any AAAA record is right.
    Any,
    /// Synthesised with this prefix.
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
