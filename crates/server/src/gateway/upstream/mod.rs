//! Questions to upstreams over connections: each upstream has a queue and a few connections of its
//! own, so that none waits for another.
//!
//! - `queue`: questions that wait for a connection;
//! - `pipe`: questions in flight on one connection;
//! - [`ask`]: puts a question into the queue of its upstream;
//! - `serve`, `converse`: turn queue and pipe over a socket.

mod pipe;
pub(super) mod queue;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::Shared;
use crate::framed::framed;
use crate::mailbox::{ConnectionFailed, Full, ToWorker};
use pipe::{Broken, HEADER_LEN, Pipe};
use queue::{Ask, Queue};

/// How long a connection is kept without a question: "a few seconds" (RFC 7766 section 6.2.3).
const KEPT_NS: Nanos = 4 * SECOND;

/// How long a worker with a full mailbox is given between two tries to deliver an answer.
const UNDELIVERED: Duration = Duration::from_millis(5);

/// How long an answer waits for room in a mailbox, as long as a reload does: workers make room each
/// time they turn.
const UNDELIVERED_NS: Nanos = 5 * SECOND;

/// Octets of answers that wait for room in a mailbox: 256 of the greatest length.
const UNDELIVERED_MAX: usize = 16 << 20;

/// Octets read at once.
const CHUNK_LEN: usize = 16 * 1024;

/// The upstreams that are being asked.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    servers: RefCell<HashMap<SocketAddr, Rc<Server>>>,
    /// Octets of answers that wait for room in a mailbox.
    undelivered: Cell<usize>,
}

/// One upstream.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    queue: RefCell<Queue>,
    /// Tells connections that a question waits.
    asked: Notify,
}

/// A question as it comes from a worker; see [`crate::mailbox::ToGateway::Ask`].
pub(super) struct Wanted {
    pub worker: usize,
    pub exchange: u64,
    pub server: SocketAddr,
    pub timeout_ns: u64,
    pub message: Vec<u8>,
}

type Answer = Result<Vec<u8>, ConnectionFailed>;

/// Asks, and delivers what comes of it.
pub(super) fn ask(shared: &Rc<Shared>, wanted: Wanted) {
    let server = shared.upstreams.server(wanted.server);
    let place = server.queue.borrow().place();
    let framed = framed(&wanted.message).filter(|_| wanted.message.len() >= HEADER_LEN);
    let (Some(place), Some(framed)) = (place, framed) else {
        shared.counts.upstream_full.tick();
        let full = Err(ConnectionFailed);
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
        place,
    });
    find_connections(shared, &server);
}

/// Has the questions that wait asked, over more connections if all are full.
fn find_connections(shared: &Rc<Shared>, server: &Rc<Server>) {
    server.asked.notify_waiters();
    while server.queue.borrow_mut().open() {
        tokio::task::spawn_local(serve(Rc::clone(shared), Rc::clone(server)));
    }
}

impl Upstreams {
    fn server(&self, address: SocketAddr) -> Rc<Server> {
        let mut servers = self.servers.borrow_mut();
        let server = servers.entry(address).or_insert_with(|| {
            Rc::new(Server {
                address,
                queue: RefCell::new(Queue::new()),
                asked: Notify::new(),
            })
        });
        Rc::clone(server)
    }
}

/// One connection after the other, until no question waits.
async fn serve(shared: Rc<Shared>, server: Rc<Server>) {
    while let Some(deadline) = next_deadline(&shared, &server) {
        match connect(&shared, &server, deadline).await {
            Some(Ok(stream)) => {
                shared.counts.upstream_opened.tick();
                // Questions leave at once; a socket that refuses this still works.
                let _ = stream.set_nodelay(true);
                let mut pipe = Pipe::default();
                let broken = converse(&shared, &server, &stream, &mut pipe).await;
                give_back(&shared, &server, pipe, broken);
            }
            Some(Err(_)) => break,
            // Questions that wait still get a new attempt.
            None => {}
        }
    }
    if server.queue.borrow_mut().close() {
        // Without this connection nobody asks what waits still.
        let failed = server.queue.borrow_mut().fail_all();
        failed.into_iter().for_each(|ask| fail(&shared, ask));
        let mut servers = shared.upstreams.servers.borrow_mut();
        servers.remove(&server.address);
    }
}

/// Connects before a moment, unless no question waits any more.
async fn connect(
    shared: &Rc<Shared>,
    server: &Server,
    limit: Nanos,
) -> Option<io::Result<TcpStream>> {
    let mut attempt = pin!(TcpStream::connect(server.address));
    while MonotonicClock.now() < limit {
        let deadline = next_deadline(shared, server)?.min(limit);
        tokio::select! {
            connected = &mut attempt => return Some(connected),
            // It may have an earlier deadline.
            () = server.asked.notified() => {}
            () = tokio::time::sleep(until(deadline, MonotonicClock.now())) => {}
        }
    }
    None
}

