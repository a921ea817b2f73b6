//! What workers and the rest of the server say to each other: connections, control, reload. Off
//! the way of a UDP query.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::settings::Settings;

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
    /// New settings are in force.
    Reload(Arc<Settings>),
    /// Forget what is cached: everything, or what stands at this name and below it (lower case,
    /// uncompressed). The number of entries is sent back.
    Flush {
        /// The name; `None`: all.
        below: Option<Vec<u8>>,
        /// Where the number goes.
        done: Sender<usize>,
    },
    /// Take no more queries, finish what is under way within the time it has, and end.
    Drain,
}

/// A connection to an upstream came to nothing in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFailed;

/// From a worker to the gateway that holds the connections.
#[derive(Debug)]
pub enum ToGateway {
    /// The answer to [`ToWorker::Query`]; empty: there will be none.
    Reply {
        /// As in the query.
        connection: u64,
        /// The message, without its length.
        message: Vec<u8>,
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
