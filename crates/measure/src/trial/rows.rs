//! The queries of a trial in the order of the schedule, read in place from the ledgers of its shards.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use dns64_transport::clock::Nanos;

use super::TrialSpec;
use super::path::Timeline;
use crate::authority::ledger::NameLedger;
use crate::load::generator::Finished;
use crate::load::ledger::Fate;
use crate::load::names::Names;
use crate::load::pace::Schedule;

/// Data of the last trial of a [`Tester`](super::Tester).
#[derive(Debug)]
pub struct TrialQueries {
    /// What was asked for.
    pub spec: TrialSpec,
    /// Real time of the start of the schedule.
    pub started_at_ns: Nanos,
    /// Data of each shard.
    pub shards: Vec<Finished>,
    /// Ledger of the authority, if it is the built-in one.
    pub asked: Option<Arc<NameLedger>>,
}

/// One query that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Index in the trial's schedule.
    pub index: u64,
    /// The IPv4 address whose name was queried.
    pub address: Ipv4Addr,
    /// Thread that sent it.
    pub shard: usize,
    /// Time of sending, since the start of the trial.
    pub sent_ns: Nanos,
    /// Lateness relative to its due time.
    pub lateness_ns: u32,
    /// Time from the query to its first response; 0 without one.
    pub rtt_ns: Nanos,
    /// Result of the query.
    pub fate: Fate,
    /// Whether its timeout had passed when the trial ended.
    pub expired: bool,
}

impl Row {
    /// Returns whether it has a response.
    pub fn received(&self) -> bool {
        self.fate != Fate::Pending
    }

    /// Returns the class of the query, by its name in the results of a trial.
    pub fn class(&self) -> &'static str {
        match self.fate {
            Fate::Pending if self.expired => "missing",
            Fate::Pending | Fate::Unsent => "undecided",
            Fate::Valid => "valid",
            Fate::Late => "late",
            Fate::Wrong => "wrong",
            Fate::Empty => "empty",
            Fate::Error => "error",
            Fate::Truncated => "truncated",
        }
    }
}

/// The queries of a trial that were sent, in the order of the schedule. Unsent ones, because the trial ended early or
/// the network did not accept them, are skipped.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    trial: &'a TrialQueries,
    /// The schedule with its shards.
    schedule: Schedule,
    next: u64,
}

impl<'a> Rows<'a> {
    /// The queries from the first on.
    pub fn new(trial: &'a TrialQueries) -> Self {
        Self {
            trial,
            schedule: trial.spec.schedule.shard(0, trial.shards.len() as u64),
            next: 0,
        }
    }

    /// Returns the real time of the start of the schedule, in nanoseconds since 1970.
    pub fn started_at_ns(&self) -> Nanos {
        self.trial.started_at_ns
    }

    /// Returns the server under test.
    pub fn server(&self) -> SocketAddr {
        self.trial.spec.server
    }

    /// Returns the schedule of the whole trial.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Returns the names.
    pub fn names(&self) -> &'a Names {
        &self.trial.spec.names
    }

    /// Returns query `index`, if it was sent.
    pub fn row(&self, index: u64) -> Option<Row> {
        let (shard, local) = self.schedule.place(index);
        let shard = usize::try_from(shard).ok()?;
        let local = usize::try_from(local).ok()?;
        let trial = self.trial;
        let finished = trial.shards.get(shard)?;
        let entry = finished.ledger.entries()[..finished.offered].get(local)?;
        if entry.fate == Fate::Unsent {
            return None;
        }
        let sent_ns = self.schedule.due_ns(index) + Nanos::from(entry.lateness_ns);
        Some(Row {
            index,
            address: trial.spec.names.asked(index),
            shard,
            sent_ns,
            lateness_ns: entry.lateness_ns,
            rtt_ns: entry.rtt_ns,
            fate: entry.fate,
            expired: finished.is_expired(sent_ns, trial.spec.timeout_ns),
        })
    }

    /// Returns the messages of query `index`, if it was sent.
    pub fn timeline(&self, index: u64) -> Option<Timeline> {
        let row = self.row(index)?;
        let start = self.trial.shards.get(row.shard)?.start;
        let number = self.names().repeats.fresh(index);
        let asked = self.trial.asked.as_ref().zip(number);
        let questions = asked.map(|(ledger, n)| ledger.questions(n));
        let sent_at = start + row.sent_ns;
        Some(Timeline {
            sent_at,
            received_at: row.received().then(|| sent_at + row.rtt_ns),
            questions,
        })
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        while self.next < self.schedule.queries() {
            let row = self.row(self.next);
            self.next += 1;
            if row.is_some() {
                return row;
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.schedule.queries() - self.next;
        (0, usize::try_from(left).ok())
    }
}