/// Fails the questions that waited too long. Returns the deadline of the next.
fn next_deadline(shared: &Rc<Shared>, server: &Server) -> Option<Nanos> {
    let now = MonotonicClock.now();
    loop {
        let expired = server.queue.borrow_mut().expired(now);
        match expired {
            Some(ask) => fail(shared, ask),
            None => return server.queue.borrow().deadline(),
        }
    }
}

/// Asks what waits over a connection until it is broken or has been idle for too long.
async fn converse(
    shared: &Rc<Shared>,
    server: &Server,
    stream: &TcpStream,
    pipe: &mut Pipe,
) -> Result<(), Broken> {
    let mut idle_since = MonotonicClock.now();
    loop {
        while let Some(ask) = pipe.expired(MonotonicClock.now())? {
            fail(shared, ask);
        }
        let waiting = next_deadline(shared, server);
        take_questions(shared, server, pipe);
        let now = MonotonicClock.now();
        if pipe.in_flight() > 0 {
            idle_since = now;
        } else if now >= idle_since + KEPT_NS {
            return Ok(());
        }
        let deadlines = [pipe.deadline(), waiting, Some(idle_since + KEPT_NS)];
        let deadline = deadlines.into_iter().flatten().min().unwrap_or(now);
        let moved = tokio::select! {
            ready = stream.readable() => ready.and_then(|()| read(stream, pipe)),
            ready = stream.writable(), if !pipe.unsent().is_empty() => {
                ready.map(|()| write(stream, pipe))
            }
            () = server.asked.notified() => Ok(()),
            () = tokio::time::sleep(until(deadline, now)) => Ok(()),
        };
        // What came before the end counts.
        while let Some((ask, message)) = pipe.answer()? {
            shared.counts.upstream_answered.tick();
            server.queue.borrow_mut().answered(pipe.answers());
            deliver(shared, ask, Ok(message));
        }
        moved.map_err(|_| Broken::Ended)?;
    }
}

/// Asks as many of the questions that wait as a connection may have in flight.
fn take_questions(shared: &Shared, server: &Server, pipe: &mut Pipe) {
    while let Some(ask) = server.queue.borrow_mut().pop(pipe.in_flight()) {
        if pipe.questions() > 0 {
            shared.counts.upstream_reused.tick();
        }
        pipe.ask(ask, rand::random);
    }
}

/// A connection is over. Its questions wait for another one or have failed.
fn give_back(shared: &Rc<Shared>, server: &Rc<Server>, pipe: Pipe, ended: Result<(), Broken>) {
    if ended == Err(Broken::WrongId) {
        shared.counts.upstream_wrong_id.tick();
    }
    let (answers, now) = (pipe.answers(), MonotonicClock.now());
    let asks = pipe.into_asks().into_iter();
    let (left, mut failed): (Vec<_>, Vec<_>) = asks.partition(|ask| ask.deadline > now);
    let asked = left.len();
    let fruitless = server.queue.borrow_mut().unanswered(left, answers);
    let again = asked - fruitless.len();
    shared.counts.upstream_retried.add(again as u64);
    failed.extend(fruitless);
    failed.into_iter().for_each(|ask| fail(shared, ask));
    find_connections(shared, server);
}

fn read(stream: &TcpStream, pipe: &mut Pipe) -> io::Result<()> {
    let mut chunk = [0; CHUNK_LEN];
    match stream.try_read(&mut chunk) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(len) => {
            pipe.inbox().extend_from_slice(&chunk[..len]);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}

fn write(stream: &TcpStream, pipe: &mut Pipe) {
    match stream.try_write(pipe.unsent()) {
        Ok(len) => pipe.sent(len),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        // Answers may have come before the other side closed. Reading tells the end.
        Err(_) => pipe.sent(pipe.unsent().len()),
    }
}

fn until(deadline: Nanos, now: Nanos) -> Duration {
    Duration::from_nanos(deadline.saturating_sub(now))
}

fn fail(shared: &Rc<Shared>, ask: Ask) {
    shared.counts.upstream_failed.tick();
    deliver(shared, ask, Err(ConnectionFailed));
}

/// Hands an answer to the worker that asked. If the worker has no room, it is tried again for a
/// while, as long as the answers that wait like this are within their bound.
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

/// Hands an answer to a worker; gives it back if the worker has no room.
fn send(shared: &Shared, worker: usize, exchange: u64, message: Answer) -> Option<Answer> {
    let worker = shared.workers.get(worker)?;
    match worker.send(ToWorker::Answer { exchange, message }) {
        Err(Full(ToWorker::Answer { message, .. })) => Some(message),
        _ => None,
    }
}
