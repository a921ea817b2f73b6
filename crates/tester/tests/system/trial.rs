//! One simulated trial: shards in turns on a manual clock, with mishaps.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::{Clock, ManualClock, Nanos, SECOND};
use dns64_transport::memory::{Impairment, Network};
use dns64_transport::socket::Segmentation;
use dns64_wire::pref64::Pref64;
use dns64bench::load::catch_up::Limits;
use dns64bench::load::ledger::Ledger;
use dns64bench::load::names::NameSource;
use dns64bench::load::pace::{Pacing, Schedule};
use dns64bench::load::transport::Transport;
use dns64bench::namespace::{DEFAULT_SUFFIX, Pattern, Share, Zone};
use dns64bench::trial::TrialSpec;
use dns64bench::trial::result::{Answers, TrialResult};
use dns64bench::trial::summary::result;
use dns64bench::trial::surroundings::{ShardReport, Surroundings};
use dns64bench::trial::turns::{Sending, Serving};

use crate::dut::Dut;
use crate::rough::Rough;
use crate::script::Conduct;

pub(crate) const MILLISECOND: Nanos = 1_000_000;

/// A rate, two shards, a network, and at most one mishap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub(crate) rate_qps: u64,
    pub(crate) duration_ns: Nanos,
    pub(crate) timeout_ns: Nanos,
    pub(crate) impairment: Impairment,
    pub(crate) stop_early: bool,
    pub(crate) cached_share: &'static str,
    pub(crate) pattern: Pattern,
    pub(crate) mishap: Option<(Nanos, Mishap)>,
}

/// A mishap on the Tester's side, at a time after the first query.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    /// The user presses Ctrl-C.
    Interrupted,
    /// The links of the Measurer fail from this time on.
    LinkFails,
    /// Nothing runs for this time.
    Stall(Nanos),
    /// The same repeatedly, with this interval.
    Stalls(Nanos, Nanos),
    /// The real-time clock is set.
    ClockStep(i64),
}

/// 2,000 queries in one second over a link of 0.1 ms, timeout 250 ms.
pub(crate) const PLAIN: Trial = Trial {
    rate_qps: 2000,
    duration_ns: SECOND,
    timeout_ns: 250 * MILLISECOND,
    impairment: Impairment {
        delay_ns: 100_000,
        jitter_ns: 0,
        loss_ppm: 0,
        duplicate_ppm: 0,
    },
    stop_early: false,
    cached_share: "0",
    pattern: Pattern::OneName,
    mishap: None,
};

pub(crate) const NONE: Answers = Answers {
    valid: 0,
    late: 0,
    wrong: 0,
    empty: 0,
    error: 0,
    truncated: 0,
    duplicate: 0,
    stray: 0,
    missing: 0,
    other_addresses: 0,
};

pub(crate) const SERVER: &str = "[2001:2::53]:53";

/// Returns the zone of all simulations.
pub(crate) fn zone(aaaa_share: &str) -> Zone {
    Zone {
        suffix: DEFAULT_SUFFIX.parse().unwrap(),
        aaaa_share: aaaa_share.parse().unwrap(),
        ..Zone::default()
    }
}

/// Returns all names in 10.0.0.0/8, of which `cached_share` repeat others.
pub(crate) fn names(zone: Zone, cached_share: &str, pattern: Pattern) -> NameSource {
    let share: Share = cached_share.parse().unwrap();
    NameSource::new("10.0.0.0/8".parse().unwrap(), zone, share, pattern).unwrap()
}

impl Trial {
    pub(crate) fn spec(&self) -> TrialSpec {
        let schedule = Schedule::new(self.rate_qps, self.duration_ns);
        let mut source = names(zone("0"), self.cached_share, self.pattern);
        TrialSpec {
            server: SERVER.parse().unwrap(),
            transport: Transport::default(),
            schedule,
            pacing: Pacing::Absolute,
            timeout_ns: self.timeout_ns,
            names: source
                .take(schedule.queries(), Some(Pref64::WELL_KNOWN.into()))
                .unwrap(),
            ports: Some(4),
            segmentation: Segmentation::On,
            stop_early: self.stop_early,
            limits: Limits::default(),
        }
    }

