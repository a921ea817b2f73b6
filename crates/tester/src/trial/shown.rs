//! Checks a recorded result for faults of the Tester that its figures show, without ledgers and counters.

use dns64_transport::clock::Nanos;

use super::disturbance;
use super::fault::TesterFault;
use super::place::{Losses, Place, Source};
use super::result::{Outcome, Timing, TrialResult};
use super::summary::{CLOCK_STEP_MAX_NS, host_fault, late_schedule, slow_authority};
use crate::load::pace::Schedule;

/// Returns a fault that the figures prove, regardless of the verdict. `None` proves nothing: for some faults a result
/// contains too few figures.
pub fn fault(result: &TrialResult) -> Option<TesterFault> {
    let timing = &result.timing;
    let step_ns = timing.clock_step_ns.unwrap_or(0);
    let stepped = step_ns.unsigned_abs() > CLOCK_STEP_MAX_NS;
    stepped
        .then_some(TesterFault::ClockStep { step_ns })
        .or_else(|| result.clocks.iter().find_map(host_fault))
        .or_else(|| overflow(result))
        .or_else(|| late(result))
        .or_else(|| excuse(result))
}

fn late(result: &TrialResult) -> Option<TesterFault> {
    let limits = result.timing.limits.unwrap_or_default();
    late_schedule(
        &result.timing,
        &limits,
        result.ended_early,
        result.duration_ns,
    )
}

fn overflow(result: &TrialResult) -> Option<TesterFault> {
    let replies = result.authority?.misbehaviour?.overflowed;
    (replies > 0).then_some(TesterFault::AuthorityOverflow { replies })
}

/// Returns a fault that matters only in a failed trial.
fn excuse(result: &TrialResult) -> Option<TesterFault> {
    if !matches!(result.outcome, Outcome::Failed { .. }) {
        return None;
    }
    let explained = |losses| explanation(losses, result).cloned();
    let lost = result.losses.as_ref().and_then(explained);
    lost.map(TesterFault::NetworkLoss)
        .or_else(|| slow(result))
        .or_else(|| {
            // Even if all queries that were open at an early end had been lost.
            let most = result.outcome.shortfall().saturating_add(result.undecided);
            theft(result, most)
        })
}

/// Returns the fault of a slow authority behind a DUT.
fn slow(result: &TrialResult) -> Option<TesterFault> {
    result.certified?;
    let told = result.path.as_ref().map(|path| path.authority);
    slow_authority(&told.or(result.authority_sampled)?)
}

/// Returns the largest loss on the Tester's side, if these losses explain every missing answer and nothing else was
/// wrong: then the DUT has lost none beyond them.
fn explanation<'r>(losses: &'r Losses, result: &TrialResult) -> Option<&'r Source> {
    let answers = &result.answers;
    let of_dut = |place| matches!(place, Place::DutSockets | Place::Dut);
    // All queries that were open at an early end may have been lost.
    let (mut rest, mut slack) = (losses.undecided.saturating_add(result.undecided), 0_u64);
    for placed in &losses.places {
        if placed.source.is_some() {
            slack = slack.saturating_add(placed.high.saturating_sub(placed.low));
        } else if of_dut(placed.place) {
            rest = rest.saturating_add(placed.low);
        }
    }
    let only_missing = answers.missing > 0 && answers.answered() == answers.valid;
    let sources = losses.places.iter().filter_map(|p| p.source.as_ref());
    let largest = sources.max_by_key(|source| source.count);
    largest.filter(|_| only_missing && rest <= slack)
}

/// Returns the fault that others had the core of a role long enough to explain this number of losses.
fn theft(result: &TrialResult, lost: u64) -> Option<TesterFault> {
    let limits = result.timing.limits.unwrap_or_default();
    let schedule = Schedule::new(result.rate_qps, result.duration_ns);
    let span = result.losses.as_ref().and_then(|losses| losses.span);
    let told = result.timing.catch_up.unwrap_or_default();
    let lost = (lost.saturating_sub(told.explained()), span);
    disturbance::fault(result.machine.as_ref()?, &limits, &schedule, lost)
}

/// Returns whether the sender had this lateness, above this limit. The figure depends on the pacing.
fn was_late(result: &TrialResult, lateness_ns: Nanos, limit_ns: Nanos) -> bool {
    let timing = &result.timing;
    if timing.self_correcting.is_none() {
        return lateness_ns == timing.lateness_ns_max && lateness_ns > limit_ns;
    }
    late(result)
        == Some(TesterFault::LateSchedule {
            lateness_ns,
            limit_ns,
            cause: None,
        })
}

