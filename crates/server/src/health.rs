//! The state of the upstreams: each worker publishes its own view, others read the combined state. No locks.
//!
//! - [`UpstreamState`], [`UpstreamState::of_all`]: the state, of one worker and of all;
//! - [`Turn`]: a change of an upstream;
//! - [`Health`]: published states, and the changes that have been logged;
//! - [`InForce`]: the settings with the health of their upstreams.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dns64_transport::clock::Nanos;

use crate::counts::{Counter, Fault};
use crate::dnstap::Tap;
use crate::settings::{ServerSet, Settings};

/// The state of an upstream. Times are of the monotonic clock, which all workers share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamState {
    /// Smoothed round-trip time; `None` until the first answer.
    pub rtt_ns: Option<Nanos>,
    /// Smoothed share of queries without a timely response, in millionths.
    pub loss_ppm: u32,
    /// Smoothed share of names that it failed, in millionths.
    pub failed_ppm: u32,
    /// Time of its last response, without those that fail a query while it is down because of them.
    pub heard_at: Option<Nanos>,
    /// Start of its outage, if it is down, and the reason.
    pub down_since: Option<Nanos>,
    /// The last reason for which it failed a query, or was down.
    pub fault: Option<Fault>,
    /// What it is queried without for a while.
    pub lacks: Lacks,
}

impl UpstreamState {
    /// The combined state of all workers: the means of the measured round-trip times and shares. The upstream is down
    /// if a worker considers it down, and no worker has received a response of use since then: a worker without queries
    /// notices neither change.
    pub fn of_all(states: &[Self]) -> Self {
        let asked = || {
            // One that never has a TLS session has neither a round-trip time nor losses.
            let is_asked = |state: &&Self| {
                state.rtt_ns.is_some() || state.loss_ppm > 0 || state.failed_ppm > 0
            };
            states.iter().filter(is_asked)
        };
        // A mean of u32 values fits u32.
        let share =
            |mean: Option<u64>| mean.map_or(0, |mean| u32::try_from(mean).unwrap_or(u32::MAX));
        let heard_at = states.iter().filter_map(|state| state.heard_at).max();
        let down = states.iter().filter(|state| state.down_since >= heard_at);
        let first = down.filter(|state| state.down_since.is_some());
        let first = first.min_by_key(|state| state.down_since);
        Self {
            rtt_ns: mean(states.iter().filter_map(|state| state.rtt_ns)),
            loss_ppm: share(mean(asked().map(|state| u64::from(state.loss_ppm)))),
            failed_ppm: share(mean(asked().map(|state| u64::from(state.failed_ppm)))),
            heard_at,
            down_since: first.and_then(|state| state.down_since),
            fault: first.and_then(|state| state.fault),
            lacks: states
                .iter()
                .fold(Lacks::default(), |all, state| Lacks(all.0 | state.lacks.0)),
        }
    }
}

/// A change of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is down.
    Down(Fault),
    /// It is up again.
    Up {
        /// Time for which it was down.
        after_ns: Nanos,
    },
    /// It is queried without this capability for a while.
    Lacks(Capability),
}

/// A capability of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// EDNS.
    Edns,
    /// DNS cookies.
    Cookies,
    /// It copies the case of names.
    Case,
    /// TLS.
    Tls,
}

impl Capability {
    const ALL: [Self; 4] = [Self::Edns, Self::Cookies, Self::Case, Self::Tls];

    /// The key that sets it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Edns => "edns",
            Self::Cookies => "cookies",
            Self::Case => "randomise-case",
            Self::Tls => "tls",
        }
    }
}

/// Capabilities that an upstream lacks, as bits by their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks(u8);

impl Lacks {
    /// These capabilities.
    pub fn of(capabilities: impl IntoIterator<Item = Capability>) -> Self {
        let bits = capabilities.into_iter().map(|one| 1 << one as u8);
        Self(bits.fold(0, |all, bit| all | bit))
    }

    /// Each of them.
    pub fn each(self) -> impl Iterator<Item = Capability> {
        let all = Capability::ALL.into_iter();
        all.filter(move |one| self.0 >> *one as u8 & 1 == 1)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Edns => "EDNS",
            Self::Cookies => "cookies",
            Self::Case => "random case",
            Self::Tls => "TLS",
        })
    }
}

fn mean(values: impl Iterator<Item = u64>) -> Option<u64> {
    let (sum, count) = values.fold((0, 0), |(sum, count), value| (sum + value, count + 1));
    u64::checked_div(sum, count)
}

