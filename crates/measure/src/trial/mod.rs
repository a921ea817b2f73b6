//! One trial: a rate, a duration, a timeout, and the result.
//!
//! A [`Tester`] owns the threads and the authority's sockets. For each trial it opens new sockets to the server and divides
//! the schedule into shards ([`part`]); their data are combined to one result.

pub mod achieved;
pub mod backend;
pub mod cause;
mod connections;
mod distribution;
pub mod disturbance;
mod evidence;
pub mod fault;
pub mod in_driver;
mod join;
pub mod judge;
pub mod part;
pub mod path;
pub mod place;
pub mod policy;
pub mod result;
pub mod rows;
mod series;
pub mod service;
pub mod summary;
pub mod surroundings;
mod timing;
pub mod turns;
mod worker;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dns64_transport::Backend;
use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::cpu::SessionPrecedence;
use dns64_transport::socket::Segmentation;
use serde::{Deserialize, Serialize};
use serde_with::{As, DisplayFromStr};

use crate::authority::answer::Authority;
use crate::authority::behaviour::{Behaviour, Rules};
use crate::authority::counts::AuthorityCounts;
use crate::authority::ledger::{self, Recorder};
use crate::authority::tcp::TcpService;
use crate::authority::zone::ZoneConfig;
use crate::load::catch_up::Limits;
use crate::load::generator::{Generator, Shard};
use crate::load::ledger::Entry;
use crate::load::names::Names;
use crate::load::pace::{Pacing, Schedule};
use crate::load::sources::Sources;
use crate::load::transport::Transport;
use crate::machine::network::Network;
use crate::machine::usage::Who;
use crate::machine::{Blame, LabError};
use crate::machine::{Machine, Role};
use crate::naming::{Message, SOCKETS};
use backend::AnyLink;
use in_driver::{InDriver, Interception};
use surroundings::AuthorityReport;
use turns::Serving;
use worker::Worker;

/// Parameters of a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrialSpec {
    /// Server under test.
    pub server: SocketAddr,
    /// Transport of the queries.
    pub transport: Transport,
    /// Due time of each query (RFC 8219 section 9.2: at least 60 s of them).
    pub schedule: Schedule,
    /// Pacing method.
    pub pacing: Pacing,
    /// Maximum time from a query to a response that counts (RFC 8219 section 9.2: at most 1 s).
    pub timeout_ns: Nanos,
    /// Names and their expected answers.
    pub names: Names,
    /// Source ports of all threads together; `None` for a number that depends on the rate, at least [`PORTS_DEFAULT`]
    /// and one for each source address.
    pub ports: Option<usize>,
    /// Whether queries and responses may be segmented.
    #[serde(with = "As::<DisplayFromStr>")]
    pub segmentation: Segmentation,
    /// Whether the trial ends as soon as its failure is certain.
    pub stop_early: bool,
    /// Limits of disturbances of the Tester.
    pub limits: Limits,
}

impl TrialSpec {
    /// Returns a preliminary trial of `queries`: each is sent by the schedule regardless of losses, from as many source
    /// ports as the rate needs.
    pub fn preliminary(
        server: SocketAddr,
        transport: Transport,
        rate_qps: u64,
        queries: u64,
        names: Names,
        timeout_ns: Nanos,
    ) -> Self {
        // Rounded up, so that the schedule includes the last query.
        let span_ns = (u128::from(queries) * u128::from(SECOND)).div_ceil(rate_qps.max(1).into());
        let duration_ns = Nanos::try_from(span_ns).unwrap_or(Nanos::MAX);
        let schedule = Schedule::new(rate_qps, duration_ns);
        Self {
            server,
            transport,
            schedule: schedule.with_burst(transport.burst(schedule.burst())),
            pacing: Pacing::Absolute,
            timeout_ns,
            names,
            ports: None,
            segmentation: Segmentation::On,
            stop_early: false,
            limits: Limits::default(),
        }
    }

    /// Returns the work of shard number `shard` of `shards`.
    pub fn shard(&self, shard: u64, shards: u64) -> Shard {
        Shard {
            schedule: self.schedule.shard(shard, shards),
            pacing: self.pacing,
            names: self.names.clone(),
            timeout_ns: self.timeout_ns,
            stop_early: self.stop_early,
            limits: self.limits,
        }
    }

    /// Number of source ports, or connections, that the trial needs.
    pub fn ports_needed(&self) -> u64 {
        let each = self.transport.queries_of_port(self.schedule.burst());
        Generator::ports_needed(self.schedule.rate_qps(), self.timeout_ns, each)
    }

