//! Catching up after a stall of the sender, and the queries that this affects.
//!
//! The schedule is absolute: queries that a stall has held up are still sent. They leave faster than they were due, and
//! a server with a short queue may lose some that it would not lose at the offered rate. So [`CatchUpTimer`] limits the rate
//! of catching up. [`Backlog`] determines the affected queries: online for the generator, and afterwards from the
//! ledgers for the verdict.

use dns64_transport::clock::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ledger::{Entry, OfferedQuery, queries};
use super::pace::Schedule;

/// Limits of the Tester's disturbances of a trial. A trial beyond the first or the third is invalid. A failed trial
/// beyond one of the other two is invalid if they explain its losses: they only increase the load of the DUT.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Limits {
    /// Largest lateness of a query.
    pub max_stall_ns: Nanos,
    /// Largest number of queries in a burst after a stall.
    pub max_burst_queries: u64,
    /// Largest excess or deficit of queries in 100 ms, in per cent of those due in it.
    pub max_rate_error_pct: f64,
    /// Largest share of a trial in which other processes use the core of a role, in per cent.
    pub max_stolen_pct: f64,
}

impl Limits {
    /// The largest lateness, up to the limit, whose burst is within the limit.
    pub fn burst_ns(&self, schedule: &Schedule) -> Nanos {
        schedule.span_of(self.max_burst_queries)
    }
}

impl Default for Limits {
    /// - 10 ms: the finest bin width of Lencse and Bakai (2017), section V. Shared machines stall their guests for some
    ///   milliseconds several times a second.
    /// - 32 queries: a server with a queue of 50 still has room for them. A default socket buffer of 208 KiB holds some
    ///   270 small datagrams.
    /// - 10 %: the effect of a stall of 10 ms on 100 ms. The script of Lencse and Bakai (2019), figure 3, accepts 1 %,
    ///   but over a whole trial.
    /// - 1 %: the error of the DUT's rate if others use its core for that share.
    fn default() -> Self {
        Self {
            max_stall_ns: 10_000_000,
            max_burst_queries: 32,
            max_rate_error_pct: 10.0,
            max_stolen_pct: 1.0,
        }
    }
}

/// Times of sending after a stall.
///
/// A backlog of up to the allowed burst leaves at once. A larger one is sent at five quarters of the offered rate: a
/// DUT with a reserve of a quarter builds no queue from it. Sending it at once would follow the schedule more closely,
/// but would fill the queue of every DUT. Queries that are late by more than half of the longest allowed stall leave at
/// once, so that the delays of several stalls do not add up.
#[derive(Clone, Copy, Debug)]
pub struct CatchUpTimer {
    /// Lateness whose backlog is the allowed burst.
    burst_ns: Nanos,
    /// Largest lateness; later queries leave at once.
    most_ns: Nanos,
    /// Time at which a burst with this due time may leave, both after the start: a line that leads back to the
    /// schedule.
    line: Option<(Nanos, Nanos)>,
}

/// Interval of bursts that catch up, as a fraction of the interval of due times.
const SPREAD: (Nanos, Nanos) = (4, 5);

/// Backlogs of shorter stalls always leave at once. Interrupts take this long. At rates at which this time holds more
/// than the allowed burst, 320 k/s, spreading 100 queries would gain nothing.
const SPREAD_FROM_NS: Nanos = 100_000;

impl CatchUpTimer {
    /// Creates it for a sender with this schedule that has no backlog.
    pub fn new(schedule: &Schedule, limits: &Limits) -> Self {
        Self {
            burst_ns: limits.burst_ns(schedule).max(SPREAD_FROM_NS),
            most_ns: limits.max_stall_ns / 2,
            line: None,
        }
    }

    /// Returns when the burst due at `next_due_ns` may leave, after one that was due at `due_ns`, was allowed to leave
    /// at `meant_ns` and left at `sent_ns`; all times after the start.
    pub fn leaves_ns(
        &mut self,
        (due_ns, meant_ns, sent_ns): (Nanos, Nanos, Nanos),
        next_due_ns: Nanos,
    ) -> Nanos {
        if sent_ns > meant_ns + self.burst_ns {
            self.line = Some((sent_ns, due_ns));
        }
        let Some((from_ns, from_due_ns)) = self.line else {
            return next_due_ns;
        };
        let leaves_ns = from_ns + (next_due_ns - from_due_ns) * SPREAD.0 / SPREAD.1;
        let latest_ns = next_due_ns + self.most_ns;
        if leaves_ns > latest_ns {
            self.line = Some((latest_ns, next_due_ns));
            return latest_ns;
        }
        if leaves_ns <= next_due_ns {
            self.line = None;
        }
        leaves_ns.max(next_due_ns)
    }
}

