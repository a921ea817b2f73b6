//! The Tester of a rig: the roles on its hosts. Each host arms its part of a trial; all start at the same time, each by its
//! own clock. Their data are combined as if one host had run the trial.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};

use super::RigError;
use super::equipment::Client;
use super::watched::{Counted, Watched};
use crate::authority::counts::AuthorityCounts;
use crate::lab::LabError;
use crate::load::transport::Protocol;
use crate::machine::Role;
use crate::machine::interface;
use crate::machine::usage::Usage;
use crate::machine::watch::Leg;
use crate::namespace::{AskedName, Zone};
use crate::post::clocks::Clocks;
use crate::post::host::{Host, OPEN_NS, PROMPT_NS, TRANSFER_NS, at_once};
use crate::post::probe::{ProbeError, Prober};
use crate::post::{Request, TesterSpec};
use crate::trial::part::{Gathered, Part, ReusedLedgers, concluded};
use crate::trial::result::{HostClock, TrialResult};
use crate::trial::rows::{Rows, TrialQueries};
use crate::trial::surroundings::{AuthorityReport, Surroundings};
use crate::trial::{Measurer, TrialSpec};

/// A host with Measurer threads.
pub struct Sender {
    /// The host.
    pub host: Host,
    /// Number of its threads, and thus of its shards.
    pub threads: usize,
    /// Address of the server as seen from this host.
    pub server: SocketAddr,
}

/// Tester on one or more hosts, probers for single queries, and the counters on the way of the queries.
pub struct Instruments {
    /// All hosts of the measurement, once each.
    pub(super) hosts: Vec<Host>,
    /// Hosts with Measurer threads.
    pub(super) senders: Vec<Sender>,
    /// Hosts with an authority of the Tester.
    pub(super) authorities: Vec<Host>,
    /// One for each sender.
    pub(super) probers: Vec<Prober>,
    pub(super) watched: Watched,
    /// The last trial; on this machine the next one reuses its memory.
    pub(super) last: Option<TrialQueries>,
}

/// Time between the start order and the start of a trial on this machine, so that every thread is ready.
const LEAD_NS: Nanos = SECOND / 50;

/// The same on other hosts: a message takes milliseconds, longer on a busy host.
const FAR_LEAD_NS: Nanos = SECOND / 5;

/// Maximum time of a trial beyond its length and its timeout, for completing its ledger.
const OVERTIME_NS: Nanos = 30 * SECOND;

impl Instruments {
    /// Opens a Measurer on this machine for a server that already runs.
    ///
    /// # Errors
    ///
    /// Its threads or sockets cannot be opened.
    pub fn here(
        measurer: Measurer,
        (server, protocol): (SocketAddr, Protocol),
        zone: Zone,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Self, LabError> {
        let host = Host::here(interrupted);
        let prober = Prober {
            host: host.clone(),
            network: measurer.network.clone(),
            backend: measurer.backend,
            protocol,
            local: measurer.local.map(|sources| sources.address(0)),
            server,
            zone,
        };
        let counted = Counted {
            host: host.clone(),
            network: measurer.network.clone(),
            links: None,
        };
        let leg = Leg {
            near: 0,
            far: interface::is_own(server).then_some(0),
            link: interface::toward(server),
            is_elsewhere: interface::is_elsewhere(server),
        };
        let hosts = vec![(Role::Measurer.into(), vec![counted])];
        let sender = Sender {
            host: host.clone(),
            threads: measurer.threads,
            server,
        };
        let spec = TesterSpec {
            measurer: Some(measurer),
            ..TesterSpec::default()
        };
        host.ask(Request::Open(Box::new(spec)), OPEN_NS)?;
        Ok(Self {
            hosts: vec![host],
            senders: vec![sender],
            authorities: Vec::new(),
            probers: vec![prober],
            watched: Watched::new(hosts, Some(leg), Vec::new()),
            last: None,
        })
    }

    /// Returns the queries of the last trial; `None` before the first.
    pub fn rows(&self) -> Option<Rows<'_>> {
        self.last.as_ref().map(Rows::new)
    }

    /// Returns the prober for a name: neighbouring names have different ones.
    fn prober(&self, name: Ipv4Addr) -> &Prober {
        &self.probers[name.octets()[3] as usize % self.probers.len()]
    }

