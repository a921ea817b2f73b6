//! One thread that turns one engine over its sockets. It never waits for an answer, only for
//! something to do.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::thread::{Builder, JoinHandle};

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use dns64_transport::relay::udp::UdpRelay;
use dns64_transport::{Arrival, LinkError, Relay};
use dns64_wire::message::Message;

use crate::engine::actions::{Action, Actions, Client};
use crate::engine::{DEADLINE_NS, Engine};
use crate::mailbox::{ConnectionFailed, GatewayHandle, ToGateway, ToWorker};
use crate::settings::Settings;

/// An engine, its sockets, and its ways to the rest of the server.
pub struct Worker<R> {
    /// Number of the worker.
    index: usize,
    /// What it turns.
    pub engine: Engine,
    /// Its sockets.
    pub relay: R,
    /// What others say to it.
    mailbox: Receiver<ToWorker>,
    /// Who holds the connections.
    gateway: GatewayHandle,
    /// Questions for connections that the gateway had no room for.
    unsent: Vec<u64>,
    /// When the sockets are asked next what they have lost.
    look_at: Nanos,
}

/// Queries taken in one turn, before the answers of upstreams have their turn again.
const QUERIES_PER_TURN: usize = 64;

/// Messages of others read in one turn. Each can lead to an answer of 64 KiB.
const LETTERS_PER_TURN: usize = 64;

/// Longest sleep of a worker without a deadline: it also renews its ports, and asks its sockets what
/// they have lost.
const SLEEP_NS: Nanos = SECOND;

/// How long queries under way have to end when the server stops: none is held longer.
const DRAIN_NS: Nanos = DEADLINE_NS + SECOND / 10;

/// How a worker goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It takes queries.
    Serving,
    /// It takes no more, and ends at this moment at the latest.
    Draining(Nanos),
}

/// Starts the thread of a worker over sockets that are open already. Its mailbox, and the waker of
/// `relay`, are how others reach it; `engine` makes its engine, there, as of a moment.
///
/// # Errors
///
/// The system has no thread for it.
pub fn spawn(
    index: usize,
    mut relay: UdpRelay,
    mailbox: Receiver<ToWorker>,
    gateway: GatewayHandle,
    engine: impl FnOnce(Nanos) -> Engine + Send + 'static,
) -> io::Result<JoinHandle<Result<(), LinkError>>> {
    let run = move || {
        let clock = MonotonicClock;
        let engine = engine(clock.now());
        relay.set_servers(&addresses(engine.settings()))?;
        Worker::new(index, engine, relay, mailbox, gateway).run(&clock)
    };
    Builder::new().name(format!("worker-{index}")).spawn(run)
}

impl<R: Relay> Worker<R> {
    /// A worker that has not done anything yet.
    pub fn new(
        index: usize,
        engine: Engine,
        relay: R,
        mailbox: Receiver<ToWorker>,
        gateway: GatewayHandle,
    ) -> Self {
        Self {
            index,
            engine,
            relay,
            mailbox,
            gateway,
            unsent: Vec::new(),
            look_at: 0,
        }
    }

    /// Turns until it is told to drain and has, or a socket fails.
    ///
    /// # Errors
    ///
    /// What the relay says.
    pub fn run(mut self, clock: &impl Clock) -> Result<(), LinkError> {
        let mut stage = Stage::Serving;
        let mut actions = Actions::default();
        loop {
            let now = clock.now();
            let busy = self.turn(now, &mut stage, &mut actions)?;
            if let Stage::Draining(until) = stage
                && (self.engine.is_idle() || now >= until)
            {
                return Ok(());
            }
            if !busy {
                let now = clock.now();
                let deadline = self.engine.next_deadline().unwrap_or(now + SLEEP_NS);
                let timeout = deadline.saturating_sub(now).min(SLEEP_NS);
                self.relay.wait(timeout)?;
            }
        }
    }

