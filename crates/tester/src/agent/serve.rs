//! The agent's end of the connection: admits the controller, then executes its requests in order.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame;
use super::handshake::{AgentRefusal, Answer, Call, Hello, VERSION, Welcome};
use crate::PROGRAM;
use crate::lab::{Blame, LabError};

/// Requests that an agent executes on its host.
pub trait Work {
    /// A request.
    type Request: DeserializeOwned + Send + 'static;
    /// Its result.
    type Reply: Serialize;

    /// Executes a request. The agent's `interrupted` flag becomes true when the controller has gone.
    fn handle(&mut self, request: Self::Request) -> Self::Reply;
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
pub fn serve<W: Work>(
    input: impl Read + Send + 'static,
    mut output: impl Write,
    interrupted: Arc<AtomicBool>,
    admit: impl FnOnce(&Hello) -> Result<Welcome, AgentRefusal>,
    work: &mut W,
) -> Result<(), LabError> {
    let inbox = Inbox::open(input, interrupted);
    let mut send = |answer: Answer<W::Reply>| frame::write(&mut output, &answer).map_err(unusable);
    let Some((call, _)) = inbox.next()? else {
        return Ok(());
    };
    let Call::Hello(hello) = call else {
        return Err(protocol("the first call is not a hello"));
    };
    match admitted(&hello, admit) {
        Ok(welcome) => send(Answer::Welcome(welcome))?,
        Err(refusal) => {
            send(Answer::Refused(refusal.clone()))?;
            return Err(Blame::Machine.error(refusal.to_string()));
        }
    }
    while let Some((call, received_ns)) = inbox.next()? {
        match call {
            Call::Hello(_) => return Err(protocol("a second hello")),
            Call::Clock { id } => {
                let sent_ns = MonotonicClock.now();
                send(Answer::Clock {
                    id,
                    received_ns,
                    sent_ns,
                })?;
            }
            Call::Request { id, request } => {
                let reply = work.handle(request);
                send(Answer::Done { id, reply })?;
            }
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

fn protocol(what: impl Into<String>) -> LabError {
    let what = what.into();
    Blame::Machine.error(format!("the controller broke the protocol: {what}"))
}

fn unusable(error: impl fmt::Display) -> LabError {
    Blame::Machine.error(format!(
        "the connection to the controller is unusable: {error}"
    ))
}

/// Queue of received calls, with their arrival times.
struct Inbox<Q> {
    calls: Receiver<Result<(Call<Q>, Nanos), LabError>>,
    interrupted: Arc<AtomicBool>,
}

impl<Q: DeserializeOwned + Send + 'static> Inbox<Q> {
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
    fn next(&self) -> Result<Option<(Call<Q>, Nanos)>, LabError> {
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
fn receive<Q: DeserializeOwned>(
    input: &mut impl Read,
    sender: &SyncSender<Result<(Call<Q>, Nanos), LabError>>,
) -> Result<(), LabError> {
    while let Some(message) = frame::read(input).map_err(unusable)? {
        let now = MonotonicClock.now();
        let call =
            frame::decode(&message).map_err(|error| protocol(format!("not a call: {error}")))?;
        if sender.try_send(Ok((call, now))).is_err() {
            return Err(protocol(format!("more than {WAITING_MAX} calls at once")));
        }
    }
    Ok(())
}

/// Capacity of the queue of calls: the controller sends one and waits for its answer.
const WAITING_MAX: usize = 16;
/// Interval at which an idle agent checks for signals; the end of the input is detected at once. It is long because
/// other hosts measure at that time.
const POLL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
