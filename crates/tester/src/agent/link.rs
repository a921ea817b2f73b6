//! The controller's end of the connection to one agent.
//!
//! A request waits for its answer at most until its deadline, whatever ssh and the host do. Any fault of the connection
//! closes it; every later request returns the reason.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};
use rustix::process::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::clock::Exchange;
use super::frame::{self, FrameError};
use super::handshake::{AgentRefusal, Answer, Call, Hello, VERSION, Welcome};
use super::pipe::{self, Outlet, PipeInput, Stuck, Tail};
use super::ssh::{self, Options};
use super::trouble::{LinkError, Remains, Trouble, printable, tail};
use crate::lab::hosts::Reach;
use crate::machine::process;

/// A connection to the agent of one host. The agent serves until this is dropped.
#[derive(Debug)]
pub struct AgentLink {
    host: String,
    reach: Reach,
    /// The agent's standard input. Closing it ends the agent.
    output: Option<Outlet>,
    news: Receiver<PipeInput>,
    /// ssh, or the agent itself.
    child: Option<Child>,
    stderr: Option<Tail>,
    welcome: Welcome,
    /// Whether the handshake is done.
    is_greeted: bool,
    last_id: u64,
    /// Why the connection was closed.
    dead: Option<LinkError>,
    /// Whether the user interrupted the operation.
    interrupted: Arc<AtomicBool>,
}

/// Why an exchange failed.
enum LinkFault {
    /// The deadline passed.
    Deadline,
    /// The stream ended, or the agent stopped reading.
    End,
    /// The input is not a frame; the error and the octets received.
    Bad(FrameError, Vec<u8>),
    /// A known cause.
    Known(Trouble),
}

impl AgentLink {
    /// Starts the agent of a host and does the handshake.
    ///
    /// # Errors
    ///
    /// The host cannot be reached, or its agent cannot be started or refuses: see [`Trouble`].
    pub fn open(
        host: &str,
        reach: &Reach,
        sudo: bool,
        options: &Options,
    ) -> Result<Self, LinkError> {
        let failed = |trouble| LinkError::new(host, reach, trouble);
        let command = ssh::agent(reach, sudo, options).map_err(failed)?;
        let program = command.get_program().to_string_lossy().into_owned();
        let start = |error| failed(Trouble::Start(format!("{program}: {error}")));
        let (child, stdin, stdout, stderr) = pipe::spawn(command).map_err(start)?;
        let mut link = Self::new(host, reach, stdout, stdin, options).map_err(start)?;
        link.child = Some(child);
        link.stderr = Some(stderr);
        link.greet(options)?;
        Ok(link)
    }

    fn new(
        host: &str,
        reach: &Reach,
        input: impl Into<OwnedFd>,
        output: impl Into<OwnedFd>,
        options: &Options,
    ) -> io::Result<Self> {
        Ok(Self {
            host: host.to_owned(),
            reach: reach.clone(),
            output: Some(Outlet::new(output)?),
            news: pipe::frames(input),
            child: None,
            stderr: None,
            welcome: Welcome::default(),
            is_greeted: false,
            last_id: 0,
            dead: None,
            interrupted: Arc::clone(&options.interrupted),
        })
    }

    /// The agent's description of itself and its host.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Sends a request and waits for its reply and the blobs that follow it, at most `limit_ns` in total.
    ///
    /// # Errors
    ///
    /// The connection is lost, or was lost before.
    pub fn ask<Q: Serialize, R: DeserializeOwned>(
        &mut self,
        request: &Q,
        limit_ns: Nanos,
    ) -> Result<R, LinkError> {
        self.within(limit_ns, |link, deadline_ns| {
            let id = link.next_id();
            let (answer, _, _) = link.exchange(&Call::Request { id, request }, deadline_ns)?;
            match answer {
                Answer::Done { id: of, reply } if of == id => Ok(reply),
                _ => Err(unexpected()),
            }
        })
    }

