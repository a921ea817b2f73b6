//! A Tester and servers, local or on other hosts: the equipment of a rig.

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_transport::clock::{Clock, MonotonicClock, Nanos};
use dns64_wire::codes::Rtype;

use super::post;
use super::tester::FarTester;
use crate::authority::counts::AuthorityCounts;
use crate::lab::LabError;
use crate::lab::server::{Probe, Server, Start};
use crate::machine::Role;
use crate::machine::process::Resources;
use crate::machine::watch::Watched;
use crate::namespace::Zone;
use crate::rig::equipment::{Client, OwnServer, PROBE_NS};
use crate::rig::probe::{ProbeError, Prober, Way};
use crate::rig::pulse::Asking;
use crate::rig::remote::host::{FarServer, PROMPT_NS, Remote};
use crate::rig::remote::order::{Program, PulseOrder, Reply, Request};
use crate::trial::result::TrialResult;
use crate::trial::rows::Rows;
use crate::trial::surroundings::Surroundings;
use crate::trial::{Tester, TrialError, TrialSpec};

/// A Tester.
pub enum AnyTester {
    /// In this process.
    Here(Box<Tester>),
    /// On other hosts.
    Far(Box<FarTester>),
}

/// A Tester, and a prober for single queries.
pub struct Instruments {
    pub(in crate::rig) tester: AnyTester,
    pub(in crate::rig) prober: Prober,
    pub(in crate::rig) watched: Watched,
}

impl Instruments {
    /// Creates instruments with a Tester in this process.
    pub(in crate::rig) fn here(tester: Tester, prober: Prober, watched: Watched) -> Self {
        Self {
            tester: AnyTester::Here(Box::new(tester)),
            prober,
            watched,
        }
    }

    /// Returns the queries of the last trial; `None` before the first.
    pub fn rows(&self) -> Option<Rows<'_>> {
        match &self.tester {
            AnyTester::Here(here) => here.rows(),
            AnyTester::Far(far) => far.rows(),
        }
    }
}

impl Client for Instruments {
    fn trial(
        &mut self,
        spec: &TrialSpec,
        around: impl FnOnce() -> Surroundings,
    ) -> Result<TrialResult, TrialError> {
        match &mut self.tester {
            AnyTester::Here(here) => here.trial(spec, around),
            AnyTester::Far(far) => far.trial(spec, around),
        }
    }

    fn watch(&mut self, servers: Vec<(Role, u32)>) {
        match &mut self.tester {
            AnyTester::Here(here) => here.watch(servers),
            // Each host observes its own processes.
            AnyTester::Far(_) => {}
        }
    }

    fn authority_counts(&self) -> Result<AuthorityCounts, TrialError> {
        match &self.tester {
            AnyTester::Here(here) => here.authority_counts(),
            AnyTester::Far(far) => far.authority_counts(),
        }
    }

    fn aaaa(&self, name: Ipv4Addr, wait_ns: Nanos) -> Result<Vec<Ipv6Addr>, ProbeError> {
        self.prober.aaaa(name, wait_ns)
    }

