//! A trial in steps, so that several Testers can run it together: each arms its part, begins at a moment that was
//! agreed, and gives what it gathered to whoever makes the result of all parts.
//!
//! ```text
//! Tester::arm -> Armed --run--> Armed --gather--> Gathered --\
//!                                    (of other hosts) Gathered --concluded--> TrialResult
//! ```

use std::iter::repeat_with;
use std::sync::Arc;
use std::sync::mpsc::channel;

use dns64_transport::clock::{Clock, Nanos};

use super::backend::{self, AnyLink, BackendClock};
use super::result::TrialResult;
use super::rows::Course;
use super::surroundings::{AuthorityReport, ShardReport, Surroundings};
use super::turns::Sending;
use super::{PORTS_DEFAULT, Tester, TrialError, TrialSpec, summary};
use crate::authority::ledger;
use crate::lab::machine::Machine;
use crate::lab::usage::{Look, Usage};
use crate::load::generator::Generator;
use crate::load::ledger::Ledger;

/// Which shards of a trial a Tester runs: one for each of its threads, from `first` of `shards` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its first shard.
    pub first: u64,
    /// Shards of the whole trial.
    pub shards: u64,
}

impl Part {
    /// All of a trial, by so many threads.
    pub fn whole(threads: usize) -> Self {
        Self {
            first: 0,
            shards: threads as u64,
        }
    }
}

/// Memory of an earlier trial, to be used again.
#[derive(Debug, Default)]
pub struct Spare {
    shards: Vec<Ledger>,
    asked: Option<Arc<ledger::Ledger>>,
}

impl From<Course> for Spare {
    fn from(course: Course) -> Self {
        let ledgers = course.shards.into_iter().map(|shard| shard.ledger);
        Self {
            shards: ledgers.collect(),
            asked: course.asked,
        }
    }
}

impl From<Gathered> for Spare {
    fn from(gathered: Gathered) -> Self {
        let ledgers = gathered.shards.into_iter();
        Self {
            shards: ledgers.map(|shard| shard.finished.ledger).collect(),
            asked: gathered.authority.and_then(|authority| authority.ledger),
        }
    }
}

/// A part of a trial that is ready to begin, or has run.
pub struct Armed {
    sendings: Vec<Sending<AnyLink, BackendClock>>,
    /// What the authority has counted so far, if it is one.
    before: AuthorityReport,
    asked: Option<Arc<ledger::Ledger>>,
    first_look: Look,
    finished: Vec<ShardReport>,
    start: Nanos,
}

/// What came of a Tester's part in a trial.
#[derive(Debug)]
pub struct Gathered {
    /// Of each of its shards, by their numbers.
    pub shards: Vec<ShardReport>,
    /// What its authority did meanwhile, if it has one.
    pub authority: Option<AuthorityReport>,
    /// Who used its processors.
    pub usage: Usage,
    /// What its kernel reads the time from.
    pub clock_source: Option<String>,
    /// Real time at which the schedule began, in nanoseconds since 1970.
    pub started_at_ns: Nanos,
}

impl Tester {
    /// Opens the sockets, takes and touches the memory of a part, has the authority note questions, and looks at the
    /// machine. The part begins when [`Self::run`] says so.
    ///
    /// # Errors
    ///
    /// No sockets, no threads.
    pub fn arm(&mut self, spec: &TrialSpec, part: Part, spare: Spare) -> Result<Armed, TrialError> {
        let clock = BackendClock::default();
        // Of answers that are made in a driver no times are known: to tell those of the others alone would be wrong.
        let asked = (self.serves && self.in_driver.is_none()).then(|| {
            let ledger = ledger::Ledger::new(&spec.names, clock.now(), spare.asked);
            Arc::new(ledger)
        });
        self.record(asked.as_ref());
        Ok(Armed {
            before: self.authority_report()?,
            sendings: self.sendings(spec, part, spare.shards)?,
            asked,
            first_look: Look::at(&Machine::here(), &self.watched()),
            finished: Vec::new(),
            start: clock.now(),
        })
    }

    /// Runs its shards from `start` to their end; nothing where it has none.
    ///
    /// # Errors
    ///
    /// A thread has ended.
    pub fn run(&mut self, mut armed: Armed, start: Nanos) -> Result<Armed, TrialError> {
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
            return Err(TrialError::WorkerLost);
        }
        Ok(armed)
    }

    /// What came of it: when all parts of the trial have run.
    ///
    /// # Errors
    ///
    /// A thread has ended.
    pub fn gather(&mut self, armed: Armed) -> Result<Gathered, TrialError> {
        let here = Machine::here();
        let usage = Look::at(&here, &self.watched()).since(&armed.first_look);
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

    /// The shards of a part, with their sockets open and the memory of those of an earlier trial touched.
    fn sendings(
        &self,
        spec: &TrialSpec,
        part: Part,
        last: Vec<Ledger>,
    ) -> Result<Vec<Sending<AnyLink, BackendClock>>, TrialError> {
        let ledgers = last.into_iter().chain(repeat_with(Ledger::default));
        let needed = Generator::ports_needed(spec.rate_qps, spec.timeout_ns);
        let enough = usize::try_from(needed).unwrap_or(usize::MAX);
        let sources = self.measurer.local.map_or(1, |local| local.count());
        let ports = spec.ports;
        let ports = ports.unwrap_or(enough.max(PORTS_DEFAULT).max(sources));
        let shards = usize::try_from(part.shards.max(1)).unwrap_or(usize::MAX);
        let ports = ports.div_ceil(shards);
        let links = backend::clients(&self.measurer, spec.server, ports, spec.segmentation)?;
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

/// The result of a trial that one Tester has run, and its queries.
pub(crate) fn concluded(
    spec: &TrialSpec,
    gathered: Gathered,
    around: impl FnOnce() -> Surroundings,
) -> (TrialResult, Course) {
    let around = Surroundings {
        machine: Some(gathered.usage),
        clock_source: gathered.clock_source,
        ..around()
    };
    let authority = gathered.authority.as_ref();
    let result = summary::result(spec, &gathered.shards, authority, around);
    let shards = gathered.shards.into_iter().map(|shard| shard.finished);
    let course = Course {
        spec: spec.clone(),
        started_at_ns: gathered.started_at_ns,
        shards: shards.collect(),
        asked: gathered.authority.and_then(|authority| authority.ledger),
    };
    (result, course)
}