    /// Prepares the part of each host: shards for the senders, in their order, and none for the others.
    fn arm(&mut self, spec: &TrialSpec) -> Result<(), LabError> {
        let senders = self.senders.iter();
        let senders = senders.map(|it| (&it.host, it.threads as u64, it.server));
        let is_sender = |host: &&Host| self.senders.iter().any(|it| it.host.name() == host.name());
        let others = self.hosts.iter().filter(|host| !is_sender(host));
        let others = others.map(|host| (host, 0, spec.server));
        let shards = senders.clone().map(|(_, threads, _)| threads).sum();
        let mut spare = self
            .last
            .take()
            .map(ReusedLedgers::from)
            .unwrap_or_default();
        let mut first = 0;
        let mut parts = Vec::new();
        for (host, threads, server) in senders.chain(others) {
            let order = Request::Arm {
                spec: Box::new(TrialSpec {
                    server,
                    ..spec.clone()
                }),
                part: Part { first, shards },
                spare: std::mem::take(&mut spare),
            };
            parts.push((host, order));
            first += threads;
        }
        let armed = at_once(parts, |(host, order)| host.ask(order, TRANSFER_NS));
        armed.into_iter().try_for_each(|armed| armed.map(drop))
    }

    /// Runs a trial; returns its data and the clocks of other hosts.
    fn run(&mut self, spec: &TrialSpec) -> Result<(Gathered, Vec<HostClock>), LabError> {
        self.arm(spec)?;
        // Measured last, so that the offsets are the most precise when the trial starts.
        let mut clocks = Clocks::of(self.hosts.iter())?;
        let lead_ns = match clocks.are_one() {
            true => LEAD_NS,
            false => FAR_LEAD_NS,
        };
        let start = MonotonicClock.now() + lead_ns;
        let limit_ns = lead_ns + spec.schedule.duration_ns() + spec.timeout_ns + OVERTIME_NS;
        let ran = at_once(self.senders.iter().collect(), |Sender { host, .. }| {
            let at = clocks.to_host(host.name(), start);
            let late_ns = host.get(Request::Run(at), limit_ns)?;
            Ok((host.name().to_owned(), late_ns))
        });
        let late = ran.into_iter().collect::<Result<Vec<_>, LabError>>()?;
        clocks.look_again()?;
        let gathered = at_once(self.hosts.iter().collect(), |host: &Host| {
            Ok((host.name(), host.gather()?))
        });
        let parts = gathered.into_iter().collect::<Result<Vec<_>, LabError>>()?;
        let gathered = match clocks.are_one() {
            true => parts.into_iter().map(|(_, part)| part).next(),
            false => Some(united(parts, &clocks, start)),
        };
        let nothing = || united(Vec::new(), &clocks, start);
        Ok((
            gathered.unwrap_or_else(nothing),
            clocks.of_trial(start, &late),
        ))
    }
}

/// Combines the parts of several hosts.
fn united(parts: Vec<(&str, Gathered)>, clocks: &Clocks, start: Nanos) -> Gathered {
    let mut authorities = Vec::new();
    let mut united = Gathered {
        shards: Vec::new(),
        authority: None,
        usage: Usage::default(),
        clock_source: None,
        started_at_ns: start.saturating_add_signed(MonotonicClock.realtime_offset()),
    };
    for (host, mut part) in parts {
        part.on_clock(|at| clocks.to_controller(host, at));
        united.shards.append(&mut part.shards);
        authorities.extend(part.authority.map(|report| (host.to_owned(), report)));
        united.usage.join(part.usage, host);
        united.clock_source = united.clock_source.or(part.clock_source);
    }
    united.authority = AuthorityReport::united(authorities);
    united
        .shards
        .sort_by_key(|shard| shard.finished.schedule.shard_index());
    united
}

impl Client for Instruments {
    fn trial(
        &mut self,
        spec: &TrialSpec,
        around: impl FnOnce() -> Surroundings,
    ) -> Result<TrialResult, RigError> {
        spec.check()?;
        let (gathered, hosts) = self.run(spec)?;
        let around = || Surroundings { hosts, ..around() };
        let (result, queries) = concluded(spec, gathered, around);
        self.last = Some(queries);
        Ok(result)
    }

    fn authority_counts(&self) -> Result<AuthorityCounts, LabError> {
        let counts = at_once(self.authorities.iter().collect(), |host: &Host| {
            host.get(Request::Counts, PROMPT_NS)
        });
        let mut sum = AuthorityCounts::default();
        for counted in counts {
            sum.add(counted?);
        }
        Ok(sum)
    }

    fn aaaa(&self, name: Ipv4Addr, wait_ns: Nanos) -> Result<Vec<Ipv6Addr>, ProbeError> {
        self.prober(name).aaaa(name, wait_ns)
    }

    fn responds(&self, asked: AskedName, wait_ns: Nanos) -> Result<(), ProbeError> {
        self.prober(asked.address).responds(asked, wait_ns)
    }

    fn watched(&self) -> Watched {
        self.watched.clone()
    }

    fn now(&self) -> Nanos {
        MonotonicClock.now()
    }

    fn pause(&self, span_ns: Nanos) {
        MonotonicClock.sleep(span_ns);
    }
}

impl Drop for Instruments {
    fn drop(&mut self) {
        // The servers on these hosts keep running; the Tester's threads must stop.
        for host in &self.hosts {
            let _ = host.ask(Request::Close, PROMPT_NS);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
