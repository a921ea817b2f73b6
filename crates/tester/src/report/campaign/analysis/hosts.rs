//! What a report says of the hosts of a plan over several machines.

use serde::Serialize;

use crate::lab::hosts::LinkName;
use crate::lab::topology::Role;

/// The hosts; none of a plan for one machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Hosts {
    /// In the order of the plan.
    pub rows: Vec<HostRow>,
    /// The links between them, each once.
    pub links: Vec<LinkRow>,
    /// What each of several authorities was asked; empty where there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareRow>,
    /// Which of them is the weakest, in sentences: by its clock, and of those of the Tester by its cores.
    pub weakest: Vec<String>,
}

/// One host.
#[derive(Clone, Debug, Serialize)]
pub struct HostRow {
    /// Its name in the plan.
    pub host: String,
    /// What it is for.
    pub roles: Vec<Role>,
    /// What it said of itself when it was last reached; `None` if it was not reached for a measurement.
    pub machine: Option<HostMachine>,
    /// Share of the queries that it sends, in per cent; `None` if it sends none.
    pub queries_pct: Option<f64>,
    /// The largest share of a trial for which threads of its roles could have run and waited for a core, in per cent of the
    /// time of all threads; `None` if no trial tells.
    pub waited_pct_max: Option<f64>,
    /// The largest share of a trial for which others kept a role from its cores (what `max-stolen` limits), in per cent.
    pub taken_pct_max: Option<f64>,
    /// Its clock against the controller's; `None` if no trial tells.
    pub clock: Option<ClockRow>,
}

/// The machine of a host, and the Tester's program there.
#[derive(Clone, Debug, Serialize)]
pub struct HostMachine {
    /// The name that it has for itself.
    pub hostname: String,
    /// Its kernel.
    pub kernel: String,
    /// CPUs that the agent may use.
    pub cpus: usize,
    /// Program and version of the agent.
    pub tester: String,
    /// SHA-256 of that program.
    pub sha256: Option<String>,
}

/// The clock of a host over all trials and self-tests.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ClockRow {
    /// Trials that tell, those of self-tests too.
    pub trials: u64,
    /// The worst bound: it began within so long of the moment that all had agreed on. `None` if it is known of no trial.
    pub bound_ns_max: Option<u64>,
    /// Trials during which it was set, or its host restarted: it has no bound in these.
    pub set: u64,
    /// How fast it drifts from the controller's in parts of a million: the least, where it was not set.
    pub drift_ppm_min: Option<f64>,
    /// The most.
    pub drift_ppm_max: Option<f64>,
    /// How late it was told to begin, at the worst; 0 if never.
    pub late_ns_max: u64,
}

/// One link between two hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkRow {
    /// What it is for.
    pub name: LinkName,
    /// Its end at the Measurer; of an upstream link that at the DUT.
    pub near: LinkEndRow,
    /// Its other end.
    pub far: LinkEndRow,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkEndRow {
    /// Name of the host.
    pub host: String,
    /// Its interface.
    pub interface: String,
    /// Kind or driver of the interface, where the environment of a session tells.
    pub driver: Option<String>,
    /// Largest IP packet in octets.
    pub mtu: Option<u32>,
    /// Speed in Mbit/s.
    pub speed_mbps: Option<u32>,
}

/// What one of several authorities was asked in the trials of one variant, or in self-tests.
#[derive(Clone, Debug, Serialize)]
pub struct ShareRow {
    /// The variant, or "self-tests".
    pub trials: String,
    /// The host of the authority.
    pub host: String,
    /// Questions that it got.
    pub questions: u64,
    /// Its share of those that all authorities got, in per cent.
    pub pct: f64,
    /// Datagrams that its sockets lost, and replies that the network did not take.
    pub drops: u64,
}
