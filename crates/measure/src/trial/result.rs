//! Results of trials: plain data, from which everything else is computed.

use std::fmt;
use std::net::IpAddr;

use dns64_transport::clock::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::achieved::Achieved;
use super::fault::{RateError, TesterFault};
use super::path::{AuthorityTimes, Path};
use super::place::Losses;
use super::policy::Policy;
use super::service::Service;
use crate::authority::counts::AuthorityCounts;
use crate::load::catch_up::Limits;
use crate::load::names::NameRange;
use crate::load::pace::SelfCorrected;
use crate::machine::process::Resources;
use crate::machine::usage::Usage;

/// Clock of a host relative to the controller's during a trial.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct HostClock {
    /// Name of the host in the plan.
    pub host: String,
    /// Offset of its monotonic clock from the controller's, at the start of the trial.
    pub offset_ns: i64,
    /// Maximum error of the offset: the host started within this time of the agreed start.
    pub bound_ns: Nanos,
    /// Growth of the offset during the trial, in parts per million.
    pub drift_ppm: f64,
    /// Number of exchanges behind it.
    pub exchanges: u64,
    /// Delay of the start order after the agreed start; 0 if in time.
    pub late_ns: Nanos,
}

/// Share of one of several authorities in a trial.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct AuthorityShare {
    /// Name of its host in the plan.
    pub host: String,
    /// Queries that it received; for a separate program, the datagrams delivered to the programs of its host.
    pub questions: u64,
    /// Datagrams lost by its sockets, and replies that the network did not accept; 0 for a separate program: see the
    /// counters in [`TrialResult::losses`].
    pub drops: u64,
}

/// Outcome of a trial for the DUT (RFC 8219 section 9.2).
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(into = "OutcomeForm", try_from = "OutcomeForm")]
pub enum Outcome {
    /// Every query that was due was sent and got a valid answer in time.
    Passed,
    /// The DUT left queries without a valid answer in time.
    Failed {
        /// Number of queries.
        shortfall: u64,
    },
    /// The Tester disturbed the trial: it gives no result about the DUT.
    Invalid(TesterFault),
}

impl Outcome {
    /// Returns "passed", "failed" or "invalid".
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed { .. } => "failed",
            Self::Invalid(_) => "invalid",
        }
    }

    /// Returns the queries without a valid answer in time; 0 unless it failed.
    pub fn shortfall(&self) -> u64 {
        match self {
            Self::Failed { shortfall } => *shortfall,
            Self::Passed | Self::Invalid(_) => 0,
        }
    }

    /// Whether it says anything about the DUT.
    pub fn is_valid(&self) -> bool {
        self.fault().is_none()
    }

    /// Whether the user interrupted the trial.
    pub fn is_interrupted(&self) -> bool {
        self.fault() == Some(&TesterFault::Interrupted)
    }

    /// Returns the fault, if it is invalid.
    pub fn fault(&self) -> Option<&TesterFault> {
        match self {
            Self::Invalid(fault) => Some(fault),
            Self::Passed | Self::Failed { .. } => None,
        }
    }
}

/// Serialised form of an [`Outcome`]: the same keys for all outcomes.
#[derive(JsonSchema, Serialize, Deserialize)]
struct OutcomeForm {
    /// `passed`, `failed` or `invalid`; an invalid trial says nothing about the DUT.
    outcome: String,
    /// The fault as text, for readers.
    #[serde(skip_deserializing)]
    invalid_because: Option<String>,
    /// Why the trial is invalid; `None` for other outcomes.
    fault: Option<TesterFault>,
    /// Queries without a valid answer in time; 0 unless the trial failed.
    shortfall: u64,
}

impl From<Outcome> for OutcomeForm {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome: outcome.word().to_owned(),
            invalid_because: outcome.fault().map(ToString::to_string),
            fault: outcome.fault().cloned(),
            shortfall: outcome.shortfall(),
        }
    }
}

impl TryFrom<OutcomeForm> for Outcome {
    type Error = String;

    fn try_from(verdict: OutcomeForm) -> Result<Self, String> {
        let shortfall = verdict.shortfall;
        match (verdict.outcome.as_str(), verdict.fault) {
            ("passed", None) => Ok(Self::Passed),
            ("failed", None) => Ok(Self::Failed { shortfall }),
            ("invalid", Some(fault)) => Ok(Self::Invalid(fault)),
            (other, None) => Err(format!("outcome {other:?} without a fault")),
            (other, Some(_)) => Err(format!("outcome {other:?} with a fault")),
        }
    }
}