    /// Refuses a trial without queries, and one with too few IDs or too little memory. It is checked before anything
    /// is sent; callers may check it before they set up servers.
    pub fn check(&self) -> Result<(), LabError> {
        let (rate_qps, queries) = (self.schedule.rate_qps(), self.schedule.queries());
        if queries == 0 {
            let duration_ms = self.schedule.duration_ns() / (SECOND / 1000);
            return Err(Blame::Request.error(format!(
                "{rate_qps} qps for {duration_ms} ms is less than one query; raise --rate or --duration"
            )));
        }
        let needed = self.ports_needed();
        if let Some(ports) = self.ports.filter(|&ports| (ports as u64) < needed) {
            let lack = match self.transport.pipeline {
                Some(most) => format!("connections with {most} queries at a time are too few"),
                None => "sockets have too few query IDs".to_owned(),
            };
            return Err(Blame::Request.error(Message::new(|naming| {
                let remedy = naming.value(SOCKETS, needed);
                format!(
                    "{ports} {lack} for {rate_qps} qps within the timeout; use {remedy} or more"
                )
            })));
        }
        let each_bytes = (size_of::<Entry>() + ledger::NAME_BYTES) as u64;
        let needed_mib = queries.saturating_mul(each_bytes) >> 20;
        let free_bytes = Machine::here().memory_bytes("MemAvailable");
        match free_bytes.map(|bytes| bytes >> 20) {
            Some(free_mib) if needed_mib > free_mib => Err(Blame::Machine.error(format!(
                "{queries} queries need {needed_mib} MiB of memory and {free_mib} MiB are free; shorten the trial or \
                 lower the rate"
            ))),
            _ => Ok(()),
        }
    }
}

/// Location of the Measurer's sockets and threads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurer {
    /// Network of its sockets.
    pub network: Network,
    /// Source addresses; `None` for that of the routing table.
    pub local: Option<Sources>,
    /// Number of threads; without threads there are no trials.
    pub threads: usize,
    /// Cores of the threads, in turn; empty to leave them to the scheduler.
    pub cores: Vec<usize>,
    /// Backend of its links.
    #[serde(with = "As::<DisplayFromStr>")]
    pub backend: Backend,
}

/// Location and zone of the AuthDNS subsystem.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AuthDns {
    /// Network of its sockets.
    pub network: Network,
    /// Address and port, UDP and TCP.
    pub listen: SocketAddr,
    /// Number of threads, each with its own socket; at least 1.
    pub workers: usize,
    /// Cores of the threads, in turn. A core that is also assigned to a Measurer's thread is served by that thread.
    pub cores: Vec<usize>,
    /// Whether queries and replies may be segmented.
    #[serde(with = "As::<DisplayFromStr>")]
    pub segmentation: Segmentation,
    /// Backend of its links.
    #[serde(with = "As::<DisplayFromStr>")]
    pub backend: Backend,
    /// Zone.
    pub zone: ZoneConfig,
    /// Injected faults; not together with `driver`.
    #[serde(with = "As::<DisplayFromStr>")]
    pub behaviour: Behaviour,
    /// Interface at which common queries are answered in the driver.
    pub driver: Option<Interception>,
}

impl Measurer {
    /// Returns a Measurer without threads.
    pub fn none() -> Self {
        Self {
            network: Network::Own,
            local: None,
            threads: 0,
            cores: Vec::new(),
            backend: Backend::Socket,
        }
    }
}

/// Default number of source ports. Enough for servers that distribute clients to threads by port, few enough to be read
/// in one turn.
pub const PORTS_DEFAULT: usize = 16;

/// Returns the rules of a behaviour, with the delays of its file; `None` without faults.
///
/// # Errors
///
/// The file of delays cannot be read.
pub fn rules(behaviour: &Behaviour) -> Result<Option<Rules>, LabError> {
    let faulty = Some(behaviour).filter(|behaviour| !behaviour.is_none());
    let rules = faulty.cloned().map(Rules::new).transpose();
    rules.map_err(|error| Blame::Machine.error(error.to_string()))
}

/// The error for a worker that has panicked.
fn worker_lost() -> LabError {
    Blame::Machine.error("a thread of the Tester ended without a report; this is a bug")
}

/// The Tester's threads and sockets, ready for trials.
pub struct Tester {
    measurer: Measurer,
    workers: Vec<Worker>,
    tcp: Option<TcpService>,
    /// Answers common queries before they reach the sockets of the authority.
    in_driver: Option<InDriver>,
    serves: bool,
    /// Threads by role.
    threads: Vec<(Role, Vec<u32>)>,
    /// Processes by role.
    servers: Vec<(Role, u32)>,
    /// Held while measurements are possible.
    _precedence: SessionPrecedence,
}

impl Tester {
    /// Returns the authority in the driver, if there is one.
    pub fn in_driver(&self) -> Option<&InDriver> {
        self.in_driver.as_ref()
    }

    /// Returns the counters of the authority since its start.
    pub fn authority_counts(&self) -> Result<AuthorityCounts, LabError> {
        Ok(self.authority_report()?.counts)
    }

