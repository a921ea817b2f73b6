//! Which upstream is asked.

use dns64_transport::clock::{Nanos, SECOND};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _};

use super::habits::Habits;
use super::rtt::Rtt;
use crate::health::UpstreamState;
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
    rtt: Rtt,
    habits: Habits,
    /// When its last answer came.
    heard_at: Option<Nanos>,
    /// Timeouts in a row, as far as they say something of the upstream.
    timeouts: u32,
    /// When the first of these questions was sent.
    silent_since: Nanos,
    /// Not tried before this moment if another can be.
    held_until: Nanos,
    /// It is being tried.
    probed: bool,
    down_since: Option<Nanos>,
    /// How often it was tried in vain since then.
    tries: u32,
    /// Share of the questions that were not answered in time, smoothed, in millionths.
    loss_ppm: u32,
}

/// That an upstream is down, or is so no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has not answered this many times in a row.
    Down { timeouts: u32 },
    /// It has answered, after so long.
    Up { after_ns: Nanos },
}

/// Weight of one question in the smoothed loss: 1/16, so that one in a row of good ones is not yet
/// a tenth.
const LOSS_SHARE: u32 = 16;

/// A share of 1, in millionths.
const WHOLE_PPM: u32 = 1_000_000;

/// One question in so many goes to another than the fastest, so that its time is known.
const EXPLORE_ONE_IN: u32 = 32;

/// Timeouts in a row, and silence, after which an upstream is held to be down. A recursion that takes
/// long is not worth a line in the log; others are asked at its first timeout.
const TIMEOUTS_MAX: u32 = 3;
const SILENCE_NS: Nanos = 2 * SECOND;

/// How long an upstream that is down is left alone: doubled each time that it is tried in vain, up to
/// the maximum.
const HOLD_NS: Nanos = SECOND;
const HOLD_MAX_NS: Nanos = 30 * SECOND;

impl Upstreams {
    /// Upstreams of which nothing is known. The secret, for cookies, must be random.
    pub(super) fn new(upstreams: &[Upstream], selection: Selection, secret: [u8; 16]) -> Self {
        let list = upstreams.iter().map(|&upstream| State {
            upstream,
            rtt: Rtt::default(),
            habits: Habits::new(secret, upstream.address),
            heard_at: None,
            timeouts: 0,
            silent_since: 0,
            held_until: 0,
            probed: false,
            down_since: None,
            tries: 0,
            loss_ppm: 0,
        });
        Self {
            list: list.collect(),
            selection,
            next: 0,
        }
    }

    /// What is known of an upstream.
    pub(super) fn state(&self, server: usize) -> Option<UpstreamState> {
        let state = self.list.get(server)?;
        Some(UpstreamState {
            rtt_ns: state.rtt.smoothed_ns(),
            loss_ppm: state.loss_ppm,
            heard_at: state.heard_at,
            down_since: state.down_since,
        })
    }

    /// How long an answer is waited for that was asked for `repeats` times before: doubled each
    /// time (RFC 6298 section 5.5), up to the bound of the settings.
    pub(super) fn timeout_ns(&self, server: usize, repeats: u8) -> Nanos {
        let state = &self.list[server];
        let wait = state.rtt.timeout_ns();
        // 16 doublings are beyond every bound.
        wait.saturating_mul(1 << repeats.min(16))
            .min(state.upstream.timeout_ns)
    }

    pub(super) fn habits(&mut self, server: usize) -> &mut Habits {
        &mut self.list[server].habits
    }

