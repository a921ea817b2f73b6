//! Messages between workers and the rest of the server: connections, control, reload, and outcomes
//! of upstream queries that another worker sent. Other UDP queries need none of them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::cache::Outcome;
use crate::framed::{Framed, Held};
use crate::health::InForce;

/// A message to a worker.
#[derive(Debug)]
pub enum ToWorker {
    /// A query from a connection.
    Query {
        /// The connection and the query's number on it: returned with the response.
        connection: u64,
        /// The client.
        client: SocketAddr,
        /// Whether the connection is encrypted.
        tls: bool,
        /// The message, without its length prefix.
        message: Vec<u8>,
    },
    /// The outcome of an upstream query over a connection.
    Answer {
        /// As in [`ToGateway::Ask`].
        exchange: u64,
        /// The message, without its length prefix; or an error.
        message: Result<Vec<u8>, ConnectionFailed>,
    },
    /// The outcome of an upstream query that another worker sent.
    Outcome(Arc<Outcome>),
    /// New settings take effect.
    Reload(InForce),
    /// List up to this number of questions in flight, a line each.
    List(usize, SyncSender<Vec<String>>),
    /// Accept no more queries, finish the queries in flight within their time limit, and end.
    Drain,
}

/// A query over a connection to an upstream has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionFailed {
    /// No response in time, or no connection.
    Unanswered,
    /// No TLS session with the upstream.
    Tls,
}

/// A message from a worker to the gateway, which owns the connections.
#[derive(Debug)]
pub enum ToGateway {
    /// The response to [`ToWorker::Query`].
    Reply {
        /// As in the query.
        connection: u64,
        /// The response.
        answer: Framed,
    },
    /// A query to an upstream over a connection.
    Ask {
        /// Index of the sending worker.
        worker: usize,
        /// Returned with the response.
        exchange: u64,
        /// The upstream.
        server: SocketAddr,
        /// Whether the connection must be encrypted.
        tls: bool,
        /// Timeout in nanoseconds.
        timeout_ns: u64,
        /// The message, without its length prefix.
        message: Vec<u8>,
    },
}

/// Capacity of a worker's mailbox: messages of several turns. Further queries wait in their
/// connections.
const WORKER_MAILBOX_MAX: usize = 1024;

/// Capacity of the gateway's mailbox: more than twice the responses that 256 connections with 100
/// queries each, the defaults, can wait for. Memory is allocated on demand.
const GATEWAY_MAILBOX_MAX: usize = 65_536;

/// Sends messages to a worker. Never blocks.
#[derive(Clone)]
pub struct WorkerHandle {
    sender: SyncSender<ToWorker>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// The mailbox of a worker is full, or the worker has ended. Contains the message.
#[derive(Debug, thiserror::Error)]
#[error("the mailbox of a worker is full at {WORKER_MAILBOX_MAX} messages")]
pub struct Full(pub ToWorker);

impl WorkerHandle {
    /// Creates a mailbox and a handle to it; `wake` wakes the worker that reads it.
    pub fn new(wake: Arc<dyn Fn() + Send + Sync>) -> (Self, Receiver<ToWorker>) {
        let (sender, receiver) = sync_channel(WORKER_MAILBOX_MAX);
        (Self { sender, wake }, receiver)
    }

    /// Puts a message into the mailbox and wakes the worker.
    ///
    /// # Errors
    ///
    /// The mailbox is full: returns the message.
    pub fn send(&self, message: ToWorker) -> Result<(), Full> {
        let sent = self.sender.try_send(message);
        // A worker with a full mailbox must wake up too.
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

/// Sends messages to the gateway, which ends when all handles are dropped. Never blocks.
#[derive(Clone, Debug)]
pub struct GatewayHandle {
    sender: tokio::sync::mpsc::Sender<ToGateway>,
    held: Held,
}

/// The receiving end of [`GatewayHandle`]s.
pub type GatewayMailbox = tokio::sync::mpsc::Receiver<ToGateway>;

impl GatewayHandle {
    /// Creates a mailbox and a handle to it.
    pub fn new() -> (Self, GatewayMailbox) {
        let (sender, receiver) = tokio::sync::mpsc::channel(GATEWAY_MAILBOX_MAX);
        let held = Held::default();
        (Self { sender, held }, receiver)
    }

    /// Sends a response to a connection; empty for no response. `false`: clients have left too many
    /// responses unread, and the connection gets none.
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
