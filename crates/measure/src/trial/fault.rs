//! Faults on the Tester's side during a trial, with text and remedy.

use std::fmt;

use dns64_transport::clock::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cause::Cause;
use super::place::Source;
use crate::machine::Role;

/// A fault of the Tester, its host or its network. Never a loss of the DUT.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TesterFault {
    /// The kernel did not accept queries that were due.
    NotSent {
        /// Number of queries.
        queries: u64,
    },
    /// A query left too late.
    LateSchedule {
        /// Largest lateness.
        lateness_ns: Nanos,
        /// Allowed lateness.
        limit_ns: Nanos,
        /// Cause of the delay, if known.
        cause: Option<Cause>,
    },
    /// Too many or too few queries were sent in a span of 100 ms.
    RateError(RateError),
    /// The trial failed, and every query without a valid answer was sent in or shortly after a catch-up burst of the
    /// sender.
    CatchUpBurst {
        /// Longest stall.
        stall_ns: Nanos,
        /// Queries delayed by the largest stall.
        burst_queries: u64,
        /// Maximum number of queries in a burst.
        limit_queries: u64,
        /// Offered rate.
        rate_qps: u64,
        /// Queries without a valid answer.
        lost: u64,
        /// Cause of the stall, if known.
        cause: Option<Cause>,
    },
    /// The trial failed, and others used the core of the DUT or of the authority.
    Disturbed {
        /// Role of the core.
        role: Role,
        /// Time without the core.
        taken_ns: Nanos,
        /// Allowed time.
        limit_ns: Nanos,
        /// Main cause.
        cause: Cause,
    },
    /// Responses arrived at the Measurer, but its socket buffers were full.
    ReceiveDrops {
        /// Number of datagrams.
        datagrams: u64,
    },
    /// Queries of the DUT arrived at the authority, but its socket buffers were full, or the network did not accept its
    /// replies.
    AuthorityDrops {
        /// Number of datagrams.
        datagrams: u64,
    },
    /// A host or a link between the roles lost packets, which can explain every missing answer.
    NetworkLoss(Source),
    /// A link delayed packets, which can explain late answers.
    NetworkDelay(Source),
    /// The authority, which injects faults, had to delay more replies than it can store, and lost some of them.
    AuthorityOverflow {
        /// Number of replies.
        replies: u64,
    },
    /// The authority responded too late, and the DUT left queries without a valid answer.
    AuthoritySlow {
        /// Number of responses that exceeded the limit.
        answers: u64,
        /// Longest response time.
        slowest_ns: Nanos,
        /// A quarter of the timeout (RFC 8219 section 9.2.1), plus the configured delay.
        limit_ns: Nanos,
    },
    /// The user interrupted the trial.
    Interrupted,
    /// A trial at the next rate of a search needs more names than the range has left.
    TooFewNames {
        /// Number of unused names.
        left: u64,
        /// Number of names that the trial needs.
        needed: u64,
    },
    /// The authority exited during the trial.
    AuthorityDied {
        /// Its exit status.
        status: String,
    },
    /// The real-time clock was set during the trial, so that kernel receive timestamps are invalid.
    ClockStep {
        /// Size of the step.
        step_ns: i64,
    },
    /// A host started its part of the trial too late.
    HostLate {
        /// Name of the host in the plan.
        host: String,
        /// Delay of its start.
        late_ns: Nanos,
    },
    /// The offset of a host's clock from the controller's is too uncertain for a common start.
    HostClock {
        /// Name of the host in the plan.
        host: String,
        /// Uncertainty of the offset.
        bound_ns: Nanos,
        /// Allowed uncertainty.
        limit_ns: Nanos,
    },
    /// A system call of the Tester failed.
    Link {
        /// The error.
        error: String,
    },
}

/// What all faults of a kind have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultKind {
    /// Identifier in results.
    pub code: &'static str,
    /// Name in reports.
    pub name: &'static str,
    /// Whether it indicates too high a rate, so that a lower one may pass.
    pub is_of_rate: bool,
}

/// Queries sent and due in a span of 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct RateError {
    /// Queries sent in it.
    pub sent: u64,
    /// Queries due in it.
    pub due: u64,
    /// Allowed difference: a share of the queries due in a full span, even if the trial ends within it, and one call of
    /// each sender, which may be on either side of the border.
    pub allowed: u64,
}