    /// The upstream to ask next for a question; `None` if all have had their attempts.
    ///
    /// First those whose last word was an answer, of these first those that this question was asked
    /// least often, of these by the policy.
    pub(super) fn choose(&mut self, asked: &Asked, random: &mut StdRng) -> Option<usize> {
        if let [only] = self.list.as_slice() {
            return (asked[0] < only.upstream.attempts).then_some(0);
        }
        let rank = |i: usize| (self.is_suspect(i), asked[i]);
        let open = |i: &usize| asked[*i] < self.list[*i].upstream.attempts;
        let count = self.list.len();
        let best = (0..count).filter(open).map(rank).min()?;
        let candidates: u32 = (0..count)
            .filter(|i| open(i) && rank(*i) == best)
            .fold(0, |set, i| set | 1 << i);
        Some(self.by_policy(candidates, random))
    }

    /// Whether an upstream has been silent since a question that it should have answered.
    pub(super) fn is_suspect(&self, server: usize) -> bool {
        self.list[server].timeouts > 0
    }

    /// An upstream that may be back and has not been asked `asked`: it is asked beside the one that
    /// was chosen, so that no client waits for it, and no more go there meanwhile.
    pub(super) fn probe(&mut self, asked: &Asked, now: Nanos) -> Option<usize> {
        let due = |i: &usize| {
            let state = &self.list[*i];
            state.timeouts > 0 && state.held_until <= now && asked[*i] == 0
        };
        let server = (0..self.list.len()).find(due)?;
        let timeout_ns = self.timeout_ns(server, 0);
        let state = &mut self.list[server];
        state.held_until = now + timeout_ns;
        state.probed = true;
        Some(server)
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
            // Those that have not answered yet go first, so that all are tried.
            Selection::Fastest => (0..count)
                .filter(is_in)
                .min_by_key(|&i| self.list[i].rtt.smoothed_ns())
                .unwrap_or_default(),
        }
    }

    /// An answer came, however late; `rtt_ns`: how long it took, if that is the time of a round
    /// trip. Tells whether the upstream was down.
    pub(super) fn answered(
        &mut self,
        server: usize,
        rtt_ns: Option<Nanos>,
        now: Nanos,
    ) -> Option<Turn> {
        let state = &mut self.list[server];
        if let Some(rtt_ns) = rtt_ns {
            state.rtt.heard(rtt_ns);
        }
        state.heard_at = Some(now);
        state.timeouts = 0;
        state.held_until = 0;
        state.loss_ppm -= state.loss_ppm / LOSS_SHARE;
        let since = state.down_since.take()?;
        Some(Turn::Up {
            after_ns: now.saturating_sub(since),
        })
    }

    /// No answer to a question of `sent_at` came in time. Tells whether the upstream is held to be
    /// down from now on.
    ///
    /// It says something of the upstream only if that has answered nothing else meanwhile: a
    /// question may take long because it is hard to answer.
    pub(super) fn timed_out(&mut self, server: usize, sent_at: Nanos, now: Nanos) -> Option<Turn> {
        if self.list[server].heard_at.is_some_and(|at| at >= sent_at) {
            return None;
        }
        let state = &mut self.list[server];
        if state.timeouts == 0 {
            state.silent_since = sent_at;
        }
        let for_long = now.saturating_sub(state.silent_since) >= SILENCE_NS;
        if state.held_until > now {
            // It was in flight when the upstream was found to be down, and tells nothing new: a
            // busy server would hold an upstream that was gone for a moment for the maximum.
            return None;
        }
        self.failed(server, for_long, now)
    }

    /// Nobody listens at an upstream, or no way leads there. Tells whether it is held to be down
    /// from now on.
    pub(super) fn unreachable(&mut self, server: usize, now: Nanos) -> Option<Turn> {
        let state = &self.list[server];
        if state.held_until > now && !state.probed {
            return None;
        }
        self.failed(server, true, now)
    }

    fn failed(&mut self, server: usize, for_long: bool, now: Nanos) -> Option<Turn> {
        let state = &mut self.list[server];
        state.probed = false;
        state.timeouts = state.timeouts.saturating_add(1);
        if state.timeouts < TIMEOUTS_MAX || !for_long {
            return None;
        }
        let is_news = state.down_since.is_none();
        state.tries = if is_news { 0 } else { state.tries + 1 };
        let hold = HOLD_NS.saturating_mul(1 << state.tries.min(16));
        state.held_until = now + hold.min(HOLD_MAX_NS);
        state.down_since.get_or_insert(now);
        is_news.then_some(Turn::Down {
            timeouts: state.timeouts,
        })
    }

    /// Whether an upstream has been silent long enough for questions to have been given up.
    pub(super) fn is_silent(&self, server: usize) -> bool {
        self.list[server].timeouts >= TIMEOUTS_MAX
    }

    /// Whether an upstream is down.
    pub(super) fn is_down(&self, server: usize) -> bool {
        self.list[server].down_since.is_some()
    }

    /// A question was not answered in time.
    pub(super) fn late(&mut self, server: usize) {
        let loss = &mut self.list[server].loss_ppm;
        *loss = *loss - *loss / LOSS_SHARE + WHOLE_PPM / LOSS_SHARE;
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
        Upstreams::new(&list, selection, [1; 16])
    }

    /// The order in which one question goes to all of them until they are used up.
    fn order(upstreams: &mut Upstreams) -> Vec<usize> {
        let mut random = StdRng::from_seed([3; 32]);
        let mut asked = Asked::default();
        let mut order = Vec::new();
        while let Some(server) = upstreams.choose(&asked, &mut random) {
            asked[server] += 1;
            order.push(server);
        }
        order
    }

    fn first(upstreams: &mut Upstreams) -> usize {
        let mut random = StdRng::from_seed([3; 32]);
        let chosen = upstreams.choose(&Asked::default(), &mut random);
        chosen.unwrap()
    }

    #[test]
    fn a_question_goes_to_every_upstream_before_it_goes_to_one_twice() {
        for selection in [
            Selection::RoundRobin,
            Selection::Random,
            Selection::Fastest,
            Selection::Failover,
        ] {
            let order = order(&mut upstreams(3, selection));
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
        assert_eq!(order(&mut failover), [0, 1, 2, 0, 1, 2]);
        let mut robin = upstreams(3, Selection::RoundRobin);
        let turns: Vec<_> = (0..5).map(|_| first(&mut robin)).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn the_fastest_gets_most_and_the_others_enough_to_be_known() {
        let mut fastest = upstreams(2, Selection::Fastest);
        fastest.answered(0, Some(30 * MILLISECOND), 0);
        fastest.answered(1, Some(2 * MILLISECOND), 0);
        let mut random = StdRng::from_seed([3; 32]);
        let mut counts = [0; 2];
        for _ in 0..10_000 {
            let server = fastest.choose(&Asked::default(), &mut random);
            counts[server.unwrap()] += 1;
        }
        // One in 32 explores, and half of these end at the slow one: 156 expected.
        assert!((80..300).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn a_failure_makes_no_upstream_look_fast() {
        let mut pair = upstreams(2, Selection::Fastest);
        pair.answered(0, Some(0), 0);
        pair.answered(1, Some(2 * MILLISECOND), 0);
        assert_eq!(first(&mut pair), 0);
        pair.timed_out(0, MILLISECOND, 60 * MILLISECOND);
        for _ in 0..100 {
            assert_eq!(first(&mut pair), 1);
        }
        // Nor one that has never answered.
        let mut pair = upstreams(2, Selection::Fastest);
        pair.timed_out(0, MILLISECOND, 400 * MILLISECOND);
        pair.answered(1, Some(2 * MILLISECOND), 0);
        assert_eq!(first(&mut pair), 1);
    }

    #[test]
    fn a_question_that_takes_long_does_not_count_against_an_upstream_that_answers_others() {
        let mut one = upstreams(1, Selection::Fastest);
        one.answered(0, Some(MILLISECOND), SECOND);
        for _ in 0..10 {
            assert_eq!(one.timed_out(0, SECOND, 2 * SECOND), None);
        }
        assert!(!one.is_suspect(0));
        assert_eq!(one.timed_out(0, SECOND + 1, 2 * SECOND), None);
        assert!(one.is_suspect(0));
    }

    #[test]
    fn a_silent_upstream_is_tried_beside_another_at_growing_intervals() {
        let mut pair = upstreams(2, Selection::Failover);
        let fresh = Asked::default();
        let down = (0..TIMEOUTS_MAX).filter_map(|_| pair.unreachable(0, SECOND));
        assert_eq!(down.collect::<Vec<_>>(), [Turn::Down { timeouts: 3 }]);
        assert_eq!(pair.state(0).unwrap().down_since, Some(SECOND));
        assert_eq!(first(&mut pair), 1);
        assert_eq!(pair.probe(&fresh, SECOND + 1), None, "held for a second");
        assert_eq!(pair.probe(&fresh, 2 * SECOND), Some(0));
        assert_eq!(pair.probe(&fresh, 2 * SECOND), None, "one at a time");
        assert_eq!(pair.unreachable(0, 3 * SECOND), None);
        assert_eq!(pair.probe(&fresh, 4 * SECOND), None, "held for two seconds");
        assert_eq!(pair.probe(&fresh, 5 * SECOND), Some(0));
        let up = pair.answered(0, Some(MILLISECOND), 5 * SECOND);
        let after_ns = 4 * SECOND;
        assert_eq!(up, Some(Turn::Up { after_ns }));
        assert_eq!(pair.answered(0, Some(MILLISECOND), 5 * SECOND), None);
        assert_eq!(first(&mut pair), 0, "it is back");
        assert_eq!(pair.probe(&fresh, 5 * SECOND), None);
    }

    #[test]
    fn three_timeouts_are_an_outage_after_two_seconds_of_silence() {
        let mut one = upstreams(1, Selection::Failover);
        for at in [100, 200, 300, 1999] {
            let turn = one.timed_out(0, 0, at * MILLISECOND);
            assert_eq!((turn, one.is_down(0)), (None, false));
        }
        let turn = one.timed_out(0, SECOND, 2 * SECOND);
        assert_eq!(turn, Some(Turn::Down { timeouts: 5 }));
    }

    #[test]
    fn what_was_in_flight_when_an_upstream_died_does_not_hold_it_longer() {
        let mut pair = upstreams(2, Selection::Failover);
        for late in 0..100 {
            pair.unreachable(0, SECOND + late);
        }
        let fresh = Asked::default();
        assert_eq!(pair.probe(&fresh, 2 * SECOND), None);
        assert_eq!(
            pair.probe(&fresh, 2 * SECOND + 2),
            Some(0),
            "a second later"
        );
    }

    #[test]
    fn when_all_are_dead_they_are_asked_all_the_same() {
        for (count, questions) in [(1, 2), (2, 4)] {
            let mut dead = upstreams(count, Selection::Fastest);
            for server in 0..usize::from(count) {
                for _ in 0..20 {
                    dead.unreachable(server, 0);
                }
            }
            assert_eq!(order(&mut dead).len(), questions);
        }
    }

    #[test]
    fn a_wait_doubles_with_each_repeat_up_to_the_bound_of_the_settings() {
        let mut one = upstreams(1, Selection::Fastest);
        one.answered(0, Some(100 * MILLISECOND), 0);
        let waits = [0, 1, 2, 3, u8::MAX].map(|n| one.timeout_ns(0, n) / MILLISECOND);
        assert_eq!(waits, [300, 600, 800, 800, 800]);
    }

    #[test]
    fn the_share_of_late_answers_is_smoothed() {
        let mut one = upstreams(1, Selection::Fastest);
        for i in 0..1000 {
            if i % 4 == 0 {
                one.late(0);
            } else {
                one.answered(0, None, 0);
            }
        }
        let loss = one.state(0).unwrap().loss_ppm;
        assert!((200_000..300_000).contains(&loss), "{loss}");
    }
}
