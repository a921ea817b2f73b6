//! A Tester on several hosts. Each host arms its part of a trial; all start at the same time, each by its own clock.
//! Their ledgers are transferred to the controller, which computes the result as for one host.

use std::sync::Arc;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};

use crate::authority::counts::AuthorityCounts;
use crate::authority::ledger;
use crate::lab::LabError;
use crate::load::generator::Finished;
use crate::load::ledger::Ledger;
use crate::machine::usage::Usage;
use crate::rig::remote::at_once;
use crate::rig::remote::clocks::Clocks;
use crate::rig::remote::host::{PROMPT_NS, Remote};
use crate::rig::remote::order::{GatheredOrder, Reply, Request, ShardOrder, TrialOrder};
use crate::rig::remote::site::Sender;
use crate::trial::part::{Gathered, Part, concluded};
use crate::trial::result::TrialResult;
use crate::trial::rows::{Rows, TrialQueries};
use crate::trial::surroundings::{AuthorityReport, ShardReport, Surroundings};
use crate::trial::{TrialError, TrialSpec};

/// Tester on several hosts.
pub struct FarTester {
    /// All hosts of the measurement, once each.
    pub hosts: Vec<Remote>,
    /// Hosts with Measurer threads.
    pub senders: Vec<Sender>,
    /// Hosts with an authority of the Tester.
    pub authorities: Vec<Remote>,
    /// The last trial.
    pub(in crate::rig) last: Option<TrialQueries>,
}

/// Time between the start order and the start of a trial: a message takes milliseconds, longer on a busy host.
const LEAD_NS: Nanos = SECOND / 5;

/// Maximum time of a trial beyond its length and its timeout, for completing its ledger.
const OVERTIME_NS: Nanos = 30 * SECOND;

/// Time to transfer the ledgers of a trial, for any connection to the controller: 16 octets for each of 10^8 queries
/// take 13 s at 1 Gbit/s.
const TRANSFER_NS: Nanos = 600 * SECOND;

impl FarTester {
    /// Returns the queries of the last trial.
    pub fn rows(&self) -> Option<Rows<'_>> {
        self.last.as_ref().map(Rows::new)
    }

    /// Runs a trial like [`Tester::trial`](crate::trial::Tester::trial).
    pub fn trial(
        &mut self,
        spec: &TrialSpec,
        around: impl FnOnce() -> Surroundings,
    ) -> Result<TrialResult, TrialError> {
        spec.check()?;
        self.last = None;
        let parts = self.run(spec)?;
        let hosts = parts.clocks.told(parts.start, &parts.late);
        let gathered = parts.united(spec)?;
        let around = || Surroundings { hosts, ..around() };
        let (result, course) = concluded(spec, gathered, around);
        self.last = Some(course);
        Ok(result)
    }

    /// Returns the counters of the Tester's own authorities since their start; empty without one.
    ///
    /// # Errors
    ///
    /// One of their hosts does not answer.
    pub fn authority_counts(&self) -> Result<AuthorityCounts, TrialError> {
        let mut sum = AuthorityCounts::default();
        let hosts = self.authorities.iter().collect();
        for counted in at_once(hosts, |host: &Remote| {
            match host.ask(&Request::Counts, PROMPT_NS)? {
                Reply::Counts(counts) => Ok(counts),
                _ => Err(host.strange("counts")),
            }
        }) {
            sum.add(counted?);
        }
        Ok(sum)
    }

    /// Returns the part of each host: shards for the senders, in their order, and none for the others.
    fn parts(&self, spec: &TrialSpec) -> Vec<(Remote, TrialOrder)> {
        let shards = self
            .senders
            .iter()
            .map(|sender| sender.threads as u64)
            .sum();
        let mut first = 0;
        let mut parts = Vec::new();
        for sender in &self.senders {
            let order = TrialOrder::new(spec, Part { first, shards }, sender.server);
            parts.push((sender.host.clone(), order));
            first += sender.threads as u64;
        }
        let is_sender =
            |host: &&Remote| self.senders.iter().any(|it| it.host.name() == host.name());
        let others = self.hosts.iter().filter(|host| !is_sender(host));
        parts.extend(others.map(|host| {
            let part = Part { first: 0, shards };
            (host.clone(), TrialOrder::new(spec, part, spec.server))
        }));
        parts
    }

    fn run(&mut self, spec: &TrialSpec) -> Result<Parts, LabError> {
        let parts = self.parts(spec);
        for armed in at_once(parts, |(host, order)| {
            let armed = host.ask(&Request::Arm(Box::new(order)), TRANSFER_NS);
            armed.map(drop)
        }) {
            armed?;
        }
        // Measured last, so that the offsets are the most precise when the trial starts.
        let mut clocks = Clocks::of(self.hosts.iter())?;
        let start = MonotonicClock.now() + LEAD_NS;
        let limit_ns = LEAD_NS + spec.duration_ns + spec.timeout_ns + OVERTIME_NS;
        let begun = self.senders.iter().map(|sender| {
            let at = clocks.to_host(sender.host.name(), start);
            (sender.host.clone(), at)
        });
        let ran = at_once(begun.collect(), |(host, at)| {
            let ran = host.ask(&Request::Run(at), limit_ns)?;
            match ran {
                Reply::Ran(late_ns) => Ok((host.name().to_owned(), late_ns)),
                _ => Err(host.strange("run")),
            }
        });
        let late = ran.into_iter().collect::<Result<Vec<_>, _>>()?;
        clocks.look_again()?;
        let hosts = self.hosts.clone();
        let gathered = at_once(hosts, |host| {
            let gathered = host.ask_all(&Request::Gather, TRANSFER_NS)?;
            match gathered {
                (Reply::Gathered(order), blobs) => Ok((host, *order, blobs)),
                _ => Err(host.strange("gather")),
            }
        });
        let gathered = gathered.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Parts {
            start,
            clocks,
            late,
            gathered,
        })
    }
}

