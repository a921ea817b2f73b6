//! The timing certificate of a trial: the accuracy of the sender's schedule, and the losses that the sender itself may
//! have caused. Pure functions on ledgers.
//!
//! Rules:
//!
//! - lateness above the maximum stall, or too large a rate error in a span of 100 ms, makes any trial invalid;
//! - a failed trial is invalid if catch-up bursts explain all its losses. A burst is a harder load than the schedule,
//!   so a pass stands;
//! - with the self-correcting timer, which leaves the schedule by design, a query is delayed if it is sent later than
//!   that timer allows. Instead of the rate, the total length counts, which may be exceeded by 1 %, as in the script of
//!   Lencse and Bakai (2017), figure 3.

use dns64_transport::clock::Nanos;

use super::TrialSpec;
use super::distribution::Times;
use super::fault::RateError;
use super::place::LossSpan;
use super::result::{CatchUp, Timing};
use crate::load::catch_up::{Episode, episodes, together};
use crate::load::generator::Finished;
use crate::load::ledger::{Fate, OfferedQuery};
use crate::load::pace::{Pacing, QUANTUM_NS, SelfCorrected, SelfCorrecting};

const BIN_1MS: Nanos = 1_000_000;
const BIN_10MS: Nanos = 10_000_000;
const BIN_100MS: Nanos = 100_000_000;

/// Maximum length of trials with bins of 1 ms: those of an hour take 58 MB.
const BINS_1MS_MAX_NS: Nanos = 3_600_000_000_000;

/// Accumulates lateness and rate, query by query.
pub(super) struct TimingSums {
    /// Largest step of the real-time clock in any shard.
    clock_step_ns: i64,
    lateness: Times,
    bins_1ms: Option<RateBins>,
    bins_10ms: RateBins,
    bins_100ms: RateBins,
}

impl TimingSums {
    pub(super) fn new(spec: &TrialSpec) -> Self {
        let schedule = spec.schedule;
        let last_due_ns = schedule.due_ns(schedule.queries().saturating_sub(1));
        Self {
            clock_step_ns: 0,
            lateness: Times::new(),
            bins_1ms: (last_due_ns < BINS_1MS_MAX_NS).then(|| RateBins::new(BIN_1MS, last_due_ns)),
            bins_10ms: RateBins::new(BIN_10MS, last_due_ns),
            bins_100ms: RateBins::new(BIN_100MS, last_due_ns),
        }
    }

    fn bins(&mut self) -> impl Iterator<Item = &mut RateBins> {
        let wide = [&mut self.bins_10ms, &mut self.bins_100ms];
        wide.into_iter().chain(&mut self.bins_1ms)
    }

    /// Adds the step of the real-time clock in a shard.
    pub(super) fn add_step(&mut self, step_ns: i64) {
        if step_ns.unsigned_abs() > self.clock_step_ns.unsigned_abs() {
            self.clock_step_ns = step_ns;
        }
    }

    /// Adds a query that was due, and that was sent if its entry says so.
    pub(super) fn add(&mut self, query: &OfferedQuery) {
        let (sent_ns, was_sent) = (query.sent_ns(), query.was_sent());
        for bins in self.bins() {
            bins.at(query.due_ns).due += 1;
            bins.at(sent_ns).sent += u64::from(was_sent);
        }
        if was_sent {
            self.lateness.record(query.entry.lateness_ns.into());
        }
    }

    /// Returns the certificate of a trial with this number of `lost` queries, without the clock source.
    pub(super) fn timing(&self, spec: &TrialSpec, shards: &[&Finished], lost: u64) -> Timing {
        let calls = shards.iter().map(|shard| shard.tally.longest_send_ns);
        let deviation = RateBins::deviation_pct_max;
        let lateness = |quantile| self.lateness.quantile(quantile).unwrap_or(0);
        Timing {
            lateness_ns_p50: lateness(0.5),
            lateness_ns_p99: lateness(0.99),
            lateness_ns_p999: lateness(0.999),
            lateness_ns_max: self.lateness.max().unwrap_or(0),
            bin_1ms_deviation_pct_max: self.bins_1ms.as_ref().map(deviation),
            bin_10ms_deviation_pct_max: self.bins_10ms.deviation_pct_max(),
            bin_100ms_deviation_pct_max: self.bins_100ms.deviation_pct_max(),
            quantum_ns: QUANTUM_NS,
            burst: spec.schedule.burst(),
            send_call_ns_max: calls.max(),
            clock_step_ns: self.clock_step_ns,
            clock_source: None,
            catch_up: bursts(spec, shards, self.lateness.max(), lost),
            rate_error: self.rate_error(spec),
            limits: spec.limits,
            self_correcting: (spec.pacing == Pacing::SelfCorrecting)
                .then(|| self_corrected(shards)),
        }
    }

