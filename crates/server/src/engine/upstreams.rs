//! Selects the upstream.

use dns64_transport::clock::{Nanos, SECOND};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _};

use super::habits::{Form, Habits};
use super::rtt::Rtt;
use crate::counts::Fault;
use crate::health::{Turn, UpstreamState};
use crate::settings::{Selection, ServerSet, UPSTREAMS_MAX, Upstream};

/// Number of queries to each upstream for one question.
pub(super) type Asked = [u8; UPSTREAMS_MAX];

/// The upstreams and their observed state.
pub(super) struct Upstreams {
    list: Vec<State>,
    sets: Vec<Set>,
}

/// Upstreams that are queried for the same names.
struct Set {
    /// Number of the set, as in [`crate::cache::Key::set`].
    number: u16,
    /// Their numbers, as bits, and in the order of the configuration.
    servers: u32,
    order: Box<[usize]>,
    selection: Selection,
    /// The upstream to begin with, in turn.
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
    /// Smoothed share of the names that it failed, in millionths, the last of them, and the reason of the last.
    failed_ppm: u32,
    failed: [u64; FAILED_NAMES],
    failures: usize,
    fault: Option<Fault>,
    /// Time of its last answer of use.
    useful_at: Option<Nanos>,
    /// The operator has closed it: it is not queried.
    closed: bool,
}

/// Weight of one query in the smoothed loss: 1/16, so that one loss among responses is less than a
/// tenth.
const LOSS_SHARE: u32 = 16;

/// Weight of one name in the smoothed share of failed names: a quarter if another upstream has answered for it, and of
/// each answer of use. A name that all upstreams fail is probably broken; if there are no others, only many of them
/// in a row show that the upstream is.
const CONTRADICTED_SHARE: u32 = 4;
const FAILED_SHARE: u32 = 16;

/// An upstream is down if it fails more than 60 % of the names, and up again at a quarter: after failing three that another
/// upstream answers, or fifteen in a row.
const FAILED_MAX_PPM: u32 = 600_000;
const FAILED_UP_PPM: u32 = 250_000;

/// Number of names that count only once.
const FAILED_NAMES: usize = 16;

/// A share of 1, in millionths.
const WHOLE_PPM: u32 = 1_000_000;

/// One query in this many goes to another upstream than the fastest as well, so that its round-trip
/// time is known.
const EXPLORE_ONE_IN: u32 = 64;

/// Number of consecutive timeouts, and duration of the silence, after which an upstream is down. A
/// slow recursion does not justify a log line; others are queried after its first timeout.
const TIMEOUTS_MAX: u32 = 3;
const SILENCE_NS: Nanos = 2 * SECOND;

/// Time for which an upstream that is down is not queried: doubled with each unsuccessful probe, up
/// to the maximum.
const HOLD_NS: Nanos = SECOND;
const HOLD_MAX_NS: Nanos = 30 * SECOND;

impl Upstreams {
    /// Creates upstreams in their initial state, and the sets of them, each with its number. The secret, for cookies,
    /// must be random.
    pub(super) fn new<'a>(
        upstreams: &[Upstream],
        sets: impl IntoIterator<Item = (u16, &'a ServerSet)>,
        secret: [u8; 16],
    ) -> Self {
        let list = upstreams.iter().map(|upstream| State {
            upstream: upstream.clone(),
            rtt: Rtt::default(),
            habits: Habits::new(secret, upstream),
            heard_at: None,
            timeouts: 0,
            silent_since: 0,
            held_until: 0,
            probed: false,
            down_since: None,
            tries: 0,
            loss_ppm: 0,
            failed_ppm: 0,
            failed: [0; FAILED_NAMES],
            failures: 0,
            fault: None,
            useful_at: None,
            closed: false,
        });
        Self {
            list: list.collect(),
            sets: sets
                .into_iter()
                .map(|(number, set)| Set {
                    number,
                    servers: set.servers.iter().fold(0, |bits, i| bits | 1 << i),
                    order: set.servers.as_slice().into(),
                    selection: set.selection,
                    next: 0,
                })
                .collect(),
        }
    }

    /// The numbers of the sets that an upstream is in.
    pub(super) fn sets_of(&self, server: usize) -> impl Iterator<Item = u16> {
        let sets = self.sets.iter();
        let sets = sets.filter(move |set| set.servers >> server & 1 == 1);
        sets.map(|set| set.number)
    }

    /// The index of a set; `None` if a reload has removed it.
    fn place_of(&self, set: u16) -> Option<usize> {
        self.sets.iter().position(|other| other.number == set)
    }