/// Number of queries of each class. The classes are disjoint. Each query that was sent is in one of `valid` to
/// `missing`; `duplicate` and `stray` count additional datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Answers {
    /// The expected AAAA, in time.
    pub valid: u64,
    /// The expected AAAA, but after the timeout.
    pub late: u64,
    /// An answer with an AAAA that is not the expected one.
    pub wrong: u64,
    /// RCODE 0 without AAAA.
    pub empty: u64,
    /// RCODE other than 0, or an unparsable response.
    pub error: u64,
    /// TC set.
    pub truncated: u64,
    /// An additional response to an answered query.
    pub duplicate: u64,
    /// A datagram that answers no query of this trial.
    pub stray: u64,
    /// No response until the end of listening: after the last query is decided, for as long as the timeout, but 0.5 s
    /// at most.
    pub missing: u64,
    /// Addresses in valid and late answers beside a correct one.
    pub other_addresses: u64,
}

/// The queries of one type, in a trial with several types.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct TypeResult {
    /// "AAAA", "A" or "HTTPS".
    #[serde(rename = "type")]
    pub rtype: String,
    /// Queries that were sent.
    pub sent: u64,
    /// With a correct record, in time.
    pub valid: u64,
    /// Without a response.
    pub lost: u64,
    /// With another response, or a late one.
    pub wrong: u64,
    /// Correct HTTPS records to which the DUT has added a synthesised `ipv6hint`.
    pub synthesised_hints: u64,
}

/// An answer without a correct address.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct WrongAnswer {
    /// Number of its query in the trial, from 0.
    pub query: u64,
    /// The queried name.
    pub name: String,
    /// Its first address.
    pub received: IpAddr,
    /// The correct addresses; none if every prefix is correct.
    pub expected: Vec<IpAddr>,
}

impl fmt::Display for WrongAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, received) = (&self.name, self.received);
        let expected: Vec<_> = self.expected.iter().map(IpAddr::to_string).collect();
        let expected = match expected.is_empty() {
            true => "an address with its IPv4 address".to_owned(),
            false => expected.join(" or "),
        };
        write!(
            f,
            "the first wrong answer, for {name}, was {received} instead of {expected}"
        )
    }
}

impl Answers {
    /// Returns the number of queries with any response: those that have a round-trip time.
    pub fn answered(&self) -> u64 {
        self.valid + self.late + self.wrong + self.empty + self.error + self.truncated
    }
}

/// Round-trip times of the answered queries, from the sending of each query; `None` without answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Rtt {
    /// Median.
    pub p50: Option<Nanos>,
    /// 99th percentile.
    pub p99: Option<Nanos>,
    /// 99.9th percentile.
    pub p999: Option<Nanos>,
    /// Largest.
    pub max: Option<Nanos>,
    /// Mean.
    pub mean: Option<Nanos>,
}

/// Connections of a trial, and the queries that were lost with them. Such queries are among those without an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Connections {
    /// Connections established.
    pub established: u64,
    /// Those of them that were established before the first query.
    pub before_trial: u64,
    /// Times from the request for a connection to its establishment, with its TLS handshake.
    pub set_up_ns: Rtt,
    /// Connections that the server ended while no query was open on them, which is normal (RFC 7766 section 6.2.3).
    pub ended_idle: u64,
    /// Connections that it refused.
    pub refused: Ended,
    /// Connections that it reset while queries were open.
    pub reset: Ended,
    /// Connections that it closed while queries were open.
    pub closed: Ended,
    /// Connections whose TLS handshake failed, or that violated the protocol later.
    pub tls_failed: Ended,
    /// Requests for a connection that had no answer.
    pub unreachable: Ended,
    /// Queries that were lost because the server did not read them: its window was closed.
    pub queries_not_read: u64,
    /// Segments that the Measurer's kernel sent again.
    pub segments_retransmitted: u64,
}

/// Connections that ended in one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Ended {
    /// Number of connections.
    pub connections: u64,
    /// Queries that were lost with them.
    pub queries: u64,
}

