//! Due time of each query: an absolute schedule in integers.
//!
//! `due(i) = floor(i * 10^9 / rate)` after the start, independent of earlier queries, so that no errors add up (Lencse
//! and Pivoda 2018, section IV; the error came from the self-correcting timer of equation (1)). Queries whose due times
//! fit one pacing quantum leave as one burst.

use std::fmt;

use dns64_transport::clock::{Nanos, SECOND};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Queries whose due times lie within this span may leave in one system call, at the due time of the first: the others
/// leave early by at most this much. 10 us is the lateness of 99 % of the sends of a spinning sender on a shared
/// two-core machine (measured), so bursts add no more than the machine does.
pub const QUANTUM_NS: Nanos = 10_000;

/// Largest burst: the kernel segments at most this many in one call (`UDP_MAX_SEGMENTS`).
pub const BURST_MAX: u64 = 64;

/// Pacing method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// Absolute schedule: a late query does not delay the next
    ///
    /// The due time alone decides (paper 001, equation 2).
    #[default]
    Absolute,
    /// Faulty timer of dns64perf++ until 2018, for comparison; not a measurement
    ///
    /// The self-correcting timer of Lencse and Pivoda 2018, equation (1), which spreads what was lost over the
    /// rest of the trial. Queries leave one by one, as there.
    SelfCorrecting,
}

impl Pacing {
    /// Why trials with this pacing are not measurements; `None` for the absolute schedule.
    pub fn flaw(self) -> Option<&'static str> {
        match self {
            Self::Absolute => None,
            Self::SelfCorrecting => Some(
                "paced by the self-correcting timer of Lencse and Pivoda 2018, equation (1), to show its fault",
            ),
        }
    }
}

impl fmt::Display for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absolute => "absolute",
            Self::SelfCorrecting => "self-correcting",
        })
    }
}

/// The schedule of one trial, from the view of one of its shards.
///
/// Query `i` belongs to burst `i / burst`, and burst `g` to shard `g mod shards`: the shards are phase-shifted and
/// together follow exactly the schedule of one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// `per` queries are due in `span_ns`.
    per: u64,
    span_ns: Nanos,
    queries: u64,
    duration_ns: Nanos,
    burst: u64,
    shards: u64,
    shard: u64,
}

/// One burst of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Due time after the start of the trial.
    pub due_ns: Nanos,
    /// Earliest time of sending, after the start: the due time, or later with [`Pacing::SelfCorrecting`].
    pub leaves_ns: Nanos,
    /// Index of the first query within the trial.
    pub first: u64,
    /// Number of queries; at least 1.
    pub queries: usize,
}

impl Schedule {
    /// Creates the schedule of one sender: `floor(rate * duration)` queries. Rate and duration must be above zero; a
    /// product below 2^64 x 10^-9 queries is in range.
    pub fn new(rate_qps: u64, duration_ns: Nanos) -> Self {
        let queries = scale(rate_qps, duration_ns, SECOND);
        let burst = (1 + scale(rate_qps, QUANTUM_NS, SECOND)).min(BURST_MAX);
        Self {
            per: rate_qps,
            span_ns: SECOND,
            queries,
            duration_ns,
            burst,
            shards: 1,
            shard: 0,
        }
    }

    /// Creates a schedule of `queries` queries in bursts of `burst`, with `bursts` of these in each `span_ns`, the
    /// parameters of dns64perf++. Bursts that are due within one quantum leave together, up to [`BURST_MAX`] queries.
    /// All numbers are above zero, and a burst has at most 2^32 queries.
    pub fn in_bursts(queries: u64, burst: u64, (span_ns, bursts): (Nanos, u64)) -> Self {
        let together = scale(bursts, QUANTUM_NS, span_ns).saturating_add(1);
        let per = burst.saturating_mul(bursts);
        Self {
            per,
            span_ns,
            queries,
            duration_ns: scale(queries, span_ns, per),
            burst: together.min(BURST_MAX / burst).max(1) * burst,
            shards: 1,
            shard: 0,
        }
    }

    /// Returns the same due times with bursts of `burst` queries, at least 1.
    #[must_use]
    pub fn with_burst(self, burst: u64) -> Self {
        Self { burst, ..self }
    }

    /// Returns the lowest rate at which a trial of `duration_ns` has a query; the duration must be above zero.
    pub fn lowest_rate_qps(duration_ns: Nanos) -> u64 {
        SECOND.div_ceil(duration_ns)
    }

    /// Returns the view of shard `shard` of `shards`.
    #[must_use]
    pub fn shard(self, shard: u64, shards: u64) -> Self {
        Self {
            shards,
            shard,
            ..self
        }
    }

