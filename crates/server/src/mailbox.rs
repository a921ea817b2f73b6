//! What workers and the rest of the server say to each other: connections, control, reload, and
//! answers to questions that another worker asked. Off the way of any other UDP query.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::cache::Outcome;
use crate::framed::{Framed, Held};
use crate::health::InForce;

/// To a worker.
#[derive(Debug)]
pub enum ToWorker {
    /// A query came over a connection.
    Query {
        /// The connection, and which of its queries this is: given back with the answer.
        connection: u64,
        /// Who asks.
        client: SocketAddr,
        /// The message, without its length.
        message: Vec<u8>,
    },
    /// What became of a question that was to be asked over a connection.
    Answer {
        /// As in [`ToGateway::Ask`].
        exchange: u64,
        /// The message, without its length; or that there is none.
        message: Result<Vec<u8>, ConnectionFailed>,
    },
    /// What became of a question that another worker asked.
    Outcome(Arc<Outcome>),
    /// New settings are in force.
    Reload(InForce),
    /// Take no more queries, finish what is under way within the time it has, and end.
    Drain,
}

/// A connection to an upstream was not established in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFailed;

/// From a worker to the gateway that holds the connections.
#[derive(Debug)]
pub enum ToGateway {
    /// What becomes of [`ToWorker::Query`].
    Reply {
        /// As in the query.
        connection: u64,
        /// The answer.
        answer: Framed,
    },
    /// Ask an upstream over a connection.
    Ask {
        /// Number of the worker that asks.
        worker: usize,
        /// Given back with the answer.
        exchange: u64,
        /// Whom to ask.
        server: SocketAddr,
        /// How long it may take, in nanoseconds.
        timeout_ns: u64,
        /// The message, without its length.
        message: Vec<u8>,
    },
}

/// Messages that a worker's mailbox holds: several turns' worth. Queries beyond it wait in their
/// connections.
const WORKER_MAILBOX_MAX: usize = 1024;

/// Messages that the gateway's mailbox holds: more than twice the answers that 256 connections with
/// 100 queries each, the defaults, can wait for. Room is taken as it is needed.
const GATEWAY_MAILBOX_MAX: usize = 65_536;

/// The way to a worker. Never blocks.
#[derive(Clone)]
pub struct WorkerHandle {
    sender: SyncSender<ToWorker>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// The mailbox of a worker is full, or the worker has ended: the message comes back.
#[derive(Debug, thiserror::Error)]
#[error("the mailbox of a worker is full at {WORKER_MAILBOX_MAX} messages")]
pub struct Full(pub ToWorker);

impl WorkerHandle {
    /// A mailbox and the way to it; `wake` ends the sleep of the worker that reads it.
    pub fn new(wake: Arc<dyn Fn() + Send + Sync>) -> (Self, Receiver<ToWorker>) {
        let (sender, receiver) = sync_channel(WORKER_MAILBOX_MAX);
        (Self { sender, wake }, receiver)
    }

    /// Puts a message into the mailbox and wakes the worker.
    ///
    /// # Errors
    ///
    /// The message, if there is no room for it.
    pub fn send(&self, message: ToWorker) -> Result<(), Full> {
        let sent = self.sender.try_send(message);
        // A worker whose mailbox is full has to wake up as well.
        (self.wake)();
        sent.map_err(|error| match error {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => Full(message),
        })
    }
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerHandle").finish_non_exhaustive()
    }
}

/// The way to the gateway. Never blocks. When all of them are gone the gateway ends.
#[derive(Clone, Debug)]
pub struct GatewayHandle {
    sender: tokio::sync::mpsc::Sender<ToGateway>,
    held: Held,
}

/// Where the gateway reads what [`GatewayHandle`]s send.
pub type GatewayMailbox = tokio::sync::mpsc::Receiver<ToGateway>;

impl GatewayHandle {
    /// A mailbox and the way to it.
    pub fn new() -> (Self, GatewayMailbox) {
        let (sender, receiver) = tokio::sync::mpsc::channel(GATEWAY_MAILBOX_MAX);
        let held = Held::default();
        (Self { sender, held }, receiver)
    }

    /// Gives an answer to a connection; empty: there is none. `false`: clients have not read too
    /// much already, and the connection gets none.
    pub fn reply(&self, connection: u64, message: &[u8]) -> bool {
        let framed = self.held.frame(message);
        let taken = framed.is_some();
        let Some(answer) = framed.or_else(|| self.held.frame(&[])) else {
            return false;
        };
        self.send(ToGateway::Reply { connection, answer }) && taken
    }

    /// Puts a message into the mailbox; `false`: it is full, and the message is lost.
    pub fn send(&self, message: ToGateway) -> bool {
        self.sender.try_send(message).is_ok()
    }
}
