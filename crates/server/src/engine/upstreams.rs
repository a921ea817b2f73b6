//! Which upstream is asked.

use dns64_transport::clock::{Nanos, SECOND};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _};

use crate::settings::{Selection, UPSTREAMS_MAX, Upstream};

/// How often each upstream was asked for one question.
pub(super) type Asked = [u8; UPSTREAMS_MAX];

/// The upstreams as they have shown themselves.
pub(super) struct Upstreams {
    list: Vec<State>,
    selection: Selection,
    next: usize,
}

struct State {
    upstream: Upstream,
    /// Smoothed round-trip time; 0 until the first answer, so that all are tried.
    rtt_ns: Nanos,
    /// Timeouts in a row.
    timeouts: u32,
    /// Not asked before this moment if another can be.
    held_until: Nanos,
}

/// Weight of one round trip in the smoothed time, as in RFC 6298 section 2: 1/8.
const RTT_SHARE: u64 = 8;

/// One question in so many goes to another than the fastest, so that its time is known.
const EXPLORE_ONE_IN: u32 = 32;

/// Timeouts in a row after which an upstream is held to be down.
const TIMEOUTS_MAX: u32 = 3;

/// How long an upstream that is down is left alone: doubled each time that it is tried in vain, up to
/// the maximum.
const HOLD_NS: Nanos = SECOND;
const HOLD_MAX_NS: Nanos = 30 * SECOND;

impl Upstreams {
    pub(super) fn new(upstreams: &[Upstream], selection: Selection) -> Self {
        let list = upstreams.iter().map(|&upstream| State {
            upstream,
            rtt_ns: 0,
            timeouts: 0,
            held_until: 0,
        });
        Self {
            list: list.collect(),
            selection,
            next: 0,
        }
    }

    pub(super) fn timeout_ns(&self, server: usize) -> Nanos {
        self.list[server].upstream.timeout_ns
    }

    /// The upstream to ask next for a question; `None` if all have had their attempts.
    ///
    /// First those that are not down, of these first those that this question was asked least
    /// often, of these by the policy.
    pub(super) fn choose(
        &mut self,
        asked: &Asked,
        now: Nanos,
        random: &mut StdRng,
    ) -> Option<usize> {
        if let [only] = self.list.as_slice() {
            return (asked[0] < only.upstream.attempts).then_some(0);
        }
        let rank = |i: usize| (self.list[i].held_until > now, asked[i]);
        let open = |i: &usize| asked[*i] < self.list[*i].upstream.attempts;
        let count = self.list.len();
        let best = (0..count).filter(open).map(rank).min()?;
        let candidates: u32 = (0..count)
            .filter(|i| open(i) && rank(*i) == best)
            .fold(0, |set, i| set | 1 << i);
        let chosen = self.by_policy(candidates, random);
        let state = &mut self.list[chosen];
        if state.timeouts >= TIMEOUTS_MAX {
            // It may be back: one question shows it, and no more go there meanwhile.
            state.held_until = now + state.upstream.timeout_ns;
        }
        Some(chosen)
    }

    /// `candidates` is a set of numbers, not empty.
    fn by_policy(&mut self, candidates: u32, random: &mut StdRng) -> usize {
        let is_in = |i: &usize| candidates >> i & 1 == 1;
        let count = self.list.len();
        let any = |random: &mut StdRng| {
            let skip = random.random_range(0..candidates.count_ones() as usize);
            (0..count).filter(is_in).nth(skip).unwrap_or_default()
        };
        match self.selection {
            Selection::Failover => (0..count).find(is_in).unwrap_or_default(),
            Selection::Random => any(random),
            Selection::RoundRobin => {
                let turn = (self.next..self.next + count).map(|i| i % count);
                let chosen = turn.into_iter().find(is_in).unwrap_or_default();
                self.next = chosen + 1;
                chosen
            }
            Selection::Fastest if random.next_u32().is_multiple_of(EXPLORE_ONE_IN) => any(random),
            Selection::Fastest => (0..count)
                .filter(is_in)
                .min_by_key(|&i| self.list[i].rtt_ns)
                .unwrap_or_default(),
        }
    }

    /// An answer came.
    pub(super) fn answered(&mut self, server: usize, rtt_ns: Nanos) {
        let state = &mut self.list[server];
        state.rtt_ns = match state.rtt_ns {
            0 => rtt_ns.max(1),
            old => old - old / RTT_SHARE + rtt_ns / RTT_SHARE,
        };
        state.timeouts = 0;
        state.held_until = 0;
    }

