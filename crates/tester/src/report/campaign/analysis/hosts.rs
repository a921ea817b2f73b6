//! Results about the hosts of a plan with several machines.

use schemars::JsonSchema;
use serde::Serialize;

use crate::campaign::record::HostNote;
use crate::machine::Role;

/// The hosts; empty for a plan with one machine.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Hosts {
    /// The hosts in the order of the plan.
    pub rows: Vec<HostRow>,
    /// Queries to each of several authorities; empty with a single one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareRow>,
}

/// One host.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct HostRow {
    /// Its name in the plan.
    pub host: String,
    /// Its roles.
    pub roles: Vec<Role>,
    /// Its machine at the last connection; `None` if it was not used for a measurement.
    pub machine: Option<HostNote>,
    /// Share of the queries that it sends, in per cent; `None` if it sends none.
    pub queries_pct: Option<f64>,
    /// Largest share of a trial during which runnable threads of its roles waited for a core, in per cent of the time
    /// of all threads; `None` if no trial reports it.
    pub waited_pct_max: Option<f64>,
    /// Largest share of a trial during which other programs used the cores of a role (the quantity that `max-stolen`
    /// limits), in per cent.
    pub taken_pct_max: Option<f64>,
    /// Its clock relative to the controller's; `None` if no trial reports it.
    pub clock: Option<ClockRow>,
}

/// The clock of a host over all trials and self-tests.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct ClockRow {
    /// Trials that report it, including those of self-tests.
    pub trials: u64,
    /// Largest error bound of its start time; `None` if no trial has one.
    pub bound_ns_max: Option<u64>,
    /// Trials during which the clock was set or the host restarted: these have no bound.
    pub set: u64,
    /// Smallest drift from the controller's clock in parts per million, over trials in which it was not set.
    pub drift_ppm_min: Option<f64>,
    /// Largest drift.
    pub drift_ppm_max: Option<f64>,
    /// Largest delay of its start command; 0 if none was late.
    pub late_ns_max: u64,
}

/// Queries to one of several authorities in the trials of one variant, or in self-tests.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ShareRow {
    /// The variant, or "self-tests".
    pub trials: String,
    /// The host of the authority.
    pub host: String,
    /// Queries received.
    pub questions: u64,
    /// Its share of the queries to all authorities, in per cent.
    pub pct: f64,
    /// Datagrams dropped at its sockets, and responses that the network did not accept.
    pub drops: u64,
}
