//! Measurer, dns64d and authorities on one simulated network.

use std::net::SocketAddr;
use std::sync::Arc;

use dns64_transport::clock::{Clock, ManualClock, Nanos, SECOND};
use dns64_transport::memory::{Impairment, MemoryLink, MemoryRelay, Network};
use dns64_transport::socket::Segmentation;
use dns64_transport::{Link, Relay};
use dns64_wire::pref64::Pref64;
use dns64bench::authority::answer::Authority;
use dns64bench::authority::behaviour::{Behaviour, Rules};
use dns64bench::authority::counts::AuthorityCounts;
use dns64bench::authority::zone::ZoneConfig;
use dns64bench::load::catch_up::Limits;
use dns64bench::load::names::NameSource;
use dns64bench::load::pace::{Pacing, Schedule};
use dns64bench::load::query::{Edns, QueryForm};
use dns64bench::load::transport::{Protocol, Transport};
use dns64bench::namespace::{NameRecords, Pattern, Share, Zone};
use dns64bench::trial::TrialSpec;
use dns64bench::trial::result::TrialResult;
use dns64bench::trial::summary::result;
use dns64bench::trial::surroundings::Surroundings;
use dns64bench::trial::turns::Serving;
use dns64d::cache::Cache;
use dns64d::counts::Counts;
use dns64d::engine::actions::Actions;
use dns64d::engine::{Engine, Seeds};
use dns64d::health::Health;
use dns64d::mailbox::{GatewayHandle, GatewayMailbox, WorkerHandle};
use dns64d::worker::{Stage, Worker, set_servers};

use crate::rough::Rough;
use crate::trial::{MILLISECOND, SERVER, Shards, names, zone};

/// Step of the simulated time, so that jitter does not cause a step for each datagram. All other events are at whole
/// steps.
const TICK_NS: Nanos = 100_000;

/// A link with a delay of 0.1 ms and no other impairment.
pub(crate) const PLAIN: Impairment = Impairment {
    delay_ns: TICK_NS,
    jitter_ns: 0,
    loss_ppm: 0,
    duplicate_ppm: 0,
};

/// Parameters of a simulation.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) upstreams: u8,
    /// Additional keys of `[upstream]` in the configuration.
    pub(crate) upstream_keys: &'static str,
    pub(crate) queries_max: u32,
    pub(crate) aaaa_share: &'static str,
    pub(crate) cached_share: &'static str,
    pub(crate) types: &'static str,
    pub(crate) records: NameRecords,
    pub(crate) edns: Edns,
    /// From the Measurer to dns64d.
    pub(crate) queries: Impairment,
    /// From dns64d to both sides.
    pub(crate) relayed: Impairment,
    /// From the authorities to dns64d.
    pub(crate) answers: Impairment,
    /// The authorities lose every n-th query; 0 for none.
    pub(crate) lose_every: u64,
    /// There is one authority, on the thread of the Measurer.
    pub(crate) one_core: bool,
    /// Injected faults of that authority.
    pub(crate) behaviour: &'static str,
}

pub(crate) const SETUP: Setup = Setup {
    seed: 1,
    upstreams: 1,
    upstream_keys: "",
    queries_max: 16_384,
    aaaa_share: "0",
    cached_share: "0",
    types: "AAAA",
    records: NameRecords {
        cname_share: Share::NONE,
        cname_length: 1,
        addresses: 1,
    },
    edns: Edns::None,
    queries: PLAIN,
    relayed: PLAIN,
    answers: PLAIN,
    lose_every: 0,
    one_core: false,
    behaviour: "none",
};

/// Rate and length of a trial, and timeout of its queries.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) rate_qps: u64,
    pub(crate) duration_ns: Nanos,
    pub(crate) timeout_ns: Nanos,
}

/// 2,000 queries in one second, timeout 1 s.
pub(crate) const LOAD: Load = Load {
    rate_qps: 2000,
    duration_ns: SECOND,
    timeout_ns: SECOND,
};

/// An upstream authority of dns64d.
pub(crate) struct Upstream {
    authority: Authority,
    link: MemoryLink,
    lose_every: u64,
    questions: u64,
    pub(crate) dead: bool,
    /// Queries that it lost.
    pub(crate) lost: u64,
}

