//! A Tester and servers, on this machine or on others: what a rig acts on.

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_transport::clock::{Clock, MonotonicClock, Nanos};
use dns64_wire::codes::Rtype;

use super::post;
use super::tester::FarTester;
use crate::authority::counts::AuthorityCounts;
use crate::lab::LabError;
use crate::lab::process::Resources;
use crate::lab::profile::Profile;
use crate::lab::server::{Probe, Server, Start};
use crate::lab::topology::Role;
use crate::lab::watch::Watched;
use crate::namespace::Zone;
use crate::rig::equipment::{Client, OwnServer};
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
    /// Its threads are in this process.
    Here(Box<Tester>),
    /// They are on other hosts.
    Far(Box<FarTester>),
}

/// A Tester, and single questions from beside it.
pub struct Instruments {
    pub(in crate::rig) tester: AnyTester,
    pub(in crate::rig) prober: Prober,
    pub(in crate::rig) watched: Watched,
}

impl Instruments {
    /// With a Tester whose threads are in this process.
    pub(in crate::rig) fn here(tester: Tester, prober: Prober, watched: Watched) -> Self {
        Self {
            tester: AnyTester::Here(Box::new(tester)),
            prober,
            watched,
        }
    }

    /// The queries of the last trial, one by one; none before the first.
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
            // Each host looks at its own.
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
    /// On another host.
    Far(Box<FarServer>),
}

impl AnyServer {
    /// What it is run by.
    pub fn program(&self) -> Program {
        match self {
            Self::Here(server) => post::program(server),
            Self::Far(server) => server.program().clone(),
        }
    }

    /// The profile that it was started from.
    pub fn profile(&self) -> &Profile {
        match self {
            Self::Here(server) => server.profile(),
            Self::Far(server) => &server.spec().profile,
        }
    }
}

impl OwnServer for AnyServer {
    fn restart(&mut self, ready: &mut dyn FnMut() -> Probe) -> Result<(), LabError> {
        match self {
            Self::Here(server) => OwnServer::restart(&mut **server, ready),
            Self::Far(server) => server.restart(ready),
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
            Self::Far(server) => server.ended(),
        }
    }

    fn log_tail(&self) -> String {
        match self {
            Self::Here(server) => server.log_tail(),
            Self::Far(server) => server.log_tail(),
        }
    }

    fn resources(&self) -> Resources {
        match self {
            Self::Here(server) => server.resources(),
            Self::Far(server) => server.resources(),
        }
    }

    fn udp_drops(&self) -> u64 {
        match self {
            Self::Here(server) => server.udp_drops(),
            Self::Far(server) => server.udp_drops(),
        }
    }

    fn take_silent_starts(&mut self) -> u32 {
        match self {
            Self::Here(server) => server.take_silent_starts(),
            Self::Far(server) => server.take_silent_starts(),
        }
    }

    fn take_start(&mut self) -> Option<Start> {
        match self {
            Self::Here(server) => server.take_start(),
            Self::Far(server) => server.take_start(),
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
            Self::Far(server) => Some(far_pulse(server, zone, name, patience_ns)),
        }
    }
}

/// Questions to an authority that its own host asks.
struct FarPulse(Remote);

impl Asking for FarPulse {
    fn end(self: Box<Self>) -> Vec<Nanos> {
        match self.0.ask(&Request::EndPulse, PROMPT_NS) {
            Ok(Reply::Waits(waits_ns)) => waits_ns,
            // The trial fails by the same connection.
            _ => Vec::new(),
        }
    }
}

fn far_pulse(
    server: &FarServer,
    zone: &Zone,
    name: Ipv4Addr,
    patience_ns: Nanos,
) -> Result<Box<dyn Asking>, ProbeError> {
    let settings = &server.spec().settings;
    let prober = Prober {
        way: Way::Far(server.host().clone()),
        local: None,
        server: (settings.listen, settings.port).into(),
        zone: zone.clone(),
    };
    let order = PulseOrder {
        question: prober.question(name, Rtype::AAAA, patience_ns),
        core: settings.cpus.cpus().first().copied(),
    };
    server.host().ask(&Request::Pulse(order), PROMPT_NS)?;
    Ok(Box::new(FarPulse(server.host().clone())))
}