    /// No answer came in time.
    pub(super) fn timed_out(&mut self, server: usize, now: Nanos) {
        let state = &mut self.list[server];
        let doubled = state.rtt_ns.saturating_mul(2);
        state.rtt_ns = doubled.clamp(1, state.upstream.timeout_ns.max(1));
        if state.held_until > now {
            // It was in flight when the upstream was found to be down, and tells nothing new: a
            // busy server would hold an upstream that was gone for a moment for the maximum.
            return;
        }
        state.timeouts = state.timeouts.saturating_add(1);
        if let Some(beyond) = state.timeouts.checked_sub(TIMEOUTS_MAX) {
            let hold = HOLD_NS.saturating_mul(1 << beyond.min(16));
            state.held_until = now + hold.min(HOLD_MAX_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    const MILLISECOND: Nanos = 1_000_000;

    fn upstreams(count: u8, selection: Selection) -> Upstreams {
        let list: Vec<Upstream> = (0..count)
            .map(|i| Upstream {
                address: ([192, 0, 2, i], 53).into(),
                timeout_ns: 800 * MILLISECOND,
                attempts: 2,
            })
            .collect();
        Upstreams::new(&list, selection)
    }

    /// The order in which one question goes to all of them until they are used up.
    fn order(upstreams: &mut Upstreams, now: Nanos) -> Vec<usize> {
        let mut random = StdRng::from_seed([7; 32]);
        let mut asked = Asked::default();
        let mut order = Vec::new();
        while let Some(server) = upstreams.choose(&asked, now, &mut random) {
            asked[server] += 1;
            order.push(server);
        }
        order
    }

    #[test]
    fn a_question_goes_to_every_upstream_before_it_goes_to_one_twice() {
        for selection in [
            Selection::RoundRobin,
            Selection::Random,
            Selection::Fastest,
            Selection::Failover,
        ] {
            let order = order(&mut upstreams(3, selection), 0);
            assert_eq!(order.len(), 6, "{selection:?}");
            for half in order.chunks(3) {
                let mut half = half.to_vec();
                half.sort_unstable();
                assert_eq!(half, [0, 1, 2], "{selection:?}");
            }
        }
    }

    #[test]
    fn failover_asks_the_first_and_round_robin_the_next() {
        let mut failover = upstreams(3, Selection::Failover);
        assert_eq!(order(&mut failover, 0), [0, 1, 2, 0, 1, 2]);
        let mut robin = upstreams(3, Selection::RoundRobin);
        let mut random = StdRng::from_seed([1; 32]);
        let fresh = Asked::default();
        let turns: Vec<_> = (0..5)
            .filter_map(|_| robin.choose(&fresh, 0, &mut random))
            .collect();
        assert_eq!(turns, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn the_fastest_gets_most_and_the_others_enough_to_be_known() {
        let mut fastest = upstreams(2, Selection::Fastest);
        fastest.answered(0, 30 * MILLISECOND);
        fastest.answered(1, 2 * MILLISECOND);
        let mut random = StdRng::from_seed([3; 32]);
        let mut counts = [0; 2];
        for _ in 0..10_000 {
            let server = fastest.choose(&Asked::default(), 0, &mut random);
            counts[server.unwrap()] += 1;
        }
        // One in 32 explores, and half of these end at the slow one: 156 expected.
        assert!((80..300).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn a_dead_upstream_is_left_alone_then_tried_by_one_question_at_a_time() {
        let mut pair = upstreams(2, Selection::Failover);
        for _ in 0..TIMEOUTS_MAX {
            pair.timed_out(0, SECOND);
        }
        let mut random = StdRng::from_seed([3; 32]);
        let mut first = |pair: &mut Upstreams, now| {
            let chosen = pair.choose(&Asked::default(), now, &mut random);
            chosen.unwrap()
        };
        assert_eq!(first(&mut pair, SECOND + 1), 1);
        assert_eq!(first(&mut pair, 2 * SECOND), 0, "the probe");
        assert_eq!(first(&mut pair, 2 * SECOND), 1, "nobody else meanwhile");
        pair.timed_out(0, 3 * SECOND);
        assert_eq!(first(&mut pair, 4 * SECOND), 1, "held for two seconds now");
        assert_eq!(first(&mut pair, 5 * SECOND), 0, "the second probe");
        pair.answered(0, MILLISECOND);
        assert_eq!(first(&mut pair, 5 * SECOND), 0);
        assert_eq!(first(&mut pair, 5 * SECOND), 0, "it is back");
    }

    #[test]
    fn what_was_in_flight_when_an_upstream_died_does_not_hold_it_longer() {
        let mut pair = upstreams(2, Selection::Failover);
        for late in 0..100 {
            pair.timed_out(0, SECOND + late);
        }
        let mut random = StdRng::from_seed([3; 32]);
        let mut first = |now| pair.choose(&Asked::default(), now, &mut random);
        assert_eq!(first(2 * SECOND), Some(1));
        assert_eq!(first(2 * SECOND + 2), Some(0), "a second after the third");
    }

    #[test]
    fn when_all_are_dead_they_are_asked_all_the_same() {
        let mut one = upstreams(1, Selection::Fastest);
        for _ in 0..20 {
            one.timed_out(0, 0);
        }
        assert_eq!(order(&mut one, 1), [0, 0]);
        let mut two = upstreams(2, Selection::Fastest);
        for _ in 0..20 {
            two.timed_out(0, 0);
            two.timed_out(1, 0);
        }
        assert_eq!(order(&mut two, 1).len(), 4);
    }
}