    /// Starts the threads; the authority answers from now on. A running trial ends when `interrupted` becomes true.
    pub fn open(
        measurer: Measurer,
        authority: Option<&AuthDns>,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Self, LabError> {
        let mut places: Vec<(Option<usize>, Option<Serving<AnyLink>>)> = (0..measurer.threads)
            .map(|k| (core_of(&measurer.cores, k), None))
            .collect();
        let mut tcp = None;
        let mut in_driver = None;
        if let Some(authority) = authority {
            let rules = rules(&authority.behaviour)?.map(Arc::new);
            for w in 0..authority.workers.max(1) {
                let zone = authority.zone.clone();
                let serving = Serving::new(Authority::new(zone), backend::server(authority, w)?)
                    .with_faults(rules.clone());
                let core = core_of(&authority.cores, w);
                let shared = places
                    .iter_mut()
                    .find(|p| core.is_some() && p.0 == core && p.1.is_none());
                match shared {
                    Some(place) => place.1 = Some(serving),
                    None => places.push((core, Some(serving))),
                }
            }
            // A core with a thread of the Measurer never rests.
            let mut own = authority.cores.iter().copied();
            let core = own.find(|core| !measurer.cores.contains(core));
            tcp = Some(tcp_service(authority, rules, core)?);
            // Last, so that the sockets are open for the queries that it passes on.
            in_driver = InDriver::open(authority)?;
        }
        let serving: Vec<bool> = places
            .iter()
            .map(|(_, serving)| serving.is_some())
            .collect();
        let workers = places.into_iter().map(|(core, serving)| {
            Worker::spawn(core, serving, Arc::clone(interrupted)).map_err(|reason| {
                let core = core.map_or("any".to_owned(), |core| core.to_string());
                Blame::Machine.error(format!(
                    "cannot pin a thread to core {core}: {reason}; see the cores that `taskset -pc $$` allows"
                ))
            })
        });
        let workers = workers.collect::<Result<Vec<_>, _>>()?;
        let tids = || workers.iter().map(Worker::tid);
        let authorities = tids().zip(serving).filter(|(_, serves)| *serves);
        let authorities = authorities.map(|(tid, _)| tid);
        let threads = vec![
            (Role::Measurer, tids().take(measurer.threads).collect()),
            (
                Role::Authority,
                authorities.chain(tcp.iter().map(TcpService::tid)).collect(),
            ),
        ];
        Ok(Self {
            measurer,
            workers,
            tcp,
            in_driver,
            serves: authority.is_some(),
            threads,
            servers: Vec::new(),
            _precedence: SessionPrecedence::take(),
        })
    }

    /// Makes the next trials also observe these processes of servers.
    pub fn watch(&mut self, servers: Vec<(Role, u32)>) {
        self.servers = servers;
    }

    /// Returns the threads and processes to observe before and after a trial.
    fn watched(&self) -> Vec<(Role, Who)> {
        let threads = self.threads.iter().filter(|(_, tids)| !tids.is_empty());
        let threads = threads.map(|(role, tids)| (*role, Who::Threads(tids.clone())));
        let servers = self.servers.iter();
        let servers = servers.map(|&(role, pid)| (role, Who::Tree(pid)));
        threads.chain(servers).collect()
    }

    /// Starts or stops recording queries to the authority in the ledger of a trial.
    fn record(&self, ledger: Option<&Arc<ledger::NameLedger>>) {
        let recorder = || ledger.map(|ledger| Recorder::new(Arc::clone(ledger)));
        self.workers
            .iter()
            .for_each(|worker| worker.record(recorder()));
        self.tcp.iter().for_each(|tcp| tcp.record(recorder()));
    }

    /// Returns the combined report of all authority workers since their start.
    fn authority_report(&self) -> Result<AuthorityReport, LabError> {
        let waiting: Vec<_> = self.workers.iter().map(Worker::count).collect();
        let mut total = AuthorityReport::default();
        for report in waiting {
            total.add(report.recv().map_err(|_| worker_lost())?);
        }
        if let Some(tcp) = &self.tcp {
            total.counts.add(tcp.counts());
        }
        if let Some(in_driver) = &self.in_driver {
            total.add(in_driver.report()?);
        }
        Ok(total)
    }
}

fn core_of(cores: &[usize], k: usize) -> Option<usize> {
    (!cores.is_empty()).then(|| cores[k % cores.len()])
}

fn tcp_service(
    authority: &AuthDns,
    rules: Option<Arc<Rules>>,
    core: Option<usize>,
) -> Result<TcpService, LabError> {
    let listen = authority.listen;
    let open = || TcpService::open(listen, authority.zone.clone(), rules.clone(), core);
    authority.network.enter(open)?.map_err(|reason| {
        let what = format!("the authority cannot listen at {listen} (TCP): {reason}");
        Blame::Machine.error(what)
    })
}