impl Upstream {
    /// Returns the number of queries that it answered.
    pub(crate) fn heard(&self) -> u64 {
        self.authority.counts().queries()
    }

    fn turn(&mut self) {
        let Self {
            authority,
            link,
            lose_every,
            questions,
            dead,
            lost,
        } = self;
        link.answer(usize::MAX, |datagram, frame| {
            *questions += 1;
            if *dead || (*lose_every > 0 && questions.is_multiple_of(*lose_every)) {
                *lost += 1;
                return 0;
            }
            authority.answer(datagram.payload, frame, Protocol::Udp).len
        })
        .unwrap();
    }
}

/// The simulated system.
pub(crate) struct Whole {
    clock: ManualClock,
    network: Network,
    setup: Setup,
    names: NameSource,
    worker: Worker<MemoryRelay>,
    stage: Stage,
    actions: Actions,
    pub(crate) counts: Arc<Counts>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) upstreams: Vec<Upstream>,
    /// The authority on the Measurer's core, which dns64d queries instead.
    serving: Option<Serving<Rough>>,
    /// Unused, but the worker needs it for messages and connections.
    _mail: (WorkerHandle, GatewayMailbox),
}

/// An event at a time of a trial.
pub(crate) type Event<'a> = (Nanos, &'a dyn Fn(&mut Whole));

impl Setup {
    fn zone(&self) -> Zone {
        Zone {
            records: self.records,
            ..zone(self.aaaa_share)
        }
    }
}

impl Whole {
    pub(crate) fn new(setup: Setup) -> Self {
        let clock = ManualClock::default();
        let network = Network::new(&clock, setup.seed);
        let zone = setup.zone();
        let mut settings = dns64d::config::parse(&config(&setup), "simulated").unwrap();
        // The simulated network polls every port each turn: as few as possible.
        settings.source_ports = 0;
        let authority = || {
            Authority::new(ZoneConfig {
                zone: zone.clone(),
                self_test: false,
                ttl_s: 3600,
                negative_ttl_s: 3600,
            })
        };
        let links = settings.upstreams.iter();
        let mut links = links.map(|upstream| network.server(upstream.address, setup.answers));
        let shared = setup.one_core.then(|| links.next()).flatten();
        let behaviour: Behaviour = setup.behaviour.parse().unwrap();
        let rules = (!behaviour.is_none()).then(|| Arc::new(Rules::new(behaviour).unwrap()));
        let serving = |link| Serving::new(authority(), Rough::over(link, &clock));
        let serving = shared.map(|link| serving(link).with_faults(rules));
        let upstreams = links.map(|link| Upstream {
            authority: authority(),
            link,
            lose_every: setup.lose_every,
            questions: 0,
            dead: false,
            lost: 0,
        });
        let upstreams = upstreams.collect();
        let server: SocketAddr = SERVER.parse().unwrap();
        let mut relay = network.relay(server, server.ip(), setup.relayed);
        set_servers(relay.upstreams(), &settings);
        let counts = Arc::new(Counts::default());
        let seeds = Seeds {
            random: [setup.seed.to_le_bytes(); 4].concat().try_into().unwrap(),
            cookies: [7; 16],
        };
        let cache = Arc::new(Cache::new(&settings.cache, None));
        let engine = Engine::new(&settings, Arc::clone(&cache), Arc::clone(&counts), &seeds);
        let health = Arc::new(Health::new(&settings));
        let (handle, mailbox) = WorkerHandle::new(Arc::new(|| ()));
        let (gateway, gateway_mailbox) = GatewayHandle::new();
        Self {
            clock,
            network,
            setup,
            names: names(zone.clone(), setup.cached_share, Pattern::OneName).in_form(QueryForm {
                edns: setup.edns,
                types: setup.types.parse().unwrap(),
            }),
            worker: Worker::new(0, engine, relay, mailbox, Arc::default(), gateway, health),
            stage: Stage::Serving,
            actions: Actions::default(),
            counts,
            cache,
            upstreams,
            serving,
            _mail: (handle, gateway_mailbox),
        }
    }