/// Returns whether the figures of a trial are consistent with the fault in its verdict; `None` if it contains no
/// relevant figures.
pub fn shows(fault: &TesterFault, result: &TrialResult) -> Option<bool> {
    let timing = &result.timing;
    let shortfall = result
        .queries_sent
        .saturating_sub(result.answers.valid)
        .saturating_sub(result.undecided);
    match fault {
        TesterFault::NotSent { queries } => {
            let unsent = result.queries_due.saturating_sub(result.queries_sent);
            Some((1..=unsent).contains(queries))
        }
        TesterFault::LateSchedule {
            lateness_ns,
            limit_ns,
            ..
        } => Some(was_late(result, *lateness_ns, *limit_ns)),
        TesterFault::RateError { sent, due, allowed } => {
            Some(was_off(timing, *sent, *due) && sent.abs_diff(*due) > *allowed)
        }
        TesterFault::CatchUpBurst {
            stall_ns,
            burst_queries,
            lost,
            ..
        } => timing.catch_up.map(|told| {
            let figures = (
                told.stall_ns_max,
                told.burst_queries_max,
                told.lost_in_bursts,
            );
            figures == (*stall_ns, *burst_queries, *lost) && *lost == shortfall
        }),
        TesterFault::Disturbed { .. } => {
            let shown = theft(result, shortfall).as_ref() == Some(fault) && shortfall > 0;
            result.machine.as_ref().map(|_| shown)
        }
        TesterFault::ReceiveDrops { datagrams } => {
            Some((1..=result.tester_drops).contains(datagrams))
        }
        TesterFault::AuthorityDrops { datagrams } => {
            let own = (1..=result.tester_drops).contains(datagrams);
            // Drops of an authority that is a separate program are at most in `losses`.
            let is_own = result.authority.is_some() || result.losses.is_none();
            (own || is_own).then_some(own)
        }
        TesterFault::NetworkLoss(source) | TesterFault::NetworkDelay(source) => {
            // A place without a missing query is not listed, and a difference of two hosts is not a counter.
            let counted = counts(result.losses.as_ref()?, source);
            counted.then_some(true)
        }
        TesterFault::AuthoritySlow { .. } => {
            Some(slow(result).as_ref() == Some(fault) && shortfall > 0)
        }
        TesterFault::AuthorityOverflow { .. } => Some(overflow(result).as_ref() == Some(fault)),
        TesterFault::ClockStep { step_ns } => timing
            .clock_step_ns
            .map(|told| told == *step_ns && told.unsigned_abs() > CLOCK_STEP_MAX_NS),
        TesterFault::HostLate { .. } | TesterFault::HostClock { .. } => {
            Some(result.clocks.iter().find_map(host_fault).as_ref() == Some(fault))
        }
        // For these and all other faults a result contains only the verdict.
        _ => None,
    }
}

/// Returns whether the sender can have deviated by this in 100 ms.
fn was_off(timing: &Timing, sent: u64, due: u64) -> bool {
    let off_pct = 100.0 * sent.abs_diff(due) as f64 / due as f64;
    due == 0 || off_pct <= timing.bin_100ms_deviation_pct_max + PCT_STEP
}

/// Returns whether the losses of a trial contain this counter.
fn counts(losses: &Losses, source: &Source) -> bool {
    let placed = losses.places.iter();
    let placed = placed.filter_map(|placed| placed.source.as_ref());
    placed.chain(&losses.counters).any(|known| known == source)
}

/// Tolerance: the last digit of quotients may change when they are written and read.
const PCT_STEP: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procedure::simulated::result;
    use crate::trial::place::{Evidence, Facts, Kind, Placing, place};

    /// A delay of responses between DUT and authority that only the difference of two counters shows.
    fn held() -> Evidence {
        Evidence {
            place: Place::ToAuthority,
            kind: Kind::Held,
            source: Source {
                host: "DUT".to_owned(),
                link: Some("upstream".to_owned()),
                counter: "packets that left and did not arrive".to_owned(),
                count: 7,
            },
            low: 0,
            high: None,
        }
    }

    /// Places of the losses of a trial with delayed responses and these numbers of queries without a valid answer.
    fn held_back(missing: u64, late: u64) -> Placing {
        place(Facts {
            missing,
            late,
            each: 1000,
            is_watched: true,
            evidence: vec![held()],
            ..Facts::default()
        })
    }

    #[test]
    fn loss_with_only_late_answers_is_not_verifiable() {
        let (missing, late) = (0, 5);
        let placing = held_back(missing, late);
        let source = placing.cause.expect("it explains late answers").source;
        let fault = TesterFault::NetworkDelay(source);
        let mut told = result(100, Outcome::Invalid(fault.clone()));
        (told.answers.valid, told.answers.late) = (100 - late, late);
        told.losses = Some(placing.losses);
        assert_eq!(shows(&fault, &told), None);
    }

    #[test]
    fn loss_that_explains_missing_answers_is_listed() {
        let (missing, late) = (5, 0);
        let placing = held_back(missing, late);
        let source = placing.cause.expect("it explains missing answers").source;
        let mut told = result(100, Outcome::Failed { shortfall: missing });
        told.losses = Some(placing.losses);
        assert_eq!(fault(&told), Some(TesterFault::NetworkLoss(source.clone())));
        assert_eq!(shows(&TesterFault::NetworkLoss(source), &told), Some(true));
    }
}