/// Upper bound of the queue that the sender's lateness causes at a server, as time of the schedule.
///
/// Let b(u) be the queries that are due and not sent at u. Compared with punctual sending, a server with (1 + h) times
/// the offered rate r has at t at most `max over u <= t of b(u) - h * r * (t - u)` more queries in its queue: queries
/// can only be late, and from u on the server processes h * r more than are due. This bound, divided by r and with h =
/// 1/10, is the level. A DUT with less reserve may keep a queue for longer; for this reason a result can be too low by
/// at most a tenth.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    limit_ns: Nanos,
    level_ns: Nanos,
    sent_ns: Nanos,
}

/// 1 / h: the assumed reserve of a DUT is a tenth.
pub const RESERVE: Nanos = 10;

impl Backlog {
    /// Creates it for a sender that has sent nothing; a lateness of up to `limit_ns` is not a burst.
    pub fn new(limit_ns: Nanos) -> Self {
        Self {
            limit_ns,
            level_ns: 0,
            sent_ns: 0,
        }
    }

    /// Adds the next query or burst. Returns whether it belongs to a catch-up burst or may meet the queue of one.
    pub fn sent(&mut self, sent_ns: Nanos, lateness_ns: Nanos) -> bool {
        let drained_ns = sent_ns.saturating_sub(self.sent_ns) / RESERVE;
        self.level_ns = lateness_ns.max(self.level_ns.saturating_sub(drained_ns));
        self.sent_ns = sent_ns;
        self.level_ns > self.limit_ns
    }
}

/// A period in which the sender may have caused the loss of a query: one or several stalls, their catch-up bursts, and
/// the time in which a server processes their queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Episode {
    /// Time of sending of the last query before the first stall, which may have delayed its system call.
    pub from_ns: Nanos,
    /// Time of sending of the last query of the period.
    pub until_ns: Nanos,
    /// Number of stalls.
    pub stalls: u64,
    /// Longest of these stalls.
    pub stall_ns_max: Nanos,
    /// Largest catch-up burst in queries.
    pub burst_queries_max: u64,
    /// Number of queries that the stalls held up: this many may have met a full queue.
    pub held_up_queries: u64,
}

impl Episode {
    /// Adds an overlapping episode of another sender.
    fn join(&mut self, other: &Self) {
        self.from_ns = self.from_ns.min(other.from_ns);
        self.until_ns = self.until_ns.max(other.until_ns);
        self.stalls += other.stalls;
        self.stall_ns_max = self.stall_ns_max.max(other.stall_ns_max);
        self.burst_queries_max += other.burst_queries_max;
        self.held_up_queries += other.held_up_queries;
    }
}

/// Returns the episodes of one shard in order, from its queries in the ledger of `schedule` and the lateness whose
/// backlog is the allowed burst.
pub fn episodes(schedule: &Schedule, entries: &[Entry], limit_ns: Nanos) -> Vec<Episode> {
    let mut found = Vec::new();
    let mut open: Option<OpenEpisode> = None;
    let mut backlog = Backlog::new(limit_ns);
    let mut before = (0, 0);
    for query in queries(schedule, entries).filter(OfferedQuery::was_sent) {
        let sent = (query.sent_ns(), Nanos::from(query.entry.lateness_ns));
        if backlog.sent(sent.0, sent.1) {
            let open = open.get_or_insert_with(|| OpenEpisode::new(before.0));
            open.add(before.1, sent, limit_ns);
        } else if let Some(open) = open.take() {
            found.push(open.close(schedule));
        }
        before = sent;
    }
    found.extend(open.map(|open| open.close(schedule)));
    found
}

/// An episode that has not ended.
struct OpenEpisode {
    episode: Episode,
    peak_ns: Nanos,
    held_up_ns: Nanos,
}

impl OpenEpisode {
    fn new(from_ns: Nanos) -> Self {
        Self {
            episode: Episode {
                from_ns,
                ..Episode::default()
            },
            peak_ns: 0,
            held_up_ns: 0,
        }
    }

    /// Adds a query by its sending time and lateness, after one with the lateness `before_ns`.
    fn add(&mut self, before_ns: Nanos, (sent_ns, lateness_ns): (Nanos, Nanos), limit_ns: Nanos) {
        self.episode.until_ns = sent_ns;
        self.peak_ns = self.peak_ns.max(lateness_ns);
        let stall_ns = lateness_ns.saturating_sub(before_ns);
        if stall_ns > limit_ns {
            self.episode.stalls += 1;
            self.episode.stall_ns_max = self.episode.stall_ns_max.max(stall_ns);
            self.held_up_ns += stall_ns;
        }
    }