    /// Number of queries of the whole trial, all shards together.
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// Number of queries in a full burst.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Returns the time at which query `i` of the trial leaves: the due time of the first query of its burst.
    pub fn due_ns(&self, i: u64) -> Nanos {
        scale(i - i % self.burst, self.span_ns, self.per)
    }

    /// Number of queries of the whole trial that are due within a span, rounded down.
    pub fn due_within(&self, span_ns: Nanos) -> u64 {
        scale(span_ns, self.per, self.span_ns)
    }

    /// The span in which this number of queries of the whole trial is due, rounded down.
    pub fn span_of(&self, queries: u64) -> Nanos {
        scale(queries, self.span_ns, self.per)
    }

    /// Interval between two bursts of the same shard, rounded down.
    pub fn burst_interval_ns(&self) -> Nanos {
        scale(self.burst * self.shards, self.span_ns, self.per)
    }

    /// Length of the whole schedule, which begins with the first due time.
    pub fn duration_ns(&self) -> Nanos {
        self.duration_ns
    }

    /// Queries per second of all shards together, rounded up.
    pub fn rate_qps(&self) -> u64 {
        let per_second = u128::from(self.per) * u128::from(SECOND);
        u64::try_from(per_second.div_ceil(self.span_ns.into())).unwrap_or(u64::MAX)
    }

    /// Number of shards of the schedule.
    pub fn shards(&self) -> u64 {
        self.shards
    }

    /// Index of the shard of this view.
    pub fn shard_index(&self) -> u64 {
        self.shard
    }

    /// Returns burst `j` of this shard; `None` after the last.
    pub fn burst_of_shard(&self, j: u64) -> Option<Burst> {
        let first = (j * self.shards + self.shard) * self.burst;
        if first >= self.queries {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 2^32")]
        let queries = (self.queries - first).min(self.burst) as usize;
        let due_ns = self.due_ns(first);
        Some(Burst {
            due_ns,
            leaves_ns: due_ns,
            first,
            queries,
        })
    }

    /// Returns the index within the trial of query `local` of this shard.
    pub fn global(&self, local: u64) -> u64 {
        let (j, b) = (local / self.burst, local % self.burst);
        (j * self.shards + self.shard) * self.burst + b
    }

    /// Returns the shard of query `i` of the trial and its index there; the inverse of [`Self::global`].
    pub fn place(&self, i: u64) -> (u64, u64) {
        let (burst, b) = (i / self.burst, i % self.burst);
        (burst % self.shards, burst / self.shards * self.burst + b)
    }

    /// Number of queries of this shard.
    pub fn shard_queries(&self) -> u64 {
        let bursts = self.queries.div_ceil(self.burst);
        let own = (bursts + self.shards - 1 - self.shard) / self.shards;
        let last_is_own = bursts > 0 && (bursts - 1) % self.shards == self.shard;
        let lacking = bursts * self.burst - self.queries;
        own * self.burst - if last_is_own { lacking } else { 0 }
    }
}

/// The self-correcting timer of one shard: Lencse and Pivoda 2018, equation (1),
///
/// ```text
/// T_W(n+1) = (N*T - (t_B(n) - t_B(0))) / (N - n) - T_R(n)
/// ```
///
/// with the bursts of the shard as requests. The preparation of burst n begins at t_B(n) and takes T_R(n). After a wait
/// of T_W(n+1), burst n+1 begins one share of the remaining time after t_B(n). The cost of the timer itself is in no
/// share, so each burst is later than the previous one by that cost, and the later bursts must compensate for it.
#[derive(Clone, Copy, Debug)]
pub struct SelfCorrecting {
    /// Number of bursts, N in equation (1).
    bursts: u64,
    /// N*T after t_B(0), the first due time of the shard.
    end_ns: Nanos,
}

impl SelfCorrecting {
    /// Creates the timer of the shard of this schedule.
    pub fn new(schedule: &Schedule) -> Self {
        let per_round = schedule.shards * schedule.burst;
        let bursts = schedule.shard_queries().div_ceil(schedule.burst);
        Self {
            bursts,
            end_ns: schedule.due_ns(bursts * per_round + schedule.shard * schedule.burst),
        }
    }

    /// Returns when burst `n + 1` may begin after burst `n` began at `begun_ns`, both after the start of the trial.
    ///
    /// No burst is early: if a burst begins d after its due time n*T, the next one is late by d * (1 - 1 / (N - n)).
    /// Rounding is an exception, by less than the nanosecond to which [`Schedule::due_ns`] rounds; so the caller must
    /// keep the due time as the lower bound.
    pub fn next_ns(&self, n: u64, begun_ns: Nanos) -> Nanos {
        let left_ns = self.end_ns.saturating_sub(begun_ns);
        begun_ns + left_ns / self.bursts.saturating_sub(n).max(1)
    }
}

/// Behaviour of a sender with the self-correcting timer (Lencse and Pivoda 2018, equation 1). The lateness of its
/// queries is relative to the schedule, which this timer leaves by design.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SelfCorrected {
    /// Largest delay of a query after the time that its timer allowed.
    pub held_up_ns_max: Nanos,
    /// Excess of the longest sender's duration over the length of its schedule.
    pub overrun_ns: Nanos,
}

