//! The command line: its arguments and their meaning.
//!
//! It has two stages. [`args`] has the arguments as given, each value already with its unit. [`resolve`] converts the
//! flags of a measurement to a [`resolve::Measurement`] without contradictions. Neither has side effects; [`commands`]
//! runs the result.

pub mod args;
pub mod commands;
pub mod exit;
pub mod flags;
pub mod generate;
pub mod habits;
#[path = "../../../pages.rs"]
mod pages;
pub mod refusal;
pub mod resolve;
pub mod values;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use args::{
    AuditArgs, AuthorityArgs, CompareArgs, ConformArgs, DemoArgs, Dns64PerfArgs, Generated,
    LabCommand, LearnArgs, MeasureArgs, ProfileCommand, PushArgs, ResumeArgs, RunArgs,
    SelfTestArgs, TimingArgs, TrialArgs, VerifyArgs, ZoneArgs,
};

/// Measure DNS64 servers by the method of RFC 8219 section 9.
///
/// dns64bench is the Tester of RFC 8219: it sends AAAA queries at an exact rate to a DNS64 server (the
/// device under test, DUT), acts as the authoritative server that the DUT queries, and checks the content of
/// each answer. A self-test shows beforehand that the Tester can keep up with the rate.
#[derive(Debug, Parser)]
#[command(
    name = "dns64bench",
    version,
    long_version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD"), ")"),
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = EXIT_CODES
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send queries at one rate for one duration and judge the answers
    ///
    /// One trial of RFC 8219 section 9.2. It passes if every query gets a valid answer in time.
    #[command(after_help = TRIAL_EXAMPLES)]
    Trial(TrialArgs),

    /// Certify the Tester without a DUT
    ///
    /// Runs the self-test of RFC 8219 section 9.2.1: the Measurer queries the authority itself, at
    /// 2(1 + 0.1) times the rate and with a quarter of the timeout. With --rate it certifies that rate of a
    /// DUT, without --rate it searches for the highest.
    #[command(name = "selftest", after_help = SELF_TEST_EXAMPLES)]
    SelfTest(SelfTestArgs),

    /// Find the highest rate that a DUT answers without loss
    ///
    /// One binary search of RFC 8219 section 9.2: a self-test of the Tester, then trials until a
    /// passing and a failing rate are within the resolution of each other.
    #[command(after_help = SEARCH_EXAMPLES)]
    Search(MeasureArgs),

    /// Run a campaign: all searches of a plan
    ///
    /// A plan is one file with any number of servers, shares, core counts and settings, by default 20 runs
    /// of each. dns64bench-plan(5) and docs/plan.md describe its keys; examples/ has a plan for each experiment of the papers.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),

    /// Continue a campaign
    ///
    /// Use it after an interrupt, a crash or a power cut. The journal has every finished trial, so at most
    /// the interrupted trial is lost. The plan is the one that the campaign started with.
    Resume(ResumeArgs),

    /// Write the report of a campaign
    ///
    /// Writes DIR/report from the journal alone: one page of HTML, JSON with its schema, CSV, LaTeX and
    /// figures. The campaign may still be running.
    Report {
        /// Directory of the campaign
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },

    /// Verify a journal and its report by recomputing both from the trials
    ///
    /// Every line of the journal must have a correct seal. Every verdict must follow from the counts of its
    /// trial, every rate from its search, every certificate from its self-tests, and every number of the
    /// report from the journal. The exit code is 3 if one of these checks fails, and 4 if a file is missing.
    /// verify cannot tell whether the trials took place: a signature shows who vouches for them.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),

    /// Compare campaigns, point by point
    ///
    /// Points with the same name, shares, duration and timeout are compared. The exit code is 1 if B is slower than
    /// A by more than --max-regression at any point and the difference is statistically significant.
    ///
    /// Of three campaigns or more, in the order in which they began, the changes of the rates are found by minimum
    /// description length, and at each the campaigns since the change before are compared with those up to the next one. The
    /// exit code is 1 if one of them is slower.
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),

    /// Audit the rates of a campaign by trials for which no server can be prepared
    ///
    /// Each server that the plan starts is asked, at 95 % of its rate for different names, for names that follow from a
    /// secret seed: in the zone of the campaign, in a secret zone, and for the latter again after their TTL. One trial of
    /// three has to pass, each answer is checked by its content, and the authority has to be asked for each. The SHA-256 of
    /// the seed is printed before the trials, the seed after them. The exit code is 1 if a rate does not stand, and 3 if the
    /// Tester could not tell.
    Audit(AuditArgs),

    /// Serve the zone of the test names
    ///
    /// Runs only the authoritative server (AuthDNS) of the Tester, for a DUT that is started by hand. It
    /// answers A queries with the IPv4 address that the name contains, and AAAA queries for a share of the
    /// names, until it is interrupted.
    Authority(AuthorityArgs),

    /// Write the zone of the test names for another authoritative server
    ///
    /// Writes the records that `authority` serves as a zone file. A lab
    /// does this itself, in the directory dns64bench below XDG_CACHE_HOME, /var/cache (root) or ~/.cache.
    #[command(after_help = ZONE_EXAMPLES)]
    Zone(ZoneArgs),

    /// Learn the load of clients from a trace of their queries
    ///
    /// Reads a capture, a dnstap file or a list of queries, and writes a plan with their types, EDNS, repetitions and shares of AAAA
    /// records. Names and addresses are counted, and neither kept nor written.
    #[command(after_help = LEARN_EXAMPLES)]
    Learn(LearnArgs),

    /// Check a DNS64 server against the standards, clause by clause
    ///
    /// Runs cases of RFC 6147 and related standards: an authority that answers by script, queries, and what has to
    /// come back. The exit code is 1 if the server fails a clause of level must, and 4 if it gets no
    /// verdict.
    #[command(after_help = CONFORM_EXAMPLES)]
    Conform(ConformArgs),

    /// Draw the timing of a trial from its raw data
    ///
    /// Counts the queries sent in each 100 ms and in each 10 ms, and draws them as SVG.
    Timing(TimingArgs),

    /// Run in dns64perf++ or dns64perf compatibility mode
    ///
    /// Takes the 7, 8 or 9 arguments of dns64perf++, prints its five lines and writes dns64perf.csv to the
    /// current directory, so that scripts written for it run unchanged. The Tester is not certified in this
    /// mode: standard error and the exit code say whether it kept up.
    #[command(name = "dns64perf", after_help = DNS64PERF_EXAMPLES)]
    Dns64Perf(Dns64PerfArgs),

    /// Create, use and remove a lab of network namespaces
    #[command(subcommand)]
    Lab(LabCommand),

    /// List and print the profiles of servers
    ///
    /// A profile says how a server is found, configured and started. To measure another server, or another
    /// configuration, save a profile as a file, change it, and give the path of the file instead of the
    /// name.
    #[command(subcommand, after_help = PROFILE_EXAMPLES)]
    Profile(ProfileCommand),

    /// Serve a controller on a host of a laboratory
    ///
    /// `run` starts it over ssh. It exchanges frames on standard input and output. When standard input ends,
    /// it stops everything that it has started and exits. One agent runs on a host at a time.
    Agent {
        /// Process ID of the parent; marks the inner process
        #[arg(long, value_name = "PID", hide = true)]
        inner: Option<u32>,
    },

    /// Check this machine and print remedies
    ///
    /// With --hosts, checks the hosts of a plan: links, addresses, CPUs, clocks and other processes. Nothing is changed.
    Doctor {
        /// Plan with the hosts to check
        #[arg(long, value_name = "PLAN.toml")]
        hosts: Option<PathBuf>,

        /// How hosts get their program.
        #[command(flatten)]
        push: PushArgs,
    },

    /// Measure a DNS64 server on this machine in one to two minutes
    ///
    /// Runs a self-test and three searches with trials of 2 s in the best kind of lab that this
    /// machine allows. The server is dns64d if it is beside this program or in PATH, otherwise an
    /// installed DNS64 server. If the server is faster than the Tester, the result is a lower bound.
    Demo(DemoArgs),

    /// Print man pages or shell completions
    #[command(subcommand, hide = true)]
    Generate(Generated),
}