    /// Returns the span of 100 ms with the largest rate error.
    fn rate_error(&self, spec: &TrialSpec) -> Option<RateError> {
        let whole = spec.schedule.due_within(BIN_100MS);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a positive count"
        )]
        let share = (spec.limits.max_rate_error_pct / 100.0 * whole as f64) as u64;
        let worst = self.bins_100ms.worst()?;
        Some(RateError {
            sent: worst.sent,
            due: worst.due,
            allowed: share + spec.schedule.burst() * spec.schedule.shards(),
        })
    }
}

/// Returns the catch-up bursts of a trial with this number of `lost` queries: sent, decided and without a valid answer
/// in time.
fn bursts(
    spec: &TrialSpec,
    shards: &[&Finished],
    lateness_ns_max: Option<Nanos>,
    lost: u64,
) -> CatchUp {
    let limit_ns = spec.limits.burst_ns(&spec.schedule);
    // Most trials have no burst, and long ones have millions of queries.
    let late = lateness_ns_max > Some(limit_ns) && spec.pacing == Pacing::Absolute;
    let shards = if late { shards } else { &[] };
    let each = shards.iter().flat_map(|shard| {
        let entries = &shard.ledger.entries()[..shard.offered];
        episodes(&shard.schedule, entries, limit_ns)
    });
    let episodes = together(each.collect());
    let lost_in_each = match lost {
        0 => vec![LostQueries::default(); episodes.len()],
        _ => lost_in(&episodes, spec, shards),
    };
    let pairs = episodes.iter().zip(&lost_in_each);
    let beyond = pairs.map(|(e, lost)| (lost.all - lost.late).saturating_sub(e.held_up_queries));
    let most = |of: fn(&Episode) -> u64| episodes.iter().map(of).max().unwrap_or(0);
    CatchUp {
        stalls: episodes.iter().map(|e| e.stalls).sum(),
        stall_ns_max: most(|e| e.stall_ns_max),
        burst_queries_max: most(|e| e.burst_queries_max),
        lost_in_bursts: lost_in_each.iter().map(|lost| lost.all).sum(),
        lost_beyond_bursts: beyond.sum(),
    }
}

/// Queries without a valid answer.
#[derive(Clone, Copy, Default)]
struct LostQueries {
    all: u64,
    /// Those that were answered late.
    late: u64,
}

/// Returns the queries that were lost in each of the episodes, by sending time.
fn lost_in(episodes: &[Episode], spec: &TrialSpec, shards: &[&Finished]) -> Vec<LostQueries> {
    let mut lost = vec![LostQueries::default(); episodes.len()];
    for shard in shards {
        for query in shard.sent() {
            let at_ns = query.sent_ns();
            let before = episodes.partition_point(|episode| episode.until_ns < at_ns);
            let within = episodes.get(before).is_some_and(|e| e.from_ns <= at_ns);
            if within && shard.is_lost(&query, spec.timeout_ns) {
                lost[before].all += 1;
                lost[before].late += u64::from(query.entry.fate == Fate::Late);
            }
        }
    }
    lost
}

/// Lost and hanging queries of a trial, from the ledgers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hanging {
    /// Queries that were open at an early end for longer than the slowest answer: most of them would have been lost
    /// too.
    pub(super) queries: u64,
    /// Sending times of these and of the lost queries.
    pub(super) span: Option<LossSpan>,
}

impl Hanging {
    /// Computes them for a trial with this slowest answer.
    pub(super) fn of(spec: &TrialSpec, shards: &[&Finished], slowest_ns: Option<Nanos>) -> Self {
        let slowest_ns = slowest_ns.unwrap_or(0);
        let mut all = Self::default();
        for shard in shards {
            let until_ns = shard.emptied_until_ns;
            for query in shard.sent() {
                let at_ns = query.sent_ns();
                let is_lost = shard.is_lost(&query, spec.timeout_ns);
                let is_open = query.entry.fate == Fate::Pending && !is_lost;
                let hangs = is_open && at_ns + slowest_ns < until_ns;
                all.queries += u64::from(hangs);
                if hangs || is_lost {
                    let span = all.span.unwrap_or(LossSpan::at(at_ns));
                    all.span = Some(span.with(at_ns));
                }
            }
        }
        all
    }
}

