//! The threads of the Tester. Each is tied to a core and turns up to two engines: a generator
//! while a trial runs, an authority all the time.
//!
//! Where Measurer and AuthDNS have to share a core, one thread turns both: two threads would take
//! turns of milliseconds there, and the schedule would break.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

use dns64_transport::clock::{Clock, MonotonicClock, Nanos};
use dns64_transport::socket::UdpLink;
use dns64_transport::{Counters, Link, LinkError, cpu};

use super::summary::ShardReport;
use crate::authority::answer::Authority;
use crate::authority::counts::AuthorityCounts;
use crate::authority::serve;
use crate::load::generator::{Generator, Phase};

/// One shard of a trial, ready to run.
pub(crate) struct Job {
    pub(crate) generator: Generator,
    pub(crate) link: UdpLink,
    pub(crate) report: Sender<ShardReport>,
}

/// What one authority worker has done since it began.
#[derive(Default)]
pub(crate) struct AuthorityReport {
    pub(crate) counts: AuthorityCounts,
    pub(crate) counters: Counters,
    pub(crate) error: Option<LinkError>,
}

enum Command {
    Run(Box<Job>),
    Count(Sender<AuthorityReport>),
}

/// An authority and where it listens.
pub(crate) struct Serving {
    pub(crate) authority: Authority,
    pub(crate) link: UdpLink,
}

/// A running worker. Dropping it ends the thread.
pub(crate) struct Worker {
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread on `core`, or wherever the scheduler puts it.
    pub(crate) fn spawn(
        core: Option<usize>,
        serving: Option<Serving>,
        interrupted: Arc<AtomicBool>,
    ) -> std::io::Result<Self> {
        let (commands, received) = channel();
        let (pinned, pinning) = channel();
        let thread = Builder::new().name("tester".into()).spawn(move || {
            let pin = core.map_or(Ok(()), cpu::pin);
            let failed = pin.is_err();
            let _ = pinned.send(pin);
            if !failed {
                cpu::take_precedence();
                Loop {
                    received,
                    serving,
                    interrupted,
                    served: None,
                }
                .run();
            }
        })?;
        let pinned = pinning.recv().unwrap_or(Ok(()));
        let worker = Self {
            commands: Some(commands),
            thread: Some(thread),
        };
        pinned.map(|()| worker)
    }

    pub(crate) fn run(&self, job: Job) {
        self.command(Command::Run(Box::new(job)));
    }

    /// Asks what the authority has counted; the answer comes when no trial runs on the worker.
    pub(crate) fn count(&self) -> Receiver<AuthorityReport> {
        let (report, counts) = channel();
        self.command(Command::Count(report));
        counts
    }

    fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // A worker ends only after its sender is dropped; if it has panicked, whoever waits
            // for its report is told by the closed channel.
            let _ = commands.send(command);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of a worker's thread.
struct Loop {
    received: Receiver<Command>,
    serving: Option<Serving>,
    interrupted: Arc<AtomicBool>,
    /// The authority's link failed with this; it serves no more.
    served: Option<LinkError>,
}

/// Datagrams that an authority answers in one turn of its own thread.
const ANSWER_BATCH: usize = 64;

/// Turns without a query before an authority sleeps: some 20 us of looking, so that a steady load
/// never pays for waking it.
const IDLE_TURNS: u32 = 100;

/// An idle authority looks for commands this often.
const IDLE_NS: Nanos = 1_000_000;

/// What taking in and answering one query costs at most, to fit a turn of the authority before
/// the next due time of the generator beside it: 2.4 us are what an echo over IPv6 takes.
const ANSWER_COST_NS: Nanos = 2_500;

/// Before a due time that is closer than this, the authority waits,
const ANSWER_TURN_NS: Nanos = 4_000;

/// but not longer than this many turns, which at a high rate all send something,
const PASSED_OVER_MAX: u32 = 4;

/// and then it answers at least this many: a DUT sends two queries for each of ours.
const ANSWER_LEAST: usize = 8;

impl Loop {
    fn run(mut self) {
        let mut idle = 0;
        loop {
            let command = if self.serving.is_some() {
                self.received.try_recv()
            } else {
                self.received.recv().map_err(|_| TryRecvError::Disconnected)
            };
            match command {
                Ok(Command::Run(job)) => self.trial(*job),
                Ok(Command::Count(report)) => {
                    let _ = report.send(self.report());
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) if self.serve(ANSWER_BATCH) > 0 => idle = 0,
                Err(TryRecvError::Empty) => idle += 1,
            }
            if idle > IDLE_TURNS
                && let Some(serving) = &mut self.serving
                && let Err(error) = serving.link.wait(IDLE_NS)
            {
                self.served = Some(error);
            }
        }
    }

    /// Answers what waits; a failing link is put aside and reported.
    fn serve(&mut self, max: usize) -> usize {
        let Some(serving) = &mut self.serving else {
            return 0;
        };
        if self.served.is_some() {
            return 0;
        }
        match serve::turn(&mut serving.authority, &mut serving.link, max) {
            Ok(taken) => taken,
            Err(error) => {
                self.served = Some(error);
                0
            }
        }
    }

    fn report(&mut self) -> AuthorityReport {
        let Some(serving) = &mut self.serving else {
            return AuthorityReport::default();
        };
        let (counters, failed) = match serving.link.counters() {
            Ok(counters) => (counters, None),
            Err(error) => (Counters::default(), Some(error)),
        };
        let counts = serving.authority.counts();
        AuthorityReport {
            counts,
            counters,
            error: self.served.take().or(failed),
        }
    }

    /// Runs one shard to its end, and serves between its turns.
    fn trial(&mut self, job: Job) {
        let Job {
            mut generator,
            mut link,
            report,
        } = job;
        let clock = MonotonicClock;
        let offset = MonotonicClock.realtime_offset();
        let mut passed_over = 0;
        let error = loop {
            match generator.turn(&mut link, &clock) {
                Ok(Phase::Running) => {}
                Ok(Phase::Done) => break None,
                Err(error) => break Some(error),
            }
            if self.serving.is_some() {
                passed_over += 1;
                let slack_ns = generator.slack_ns(clock.now());
                if slack_ns >= ANSWER_TURN_NS || passed_over == PASSED_OVER_MAX {
                    let fits = usize::try_from(slack_ns / ANSWER_COST_NS).unwrap_or(ANSWER_BATCH);
                    self.serve(fits.clamp(ANSWER_LEAST, ANSWER_BATCH));
                    passed_over = 0;
                }
            }
            if self.interrupted.load(Ordering::Relaxed) {
                generator.stop();
                break None;
            }
        };
        let (counters, failed) = match link.counters() {
            Ok(counters) => (counters, None),
            Err(error) => (Counters::default(), Some(error)),
        };
        let clock_step_ns = MonotonicClock.realtime_offset() - offset;
        let backend = link.backend();
        let error = error.or(failed).map(|e| e.to_string());
        // Whoever asked may have given up; then nobody needs the report.
        let _ = report.send(ShardReport {
            finished: generator.finish(),
            counters,
            clock_step_ns,
            backend,
            error,
        });
    }
}
