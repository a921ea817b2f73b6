//! Inputs of a trial's result in addition to its ledgers: from links, the authority, servers and hosts.

use std::net::SocketAddr;
use std::sync::Arc;

use dns64_transport::clock::Nanos;
use dns64_transport::stream::{Connections, Ending};
use dns64_transport::{Carrier, Counters};

use serde::{Deserialize, Serialize};
use serde_with::{As, DisplayFromStr};

use super::TrialSpec;
use super::path::AuthorityTimes;
use super::result::{AuthorityShare, HostClock};
use crate::authority::counts::AuthorityCounts;
use crate::authority::ledger::NameLedger;
use crate::load::generator::Finished;
use crate::machine::Role;
use crate::machine::cpuset::CpuSet;
use crate::machine::process::Resources;
use crate::machine::usage::Usage;
use crate::machine::watch::{HostOf, Observed};

/// Data of a shard and of its link.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShardReport {
    /// Data of the shard.
    pub finished: Finished,
    /// Number of its source ports.
    pub ports: usize,
    /// Counters of its link.
    #[serde(with = "LinkCounters")]
    pub counters: Counters,
    /// What happened to its connections, if it has any.
    #[serde(with = "LinkConnections")]
    pub connections: Connections,
    /// Change of the real-time clock relative to the monotonic one during the trial.
    pub clock_step_ns: i64,
    /// What carried its datagrams.
    #[serde(with = "As::<DisplayFromStr>")]
    pub carrier: Carrier,
    /// Error of the link, if it failed.
    pub error: Option<String>,
}

/// The fields of [`Counters`], for its serialised form.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Counters")]
struct LinkCounters {
    receive_drops: u64,
    send_drops: u64,
    unreachable: u64,
    foreign: u64,
    foreign_from: Option<SocketAddr>,
}

/// The fields of [`Connections`], for its serialised form.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Connections")]
struct LinkConnections {
    established: u64,
    at_opening: u64,
    set_up_ns: Vec<u32>,
    ended_idle: u64,
    ended: [u64; Ending::ALL.len()],
    lost: [u64; Ending::ALL.len()],
    not_read: u64,
    retransmitted: u64,
}

/// Activity of an authority, since its start or during one trial.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AuthorityReport {
    /// Queries and responses.
    pub counts: AuthorityCounts,
    /// Queries that its sockets lost.
    pub receive_drops: u64,
    /// Replies that the network did not accept.
    pub send_drops: u64,
    /// Error that stopped it, if there was one.
    pub error: Option<String>,
    /// Record of all workers for each name of a trial.
    pub ledger: Option<Arc<NameLedger>>,
    /// Maximum configured delay from a query to its response.
    pub allowed_ns: Nanos,
    /// Most answers came from the driver: they bypass the counters of the host, and no ledger contains them.
    pub in_driver: bool,
    /// Share of each of several hosts; empty with one host.
    pub shares: Vec<AuthorityShare>,
}

impl AuthorityReport {
    /// Combines the reports of authorities on several hosts for one trial, each with the name of its host and its
    /// ledger on a common clock. `None` without any.
    pub fn united(mut reports: Vec<(String, Self)>) -> Option<Self> {
        let start = |report: &Self| report.ledger.as_ref().map(|ledger| ledger.start());
        reports.sort_by_key(|(_, report)| start(report));
        let is_one = reports.len() == 1;
        let shares = reports.iter().filter(|_| !is_one);
        let mut shares: Vec<_> = shares
            .map(|(host, report)| AuthorityShare {
                host: host.clone(),
                questions: report.counts.queries(),
                drops: report.drops(),
            })
            .collect();
        shares.sort_by(|a, b| a.host.cmp(&b.host));
        let named = reports.into_iter().map(|(host, report)| Self {
            error: match report.error {
                Some(error) if !is_one => Some(format!("the authority on host {host}: {error}")),
                error => error,
            },
            ..report
        });
        let united = named.reduce(|mut all, other| {
            // Sorted by start: the first ledger takes the entries of the later ones.
            if let (Some(ledger), Some(more)) = (&all.ledger, &other.ledger) {
                ledger.join(more);
            }
            all.add(other);
            all
        });
        united.map(|united| Self { shares, ..united })
    }

    /// Adds the report of another worker.
    pub(super) fn add(&mut self, other: Self) {
        self.counts.add(other.counts);
        self.receive_drops += other.receive_drops;
        self.send_drops += other.send_drops;
        self.error = self.error.take().or(other.error);
        self.allowed_ns = self.allowed_ns.max(other.allowed_ns);
        self.in_driver |= other.in_driver;
    }

