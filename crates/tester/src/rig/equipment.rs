//! Interfaces to the equipment of a rig: a Tester with its clock, and servers. The tests implement each in memory.

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_transport::clock::{Nanos, SECOND};

use super::RigError;
use super::pulses::Pulses;
use super::watched::Watched;
use crate::authority::counts::AuthorityCounts;
use crate::lab::LabError;
use crate::lab::server::{Probe, Start};
use crate::namespace::{AskedName, Zone};
use crate::post::ServerState;
use crate::post::probe::ProbeError;
use crate::trial::TrialSpec;
use crate::trial::result::TrialResult;
use crate::trial::surroundings::Surroundings;

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
    ) -> Result<TrialResult, RigError>;

    /// Returns the counters of the Tester's own authority since its start.
    fn authority_counts(&self) -> Result<AuthorityCounts, LabError>;

    /// Returns the AAAA records of a name, at least one, within `wait_ns`.
    fn aaaa(&self, name: Ipv4Addr, wait_ns: Nanos) -> Result<Vec<Ipv6Addr>, ProbeError>;

    /// Checks that the server responds to a question, with or without records.
    fn responds(&self, asked: AskedName, wait_ns: Nanos) -> Result<(), ProbeError>;

    /// Checks that the server responds for a name, with or without an AAAA.
    fn answers(&self, name: Ipv4Addr, wait_ns: Nanos) -> Result<(), ProbeError> {
        self.responds(AskedName::aaaa(name), wait_ns)
    }

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
pub trait StartedServer {
    /// Restarts it with empty caches; returns when `ready` is answered.
    fn restart(&mut self, ready: &mut dyn FnMut() -> Probe) -> Result<(), LabError>;

    /// Returns how it ended, if it has.
    fn ended(&self) -> Option<String>;

    /// Returns its state.
    fn state(&self) -> ServerState;

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
        _timeout_ns: Nanos,
    ) -> Option<Result<Pulses, ProbeError>> {
        None
    }
}
