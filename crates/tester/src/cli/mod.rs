//! The command line: what the user typed, and what it means.
//!
//! Two stages. [`args`] holds what was typed, each value already with its unit; [`resolve`] turns
//! the flags of a measurement into a [`resolve::Measurement`], in which they no longer contradict each
//! other. Neither does anything yet; [`commands`] does.

pub mod args;
pub mod backend;
pub mod commands;
pub mod exit;
pub mod generate;
pub mod resolve;
pub mod values;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use args::{
    AuthorityArgs, CompareArgs, DemoArgs, Dns64PerfArgs, Generated, LabCommand, PushArgs,
    ResumeArgs, RunArgs, SearchArgs, SelfTestArgs, TimingArgs, TrialArgs, VerifyArgs, ZoneArgs,
};

/// Measure DNS64 servers the way RFC 8219 section 9 asks.
///
/// dns64bench is the Tester of RFC 8219: it sends AAAA queries at an exact rate to a DNS64 server
/// (the device under test, DUT), plays the authoritative server that the DUT asks, and checks each
/// answer by its content. A self-test proves beforehand that the Tester can keep up.
#[derive(Debug, Parser)]
#[command(
    name = "dns64bench",
    version,
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
    /// The self-test of RFC 8219 section 9.2.1: the Measurer asks the authority itself, at
    /// 2(1 + 0.1) times the rate and with a quarter of the timeout. With --rate for that rate of a
    /// DUT, without it for the highest that can be certified.
    #[command(name = "selftest", after_help = SELF_TEST_EXAMPLES)]
    SelfTest(SelfTestArgs),

    /// Find the fastest rate that a DUT can do
    ///
    /// One binary search of RFC 8219 section 9.2: a self-test of the Tester, then trials until a
    /// rate that passed and one that failed are within the resolution.
    #[command(after_help = SEARCH_EXAMPLES)]
    Search(SearchArgs),

    /// Do all searches of a plan, and what else it asks for
    ///
    /// A campaign: any number of servers, shares, core counts and settings, 20 runs of each, by one
    /// file. The keys of the file are described in docs/plan.md; examples/ has one for each
    /// experiment of the papers.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),

    /// Go on with a campaign
    ///
    /// After an interrupt, a crash or a power cut: the journal knows what was done, and at most the
    /// trial under way is lost. The plan is the one that the campaign began with.
    Resume(ResumeArgs),

    /// Make the report of a campaign
    ///
    /// From the journal alone, in DIR/report: one page of HTML, JSON with its schema, CSV, Markdown,
    /// LaTeX, gnuplot and DNS-OARC dns-metrics. A campaign that still runs may be reported too.
    Report {
        /// Directory of the campaign
        #[arg(value_name = "DIR")]
        directory: PathBuf,

        /// Template of the page, in the language of minijinja [default: the built-in one]
        #[arg(long, value_name = "FILE")]
        template: Option<PathBuf>,
    },

    /// Check a journal and its report, and compute both again from the trials
    ///
    /// Every line of the journal has to bear its seal; every verdict has to follow from the counts of
    /// its trial, every rate from the search that found it, every certificate from its self-test, and
    /// every number of the report from the journal. Exits with 3 if one does not, and with 4 if
    /// something is not there. A signature says who answers for the journal: verify cannot tell
    /// whether the trials took place.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),

    /// Compare two campaigns, point by point
    ///
    /// Names, shares, durations and timeouts have to be the same. Exits with 1 if B is slower than
    /// A by more than --max-regression somewhere, and not by chance.
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),

    /// Serve the zone of the test names, as the authority of a DUT
    ///
    /// The AuthDNS subsystem of the Tester by itself: answers A queries with the four numbers of
    /// the name, and AAAA queries for a share of the names, until it is interrupted.
    Authority(AuthorityArgs),

    /// Write the zone of the test names, for an authoritative server
    ///
    /// What `authority` serves, as a zone file of any size: with a record on each line, or by $GENERATE. A
    /// lab writes it by itself, into dns64bench below XDG_CACHE_HOME, /var/cache (root) or ~/.cache.
    #[command(after_help = ZONE_EXAMPLES)]
    Zone(ZoneArgs),

    /// Show how evenly a trial was sent, from its raw data
    ///
    /// Counts the queries sent in each 100 ms and in each 10 ms, and draws them as SVG.
    Timing(TimingArgs),

    /// Be dns64perf++, or dns64perf: their arguments, their output
    ///
    /// Takes the 7, 8 or 9 arguments of dns64perf++, prints its five lines and writes dns64perf.csv into
    /// the current directory, so that scripts made for it run unchanged. There is no certificate:
    /// whether the Tester kept up is told on standard error and by the exit code.
    #[command(name = "dns64perf", after_help = DNS64PERF_EXAMPLES)]
    Dns64Perf(Dns64PerfArgs),

    /// Make, use and remove hosts in network namespaces
    #[command(subcommand)]
    Lab(LabCommand),

    /// Serve a controller on this host of a laboratory
    ///
    /// Started by `run` over ssh: speaks frames on standard input and output, and ends, with all that it has
    /// started, when standard input ends. One agent runs on a host at a time.
    Agent {
        /// Be the inner process, which the process with this ID has started
        #[arg(long, value_name = "PID", hide = true)]
        inner: Option<u32>,
    },

    /// Say what this machine can do, and how to make it better
    ///
    /// With --hosts what the hosts of a plan can do: their links, addresses, CPUs and clocks, and what else runs on
    /// them. Nothing is changed.
    Doctor {
        /// Plan whose hosts are to be looked at
        #[arg(long, value_name = "PLAN.toml")]
        hosts: Option<PathBuf>,

        /// How hosts get their program.
        #[command(flatten)]
        push: PushArgs,
    },

    /// Do the whole job on this machine in about a minute
    ///
    /// A self-test, then three searches with trials of 2 s, on the best kind of lab that this
    /// machine allows, with dns64d if it lies beside this program or in PATH, otherwise with a
    /// DNS64 server that is installed. A server that is faster than the Tester is told as such.
    Demo(DemoArgs),

    /// Print man pages or shell completions
    #[command(subcommand, hide = true)]
    Generate(Generated),
}

const EXIT_CODES: &str = "\
Exit codes: 0 passed, 1 the DUT failed, 2 usage, 3 the Tester is not to be trusted, \
4 environment, 130 interrupted.";

const TRIAL_EXAMPLES: &str = "\
Examples:
  dns64bench trial -s 2001:db8::53 -Q 20k -l 5s
  dns64bench trial --dut unbound --lab netns -Q 8k --json -";

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

const DNS64PERF_EXAMPLES: &str = "\
Examples:
  dns64bench dns64perf 2001:db8::53 53 10.0.0.0/8 60000 1 1 1 1000000 1
  dns64bench dns64perf --classic 1 4 1 2001:db8::53";

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
  dns64bench compare --max-regression 2 --json before after";

#[cfg(test)]
mod tests;
