//! Queries to authorities during a trial, on their hosts.

use dns64_transport::clock::Nanos;

use crate::post::Request;
use crate::post::host::{Host, PROMPT_NS};

/// Queries to authorities during a trial, sent from their own hosts so that they cross no link. Dropping it stops them.
#[derive(Debug, Default)]
pub struct Pulses(Vec<Host>);

impl Pulses {
    /// Adds a host that was asked to begin.
    pub(super) fn add(&mut self, host: Host) {
        self.0.push(host);
    }

    /// Stops and returns the response times. An unanswered query counts as its waiting time, including the one that is
    /// still open.
    pub fn end(&mut self) -> Vec<Nanos> {
        let waits = |host: Host| {
            let waits_ns: Result<Vec<Nanos>, _> = host.get(Request::EndPulse, PROMPT_NS);
            waits_ns.unwrap_or_default()
        };
        self.0.drain(..).flat_map(waits).collect()
    }
}

impl Drop for Pulses {
    fn drop(&mut self) {
        self.end();
    }
}