const EXIT_CODES: &str = "\
Exit codes: 0 passed, 1 the DUT failed, 2 usage, 3 the Tester was disturbed or is the limit, \
4 environment, 130 interrupted.";

const TRIAL_EXAMPLES: &str = "\
Examples:
  dns64bench trial -s 2001:db8::53 -Q 20k -l 5s
  dns64bench trial --dut unbound --lab netns -Q 8k --json -";

const LEARN_EXAMPLES: &str = "\
Examples:
  dns64bench learn clients.pcap -o clients.toml
  dns64bench learn queries.txt --describe";

const SELF_TEST_EXAMPLES: &str = "\
Examples:
  dns64bench selftest --lab netns --cpus 0 --authority-cpus 1
  dns64bench selftest -s 2001:db8::53 -Q 50k";

const SEARCH_EXAMPLES: &str = "\
Examples:
  dns64bench search --dut bind --lab netns -l 5s --cpus 0 --dut-cpus 1
  dns64bench search -s 2001:db8::53 --self-test-server [2001:db8::54]:53";

const RUN_EXAMPLES: &str = "\
Examples:
  dns64bench run --dry-run examples/rfc8219.toml
  dns64bench run -o results examples/quick.toml";

const PROFILE_EXAMPLES: &str = "\
Examples:
  dns64bench profile list
  dns64bench profile show unbound >my-unbound.toml";

const DNS64PERF_EXAMPLES: &str = "\
Examples:
  dns64bench dns64perf 2001:db8::53 53 10.0.0.0/8 60000 1 1 1 1000000 1
  dns64bench dns64perf --classic 1 4 1 2001:db8::53";

const CONFORM_EXAMPLES: &str = "\
Examples:
  dns64bench conform --dut unbound
  dns64bench conform -s 2001:db8::53 --authority-listen 192.0.2.1 --case rfc6147";

const ZONE_EXAMPLES: &str = "\
Examples:
  dns64bench zone --namespace 10.0.0.0/8 --self-test -o dns64perf.test.zone
  dns64bench zone --namespace 10.0.0.0/8 --self-test --check [2001:db8::53]:53";

const VERIFY_EXAMPLES: &str = "\
Examples:
  dns64bench verify results
  dns64bench verify --sign ~/.ssh/id_ed25519 results
  dns64bench verify --check-signature allowed_signers results";

const COMPARE_EXAMPLES: &str = "\
Examples:
  dns64bench compare results/before results/after
  dns64bench compare --max-regression 2 nightly/1 nightly/2 nightly/3
  dns64bench compare --max-regression 2 --json before after";

#[cfg(test)]
mod tests;
