//! The main loop of the Tester in turns: a generator during a trial, and an authority all the time.
//!
//! If Measurer and AuthDNS share a core, one thread runs both: the time slices of two threads would last milliseconds
//! and break the schedule. This module decides which of them runs next. A thread (`worker`) runs turns without pause; a
//! simulation runs them by its clock.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::{Clock, Nanos};
use dns64_transport::{Counters, Link, LinkError};

use super::surroundings::{AuthorityReport, ShardReport};
use crate::authority::answer::Authority;
use crate::authority::behaviour::Rules;
use crate::authority::counts::AuthorityCounts;
use crate::authority::faulty::Faulty;
use crate::authority::ledger::Recorder;
use crate::authority::serve;
use crate::load::generator::{Generator, Shard};
use crate::load::ledger::Ledger;

/// Maximum cost of receiving and answering one query, used to fit a turn of the authority before the next due time of
/// the generator: an echo over IPv6 takes 2.4 us.
const ANSWER_COST_NS: Nanos = 2_500;

/// The authority waits if the next due time is closer than this,
const ANSWER_TURN_NS: Nanos = 4_000;

/// but at most for this number of turns, all of which send something at a high rate,
const PASSED_OVER_MAX: u32 = 4;

/// and then answers at least this many queries: a DUT sends two for each query of the Measurer.
const ANSWER_LEAST: usize = 8;

/// Maximum number of queries that an authority answers in one turn.
const ANSWER_BATCH: usize = 64;

/// Number of turns in which an authority empties a full socket buffer: 8,000 datagrams (see `transport::socket`) in
/// batches of 16.
const DRAIN_TURNS: u32 = 1_000;

/// Number of turns without a query before an authority sleeps: some 20 us of polling, so that a steady load never has
/// to wake it.
const IDLE_TURNS: u32 = 100;

/// Maximum sleep of an idle authority.
const IDLE_NS: Nanos = 1_000_000;

/// A shard of a running trial: a generator, its link and their clock.
pub struct Sending<L, C> {
    generator: Generator,
    link: L,
    clock: C,
    realtime_offset: i64,
    /// Turns since the last one of the authority on this thread.
    passed_over: u32,
    failed: Option<LinkError>,
}

impl<L: Link, C: Clock> Sending<L, C> {
    /// Creates a shard and touches the reused memory of `ledger`, which takes some time: call it before
    /// [`Self::begin`].
    pub fn new(shard: Shard, ledger: Ledger, link: L, clock: C) -> Self {
        Self {
            generator: Generator::new(shard, link.ports(), ledger),
            link,
            clock,
            realtime_offset: 0,
            passed_over: 0,
            failed: None,
        }
    }

    /// Sets the start of the schedule.
    pub fn begin(&mut self, start: Nanos) {
        self.realtime_offset = self.clock.realtime_offset();
        self.generator.begin(start);
    }

    /// Runs one turn of the generator, and one of the authority on this thread if there is time before the next due
    /// time, or if its last turn was too long ago. Breaks when all queries are decided, when the link has failed, or
    /// when `interrupted` is true.
    #[inline]
    pub fn turn(
        &mut self,
        serving: Option<&mut Serving<L>>,
        interrupted: &AtomicBool,
    ) -> ControlFlow<()> {
        match self.generator.turn(&mut self.link, &self.clock) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return ControlFlow::Break(()),
            Err(error) => {
                self.failed = Some(error);
                return ControlFlow::Break(());
            }
        }
        if let Some(serving) = serving {
            self.passed_over += 1;
            let slack_ns = self.generator.slack_ns(self.clock.now());
            if slack_ns >= ANSWER_TURN_NS || self.passed_over == PASSED_OVER_MAX {
                let fits = usize::try_from(slack_ns / ANSWER_COST_NS).unwrap_or(ANSWER_BATCH);
                serving.turn(fits.clamp(ANSWER_LEAST, ANSWER_BATCH));
                self.passed_over = 0;
            }
        }
        if interrupted.load(Ordering::Relaxed) {
            self.generator.stop();
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Returns until when no turn is needed, unless a datagram arrives; see [`Generator::idle_until`].
    pub fn idle_until(&self) -> Nanos {
        self.generator.idle_until()
    }

    /// Returns the data of the shard.
    pub fn finish(mut self) -> ShardReport {
        let (counters, failed) = counters(&mut self.link);
        ShardReport {
            finished: self.generator.finish(),
            ports: self.link.ports(),
            counters,
            connections: self.link.connections(),
            clock_step_ns: self.clock.realtime_offset() - self.realtime_offset,
            carrier: self.link.carrier(),
            error: self.failed.or(failed).map(|e| e.to_string()),
        }
    }
}

/// An authority and its link.
pub struct Serving<L> {
    authority: Authority,
    link: L,
    /// Injected faults.
    faulty: Option<Box<Faulty>>,
    /// Recorder of the running trial.
    recorder: Option<Recorder>,
    /// Consecutive turns without a query.
    idle: u32,
    /// Error of the link; the authority stops serving until it is reported.
    failed: Option<LinkError>,
}

impl<L: Link> Serving<L> {
    /// Creates an authority without queries so far.
    pub fn new(authority: Authority, link: L) -> Self {
        Self {
            authority,
            link,
            faulty: None,
            recorder: None,
            idle: 0,
            failed: None,
        }
    }