    fn answers(&self, name: Ipv4Addr, wait_ns: Nanos) -> Result<(), ProbeError> {
        self.prober.answers(name, wait_ns)
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

/// A server that was started.
#[derive(Debug)]
pub enum AnyServer {
    /// On this machine.
    Here(Box<Server>),
    /// On other hosts, one on each, all of one profile; at least one. They act as one server when they are started,
    /// checked or observed.
    Far(Vec<FarServer>),
}

impl AnyServer {
    /// Returns its program.
    pub fn program(&self) -> Program {
        match self {
            Self::Here(server) => post::program(server),
            Self::Far(servers) => {
                let each = servers
                    .iter()
                    .map(|it| (it.host().name(), it.program().clone()));
                Program::united(each.collect())
            }
        }
    }

    /// Returns the text of its profile.
    pub fn profile_text(&self) -> &str {
        match self {
            Self::Here(server) => server.profile().text(),
            Self::Far(servers) => servers.first().map_or("", |it| it.spec().profile.text()),
        }
    }
}

/// Combines a text of each server, with its host if there are several.
fn named(
    servers: &[FarServer],
    told: impl Fn(&FarServer) -> Option<String>,
) -> impl Iterator<Item = String> {
    servers.iter().filter_map(move |server| {
        let told = told(server)?;
        Some(match servers {
            [_] => told,
            _ => format!("on host {}: {told}", server.host().name()),
        })
    })
}

impl OwnServer for AnyServer {
    fn restart(&mut self, ready: &mut dyn FnMut() -> Probe) -> Result<(), LabError> {
        match self {
            Self::Here(server) => OwnServer::restart(&mut **server, ready),
            Self::Far(servers) => {
                let is_one = servers.len() == 1;
                servers.iter_mut().try_for_each(|server| {
                    // `ready` queries only one of several servers, so each is also probed from its own host.
                    let own = Some(&*server).filter(|_| !is_one).and_then(own_probe);
                    server.restart(&mut || match (ready(), &own) {
                        (Probe::Answered, Some(probe)) => probe(),
                        (told, _) => told,
                    })
                })
            }
        }
    }

    fn pid(&self) -> Option<u32> {
        match self {
            Self::Here(server) => OwnServer::pid(&**server),
            Self::Far(_) => None,
        }
    }

    fn ended(&mut self) -> Option<String> {
        match self {
            Self::Here(server) => OwnServer::ended(&mut **server),
            Self::Far(servers) => named(servers, FarServer::ended).next(),
        }
    }

    fn log_tail(&self) -> String {
        match self {
            Self::Here(server) => server.log_tail(),
            Self::Far(servers) => {
                let tails = named(servers, |it| Some(it.log_tail()));
                tails.collect::<Vec<_>>().join("; ")
            }
        }
    }

    fn resources(&self) -> Resources {
        match self {
            Self::Here(server) => server.resources(),
            Self::Far(servers) => {
                let each = servers.iter().map(FarServer::resources);
                each.reduce(Resources::with).unwrap_or_default()
            }
        }
    }

    fn udp_drops(&self) -> u64 {
        match self {
            Self::Here(server) => server.udp_drops(),
            Self::Far(servers) => servers.iter().map(FarServer::udp_drops).sum(),
        }
    }

    fn take_silent_starts(&mut self) -> u32 {
        match self {
            Self::Here(server) => server.take_silent_starts(),
            Self::Far(servers) => servers.iter_mut().map(FarServer::take_silent_starts).sum(),
        }
    }

    fn take_start(&mut self) -> Option<Start> {
        match self {
            Self::Here(server) => server.take_start(),
            Self::Far(servers) => {
                let each = servers.iter_mut().filter_map(FarServer::take_start);
                each.reduce(Start::with)
            }
        }
    }

    fn pulse(
        &self,
        zone: &Zone,
        name: Ipv4Addr,
        patience_ns: Nanos,
    ) -> Option<Result<Box<dyn Asking>, ProbeError>> {
        match self {
            Self::Here(server) => server.pulse(zone, name, patience_ns),
            Self::Far(servers) => {
                let each = servers
                    .iter()
                    .map(|it| begin_pulse(it, zone, name, patience_ns));
                let hosts = each.collect::<Result<_, _>>();
                Some(hosts.map(|hosts| Box::new(FarPulse(hosts)) as Box<dyn Asking>))
            }
        }
    }
}

/// Returns a probe that checks from the authority's own host whether it has loaded its zone.
fn own_probe(server: &FarServer) -> Option<impl Fn() -> Probe + use<>> {
    let zone = server.spec().zone.as_ref()?;
    let (last, prober) = (zone.cidr.last(), prober(server, &zone.config.zone));
    Some(move || match prober.answers(last, PROBE_NS) {
        Ok(()) => Probe::Answered,
        Err(error) => error.into(),
    })
}

/// Returns a prober on the server's own host.
fn prober(server: &FarServer, zone: &Zone) -> Prober {
    let settings = &server.spec().settings;
    Prober {
        way: Way::Far(server.host().clone()),
        local: None,
        server: (settings.listen, settings.port).into(),
        zone: zone.clone(),
    }
}

/// Queries to authorities, sent from their own hosts.
struct FarPulse(Vec<Remote>);

impl Asking for FarPulse {
    fn end(self: Box<Self>) -> Vec<Nanos> {
        let waits = |host: &Remote| match host.ask(&Request::EndPulse, PROMPT_NS) {
            Ok(Reply::Waits(waits_ns)) => waits_ns,
            // The trial fails by the same connection.
            _ => Vec::new(),
        };
        self.0.iter().flat_map(waits).collect()
    }
}

fn begin_pulse(
    server: &FarServer,
    zone: &Zone,
    name: Ipv4Addr,
    patience_ns: Nanos,
) -> Result<Remote, ProbeError> {
    let order = PulseOrder {
        question: prober(server, zone).question(name, Rtype::AAAA, patience_ns),
        core: server.spec().settings.cpus.cpus().first().copied(),
    };
    server.host().ask(&Request::Pulse(order), PROMPT_NS)?;
    Ok(server.host().clone())
}
