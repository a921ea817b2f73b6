//! The course of a trial: its queries, losses and latencies in slices of time. Pure functions on the ledgers of a
//! finished trial.

use dns64_transport::clock::{Nanos, SECOND};

use super::TrialSpec;
use super::distribution::Times;
use super::result::TimeSeries;
use crate::load::generator::Finished;

/// Shortest slice: the bins of Lencse and Pivoda 2018, section III.
const SLICE_NS: Nanos = SECOND / 10;

/// Most slices: those of a trial of 60 s, the shortest of RFC 8219 section 9.2.
const SLICES_MAX: u64 = 600;

impl TimeSeries {
    /// Returns the queries sent, and those of them that were lost, in at most `most` slices of the returned length.
    pub fn thinned(&self, most: usize) -> (Nanos, Vec<[u64; 2]>) {
        let slices = self.sent.len().div_ceil(most).max(1);
        let parts = self.sent.chunks(slices).zip(self.lost.chunks(slices));
        let sums = parts.map(|(sent, lost)| [sent, lost].map(|part| part.iter().sum()));
        (self.slice_ns * slices as u64, sums.collect())
    }

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
        let mut walks: Vec<_> = shards.iter().map(|it| it.queries().peekable()).collect();
        let mut latencies = Times::new();
        for slice in 0..slices {
            let end_ns = slice_ns * (slice as u64 + 1);
            latencies.clear();
            for (shard, queries) in shards.iter().zip(&mut walks) {
                while let Some(query) = queries.next_if(|query| query.due_ns < end_ns) {
                    let lost = shard.is_lost(&query, spec.timeout_ns);
                    series.sent[slice] += u64::from(query.was_sent());
                    series.lost[slice] += u64::from(lost);
                    let latency_ns = query.entry.latency_ns().into_iter();
                    latency_ns.for_each(|ns| latencies.record(ns));
                }
            }
            series.latency_ns_p50.push(latencies.median());
            series.latency_ns_p99.push(latencies.quantile(0.99));
        }
        series
    }
}
