//! The connection of one client: runs a [`Dialogue`] over its socket.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos};
use tokio::sync::mpsc;

use super::Shared;
use super::dialogue::{Closed, Dialogue};
use super::stream::Stream;
use crate::framed::Framed;
use crate::mailbox::{ToWorker, WorkerHandle};

/// Interval between two attempts to pass a query to a worker with a full mailbox.
const HELD: Duration = Duration::from_millis(10);

/// A connection.
pub(super) struct Client {
    /// Its number, which selects its worker.
    pub number: u64,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Responses, framed. The other end is dropped when the connection is evicted.
    pub answers: mpsc::Receiver<Framed>,
    /// State that all connections share.
    pub shared: Rc<Shared>,
}

impl Client {
    /// Serves the connection until it ends.
    pub(super) async fn serve(self, mut stream: Stream) -> Closed {
        let reason = self.converse(&mut stream).await;
        stream.close();
        match reason {
            Closed::Client | Closed::Idle if stream.is_handshaking() => Closed::Tls,
            reason => reason,
        }
    }

    async fn converse(mut self, stream: &mut Stream) -> Closed {
        let mut mode = self.shared.mode.clone();
        let limits = mode.borrow().in_force.settings.tcp;
        let mut dialogue = Dialogue::new(limits, MonotonicClock.now());
        let mut sequence = 0;
        loop {
            if mode.borrow().draining {
                dialogue.drain();
            }
            let held = match self.hand_over(&mut dialogue, &mut sequence) {
                Ok(held) => held,
                Err(reason) => return reason,
            };
            let now = MonotonicClock.now();
            if let Some(reason) = dialogue.over(now) {
                return reason;
            }
            self.shared.stand(self.number, dialogue.standing());
            let until = Duration::from_nanos(dialogue.deadline().0 - now);
            let moved = tokio::select! {
                answer = self.answers.recv() => match answer {
                    Some(framed) => {
                        dialogue.answered(framed, MonotonicClock.now());
                        Ok(())
                    }
                    None => return Closed::Full,
                },
                ready = stream.readable(), if !held && dialogue.wants_queries() => {
                    ready.and_then(|()| read(stream, &mut dialogue))
                }
                ready = stream.writable(), if stream.wants_write(dialogue.unsent().is_some()) => {
                    ready.and_then(|()| write(stream, &mut dialogue, MonotonicClock.now()))
                }
                // An error means that the gateway ends: then the other branches end this loop.
                Ok(()) = mode.changed() => Ok(()),
                () = tokio::time::sleep(if held { until.min(HELD) } else { until }) => Ok(()),
            };
            if moved.is_err() {
                return Closed::Client;
            }
        }
    }

    /// Passes all permitted queries to the worker. Returns whether a query remains because the
    /// worker's mailbox is full.
    fn hand_over(&self, dialogue: &mut Dialogue, sequence: &mut u16) -> Result<bool, Closed> {
        while let Some(message) = dialogue.query()? {
            let query = ToWorker::Query {
                connection: self.number << u16::BITS | u64::from(*sequence),
                client: self.peer,
                tls: self.tls,
                message: message.to_vec(),
            };
            let len = message.len();
            if self.worker().send(query).is_err() {
                self.shared.counts.held.tick();
                return Ok(true);
            }
            *sequence = sequence.wrapping_add(1);
            dialogue.taken(len, MonotonicClock.now());
        }
        Ok(false)
    }

    fn worker(&self) -> &WorkerHandle {
        let workers = &self.shared.workers;
        // The remainder is below the length of a slice.
        &workers[usize::try_from(self.number).unwrap_or(0) % workers.len()]
    }
}

fn read(stream: &mut Stream, dialogue: &mut Dialogue) -> io::Result<()> {
    if !stream.read(dialogue.inbox())? {
        dialogue.end();
    }
    Ok(())
}

fn write(stream: &mut Stream, dialogue: &mut Dialogue, now: Nanos) -> io::Result<()> {
    loop {
        match stream.write(dialogue.unsent().unwrap_or_default()) {
            Ok(len) => dialogue.sent(len, now),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        if dialogue.unsent().is_none() {
            return Ok(());
        }
    }
}