impl TesterFault {
    /// Returns what it has in common with all faults of its kind.
    pub fn kind(&self) -> FaultKind {
        let (is_of_rate, code, name) = match self {
            Self::NotSent { .. } => (true, "not_sent", "queries not taken by the kernel"),
            Self::LateSchedule { .. } => (true, "late_schedule", "sender held up"),
            Self::RateError(_) => (true, "rate_error", "rate not kept"),
            Self::CatchUpBurst { .. } => (true, "catch_up_burst", "losses in catch-up bursts"),
            Self::Disturbed { .. } => (true, "disturbed", "others on a core of DUT or authority"),
            Self::ReceiveDrops { .. } => (true, "receive_drops", "replies lost at the Measurer"),
            Self::AuthorityDrops { .. } => (true, "authority_drops", "losses at the authority"),
            Self::NetworkLoss(_) => (true, "network_loss", "packets lost by the network"),
            Self::NetworkDelay(_) => (true, "network_delay", "packets held up by the network"),
            Self::AuthorityOverflow { .. } => (
                true,
                "authority_overflow",
                "too many replies delayed at the authority",
            ),
            Self::AuthoritySlow { .. } => (true, "authority_slow", "authority too slow"),
            Self::Interrupted => (false, "interrupted", "interrupted by the user"),
            Self::TooFewNames { .. } => (false, "too_few_names", "names used up"),
            Self::AuthorityDied { .. } => (false, "authority_died", "authority stopped"),
            Self::ClockStep { .. } => (false, "clock_step", "clock stepped"),
            Self::HostLate { .. } => (false, "host_late", "a host began too late"),
            Self::HostClock { .. } => (false, "host_clock", "a host's clock is not known"),
            Self::Link { .. } => (false, "link", "a system call failed"),
        };
        FaultKind {
            code,
            name,
            is_of_rate,
        }
    }

