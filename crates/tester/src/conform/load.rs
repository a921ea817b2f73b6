//! A load beside the cases: trials with names of the same zone, one after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use dns64_transport::Backend;
use dns64_transport::clock::{Clock as _, MonotonicClock, SECOND};
use dns64_transport::random;
use dns64_wire::pref64::Pref64;

use super::Subject;
use super::authority::zone;
use super::report::Sent;
use crate::lab::Blame;
use crate::load::names::{Begin, NameSource};
use crate::load::transport::Protocol;
use crate::namespace::Prefixes;
use crate::rig::RigError;
use crate::rig::equipment::Client as _;
use crate::rig::spec;
use crate::rig::tester::Instruments;
use crate::trial::Measurer;
use crate::trial::surroundings::Surroundings;

/// A Measurer that sends at one rate until it is dropped.
#[derive(Debug)]
pub(super) struct Background {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Sent, RigError>>>,
}

/// Duration of a trial in seconds. Between two of them there is a moment without load.
const TRIAL_S: u64 = 20;

/// What the thread of a load has.
struct Sender {
    tester: Instruments,
    trials: spec::Load,
    names: NameSource,
    server: SocketAddr,
    pref64: Pref64,
    rate_qps: u64,
}

impl Background {
    /// Begins to send AAAA queries, each for another name, without AAAA records, of the zone that the authority of the
    /// cases serves.
    ///
    /// # Errors
    ///
    /// The sockets cannot be opened.
    pub(super) fn start(
        subject: &Subject,
        pref64: Pref64,
        rate_qps: u64,
    ) -> Result<Self, RigError> {
        let trials = spec::Load {
            duration_ns: TRIAL_S * SECOND,
            zone: zone(&subject.suffix),
            begin: Begin {
                at: random::from_system().unwrap_or_default(),
                used: 0,
            },
            ..spec::Load::default()
        };
        let measurer = Measurer {
            network: subject.network.clone(),
            threads: 1,
            backend: Backend::Socket,
            ..Measurer::none()
        };
        let over = Arc::new(AtomicBool::new(false));
        let server = subject.server;
        let from = (server, Protocol::Udp);
        let sender = Sender {
            tester: Instruments::here(measurer, from, trials.zone.clone(), &over)?,
            names: trials.names()?,
            trials,
            server,
            pref64,
            rate_qps,
        };
        let thread = {
            let over = Arc::clone(&over);
            std::thread::spawn(move || sender.send(&over))
        };
        Ok(Self {
            over,
            thread: Some(thread),
        })
    }

    /// Whether it has ended, by a fault.
    pub(super) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it. Returns what was sent.
    ///
    /// # Errors
    ///
    /// A fault of the Tester ended it earlier.
    pub(super) fn end(mut self) -> Result<Sent, RigError> {
        let lost = || Blame::Machine.error("the thread of the load has panicked");
        self.joined().ok_or_else(lost)?
    }

    fn joined(&mut self) -> Option<Result<Sent, RigError>> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Whoever wants to know its errors has called `end`.
        let _ = self.joined();
    }
}

/// Refuses a rate that this machine has too little memory for.
///
/// # Errors
///
/// How much is missing.
pub fn check(rate_qps: u64) -> Result<(), RigError> {
    let trials = spec::Load {
        duration_ns: TRIAL_S * SECOND,
        ..spec::Load::default()
    };
    let schedule = trials.schedule(rate_qps);
    let names = trials.names()?.take(schedule.queries(), None)?;
    let anybody = SocketAddr::from(([0, 0, 0, 0], 0));
    Ok(trials.trial(anybody, schedule, names).check()?)
}

impl Sender {
    fn send(mut self, over: &AtomicBool) -> Result<Sent, RigError> {
        let begin = MonotonicClock.now();
        let (mut sent, mut decided, mut valid) = (0_u64, 0_u64, 0_u64);
        while !over.load(Ordering::Relaxed) {
            let schedule = self.trials.schedule(self.rate_qps);
            let queries = schedule.queries();
            let pref64: Option<Prefixes> = Some(self.pref64.into());
            let names = self.names.take(queries, pref64.clone()).or_else(|_| {
                // All were asked: those of the beginning may still be in a cache.
                self.names.start_over();
                self.names.take(queries, pref64)
            })?;
            let trial = self.trials.trial(self.server, schedule, names);
            let result = self.tester.trial(&trial, Surroundings::default)?;
            sent += result.queries_sent;
            decided += result.queries_sent - result.undecided;
            valid += result.answers.valid;
        }
        let span_ms = (MonotonicClock.now() - begin) / (SECOND / 1000);
        Ok(Sent {
            rate_qps: self.rate_qps,
            sent_qps: sent * 1000 / span_ms.max(1),
            answered_pct: valid as f64 * 100.0 / decided.max(1) as f64,
        })
    }
}