/// The upstreams of one configuration, with their states.
#[derive(Debug)]
pub struct Health {
    upstreams: Vec<Upstream>,
}

#[derive(Debug)]
struct Upstream {
    address: SocketAddr,
    /// Indexed by worker.
    workers: Vec<Published>,
    /// Start of the logged outage; 0: up.
    logged: AtomicU64,
    /// Bits of the capabilities whose absence is logged.
    logged_lacks: AtomicU64,
    /// Since when the operator has closed it.
    closed_since: Moment,
}

/// The state published by one worker. A concurrent reader may get fields of two updates, a second apart.
#[derive(Debug, Default)]
struct Published {
    rtt_ns: Moment,
    loss_ppm: Counter,
    failed_ppm: Counter,
    heard_at: Moment,
    down_since: Moment,
    /// The number of its fault plus one; 0: none.
    fault: Counter,
    lacks: Counter,
}

/// An optional time; 0 is `None`.
#[derive(Debug, Default)]
struct Moment(Counter);

impl Moment {
    fn set(&self, time: Option<Nanos>) {
        self.0.set(time.map_or(0, |time| time.max(1)));
    }

    fn get(&self) -> Option<Nanos> {
        Some(self.0.get()).filter(|&time| time > 0)
    }
}

impl Published {
    fn set(&self, state: UpstreamState) {
        self.rtt_ns.set(state.rtt_ns);
        self.loss_ppm.set(state.loss_ppm.into());
        self.failed_ppm.set(state.failed_ppm.into());
        self.heard_at.set(state.heard_at);
        self.down_since.set(state.down_since);
        self.fault
            .set(state.fault.map_or(0, |fault| fault as u64 + 1));
        self.lacks.set(state.lacks.0.into());
    }

    fn get(&self) -> UpstreamState {
        // The counters were set from u32 values.
        let share = |share: &Counter| u32::try_from(share.get()).unwrap_or(u32::MAX);
        let fault = usize::try_from(self.fault.get()).unwrap_or_default();
        UpstreamState {
            rtt_ns: self.rtt_ns.get(),
            loss_ppm: share(&self.loss_ppm),
            failed_ppm: share(&self.failed_ppm),
            heard_at: self.heard_at.get(),
            down_since: self.down_since.get(),
            fault: fault.checked_sub(1).map(|number| Fault::ALL[number]),
            lacks: Lacks(u8::try_from(self.lacks.get()).unwrap_or_default()),
        }
    }
}

impl Health {
    /// Creates the health of these upstreams, in unknown state.
    pub fn new(settings: &Settings) -> Self {
        let upstreams = settings.upstreams.iter().map(|upstream| Upstream {
            address: upstream.address,
            workers: (0..settings.workers)
                .map(|_| Published::default())
                .collect(),
            logged: AtomicU64::new(0),
            logged_lacks: AtomicU64::new(0),
            closed_since: Moment::default(),
        });
        Self {
            upstreams: upstreams.collect(),
        }
    }

    /// Publishes a worker's view of an upstream, by their indices. Unknown indices are ignored.
    pub fn publish(&self, worker: usize, server: usize, state: UpstreamState) {
        let upstream = self.upstreams.get(server);
        let Some(published) = upstream.and_then(|upstream| upstream.workers.get(worker)) else {
            return;
        };
        published.set(state);
    }

    /// Each upstream and its combined state, in the order of the settings.
    pub fn states(&self) -> impl Iterator<Item = (SocketAddr, UpstreamState)> {
        let upstreams = self.upstreams.iter();
        upstreams.map(|upstream| (upstream.address, upstream.state()))
    }

    /// Closes an upstream for all workers since this time, or opens it; returns whether there is one with this address.
    pub fn close(&self, address: SocketAddr, since: Option<Nanos>) -> bool {
        let upstream = self.upstreams.iter().find(|u| u.address == address);
        upstream.inspect(|u| u.closed_since.set(since)).is_some()
    }

    /// The closed upstreams, as bits by number.
    pub fn closed(&self) -> u32 {
        let bits = self.upstreams.iter().enumerate();
        bits.fold(0, |bits, (number, u)| {
            bits | u32::from(u.closed_since.get().is_some()) << number
        })
    }

    /// Whether the worker that found an upstream down must log it: no other worker has.
    pub fn went_down(&self, server: usize, since: Nanos) -> bool {
        let upstream = self.upstreams.get(server);
        upstream.is_some_and(|upstream| upstream.log_as(0, since.max(1)))
    }

