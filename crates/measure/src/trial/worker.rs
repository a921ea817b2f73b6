//! The threads of the Tester. Each is pinned to a core and runs a generator during a trial, and an authority all the
//! time; see [`turns`](super::turns).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

use dns64_transport::cpu;

use super::backend::{AnyLink, BackendClock};
use super::surroundings::{AuthorityReport, ShardReport};
use super::turns::{Sending, Serving};
use crate::authority::ledger::Recorder;

enum WorkerTask {
    Run(Box<Sending<AnyLink, BackendClock>>, Sender<ShardReport>),
    Record(Option<Recorder>),
    Count(Sender<AuthorityReport>),
}

/// A running worker. Dropping it ends the thread.
pub(super) struct Worker {
    commands: Option<Sender<WorkerTask>>,
    thread: Option<JoinHandle<()>>,
    tid: u32,
}

impl Worker {
    /// Starts a thread on `core`, or without an affinity.
    pub(super) fn spawn(
        core: Option<usize>,
        serving: Option<Serving<AnyLink>>,
        interrupted: Arc<AtomicBool>,
    ) -> std::io::Result<Self> {
        let (commands, received) = channel();
        let (pinned, pinning) = channel();
        let thread = Builder::new().name("tester".into()).spawn(move || {
            let pin = core.map_or(Ok(()), cpu::pin);
            let failed = pin.is_err();
            let _ = pinned.send((pin, cpu::thread_id()));
            if !failed {
                cpu::take_precedence();
                run(&received, serving, &interrupted);
            }
        })?;
        let (pinned, tid) = pinning.recv().unwrap_or((Ok(()), 0));
        let worker = Self {
            commands: Some(commands),
            thread: Some(thread),
            tid,
        };
        pinned.map(|()| worker)
    }

    /// Returns the kernel's ID of the thread.
    pub(super) fn tid(&self) -> u32 {
        self.tid
    }

    /// Runs a shard from its start to its end.
    pub(super) fn run(&self, sending: Sending<AnyLink, BackendClock>, report: Sender<ShardReport>) {
        self.command(WorkerTask::Run(Box::new(sending), report));
    }

    /// Starts or stops recording queries to the authority in the ledger of a trial; it takes effect before the next
    /// [`Self::count`] is answered.
    pub(super) fn record(&self, recorder: Option<Recorder>) {
        self.command(WorkerTask::Record(recorder));
    }

    /// Requests the report of the authority; it arrives when no trial runs on the worker.
    pub(super) fn count(&self) -> Receiver<AuthorityReport> {
        let (report, counts) = channel();
        self.command(WorkerTask::Count(report));
        counts
    }

    fn command(&self, command: WorkerTask) {
        if let Some(commands) = &self.commands {
            // A worker ends only after its sender is dropped. If it has panicked, the closed channel informs the
            // receiver of its report.
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

/// Main loop of a worker's thread. A report whose receiver has gone is dropped.
fn run(
    received: &Receiver<WorkerTask>,
    mut serving: Option<Serving<AnyLink>>,
    interrupted: &AtomicBool,
) {
    loop {
        let command = match &serving {
            Some(_) => received.try_recv(),
            None => received.recv().map_err(|_| TryRecvError::Disconnected),
        };
        match command {
            Ok(WorkerTask::Run(sending, report)) => {
                let mut sending = *sending;
                while sending.turn(serving.as_mut(), interrupted).is_continue() {}
                let _ = report.send(sending.finish());
            }
            Ok(WorkerTask::Record(recorder)) => {
                if let Some(serving) = &mut serving {
                    serving.record(recorder);
                }
            }
            Ok(WorkerTask::Count(report)) => {
                let counted = serving.as_mut().map(Serving::report);
                let _ = report.send(counted.unwrap_or_default());
            }
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                if let Some(serving) = &mut serving {
                    serving.attend();
                }
            }
        }
    }
}
