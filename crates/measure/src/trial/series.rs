//! The course of a trial: its queries, losses and latencies in slices of time. Pure functions on the ledgers of a
//! finished trial.

use dns64_transport::clock::{Nanos, SECOND};

use super::TrialSpec;
use super::distribution::Times;
use super::result::Series;
use crate::load::generator::Finished;
use crate::load::ledger::{Entry, Fate};

/// Shortest slice: the bins of Lencse and Pivoda 2018, section III.
const SLICE_NS: Nanos = SECOND / 10;

/// Most slices: those of a trial of 60 s, the shortest of RFC 8219 section 9.2.
const SLICES_MAX: u64 = 600;

impl Series {
    /// Returns the course of a trial.
    pub(super) fn of(spec: &TrialSpec, shards: &[&Finished]) -> Self {
        let duration_ns = spec.schedule.duration_ns();
        let slice_ns = duration_ns.div_ceil(SLICES_MAX * SLICE_NS).max(1) * SLICE_NS;
        let slices = usize::try_from(duration_ns.div_ceil(slice_ns)).unwrap_or(0);
        let mut series = Self {
            slice_ns,
            sent: vec![0; slices],
            lost: vec![0; slices],
            latency_ns_p50: Vec::new(),
            latency_ns_p99: Vec::new(),
        };
        // The queries of a shard are in the order of their due times.
        let mut next = vec![0; shards.len()];
        let mut latencies = Times::new();
        for slice in 0..slices {
            let end_ns = slice_ns * (slice as u64 + 1);
            latencies.clear();
            for (shard, next) in shards.iter().zip(&mut next) {
                while let Some((due_ns, entry)) = due_before(end_ns, shard, *next) {
                    let sent_ns = due_ns + Nanos::from(entry.lateness_ns);
                    let lost = shard.is_lost(entry.fate, sent_ns, spec.timeout_ns);
                    series.sent[slice] += u64::from(entry.fate != Fate::Unsent);
                    series.lost[slice] += u64::from(lost);
                    entry
                        .latency_ns()
                        .into_iter()
                        .for_each(|ns| latencies.record(ns));
                    *next += 1;
                }
            }
            series.latency_ns_p50.push(latencies.median());
            series.latency_ns_p99.push(latencies.quantile(0.99));
        }
        series
    }
}

/// Returns a query of a shard by its number there, with its due time, if it was offered and due before `end_ns`.
fn due_before(end_ns: Nanos, shard: &Finished, number: usize) -> Option<(Nanos, &Entry)> {
    let due_ns = shard.schedule.due_ns(shard.schedule.global(number as u64));
    let offered = &shard.ledger.entries()[..shard.offered];
    Some((due_ns, offered.get(number)?)).filter(|_| due_ns < end_ns)
}