    /// Returns the activity since an earlier report of the same workers.
    pub(super) fn since(self, before: &Self) -> Self {
        Self {
            counts: self.counts.since(before.counts),
            receive_drops: self.receive_drops.saturating_sub(before.receive_drops),
            send_drops: self.send_drops.saturating_sub(before.send_drops),
            ..self
        }
    }

    pub(super) fn drops(&self) -> u64 {
        self.receive_drops + self.send_drops
    }
}

/// State of the servers after a trial. Servers that the Tester did not start are unknown.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Whether the Tester is certified for a DUT at the rate; `None` without a DUT.
    pub certified: Option<bool>,
    /// Datagrams lost by the DUT's sockets at full buffers.
    pub dut_drops: u64,
    /// How the DUT exited, and its last log lines, if it did.
    pub dut_exit: Option<String>,
    /// Use of resources of the DUT.
    pub resources: Option<Resources>,
    /// The user interrupted the trial.
    pub interrupted: bool,
    /// How an authority that is a separate program exited, if it did.
    pub authority_exit: Option<String>,
    /// CPU usage of the machine during the trial.
    pub machine: Usage,
    /// Clock source of the kernel.
    pub clock_source: Option<String>,
    /// Real time of the start of the schedule, in nanoseconds since 1970.
    pub started_at_ns: Nanos,
    /// The Tester's own authority is the DUT, so that its losses are those of the DUT.
    pub authority_is_subject: bool,
    /// Clocks of other hosts, and delays of their start.
    pub hosts: Vec<HostClock>,
    /// Datagrams lost at full buffers by the sockets of an authority that is a separate program.
    pub authority_drops: u64,
    /// Response times of an authority that is a separate program, from queries during the trial.
    pub authority_waits_ns: Option<Vec<Nanos>>,
    /// Counters of the hosts.
    pub observed: Observed,
    /// Notes on the preparations, for readers.
    pub notes: Vec<String>,
}

impl Surroundings {
    /// Returns the datagrams that a built-in authority lost, attributed to the Tester and to the DUT.
    pub(super) fn drops_of(&self, authority: Option<&AuthorityReport>) -> (u64, u64) {
        let drops = authority.map_or(0, AuthorityReport::drops);
        match self.authority_is_subject {
            true => (0, drops),
            false => (drops, 0),
        }
    }

    pub(super) fn sampled(&self, spec: &TrialSpec) -> Option<AuthorityTimes> {
        let waits_ns = self.authority_waits_ns.as_ref()?;
        Some(AuthorityTimes::sampled(waits_ns, spec.timeout_ns))
    }

    /// Returns the unobserved items of a failed trial, whose effects count against the DUT.
    pub(super) fn unseen(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self
            .observed
            .client
            .as_ref()
            .is_some_and(|leg| leg.far.is_none())
        {
            notes.push(
                "the server's host and the network on the way to it are not watched: losses there count against \
                 the server"
                    .to_owned(),
            );
        }
        let dut = self.machine.of(Role::Dut);
        if dut.is_some_and(|row| row.cores.is_some() && row.foreign_ns.is_none()) {
            notes.push(
                "not all processes are visible in /proc: others may have used the DUT's cores"
                    .to_owned(),
            );
        }
        notes
    }

    /// Returns the note if all packets arrived in one of several receive queues, and thus at one core of a host whose
    /// server has several.
    pub(super) fn one_queue(&self) -> Option<String> {
        let legs = self.observed.client.iter().chain(&self.observed.upstreams);
        legs.filter_map(|leg| {
            let (host, link) = (&self.observed.hosts[leg.far?], leg.link.as_deref()?);
            let HostOf::Role(role @ (Role::Dut | Role::Authority), None) = &host.of else {
                return None;
            };
            let cores: CpuSet = self.machine.of(*role)?.cores.as_ref()?.parse().ok()?;
            let packets = host.most.received_by_queue(link);
            let (all, busiest) = (packets.iter().sum::<u64>(), *packets.iter().max()?);
            let is_one = packets.len() > 1 && all >= QUEUES_JUDGED_FROM && busiest * 100 >= all * 99;
            (is_one && cores.cpus().len() > 1).then(|| {
                format!(
                    "{busiest} of {all} packets arrived in one of {} receive queues ({link}, {}), and so at one of its cores: RSS has to \
                     hash the ports (`ethtool -N INTERFACE rx-flow-hash udp6 sdfn`)",
                    packets.len(),
                    host.of
                )
            })
        })
        .next()
    }
}

/// Fewer packets can all come from the same few ports.
const QUEUES_JUDGED_FROM: u64 = 1000;
