//! A trial in steps, so that several Testers can run it together: each arms its part, starts at an agreed time, and
//! passes its data to the one that combines the result.
//!
//! ```text
//! Tester::arm -> Armed --run--> Armed --gather--> Gathered --\
//!                                    (of other hosts) Gathered --concluded--> TrialResult
//! ```

use std::iter::repeat_with;
use std::sync::Arc;
use std::sync::mpsc::channel;

use dns64_transport::clock::{Clock, Nanos};
use serde::{Deserialize, Serialize};

use super::backend::{self, AnyLink, BackendClock};
use super::result::TrialResult;
use super::rows::TrialQueries;
use super::surroundings::{AuthorityReport, ShardReport, Surroundings};
use super::turns::Sending;
use super::{PORTS_DEFAULT, Tester, TrialSpec, summary, worker_lost};
use crate::authority::ledger;
use crate::load::ledger::Ledger;
use crate::machine::LabError;
use crate::machine::Machine;
use crate::machine::usage::{Usage, UsageSnapshot};

/// Shards of a trial that a Tester runs: one for each of its threads, from `first` of `shards` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Index of its first shard.
    pub first: u64,
    /// Number of shards of the whole trial.
    pub shards: u64,
}

/// Memory of an earlier trial, for reuse.
#[derive(Debug, Default)]
pub struct ReusedLedgers {
    shards: Vec<Ledger>,
    asked: Option<Arc<ledger::NameLedger>>,
}

impl From<TrialQueries> for ReusedLedgers {
    fn from(queries: TrialQueries) -> Self {
        let ledgers = queries.shards.into_iter().map(|shard| shard.ledger);
        Self {
            shards: ledgers.collect(),
            asked: queries.asked,
        }
    }
}

/// A part of a trial that is ready to start, or has run.
pub struct Armed {
    sendings: Vec<Sending<AnyLink, BackendClock>>,
    /// Counters of the authority before the part, if there is one.
    before: AuthorityReport,
    asked: Option<Arc<ledger::NameLedger>>,
    first_look: UsageSnapshot,
    finished: Vec<ShardReport>,
    start: Nanos,
}

/// Data of a Tester's part of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub struct Gathered {
    /// Report of each of its shards, by index.
    pub shards: Vec<ShardReport>,
    /// Report of its authority during the trial, if it has one.
    pub authority: Option<AuthorityReport>,
    /// CPU usage of its processors.
    pub usage: Usage,
    /// Clock source of its kernel.
    pub clock_source: Option<String>,
    /// Real time of the start of the schedule, in nanoseconds since 1970.
    pub started_at_ns: Nanos,
}

impl Gathered {
    /// Returns whether each ledger has as many queries as were passed to its link.
    pub fn is_whole(&self) -> bool {
        let mut shards = self.shards.iter().map(|shard| &shard.finished);
        shards.all(|finished| finished.offered <= finished.ledger.entries().len())
    }

    /// Moves its times to another clock.
    pub fn on_clock(&mut self, convert: impl Fn(Nanos) -> Nanos) {
        for ShardReport { finished, .. } in &mut self.shards {
            finished.start = convert(finished.start);
        }
        let ledger = self.authority.as_mut().and_then(|it| it.ledger.as_mut());
        if let Some(ledger) = ledger.and_then(Arc::get_mut) {
            ledger.start_at(convert(ledger.start()));
        }
    }
}

impl Tester {
    /// Opens the sockets, allocates and touches the memory of a part, starts the recording of the authority, and reads
    /// the counters of the machine. The part starts with [`Self::run`].
    ///
    /// # Errors
    ///
    /// No sockets or threads are available.
    pub fn arm(
        &mut self,
        spec: &TrialSpec,
        part: Part,
        spare: ReusedLedgers,
    ) -> Result<Armed, LabError> {
        let clock = BackendClock::default();
        // Answers from a driver have no timestamps. Times of the remaining answers alone would be misleading.
        let asked = (self.serves && self.in_driver.is_none()).then(|| {
            let ledger = ledger::NameLedger::new(&spec.names, clock.now(), spare.asked);
            Arc::new(ledger)
        });
        self.record(asked.as_ref());
        Ok(Armed {
            before: self.authority_report()?,
            sendings: self.sendings(spec, part, spare.shards)?,
            asked,
            first_look: UsageSnapshot::at(&Machine::here(), &self.watched()),
            finished: Vec::new(),
            start: clock.now(),
        })
    }