    /// Does what there is to do; whether there was anything.
    ///
    /// # Errors
    ///
    /// What the relay says.
    pub fn turn(
        &mut self,
        now: Nanos,
        stage: &mut Stage,
        actions: &mut Actions,
    ) -> Result<bool, LinkError> {
        actions.clear();
        if now >= self.look_at {
            self.look_at = now + SLEEP_NS;
            self.count_lost()?;
        }
        self.engine.on_timer(now, actions);
        for exchange in self.unsent.drain(..) {
            let failed = Err(ConnectionFailed);
            self.engine.on_connection(exchange, failed, now, actions);
        }
        let told = self.open_mail(now, stage, actions)?;
        let engine = &mut self.engine;
        let log_queries = engine.settings().log.queries;
        let taken = self
            .relay
            .receive(QUERIES_PER_TURN, |arrival| match arrival {
                Arrival::Query { origin, payload } => {
                    if log_queries {
                        log_query(origin.peer(), payload);
                    }
                    engine.on_query(Client::Udp(*origin), payload, now, actions);
                }
                Arrival::Reply {
                    server,
                    port,
                    payload,
                } => engine.on_reply(server, port, payload, now, actions),
            })?;
        self.act(actions)?;
        self.relay.flush()?;
        Ok(told || taken > 0 || !self.unsent.is_empty())
    }

    /// Asks the sockets, some system calls each, what never reached the engine or the network.
    fn count_lost(&mut self) -> Result<(), LinkError> {
        let lost = self.relay.counters()?;
        let counts = self.engine.counts();
        counts.lost_full.set(lost.receive_drops);
        counts.lost_unsent.set(lost.send_drops);
        counts.lost_unreachable.set(lost.unreachable);
        counts.lost_foreign.set(lost.foreign);
        Ok(())
    }

    /// Reads what others have said; whether they have.
    fn open_mail(
        &mut self,
        now: Nanos,
        stage: &mut Stage,
        actions: &mut Actions,
    ) -> Result<bool, LinkError> {
        let mut any = false;
        for _ in 0..LETTERS_PER_TURN {
            let Ok(letter) = self.mailbox.try_recv() else {
                break;
            };
            any = true;
            match letter {
                ToWorker::Query {
                    connection,
                    client,
                    message,
                } => {
                    if self.engine.settings().log.queries {
                        log_query(client, &message);
                    }
                    let client = Client::Tcp {
                        connection,
                        address: client,
                    };
                    self.engine.on_query(client, &message, now, actions);
                }
                ToWorker::Answer { exchange, message } => {
                    let message = message.as_deref().map_err(|failed| *failed);
                    self.engine.on_connection(exchange, message, now, actions);
                }
                ToWorker::Reload(settings) => {
                    // What the engine wants to send, it wants to send to the old servers.
                    self.act(actions)?;
                    actions.clear();
                    self.relay.set_servers(&addresses(&settings))?;
                    self.engine.reload(&settings, now, actions);
                }
                ToWorker::Drain => {
                    self.relay.accept_queries(false);
                    *stage = Stage::Draining(now + DRAIN_NS);
                }
            }
        }
        Ok(any)
    }

    /// Does what the engine wants.
    fn act(&mut self, actions: &Actions) -> Result<(), LinkError> {
        for action in actions.list() {
            match action {
                Action::Reply { to, message } => {
                    let message = actions.message(message);
                    match to {
                        Client::Udp(origin) => self.relay.reply(origin, message)?,
                        Client::Tcp { connection, .. } => {
                            if !self.gateway.reply(*connection, message) {
                                self.engine.counts().dropped_unread.tick();
                            }
                        }
                    }
                }
                Action::Ask {
                    server,
                    port,
                    message,
                } => self.relay.ask(*server, *port, actions.message(message))?,
                Action::AskConnection {
                    server,
                    exchange,
                    message,
                } => {
                    let upstream = &self.engine.settings().upstreams[*server];
                    let ask = ToGateway::Ask {
                        worker: self.index,
                        exchange: *exchange,
                        server: upstream.address,
                        // One for the handshake, one for the answer.
                        timeout_ns: 2 * upstream.timeout_ns,
                        message: actions.message(message).to_vec(),
                    };
                    if !self.gateway.send(ask) {
                        self.unsent.push(*exchange);
                    }
                }
                Action::Renew { server, port } => self.relay.renew(*server, *port)?,
            }
        }
        Ok(())
    }
}

/// The addresses of all upstreams, in their order.
pub fn addresses(settings: &Settings) -> Vec<SocketAddr> {
    settings.upstreams.iter().map(|u| u.address).collect()
}

/// Writes a query into the log, for operators who asked for each of them.
fn log_query(client: SocketAddr, message: &[u8]) {
    let question = Message::parse(message).ok().and_then(|m| m.question());
    match question {
        Some(q) => tracing::info!(%client, name = %q.name, r#type = %q.rtype, "query"),
        None => tracing::info!(%client, octets = message.len(), "query without a question"),
    }
}
