//! The authority over TCP (RFC 7766), for the few who ask that way: resolvers after a truncated
//! answer, and people with `dig +tcp`. One thread serves all connections; it sleeps while there is
//! nothing to do, because it shares a machine with a measurement.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::answer::{Authority, REPLY_LEN_MAX, Transport, ZoneConfig};
use super::counts::AuthorityCounts;

/// Connections that are served at the same time. Further ones wait in the kernel's queue until one
/// ends, at the latest after [`IDLE_NS`] without a query.
pub const CONNECTIONS_MAX: usize = 64;

/// A connection is closed when the next query is not there, whole, after this time. RFC 7766
/// section 6.2.3 asks for "a few seconds".
pub const IDLE_NS: Nanos = 5 * SECOND;

/// How long nobody is served after the kernel refused a connection, mostly for want of descriptors.
const ACCEPT_PAUSE: Nanos = SECOND / 20;

/// Octets that are read at once; a connection keeps at most these and one query.
const PIECE: usize = 4096;

/// An authority that listens for TCP connections. Dropping it closes them all.
#[derive(Debug)]
pub struct TcpService {
    address: SocketAddr,
    authority: Arc<Mutex<Authority>>,
    /// Closed to end the thread.
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl TcpService {
    /// Listens at `listen` in the network that the calling thread is in, and serves from now on.
    pub fn open(listen: SocketAddr, config: ZoneConfig) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = UnixStream::pair()?;
        let authority = Arc::new(Mutex::new(Authority::new(config)));
        let shared = Arc::clone(&authority);
        let serve = move || serve(&listener, &stopped, &shared);
        Ok(Self {
            address,
            authority,
            stop,
            thread: Some(Builder::new().name("tcp".into()).spawn(serve)?),
        })
    }

    /// Where it listens; tells the port if 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What it has counted so far.
    pub fn counts(&self) -> AuthorityCounts {
        locked(&self.authority).counts()
    }
}

impl Drop for TcpService {
    fn drop(&mut self) {
        // A thread that has ended has closed its end already, and nothing is left to wait for.
        let _ = self.stop.shutdown(Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The counters are sound after a panic elsewhere: each is one addition.
fn locked(authority: &Mutex<Authority>) -> MutexGuard<'_, Authority> {
    authority.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves whoever comes to `listener`, which does not block, until the other end of `stop` closes.
fn serve(listener: &TcpListener, stop: &UnixStream, authority: &Mutex<Authority>) {
    let mut connections: Vec<Connection> = Vec::new();
    while let Some(ready) = wait(listener, stop, &connections) {
        let now = MonotonicClock.now();
        let mut is_ready = ready.iter();
        connections.retain_mut(|connection| {
            let step = match is_ready.next() {
                Some(true) => connection.step(authority, now),
                _ => Ok(()),
            };
            // However a connection ends, it is the other side's matter.
            step.map_or_else(|error| is_for_later(&error), |()| true) && now < connection.until
        });
        if is_ready.next() == Some(&true) {
            connections.extend(accept(listener, now));
        }
    }
}

/// Waits until somebody can go on or has been idle for too long. Says of each connection, and then
/// of the listener where another connection is welcome, whether it can; nothing once it is over.
fn wait(
    listener: &TcpListener,
    stop: &UnixStream,
    connections: &[Connection],
) -> Option<Vec<bool>> {
    let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
    fds.extend(connections.iter().map(Connection::awaits));
    if connections.len() < CONNECTIONS_MAX {
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
        // It cannot wait any more; without waiting it would take a core from a trial.
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
            input: Vec::new(),
            output: Vec::new(),
            until: now + IDLE_NS,
        }),
        Err(error) => {
            // Out of descriptors, or a connection that is gone already: later ones may work.
            if !is_for_later(&error) {
                MonotonicClock.sleep(ACCEPT_PAUSE);
            }
            None
        }
    }
}

/// A client.
struct Connection {
    stream: TcpStream,
    /// Queries, the last one perhaps not whole.
    input: Vec<u8>,
    /// What is not sent yet of a reply; nothing is read meanwhile.
    output: Vec<u8>,
    /// When it is closed unless there is another query.
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

    /// Goes on as far as it can without waiting, by one piece of input.
    ///
    /// # Errors
    ///
    /// The connection is to be closed, or [`is_for_later`].
    fn step(&mut self, authority: &Mutex<Authority>, now: Nanos) -> io::Result<()> {
        self.answer(authority, now)?;
        let mut piece = [0; PIECE];
        match self.stream.read(&mut piece)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            octets => self.input.extend_from_slice(&piece[..octets]),
        }
        self.answer(authority, now)
    }