impl Connections {
    /// The ways in which the server ended connections, each with the words after their number.
    pub fn endings(&self) -> [(Ended, &'static str); 5] {
        [
            (self.refused, "refused"),
            (self.reset, "reset with open queries"),
            (self.closed, "closed with open queries"),
            (self.tls_failed, "without a TLS session"),
            (self.unreachable, "without an answer to their request"),
        ]
    }
}

/// Accuracy of the sender's schedule.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Timing {
    /// Median lateness of a query relative to its due time.
    pub lateness_ns_p50: Nanos,
    /// 99th percentile of the lateness.
    pub lateness_ns_p99: Nanos,
    /// 99.9th percentile of the lateness.
    pub lateness_ns_p999: Nanos,
    /// Largest lateness.
    pub lateness_ns_max: Nanos,
    /// Largest deviation of the queries sent in a bin of 10 ms from those due in it, in per cent (Lencse and Pivoda
    /// 2018, section V).
    pub bin_10ms_deviation_pct_max: f64,
    /// The deviation for bins of 100 ms (Lencse and Pivoda 2018, section III).
    pub bin_100ms_deviation_pct_max: f64,
    /// Span of the schedule whose queries may be sent in one system call.
    pub quantum_ns: Nanos,
    /// Queries per system call.
    pub burst: u64,
    /// The 100 ms with the largest difference of queries sent and due; `None` for a shorter trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_error: Option<RateError>,
    /// The deviation for bins of 1 ms; `None` for trials of more than an hour.
    pub bin_1ms_deviation_pct_max: Option<f64>,
    /// Longest system call that sent queries. Round-trip times count from before the call, because responses can arrive
    /// before it returns: each is overestimated by at most this.
    pub send_call_ns_max: Option<Nanos>,
    /// Clock source of the kernel.
    pub clock_source: Option<String>,
    /// Largest step of the real-time clock, which stamps received datagrams, relative to the monotonic one.
    pub clock_step_ns: i64,
    /// Catch-up bursts of the sender.
    pub catch_up: CatchUp,
    /// Limits above which the trial is invalid.
    pub limits: Limits,
    /// Accuracy of the self-correcting timer, if it paced the sender.
    pub self_correcting: Option<SelfCorrected>,
}

impl Timing {
    /// Returns whether the sender fell behind its schedule, which it will do again at this rate. A momentarily stopped
    /// sender delays only the queries of that moment.
    pub fn is_behind(&self) -> bool {
        self.lateness_ns_p50 >= BEHIND_NS
    }
}

/// A rate that is half a per cent above the capacity delays half of the queries by this in a trial of 5 s.
const BEHIND_NS: Nanos = 10_000_000;

/// Stalls of the sender after which more queries were due than may be sent at once, and their effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct CatchUp {
    /// Number of stalls of all threads together.
    pub stalls: u64,
    /// Longest stall.
    pub stall_ns_max: Nanos,
    /// Queries delayed by the largest stall: the stall times the rate.
    pub burst_queries_max: u64,
    /// Queries without a valid answer that were sent while a server with a capacity of 110 % of the offered rate might
    /// still have a queue from a catch-up burst.
    pub lost_in_bursts: u64,
    /// Those of them that were not answered late either, beyond the number of queries of their burst: a burst causes at
    /// most as many losses as it has queries, but answers are late while there is a queue.
    pub lost_beyond_bursts: u64,
}

impl CatchUp {
    /// Returns the losses that bursts explain in addition to another disturbance: a burst causes at most as many losses
    /// as it has queries.
    pub(super) fn explained(&self) -> u64 {
        let sent_at_once = self.stalls.saturating_mul(self.burst_queries_max);
        self.lost_in_bursts.min(sent_at_once)
    }
}

/// The queries of a trial by the slice of time in which they were due. All lists have one value for each slice.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct TimeSeries {
    /// Length of a slice: 100 ms, or more in trials of more than a minute.
    pub slice_ns: Nanos,
    /// Queries that were sent.
    pub sent: Vec<u64>,
    /// Those of them without a valid answer in time.
    pub lost: Vec<u64>,
    /// Median time from the due time of a query to its answer; `None` without answers.
    pub latency_ns_p50: Vec<Option<Nanos>>,
    /// 99th percentile of these times.
    pub latency_ns_p99: Vec<Option<Nanos>>,
}

/// Percentiles of the round-trip times in results: denser towards the tail, for a logarithmic axis.
pub const PERCENTILES: [f64; 16] = [
    0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999,
    100.0,
];