    /// Runs one trial with events; their times are relative to its first query.
    pub(crate) fn trial(&mut self, load: Load, events: &[Event<'_>]) -> TrialResult {
        let spec = self.spec(load);
        let local = "2001:2::1".parse().unwrap();
        let link = self
            .network
            .client(local, 4, spec.server, self.setup.queries);
        let start = self.clock.now() + MILLISECOND;
        let links = vec![Rough::over(link, &self.clock)];
        let mut shards = Shards::begin(&spec, links, &self.clock, start);
        let mut events = events.iter();
        let mut event = events.next();
        while let Some(idle_until) = shards.turn(self.serving.as_mut()) {
            while let Some((at, happens)) = event
                && start + at <= self.clock.now()
            {
                happens(self);
                event = events.next();
            }
            self.turn();
            let happens = event.map_or(Nanos::MAX, |(at, _)| start + at);
            self.step(idle_until.min(happens));
        }
        let authority = self.serving.as_mut().map(Serving::report);
        result(
            &spec,
            &shards.reports,
            authority.as_ref(),
            Surroundings::default(),
        )
    }

    fn spec(&mut self, load: Load) -> TrialSpec {
        let schedule = Schedule::new(load.rate_qps, load.duration_ns);
        let names = self
            .names
            .take(schedule.queries(), Some(Pref64::WELL_KNOWN.into()));
        TrialSpec {
            server: SERVER.parse().unwrap(),
            transport: Transport::default(),
            schedule,
            pacing: Pacing::Absolute,
            timeout_ns: load.timeout_ns,
            names: names.unwrap(),
            ports: Some(4),
            segmentation: Segmentation::On,
            stop_early: false,
            limits: Limits::default(),
        }
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        self.worker
            .turn(now, &mut self.stage, &mut self.actions)
            .unwrap();
        self.upstreams.iter_mut().for_each(Upstream::turn);
    }

    /// Advances time to the next event, at most to `limit`.
    fn step(&mut self, limit: Nanos) {
        let events = [
            self.network.next_arrival(),
            self.worker.engine.next_deadline(),
            self.serving.as_ref().and_then(Serving::next_due),
        ];
        let next = events.into_iter().flatten().fold(limit, Nanos::min);
        let next = next.max(self.clock.now() + 1).next_multiple_of(TICK_NS);
        self.clock.advance_to(next);
    }

    /// Advances time by this span.
    pub(crate) fn rest(&mut self, span_ns: Nanos) {
        let until = self.clock.now() + span_ns;
        while self.clock.now() < until {
            self.serving.iter_mut().for_each(Serving::attend);
            self.turn();
            self.step(until);
        }
        self.turn();
    }

    /// Returns the combined counters of all authorities.
    pub(crate) fn asked(&self) -> AuthorityCounts {
        let mut sum = AuthorityCounts::default();
        for upstream in &self.upstreams {
            sum.add(upstream.authority.counts());
        }
        sum
    }

    /// Returns the number of queries that the authorities lost.
    pub(crate) fn unheard(&self) -> u64 {
        self.upstreams.iter().map(|upstream| upstream.lost).sum()
    }

    /// Checks that nothing is pending, also by the counters of dns64d.
    pub(crate) fn assert_idle(&mut self) {
        // The timeout for late responses; then the ports to upstreams close.
        self.rest(10 * SECOND);
        self.rest(11 * SECOND);
        assert!(self.worker.engine.is_idle());
        assert_eq!(self.worker.engine.next_deadline(), None);
        assert_eq!(self.counts.queries_waiting.get(), 0);
        assert_eq!(self.counts.lookups_in_flight.get(), 0);
    }
}

fn config(setup: &Setup) -> String {
    let servers: Vec<_> = (0..setup.upstreams)
        .map(|i| format!("\"198.18.0.{}\"", i + 2))
        .collect();
    format!(
        "listen = [\"{SERVER}\"]\nworkers = 1\nallow = [\"::/0\"]\nqueries-max = {}\n\
         [upstream]\nservers = [{}]\n{}\n\
         [dns64]\nprivate-addresses = true\n",
        setup.queries_max,
        servers.join(", "),
        setup.upstream_keys
    )
}