    /// Does one time exchange with the agent's monotonic clock.
    ///
    /// # Errors
    ///
    /// The connection is lost, or was lost before.
    pub fn clock_exchange(&mut self) -> Result<Exchange, LinkError> {
        self.within(CLOCK_LIMIT, |link, deadline_ns| {
            let id = link.next_id();
            let call = Call::<()>::Clock { id };
            let (answer, t0_ns, t3_ns) = link.exchange::<_, ()>(&call, deadline_ns)?;
            match answer {
                Answer::Clock {
                    id: of,
                    received_ns: t1_ns,
                    sent_ns: t2_ns,
                } if of == id => Ok(Exchange {
                    t0_ns,
                    t1_ns,
                    t2_ns,
                    t3_ns,
                }),
                _ => Err(unexpected()),
            }
        })
    }

    /// Returns whether the connection works, as far as is known without a request.
    pub fn alive(&mut self) -> bool {
        let running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        self.dead.is_none() && self.child.as_mut().is_none_or(running)
    }

    /// Why the connection was closed, once a request found out.
    pub fn lost(&self) -> Option<&LinkError> {
        self.dead.as_ref()
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn greet(&mut self, options: &Options) -> Result<(), LinkError> {
        let hello = Call::<()>::Hello(Hello::new(&options.controller));
        self.welcome = self.within(options.open_limit_ns, |link, deadline_ns| {
            match link.exchange::<_, ()>(&hello, deadline_ns)?.0 {
                Answer::Welcome(welcome) if welcome.version == VERSION => Ok(welcome),
                Answer::Welcome(Welcome {
                    version, tester, ..
                }) => Err(refused(AgentRefusal::Version { version, tester })),
                Answer::Refused(refusal) => Err(refused(refusal)),
                _ => Err(unexpected()),
            }
        })?;
        self.is_greeted = true;
        Ok(())
    }

    /// Runs `work` on an open connection; closes the connection if `work` finds it broken.
    fn within<T>(
        &mut self,
        limit_ns: Nanos,
        work: impl FnOnce(&mut Self, Nanos) -> Result<T, LinkFault>,
    ) -> Result<T, LinkError> {
        if let Some(error) = &self.dead {
            return Err(error.clone());
        }
        let deadline_ns = MonotonicClock.now().saturating_add(limit_ns);
        work(self, deadline_ns).map_err(|fault| self.end_by(fault, limit_ns))
    }

    /// Sends a call and receives its answer; returns the times of both as well.
    fn exchange<Q: Serialize, R: DeserializeOwned>(
        &mut self,
        call: &Call<Q>,
        deadline_ns: Nanos,
    ) -> Result<(Answer<R>, Nanos, Nanos), LinkFault> {
        let octets = frame::encode(call).map_err(|error| protocol(error.to_string()))?;
        let called_ns = MonotonicClock.now();
        let output = self.output.as_mut().ok_or(LinkFault::End)?;
        match output.write(&octets, deadline_ns) {
            Ok(()) => {}
            Err(Stuck::Deadline) => return Err(LinkFault::Deadline),
            // An agent that refuses may already have ended; its answer is read first.
            Err(Stuck::Closed) => {}
        }
        let (message, at_ns) = self.next_message(deadline_ns)?;
        let answer = frame::decode(&message);
        let answer = answer.map_err(|error| protocol(format!("not an answer: {error}")))?;
        Ok((answer, called_ns, at_ns))
    }

    fn next_message(&self, deadline_ns: Nanos) -> Result<(Vec<u8>, Nanos), LinkFault> {
        loop {
            let left_ns = deadline_ns.saturating_sub(MonotonicClock.now());
            let news = self
                .news
                .recv_timeout(Duration::from_nanos(left_ns.min(LOOK_NS)));
            return match news {
                Ok(PipeInput::Message(message, at_ns)) => Ok((message, at_ns)),
                Ok(PipeInput::Bad(error, found)) => Err(LinkFault::Bad(error, found)),
                Ok(PipeInput::End) | Err(RecvTimeoutError::Disconnected) => Err(LinkFault::End),
                Err(RecvTimeoutError::Timeout) if self.interrupted.load(Ordering::Relaxed) => {
                    Err(LinkFault::Known(Trouble::Interrupted))
                }
                Err(RecvTimeoutError::Timeout) if left_ns > LOOK_NS => continue,
                Err(RecvTimeoutError::Timeout) => Err(LinkFault::Deadline),
            };
        }
    }

    /// Closes the connection; returns the meaning of the fault.
    fn end_by(&mut self, fault: LinkFault, limit_ns: Nanos) -> LinkError {
        let trouble = match fault {
            LinkFault::Known(trouble) => {
                self.end(END_PATIENCE);
                trouble
            }
            LinkFault::Deadline => {
                self.end(0);
                let said = self.stderr.as_ref().map(Tail::text).unwrap_or_default();
                let said = tail(&said);
                Trouble::Silent { limit_ns, said }
            }
            LinkFault::End => self.remains(),
            LinkFault::Bad(_, found) if !self.is_greeted && !found.is_empty() => {
                self.end(0);
                Trouble::Garbage(printable(String::from_utf8_lossy(&found).trim()))
            }
            LinkFault::Bad(FrameError::Truncated { .. }, _) => self.remains(),
            LinkFault::Bad(error, _) => {
                self.end(0);
                Trouble::Protocol(error.to_string())
            }
        };
        let error = self.error(trouble);
        self.dead = Some(error.clone());
        error
    }

    /// Returns why the other end has ended.
    fn remains(&mut self) -> Trouble {
        let status = self.end(END_PATIENCE);
        let stderr = self.stderr.as_ref().map(Tail::text).unwrap_or_default();
        let remains = Remains {
            reach: &self.reach,
            greeted: self.is_greeted,
            status,
            stderr: &stderr,
        };
        remains.trouble()
    }

    fn error(&self, trouble: Trouble) -> LinkError {
        LinkError::new(&self.host, &self.reach, trouble)
    }

    /// Closes the connection. The process at this end has `patience_ns` to end; an agent ends as soon as its input
    /// ends.
    fn end(&mut self, patience_ns: Nanos) -> Option<ExitStatus> {
        self.output = None;
        let mut child = self.child.take()?;
        if let Some(status) = process::wait(&mut child, patience_ns) {
            return Some(status);
        }
        end_child(child, matches!(self.reach, Reach::Ssh(_)))
    }
}

impl Drop for AgentLink {
    fn drop(&mut self) {
        self.end(DROP_PATIENCE);
    }
}

/// Ends a process that does not end by itself: ssh and its children at once. An agent on this machine has time to clean
/// up, without being waited for.
fn end_child(mut child: Child, is_ssh: bool) -> Option<ExitStatus> {
    if is_ssh {
        process::kill_group(&mut child);
        return child.wait().ok();
    }
    process::signal(child.id(), Signal::TERM);
    std::thread::spawn(move || {
        if process::wait(&mut child, AGENT_PATIENCE).is_none() {
            process::kill_group(&mut child);
        }
    });
    None
}

fn protocol(what: String) -> LinkFault {
    LinkFault::Known(Trouble::Protocol(what))
}

fn refused(refusal: AgentRefusal) -> LinkFault {
    LinkFault::Known(Trouble::Refused(refusal))
}

fn unexpected() -> LinkFault {
    protocol("an answer of another kind or to another call".to_owned())
}

/// Interval at which a waiting thread checks for an interrupt by the user.
const LOOK_NS: Nanos = SECOND / 10;
/// Limit for a time exchange, which takes the agent no work.
const CLOCK_LIMIT: Nanos = 10 * SECOND;
/// Limit for a process that has closed its output, which then ends at once.
const END_PATIENCE: Nanos = 5 * SECOND;
/// Limit for an agent, which first stops its servers, with at most 5 s for each.
const DROP_PATIENCE: Nanos = 15 * SECOND;
/// Limit for an outer process, which kills the inner one after 30 s and cleans up.
const AGENT_PATIENCE: Nanos = 45 * SECOND;

#[cfg(test)]
pub(crate) mod tests;
