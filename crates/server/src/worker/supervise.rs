//! What follows the panic of a worker: a new engine over the same sockets.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dns64_transport::clock::{Clock, Nanos, SECOND};
use dns64_transport::{LinkError, Relay};

use super::{Stage, Worker};
use crate::engine::Engine;
use crate::settings::Settings;

/// Panics within [`WINDOW_NS`] that a worker survives, as many as systemd allows starts by default
/// (`DefaultStartLimitBurst=`, systemd-system.conf(5)). Beyond them the process ends, and whoever starts
/// it again chooses the delay.
const PANICS_MAX: usize = 5;

/// The span over which panics are counted.
const WINDOW_NS: Nanos = 60 * SECOND;

/// Why a worker ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A socket.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// It panicked too often.
    #[error("more than {PANICS_MAX} panics in {} s", WINDOW_NS / SECOND)]
    Panics,
}

/// Turns a worker until it has drained. After a panic it goes on with what `renew` makes: the queries
/// that waited are lost, its sockets and mailbox and the shared cache stay. Clients over UDP ask again, and
/// connections that wait for an answer are closed after 20 s.
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
        // The engine, which may be left half changed, is replaced. The relay and the mailbox have no
        // state that spans calls but batches, from which at most datagrams are lost.
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
        worker.unsent.clear();
    }
}

#[cfg(test)]
mod tests;
