//! A thread that runs one engine over its sockets. It never waits for a particular response.
//!
//! - [`spawn`], [`Worker`]: the thread and its state;
//! - [`supervise`]: the restart after a panic;
//! - `notes`: log messages about single responses.

mod notes;
pub mod supervise;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::{Builder, JoinHandle};

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, Pauses, SECOND};
use dns64_transport::cpu;
use dns64_transport::{Arrival, ClientSide, Counters, LinkError, Origin, Relay, UpstreamSide};

use crate::engine::actions::{Action, Actions, Client};
use crate::engine::{DEADLINE_NS, Engine};
use crate::health::{Health, InForce, Turn};
use crate::mailbox::{ConnectionFailed, GatewayHandle, ToGateway, ToWorker, WorkerHandle};
use crate::proxy;
use crate::settings::Settings;
use notes::Notes;
use supervise::WorkerError;

/// An engine, its sockets, and its connections to the rest of the server.
pub struct Worker<R> {
    /// Index of the worker.
    index: usize,
    /// The engine.
    pub engine: Engine,
    /// Its sockets.
    pub relay: R,
    /// Messages from other threads.
    mailbox: Receiver<ToWorker>,
    /// All workers that share their upstream queries, by index.
    workers: Arc<[WorkerHandle]>,
    /// The gateway, which owns the connections.
    gateway: GatewayHandle,
    /// Where it publishes its view of the upstreams.
    health: Arc<Health>,
    /// Upstream queries over connections that did not fit into the gateway's mailbox.
    unsent: Vec<u64>,
    /// Its log messages about single queries.
    notes: Notes,
    /// Time of the next reading of the sockets' loss counters and of the next publication of the upstreams' state.
    look_at: Nanos,
}

/// Queries accepted in one turn, before responses of upstreams are processed again.
const QUERIES_PER_TURN: usize = 64;

/// Messages of other threads read in one turn. Each can lead to a response of 64 KiB.
const LETTERS_PER_TURN: usize = 64;

/// Longest sleep of a worker without a deadline: it also reads the loss counters of its sockets.
const SLEEP_NS: Nanos = SECOND;

/// Time for queries in flight to finish when the server stops: none is held longer.
const DRAIN_NS: Nanos = DEADLINE_NS + SECOND / 10;

/// Stage of a worker's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Accepts queries.
    Serving,
    /// Accepts no more queries, and ends at this time at the latest.
    Draining(Nanos),
}

/// Prefix of the names of the threads.
pub const THREAD: &str = "worker-";

/// Starts the thread of a worker over open sockets. Other threads reach it by its mailbox and the waker of `relay`;
/// `workers` are those with which its engine shares upstream queries ([`Engine::share`]), by index; `renew` creates its
/// engine, and another one after a panic.
///
/// # Errors
///
/// The system refuses to start the thread.
pub fn spawn(
    index: usize,
    in_force: InForce,
    mut relay: impl Relay + Send + 'static,
    mailbox: Receiver<ToWorker>,
    workers: Arc<[WorkerHandle]>,
    gateway: GatewayHandle,
    renew: impl Fn(&Settings) -> Engine + Send + 'static,
) -> io::Result<JoinHandle<Result<(), WorkerError>>> {
    let run = move || {
        set_servers(relay.upstreams(), &in_force.settings);
        let clock = MonotonicClock;
        let engine = renew(&in_force.settings);
        let mut worker = Worker::new(
            index,
            engine,
            relay,
            mailbox,
            workers,
            gateway,
            in_force.health,
        );
        worker.notes.tap = in_force.tap;
        let ended = supervise::run(&mut worker, &clock, renew);
        close_ports(worker.relay.upstreams(), worker.engine.settings());
        ended
    };
    Builder::new().name(format!("{THREAD}{index}")).spawn(run)
}

impl<R: Relay> Worker<R> {
    /// Creates an idle worker. `workers`: those with which its engine shares upstream queries ([`Engine::share`]), by
    /// index.
    pub fn new(
        index: usize,
        engine: Engine,
        relay: R,
        mailbox: Receiver<ToWorker>,
        workers: Arc<[WorkerHandle]>,
        gateway: GatewayHandle,
        health: Arc<Health>,
    ) -> Self {
        Self {
            index,
            engine,
            relay,
            mailbox,
            workers,
            gateway,
            health,
            unsent: Vec::new(),
            notes: Notes::default(),
            look_at: 0,
        }
    }

    /// Runs until it has drained on request, or a socket fails.
    ///
    /// # Errors
    ///
    /// An error of the relay.
    pub fn run(&mut self, stage: &mut Stage, clock: &impl Clock) -> Result<(), LinkError> {
        let mut actions = Actions::default();
        loop {
            let now = clock.now();
            let more = self.turn(now, stage, &mut actions)?;
            self.engine.counts().worker_turns.tick();
            if let Stage::Draining(until) = *stage
                && (self.engine.is_idle() || now >= until)
            {
                return Ok(());
            }
            let timeout = if more {
                0
            } else {
                let now = clock.now();
                let deadline = self.engine.next_deadline().unwrap_or(now + SLEEP_NS);
                deadline.saturating_sub(now).min(SLEEP_NS)
            };
            self.relay.wait(timeout)?;
        }
    }

