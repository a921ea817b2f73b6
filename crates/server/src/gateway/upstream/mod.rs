//! Queries to upstreams over connections: each upstream has its own queue and its own few
//! connections, so that none waits for another.
//!
//! - `queue`: queries that wait for a connection;
//! - `pipe`: queries in flight on one connection;
//! - [`ask`]: puts a query into the queue of its upstream;
//! - `serve`, `converse`: run queue and pipe over a socket.

mod pipe;
pub(super) mod queue;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use tokio::net::TcpSocket;
use tokio::sync::Notify;

use super::Shared;
use super::stream::Stream;
use crate::framed::framed;
use crate::mailbox::{ConnectionFailed, Full, ToWorker};
use crate::settings::Upstream;
use pipe::{Broken, HEADER_LEN, Pipe};
use queue::{Ask, Queue};

/// How long an idle connection is kept: "a few seconds" (RFC 7766 section 6.2.3).
const KEPT_NS: Nanos = 4 * SECOND;

/// Interval between two attempts to deliver a response to a worker with a full mailbox.
const UNDELIVERED: Duration = Duration::from_millis(5);

/// How long a response waits for space in a mailbox, the same as for a reload: workers free space
/// in each turn.
const UNDELIVERED_NS: Nanos = 5 * SECOND;

/// Maximum number of octets of responses that wait for space in a mailbox: 256 of maximum length.
const UNDELIVERED_MAX: usize = 16 << 20;

/// Maximum time to establish a TLS session: a lost segment is sent again once (RFC 6298 section 2), and time is left for
/// questions in clear text or to others before clients give up.
const SESSION: Duration = Duration::from_secs(2);

/// The upstreams that are being queried.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    servers: RefCell<HashMap<(SocketAddr, bool), Rc<Server>>>,
    /// Those whose last TLS session failed, which is logged.
    failed: RefCell<HashSet<SocketAddr>>,
    /// Number of octets of responses that wait for space in a mailbox.
    undelivered: Cell<usize>,
}

/// One upstream.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// Whether its connections are encrypted.
    tls: bool,
    /// Whether one has been established.
    opened: Cell<bool>,
    /// Number of attempts to open one so far.
    attempts: Cell<usize>,
    queue: RefCell<Queue>,
    /// Notifies connections of a waiting query.
    asked: Notify,
}

/// A query from a worker; see [`crate::mailbox::ToGateway::Ask`].
pub(super) struct Wanted {
    pub worker: usize,
    pub exchange: u64,
    pub server: SocketAddr,
    pub tls: bool,
    pub timeout_ns: u64,
    pub message: Vec<u8>,
}

type Answer = Result<Vec<u8>, ConnectionFailed>;

/// Sends a query, and delivers its outcome.
pub(super) fn ask(shared: &Rc<Shared>, wanted: Wanted) {
    let server = shared.upstreams.server(wanted.server, wanted.tls);
    let place = server.queue.borrow().place();
    let framed = framed(&wanted.message).filter(|_| wanted.message.len() >= HEADER_LEN);
    let (Some(place), Some(framed)) = (place, framed) else {
        shared.counts.upstream_full.tick();
        let full = Err(ConnectionFailed::Unanswered);
        if send(shared, wanted.worker, wanted.exchange, full).is_some() {
            shared.counts.upstream_undelivered.tick();
        }
        return;
    };
    server.queue.borrow_mut().push(Ask {
        worker: wanted.worker,
        exchange: wanted.exchange,
        deadline: MonotonicClock.now().saturating_add(wanted.timeout_ns),
        framed,
        fruitless: 0,
        moved: false,
        place,
    });
    find_connections(shared, &server);
}

/// Starts sending the waiting queries, over more connections if all are full.
fn find_connections(shared: &Rc<Shared>, server: &Rc<Server>) {
    server.asked.notify_waiters();
    while server.queue.borrow_mut().open() {
        tokio::task::spawn_local(serve(Rc::clone(shared), Rc::clone(server)));
    }
}

impl Upstreams {
    fn server(&self, address: SocketAddr, tls: bool) -> Rc<Server> {
        let mut servers = self.servers.borrow_mut();
        let server = servers.entry((address, tls)).or_insert_with(|| {
            Rc::new(Server {
                address,
                tls,
                opened: Cell::new(false),
                attempts: Cell::new(0),
                queue: RefCell::new(Queue::new()),
                asked: Notify::new(),
            })
        });
        Rc::clone(server)
    }
}

impl Server {
    /// Its settings.
    fn upstream<'a>(&self, all: &'a [Upstream]) -> Option<&'a Upstream> {
        if !self.tls {
            return all.iter().find(|upstream| upstream.address == self.address);
        }
        let here = all
            .iter()
            .filter(|upstream| upstream.tls_address() == self.address);
        // Two servers may differ in the port of clear text only.
        let strict = |upstream: &&Upstream| Some(upstream.tls.as_ref()?.authentication.is_strict());
        here.max_by_key(strict)
    }

    /// Why queries fail that were not answered.
    fn reason(&self) -> ConnectionFailed {
        match self.tls && !self.opened.get() {
            true => ConnectionFailed::Tls,
            false => ConnectionFailed::Unanswered,
        }
    }
}

