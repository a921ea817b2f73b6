//! The agent's end of the connection: admits the controller, then carries out its requests in order.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos};
use serde_json::Value;

use super::frame::{self, FrameError, Kind};
use super::handshake::{Answer, Call, Hello, Refusal, VERSION, Welcome};
use crate::PROGRAM;

/// What an agent does on its host.
pub trait Work {
    /// Carries out a request. The agent's `interrupted` flag becomes true when nobody waits for it any more.
    ///
    /// # Errors
    ///
    /// Why it was not done, for the controller; the connection goes on.
    fn handle(&mut self, request: Value) -> Result<Done, String>;
}

/// What came of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// The reply, at most [`frame::PAYLOAD_MAX`] octets as JSON.
    pub reply: Value,
    /// What follows it, of any length.
    pub blobs: Vec<Vec<u8>>,
}

/// Why an agent does not go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The connection is not one any more.
    #[error("the connection to the controller is unusable: {0}")]
    Frame(#[from] FrameError),
    /// The controller says what cannot be said here.
    #[error("the controller broke the protocol: {0}")]
    Protocol(String),
    /// The controller was refused, and told so.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Serves one controller until `input` ends or `interrupted` is true, which it becomes when `input` ends, even
/// while a request is carried out. `admit` decides whether the controller is served; one that speaks another
/// version of the protocol never is.
///
/// `input` is read by a thread of its own, which ends with it.
///
/// # Errors
///
/// The controller is refused, breaks the protocol, or its connection breaks within a frame.
pub fn serve(
    input: impl Read + Send + 'static,
    mut output: impl Write,
    interrupted: Arc<AtomicBool>,
    admit: impl FnOnce(&Hello) -> Result<Welcome, Refusal>,
    work: &mut dyn Work,
) -> Result<(), AgentError> {
    let inbox = Inbox::open(input, interrupted);
    let Some((call, _)) = inbox.next()? else {
        return Ok(());
    };
    let Call::Hello(hello) = call else {
        return Err(AgentError::Protocol("the first call is not a hello".into()));
    };
    match admitted(&hello, admit) {
        Ok(welcome) => send(&mut output, &Answer::Welcome(welcome))?,
        Err(refusal) => {
            send(&mut output, &Answer::Refused(refusal.clone()))?;
            return Err(refusal.into());
        }
    }
    while let Some((call, received_ns)) = inbox.next()? {
        match call {
            Call::Hello(_) => return Err(AgentError::Protocol("a second hello".into())),
            Call::Clock { id } => {
                let sent_ns = MonotonicClock.now();
                let answer = Answer::Clock {
                    id,
                    received_ns,
                    sent_ns,
                };
                send(&mut output, &answer)?;
            }
            Call::Request { id, request } => answer(&mut output, id, work.handle(request))?,
        }
    }
    Ok(())
}

fn admitted(
    hello: &Hello,
    admit: impl FnOnce(&Hello) -> Result<Welcome, Refusal>,
) -> Result<Welcome, Refusal> {
    match hello.version {
        VERSION => admit(hello),
        _ => Err(Refusal::Version {
            version: VERSION,
            tester: PROGRAM.to_owned(),
        }),
    }
}

/// Sends what came of a request; a reply that does not fit a frame has failed.
fn answer(output: &mut impl Write, id: u64, done: Result<Done, String>) -> Result<(), FrameError> {
    let done = match done {
        Ok(done) => done,
        Err(error) => return send(output, &failed(id, error)),
    };
    let blobs = done.blobs.iter().map(|blob| blob.len() as u64).collect();
    let reply = Answer::Done {
        id,
        reply: done.reply,
        blobs,
    };
    match send(output, &reply) {
        Err(FrameError::Length { length }) => {
            let max = frame::PAYLOAD_MAX;
            let error = format!("the reply has {length} octets: at most {max} are allowed");
            send(output, &failed(id, error))
        }
        sent => {
            sent?;
            let mut blobs = done.blobs.iter();
            blobs.try_for_each(|blob| frame::write_blob(output, blob))
        }
    }
}

/// The end of a long error says most.
fn failed(id: u64, mut error: String) -> Answer {
    if error.len() > ERROR_MAX {
        let from = error.len() - ERROR_MAX;
        let from = (from..=error.len()).find(|&at| error.is_char_boundary(at));
        error.drain(..from.unwrap_or(0));
    }
    Answer::Failed { id, error }
}

fn send(output: &mut impl Write, answer: &Answer) -> Result<(), FrameError> {
    let text = serde_json::to_vec(answer).map_err(std::io::Error::from)?;
    frame::write(output, Kind::Message, &text)
}

/// Calls that have come, with the moment of their arrival.
struct Inbox {
    calls: Receiver<Result<(Call, Nanos), AgentError>>,
    interrupted: Arc<AtomicBool>,
}

impl Inbox {
    fn open(mut input: impl Read + Send + 'static, interrupted: Arc<AtomicBool>) -> Self {
        let (sender, calls) = sync_channel(WAITING_MAX);
        let ended = Arc::clone(&interrupted);
        std::thread::spawn(move || {
            if let Err(error) = receive(&mut input, &sender) {
                // A full inbox has its own fault, which is told instead.
                let _ = sender.try_send(Err(error));
            }
            ended.store(true, Ordering::Relaxed);
        });
        Self { calls, interrupted }
    }

    /// The next call; `None` when there will be no other.
    fn next(&self) -> Result<Option<(Call, Nanos)>, AgentError> {
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                // Nobody waits for the calls; a fault is worth telling.
                let fault = self.calls.try_iter().find_map(Result::err);
                return fault.map_or(Ok(None), Err);
            }
            match self.calls.recv_timeout(POLL) {
                Ok(call) => return call.map(Some),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }
}

/// Reads calls until the input ends.
fn receive(
    input: &mut impl Read,
    sender: &SyncSender<Result<(Call, Nanos), AgentError>>,
) -> Result<(), AgentError> {
    while let Some(frame) = frame::read(input)? {
        let now = MonotonicClock.now();
        if frame.kind != Kind::Message {
            return Err(AgentError::Protocol("a blob from the controller".into()));
        }
        let call = serde_json::from_slice(&frame.payload)
            .map_err(|error| AgentError::Protocol(format!("not a call: {error}")))?;
        if sender.try_send(Ok((call, now))).is_err() {
            return Err(AgentError::Protocol(format!(
                "more than {WAITING_MAX} calls at once"
            )));
        }
    }
    Ok(())
}

/// Calls that may wait: the controller sends one and waits for its answer.
const WAITING_MAX: usize = 16;
/// How soon a signal is noticed while nothing is to be done; the end of the input is at once. Seldom, because that is while
/// other hosts send.
const POLL: Duration = Duration::from_secs(1);
/// Octets of an error that is told.
const ERROR_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