    /// Processes what the relay's last wait found; returns whether there is more to process without another wait.
    ///
    /// # Errors
    ///
    /// An error of the relay.
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
            self.publish(now);
            self.notes.next_second();
        }
        self.engine.on_timer(now, actions);
        for exchange in self.unsent.drain(..) {
            let failed = Err(ConnectionFailed::Unanswered);
            self.engine.on_connection(exchange, failed, now, actions);
        }
        let more = self.open_mail(now, stage, actions)?;
        let engine = &mut self.engine;
        self.relay.upstreams().receive(|arrival| match arrival {
            Arrival::Reply {
                server,
                port,
                payload,
            } => engine.on_reply(server, port, payload, now, actions),
            Arrival::Unreachable { server, port } => {
                engine.on_unreachable(server, port, now, actions);
            }
        })?;
        let notes = &mut self.notes;
        let is_seen = notes.wants_responses(engine.settings());
        let clients = self.relay.clients();
        clients.receive(QUERIES_PER_TURN, |origin, payload, frame| {
            let Some((client, payload)) = sender(engine, origin, payload) else {
                return 0;
            };
            let len = engine.on_query(client, payload, frame, now, actions);
            if is_seen {
                notes.response(engine, &client, &frame[..len], 0, now);
            }
            len
        })?;
        self.act(actions, now)?;
        self.relay.upstreams().flush();
        self.relay.clients().flush();
        Ok(more || !self.unsent.is_empty())
    }

    /// Counts the datagrams that the sockets lost; costs some system calls per socket.
    fn count_lost(&mut self) -> Result<(), LinkError> {
        let clients = self.relay.clients().counters()?;
        let upstreams = self.relay.upstreams().counters()?;
        let counts = self.engine.counts();
        let sum = |lost: fn(&Counters) -> u64| lost(&clients) + lost(&upstreams);
        counts.lost_full.set(sum(|lost| lost.receive_drops));
        counts.lost_unsent.set(sum(|lost| lost.send_drops));
        counts.lost_unreachable.set(sum(|lost| lost.unreachable));
        counts.lost_foreign.set(sum(|lost| lost.foreign));
        Ok(())
    }

    /// Processes messages of other threads; returns whether there may be more.
    fn open_mail(
        &mut self,
        now: Nanos,
        stage: &mut Stage,
        actions: &mut Actions,
    ) -> Result<bool, LinkError> {
        for _ in 0..LETTERS_PER_TURN {
            let Ok(letter) = self.mailbox.try_recv() else {
                return Ok(false);
            };
            match letter {
                ToWorker::Query {
                    connection,
                    client,
                    tls,
                    message,
                } => {
                    let client = Client::Tcp {
                        connection,
                        address: client,
                        tls,
                    };
                    self.engine
                        .on_query(client, &message, &mut [], now, actions);
                }
                ToWorker::Answer { exchange, message } => {
                    let message = message.as_deref().map_err(|failed| *failed);
                    self.engine.on_connection(exchange, message, now, actions);
                }
                ToWorker::Outcome(outcome) => self.engine.on_outcome(&outcome, now, actions),
                ToWorker::Reload(InForce {
                    settings, health, ..
                }) => {
                    // The engine's pending actions refer to the old upstreams.
                    self.act(actions, now)?;
                    actions.clear();
                    if !self.engine.settings().queries_like(&settings) {
                        set_servers(self.relay.upstreams(), &settings);
                    }
                    self.engine.reload(&settings, now, actions);
                    self.health = health;
                    self.publish(now);
                }
                ToWorker::List(most, lines) => {
                    // Its reader may have given up.
                    let _ = lines.try_send(self.engine.in_flight(most, now));
                }
                ToWorker::Drain => {
                    self.relay.clients().accept(false);
                    *stage = Stage::Draining(now + DRAIN_NS);
                }
            }
        }
        Ok(true)
    }

    /// Executes the engine's actions.
    fn act(&mut self, actions: &Actions, now: Nanos) -> Result<(), LinkError> {
        let is_seen = self.notes.wants_responses(self.engine.settings());
        for action in actions.list() {
            match action {
                Action::Reply {
                    to,
                    message,
                    took_ns,
                } => {
                    let message = actions.message(message);
                    if is_seen {
                        self.notes
                            .response(&self.engine, to, message, *took_ns, now);
                    }
                    self.reply(to, message);
                }
                Action::Ask {
                    server,
                    port,
                    message,
                } => {
                    let message = actions.message(message);
                    let upstreams = self.relay.upstreams();
                    upstreams.ask(*server, *port, |frame| copy(message, frame));
                }
                Action::AskConnection {
                    server,
                    exchange,
                    tls,
                    message,
                } => {
                    let message = actions.message(message).to_vec();
                    self.ask_connection(*server, *exchange, *tls, message);
                }
                Action::ClosePort { server, port } => {
                    self.relay.upstreams().close(*server, *port)?;
                }
                Action::Tell { worker, outcome } => {
                    if let Some(other) = self.workers.get(*worker) {
                        // A worker with a full mailbox, or one that has ended, does not get the outcome.
                        let _ = other.send(ToWorker::Outcome(Arc::clone(outcome)));
                    }
                }
                Action::Servfail {
                    client,
                    why,
                    message,
                } => {
                    let settings = self.engine.settings();
                    let message = actions.message(message);
                    self.notes.servfail(settings, *client, *why, message);
                }
                Action::Turn { server, turn } => self.tell(*server, *turn, now),
            }
        }
        Ok(())
    }

    /// Sends a response to its client.
    fn reply(&mut self, to: &Client, message: &[u8]) {
        match to {
            Client::Udp(origin) | Client::Proxied { origin, .. } => {
                let clients = self.relay.clients();
                clients.reply(origin, |frame| copy(message, frame));
            }
            Client::Tcp { connection, .. } => {
                if !self.gateway.reply(*connection, message) {
                    self.engine.counts().dropped_unread.tick();
                }
            }
        }
    }

    /// Publishes its view of the upstreams, logs those that are up again, and closes those of the operator.
    fn publish(&mut self, now: Nanos) {
        self.engine.close_upstreams(self.health.closed());
        for server in 0..self.engine.settings().upstreams.len() {
            if let Some(state) = self.engine.upstream(server, now) {
                self.health.publish(self.index, server, state);
            }
        }
        for (address, after_ns) in self.health.back_up() {
            let after_s = after_ns.div_ceil(SECOND);
            tracing::info!("upstream {} is up again after {after_s} s", plain(address));
        }
    }

    /// Publishes a change of an upstream, and logs it unless another worker has.
    fn tell(&mut self, server: usize, turn: Turn, now: Nanos) {
        self.publish(now);
        let address = plain(self.engine.settings().upstreams[server].address);
        match turn {
            Turn::Down(fault) => {
                let state = self.engine.upstream(server, now);
                let since = state.and_then(|state| state.down_since);
                if since.is_some_and(|since| self.health.went_down(server, since)) {
                    tracing::warn!("upstream {address} is down: {fault}");
                }
            }
            Turn::Up { .. } => {}
            Turn::Lacks(capability) => {
                if self.health.is_news(server, capability) {
                    tracing::warn!(
                        "upstream {address} does not support {capability}: questions go without it for 15 min"
                    );
                }
            }
        }
    }

    fn ask_connection(&mut self, server: usize, exchange: u64, tls: bool, message: Vec<u8>) {
        let upstream = &self.engine.settings().upstreams[server];
        let ask = ToGateway::Ask {
            worker: self.index,
            exchange,
            server: match tls {
                true => upstream.tls_address(),
                false => upstream.address,
            },
            tls,
            // One timeout for the handshake, one for the response.
            timeout_ns: 2 * upstream.timeout_ns,
            message,
        };
        if !self.gateway.send(ask) {
            self.unsent.push(exchange);
        }
    }
}