    /// Answers the queries that are there, until one gets no reply.
    fn answer(&mut self, authority: &Mutex<Authority>, now: Nanos) -> io::Result<()> {
        loop {
            while !self.output.is_empty() {
                let sent = self.stream.write(&self.output)?;
                self.output.drain(..sent);
            }
            let Some((len, rest)) = self.input.split_first_chunk() else {
                return Ok(());
            };
            let len = usize::from(u16::from_be_bytes(*len));
            let Some(query) = rest.get(..len) else {
                return Ok(());
            };
            let mut reply = [0; REPLY_LEN_MAX];
            let reply_len = locked(authority).answer(query, &mut reply, Transport::Tcp);
            if reply_len == 0 {
                return Err(ErrorKind::InvalidData.into());
            }
            // In one piece: some clients take a length alone for an error (RFC 7766 section 8).
            let prefix = u16::try_from(reply_len).map_err(io::Error::other)?;
            self.output.extend(prefix.to_be_bytes());
            self.output.extend(&reply[..reply_len]);
            self.input.drain(..2 + len);
            self.until = now + IDLE_NS;
        }
    }
}

/// Whether the same may work the next time that the socket is ready.
fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::namespace::{Share, Zone};

    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\
        \x0f192-000-002-001\x09dns64perf\x04test\0\0\x01\0\x01";

    fn service() -> TcpService {
        let config = ZoneConfig {
            zone: Zone {
                suffix: "dns64perf.test".parse().unwrap(),
                aaaa_share: Share::NONE,
            },
            self_test: false,
            ttl_s: 60,
            negative_ttl_s: 60,
        };
        TcpService::open("127.0.0.1:0".parse().unwrap(), config).unwrap()
    }

    fn connect(service: &TcpService) -> TcpStream {
        let stream = TcpStream::connect(service.local_addr()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
    }

    fn framed(query: &[u8]) -> Vec<u8> {
        let len = u16::try_from(query.len()).unwrap();
        [&len.to_be_bytes(), query].concat()
    }

    fn read_reply(stream: &mut TcpStream) -> Vec<u8> {
        let mut len = [0; 2];
        stream.read_exact(&mut len).unwrap();
        let mut reply = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut reply).unwrap();
        reply
    }

    #[test]
    fn several_queries_of_one_connection_are_answered_however_they_are_cut() {
        let service = service();
        let mut stream = connect(&service);
        let two = [framed(QUERY), framed(QUERY)].concat();
        stream.write_all(&two[..1]).unwrap();
        stream.write_all(&two[1..70]).unwrap();
        stream.write_all(&two[70..]).unwrap();
        let expected = b"\x12\x34\x85\0\0\x01\0\x01\0\0\0\0\
            \x0f192-000-002-001\x09dns64perf\x04test\0\0\x01\0\x01\
            \xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01";
        assert_eq!(read_reply(&mut stream), expected);
        assert_eq!(read_reply(&mut stream), expected);
        let expected = AuthorityCounts {
            a: 2,
            answered: 2,
            tcp: 2,
            ..AuthorityCounts::default()
        };
        assert_eq!(service.counts(), expected);
    }

    #[test]
    fn what_gets_no_reply_ends_its_connection_and_no_other() {
        let service = service();
        let mut bystander = connect(&service);
        let mut stream = connect(&service);
        stream.write_all(b"\0\0").unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        bystander.write_all(&framed(QUERY)).unwrap();
        assert_eq!(read_reply(&mut bystander).len(), QUERY.len() + 16);
        assert_eq!(service.counts().ignored, 1);
    }

    #[test]
    fn a_connection_beyond_the_bound_is_served_when_another_ends() {
        let service = service();
        let ask = || {
            let mut stream = connect(&service);
            stream.write_all(&framed(QUERY)).unwrap();
            stream
        };
        let mut served: Vec<_> = (0..CONNECTIONS_MAX).map(|_| ask()).collect();
        for stream in &mut served {
            read_reply(stream);
        }
        let mut beyond = ask();
        beyond.set_nonblocking(true).unwrap();
        assert!(is_for_later(&beyond.read(&mut [0; 1]).unwrap_err()));
        beyond.set_nonblocking(false).unwrap();
        drop(served.pop());
        read_reply(&mut beyond);
        assert_eq!(service.counts().tcp, CONNECTIONS_MAX as u64 + 1);
    }

    #[test]
    fn dropping_the_service_closes_connections_and_frees_the_port() {
        let service = service();
        let addr = service.local_addr();
        let mut stream = connect(&service);
        stream.write_all(&framed(QUERY)).unwrap();
        read_reply(&mut stream);
        drop(service);
        assert!(!matches!(stream.read(&mut [0; 1]), Ok(1..)));
        assert!(TcpStream::connect(addr).is_err());
    }
}
