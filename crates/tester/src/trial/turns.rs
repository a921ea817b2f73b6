//! The loop of the Tester, turn by turn: a generator while a trial runs, an authority all the time.
//!
//! Where Measurer and AuthDNS have to share a core, one thread turns both: two threads would take
//! turns of milliseconds there, and the schedule would break. Here is decided whose turn it is. A
//! thread (`worker`) turns without pause; a simulation turns as its clock goes.

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

/// What taking in and answering one query costs at most, to fit a turn of the authority before
/// the next due time of the generator beside it: 2.4 us are what an echo over IPv6 takes.
const ANSWER_COST_NS: Nanos = 2_500;

/// Before a due time that is closer than this, the authority waits,
const ANSWER_TURN_NS: Nanos = 4_000;

/// but not longer than this many turns, which at a high rate all send something,
const PASSED_OVER_MAX: u32 = 4;

/// and then it answers at least this many: a DUT sends two queries for each of ours.
const ANSWER_LEAST: usize = 8;

/// Queries that an authority answers at most in one turn.
const ANSWER_BATCH: usize = 64;

/// Turns within which an authority is through with what its socket can hold: 8,000 datagrams (see
/// `transport::socket`) in batches of 16.
const DRAIN_TURNS: u32 = 1_000;

/// Turns without a query before an authority sleeps: some 20 us of looking, so that a steady load
/// never pays for waking it.
const IDLE_TURNS: u32 = 100;

/// An idle authority sleeps no longer than this.
const IDLE_NS: Nanos = 1_000_000;

/// A shard of a trial under way: a generator, the link that it sends over, and their clock.
pub struct Sending<L, C> {
    generator: Generator,
    link: L,
    clock: C,
    realtime_offset: i64,
    /// Turns since the authority beside it had its own.
    passed_over: u32,
    failed: Option<LinkError>,
}

impl<L: Link, C: Clock> Sending<L, C> {
    /// Takes some time to touch the memory of `ledger`, which is used again: before
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

    /// Sets the moment at which the schedule begins.
    pub fn begin(&mut self, start: Nanos) {
        self.realtime_offset = self.clock.realtime_offset();
        self.generator.begin(start);
    }

    /// One turn of the generator, and one of the authority beside it if there is time before the
    /// next due time, or has not been for long. Breaks off when everything is decided, when the link
    /// has failed, or when `interrupted` is true.
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

    /// Until when no turn is needed, unless a datagram arrives; see [`Generator::idle_until`].
    pub fn idle_until(&self) -> Nanos {
        self.generator.idle_until()
    }

    /// What came of it.
    pub fn finish(mut self) -> ShardReport {
        let (counters, failed) = counters(&mut self.link);
        ShardReport {
            finished: self.generator.finish(),
            counters,
            clock_step_ns: self.clock.realtime_offset() - self.realtime_offset,
            backend: self.link.backend().to_owned(),
            error: self.failed.or(failed).map(|e| e.to_string()),
        }
    }
}

/// An authority and the link at which it listens.
pub struct Serving<L> {
    authority: Authority,
    link: L,
    /// What it does wrong on purpose.
    faulty: Option<Box<Faulty>>,
    /// Of the trial under way.
    recorder: Option<Recorder>,
    /// Turns in a row without a query.
    idle: u32,
    /// The link failed with this; the authority serves no more until that is reported.
    failed: Option<LinkError>,
}

impl<L: Link> Serving<L> {
    /// An authority that has not been asked yet.
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

    /// The same, misbehaving by these rules if there are any. Takes the memory for its replies.
    #[must_use]
    pub fn with_faults(mut self, rules: Option<Arc<Rules>>) -> Self {
        self.faulty = rules.map(|rules| Box::new(Faulty::new(rules)));
        self
    }

    /// When a reply that is held back leaves, if there is one.
    pub fn next_due(&self) -> Option<Nanos> {
        self.faulty.as_ref()?.next_due()
    }

    /// Answers what waits; sleeps for a moment if nothing has for some time.
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

    /// Answers up to about `max` queries that wait, and sends what was held back and is due; returns how
    /// many there were. A failing link is put aside and reported.
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

    /// Notes questions in the ledger of a trial from now on, or no longer. Answers before what waits, so
    /// that a question which came during a trial is in its ledger.
    pub fn record(&mut self, recorder: Option<Recorder>) {
        let _ = (0..DRAIN_TURNS).find(|_| self.turn(ANSWER_BATCH) == 0);
        if let Some(faulty) = &mut self.faulty {
            faulty.forget_marks();
        }
        self.recorder = recorder;
    }

    /// What the authority has counted since it began.
    pub fn counts(&self) -> AuthorityCounts {
        AuthorityCounts {
            misbehaviour: self.faulty.as_ref().map(|faulty| faulty.counts()),
            ..self.authority.counts()
        }
    }

    /// What the authority has done since it began. An error is reported once; then the link is tried
    /// again.
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