    /// Returns its identifier in results.
    pub fn code(&self) -> &'static str {
        self.kind().code
    }

    /// Describes the fault, with its figures.
    pub fn what(&self) -> String {
        match self {
            Self::NotSent { queries } => format!("the kernel refused {queries} queries"),
            Self::LateSchedule {
                lateness_ns,
                limit_ns,
                cause,
            } => format!(
                "the sender was held up for {:.1} ms and the limit is {:.1} ms{}",
                milliseconds(*lateness_ns),
                milliseconds(*limit_ns),
                because(cause.as_ref())
            ),
            Self::RateError(_) | Self::CatchUpBurst { .. } | Self::Disturbed { .. } => {
                self.what_was_harder()
            }
            Self::ReceiveDrops { datagrams } => {
                format!("the Measurer's sockets lost {datagrams} replies")
            }
            Self::AuthorityDrops { datagrams } => {
                format!("the authority lost {datagrams} queries or replies")
            }
            Self::NetworkLoss(source) => source.to_string(),
            Self::NetworkDelay(source) => format!(
                "{} delayed packets {} times ({})",
                source.at(),
                source.count,
                source.counter
            ),
            Self::AuthorityOverflow { replies } => {
                format!("the authority had no room for {replies} more of its delayed replies")
            }
            Self::AuthoritySlow {
                answers,
                slowest_ns,
                limit_ns,
            } => format!(
                "the authority took more than {:.1} ms for {answers} answers, {:.1} ms for the slowest",
                milliseconds(*limit_ns),
                milliseconds(*slowest_ns)
            ),
            Self::Interrupted => self.kind().name.to_owned(),
            Self::TooFewNames { left, needed } => {
                format!(
                    "a trial at the next rate needs {needed} names, and the range has only {left} left"
                )
            }
            Self::AuthorityDied { status } => {
                format!("the authority stopped during the trial ({status})")
            }
            Self::ClockStep { step_ns } => {
                format!("the real-time clock was stepped by {step_ns} ns during the trial")
            }
            Self::HostLate { host, late_ns } => late(host, *late_ns),
            Self::HostClock {
                host,
                bound_ns,
                limit_ns,
            } => vague(host, *bound_ns, *limit_ns),
            Self::Link { error } => error.clone(),
        }
    }

    /// Describes how the load of the DUT was harder than the schedule.
    fn what_was_harder(&self) -> String {
        match self {
            Self::RateError(RateError { sent, due, allowed }) => format!(
                "a span of 100 ms had {sent} queries instead of {due}; the largest difference allowed is {allowed}"
            ),
            Self::CatchUpBurst {
                stall_ns,
                burst_queries,
                limit_queries,
                rate_qps,
                lost,
                cause,
            } => format!(
                "all {lost} unanswered queries were sent in catch-up bursts: at {rate_qps} queries/s a stall of \
                 {:.1} ms delayed {burst_queries} queries, and at most {limit_queries} may be sent at once{}",
                milliseconds(*stall_ns),
                because(cause.as_ref())
            ),
            Self::Disturbed {
                role,
                taken_ns,
                limit_ns,
                cause,
            } => format!(
                "{}; it waited {:.0} ms in total and the limit is {:.0} ms",
                cause.what(*role),
                milliseconds(*taken_ns),
                milliseconds(*limit_ns)
            ),
            _ => String::new(),
        }
    }

    /// Returns the fault with the cause of its stall.
    #[must_use]
    pub(super) fn caused(mut self, why: impl FnOnce(Nanos) -> Option<Cause>) -> Self {
        match &mut self {
            Self::LateSchedule {
                lateness_ns: stall_ns,
                cause,
                ..
            }
            | Self::CatchUpBurst {
                stall_ns, cause, ..
            } => *cause = why(*stall_ns),
            _ => {}
        }
        self
    }

    /// Returns the remedy, if there is one.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::NotSent { .. } => Some("lower the rate or raise the socket buffers"),
            Self::LateSchedule { cause, .. } | Self::CatchUpBurst { cause, .. } => {
                Some(cause.as_ref().map_or(OWN_CORE, Cause::remedy))
            }
            Self::RateError(_) => Some(OWN_CORE),
            Self::Disturbed { cause, .. } => Some(cause.remedy()),
            Self::ReceiveDrops { .. } => Some("raise net.core.rmem_max or use more --threads"),
            Self::AuthorityDrops { .. } => Some("give it more cores of its own (--authority-cpus)"),
            Self::NetworkLoss(_) => {
                Some("look at its queue and its filters (`tc -s qdisc`, `nft list ruleset`)")
            }
            Self::NetworkDelay(_) => Some("remove the limit or lower the rate"),
            Self::AuthorityOverflow { .. } => {
                Some("shorten its delay, lower the rate or give it more --authority-cpus")
            }
            Self::AuthoritySlow { .. } => {
                Some("give the authority a core of its own (--authority-cpus) or lower the rate")
            }
            Self::TooFewNames { .. } => Some("use a wider --namespace, or shorter trials"),
            Self::ClockStep { .. } => Some("stop the program that sets the clock"),
            Self::HostLate { .. } | Self::HostClock { .. } => {
                Some("find out what delays this host or the connection to it")
            }
            Self::Interrupted | Self::AuthorityDied { .. } | Self::Link { .. } => None,
        }
    }
}

/// Remedy for a sender that is late for an unknown reason.
const OWN_CORE: &str = "give the Tester a core of its own (--cpus) or lower the rate";

fn late(host: &str, late_ns: Nanos) -> String {
    let late = milliseconds(late_ns);
    format!("host {host} began its part of the trial {late:.1} ms too late")
}

fn vague(host: &str, bound_ns: Nanos, limit_ns: Nanos) -> String {
    let (bound, limit) = (milliseconds(bound_ns), milliseconds(limit_ns));
    format!(
        "the clock of host {host} is known to within {bound:.1} ms only and the limit is {limit:.1} ms"
    )
}

/// Formats the cause as the end of a sentence.
fn because(cause: Option<&Cause>) -> String {
    cause.map_or_else(String::new, |cause| {
        format!(": {}", cause.what(Role::Measurer))
    })
}

impl fmt::Display for TesterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        self.remedy()
            .map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

fn milliseconds(span_ns: Nanos) -> f64 {
    span_ns as f64 / 1e6
}
