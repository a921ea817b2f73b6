//! What a trial is summed up from, beside its ledgers: what links, the authority, servers and hosts tell of it.

use std::sync::Arc;

use dns64_transport::Counters;
use dns64_transport::clock::Nanos;

use super::TrialSpec;
use super::path::AuthorityTimes;
use super::result::{AuthorityShare, HostClock};
use crate::authority::counts::AuthorityCounts;
use crate::authority::ledger::Ledger;
use crate::lab::cpuset::CpuSet;
use crate::lab::process::Resources;
use crate::lab::topology::Role;
use crate::lab::usage::Usage;
use crate::lab::watch::Observed;
use crate::load::generator::Finished;

/// What came of a shard and of the link that it was turned over.
#[derive(Debug)]
pub struct ShardReport {
    /// The shard.
    pub finished: Finished,
    /// What its link counted.
    pub counters: Counters,
    /// How far the real-time clock moved against the monotonic one during the trial.
    pub clock_step_ns: i64,
    /// Kind of link.
    pub backend: String,
    /// Why the link failed, if it did.
    pub error: Option<String>,
}

/// What an authority did, since it began or during one trial.
#[derive(Clone, Debug, Default)]
pub struct AuthorityReport {
    /// Queries and answers.
    pub counts: AuthorityCounts,
    /// Queries that its sockets lost.
    pub receive_drops: u64,
    /// Replies that the network did not take.
    pub send_drops: u64,
    /// Why it stopped serving, if it did.
    pub error: Option<String>,
    /// What all workers noted of each name of a trial.
    pub ledger: Option<Arc<Ledger>>,
    /// How long after a question its answers were asked to leave at the latest.
    pub allowed_ns: Nanos,
    /// Most answers were made in the driver: neither the counters of the host nor a ledger know of them.
    pub in_driver: bool,
    /// What each of several hosts did of it; empty of one.
    pub shares: Vec<AuthorityShare>,
}

impl AuthorityReport {
    /// What authorities on several hosts did during one trial, each with the name of its host and its ledger on one clock:
    /// as if one had done it. `None` without any.
    pub(crate) fn united(mut reports: Vec<(String, Self)>) -> Option<Self> {
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
            // The first began first.
            if let (Some(ledger), Some(more)) = (&all.ledger, &other.ledger) {
                ledger.join(more);
            }
            all.add(other);
            all
        });
        united.map(|united| Self { shares, ..united })
    }

    /// Adds what another worker reports.
    pub(super) fn add(&mut self, other: Self) {
        self.counts.add(other.counts);
        self.receive_drops += other.receive_drops;
        self.send_drops += other.send_drops;
        self.error = self.error.take().or(other.error);
        self.allowed_ns = self.allowed_ns.max(other.allowed_ns);
        self.in_driver |= other.in_driver;
    }

    /// What has come since an earlier report of the same workers.
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

/// What happened to the servers around a trial, looked at when it is over. Nothing is known of those
/// that are not ours.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Whether the Tester is certified for a DUT at the rate; `None` if no DUT is asked.
    pub certified: Option<bool>,
    /// Datagrams that the DUT's sockets lost at full buffers.
    pub dut_drops: u64,
    /// How the DUT ended, and its last log lines, if it did.
    pub dut_exit: Option<String>,
    /// What the DUT uses.
    pub resources: Option<Resources>,
    /// How the program ended that is the authority, if it did.
    pub authority_exit: Option<String>,
    /// What the machine did meanwhile.
    pub machine: Option<Usage>,
    /// What the kernel reads the time from.
    pub clock_source: Option<String>,
    /// The Tester's own authority is what is measured, so that what it loses is lost by the DUT.
    pub authority_is_subject: bool,
    /// The clocks of other hosts, and when they began.
    pub hosts: Vec<HostClock>,
    /// Datagrams that the sockets of the program lost at full buffers that is the authority.
    pub authority_drops: u64,
    /// How long each question took that the program was asked beside the trial that is the authority.
    pub authority_waits_ns: Option<Vec<Nanos>>,
    /// What the counters of the hosts did.
    pub observed: Observed,
    /// What the reader should know of the preparations.
    pub notes: Vec<String>,
}

impl Surroundings {
    /// Datagrams that a built-in authority lost: for the Tester, and for the DUT.
    pub(super) fn drops_of(&self, authority: Option<&AuthorityReport>) -> (u64, u64) {
        let drops = authority.map_or(0, AuthorityReport::drops);
        match self.authority_is_subject {
            true => (0, drops),
            false => (drops, 0),
        }
    }

    pub(super) fn sampled(&mut self, spec: &TrialSpec) -> Option<AuthorityTimes> {
        let waits_ns = self.authority_waits_ns.take()?;
        Some(AuthorityTimes::sampled(&waits_ns, spec.timeout_ns))
    }

    /// What nobody looked at in a trial that failed, so that it counts against the DUT.
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
        let dut = self.machine.as_ref().and_then(|usage| usage.of(Role::Dut));
        if dut.is_some_and(|row| row.cores.is_some() && row.foreign_ns.is_none()) {
            notes.push(
                "not all processes are visible in /proc: others may have used the DUT's cores"
                    .to_owned(),
            );
        }
        notes
    }

    /// What arrived in one of several receive queues alone, and so at one core of a host whose server has several.
    pub(super) fn one_queue(&self) -> Option<String> {
        let legs = self.observed.client.iter().chain(&self.observed.upstreams);
        legs.filter_map(|leg| {
            let (host, link) = (&self.observed.hosts[leg.far?], leg.link.as_deref()?);
            let role = match host.role.as_str() {
                "DUT" => Role::Dut,
                "authority" => Role::Authority,
                _ => return None,
            };
            let cores: CpuSet = self.machine.as_ref()?.of(role)?.cores.as_ref()?.parse().ok()?;
            let packets = host.most.received_by_queue(link);
            let (all, busiest) = (packets.iter().sum::<u64>(), *packets.iter().max()?);
            let is_one = packets.len() > 1 && all >= QUEUES_JUDGED_FROM && busiest * 100 >= all * 99;
            (is_one && cores.cpus().len() > 1).then(|| {
                format!(
                    "{busiest} of {all} packets arrived in one of {} receive queues ({link}, {}), and so at one of its cores: RSS has to \
                     hash the ports (`ethtool -N INTERFACE rx-flow-hash udp6 sdfn`)",
                    packets.len(),
                    host.role
                )
            })
        })
        .next()
    }
}

/// Fewer packets can all come from the same few ports.
const QUEUES_JUDGED_FROM: u64 = 1000;