/// Returns the accuracy of the self-correcting timer, the worst value of all senders for each figure.
fn self_corrected(shards: &[&Finished]) -> SelfCorrected {
    let mut worst = SelfCorrected::default();
    for shard in shards {
        let timer = SelfCorrecting::new(&shard.schedule);
        let mut before: Option<(u64, Nanos)> = None;
        for (local, query) in (0..).zip(shard.queries()) {
            // A burst has one sending time. Queries that the network did not accept have none, and are a separate
            // fault.
            let (burst, within) = (
                local / shard.schedule.burst(),
                local % shard.schedule.burst(),
            );
            if within > 0 || !query.was_sent() {
                continue;
            }
            let (due_ns, sent_ns) = (query.due_ns, query.sent_ns());
            let follows = before.filter(|(last, _)| last + 1 == burst);
            let meant_ns = match follows {
                Some((last, begun_ns)) => timer.next_ns(last, begun_ns).max(due_ns),
                None if burst == 0 => due_ns,
                None => sent_ns,
            };
            let held_up_ns = sent_ns.saturating_sub(meant_ns);
            worst.held_up_ns_max = worst.held_up_ns_max.max(held_up_ns);
            before = Some((burst, sent_ns));
        }
        let last = shard.queries().next_back().filter(OfferedQuery::was_sent);
        let overrun_ns = last.map_or(0, |query| query.entry.lateness_ns.into());
        worst.overrun_ns = worst.overrun_ns.max(overrun_ns);
    }
    worst
}

/// Due and sent queries in bins of equal width (Lencse and Pivoda 2018, sections III and V).
struct RateBins {
    width_ns: Nanos,
    counts: Vec<RateBin>,
}

#[derive(Clone, Copy, Default)]
struct RateBin {
    due: u64,
    sent: u64,
}

impl RateBin {
    fn off(&self) -> u64 {
        self.due.abs_diff(self.sent)
    }
}

impl RateBins {
    /// Creates bins up to the last due time; queries sent after it count in the last bin.
    fn new(width_ns: Nanos, last_due_ns: Nanos) -> Self {
        let bins = usize::try_from(last_due_ns / width_ns).unwrap_or(usize::MAX - 1) + 1;
        Self {
            width_ns,
            counts: vec![RateBin::default(); bins],
        }
    }

    fn at(&mut self, moment_ns: Nanos) -> &mut RateBin {
        let last = self.counts.len() - 1;
        let bin = usize::try_from(moment_ns / self.width_ns)
            .unwrap_or(last)
            .min(last);
        &mut self.counts[bin]
    }

    /// Returns the bin with the largest difference of sent and due queries.
    fn worst(&self) -> Option<RateBin> {
        self.counts.iter().max_by_key(|bin| bin.off()).copied()
    }

    /// Returns the largest deviation of a bin's sent queries from its due ones, in per cent of the due ones.
    fn deviation_pct_max(&self) -> f64 {
        let deviation = |bin: &RateBin| 100.0 * bin.off() as f64 / bin.due as f64;
        self.counts
            .iter()
            .filter(|bin| bin.due > 0)
            .map(deviation)
            .fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_is_deviation_of_its_bin() {
        let mut bins = RateBins::new(BIN_10MS, 3 * BIN_10MS - 1);
        for i in 0..300 {
            let due = i * 100_000;
            bins.at(due).due += 1;
            // The last 25 queries of the second bin are sent in the third.
            let is_late = (175..200).contains(&i);
            bins.at(if is_late { 2 * BIN_10MS } else { due }).sent += 1;
        }
        assert!((bins.deviation_pct_max() - 25.0).abs() < 1e-9);
        assert_eq!(bins.worst().map(|bin| bin.off()), Some(25));
    }

    #[test]
    fn queries_after_last_due_time_count_in_last_bin() {
        let mut bins = RateBins::new(BIN_10MS, 0);
        bins.at(0).due += 1;
        bins.at(7 * BIN_10MS).sent += 1;
        assert!(bins.deviation_pct_max().abs() < f64::EPSILON);
    }
}
