//! Restarts a worker after a panic, with a new engine over the same sockets.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dns64_transport::clock::{Clock, Nanos, SECOND};
use dns64_transport::{LinkError, Relay};

use super::{Stage, Worker, set_servers};
use crate::engine::Engine;
use crate::settings::Settings;

/// Panics within [`WINDOW_NS`] that a worker survives: the number of starts that systemd allows by default
/// (`DefaultStartLimitBurst=`, systemd-system.conf(5)). Beyond it the process ends, and the service manager determines
/// the delay of a restart.
const PANICS_MAX: usize = 5;

/// The time window for counting panics.
const WINDOW_NS: Nanos = 60 * SECOND;

/// Reason why a worker ended unexpectedly.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A socket failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Too many panics.
    #[error("more than {PANICS_MAX} panics in {} s", WINDOW_NS / SECOND)]
    Panics,
}

/// Runs a worker until it has drained. After a panic it continues with a new engine from `renew`: pending queries are
/// lost, but its listening sockets and mailbox and the shared cache remain. Clients over UDP retry, and connections that wait for
/// a response are closed after 20 s.
///
/// # Errors
///
/// A socket that failed, or too many panics.
pub fn run<R: Relay>(
    worker: &mut Worker<R>,
    clock: &impl Clock,
    renew: impl Fn(&Settings) -> Engine,
) -> Result<(), WorkerError> {
    let mut stage = Stage::Serving;
    let mut panics = VecDeque::new();
    loop {
        // The engine, which may be in an inconsistent state, is replaced. The relay and the mailbox keep no state
        // between calls except batches, from which only datagrams can be lost.
        let ended = catch_unwind(AssertUnwindSafe(|| worker.run(&mut stage, clock)));
        if let Ok(ended) = ended {
            return Ok(ended?);
        }
        let now = clock.now();
        worker.engine.counts().worker_panics.tick();
        panics.push_back(now);
        while panics.front().is_some_and(|&at| now - at >= WINDOW_NS) {
            panics.pop_front();
        }
        if panics.len() > PANICS_MAX {
            return Err(WorkerError::Panics);
        }
        tracing::warn!(
            "worker {} restarted; the queries that it held are lost",
            worker.index
        );
        worker.engine = renew(worker.engine.settings());
        set_servers(worker.relay.upstreams(), worker.engine.settings());
        worker.unsent.clear();
    }
}

#[cfg(test)]
mod tests;