    /// Runs its shards from `start` to their end; does nothing without shards.
    ///
    /// # Errors
    ///
    /// A thread has ended.
    pub fn run(&mut self, mut armed: Armed, start: Nanos) -> Result<Armed, LabError> {
        let shards = armed.sendings.len();
        let (report, reports) = channel();
        for (worker, mut sending) in self.workers.iter().zip(armed.sendings.drain(..)) {
            sending.begin(start);
            worker.run(sending, report.clone());
        }
        drop(report);
        armed.start = start;
        armed.finished = reports.iter().collect();
        if armed.finished.len() < shards {
            return Err(worker_lost());
        }
        Ok(armed)
    }

    /// Returns the data, when all parts of the trial have run.
    ///
    /// # Errors
    ///
    /// A thread has ended.
    pub fn gather(&mut self, armed: Armed) -> Result<Gathered, LabError> {
        let here = Machine::here();
        let usage = UsageSnapshot::at(&here, &self.watched()).since(&armed.first_look);
        let mut shards = armed.finished;
        shards.sort_by_key(|shard| shard.finished.schedule.shard_index());
        self.record(None);
        let after = self.authority_report()?;
        let realtime_offset = BackendClock::default().realtime_offset();
        Ok(Gathered {
            shards,
            authority: self.serves.then(|| AuthorityReport {
                ledger: armed.asked,
                ..after.since(&armed.before)
            }),
            usage,
            clock_source: here.clock_source(),
            started_at_ns: armed.start.saturating_add_signed(realtime_offset),
        })
    }

    /// Returns the shards of a part, with open sockets and touched memory from an earlier trial.
    fn sendings(
        &self,
        spec: &TrialSpec,
        part: Part,
        last: Vec<Ledger>,
    ) -> Result<Vec<Sending<AnyLink, BackendClock>>, LabError> {
        let ledgers = last.into_iter().chain(repeat_with(Ledger::default));
        let enough = usize::try_from(spec.ports_needed()).unwrap_or(usize::MAX);
        let sources = self.measurer.local.map_or(1, |local| local.count());
        let shards = usize::try_from(part.shards.max(1)).unwrap_or(usize::MAX);
        let own = (sources, self.measurer.threads.max(1));
        let ports = ports_of_shard(spec.ports, enough, own, shards);
        let links = backend::clients(&self.measurer, spec, ports, shards)?;
        let sending = |((k, link), ledger)| {
            let shard = spec.shard(k, part.shards);
            Sending::new(shard, ledger, link, BackendClock::default())
        };
        Ok((part.first..)
            .zip(links)
            .zip(ledgers)
            .map(sending)
            .collect())
    }
}

/// Source ports of each shard: those that were asked for are divided among all shards of a trial, and so are those `enough` for
/// its rate. There is one for each source address of this host at least, which no shard of another host has.
fn ports_of_shard(
    given: Option<usize>,
    enough: usize,
    (sources, threads): (usize, usize),
    shards: usize,
) -> usize {
    match given {
        Some(ports) => ports.div_ceil(shards),
        None => {
            let of_rate = enough.max(PORTS_DEFAULT).div_ceil(shards);
            of_rate.max(sources.div_ceil(threads))
        }
    }
}

/// Returns the result and the queries of a trial that one Tester has run.
pub fn concluded(
    spec: &TrialSpec,
    gathered: Gathered,
    around: impl FnOnce() -> Surroundings,
) -> (TrialResult, TrialQueries) {
    let around = Surroundings {
        machine: gathered.usage,
        clock_source: gathered.clock_source,
        started_at_ns: gathered.started_at_ns,
        ..around()
    };
    let authority = gathered.authority.as_ref();
    let result = summary::result(spec, &gathered.shards, authority, around);
    let shards = gathered.shards.into_iter().map(|shard| shard.finished);
    let queries = TrialQueries {
        spec: spec.clone(),
        started_at_ns: gathered.started_at_ns,
        shards: shards.collect(),
        asked: gathered.authority.and_then(|authority| authority.ledger),
    };
    (result, queries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_address_has_a_port_unless_ports_were_asked_for() {
        assert_eq!(ports_of_shard(None, 1, (1, 1), 1), PORTS_DEFAULT);
        assert_eq!(ports_of_shard(None, 100, (1, 2), 2), 50);
        assert_eq!(ports_of_shard(None, 100, (4095, 2), 2), 2048);
        assert_eq!(ports_of_shard(Some(64), 100, (4095, 2), 2), 32);
        // Another host has as many shards, and addresses of its own.
        assert_eq!(ports_of_shard(None, 100, (4095, 2), 4), 2048);
    }
}
