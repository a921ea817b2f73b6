//! The queries of a trial, one by one in the order of the schedule, read from the ledgers of its
//! shards where they lie.

use std::net::{Ipv4Addr, SocketAddr};

use dns64_transport::clock::Nanos;

use crate::load::ledger::{Entry, Fate, Ledger};
use crate::load::names::Names;
use crate::load::pace::Schedule;

/// What a [`Tester`](super::Tester) remembers of its last trial beside the ledgers.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) server: SocketAddr,
    pub(crate) schedule: Schedule,
    pub(crate) names: Names,
    pub(crate) timeout_ns: Nanos,
    /// Real time at which the schedule began.
    pub(crate) started_at_ns: Nanos,
    pub(crate) ends: Vec<ShardEnd>,
}

/// How far a shard came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardEnd {
    pub(crate) offered: usize,
    pub(crate) emptied_until_ns: Nanos,
}

/// One query that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Index in the trial's schedule.
    pub index: u64,
    /// The IPv4 address whose name was asked.
    pub address: Ipv4Addr,
    /// Thread that sent it.
    pub shard: usize,
    /// When it left, after the start of the trial.
    pub sent_ns: Nanos,
    /// How long after its due time that was.
    pub lateness_ns: u32,
    /// From sending to the first answer; 0 without one.
    pub rtt_ns: Nanos,
    /// What came back.
    pub fate: Fate,
    /// Whether the time for an answer had passed when the trial ended.
    pub expired: bool,
}

impl Row {
    /// Whether anything that belongs to the query came back.
    pub fn received(&self) -> bool {
        self.fate != Fate::Pending
    }

    /// The class of the query, by the name that it has in the results of a trial.
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

/// The queries of a trial that left, in the order of the schedule. Those that were not sent, because
/// the trial ended early or the network did not take them, are left out.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    course: &'a Course,
    ledgers: &'a [Ledger],
    next: u64,
    end: u64,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(course: &'a Course, ledgers: &'a [Ledger]) -> Self {
        Self {
            course,
            ledgers,
            next: 0,
            end: course.schedule.queries(),
        }
    }

    /// Real time at which the schedule began, in nanoseconds since 1970.
    pub fn started_at_ns(&self) -> Nanos {
        self.course.started_at_ns
    }

    /// Who was asked.
    pub fn server(&self) -> SocketAddr {
        self.course.server
    }

    /// The schedule of the whole trial.
    pub fn schedule(&self) -> Schedule {
        self.course.schedule
    }

    /// The names.
    pub fn names(&self) -> &'a Names {
        &self.course.names
    }

    /// Entry and shard of query `index`, if it was handed to the link.
    fn entry(&self, index: u64) -> Option<(usize, Entry)> {
        let schedule = &self.course.schedule;
        let (shard, local) = schedule.place(index);
        let shard = usize::try_from(shard).ok()?;
        let local = usize::try_from(local).ok()?;
        if local >= self.course.ends.get(shard)?.offered {
            return None;
        }
        Some((shard, *self.ledgers.get(shard)?.entries().get(local)?))
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        while self.next < self.end {
            let index = self.next;
            self.next += 1;
            let Some((shard, entry)) = self.entry(index) else {
                continue;
            };
            if entry.fate == Fate::Unsent {
                continue;
            }
            let course = self.course;
            let sent_ns = course.schedule.due_ns(index) + Nanos::from(entry.lateness_ns);
            let emptied_until_ns = course.ends[shard].emptied_until_ns;
            return Some(Row {
                index,
                address: course.names.asked(index),
                shard,
                sent_ns,
                lateness_ns: entry.lateness_ns,
                rtt_ns: entry.rtt_ns,
                fate: entry.fate,
                expired: sent_ns + course.timeout_ns < emptied_until_ns,
            });
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.end - self.next).ok())
    }
}
