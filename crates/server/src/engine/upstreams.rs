//! Selects the upstream.

use dns64_transport::clock::{Nanos, SECOND};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _};

use super::habits::{Form, Habits};
use super::rtt::Rtt;
use crate::health::{Turn, UpstreamState};
use crate::settings::{Selection, UPSTREAMS_MAX, Upstream};

/// Number of queries to each upstream for one question.
pub(super) type Asked = [u8; UPSTREAMS_MAX];

/// The upstreams and their observed state.
pub(super) struct Upstreams {
    list: Vec<State>,
    selection: Selection,
    next: usize,
}

struct State {
    upstream: Upstream,
    rtt: Rtt,
    habits: Habits,
    /// Time of its last response.
    heard_at: Option<Nanos>,
    /// Number of consecutive timeouts, without those that say nothing about the upstream.
    timeouts: u32,
    /// Send time of the first of these queries.
    silent_since: Nanos,
    /// Not queried before this time if another upstream can be.
    held_until: Nanos,
    /// A probe is in flight.
    probed: bool,
    down_since: Option<Nanos>,
    /// Number of unsuccessful probes since then.
    tries: u32,
    /// Smoothed share of the queries without a response in time, in millionths.
    loss_ppm: u32,
}

/// Weight of one query in the smoothed loss: 1/16, so that one loss among responses is less than a
/// tenth.
const LOSS_SHARE: u32 = 16;

/// A share of 1, in millionths.
const WHOLE_PPM: u32 = 1_000_000;

/// One query in this many goes to another upstream than the fastest, so that its round-trip time is
/// known.
const EXPLORE_ONE_IN: u32 = 32;

/// Number of consecutive timeouts, and duration of the silence, after which an upstream is down. A
/// slow recursion does not justify a log line; others are queried after its first timeout.
const TIMEOUTS_MAX: u32 = 3;
const SILENCE_NS: Nanos = 2 * SECOND;

/// Time for which an upstream that is down is not queried: doubled with each unsuccessful probe, up
/// to the maximum.
const HOLD_NS: Nanos = SECOND;
const HOLD_MAX_NS: Nanos = 30 * SECOND;

