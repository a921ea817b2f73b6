//! The output of the engine: responses and queries to send, in this order.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use dns64_transport::Origin;
use dns64_transport::clock::Nanos;

use crate::cache::Outcome;
use crate::counts::Servfail;
use crate::health::Turn;

/// The destination of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The sender of a datagram.
    Udp(Origin),
    /// A client behind a proxy, over UDP.
    Proxied {
        /// The proxy, which gets the response.
        origin: Origin,
        /// The client.
        address: SocketAddr,
    },
    /// A TCP connection.
    Tcp {
        /// As in [`crate::mailbox::ToWorker::Query`].
        connection: u64,
        /// The other end.
        address: SocketAddr,
        /// Whether it is encrypted.
        tls: bool,
    },
}

impl Client {
    /// The client's address.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Udp(origin) => origin.peer(),
            Self::Proxied { address, .. } | Self::Tcp { address, .. } => *address,
        }
    }
}

/// An action. Messages are ranges of [`Actions::message`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a response.
    Reply {
        /// The client.
        to: Client,
        /// The message.
        message: Range<usize>,
        /// Time for which the client has waited.
        took_ns: Nanos,
    },
    /// Send a query over UDP.
    Ask {
        /// Number of the upstream.
        server: usize,
        /// Index of the local port.
        port: usize,
        /// The message.
        message: Range<usize>,
    },
    /// Send a query over TCP or TLS.
    AskConnection {
        /// Number of the upstream.
        server: usize,
        /// Identifies the response.
        exchange: u64,
        /// Whether the connection must be encrypted.
        tls: bool,
        /// The message.
        message: Range<usize>,
    },
    /// Close a local port if it is open; the next query from it opens another one.
    ClosePort {
        /// Number of the upstream.
        server: usize,
        /// Number of the port.
        port: usize,
    },
    /// Send the outcome of a query to another worker that waits for it. Best effort: a worker that
    /// does not get it sends a query when the claim expires.
    Tell {
        /// Number of the worker.
        worker: usize,
        /// The question, and its response if there is one.
        outcome: Arc<Outcome>,
    },
    /// Log that a client gets SERVFAIL, if configured.
    Servfail {
        /// The client.
        client: SocketAddr,
        /// The reason.
        why: Servfail,
        /// The response.
        message: Range<usize>,
    },
    /// Log a change of an upstream.
    Turn {
        /// Number of the upstream.
        server: usize,
        /// The change.
        turn: Turn,
    },
}

/// A list of actions and their messages; reused, so that nothing is allocated once it has grown.
#[derive(Debug, Default)]
pub struct Actions {
    list: Vec<Action>,
    messages: Vec<u8>,
}

impl Actions {
    /// Removes all actions.
    pub fn clear(&mut self) {
        self.list.clear();
        self.messages.clear();
    }

    /// The actions so far.
    pub fn list(&self) -> &[Action] {
        &self.list
    }

    /// The message of an action.
    pub fn message(&self, range: &Range<usize>) -> &[u8] {
        &self.messages[range.clone()]
    }

    /// Length of all messages in octets.
    pub(super) fn octets(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn reply(&mut self, to: Client, message: &[u8], took_ns: Nanos) {
        let message = self.keep(message);
        self.list.push(Action::Reply {
            to,
            message,
            took_ns,
        });
    }

    pub(super) fn ask(&mut self, server: usize, port: usize, message: &[u8]) {
        let message = self.keep(message);
        self.list.push(Action::Ask {
            server,
            port,
            message,
        });
    }

    pub(super) fn ask_connection(
        &mut self,
        server: usize,
        exchange: u64,
        tls: bool,
        message: &[u8],
    ) {
        let message = self.keep(message);
        self.list.push(Action::AskConnection {
            server,
            exchange,
            tls,
            message,
        });
    }

    pub(super) fn close_port(&mut self, server: usize, port: usize) {
        self.list.push(Action::ClosePort { server, port });
    }

    pub(super) fn tell(&mut self, worker: usize, outcome: Arc<Outcome>) {
        self.list.push(Action::Tell { worker, outcome });
    }

    pub(super) fn servfail(&mut self, client: SocketAddr, why: Servfail, message: &[u8]) {
        let message = self.keep(message);
        self.list.push(Action::Servfail {
            client,
            why,
            message,
        });
    }

    /// Logs a change of an upstream, if there is one.
    pub(super) fn turn(&mut self, server: usize, turn: Option<Turn>) {
        let turn = turn.map(|turn| Action::Turn { server, turn });
        self.list.extend(turn);
    }

    fn keep(&mut self, message: &[u8]) -> Range<usize> {
        let start = self.messages.len();
        self.messages.extend_from_slice(message);
        start..self.messages.len()
    }
}
