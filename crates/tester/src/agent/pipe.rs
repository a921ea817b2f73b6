//! The controller's end of pipes to another process: no operation waits longer than its deadline.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::frame::{self, FrameError};
use crate::machine::process;

/// Why a write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// The other process does not read.
    Deadline,
    /// The other process has closed its end.
    Closed,
}

/// The writing end of a pipe to another process.
#[derive(Debug)]
pub(super) struct Outlet(File);

impl Outlet {
    /// Wraps one end of a pipe.
    pub(super) fn new(end: impl Into<OwnedFd>) -> io::Result<Self> {
        let end = end.into();
        fcntl_setfl(&end, fcntl_getfl(&end)? | OFlags::NONBLOCK)?;
        Ok(Self(end.into()))
    }

    /// Writes all octets before `deadline_ns` of the monotonic clock.
    pub(super) fn write(&mut self, mut octets: &[u8], deadline_ns: Nanos) -> Result<(), Stuck> {
        while !octets.is_empty() {
            match self.0.write(octets) {
                Ok(0) => return Err(Stuck::Closed),
                Ok(n) => octets = &octets[n..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(deadline_ns)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Stuck::Closed),
            }
        }
        Ok(())
    }

    /// Waits until the pipe is writable or in an error state.
    fn wait(&self, deadline_ns: Nanos) -> Result<(), Stuck> {
        let left_ns = deadline_ns.saturating_sub(MonotonicClock.now());
        let left = Timespec {
            tv_sec: (left_ns / SECOND).cast_signed(),
            tv_nsec: (left_ns % SECOND).cast_signed(),
        };
        let mut ends = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::OUT)];
        match poll(&mut ends, Some(&left)) {
            Ok(0) => Err(Stuck::Deadline),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted && left_ns > 0 => Ok(()),
            Err(_) => Err(Stuck::Closed),
        }
    }
}

/// Starts a process in a process group of its own: Ctrl-C at the terminal must reach only the controller.
pub(super) fn spawn(mut command: Command) -> io::Result<(Child, ChildStdin, ChildStdout, Tail)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("no pipes"));
    };
    Ok((child, stdin, stdout, Tail::of(stderr)))
}

/// Input from the agent.
#[derive(Debug)]
pub(super) enum PipeInput {
    /// The message of a frame, and when it was read.
    Message(Vec<u8>, Nanos),
    /// The stream ended after a frame.
    End,
    /// The input is not a frame: the error and the octets received.
    Bad(FrameError, Vec<u8>),
}

/// Reads frames on a thread of its own, which ends with the stream or with the receiver.
pub(super) fn frames(end: impl Into<OwnedFd>) -> Receiver<PipeInput> {
    let (sender, news) = sync_channel(FRAMES_WAITING_MAX);
    let mut input = BufReader::new(File::from(end.into()));
    std::thread::spawn(move || {
        loop {
            let (item, is_last) = match frame::read(&mut input) {
                Ok(Some(message)) => (PipeInput::Message(message, MonotonicClock.now()), false),
                Ok(None) => (PipeInput::End, true),
                Err(error) => {
                    let mut found = error.strange();
                    found.extend(input.buffer());
                    (PipeInput::Bad(error, found), true)
                }
            };
            if sender.send(item).is_err() || is_last {
                return;
            }
        }
    });
    news
}

/// Last part of a process's standard error.
#[derive(Debug)]
pub(super) struct Tail {
    text: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Tail {
    /// Reads on a thread of its own, so that a full pipe cannot block the process.
    pub(super) fn of(end: impl Into<OwnedFd>) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let mut input = File::from(end.into());
        let kept = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut octets = [0; 1024];
            while let Ok(n) = input.read(&mut octets) {
                if n == 0 {
                    return;
                }
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&octets[..n]);
                let old = kept.len().saturating_sub(TAIL_MAX);
                kept.drain(..old);
            }
        });
        Self { text, reader }
    }

    /// Returns the last output of the process; waits up to half a second for its end.
    pub(super) fn text(&self) -> String {
        process::wait_until(SECOND / 2, || self.reader.is_finished());
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Capacity of the queue of received frames: 4 MiB at most.
const FRAMES_WAITING_MAX: usize = 4;
const TAIL_MAX: usize = 8 << 10;