    /// Adds injected faults by these rules, if there are any, and allocates the memory for delayed replies.
    #[must_use]
    pub fn with_faults(mut self, rules: Option<Arc<Rules>>) -> Self {
        self.faulty = rules.map(|rules| Box::new(Faulty::new(rules)));
        self
    }

    /// Returns when the next delayed reply is due, if there is one.
    pub fn next_due(&self) -> Option<Nanos> {
        self.faulty.as_ref()?.next_due()
    }

    /// Answers pending queries; sleeps briefly after some idle time.
    pub fn attend(&mut self) {
        self.idle = match self.turn(ANSWER_BATCH) {
            0 => self.idle.saturating_add(1),
            _ => 0,
        };
        if self.idle > IDLE_TURNS {
            let sleep_ns = match &self.faulty {
                None => IDLE_NS,
                Some(faulty) => faulty.sleep_ns(self.link.now(), IDLE_NS),
            };
            if sleep_ns > 0
                && let Err(error) = self.link.wait(sleep_ns)
            {
                self.failed = Some(error);
            }
        }
    }

    /// Answers up to about `max` pending queries and sends the delayed replies that are due; returns the number of
    /// queries. Stores the error of a failed link for the report.
    #[inline]
    fn turn(&mut self, max: usize) -> usize {
        if self.failed.is_some() {
            return 0;
        }
        let (authority, link) = (&mut self.authority, &mut self.link);
        let recorder = self.recorder.as_mut();
        let turned = match &mut self.faulty {
            None => serve::turn(authority, link, max, recorder),
            Some(faulty) => faulty.turn(authority, link, max, recorder),
        };
        turned.unwrap_or_else(|error| {
            self.failed = Some(error);
            0
        })
    }

    /// Starts or stops recording queries in the ledger of a trial. Answers pending queries first, so that a query that
    /// arrived during a trial is in its ledger.
    pub fn record(&mut self, recorder: Option<Recorder>) {
        let _ = (0..DRAIN_TURNS).find(|_| self.turn(ANSWER_BATCH) == 0);
        if let Some(faulty) = &mut self.faulty {
            faulty.forget_marks();
        }
        self.recorder = recorder;
    }

    /// Returns the counters of the authority since its start.
    pub fn counts(&self) -> AuthorityCounts {
        AuthorityCounts {
            misbehaviour: self.faulty.as_ref().map(|faulty| faulty.counts()),
            ..self.authority.counts()
        }
    }

    /// Returns the activity of the authority since its start. An error is reported once; then the link is tried again.
    pub fn report(&mut self) -> AuthorityReport {
        let (counters, failed) = counters(&mut self.link);
        let error = self.failed.take().or(failed);
        AuthorityReport {
            counts: self.counts(),
            receive_drops: counters.receive_drops,
            send_drops: counters.send_drops,
            error: error.map(|e| format!("the authority's {e}")),
            ledger: None,
            allowed_ns: self.faulty.as_ref().map_or(0, |f| f.delay_ns_max()),
            in_driver: false,
            shares: Vec::new(),
        }
    }
}

fn counters<L: Link>(link: &mut L) -> (Counters, Option<LinkError>) {
    match link.counters() {
        Ok(counters) => (counters, None),
        Err(error) => (Counters::default(), Some(error)),
    }
}
