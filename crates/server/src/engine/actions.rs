//! What the engine wants done: answers and questions to send, in the order that it said them.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use dns64_transport::Origin;
use dns64_transport::clock::Nanos;

use crate::cache::Outcome;
use crate::counts::Servfail;

/// Where an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// To whoever sent a datagram.
    Udp(Origin),
    /// To a connection.
    Tcp {
        /// As in [`crate::mailbox::ToWorker::Query`].
        connection: u64,
        /// The other end.
        address: SocketAddr,
    },
}

impl Client {
    /// The client's address.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Udp(origin) => origin.peer(),
            Self::Tcp { address, .. } => *address,
        }
    }
}

/// One thing to do. Messages are ranges of [`Actions::message`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send an answer.
    Reply {
        /// To whom.
        to: Client,
        /// The message.
        message: Range<usize>,
        /// How long the client has waited for it.
        took_ns: Nanos,
    },
    /// Send a question in a datagram.
    Ask {
        /// Number of the upstream.
        server: usize,
        /// Local port that it leaves from.
        port: usize,
        /// The message.
        message: Range<usize>,
    },
    /// Send a question over a connection.
    AskConnection {
        /// Number of the upstream.
        server: usize,
        /// Given back with the answer.
        exchange: u64,
        /// The message.
        message: Range<usize>,
    },
    /// Open another local port in place of this one.
    Renew {
        /// Number of the upstream.
        server: usize,
        /// Number of the port.
        port: usize,
    },
    /// Tell another worker what became of a question that it waits for. Best effort: a worker that is not
    /// told asks when the claim expires.
    Tell {
        /// Number of the worker.
        worker: usize,
        /// The question and its answer, if there is one.
        outcome: Arc<Outcome>,
    },
    /// Tell the operator, who wants to know, that a client gets SERVFAIL.
    Servfail {
        /// The client.
        client: SocketAddr,
        /// Why.
        why: Servfail,
        /// The answer.
        message: Range<usize>,
    },
    /// Tell the operator that an upstream is down.
    Down {
        /// Number of the upstream.
        server: usize,
        /// How often it has not answered, in a row.
        timeouts: u32,
    },
    /// Tell the operator that an upstream is up again.
    Up {
        /// Number of the upstream.
        server: usize,
        /// How long it was down.
        after_ns: Nanos,
    },
}

/// A list of actions and the messages that they speak of; reused, so that nothing is allocated
/// once it has grown.
#[derive(Debug, Default)]
pub struct Actions {
    list: Vec<Action>,
    messages: Vec<u8>,
}

impl Actions {
    /// Forgets all actions.
    pub fn clear(&mut self) {
        self.list.clear();
        self.messages.clear();
    }

    /// The actions so far.
    pub fn list(&self) -> &[Action] {
        &self.list
    }

    /// A message of one of them.
    pub fn message(&self, range: &Range<usize>) -> &[u8] {
        &self.messages[range.clone()]
    }

    /// Octets of all messages so far.
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

    pub(super) fn ask_connection(&mut self, server: usize, exchange: u64, message: &[u8]) {
        let message = self.keep(message);
        self.list.push(Action::AskConnection {
            server,
            exchange,
            message,
        });
    }

    pub(super) fn renew(&mut self, server: usize, port: usize) {
        self.list.push(Action::Renew { server, port });
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

    pub(super) fn down(&mut self, server: usize, timeouts: u32) {
        self.list.push(Action::Down { server, timeouts });
    }

    pub(super) fn up(&mut self, server: usize, after_ns: Nanos) {
        self.list.push(Action::Up { server, after_ns });
    }

    fn keep(&mut self, message: &[u8]) -> Range<usize> {
        let start = self.messages.len();
        self.messages.extend_from_slice(message);
        start..self.messages.len()
    }
}
