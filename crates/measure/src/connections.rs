//! TCP connections of clients, served by one thread within fixed bounds. The thread sleeps while idle, because it
//! shares a machine with a measurement.

pub mod tls;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ServerConfig;

use tls::Session;

/// Timeout of a connection: the client must have sent its request and read the response within this time. RFC 7766
/// section 6.2.3 suggests "a few seconds"; browsers open connections in advance and leave them idle.
pub const PATIENCE_NS: Nanos = 5 * SECOND;

/// Pause after the kernel refused a connection, mostly because no descriptors are left.
const ACCEPT_PAUSE: Nanos = SECOND / 10;

/// Maximum number of octets per read.
const PIECE: usize = 4096;

/// Next step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for more input.
    Wait,
    /// A request was answered; the timeout restarts.
    Again,
    /// Close when all output has been sent.
    Close,
}

/// A listener and its connections. Dropping it closes them all.
#[derive(Debug)]
pub struct ConnectionService {
    address: SocketAddr,
    /// Closing it ends the thread.
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl ConnectionService {
    /// Serves clients of `listener` on a thread called `name`, at most `most` at the same time; further clients wait in
    /// the kernel's queue. With `tls`, clients may begin with a handshake.
    ///
    /// `begin` is called on the thread. The function that it returns is called with the unconsumed input of a
    /// connection and a buffer for the output.
    ///
    /// # Errors
    ///
    /// No threads or descriptors are left.
    pub fn start<R>(
        listener: TcpListener,
        name: &str,
        most: usize,
        tls: Option<Arc<ServerConfig>>,
        begin: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<Self>
    where
        R: FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Next,
    {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = UnixStream::pair()?;
        let thread = Builder::new()
            .name(name.into())
            .spawn(move || serve(&listener, &stopped, most, tls.as_ref(), begin()))?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ConnectionService {
    fn drop(&mut self) {
        // If the thread has ended, its end is already closed, and the join returns at once.
        let _ = self.stop.shutdown(Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(
    listener: &TcpListener,
    stop: &UnixStream,
    most: usize,
    tls: Option<&Arc<ServerConfig>>,
    mut respond: impl FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Next,
) {
    let mut connections: Vec<Connection> = Vec::new();
    while let Some(ready) = wait(listener, stop, most, &connections) {
        let now = MonotonicClock.now();
        let mut is_ready = ready.iter();
        connections.retain_mut(|connection| {
            let goes_on = match is_ready.next() {
                Some(true) => connection.step(tls, &mut respond, now),
                _ => Ok(true),
            };
            // An error of a connection concerns only its client.
            goes_on.unwrap_or_else(|error| is_for_later(&error)) && now < connection.until
        });
        if is_ready.next() == Some(&true) {
            let room = most - connections.len();
            let accepted = std::iter::from_fn(|| accept(listener, now));
            connections.extend(accepted.take(room));
        }
    }
}

/// Waits until a connection is ready or times out. Returns for each connection whether it is ready, then the same for
/// the listener if another connection is allowed; `None` at the end of the service.
fn wait(
    listener: &TcpListener,
    stop: &UnixStream,
    most: usize,
    connections: &[Connection],
) -> Option<Vec<bool>> {
    let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
    fds.extend(connections.iter().map(Connection::awaits));
    if connections.len() < most {
        fds.push(PollFd::new(listener, PollFlags::IN));
    }
    let first = connections.iter().map(|connection| connection.until).min();
    let span = first.map(|until| until.saturating_sub(MonotonicClock.now()));
    let timeout = span.map(|span| Timespec {
        tv_sec: (span / SECOND).cast_signed(),
        tv_nsec: (span % SECOND).cast_signed(),
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        // Polling failed; a busy loop would take a core from a trial.
        Err(_) => return None,
    }
    let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
    let goes_on = ready.next() == Some(false);
    goes_on.then(|| ready.collect())
}

fn accept(listener: &TcpListener, now: Nanos) -> Option<Connection> {
    let accepted = listener.accept().and_then(|(stream, _)| {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    });
    match accepted {
        Ok(stream) => Some(Connection {
            stream,
            session: None,
            is_new: true,
            input: Vec::new(),
            answers: Vec::new(),
            output: Vec::new(),
            is_closing: false,
            until: now + PATIENCE_NS,
        }),
        Err(error) => {
            // No descriptors are left, or the connection is already closed: later ones may succeed.
            if !is_for_later(&error) {
                MonotonicClock.sleep(ACCEPT_PAUSE);
            }
            None
        }
    }
}

struct Connection {
    stream: TcpStream,
    session: Option<Session>,
    /// Nothing has been read.
    is_new: bool,
    input: Vec<u8>,
    /// Answers that are not in the output yet.
    answers: Vec<u8>,
    /// Unsent output; nothing is read meanwhile.
    output: Vec<u8>,
    is_closing: bool,
    /// Time at which it is closed.
    until: Nanos,
}

impl Connection {
    fn awaits(&self) -> PollFd<'_> {
        let what = match self.output.is_empty() {
            true => PollFlags::IN,
            false => PollFlags::OUT,
        };
        PollFd::new(&self.stream, what)
    }

    /// Proceeds without blocking, by one read. Returns whether the connection stays open.
    fn step(
        &mut self,
        tls: Option<&Arc<ServerConfig>>,
        respond: &mut impl FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Next,
        now: Nanos,
    ) -> io::Result<bool> {
        if self.output.is_empty() {
            let mut piece = [0; PIECE];
            let taken = self.stream.read(&mut piece)?;
            if taken == 0 {
                return Ok(false);
            }
            self.take(&piece[..taken], tls)?;
        }
        loop {
            // The responses to all queries that have arrived leave in one call.
            let mut waits = false;
            while !waits && !self.is_closing && self.answers.len() < PIECE {
                match respond(&mut self.input, &mut self.answers) {
                    Next::Wait => waits = true,
                    Next::Again => self.until = now + PATIENCE_NS,
                    Next::Close => self.is_closing = true,
                }
            }
            self.put_answers()?;
            while !self.output.is_empty() {
                let sent = self.stream.write(&self.output)?;
                self.output.drain(..sent);
            }
            if waits || self.is_closing {
                return Ok(!self.is_closing);
            }
        }
    }

    /// Appends what these octets hold to the input.
    fn take(&mut self, octets: &[u8], tls: Option<&Arc<ServerConfig>>) -> io::Result<()> {
        if let Some(tls) = tls.filter(|_| std::mem::take(&mut self.is_new)) {
            self.session = Session::of(tls, octets)?;
        }
        match &mut self.session {
            Some(session) => session.open(octets, &mut self.input),
            None => {
                self.input.extend_from_slice(octets);
                Ok(())
            }
        }
    }

    /// Moves the answers to the output.
    fn put_answers(&mut self) -> io::Result<()> {
        if let Some(session) = &mut self.session {
            session.seal(&self.answers, &mut self.output)?;
            self.answers.clear();
        } else {
            self.output.append(&mut self.answers);
        }
        Ok(())
    }
}

/// Returns whether the operation may succeed when the socket is next ready.
fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn connection_beyond_the_limit_is_served_when_another_ends() {
        let most = 2;
        let echo = |input: &mut Vec<u8>, output: &mut Vec<u8>| match input.is_empty() {
            true => Next::Wait,
            false => {
                output.append(input);
                Next::Again
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = ConnectionService::start(listener, "echo", most, None, move || echo).unwrap();
        let ask = || {
            let mut stream = TcpStream::connect(service.address()).unwrap();
            let timeout = Some(Duration::from_secs(10));
            stream.set_read_timeout(timeout).unwrap();
            stream.write_all(b"?").unwrap();
            stream
        };
        let mut served: Vec<_> = (0..most).map(|_| ask()).collect();
        for stream in &mut served {
            stream.read_exact(&mut [0; 1]).unwrap();
        }
        let mut beyond = ask();
        beyond.set_nonblocking(true).unwrap();
        let error = beyond.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        beyond.set_nonblocking(false).unwrap();
        drop(served.pop());
        beyond.read_exact(&mut [0; 1]).unwrap();
    }
}