/// Opens one connection after another, until no query waits.
async fn serve(shared: Rc<Shared>, server: Rc<Server>) {
    while let Some(deadline) = next_deadline(&shared, &server) {
        match connect(&shared, &server, deadline).await {
            Some(Ok(mut stream)) => {
                shared.counts.upstream_opened.tick();
                server.opened.set(true);
                let mut pipe = Pipe::default();
                let broken = converse(&shared, &server, &mut stream, &mut pipe).await;
                stream.close();
                give_back(&shared, &server, pipe, broken);
            }
            Some(Err(error)) => {
                if server.tls {
                    tell(&shared, server.address, Some(&error));
                }
                break;
            }
            // Waiting queries cause another attempt.
            None => {}
        }
    }
    if server.queue.borrow_mut().close() {
        // Without this connection, nothing sends the remaining queries.
        let failed = server.queue.borrow_mut().fail_all();
        failed
            .into_iter()
            .for_each(|ask| fail(&shared, &server, ask));
        let mut servers = shared.upstreams.servers.borrow_mut();
        servers.remove(&(server.address, server.tls));
    }
}

/// Opens a connection from the addresses of the settings, with a TLS session if it is to be encrypted.
async fn open(shared: &Shared, server: &Server) -> io::Result<Stream> {
    let settings = Arc::clone(&shared.mode.borrow().in_force.settings);
    let upstream = server.upstream(&settings.upstreams);
    // Without it, a reload has removed the upstream.
    let outgoing = upstream.map(|upstream| upstream.outgoing.clone());
    let number = server.attempts.get();
    server.attempts.set(number.wrapping_add(1));
    let connected = async {
        let socket = outgoing.unwrap_or_default();
        let socket = socket.stream(server.address, number)?;
        let socket = TcpSocket::from_std_stream(socket.into());
        socket.connect(server.address).await
    };
    if !server.tls {
        return Ok(Stream::new(connected.await?, None));
    }
    let established = async {
        let tls = upstream.and_then(|upstream| upstream.tls.as_ref());
        let sessions = tls.and_then(|tls| tls.sessions.as_ref());
        let sessions = sessions.ok_or(io::ErrorKind::NotFound)?;
        let session = sessions
            .begin(server.address.ip())
            .map_err(io::Error::other)?;
        let mut stream = Stream::new(connected.await?, Some(session));
        stream.establish().await?;
        Ok::<_, io::Error>(stream)
    };
    let stream = tokio::time::timeout(SESSION, established).await??;
    tell(shared, server.address, None);
    Ok(stream)
}

/// Counts and logs that an upstream has no TLS session any more, and notes that it has one.
fn tell(shared: &Shared, address: SocketAddr, error: Option<&io::Error>) {
    let mut failed = shared.upstreams.failed.borrow_mut();
    let Some(error) = error else {
        failed.remove(&address);
        return;
    };
    shared.counts.upstream_tls_failed.tick();
    if failed.insert(address) {
        tracing::warn!("no TLS session with upstream {address}: {error}");
    }
}

/// Connects before `limit`, unless no query waits any more.
async fn connect(shared: &Rc<Shared>, server: &Server, limit: Nanos) -> Option<io::Result<Stream>> {
    let mut attempt = pin!(open(shared, server));
    while MonotonicClock.now() < limit {
        let deadline = next_deadline(shared, server)?.min(limit);
        tokio::select! {
            connected = &mut attempt => return Some(connected),
            // The new query may have an earlier deadline.
            () = server.asked.notified() => {}
            () = tokio::time::sleep(until(deadline, MonotonicClock.now())) => {}
        }
    }
    None
}

/// Fails the queries that waited too long. Returns the next deadline.
fn next_deadline(shared: &Rc<Shared>, server: &Server) -> Option<Nanos> {
    let now = MonotonicClock.now();
    loop {
        let expired = server.queue.borrow_mut().expired(now);
        match expired {
            Some(ask) => fail(shared, server, ask),
            None => return server.queue.borrow().deadline(),
        }
    }
}