    /// The state of an upstream.
    pub(super) fn state(&self, server: usize, now: Nanos) -> Option<UpstreamState> {
        let state = self.list.get(server)?;
        Some(UpstreamState {
            rtt_ns: state.rtt.smoothed_ns(),
            loss_ppm: state.loss_ppm,
            failed_ppm: state.failed_ppm,
            heard_at: if state.fails() {
                state.useful_at
            } else {
                state.heard_at
            },
            down_since: state.down_since,
            fault: state.fault,
            lacks: state.habits.lacks(now),
        })
    }

    /// Closes these upstreams, bits by number, and opens the others.
    pub(super) fn close(&mut self, closed: u32) {
        for (number, state) in self.list.iter_mut().enumerate() {
            state.closed = closed >> number & 1 == 1;
        }
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

    /// Selects the next upstream of a set for a question; `None` if none has attempts left.
    ///
    /// Upstreams without a current timeout come first; of these, those with the fewest queries for
    /// this question; of these, the policy selects one.
    pub(super) fn choose(&mut self, set: u16, asked: &Asked, random: &mut StdRng) -> Option<usize> {
        let place = self.place_of(set)?;
        let servers = self.sets[place].servers;
        let open = |i: &usize| asked[*i] < self.list[*i].upstream.attempts && !self.list[*i].closed;
        if servers.is_power_of_two() {
            let only = servers.trailing_zeros() as usize;
            return Some(only).filter(open);
        }
        let rank = |i: usize| (self.is_suspect(i), asked[i]);
        let best = numbers(servers).filter(open).map(rank).min()?;
        let candidates = numbers(servers).filter(|i| open(i) && rank(*i) == best);
        let candidates = candidates.fold(0, |bits, i| bits | 1 << i);
        Some(self.by_policy(place, candidates, random))
    }

    /// Whether an upstream has not responded since a query that it should have answered, or fails most names.
    pub(super) fn is_suspect(&self, server: usize) -> bool {
        self.list[server].timeouts > 0 || self.is_down(server)
    }

    /// Selects an upstream that was not queried for this question yet, and may be up again or faster than it was. It is
    /// probed in parallel with the selected one, so that no client waits for it. If it may be up again, it gets no other
    /// queries meanwhile. A set of one has no other.
    pub(super) fn probe(
        &mut self,
        set: u16,
        asked: &Asked,
        now: Nanos,
        random: &mut StdRng,
    ) -> Option<usize> {
        let set = &self.sets[self.place_of(set)?];
        if set.servers.is_power_of_two() {
            return None;
        }
        let due = |i: &usize| {
            !self.list[*i].closed
                && self.is_suspect(*i)
                && self.list[*i].held_until <= now
                && asked[*i] == 0
        };
        let Some(server) = numbers(set.servers).find(due) else {
            return self.explore(set, asked, random);
        };
        let timeout_ns = self.timeout_ns(server, 0);
        let state = &mut self.list[server];
        state.held_until = now + timeout_ns;
        state.probed = true;
        Some(server)
    }

    /// Selects an upstream that the policy rarely selects, once in a while.
    fn explore(&self, set: &Set, asked: &Asked, random: &mut StdRng) -> Option<usize> {
        if set.selection != Selection::Fastest || !random.next_u32().is_multiple_of(EXPLORE_ONE_IN)
        {
            return None;
        }
        let others = numbers(set.servers)
            .filter(|&i| asked[i] == 0 && !self.is_suspect(i) && !self.list[i].closed);
        let others = others.fold(0, |bits, i| bits | 1 << i);
        (others != 0).then(|| any(others, random))
    }

    /// Selects by the policy of a set from `candidates`, bits of numbers, at least one.
    fn by_policy(&mut self, place: usize, candidates: u32, random: &mut StdRng) -> usize {
        let set = &mut self.sets[place];
        let first = |bits: u32| numbers(bits).next();
        let chosen = match set.selection {
            Selection::Failover => set.order.iter().copied().find(|i| candidates >> i & 1 == 1),
            Selection::Random => Some(any(candidates, random)),
            Selection::RoundRobin => {
                let later = candidates & !((1 << set.next) - 1);
                let chosen = first(later).or_else(|| first(candidates));
                set.next = chosen.map_or(0, |chosen| (chosen + 1) % UPSTREAMS_MAX);
                chosen
            }
            // Upstreams without a response yet come first, so that all are tried.
            Selection::Fastest => {
                numbers(candidates).min_by_key(|&i| self.list[i].rtt.smoothed_ns())
            }
        };
        chosen.unwrap_or_default()
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
        state.loss_ppm -= state.loss_ppm / LOSS_SHARE;
        if state.fails() {
            return None;
        }
        state.up(now)
    }

    /// Records an answer of use. Returns whether the upstream was down.
    pub(super) fn useful(&mut self, server: usize, now: Nanos) -> Option<Turn> {
        let state = &mut self.list[server];
        state.useful_at = Some(now);
        if state.failed_ppm == 0 {
            return None;
        }
        let fails = state.fails();
        // Rounded up, so that it reaches 0.
        state.failed_ppm -= state.failed_ppm.div_ceil(CONTRADICTED_SHARE);
        if !fails {
            return None;
        }
        if state.failed_ppm >= FAILED_UP_PPM {
            // The next query probes it again.
            (state.held_until, state.tries) = (now, 0);
            return None;
        }
        state.up(now)
    }

    /// Records that an upstream has failed a query for a name. Returns whether the name counts, and whether the upstream
    /// is down now.
    pub(super) fn failed_name(
        &mut self,
        server: usize,
        name: u64,
        fault: Fault,
        now: Nanos,
    ) -> (bool, Option<Turn>) {
        let state = &mut self.list[server];
        state.hold_after_probe(now);
        if state.failed.contains(&name) {
            return (false, None);
        }
        state.failed[state.failures % FAILED_NAMES] = name;
        state.failures += 1;
        state.fault = Some(fault);
        (true, state.failed_more(FAILED_SHARE, now))
    }

    /// Records that another upstream has answered a query that this one has failed. Returns whether it is down now.
    pub(super) fn contradicted(&mut self, server: usize, now: Nanos) -> Option<Turn> {
        self.list[server].failed_more(CONTRADICTED_SHARE, now)
    }

    /// Records a timeout of a query that was sent at `sent_at`, or that no session was possible for it. Returns whether
    /// the upstream is down now.
    ///
    /// A timeout counts only if the upstream has not responded to another query meanwhile: a query
    /// may take long because its recursion does.
    pub(super) fn timed_out(
        &mut self,
        server: usize,
        fault: Fault,
        sent_at: Nanos,
        now: Nanos,
    ) -> Option<Turn> {
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
        self.failed(server, fault, for_long, now)
    }

    /// Records an ICMP error, which says that an upstream is unreachable. Returns whether it is
    /// down now.
    pub(super) fn unreachable(&mut self, server: usize, now: Nanos) -> Option<Turn> {
        let state = &self.list[server];
        if state.held_until > now && !state.probed {
            return None;
        }
        self.failed(server, Fault::NoAnswer, true, now)
    }

    fn failed(&mut self, server: usize, fault: Fault, for_long: bool, now: Nanos) -> Option<Turn> {
        let state = &mut self.list[server];
        state.probed = false;
        state.timeouts = state.timeouts.saturating_add(1);
        if state.timeouts < TIMEOUTS_MAX || !for_long {
            return None;
        }
        state.fault = Some(fault);
        state.down(now)
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

/// The numbers of bits, in ascending order.
fn numbers(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let number = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (number < u32::BITS).then_some(number as usize)
    })
}

/// A number of bits, of which there is at least one.
fn any(bits: u32, random: &mut StdRng) -> usize {
    let skip = random.random_range(0..bits.count_ones() as usize);
    numbers(bits).nth(skip).unwrap_or_default()
}

impl State {
    /// Whether it is down because it fails queries, although it responds.
    fn fails(&self) -> bool {
        self.down_since.is_some() && self.failed_ppm >= FAILED_UP_PPM
    }