    /// Whether the worker that found a capability missing must log it: it has not been logged since the last reload of
    /// other upstreams.
    pub fn is_news(&self, server: usize, capability: Capability) -> bool {
        let bit = 1 << capability as u32;
        let upstream = self.upstreams.get(server);
        upstream.is_some_and(|u| u.logged_lacks.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }

    /// The upstreams with a logged outage that is over according to the published states, and the duration of the
    /// outage. Each outage is returned to one caller only, which must log it.
    pub fn back_up(&self) -> impl Iterator<Item = (SocketAddr, Nanos)> {
        self.upstreams.iter().filter_map(|upstream| {
            let since = upstream.logged.load(Ordering::Relaxed);
            if since == 0 {
                return None;
            }
            let heard_at = upstream.state().heard_at.filter(|&at| at > since)?;
            let is_ours = upstream.log_as(since, 0);
            is_ours.then_some((upstream.address, heard_at - since))
        })
    }
}

impl Upstream {
    fn state(&self) -> UpstreamState {
        let states: Vec<_> = self.workers.iter().map(Published::get).collect();
        let state = UpstreamState::of_all(&states);
        match self.closed_since.get() {
            None => state,
            since => UpstreamState {
                down_since: since,
                fault: None,
                ..state
            },
        }
    }

    /// Changes the logged state; returns whether no other worker was faster.
    fn log_as(&self, before: u64, after: u64) -> bool {
        let logged = &self.logged;
        let changed = logged.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
        changed.is_ok()
    }
}

/// The settings in force, and the health of their upstreams.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The settings.
    pub settings: Arc<Settings>,
    /// Their upstreams.
    pub health: Arc<Health>,
    /// Where responses are sent besides to clients, since the start.
    pub tap: Option<Tap>,
}

impl InForce {
    /// Settings with upstreams in unknown state.
    pub fn new(settings: Settings) -> Self {
        Self {
            health: Arc::new(Health::new(&settings)),
            settings: Arc::new(settings),
            tap: None,
        }
    }

    /// The sets of upstreams, each with the number of its upstreams that are up.
    pub fn sets(&self) -> impl Iterator<Item = (&ServerSet, usize)> {
        let is_up: Vec<_> = self
            .health
            .states()
            .map(|(_, state)| state.down_since.is_none())
            .collect();
        self.settings.sets.iter().map(move |set| {
            let up = set.servers.iter().filter(|server| is_up[**server]);
            (set, up.count())
        })
    }

