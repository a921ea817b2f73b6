//! Interfaces to the equipment of a rig: a Tester with its clock, and servers. The tests implement each in memory.

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_transport::clock::{Nanos, SECOND};

use super::probe::ProbeError;
use super::pulse::{Asking, Patient, Pulse};
use crate::authority::counts::AuthorityCounts;
use crate::lab::LabError;
use crate::lab::server::{Probe, Server, Start};
use crate::machine::Role;
use crate::machine::process::Resources;
use crate::machine::watch::Watched;
use crate::namespace::Zone;
use crate::trial::result::TrialResult;
use crate::trial::surroundings::Surroundings;
use crate::trial::{TrialError, TrialSpec};

/// Timeout of a probe.
pub const PROBE_NS: Nanos = SECOND;

/// Polling interval of [`Client::wait_until`].
const POLL_NS: Nanos = SECOND / 100;

/// A Tester for one server.
pub trait Client {
    /// Runs one trial to its end; then `around` reports what happened to the servers.
    fn trial(
        &mut self,
        spec: &TrialSpec,
        around: impl FnOnce() -> Surroundings,
    ) -> Result<TrialResult, TrialError>;

    /// Makes the next trials observe the processes of these servers, if they are observable.
    fn watch(&mut self, _servers: Vec<(Role, u32)>) {}

    /// Returns the counters of the Tester's own authority since its start.
    fn authority_counts(&self) -> Result<AuthorityCounts, TrialError>;

    /// Returns the AAAA records of a name, at least one, within `wait_ns`.
    fn aaaa(&self, name: Ipv4Addr, wait_ns: Nanos) -> Result<Vec<Ipv6Addr>, ProbeError>;

    /// Checks that the server responds for a name, with or without an AAAA.
    fn answers(&self, name: Ipv4Addr, wait_ns: Nanos) -> Result<(), ProbeError>;

    /// Returns the hosts whose counters are read before and after a trial; none in memory.
    fn watched(&self) -> Watched {
        Watched::default()
    }

    /// Returns the time of the monotonic clock.
    fn now(&self) -> Nanos;

    /// Sleeps for `span_ns`.
    fn pause(&self, span_ns: Nanos);

    /// Polls `done` until it returns true, for at most `limit_ns`.
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

/// A server that was started: the DUT, or an authority other than the built-in one.
pub trait OwnServer {
    /// Restarts it with empty caches; returns when `ready` is answered.
    fn restart(&mut self, ready: &mut dyn FnMut() -> Probe) -> Result<(), LabError>;

    /// Returns the process ID of its first process; `None` if it is not a process.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// Returns how it ended, if it has.
    fn ended(&mut self) -> Option<String>;

    /// Returns its last log lines.
    fn log_tail(&self) -> String;

    /// Returns its current use of resources.
    fn resources(&self) -> Resources;

    /// Returns the number of datagrams that its sockets have lost at full receive buffers.
    fn udp_drops(&self) -> u64;

    /// Returns, once, how many of its last starts were silent and were repeated.
    fn take_silent_starts(&mut self) -> u32;

    /// Returns its last start, once; `None` if it is not a process.
    fn take_start(&mut self) -> Option<Start> {
        None
    }

    /// Starts to query it for a name during a trial; `None` if it is not a process.
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