/// Result of one trial, created by [`summary::result`](super::summary::result) and immutable. Its serialised form is
/// that of the journal and of `--json`: see `docs/journal.md` before a change.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(tag = "form", rename = "trial/2")]
pub struct TrialResult {
    /// Outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Whether the Tester was certified for a DUT at this rate; `None` without a DUT, as in a self-test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certified: Option<bool>,
    /// Offered rate.
    pub rate_qps: u64,
    /// Length of the schedule.
    #[serde(rename = "duration_s", with = "seconds")]
    #[schemars(with = "f64")]
    pub duration_ns: Nanos,
    /// Maximum time from a query to a response that counts.
    #[serde(rename = "timeout_s", with = "seconds")]
    #[schemars(with = "f64")]
    pub timeout_ns: Nanos,
    /// Queries of the whole schedule.
    pub queries_due: u64,
    /// Queries that were sent; fewer than due if the trial ended early or the kernel refused some.
    pub queries_sent: u64,
    /// Queries that were open when the trial ended early; they are in no class.
    pub undecided: u64,
    /// The trial ended before its schedule, because its failure was certain or it was interrupted.
    pub ended_early: bool,
    /// Number of queries of each class.
    pub answers: Answers,
    /// The same by type, if the queries have several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypeResult>,
    /// Policy of the server that its answers show; `None` if none does, or every query was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The first wrong answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_wrong: Option<WrongAnswer>,
    /// Round-trip times.
    #[serde(rename = "rtt_ns")]
    pub rtt: Rtt,
    /// Round-trip times at [`PERCENTILES`], as far as there are enough answers: per
    /// cent and nanoseconds.
    #[serde(rename = "rtt_percentiles_ns")]
    pub rtt_percentiles: Vec<(f64, Nanos)>,
    /// The same from the due time of each query to its answer, as clients see them: a query without an answer counts as
    /// longer than any, which is `null`.
    #[serde(rename = "latency_percentiles_ns")]
    pub latency_percentiles: Vec<(f64, Option<Nanos>)>,
    /// Course of the trial, if a query had no valid answer in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<TimeSeries>,
    /// Timing of the sender.
    pub timing: Timing,
    /// Datagrams lost by the Tester's own sockets.
    pub tester_drops: u64,
    /// Locations of the queries without a valid answer.
    pub losses: Losses,
    /// The user interrupted the trial: its figures are those until then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// How an authority that is a separate program exited during the trial, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_exit: Option<String>,
    /// System call of the Tester that failed, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Counters of the built-in authority.
    pub authority: Option<AuthorityCounts>,
    /// Share of each host in them, with several authorities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authorities: Vec<AuthorityShare>,
    /// Response times of an authority that is a separate program, from queries during the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_sampled: Option<AuthorityTimes>,
    /// Fresh names of the trial.
    pub names: Option<NameRange>,
    /// Shares at the authority; `None` without a built-in authority or a DUT.
    pub achieved: Option<Achieved>,
    /// Throughput of the DUT while it had queued queries; `None` if the delay of its answers did not grow.
    pub service: Option<Service>,
    /// Path of the queries through DUT and authority, with a built-in authority.
    pub path: Option<Path>,
    /// Resources of the DUT after the trial, if they are observable.
    pub resources: Option<Resources>,
    /// How the DUT exited during the trial, and its last log lines, if it did.
    pub dut_exit: Option<String>,
    /// CPU usage of the machine during the trial, as far as known.
    pub machine: Usage,
    /// The DUT runs on the machine of the Tester, and its cores are not known to be its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub server_is_here: bool,
    /// Number of source ports of the Measurer.
    pub source_ports: usize,
    /// Whether queries and responses could be segmented.
    pub segmentation: bool,
    /// Clocks of the hosts that took part; empty if all roles were on one machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<HostClock>,
    /// Link of the Measurer: `tls`, `tcp`, `udp` (kernel sockets), or AF_XDP as `xdp (generic)`, `xdp (copy)` or
    /// `xdp (zero-copy)`.
    pub backend: String,
    /// The Measurer's connections; `None` over UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
    /// Remarks for readers: refused connections, losses at the DUT's sockets, ...
    pub notes: Vec<String>,
}

impl TrialResult {
    /// Returns the number of queries that were sent and decided without a valid answer in time.
    pub fn unanswered(&self) -> u64 {
        let valid = self.answers.valid.saturating_add(self.undecided);
        self.queries_sent.saturating_sub(valid)
    }

    /// Returns the number of AAAA queries that were sent, and of those that were answered as expected.
    pub fn aaaa(&self) -> (u64, u64) {
        let answered = self.answers.valid.saturating_add(self.answers.late);
        match self.types.iter().find(|it| it.rtype == "AAAA") {
            Some(aaaa) => (aaaa.sent, aaaa.valid),
            None if self.types.is_empty() => (self.queries_sent, answered),
            None => (0, 0),
        }
    }
}

/// Serialises a duration in seconds. Values up to 2^20 s, 12 days, are exact to the nanosecond: neighbouring numbers
/// are a quarter of a nanosecond apart there.
mod seconds {
    use dns64_transport::clock::Nanos;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(span_ns: &Nanos, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(*span_ns as f64 / 1e9)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast saturates"
    )]
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Nanos, D::Error> {
        Ok((f64::deserialize(from)? * 1e9).round() as Nanos)
    }
}

#[cfg(test)]
mod tests;
