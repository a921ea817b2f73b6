//! Converts arguments to a measurement.

use std::net::{IpAddr, SocketAddr};

use super::args::{MayLoadArgs, MeasureArgs, OutputArgs};
use crate::campaign::bench;
use crate::campaign::plan::{self, Plan, ServerName};
use crate::lab::{Blame, LabError, LabKind};
use crate::load::transport::Protocol;
use crate::procedure::selftest::self_test_rate;
use crate::rig::recommended::Recommended;
use crate::rig::spec::{RigSpec, Subject};
use crate::rig::zones::{self, Demand};

/// A measurement and its output.
#[derive(Debug)]
pub struct Measurement {
    /// Subject and load.
    pub spec: RigSpec,
    /// What the flags say.
    pub plan: Plan,
    /// Whose servers may be measured.
    pub may_load: MayLoadArgs,
    /// Whether the user has given the range of names.
    pub has_namespace: bool,
    /// Destinations of the output.
    pub output: OutputArgs,
}

impl Measurement {
    /// Requirements of trials of the DUT up to this rate, with their self-tests, for the authority; without a DUT, of
    /// the self-tests for this rate. Unless the user has given the range of names, an authority that is a program gets
    /// only as many as needed.
    pub fn fit_zone(&mut self, highest_qps: Option<u64>) -> Demand {
        let lab = self.spec.subject.lab();
        let self_test = !self.plan.uncertified || self.spec.subject.is_authority();
        let demand = Demand {
            self_test,
            highest_qps: match self_test {
                true => highest_qps.map(self_test_rate),
                false => highest_qps,
            },
        };
        let is_program = lab.is_some_and(|lab| lab.authority.is_program());
        if is_program && !self.has_namespace {
            self.spec.load.cidr = zones::smallest(&self.spec.load, demand);
        }
        demand
    }

    /// Recommendations of RFC 8219 for this number of searches.
    pub fn recommended(&self, searches: Option<u32>) -> Recommended<'_> {
        let server = match &self.spec.subject {
            Subject::Server { server, .. } if server.is_ipv4() => Some("the server"),
            _ => None,
        };
        Recommended {
            duration_ns: self.spec.load.duration_ns,
            timeout_ns: self.spec.load.timeout_ns,
            runs: searches,
            has_goals: !self.plan.search.goals.is_empty(),
            ipv4_servers: server.into_iter().collect(),
        }
    }
}

/// Whether a measurement needs a DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It measures a DUT: `trial` and `search`.
    Dut,
    /// It measures without a DUT: `selftest`.
    AuthorityOnly,
}

impl MeasureArgs {
    /// Combines the flags.
    ///
    /// # Errors
    ///
    /// Contradictory flags, or a missing server.
    pub fn resolve(self, needs: Needs) -> Result<Measurement, LabError> {
        let mut draft = *self.settings.0;
        match (&draft.server, draft.has_profile(), needs) {
            (Some(_), true, _) => {
                return Err(other_servers("--server and --dut cannot be combined"));
            }
            (None, false, Needs::Dut) => return Err(other_servers("no server to measure")),
            _ => {}
        }
        let local = draft.plan.load.local.map(|local| local.address(0));
        let protocol = draft.plan.load.transport.protocol;
        let named = draft.server.as_ref();
        let server = named.map(|name| address(name, (draft.port, protocol), local));
        let server = server.transpose()?;
        draft.choose(server, needs == Needs::Dut);
        let refused = |faults: Vec<String>| Blame::Request.error(faults.join("\n"));
        let plan = plan::measurement(&draft).map_err(refused)?;
        let mut spec = bench::spec(&plan, &plan.points[0], LabKind::Auto);
        spec.load.stop_early = false;
        Ok(Measurement {
            spec,
            plan,
            may_load: self.may_load,
            has_namespace: draft.namespace.is_some(),
            output: self.output,
        })
    }
}

/// Returns the port that the address in `flag` or `--port` gives.
///
/// # Errors
///
/// Both give one.
pub fn one_port(flag: &str, own: Option<u16>, port: Option<u16>) -> Result<Option<u16>, LabError> {
    match (own, port) {
        (Some(own), Some(port)) => Err(Blame::Request.error(format!(
            "{flag} has the port {own}, and --port is {port}; omit one of them"
        ))),
        (own, port) => Ok(own.or(port)),
    }
}

fn address(
    name: &ServerName,
    (port, protocol): (Option<u16>, Protocol),
    local: Option<IpAddr>,
) -> Result<SocketAddr, LabError> {
    let port = one_port("--server", name.port, port)?.unwrap_or(protocol.port());
    let address = name.address(port, local);
    address.map_err(|why| {
        Blame::Machine.error(format!(
            "cannot find the address of --server {name}: {why}; check the name, or give the address"
        ))
    })
}

fn other_servers(fault: &str) -> LabError {
    Blame::Request.error(format!(
        "{fault}; give --server ADDR [--port PORT] for a running server, or --dut PROFILE to start one in a lab"
    ))
}
