//! When each query is due: an absolute schedule in integers.
//!
//! `due(i) = floor(i * 10^9 / rate)` after the start, whatever happened to the queries before, so
//! that no error adds up (paper 001, section IV; its equation (1), the self-correcting timer, was
//! the fault). Queries whose due times fit one pacing quantum leave as one burst.

use dns64_transport::clock::{Nanos, SECOND};

/// Queries whose due times lie within this span may leave in one system call, at the due time of
/// the first: the others leave at most this much early. 10 us is the lateness that a spinning
/// sender keeps to in 99 % of its sends on a shared two-core machine (measured), so a burst adds
/// nothing that the machine does not.
pub const QUANTUM_NS: Nanos = 10_000;

/// Bursts are bounded by what the kernel segments in one call (`UDP_MAX_SEGMENTS`).
const BURST_MAX: u64 = 64;

/// The schedule of one trial, seen by one of its shards.
///
/// Query `i` belongs to burst `i / burst`, and burst `g` to shard `g mod shards`: the shards are
/// phase-shifted and together keep exactly the schedule of one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    rate_qps: u64,
    queries: u64,
    burst: u64,
    shards: u64,
    shard: u64,
}

/// One burst of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Due time after the start of the trial.
    pub due_ns: Nanos,
    /// Index within the trial of the first query.
    pub first: u64,
    /// Number of queries; at least 1.
    pub queries: usize,
}

impl Schedule {
    /// The whole schedule for one sender: `floor(rate * duration)` queries. Rate and duration
    /// must be above zero; a product below 2^64 x 10^-9 queries is in range.
    pub fn new(rate_qps: u64, duration_ns: Nanos) -> Self {
        let queries = scale(rate_qps, duration_ns, SECOND);
        let burst = (1 + scale(rate_qps, QUANTUM_NS, SECOND)).min(BURST_MAX);
        Self {
            rate_qps,
            queries,
            burst,
            shards: 1,
            shard: 0,
        }
    }

    /// The lowest rate at which a trial of `duration_ns`, which must be above zero, has a query.
    pub fn lowest_rate_qps(duration_ns: Nanos) -> u64 {
        SECOND.div_ceil(duration_ns)
    }

    /// The part of shard `shard` of `shards`.
    #[must_use]
    pub fn shard(self, shard: u64, shards: u64) -> Self {
        Self {
            shards,
            shard,
            ..self
        }
    }

    /// Queries of the whole trial, all shards together.
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// Queries in a full burst.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// When query `i` of the trial leaves: the due time of the first query of its burst.
    pub fn due_ns(&self, i: u64) -> Nanos {
        scale(i - i % self.burst, SECOND, self.rate_qps)
    }

    /// Burst `j` of this shard; `None` beyond the last.
    pub fn burst_of_shard(&self, j: u64) -> Option<Burst> {
        let first = (j * self.shards + self.shard) * self.burst;
        if first >= self.queries {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most BURST_MAX")]
        let queries = (self.queries - first).min(self.burst) as usize;
        Some(Burst {
            due_ns: self.due_ns(first),
            first,
            queries,
        })
    }

    /// Index within the trial of the query that is number `local` of this shard.
    pub fn global(&self, local: u64) -> u64 {
        let (j, b) = (local / self.burst, local % self.burst);
        (j * self.shards + self.shard) * self.burst + b
    }

    /// Queries of this shard.
    pub fn shard_queries(&self) -> u64 {
        let bursts = self.queries.div_ceil(self.burst);
        let own = (bursts + self.shards - 1 - self.shard) / self.shards;
        let last_is_own = bursts > 0 && (bursts - 1) % self.shards == self.shard;
        let lacking = bursts * self.burst - self.queries;
        own * self.burst - if last_is_own { lacking } else { 0 }
    }
}

/// `a * b / c`, rounded down, without overflow in between.
fn scale(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_query_a_second_is_possible() {
        let schedule = Schedule::new(1, 3 * SECOND);
        let due: Vec<_> = (0..4)
            .map(|j| schedule.burst_of_shard(j).map(|b| (b.due_ns, b.queries)))
            .collect();
        assert_eq!(
            due,
            [Some((0, 1)), Some((SECOND, 1)), Some((2 * SECOND, 1)), None]
        );
    }

    #[test]
    fn a_burst_is_what_is_due_within_ten_microseconds() {
        for (rate, burst) in [(99_999, 1), (100_000, 2), (300_000, 4), (1_000_000, 11)] {
            assert_eq!(Schedule::new(rate, SECOND).burst(), burst, "at {rate}");
        }
    }

    proptest! {
        #[test]
        fn the_lowest_rate_is_the_first_with_a_query(duration_ns in 1_u64..100 * SECOND) {
            let lowest = Schedule::lowest_rate_qps(duration_ns);
            prop_assert!(Schedule::new(lowest, duration_ns).queries() > 0);
            prop_assert!(lowest == 1 || Schedule::new(lowest - 1, duration_ns).queries() == 0);
        }

        #[test]
        fn due_times_rise_and_never_stray_from_the_line(rate in 1_u64..3_000_000, i in 0_u64..100_000_000) {
            let schedule = Schedule::new(rate, SECOND);
            let exact = u128::from(i) * u128::from(SECOND) / u128::from(rate);
            let due = u128::from(schedule.due_ns(i));
            prop_assert!(due <= exact && exact <= due + u128::from(QUANTUM_NS) + 1);
            prop_assert!(schedule.due_ns(i + 1) >= schedule.due_ns(i));
        }

        #[test]
        fn shards_share_the_schedule_out_without_gap_or_overlap(
            rate in 1_u64..2_000_000, millis in 1_u64..20, shards in 1_u64..5,
        ) {
            let whole = Schedule::new(rate, millis * 1_000_000);
            let mut seen = vec![0_u32; usize::try_from(whole.queries()).unwrap()];
            for shard in 0..shards {
                let part = whole.shard(shard, shards);
                let mut local = 0;
                for burst in (0..).map_while(|j| part.burst_of_shard(j)) {
                    prop_assert_eq!(burst.due_ns, whole.due_ns(burst.first));
                    for i in burst.first..burst.first + burst.queries as u64 {
                        prop_assert_eq!(part.global(local), i);
                        seen[usize::try_from(i).unwrap()] += 1;
                        local += 1;
                    }
                }
                prop_assert_eq!(part.shard_queries(), local);
            }
            prop_assert!(seen.iter().all(|&n| n == 1));
        }
    }
}
