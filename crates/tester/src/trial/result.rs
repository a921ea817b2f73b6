//! What a trial found: plain data, from which everything downstream is computed.

use dns64_transport::clock::Nanos;
use serde::{Deserialize, Serialize};

use super::achieved::Achieved;
use super::fault::TesterFault;
use super::path::{AuthorityTimes, Path};
use super::place::Losses;
use super::service::Service;
use crate::authority::counts::AuthorityCounts;
use crate::lab::process::Resources;
use crate::lab::usage::Usage;
use crate::load::catch_up::Limits;
use crate::load::names::Dealt;
use crate::load::pace::SelfCorrected;

/// How a host's clock stood to the controller's during a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostClock {
    /// Its name in the plan.
    pub host: String,
    /// Its monotonic clock less the controller's, when the trial began.
    pub offset_ns: i64,
    /// This is wrong by no more: the host began within so long of the moment that all had agreed on.
    pub bound_ns: Nanos,
    /// How fast the offset grew from before the trial to after it, in parts of a million.
    pub drift_ppm: f64,
    /// How many exchanges it was found by.
    pub exchanges: u64,
    /// How long after the start it was told to begin; 0 in time.
    #[serde(default)]
    pub late_ns: Nanos,
}

/// What one of several authorities did in a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityShare {
    /// The name of its host in the plan.
    pub host: String,
    /// Questions that it got; of an authority that is a program the datagrams that came to the programs of its host.
    pub questions: u64,
    /// Datagrams that its sockets lost, and replies that the network did not take; of a program 0: see the counters in
    /// [`TrialResult::losses`].
    pub drops: u64,
}

/// What one trial says about the DUT (RFC 8219 section 9.2), or that it says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Verdict", try_from = "Verdict")]
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

impl Outcome {
    /// The word for it: "passed", "failed" or "invalid".
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed { .. } => "failed",
            Self::Invalid(_) => "invalid",
        }
    }

    /// Queries without a valid answer in time; 0 unless it failed.
    pub fn shortfall(&self) -> u64 {
        match self {
            Self::Failed { shortfall } => *shortfall,
            Self::Passed | Self::Invalid(_) => 0,
        }
    }

    /// Why it says nothing, if it is invalid.
    pub fn fault(&self) -> Option<&TesterFault> {
        match self {
            Self::Invalid(fault) => Some(fault),
            Self::Passed | Self::Failed { .. } => None,
        }
    }
}

/// The serialised form of an [`Outcome`]: the same keys whatever it is.
#[derive(Serialize, Deserialize)]
struct Verdict {
    outcome: String,
    /// The fault in words, for the reader.
    #[serde(skip_deserializing)]
    invalid_because: Option<String>,
    fault: Option<TesterFault>,
    shortfall: u64,
}

impl From<Outcome> for Verdict {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome: outcome.word().to_owned(),
            invalid_because: outcome.fault().map(ToString::to_string),
            fault: outcome.fault().cloned(),
            shortfall: outcome.shortfall(),
        }
    }
}

impl TryFrom<Verdict> for Outcome {
    type Error = String;

    fn try_from(verdict: Verdict) -> Result<Self, String> {
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

impl Answers {
    /// Queries that got an answer of whatever kind: those that have a round-trip time.
    pub fn answered(&self) -> u64 {
        self.valid + self.late + self.wrong + self.empty + self.error + self.truncated
    }
}

/// Round-trip times of the answered queries, from the sending of each query; `None` without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rtt {
    /// Median.
    pub p50: Option<Nanos>,
    /// 99th percentile.
    pub p99: Option<Nanos>,
    /// 99.9th percentile.
    pub p999: Option<Nanos>,
    /// Largest.
    pub max: Option<Nanos>,
    /// Mean; not in older journals.
    #[serde(default)]
    pub mean: Option<Nanos>,
}

/// How well the sender kept to its schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Median lateness of a query against its due time.
    pub lateness_ns_p50: Nanos,
    /// 99th percentile of the lateness.
    pub lateness_ns_p99: Nanos,
    /// 99.9th percentile of the lateness.
    pub lateness_ns_p999: Nanos,
    /// Largest lateness.
    pub lateness_ns_max: Nanos,
    /// Largest deviation of the queries sent in a bin of 10 ms from those due in it, in per cent (paper 001, V).
    pub bin_10ms_deviation_pct_max: f64,
    /// The same for bins of 100 ms (paper 001, section III).
    pub bin_100ms_deviation_pct_max: f64,
    /// Span of the schedule whose queries may leave in one system call.
    pub quantum_ns: Nanos,
    /// Queries that leave in one system call.
    pub burst: u64,
    /// The same as `bin_10ms_deviation_pct_max` for bins of 1 ms; `None` for trials of more than an hour, and
    /// in journals from before this key, like all that follows.
    #[serde(default)]
    pub bin_1ms_deviation_pct_max: Option<f64>,
    /// Longest system call that sent queries. Round-trip times count from before the call, because answers
    /// can come before it returns: none is told longer than it was by more than this.
    #[serde(default)]
    pub send_call_ns_max: Option<Nanos>,
    /// What the kernel reads the time from.
    #[serde(default)]
    pub clock_source: Option<String>,
    /// Largest step of the real-time clock, which stamps what is received, against the monotonic one.
    #[serde(default)]
    pub clock_step_ns: Option<i64>,
    /// What the sender had to make up for.
    #[serde(default)]
    pub catch_up: Option<CatchUp>,
    /// Beyond what the trial was to be invalid.
    #[serde(default)]
    pub limits: Option<Limits>,
    /// How the sender kept to the self-correcting timer, if that paced it.
    #[serde(default)]
    pub self_correcting: Option<SelfCorrected>,
}

