//! What a trial found: plain data, from which everything downstream is computed.

use std::fmt;

use dns64_transport::clock::Nanos;
use serde::{Deserialize, Serialize};

use crate::authority::counts::AuthorityCounts;

/// What one trial says about the DUT (RFC 8219 section 9.2), or that it says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every query that was due was sent and got a valid answer in time.
    Passed,
    /// The DUT left queries without a valid answer in time.
    Failed {
        /// How many.
        shortfall: u64,
    },
    /// The Tester disturbed the trial: nothing follows about the DUT.
    Invalid(TesterFault),
}

/// A fault of the Tester, its host or its network. Never a loss of the DUT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TesterFault {
    /// The kernel did not take queries that were due.
    NotSent {
        /// How many.
        queries: u64,
    },
    /// A query left too late.
    LateSchedule {
        /// Largest lateness.
        lateness_ns: Nanos,
        /// Allowed lateness.
        limit_ns: Nanos,
    },
    /// Replies arrived at the Measurer but its socket buffers were full.
    ReceiveDrops {
        /// How many datagrams.
        datagrams: u64,
    },
    /// Queries of the DUT arrived at the authority but its socket buffers were full, or its
    /// replies were not taken by the network.
    AuthorityDrops {
        /// How many datagrams.
        datagrams: u64,
    },
    /// The authority stopped during the trial.
    AuthorityDied {
        /// How it ended, as the system tells.
        status: String,
    },
    /// The real-time clock was set during the trial, so that kernel receive stamps mean nothing.
    ClockStep {
        /// By how much.
        step_ns: i64,
    },
    /// A system call of the Tester failed.
    Link {
        /// What failed and why.
        error: String,
    },
}

impl fmt::Display for TesterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent { queries } => {
                write!(
                    f,
                    "the kernel did not take {queries} queries; lower the rate or raise the socket buffers"
                )
            }
            Self::LateSchedule {
                lateness_ns,
                limit_ns,
            } => write!(
                f,
                "the sender was held up for {:.1} ms and the limit is {:.1} ms; give the Tester a core \
                 of its own (--cpus) or lower the rate",
                milliseconds(*lateness_ns),
                milliseconds(*limit_ns)
            ),
            Self::ReceiveDrops { datagrams } => write!(
                f,
                "the Measurer's sockets lost {datagrams} replies; raise net.core.rmem_max or use more --threads"
            ),
            Self::AuthorityDrops { datagrams } => write!(
                f,
                "the authority lost {datagrams} queries or replies; give it more --workers or a core of its own"
            ),
            Self::AuthorityDied { status } => {
                write!(f, "the authority stopped during the trial ({status})")
            }
            Self::ClockStep { step_ns } => write!(
                f,
                "the real-time clock was stepped by {step_ns} ns during the trial; stop whoever sets it"
            ),
            Self::Link { error } => write!(f, "{error}"),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "one digit of it is shown")]
fn milliseconds(span_ns: Nanos) -> f64 {
    span_ns as f64 / 1e6
}

/// How many queries ended in which class. The classes are disjoint; each query that was sent is
/// in one of `valid` to `missing`, and `duplicate` and `stray` count datagrams beyond those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// The expected AAAA, in time.
    pub valid: u64,
    /// The expected AAAA, but after the timeout.
    pub late: u64,
    /// An answer with an AAAA that is not the expected one.
    pub wrong: u64,
    /// RCODE 0 without AAAA.
    pub empty: u64,
    /// RCODE other than 0, or an answer that cannot be parsed.
    pub error: u64,
    /// TC set.
    pub truncated: u64,
    /// A second reply to a query that had been answered.
    pub duplicate: u64,
    /// A datagram that answers no query of this trial.
    pub stray: u64,
    /// No answer at all.
    pub missing: u64,
}

/// Round-trip times of the answered queries, from the sending of each query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rtt {
    /// Median.
    pub p50: Nanos,
    /// 99th percentile.
    pub p99: Nanos,
    /// 99.9th percentile.
    pub p999: Nanos,
    /// Largest.
    pub max: Nanos,
}

/// How well the sender kept to its schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Median lateness of a query against its due time.
    pub lateness_ns_p50: Nanos,
    /// 99th percentile of the lateness.
    pub lateness_ns_p99: Nanos,
    /// 99.9th percentile of the lateness.
    pub lateness_ns_p999: Nanos,
    /// Largest lateness.
    pub lateness_ns_max: Nanos,
    /// Largest deviation of the queries sent in a bin of 10 ms from those due in it (paper 001,
    /// section V), in per cent of those due.
    pub bin_10ms_deviation_pct_max: f64,
    /// The same for bins of 100 ms (paper 001, section III).
    pub bin_100ms_deviation_pct_max: f64,
    /// Span of the schedule whose queries may leave in one system call.
    pub quantum_ns: Nanos,
    /// Queries that leave in one system call.
    pub burst: u64,
}

/// Where the distribution of the round-trip times is looked at: denser toward the tail, for a
/// logarithmic axis.
pub const PERCENTILES: [f64; 16] = [
    0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999,
    100.0,
];

/// Result of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// The verdict.
    pub outcome: Outcome,
    /// Offered rate.
    pub rate_qps: u64,
    /// Length of the schedule.
    pub duration_ns: Nanos,
    /// An answer counts until this long after its query was sent.
    pub timeout_ns: Nanos,
    /// Queries of the whole schedule.
    pub queries_due: u64,
    /// Queries that left; fewer than due if the trial ended early or the kernel refused some.
    pub queries_sent: u64,
    /// Queries that were still open when the trial ended early; they are in no class.
    pub undecided: u64,
    /// The trial ended before its schedule: its failure was certain, or it was interrupted.
    pub ended_early: bool,
    /// Verdicts.
    pub answers: Answers,
    /// Round-trip times.
    pub rtt: Rtt,
    /// Round-trip times at [`PERCENTILES`], as far as there are answers enough to tell: per cent and
    /// nanoseconds.
    pub rtt_percentiles: Vec<(f64, Nanos)>,
    /// Timing of the sender.
    pub timing: Timing,
    /// Datagrams lost by the Tester's own sockets.
    pub tester_drops: u64,
    /// What the authority counted, when it is ours.
    pub authority: Option<AuthorityCounts>,
    /// Resident memory of the DUT after the trial, when it is ours to look at.
    pub dut_memory_bytes: Option<u64>,
    /// How the DUT ended during the trial, and its last words, if it did.
    pub dut_exit: Option<String>,
    /// Kind of link.
    pub backend: String,
    /// Plain remarks for the reader: refused connections, losses at the DUT's sockets, ...
    pub notes: Vec<String>,
}