/// The client that sent a datagram, by its header if it comes from a proxy, and the message; `None`: that header is invalid.
fn sender<'d>(engine: &Engine, origin: &Origin, datagram: &'d [u8]) -> Option<(Client, &'d [u8])> {
    let proxies = &engine.settings().proxies;
    if proxies.nets().is_empty() || !proxies.contains(origin.peer().ip()) {
        return Some((Client::Udp(*origin), datagram));
    }
    let Some((address, message)) = proxy::split(datagram, origin.peer()) else {
        engine.counts().dropped_proxy.tick();
        return None;
    };
    let origin = *origin;
    Some((Client::Proxied { origin, address }, message))
}

/// Sets the upstreams of a relay to those of these settings, without open ports.
pub fn set_servers(relay: &mut impl UpstreamSide, settings: &Settings) {
    let servers = settings.upstreams.iter();
    let servers: Vec<_> = servers.map(|u| (u.address, u.outgoing.clone())).collect();
    let avoided = [&settings.avoid_ports[..], &settings.reserved_ports].concat();
    relay.set_servers(&servers, settings.ports_per_upstream(), &avoided);
}

/// Closes the source ports with pauses: thousands at once would delay a process that has taken over.
fn close_ports(relay: &mut impl UpstreamSide, settings: &Settings) {
    cpu::give_way();
    let mut pauses = Pauses::begin();
    for server in 0..settings.upstreams.len() {
        for port in 0..settings.ports_per_upstream() {
            // The end of the thread closes what is left.
            let _ = relay.close(server, port);
            pauses.rest();
        }
    }
}

/// Copies a message to the start of a frame; returns its length. A message that does not fit has length 0: the relay
/// counts it as not sent.
fn copy(message: &[u8], frame: &mut [u8]) -> usize {
    match frame.get_mut(..message.len()) {
        Some(room) => {
            room.copy_from_slice(message);
            message.len()
        }
        None => 0,
    }
}

/// An address, with its port unless it is 53.
fn plain(address: SocketAddr) -> String {
    match address.port() {
        53 => address.ip().to_string(),
        _ => address.to_string(),
    }
}

#[cfg(test)]
mod tests;
