//! The agent's end of the connection: admits the controller, then executes its requests in order.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos};
use serde_json::Value;

use super::frame::{self, FrameError, FrameKind};
use super::handshake::{AgentRefusal, Answer, Call, Hello, VERSION, Welcome};
use crate::PROGRAM;

/// Requests that an agent executes on its host.
pub trait Work {
    /// Executes a request. The agent's `interrupted` flag becomes true when the controller has gone.
    ///
    /// # Errors
    ///
    /// Why the request failed, for the controller; the connection continues.
    fn handle(&mut self, request: Value) -> Result<Handled, String>;
}

/// Result of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handled {
    /// The reply, at most [`frame::PAYLOAD_MAX`] octets as JSON.
    pub reply: Value,
    /// Blobs that follow the reply, of any length.
    pub blobs: Vec<Vec<u8>>,
}

/// Why an agent stops serving.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The connection is broken.
    #[error("the connection to the controller is unusable: {0}")]
    Frame(#[from] FrameError),
    /// The controller sent an invalid message.
    #[error("the controller broke the protocol: {0}")]
    Protocol(String),
    /// The controller was refused, and was told why.
    #[error(transparent)]
    Refused(#[from] AgentRefusal),
}

/// Serves one controller until `input` ends or `interrupted` is true. The end of `input` sets `interrupted`, even while
/// a request is executed. `admit` decides whether the controller is served; a controller with another protocol version
/// never is.
///
/// `input` is read by a thread of its own, which ends with it.
///
/// # Errors
///
/// The controller is refused, violates the protocol, or its connection ends inside a frame.
pub fn serve(
    input: impl Read + Send + 'static,
    mut output: impl Write,
    interrupted: Arc<AtomicBool>,
    admit: impl FnOnce(&Hello) -> Result<Welcome, AgentRefusal>,
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
    admit: impl FnOnce(&Hello) -> Result<Welcome, AgentRefusal>,
) -> Result<Welcome, AgentRefusal> {
    match hello.version {
        VERSION => admit(hello),
        _ => Err(AgentRefusal::Version {
            version: VERSION,
            tester: PROGRAM.to_owned(),
        }),
    }
}

/// Sends the result of a request; a reply that does not fit a frame is an error.
fn answer(
    output: &mut impl Write,
    id: u64,
    done: Result<Handled, String>,
) -> Result<(), FrameError> {
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

/// Builds the answer for a failed request. A long error loses its beginning, because its end is more informative.
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
    frame::write(output, FrameKind::Message, &text)
}

/// Queue of received calls, with their arrival times.
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
                // A full queue has its own fault, which is reported instead.
                let _ = sender.try_send(Err(error));
            }
            ended.store(true, Ordering::Relaxed);
        });
        Self { calls, interrupted }
    }

    /// Returns the next call; `None` after the last one.
    fn next(&self) -> Result<Option<(Call, Nanos)>, AgentError> {
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                // The remaining calls are discarded, but a fault is reported.
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
        if frame.kind != FrameKind::Message {
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

/// Capacity of the queue of calls: the controller sends one and waits for its answer.
const WAITING_MAX: usize = 16;
/// Interval at which an idle agent checks for signals; the end of the input is detected at once. It is long because
/// other hosts measure at that time.
const POLL: Duration = Duration::from_secs(1);
/// Largest error text in octets.
const ERROR_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