/// Returns `a * b / c`, rounded down, without intermediate overflow.
fn scale(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rate_of_one_query_a_second_is_valid() {
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
    fn burst_has_the_queries_due_within_ten_microseconds() {
        for (rate, burst) in [(99_999, 1), (100_000, 2), (300_000, 4), (1_000_000, 11)] {
            assert_eq!(Schedule::new(rate, SECOND).burst(), burst, "at {rate}");
        }
    }

    #[test]
    fn bursts_of_dns64perf_are_due_at_each_delay() {
        let due = |schedule: Schedule| {
            (0..)
                .map_while(|j| schedule.burst_of_shard(j))
                .map(|b| (b.due_ns, b.queries))
                .collect::<Vec<_>>()
        };
        // One thread sends three queries every 20 us, then two threads halve the delay.
        let one = Schedule::in_bursts(8, 3, (20_000, 1));
        assert_eq!(due(one), [(0, 3), (20_000, 3), (40_000, 2)]);
        assert_eq!(one.duration_ns(), 53_333);
        assert_eq!(
            Schedule::in_bursts(60_000, 1, (4_000, 2)).rate_qps(),
            500_000
        );
        let two = Schedule::in_bursts(8, 3, (60_000, 2));
        assert_eq!(due(two.shard(1, 2)), [(30_000, 3)]);
        assert_eq!(two.shard(0, 2).burst_interval_ns(), 60_000);
        // One query every 4 us: those of one quantum leave together.
        let single = Schedule::in_bursts(5, 1, (4_000, 1));
        assert_eq!(due(single), [(0, 3), (12_000, 2)]);
        assert_eq!(
            single.with_burst(1).burst_of_shard(4).unwrap().due_ns,
            16_000
        );
    }

    #[test]
    fn self_correcting_timer_follows_equation_1_of_lencse_and_pivoda_2018() {
        let schedule = Schedule::new(1000, SECOND).with_burst(1);
        let timer = SelfCorrecting::new(&schedule);
        // N = 1000, T = 1 ms. On time: T. Late by 100 ms at half-time: 400 ms for 500 queries.
        assert_eq!(timer.next_ns(0, 0), 1_000_000);
        assert_eq!(timer.next_ns(500, 500_000_000), 501_000_000);
        assert_eq!(timer.next_ns(500, 600_000_000), 600_800_000);
        // No time remains: at once.
        assert_eq!(timer.next_ns(999, 1_200_000_000), 1_200_000_000);
    }

    proptest! {
        #[test]
        fn self_correcting_timer_is_early_only_by_rounding(
            rate in 1_u64..2_000_000, shards in 1_u64..4, n in 0_u64..1000, late_ns in 0_u64..SECOND,
        ) {
            let schedule = Schedule::new(rate, SECOND).with_burst(1).shard(shards - 1, shards);
            let timer = SelfCorrecting::new(&schedule);
            if let (Some(burst), Some(next)) = (schedule.burst_of_shard(n), schedule.burst_of_shard(n + 1)) {
                prop_assert!(timer.next_ns(n, burst.due_ns + late_ns) + 2 >= next.due_ns);
            }
        }

        #[test]
        fn lowest_rate_is_the_first_with_a_query(duration_ns in 1_u64..100 * SECOND) {
            let lowest = Schedule::lowest_rate_qps(duration_ns);
            prop_assert!(Schedule::new(lowest, duration_ns).queries() > 0);
            prop_assert!(lowest == 1 || Schedule::new(lowest - 1, duration_ns).queries() == 0);
        }

        #[test]
        fn due_times_increase_and_follow_the_line(rate in 1_u64..3_000_000, i in 0_u64..100_000_000) {
            let schedule = Schedule::new(rate, SECOND);
            let exact = u128::from(i) * u128::from(SECOND) / u128::from(rate);
            let due = u128::from(schedule.due_ns(i));
            prop_assert!(due <= exact && exact <= due + u128::from(QUANTUM_NS) + 1);
            prop_assert!(schedule.due_ns(i + 1) >= schedule.due_ns(i));
        }

        #[test]
        fn shards_partition_the_schedule_without_gap_or_overlap(
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
                        prop_assert_eq!(part.place(i), (shard, local));
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
