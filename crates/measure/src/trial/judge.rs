//! The verdict on a trial, from the figures in its result: a pure function for a fresh trial and for a recorded one.
//!
//! A rule is a function from the figures to the fault that they show. A new fault is a new rule, listed in `RULES`.

use dns64_transport::clock::{Nanos, SECOND};

use super::cause::Cause;
use super::disturbance;
use super::fault::TesterFault;
use super::place::{LossFacts, LossKind, Place, UpstreamReach, place};
use super::result::{HostClock, Outcome, TrialResult};
use crate::load::catch_up::RESERVE;
use crate::load::pace::Schedule;
use crate::machine::Role;
use crate::machine::counters::SEGMENTS_MAX;

type Rule = fn(&TrialResult) -> Option<TesterFault>;

/// The first fault found is that of the trial: faults that make all figures unreliable, losses that a counter shows,
/// faults of the sender, and last those that only may explain losses.
const RULES: [Rule; 14] = [
    interrupted,
    authority_died,
    failed_call,
    stepped_clock,
    host_not_in_time,
    not_sent,
    lost_outside_the_dut,
    authority_overflow,
    late_schedule,
    rate_error,
    catch_up_burst,
    slow_authority,
    disturbed,
    crowded,
];

/// Returns the outcome that follows from the figures of a trial, whatever its `outcome` is.
pub fn judge(trial: &TrialResult) -> Outcome {
    let fault = RULES.iter().find_map(|rule| rule(trial));
    let shortfall = trial.unanswered();
    match fault {
        Some(fault) => {
            Outcome::Invalid(disturbance::explained(fault, &trial.machine, &trial.timing))
        }
        None if shortfall == 0 && !trial.ended_early => Outcome::Passed,
        None => Outcome::Failed { shortfall },
    }
}

fn interrupted(trial: &TrialResult) -> Option<TesterFault> {
    trial.interrupted.then_some(TesterFault::Interrupted)
}

fn authority_died(trial: &TrialResult) -> Option<TesterFault> {
    let status = trial.authority_exit.clone()?;
    Some(TesterFault::AuthorityDied { status })
}

fn failed_call(trial: &TrialResult) -> Option<TesterFault> {
    let error = trial.error.clone()?;
    Some(TesterFault::Link { error })
}

fn stepped_clock(trial: &TrialResult) -> Option<TesterFault> {
    let step_ns = trial.timing.clock_step_ns;
    (step_ns.unsigned_abs() > CLOCK_STEP_MAX_NS).then_some(TesterFault::ClockStep { step_ns })
}

/// Minimum change of the real-time clock's offset that counts as a step. The offset is read to well below a
/// microsecond.
const CLOCK_STEP_MAX_NS: u64 = 10_000;

/// A host began too late, or its clock is too uncertain.
fn host_not_in_time(trial: &TrialResult) -> Option<TesterFault> {
    let fault = |clock: &HostClock| {
        let host = || clock.host.clone();
        if clock.late_ns > 0 {
            let (host, late_ns) = (host(), clock.late_ns);
            return Some(TesterFault::HostLate { host, late_ns });
        }
        (clock.bound_ns > CLOCK_BOUND_MAX_NS).then(|| TesterFault::HostClock {
            host: host(),
            bound_ns: clock.bound_ns,
            limit_ns: CLOCK_BOUND_MAX_NS,
        })
    };
    trial.clocks.iter().find_map(fault)
}

/// Width of the shortest bins in which a schedule is judged, 1 ms (Lencse and Pivoda 2018, section III): hosts with a
/// larger uncertainty do not keep a common schedule.
pub const CLOCK_BOUND_MAX_NS: Nanos = 1_000_000;

/// The kernel refused queries, or a queue did whose drops it reports.
fn not_sent(trial: &TrialResult) -> Option<TesterFault> {
    let evidence = &trial.losses.evidence;
    let queries = evidence.not_sent;
    let refused_by = evidence.refused_by.clone();
    let not_sent = TesterFault::NotSent { queries };
    (queries > 0).then(|| refused_by.map_or(not_sent, TesterFault::NetworkLoss))
}

/// Losses on the Tester's side explain the queries without a valid answer. A trial with only valid answers has none,
/// regardless of other losses.
fn lost_outside_the_dut(trial: &TrialResult) -> Option<TesterFault> {
    let cause = place(LossFacts::of(trial)).cause?;
    let datagrams = cause.source.count;
    Some(match (cause.kind, cause.place) {
        (LossKind::Sockets, Place::Measurer) => TesterFault::ReceiveDrops { datagrams },
        (LossKind::Sockets, _) => TesterFault::AuthorityDrops { datagrams },
        (LossKind::Lost, _) => TesterFault::NetworkLoss(cause.source),
        (LossKind::Held, _) => TesterFault::NetworkDelay(cause.source),
    })
}

/// An authority that injects faults could not store all delayed replies.
fn authority_overflow(trial: &TrialResult) -> Option<TesterFault> {
    let replies = trial.authority?.misbehaviour?.overflowed;
    (replies > 0).then_some(TesterFault::AuthorityOverflow { replies })
}