impl Upstreams {
    /// Creates upstreams in their initial state. The secret, for cookies, must be random.
    pub(super) fn new(upstreams: &[Upstream], selection: Selection, secret: [u8; 16]) -> Self {
        let list = upstreams.iter().map(|&upstream| State {
            upstream,
            rtt: Rtt::default(),
            habits: Habits::new(secret, &upstream),
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

    /// The state of an upstream.
    pub(super) fn state(&self, server: usize) -> Option<UpstreamState> {
        let state = self.list.get(server)?;
        Some(UpstreamState {
            rtt_ns: state.rtt.smoothed_ns(),
            loss_ppm: state.loss_ppm,
            heard_at: state.heard_at,
            down_since: state.down_since,
        })
    }

    /// Timeout of a query that was sent `repeats` times before: doubled each time (RFC 6298 section
    /// 5.5), up to the limit of the settings.
    pub(super) fn timeout_ns(&self, server: usize, repeats: u8) -> Nanos {
        let state = &self.list[server];
        let wait = state.rtt.timeout_ns();
        // 16 doublings exceed every limit.
        wait.saturating_mul(1 << repeats.min(16))
            .min(state.upstream.timeout_ns)
    }

    /// The form of a query that was sent `repeats` times before.
    pub(super) fn form(&self, server: usize, repeats: u8, do_bit: bool, now: Nanos) -> Form {
        let State {
            upstream,
            habits,
            timeouts,
            ..
        } = &self.list[server];
        if repeats == 0 {
            return habits.form(now);
        }
        let left = upstream.attempts.saturating_sub(repeats + 1);
        habits.form_of_retry(left, *timeouts > 0, do_bit, now)
    }

    pub(super) fn habits(&mut self, server: usize) -> &mut Habits {
        &mut self.list[server].habits
    }

    /// Selects the next upstream for a question; `None` if none has attempts left.
    ///
    /// Upstreams without a current timeout come first; of these, those with the fewest queries for
    /// this question; of these, the policy selects one.
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

    /// Whether an upstream has not responded since a query that it should have answered.
    pub(super) fn is_suspect(&self, server: usize) -> bool {
        self.list[server].timeouts > 0
    }

    /// Selects an upstream that may be up again and was not queried for this question yet. It is
    /// probed in parallel with the selected one, so that no client waits for it, and gets no other
    /// queries meanwhile.
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

    /// Selects by the policy from `candidates`, a set of numbers that is not empty.
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
            // Upstreams without a response yet come first, so that all are tried.
            Selection::Fastest => (0..count)
                .filter(is_in)
                .min_by_key(|&i| self.list[i].rtt.smoothed_ns())
                .unwrap_or_default(),
        }
    }

    /// Records a response, which may be late; `rtt_ns` is its time, if that is a round-trip time.
    /// Returns whether the upstream was down.
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

    /// Records a timeout of a query that was sent at `sent_at`. Returns whether the upstream is
    /// down now.
    ///
    /// A timeout counts only if the upstream has not responded to another query meanwhile: a query
    /// may take long because its recursion does.
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
            // Its query was sent before the upstream was found to be down, so it is no news:
            // otherwise a busy server would quickly reach the maximum for an upstream that was down
            // for a moment.
            return None;
        }
        self.failed(server, for_long, now)
    }

    /// Records an ICMP error, which says that an upstream is unreachable. Returns whether it is
    /// down now.
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

    /// Whether an upstream has been silent for so long that lookups may have no attempts left.
    pub(super) fn is_silent(&self, server: usize) -> bool {
        self.list[server].timeouts >= TIMEOUTS_MAX
    }

    /// Whether an upstream is down.
    pub(super) fn is_down(&self, server: usize) -> bool {
        self.list[server].down_since.is_some()
    }

    /// Counts a query without a response in time.
    pub(super) fn late(&mut self, server: usize) {
        let loss = &mut self.list[server].loss_ppm;
        *loss = *loss - *loss / LOSS_SHARE + WHOLE_PPM / LOSS_SHARE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Features;
    use rand::SeedableRng as _;

    const MILLISECOND: Nanos = 1_000_000;

    fn upstreams(count: u8, selection: Selection) -> Upstreams {
        let list: Vec<Upstream> = (0..count)
            .map(|i| Upstream {
                address: ([192, 0, 2, i], 53).into(),
                timeout_ns: 800 * MILLISECOND,
                attempts: 2,
                features: Features {
                    edns: true,
                    cookies: true,
                    randomise_case: false,
                    tcp: true,
                },
            })
            .collect();
        Upstreams::new(&list, selection, [1; 16])
    }

    /// The order of the upstreams for one question until no attempts are left.
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
    fn query_goes_to_every_upstream_before_a_retry() {
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
    fn failover_selects_the_first_and_round_robin_the_next() {
        let mut failover = upstreams(3, Selection::Failover);
        assert_eq!(order(&mut failover), [0, 1, 2, 0, 1, 2]);
        let mut robin = upstreams(3, Selection::RoundRobin);
        let turns: Vec<_> = (0..5).map(|_| first(&mut robin)).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn fastest_gets_most_queries_and_others_some() {
        let mut fastest = upstreams(2, Selection::Fastest);
        fastest.answered(0, Some(30 * MILLISECOND), 0);
        fastest.answered(1, Some(2 * MILLISECOND), 0);
        let mut random = StdRng::from_seed([3; 32]);
        let mut counts = [0; 2];
        for _ in 0..10_000 {
            let server = fastest.choose(&Asked::default(), &mut random);
            counts[server.unwrap()] += 1;
        }
        // One in 32 is random, and half of these select the slow one: 156 expected.
        assert!((80..300).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn failure_does_not_lower_the_round_trip_time() {
        let mut pair = upstreams(2, Selection::Fastest);
        pair.answered(0, Some(0), 0);
        pair.answered(1, Some(2 * MILLISECOND), 0);
        assert_eq!(first(&mut pair), 0);
        pair.timed_out(0, MILLISECOND, 60 * MILLISECOND);
        for _ in 0..100 {
            assert_eq!(first(&mut pair), 1);
        }
        // Neither is one that has never responded.
        let mut pair = upstreams(2, Selection::Fastest);
        pair.timed_out(0, MILLISECOND, 400 * MILLISECOND);
        pair.answered(1, Some(2 * MILLISECOND), 0);
        assert_eq!(first(&mut pair), 1);
    }

    #[test]
    fn slow_query_does_not_count_as_timeout_if_others_are_answered() {
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
    fn silent_upstream_is_probed_at_growing_intervals() {
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
    fn upstream_is_down_after_three_timeouts_and_two_seconds() {
        let mut one = upstreams(1, Selection::Failover);
        for at in [100, 200, 300, 1999] {
            let turn = one.timed_out(0, 0, at * MILLISECOND);
            assert_eq!((turn, one.is_down(0)), (None, false));
        }
        let turn = one.timed_out(0, SECOND, 2 * SECOND);
        assert_eq!(turn, Some(Turn::Down { timeouts: 5 }));
    }

    #[test]
    fn queries_in_flight_at_an_outage_do_not_extend_the_hold() {
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
    fn upstreams_that_are_all_down_are_still_queried() {
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
    fn timeout_doubles_with_each_retry_up_to_its_limit() {
        let mut one = upstreams(1, Selection::Fastest);
        one.answered(0, Some(100 * MILLISECOND), 0);
        let waits = [0, 1, 2, 3, u8::MAX].map(|n| one.timeout_ns(0, n) / MILLISECOND);
        assert_eq!(waits, [300, 600, 800, 800, 800]);
    }

    #[test]
    fn loss_is_smoothed() {
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
