//! Questions to upstreams over connections, one at a time on each.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{LENGTH_LEN, Shared};
use crate::framed::framed;
use crate::mailbox::{ConnectionFailed, ToWorker};

/// Questions that are asked at once over connections; each has one of its own. A quarter of the
/// 1,024 descriptors that a process may open by default. What is asked beyond it fails at once.
pub(super) const ASKS_MAX: usize = 256;

/// Connections to one server that are kept for its next questions.
const KEPT_PER_SERVER: usize = 4;

/// How long a connection is kept without a question: "a few seconds" (RFC 7766 section 6.2.3).
const KEPT_NS: Nanos = 4 * SECOND;

/// How long a worker with a full mailbox is given between two tries to deliver an answer.
const UNDELIVERED: Duration = Duration::from_millis(5);

/// A message has at least a header (RFC 1035 section 4.1.1).
const HEADER_LEN: usize = 12;

/// One question to an upstream.
pub(super) struct Ask {
    /// See [`crate::mailbox::ToGateway::Ask`].
    pub worker: usize,
    pub exchange: u64,
    pub server: SocketAddr,
    pub timeout_ns: u64,
    pub message: Vec<u8>,
}

/// The connections that are kept, and how many questions are asked.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    asks: Cell<usize>,
    kept: RefCell<HashMap<SocketAddr, Vec<(TcpStream, Nanos)>>>,
}

#[derive(Debug)]
enum Failure {
    Io,
    WrongId,
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

/// Asks, and delivers what comes of it.
pub(super) fn ask(shared: &Rc<Shared>, ask: Ask) {
    let asks = &shared.upstreams.asks;
    if asks.get() >= ASKS_MAX {
        shared.counts.upstream_full.tick();
        if deliver(shared, &ask, Err(ConnectionFailed)).is_some() {
            shared.counts.upstream_undelivered.tick();
        }
        return;
    }
    asks.set(asks.get() + 1);
    let shared = Rc::clone(shared);
    tokio::task::spawn_local(async move {
        run(&shared, ask).await;
        shared.upstreams.asks.set(shared.upstreams.asks.get() - 1);
    });
}

async fn run(shared: &Rc<Shared>, ask: Ask) {
    let limit = Duration::from_nanos(ask.timeout_ns);
    let answer = tokio::time::timeout(limit, exchange(shared, &ask)).await;
    let answer = answer.unwrap_or(Err(Failure::Io));
    let counts = &shared.counts;
    match &answer {
        Ok(_) => counts.upstream_answered.tick(),
        Err(Failure::Io) => counts.upstream_failed.tick(),
        Err(Failure::WrongId) => counts.upstream_wrong_id.tick(),
    }
    let mut undelivered = deliver(shared, &ask, answer.map_err(|_| ConnectionFailed));
    let until = MonotonicClock.now().saturating_add(ask.timeout_ns);
    while let Some(message) = undelivered.take() {
        if MonotonicClock.now() > until {
            counts.upstream_undelivered.tick();
            return;
        }
        tokio::time::sleep(UNDELIVERED).await;
        undelivered = deliver(shared, &ask, message);
    }
}

type Answer = Result<Vec<u8>, ConnectionFailed>;

/// Hands the answer to the worker that asked; gives it back if the worker has no room.
fn deliver(shared: &Shared, ask: &Ask, message: Answer) -> Option<Answer> {
    let worker = shared.workers.get(ask.worker)?;
    let answer = ToWorker::Answer {
        exchange: ask.exchange,
        message,
    };
    match worker.send(answer) {
        Err(crate::mailbox::Full(ToWorker::Answer { message, .. })) => Some(message),
        _ => None,
    }
}

/// Asks on a connection that is kept, and if that has gone meanwhile, on a new one.
async fn exchange(shared: &Rc<Shared>, ask: &Ask) -> Result<Vec<u8>, Failure> {
    let question = framed(&ask.message).ok_or(Failure::Io)?;
    if let Some(mut stream) = shared.upstreams.take(ask.server) {
        shared.counts.upstream_reused.tick();
        if let Ok(answer) = converse(&mut stream, &question).await {
            keep(shared, ask.server, stream);
            return Ok(answer);
        }
    }
    let mut stream = TcpStream::connect(ask.server).await?;
    shared.counts.upstream_opened.tick();
    // The question leaves at once; a socket that refuses this still works.
    let _ = stream.set_nodelay(true);
    let answer = converse(&mut stream, &question).await?;
    keep(shared, ask.server, stream);
    Ok(answer)
}

/// Sends one question and reads one answer, which has to have its ID.
async fn converse(stream: &mut TcpStream, question: &[u8]) -> Result<Vec<u8>, Failure> {
    // In one piece, the length too (RFC 7766 section 8).
    stream.write_all(question).await?;
    let mut length = [0; LENGTH_LEN];
    stream.read_exact(&mut length).await?;
    let length = u16::from_be_bytes(length);
    // Grows as the octets come: a length alone reserves nothing.
    let mut answer = Vec::new();
    let read = stream
        .take(u64::from(length))
        .read_to_end(&mut answer)
        .await?;
    if read < usize::from(length) || read < HEADER_LEN {
        return Err(Failure::Io);
    }
    if answer[..2] != question[LENGTH_LEN..][..2] {
        return Err(Failure::WrongId);
    }
    Ok(answer)
}

/// Keeps a connection for the next question to its server, for a while.
fn keep(shared: &Rc<Shared>, server: SocketAddr, stream: TcpStream) {
    let mut kept = shared.upstreams.kept.borrow_mut();
    let streams = kept.entry(server).or_default();
    if streams.len() >= KEPT_PER_SERVER {
        return;
    }
    streams.push((stream, MonotonicClock.now()));
    let shared = Rc::clone(shared);
    tokio::task::spawn_local(async move {
        tokio::time::sleep(Duration::from_nanos(KEPT_NS)).await;
        shared.upstreams.close_old(MonotonicClock.now());
    });
}

impl Upstreams {
    /// The connection to this server that was used last.
    fn take(&self, server: SocketAddr) -> Option<TcpStream> {
        let mut kept = self.kept.borrow_mut();
        kept.get_mut(&server)?.pop().map(|(stream, _)| stream)
    }

    fn close_old(&self, now: Nanos) {
        self.kept.borrow_mut().retain(|_, streams| {
            streams.retain(|(_, since)| now - since < KEPT_NS);
            !streams.is_empty()
        });
    }
}