/// The sender was delayed for too long. With the self-correcting timer the delay is relative to the timer. In addition,
/// the sender may be behind the schedule up to the range of a ledger, and may exceed the length of a trial that ran to
/// its end by 1 % (Lencse and Bakai 2017, figure 3).
fn late_schedule(trial: &TrialResult) -> Option<TesterFault> {
    let max_stall_ns = trial.timing.limits.max_stall_ns;
    let behind_ns = trial.timing.lateness_ns_max;
    let late = |(lateness_ns, limit_ns): &(Nanos, Nanos)| lateness_ns > limit_ns;
    let judged = match trial.timing.self_correcting {
        None => [(behind_ns, max_stall_ns)].into_iter().find(late),
        Some(kept) => {
            let overrun_ns = if trial.ended_early {
                0
            } else {
                kept.overrun_ns
            };
            let figures = [
                (kept.held_up_ns_max, max_stall_ns),
                (behind_ns, SELF_CORRECTING_BEHIND_MAX_NS),
                (overrun_ns, trial.duration_ns / SELF_CORRECTING_OVERRUN_PART),
            ];
            figures.into_iter().find(late)
        }
    };
    judged.map(|(lateness_ns, limit_ns)| TesterFault::LateSchedule {
        lateness_ns,
        limit_ns,
        cause: None,
    })
}

/// Lateness in a ledger, and thus the sending times, are limited to 4.29 s.
const SELF_CORRECTING_BEHIND_MAX_NS: Nanos = 4 * SECOND;

/// 1 %: see [`late_schedule`].
const SELF_CORRECTING_OVERRUN_PART: Nanos = 100;

/// The self-correcting timer leaves the schedule by design.
fn rate_error(trial: &TrialResult) -> Option<TesterFault> {
    let worst = trial.timing.rate_error?;
    let is_scheduled = trial.timing.self_correcting.is_none();
    let is_off = worst.sent.abs_diff(worst.due) > worst.allowed;
    (is_scheduled && is_off).then_some(TesterFault::RateError(worst))
}

/// Catch-up bursts of the sender explain every loss.
fn catch_up_burst(trial: &TrialResult) -> Option<TesterFault> {
    let bursts = trial.timing.catch_up;
    let lost = trial.unanswered();
    let explain_all = bursts.lost_in_bursts == lost && bursts.lost_beyond_bursts == 0;
    (lost > 0 && explain_all).then_some(TesterFault::CatchUpBurst {
        stall_ns: bursts.stall_ns_max,
        burst_queries: bursts.burst_queries_max,
        limit_queries: trial.timing.limits.max_burst_queries,
        rate_qps: trial.rate_qps,
        lost,
        cause: None,
    })
}

/// The authority responded too late to a DUT that left queries without a valid answer. A pass with such an authority is
/// a harder test and stands.
fn slow_authority(trial: &TrialResult) -> Option<TesterFault> {
    trial.certified.filter(|_| trial.unanswered() > 0)?;
    let recorded = trial.path.as_ref().map(|path| path.authority);
    let times = recorded.or(trial.authority_sampled)?;
    (times.slow > 0).then_some(TesterFault::AuthoritySlow {
        answers: times.slow,
        slowest_ns: times.max_ns?,
        limit_ns: times.limit_ns,
    })
}

/// Others had a core of the DUT or the authority, which explains why the trial failed.
fn disturbed(trial: &TrialResult) -> Option<TesterFault> {
    let shortfall = Some(trial.unanswered()).filter(|&lost| lost > 0)?;
    // At most all queries that were open at an early end had been lost.
    let hanging = trial.losses.evidence.hanging;
    let in_bursts = trial.timing.catch_up.explained().min(shortfall);
    let lost = (shortfall - in_bursts).saturating_add(hanging);
    let schedule = Schedule::new(trial.rate_qps, trial.duration_ns);
    let limits = &trial.timing.limits;
    disturbance::fault(&trial.machine, limits, &schedule, (lost, trial.losses.span))
}

/// The DUT lost queries on the machine of the Tester, where processes waited for a processor for a tenth of the trial or
/// more: a server with less than that in reserve loses queries. The pattern of a policy shows that it answered as it meant.
fn crowded(trial: &TrialResult) -> Option<TesterFault> {
    let usage = &trial.machine;
    let is_due = trial.server_is_here && trial.policy.is_none();
    let pressure_ns = usage.pressure_ns.filter(|_| is_due)?;
    let limit_ns = usage.span_ns / RESERVE;
    let is_crowded = trial.unanswered() > 0 && pressure_ns > limit_ns;
    is_crowded.then_some(TesterFault::Disturbed {
        role: Role::Dut,
        taken_ns: pressure_ns,
        limit_ns,
        cause: Cause::Crowded {
            pressure_ns,
            of_ns: usage.span_ns,
        },
    })
}

impl LossFacts {
    /// Returns the facts in the result of a trial.
    pub fn of(trial: &TrialResult) -> Self {
        let (answers, authority) = (&trial.answers, trial.authority);
        let schedule = Schedule::new(trial.rate_qps, trial.duration_ns);
        // Upstream queries for repeated names are unknown, and responses omitted on purpose are not losses.
        let is_exact = authority.is_none_or(|counts| counts.misbehaviour.is_none());
        let lost = trial.path.as_ref().map(|path| &path.lost);
        let lost = lost.filter(|lost| is_exact && lost.names == answers.missing);
        Self {
            evidence: trial.losses.evidence.clone(),
            missing: answers.missing,
            each: schedule.due_within(CLOGGED_NS).max(SEGMENTS_MAX),
            late: answers.late,
            not_valid: answers.answered() - answers.valid - answers.late,
            asked: lost.map(|lost| UpstreamReach {
                reached: lost.unserved + lost.served,
                answered: lost.served,
            }),
        }
    }
}

/// Time for which one lost packet can block a DUT. Of the servers with a profile, PowerDNS Recursor waits longest
/// before it retries, 1.5 s (its documentation of `network-timeout`); then the backlog must be processed.
const CLOGGED_NS: Nanos = 2 * SECOND;

#[cfg(test)]
mod tests;