    pub(crate) fn against(&self, conduct: Conduct) -> TrialResult {
        self.run(conduct, 1)
    }

    pub(crate) fn run(&self, conduct: Conduct, seed: u64) -> TrialResult {
        self.amid(Surroundings::default(), conduct, seed)
    }

    /// Runs the trial with these surroundings.
    pub(crate) fn amid(&self, around: Surroundings, conduct: Conduct, seed: u64) -> TrialResult {
        let reports = self.reports(conduct, seed);
        result(&self.spec(), &reports, None, around)
    }

    /// Returns the reports of its shards.
    pub(crate) fn reports(&self, conduct: Conduct, seed: u64) -> Vec<ShardReport> {
        let spec = self.spec();
        let clock = ManualClock::default();
        let network = Network::new(&clock, seed);
        let mut dut = Dut::new(
            network.server(spec.server, self.impairment),
            &clock,
            conduct,
        );
        let link = || {
            let local = "2001:2::1".parse().unwrap();
            let link = network.client(local, 2, spec.server, self.impairment);
            let fails = self.mishap.filter(|m| matches!(m.1, Mishap::LinkFails));
            let mut link = Rough::over(link, &clock);
            link.fails_at = fails.map_or(Nanos::MAX, |(at, _)| MILLISECOND + at);
            link
        };
        let links = (0..2).map(|_| link()).collect();
        let mut shards = Shards::begin(&spec, links, &clock, MILLISECOND);
        let mut mishap = self.mishap;
        while let Some(idle_until) = shards.turn(None) {
            dut.turn();
            let events = [network.next_arrival(), dut.next_due()];
            let events = events.into_iter().flatten();
            let happens = mishap.map_or(Nanos::MAX, |(at, _)| MILLISECOND + at);
            let next = events.fold(idle_until.min(happens), Nanos::min);
            clock.advance_to(next.max(clock.now() + 1));
            if clock.now() >= happens
                && let Some((_, happened)) = mishap.take()
            {
                befall(happened, &clock, &shards.interrupted);
                if let Mishap::Stalls(_, every_ns) = happened {
                    mishap = Some((clock.now() - MILLISECOND + every_ns, happened));
                }
            }
        }
        shards.reports
    }
}

fn befall(mishap: Mishap, clock: &ManualClock, interrupted: &AtomicBool) {
    match mishap {
        Mishap::Interrupted => interrupted.store(true, Ordering::Relaxed),
        Mishap::LinkFails => {}
        Mishap::Stall(span_ns) | Mishap::Stalls(span_ns, _) => clock.advance(span_ns),
        Mishap::ClockStep(by_ns) => clock.step_realtime(by_ns),
    }
}

/// The shards of a trial with their links.
pub(crate) struct Shards {
    running: Vec<Sending<Rough, ManualClock>>,
    pub(crate) interrupted: AtomicBool,
    /// Reports of finished shards.
    pub(crate) reports: Vec<ShardReport>,
}

impl Shards {
    /// Creates a shard for each link; all start at `start`.
    pub(crate) fn begin(
        spec: &TrialSpec,
        links: Vec<Rough>,
        clock: &ManualClock,
        start: Nanos,
    ) -> Self {
        let shards = links.len() as u64;
        let sending = |(shard, link)| {
            let shard = spec.shard(shard, shards);
            let mut sending = Sending::new(shard, Ledger::default(), link, clock.clone());
            sending.begin(start);
            sending
        };
        Self {
            running: (0..).zip(links).map(sending).collect(),
            interrupted: AtomicBool::new(false),
            reports: Vec::new(),
        }
    }

    /// Runs a turn of each; `serving` is on the core of the first. Returns until when no turn is needed; `None` when
    /// all are finished.
    pub(crate) fn turn(&mut self, mut serving: Option<&mut Serving<Rough>>) -> Option<Nanos> {
        let mut i = 0;
        while let Some(sending) = self.running.get_mut(i) {
            match sending.turn(serving.take(), &self.interrupted) {
                ControlFlow::Continue(()) => i += 1,
                ControlFlow::Break(()) => self.reports.push(self.running.remove(i).finish()),
            }
        }
        self.running.iter().map(Sending::idle_until).min()
    }
}