    /// It is down, or still is.
    fn down(&mut self, now: Nanos) -> Option<Turn> {
        let is_news = self.down_since.is_none();
        self.tries = if is_news { 0 } else { self.tries + 1 };
        let hold = HOLD_NS.saturating_mul(1 << self.tries.min(16));
        self.held_until = now + hold.min(HOLD_MAX_NS);
        self.down_since.get_or_insert(now);
        let fault = self.fault.filter(|_| is_news);
        fault.map(Turn::Down)
    }

    fn up(&mut self, now: Nanos) -> Option<Turn> {
        self.held_until = 0;
        let since = self.down_since.take()?;
        Some(Turn::Up {
            after_ns: now.saturating_sub(since),
        })
    }

    /// Adds a name to the share of failed ones.
    fn failed_more(&mut self, share: u32, now: Nanos) -> Option<Turn> {
        self.failed_ppm += (WHOLE_PPM - self.failed_ppm) / share;
        let is_news = self.failed_ppm > FAILED_MAX_PPM && self.down_since.is_none();
        is_news.then(|| self.down(now))?
    }

    /// A probe has failed: the next one is later.
    fn hold_after_probe(&mut self, now: Nanos) {
        if std::mem::take(&mut self.probed) && self.down_since.is_some() {
            self.down(now);
        }
    }
}

#[cfg(test)]
mod tests;
