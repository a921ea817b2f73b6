//! What a rig acts on: a Tester with its clock, and servers. Each has a twin in memory, in the tests.

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_transport::clock::{Nanos, SECOND};

use super::probe::ProbeError;
use super::pulse::{Asking, Patient, Pulse};
use crate::authority::counts::AuthorityCounts;
use crate::lab::LabError;
use crate::lab::process::Resources;
use crate::lab::server::{Probe, Server, Start};
use crate::lab::topology::Role;
use crate::lab::watch::Watched;
use crate::namespace::Zone;
use crate::trial::result::TrialResult;
use crate::trial::surroundings::Surroundings;
use crate::trial::{TrialError, TrialSpec};

/// How long one probe is waited for.
pub const PROBE_NS: Nanos = SECOND;

/// How often a condition that is waited for is looked at.
const POLL_NS: Nanos = SECOND / 100;

/// A Tester toward one server.
pub trait Client {
    /// Runs one trial to its end; `around` then tells what happened to the servers meanwhile.
    fn trial(
        &mut self,
        spec: &TrialSpec,
        around: impl FnOnce() -> Surroundings,
    ) -> Result<TrialResult, TrialError>;

    /// Has the next trials look at the processes of these servers, where they can be looked at.
    fn watch(&mut self, _servers: Vec<(Role, u32)>) {}

    /// What the Tester's own authority has counted since it began.
    fn authority_counts(&self) -> Result<AuthorityCounts, TrialError>;

    /// The AAAA records of a name, at least one; waits up to `wait_ns` for them.
    fn aaaa(&self, name: Ipv4Addr, wait_ns: Nanos) -> Result<Vec<Ipv6Addr>, ProbeError>;

    /// Whether the server answers for a name, with or without an AAAA.
    fn answers(&self, name: Ipv4Addr, wait_ns: Nanos) -> Result<(), ProbeError>;

    /// The hosts whose counters are read before and after a trial; none in memory.
    fn watched(&self) -> Watched {
        Watched::default()
    }

    /// Now, on the monotonic clock.
    fn now(&self) -> Nanos;

    /// Lets a moment pass before something is looked at again.
    fn pause(&self, span_ns: Nanos);

    /// Asks `done` again and again until it says yes, for at most `limit_ns`.
    fn wait_until(&mut self, limit_ns: Nanos, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let deadline = self.now() + limit_ns;
        loop {
            if done(self) {
                return true;
            }
            if self.now() >= deadline {
                return false;
            }
            self.pause(POLL_NS);
        }
    }
}

/// A server that was started: the DUT, or an authority beside the Tester.
pub trait OwnServer {
    /// Stops it and starts it again with empty caches; returns once `ready` is answered.
    fn restart(&mut self, ready: &mut dyn FnMut() -> Probe) -> Result<(), LabError>;

    /// Process ID of its first process; `None` for one that is no process.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// How it ended, if it has.
    fn ended(&mut self) -> Option<String>;

    /// The last lines that it wrote.
    fn log_tail(&self) -> String;

    /// What it uses now.
    fn resources(&self) -> Resources;

    /// Datagrams that its sockets have lost so far at full receive buffers.
    fn udp_drops(&self) -> u64;

    /// How often it was silent after its last start and had to be started again, once.
    fn take_silent_starts(&mut self) -> u32;

    /// Its last start, once; `None` for one that is no process.
    fn take_start(&mut self) -> Option<Start> {
        None
    }

    /// Questions for a name to it beside a trial; `None` for one that is no process.
    fn pulse(
        &self,
        _zone: &Zone,
        _name: Ipv4Addr,
        _patience_ns: Nanos,
    ) -> Option<Result<Box<dyn Asking>, ProbeError>> {
        None
    }
}

impl OwnServer for Server {
    fn restart(&mut self, ready: &mut dyn FnMut() -> Probe) -> Result<(), LabError> {
        Self::restart(self, ready)
    }

    fn pid(&self) -> Option<u32> {
        Some(Self::pid(self))
    }

    fn ended(&mut self) -> Option<String> {
        self.exit_status().map(|status| status.to_string())
    }

    fn log_tail(&self) -> String {
        Self::log_tail(self)
    }

    fn resources(&self) -> Resources {
        Self::resources(self)
    }

    fn udp_drops(&self) -> u64 {
        Self::udp_drops(self)
    }

    fn take_silent_starts(&mut self) -> u32 {
        Self::take_silent_starts(self)
    }

    fn take_start(&mut self) -> Option<Start> {
        Self::take_start(self)
    }

    fn pulse(
        &self,
        zone: &Zone,
        name: Ipv4Addr,
        patience_ns: Nanos,
    ) -> Option<Result<Box<dyn Asking>, ProbeError>> {
        let (host, settings) = self.place();
        let pulse = Pulse::begin(Patient {
            host: host.clone(),
            server: (settings.listen, settings.port).into(),
            core: settings.cpus.cpus().first().copied(),
            zone: zone.clone(),
            name,
            patience_ns,
        });
        Some(pulse.map(|pulse| Box::new(pulse) as Box<dyn Asking>))
    }
}