    /// Ends the episode. A sender that was too slow for its schedule has a backlog without a stall: it counts as one
    /// stall.
    fn close(self, schedule: &Schedule) -> Episode {
        let queries = |span_ns| schedule.due_within(span_ns).div_ceil(schedule.shards());
        Episode {
            stalls: self.episode.stalls.max(1),
            stall_ns_max: match self.episode.stalls {
                0 => self.peak_ns,
                _ => self.episode.stall_ns_max,
            },
            burst_queries_max: queries(self.peak_ns),
            held_up_queries: queries(self.held_up_ns.max(self.peak_ns)),
            ..self.episode
        }
    }
}

/// Merges the episodes of all shards: overlapping ones become one.
pub fn together(mut episodes: Vec<Episode>) -> Vec<Episode> {
    episodes.sort_unstable_by_key(|episode| episode.from_ns);
    let mut joined: Vec<Episode> = Vec::new();
    for episode in episodes {
        match joined.last_mut() {
            Some(last) if episode.from_ns <= last.until_ns => last.join(&episode),
            _ => joined.push(episode),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use dns64_transport::clock::SECOND;
    use proptest::prelude::*;

    use super::*;
    use crate::load::ledger::Fate;

    const MS: Nanos = 1_000_000;

    /// 10,000 queries per second: one every 100 us.
    fn schedule() -> Schedule {
        Schedule::new(10_000, SECOND)
    }

    /// A ledger of queries with this lateness in microseconds.
    fn ledger(late_us: &[u32]) -> Vec<Entry> {
        let entry = |late_us: &u32| Entry {
            rtt_ns: 0,
            lateness_ns: late_us * 1000,
            fate: Fate::Pending,
            in_burst: false,
        };
        late_us.iter().map(entry).collect()
    }

    #[test]
    fn punctual_sender_has_no_episode() {
        let late = ledger(&[3, 0, 990, 880, 0, 1000, 0]);
        assert_eq!(episodes(&schedule(), &late, MS), []);
    }

    #[test]
    fn stall_and_its_catch_up_burst_are_one_episode() {
        // A stall before query 2, which was due at 200 us; the rest leaves back to back, 2 us apart.
        let mut late = vec![0, 0, 3000];
        late.extend((1..30).map(|k| 3000 - 98 * k));
        late.extend([0; 300]);
        let found = episodes(&schedule(), &ledger(&late), MS);
        // The level falls from 3 ms to the allowed 1 ms in another 20 ms.
        let expected = Episode {
            from_ns: MS / 10,
            until_ns: 23_100_000,
            stalls: 1,
            stall_ns_max: 3 * MS,
            burst_queries_max: 30,
            held_up_queries: 30,
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn second_stall_before_the_queue_is_drained_extends_the_episode() {
        let mut late = vec![0; 10];
        late.extend([2500, 1600, 700, 0, 0, 4000, 3000, 2000, 1000, 0]);
        late.extend([0; 500]);
        late.extend([1500, 0, 0]);
        let found = episodes(&schedule(), &ledger(&late), MS);
        let told: Vec<_> = found
            .iter()
            .map(|e| {
                (
                    e.stalls,
                    e.stall_ns_max,
                    e.burst_queries_max,
                    e.held_up_queries,
                )
            })
            .collect();
        assert_eq!(told, [(2, 4 * MS, 40, 65), (1, 3 * MS / 2, 15, 15)]);
    }

    #[test]
    fn slow_sender_has_a_backlog_without_a_stall() {
        let creeping: Vec<u32> = (0..40).map(|k| 50 * k).collect();
        let found = episodes(&schedule(), &ledger(&creeping), MS);
        let [only] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!((only.stalls, only.stall_ns_max), (1, 1_950_000));
        assert_eq!((only.burst_queries_max, only.held_up_queries), (19, 19));
    }

    #[test]
    fn unsent_queries_are_skipped() {
        let mut late = ledger(&[0, 0, 3000, 0]);
        late[2].fate = Fate::Unsent;
        assert_eq!(episodes(&schedule(), &late, MS), []);
    }

    #[test]
    fn simultaneous_stalls_of_shards_are_one_episode() {
        let one = |from_ns, until_ns| Episode {
            from_ns,
            until_ns,
            stalls: 1,
            stall_ns_max: from_ns,
            burst_queries_max: 20,
            held_up_queries: 25,
        };
        let joined = together(vec![one(50, 60), one(10, 30), one(20, 40), one(41, 45)]);
        let both = Episode {
            from_ns: 10,
            until_ns: 40,
            stalls: 2,
            stall_ns_max: 20,
            burst_queries_max: 40,
            held_up_queries: 50,
        };
        assert_eq!(joined, [both, one(41, 45), one(50, 60)]);
    }

    /// Due times and times of sending for stalls at these moments with these durations.
    fn sent(schedule: &Schedule, stalls: &[(Nanos, Nanos)]) -> Vec<(Nanos, Nanos)> {
        let mut spread = CatchUpTimer::new(schedule, &Limits::default());
        let mut stalls = stalls.iter().peekable();
        let mut now_ns = 0;
        let mut sent = Vec::new();
        let mut next = schedule.burst_of_shard(0);
        while let Some(burst) = next {
            now_ns = burst.leaves_ns.max(now_ns + 2_000);
            if let Some((_, span_ns)) = stalls.next_if(|(at_ns, _)| *at_ns <= now_ns) {
                now_ns += span_ns;
            }
            sent.push((burst.due_ns, now_ns));
            next = schedule.burst_of_shard(sent.len() as u64);
            if let Some(next) = &mut next {
                let last = (burst.due_ns, burst.leaves_ns, now_ns);
                next.leaves_ns = spread.leaves_ns(last, next.due_ns);
            }
        }
        sent
    }

    /// Largest number of queries that left within a span.
    fn most_within(sent: &[(Nanos, Nanos)], span_ns: Nanos) -> usize {
        let until = |from_ns| sent.partition_point(|&(_, at)| at < from_ns + span_ns);
        let each = (0..).zip(sent);
        each.map(|(i, &(_, at))| until(at) - i).max().unwrap_or(0)
    }

    #[test]
    fn long_stall_is_caught_up_at_a_quarter_above_the_rate() {
        let schedule = Schedule::new(20_000, SECOND);
        let sent = sent(&schedule, &[(100 * MS, 4 * MS)]);
        // 80 were due; all are sent within 16 ms more, at 25,000 per second.
        assert!(most_within(&sent, 4 * MS) <= 101, "no burst");
        let late = |&&(due, at): &&(Nanos, Nanos)| at > due;
        let last_late = sent.iter().rfind(late).map(|&(_, at)| at);
        let expected = 120 * MS;
        assert!(
            last_late.is_some_and(|at| at.abs_diff(expected) < MS / 2),
            "{last_late:?}"
        );
        assert_eq!(sent.len(), 20_000);
    }

    #[test]
    fn short_stall_is_caught_up_at_once() {
        let schedule = Schedule::new(20_000, SECOND);
        let sent = sent(&schedule, &[(100 * MS, 3 * MS / 2)]);
        let late = sent.iter().filter(|(due, at)| at > due).count();
        assert!((30..=33).contains(&late), "{late}");
    }

    #[test]
    fn delays_of_consecutive_stalls_do_not_add_up() {
        let schedule = Schedule::new(20_000, SECOND);
        let stalls: Vec<_> = (1..90).map(|k| (10 * k * MS, 4 * MS)).collect();
        let sent = sent(&schedule, &stalls);
        let worst_ns = sent.iter().map(|(due, at)| at - due).max();
        // Half of the limit, the rest of the allowed burst, and the next stall.
        assert!(
            worst_ns.is_some_and(|ns| ns <= 5 * MS + 1_600_000 + 4 * MS),
            "{worst_ns:?}"
        );
    }

    proptest! {
        /// Property of the level: the queue of a server with a reserve of a tenth is never longer than the level.
        #[test]
        fn queue_of_a_server_with_reserve_is_at_most_the_level(
            late_us in proptest::collection::vec(0_u32..9_000, 1..300),
        ) {
            let schedule = schedule();
            // Queries leave in order.
            let mut at = 0;
            let mut entries = ledger(&late_us);
            for (k, entry) in (0..).zip(&mut entries) {
                let due = schedule.due_ns(k);
                at = at.max(due + Nanos::from(entry.lateness_ns));
                entry.lateness_ns = u32::try_from(at - due).unwrap();
            }
            let mut backlog = Backlog::new(0);
            let service_ns = 100_000 * 10 / 11;
            let mut busy_until_ns = 0;
            for query in queries(&schedule, &entries) {
                let at_ns = query.sent_ns();
                backlog.sent(at_ns, query.entry.lateness_ns.into());
                // Waiting time before it, as time of the schedule.
                let waits_ns = u64::saturating_sub(busy_until_ns, at_ns) * 11 / 10;
                prop_assert!(waits_ns <= backlog.level_ns + 100_000, "{waits_ns} {}", backlog.level_ns);
                busy_until_ns = busy_until_ns.max(at_ns) + service_ns;
            }
        }
    }
}