impl Timing {
    /// Whether the sender fell behind its schedule, which it does again at this rate. One that was stopped for some
    /// moments is late with the queries of those only.
    pub fn is_behind(&self) -> bool {
        self.lateness_ns_p50 >= BEHIND_NS
    }
}

/// A rate that is half a per cent too much makes half of the queries so late in a trial of 5 s.
const BEHIND_NS: Nanos = 10_000_000;

/// Stalls of the sender after which more queries were due than may leave at once, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatchUp {
    /// How many, of all threads together.
    pub stalls: u64,
    /// The longest.
    pub stall_ns_max: Nanos,
    /// Queries that the largest kept back: the stall times the rate.
    pub burst_queries_max: u64,
    /// Queries without a valid answer that left while a server might still have a queue from a catch-up burst, if
    /// it can do a tenth more than the offered rate.
    pub lost_in_bursts: u64,
}

impl CatchUp {
    /// Queries without a valid answer that bursts explain beside another disturbance: no burst makes a server lose more
    /// than it has.
    pub(super) fn explained(&self) -> u64 {
        let sent_at_once = self.stalls.saturating_mul(self.burst_queries_max);
        self.lost_in_bursts.min(sent_at_once)
    }
}

/// Where the distribution of the round-trip times is looked at: denser toward the tail, for a
/// logarithmic axis.
pub const PERCENTILES: [f64; 16] = [
    0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999,
    100.0,
];

/// Result of one trial, put together by [`summary::result`](super::summary::result) and not changed
/// afterwards. Its serialised form is that of the journal and of `--json`: see `docs/journal.md` and
/// `schema/trial.schema.json` before a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", rename = "trial/2")]
pub struct TrialResult {
    /// The verdict.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Whether the Tester was certified for a DUT at this rate; `None` if no DUT was asked, as in a
    /// self-test, which is what certifies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certified: Option<bool>,
    /// Offered rate.
    pub rate_qps: u64,
    /// Length of the schedule.
    #[serde(rename = "duration_s", with = "seconds")]
    pub duration_ns: Nanos,
    /// An answer counts until this long after its query was sent.
    #[serde(rename = "timeout_s", with = "seconds")]
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
    #[serde(rename = "rtt_ns")]
    pub rtt: Rtt,
    /// Round-trip times at [`PERCENTILES`], as far as there are answers enough to tell: per cent and
    /// nanoseconds.
    #[serde(rename = "rtt_percentiles_ns")]
    pub rtt_percentiles: Vec<(f64, Nanos)>,
    /// Timing of the sender.
    pub timing: Timing,
    /// Datagrams lost by the Tester's own sockets.
    pub tester_drops: u64,
    /// Where the queries without a valid answer were lost; `None` in results from before this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
    /// What the authority counted, when it is ours.
    pub authority: Option<AuthorityCounts>,
    /// The share of each host in that, where several are authorities; in results from before this key there was one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authorities: Vec<AuthorityShare>,
    /// How long an authority that is another program took for questions beside the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_sampled: Option<AuthorityTimes>,
    /// The fresh names that it asked for; `None` in journals from before this key.
    #[serde(default)]
    pub names: Option<Dealt>,
    /// The shares as the authority saw them; `None` without an authority of ours or a DUT.
    pub achieved: Option<Achieved>,
    /// What the DUT served while queries waited in it; `None` where the delay of its answers did not
    /// grow, and in journals from before this key.
    #[serde(default)]
    pub service: Option<Service>,
    /// The way of the queries through DUT and authority, when the authority is ours.
    #[serde(default)]
    pub path: Option<Path>,
    /// What the DUT used after the trial, when it is ours to look at.
    #[serde(flatten, with = "dut_resources")]
    pub resources: Option<Resources>,
    /// How the DUT ended during the trial, and its last log lines, if it did.
    pub dut_exit: Option<String>,
    /// What the machine did during the trial, as far as it tells.
    #[serde(default)]
    pub machine: Option<Usage>,
    /// Whether queries left, and replies were taken in, in segmented runs; not there in results of
    /// earlier versions, which had no choice: they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segmentation: Option<bool>,
    /// The hosts whose parts it is made of; none if all roles were on one machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<HostClock>,
    /// Kind of link.
    pub backend: String,
    /// Plain remarks for the reader: refused connections, losses at the DUT's sockets, ...
    pub notes: Vec<String>,
}

/// A span as seconds. What was written is read again to the nanosecond up to 2^20 s, 12 days:
/// neighbouring numbers are a quarter of a nanosecond apart there.
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

/// The resources of the DUT, and their memory once more under the key that it has always had.
mod dut_resources {

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::lab::process::Resources;

    #[derive(Serialize, Deserialize)]
    struct Form {
        #[serde(skip_deserializing)]
        dut_memory_bytes: Option<u64>,
        resources: Option<Resources>,
    }

    pub(super) fn serialize<S: Serializer>(
        resources: &Option<Resources>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let form = Form {
            dut_memory_bytes: resources.map(|r| r.memory_bytes),
            resources: *resources,
        };
        form.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Resources>, D::Error> {
        Ok(Form::deserialize(from)?.resources)
    }
}

#[cfg(test)]
mod tests;