    /// Replaces the settings, for the same number of workers. The state of upstreams that remain is kept.
    pub fn reload(&mut self, settings: Settings) {
        if settings.upstreams == self.settings.upstreams {
            self.settings = Arc::new(settings);
        } else {
            let tap = self.tap.take();
            *self = Self::new(settings);
            self.tap = tap;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const SECOND: Nanos = 1_000_000_000;

    fn settings(servers: &str) -> Settings {
        let text = format!("workers = 2\n[upstream]\nservers = [{servers}]\n");
        config::parse(&text, "file").unwrap()
    }

    fn health() -> Health {
        Health::new(&settings("\"192.0.2.1\", \"192.0.2.2\""))
    }

    fn heard(at: Nanos) -> UpstreamState {
        UpstreamState {
            rtt_ns: Some(2_000_000),
            heard_at: Some(at),
            ..UpstreamState::default()
        }
    }

    /// Down, after a response.
    fn down(heard_at: Nanos, since: Nanos) -> UpstreamState {
        UpstreamState {
            down_since: Some(since),
            fault: Some(Fault::Servfail),
            ..heard(heard_at)
        }
    }

    fn all_back_up(health: &Health) -> Vec<(String, Nanos)> {
        let back = health.back_up();
        back.map(|(address, after_ns)| (address.to_string(), after_ns))
            .collect()
    }

    #[test]
    fn times_and_losses_are_means_over_the_workers_with_measurements() {
        let asked = |rtt_ns, loss_ppm| UpstreamState {
            rtt_ns,
            loss_ppm,
            ..UpstreamState::default()
        };
        let idle = UpstreamState::default();
        let silent = asked(None, 90_000);
        let all = [
            asked(Some(1000), 0),
            idle,
            silent,
            asked(Some(4000), 30_000),
        ];
        assert_eq!(UpstreamState::of_all(&all), asked(Some(2500), 40_000));
        assert_eq!(UpstreamState::of_all(&[idle, idle]), idle);
        let useless = UpstreamState {
            failed_ppm: 500_000,
            ..idle
        };
        assert_eq!(UpstreamState::of_all(&[useless, idle]), useless);
    }

    #[test]
    fn upstream_is_down_if_a_worker_reports_it_and_no_worker_has_a_response_since() {
        let idle = UpstreamState::default();
        let since = |states: &[UpstreamState]| UpstreamState::of_all(states).down_since;
        assert_eq!(since(&[heard(10), heard(20)]), None);
        assert_eq!(since(&[down(10, 30), idle]), Some(30));
        let unheard = UpstreamState {
            down_since: Some(30),
            ..idle
        };
        assert_eq!(since(&[unheard, idle]), Some(30), "it has never answered");
        assert_eq!(since(&[down(10, 30), heard(20)]), Some(30), "an old answer");
        assert_eq!(
            since(&[down(10, 30), heard(31)]),
            None,
            "it answers another"
        );
        assert_eq!(since(&[down(10, 30), down(20, 40)]), Some(30), "the first");
        assert_eq!(
            since(&[down(10, 30), down(35, 40)]),
            Some(40),
            "a new outage"
        );
    }

    #[test]
    fn each_upstream_has_its_own_state() {
        let health = health();
        health.publish(0, 1, heard(5));
        health.publish(1, 1, down(4, 6));
        health.publish(2, 1, heard(7));
        health.publish(0, 2, heard(7));
        let states: Vec<_> = health.states().collect();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let unknown = (address("192.0.2.1:53"), UpstreamState::default());
        assert_eq!(states, [unknown, (address("192.0.2.2:53"), down(5, 6))]);
        health.publish(1, 1, heard(8));
        assert_eq!(health.states().nth(1).unwrap().1, heard(8));
    }

    #[test]
    fn outage_found_by_two_workers_is_logged_once() {
        let health = health();
        health.publish(0, 1, down(5 * SECOND, 10 * SECOND));
        assert!(health.went_down(1, 10 * SECOND));
        health.publish(1, 1, down(7 * SECOND, 11 * SECOND));
        assert!(!health.went_down(1, 11 * SECOND));
        assert_eq!(all_back_up(&health), []);
        // The other worker receives the first response.
        health.publish(1, 1, heard(22 * SECOND));
        assert_eq!(
            all_back_up(&health),
            [("192.0.2.2:53".to_owned(), 12 * SECOND)]
        );
        health.publish(0, 1, heard(23 * SECOND));
        assert_eq!(all_back_up(&health), []);
        // The next outage is a new one.
        assert!(health.went_down(1, 30 * SECOND));
    }

    #[test]
    fn what_any_worker_queries_without_is_lacking() {
        let health = health();
        for (worker, lacks) in [[Capability::Tls], [Capability::Cookies]]
            .iter()
            .enumerate()
        {
            let state = UpstreamState {
                lacks: Lacks::of(*lacks),
                ..heard(5)
            };
            health.publish(worker, 0, state);
        }
        let keys = |(_, state): (SocketAddr, UpstreamState)| {
            state.lacks.each().map(Capability::key).collect::<Vec<_>>()
        };
        let all: Vec<_> = health.states().map(keys).collect();
        assert_eq!(all, [vec!["cookies", "tls"], vec![]]);
    }

    #[test]
    fn reset_worker_state_does_not_end_an_outage() {
        let health = health();
        health.publish(0, 0, down(5, 10));
        assert!(health.went_down(0, 10));
        health.publish(0, 0, UpstreamState::default());
        assert_eq!(all_back_up(&health), []);
        health.publish(1, 0, heard(15));
        assert_eq!(all_back_up(&health), [("192.0.2.1:53".to_owned(), 5)]);
    }

    #[test]
    fn reload_resets_the_state_of_new_upstreams_only() {
        let mut in_force = InForce::new(settings("\"192.0.2.1\""));
        in_force.health.publish(0, 0, heard(5));
        let mut same = Settings::clone(&in_force.settings);
        same.udp_size = 600;
        in_force.reload(same);
        assert_eq!(in_force.settings.udp_size, 600);
        assert_eq!(in_force.health.states().next().unwrap().1, heard(5));
        in_force.reload(settings("\"192.0.2.9\""));
        let (address, state) = in_force.health.states().next().unwrap();
        assert_eq!(address.to_string(), "192.0.2.9:53");
        assert_eq!(state, UpstreamState::default());
    }
}