/// Sends waiting queries over a connection until it is broken or has been idle for too long.
async fn converse(
    shared: &Rc<Shared>,
    server: &Rc<Server>,
    stream: &mut Stream,
    pipe: &mut Pipe,
) -> Result<(), Broken> {
    let mut idle_since = MonotonicClock.now();
    let mut slow = None;
    loop {
        let now = MonotonicClock.now();
        while let Some(ask) = pipe.expired(now)? {
            fail(shared, server, ask);
        }
        if pipe.has_stalled(now) {
            return Err(Broken::Stalled);
        }
        let waiting = next_deadline(shared, server);
        if !pipe.is_slow(now) {
            slow = None;
            take_questions(shared, server, pipe, now);
        } else if slow.is_none() {
            slow = Some(server.queue.borrow().slow());
            find_connections(shared, server);
        }
        if pipe.in_flight() > 0 {
            idle_since = now;
        } else if now >= idle_since + KEPT_NS || server.queue.borrow().is_used_up(pipe.questions())
        {
            return Ok(());
        }
        let deadlines = [pipe.deadline(now), waiting, Some(idle_since + KEPT_NS)];
        let deadline = deadlines.into_iter().flatten().min().unwrap_or(now);
        let moved = tokio::select! {
            ready = stream.readable() => ready.and_then(|()| read(stream, pipe)),
            ready = stream.writable(), if stream.wants_write(!pipe.unsent().is_empty()) => {
                ready.map(|()| write(stream, pipe))
            }
            () = server.asked.notified() => Ok(()),
            () = tokio::time::sleep(until(deadline, now)) => Ok(()),
        };
        // Responses before the end count.
        while let Some((ask, message)) = pipe.answer(MonotonicClock.now())? {
            shared.counts.upstream_answered.tick();
            server.queue.borrow_mut().answered(pipe.answers());
            deliver(shared, ask, Ok(message));
        }
        moved.map_err(|_| Broken::Ended)?;
    }
}

/// Takes as many of the waiting queries as a connection may have in flight.
fn take_questions(shared: &Shared, server: &Server, pipe: &mut Pipe, now: Nanos) {
    loop {
        let (in_flight, questions) = (pipe.in_flight(), pipe.questions());
        let Some(ask) = server.queue.borrow_mut().pop(in_flight, questions) else {
            return;
        };
        if questions > 0 {
            shared.counts.upstream_reused.tick();
        }
        pipe.ask(ask, now, rand::random);
    }
}

/// Handles the end of a connection. Its queries wait for another one or have failed.
fn give_back(shared: &Rc<Shared>, server: &Rc<Server>, pipe: Pipe, ended: Result<(), Broken>) {
    if ended == Err(Broken::WrongId) {
        shared.counts.upstream_wrong_id.tick();
    }
    let (answers, now) = (pipe.answers(), MonotonicClock.now());
    let asks = pipe.into_asks().into_iter();
    let (left, mut failed): (Vec<_>, Vec<_>) = asks.partition(|ask| ask.deadline > now);
    let asked = left.len();
    let mut queue = server.queue.borrow_mut();
    let fruitless = match ended {
        Err(Broken::Stalled) => {
            queue.stalled(left, answers);
            Vec::new()
        }
        _ => queue.unanswered(left, answers),
    };
    drop(queue);
    let again = asked - fruitless.len();
    shared.counts.upstream_retried.add(again as u64);
    failed.extend(fruitless);
    failed.into_iter().for_each(|ask| fail(shared, server, ask));
    find_connections(shared, server);
}

fn read(stream: &mut Stream, pipe: &mut Pipe) -> io::Result<()> {
    match stream.read(pipe.inbox())? {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn write(stream: &mut Stream, pipe: &mut Pipe) {
    match stream.write(pipe.unsent()) {
        Ok(len) => pipe.sent(len),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        // Responses may have arrived before the peer closed. Reading detects the end.
        Err(_) => pipe.sent(pipe.unsent().len()),
    }
}

fn until(deadline: Nanos, now: Nanos) -> Duration {
    Duration::from_nanos(deadline.saturating_sub(now))
}

fn fail(shared: &Rc<Shared>, server: &Server, ask: Ask) {
    shared.counts.upstream_failed.tick();
    deliver(shared, ask, Err(server.reason()));
}

/// Passes a response to the worker that sent the query. If the worker's mailbox is full, delivery
/// is retried for a while, as long as the responses that wait in this way are within their limit.
fn deliver(shared: &Rc<Shared>, ask: Ask, answer: Answer) {
    let Some(mut answer) = send(shared, ask.worker, ask.exchange, answer) else {
        return;
    };
    let octets = answer.as_ref().map_or(0, Vec::len);
    let held = shared.upstreams.undelivered.get() + octets;
    if held > UNDELIVERED_MAX {
        return shared.counts.upstream_undelivered.tick();
    }
    shared.upstreams.undelivered.set(held);
    let shared = Rc::clone(shared);
    tokio::task::spawn_local(async move {
        let give_up = MonotonicClock.now() + UNDELIVERED_NS;
        let delivered = loop {
            tokio::time::sleep(UNDELIVERED).await;
            match send(&shared, ask.worker, ask.exchange, answer) {
                None => break true,
                Some(_) if MonotonicClock.now() >= give_up => break false,
                Some(back) => answer = back,
            }
        };
        if !delivered {
            shared.counts.upstream_undelivered.tick();
        }
        let undelivered = &shared.upstreams.undelivered;
        undelivered.set(undelivered.get() - octets);
        drop(ask.place);
    });
}

/// Passes a response to a worker; returns it if the worker's mailbox is full.
fn send(shared: &Shared, worker: usize, exchange: u64, message: Answer) -> Option<Answer> {
    let worker = shared.workers.get(worker)?;
    match worker.send(ToWorker::Answer { exchange, message }) {
        Err(Full(ToWorker::Answer { message, .. })) => Some(message),
        _ => None,
    }
}