/// Data from the hosts after a trial.
struct Parts {
    /// Start of the trial, on the controller's clock.
    start: Nanos,
    clocks: Clocks,
    /// Delay of the start of each sender that started late.
    late: Vec<(String, Nanos)>,
    gathered: Vec<(Remote, GatheredOrder, Vec<Vec<u8>>)>,
}

impl Parts {
    /// Combines the parts as if one host had run the trial.
    fn united(self, spec: &TrialSpec) -> Result<Gathered, LabError> {
        let mut authorities = Vec::new();
        let mut united = Gathered {
            shards: Vec::new(),
            authority: None,
            usage: Usage::default(),
            clock_source: None,
            started_at_ns: self
                .start
                .saturating_add_signed(MonotonicClock.realtime_offset()),
        };
        for (host, order, blobs) in self.gathered {
            let incomplete = || host.strange("gather");
            let mut blobs = blobs.into_iter();
            for shard in order.shards {
                let octets = blobs.next().ok_or_else(incomplete)?;
                let mut shard = report(spec, shard, &octets).ok_or_else(incomplete)?;
                let finished = &mut shard.finished;
                finished.start = self.clocks.to_controller(host.name(), finished.start);
                united.shards.push(shard);
            }
            if let Some(told) = order.authority {
                let octets = blobs.next().ok_or_else(incomplete)?;
                let start = self.clocks.to_controller(host.name(), told.ledger_start);
                let ledger = ledger::Ledger::from_octets(&spec.names, start, &octets, told.other);
                let report = AuthorityReport {
                    counts: told.counts,
                    receive_drops: told.receive_drops,
                    send_drops: told.send_drops,
                    error: told.error,
                    ledger: Some(Arc::new(ledger.ok_or_else(incomplete)?)),
                    allowed_ns: told.allowed_ns,
                    in_driver: false,
                    shares: Vec::new(),
                };
                authorities.push((host.name().to_owned(), report));
            }
            united.usage.join(order.usage, host.name());
            united.clock_source = united.clock_source.or(order.clock_source);
        }
        united.authority = AuthorityReport::united(authorities);
        united
            .shards
            .sort_by_key(|shard| shard.finished.schedule.shard_index());
        Ok(united)
    }
}

fn report(spec: &TrialSpec, order: ShardOrder, octets: &[u8]) -> Option<ShardReport> {
    let ledger = Ledger::from_octets(octets)?;
    (order.offered <= ledger.entries().len()).then(|| ShardReport {
        finished: Finished {
            schedule: spec.schedule.shard(order.shard, order.shards),
            start: order.start,
            ledger,
            offered: order.offered,
            emptied_until_ns: order.emptied_until_ns,
            tally: order.tally,
        },
        counters: order.counters.into(),
        clock_step_ns: order.clock_step_ns,
        carrier: order.carrier,
        error: order.error,
    })
}

impl Drop for FarTester {
    fn drop(&mut self) {
        // The servers on these hosts keep running; the Tester's threads must stop.
        for host in &self.hosts {
            let _ = host.ask(&Request::Close, PROMPT_NS);
        }
    }
}
