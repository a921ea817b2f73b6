//! The authority over TCP (RFC 7766), for the few who ask that way: resolvers after a truncated
//! answer, and people with `dig +tcp`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use rustix::net::{Shutdown, shutdown};

use super::answer::{Authority, REPLY_LEN_MAX, Transport, ZoneConfig};
use super::counts::AuthorityCounts;

/// Connections that are served at the same time, each by a thread that waits for it. Further ones
/// wait in the kernel's queue until one ends, at the latest after [`IDLE_NS`] without a query.
pub const CONNECTIONS_MAX: usize = 64;

/// A connection is closed when the next query is not there, whole, after this time. RFC 7766
/// section 6.2.3 asks for "a few seconds".
pub const IDLE_NS: Nanos = 5 * SECOND;

/// Threads look this often whether the service is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// A thread needs little more than a query and a reply on its stack.
const STACK_BYTES: usize = 256 * 1024;

/// An authority that listens for TCP connections. Dropping it closes them all.
#[derive(Debug)]
pub struct TcpService {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    listener: TcpListener,
    authority: Mutex<Authority>,
    stopping: AtomicBool,
}

impl TcpService {
    /// Listens at `listen` in the network that the calling thread is in, and serves from now on.
    pub fn open(listen: SocketAddr, config: ZoneConfig) -> io::Result<Self> {
        let mut service = Self {
            shared: Arc::new(Shared {
                listener: TcpListener::bind(listen)?,
                authority: Mutex::new(Authority::new(config)),
                stopping: AtomicBool::new(false),
            }),
            threads: Vec::with_capacity(CONNECTIONS_MAX),
        };
        for _ in 0..CONNECTIONS_MAX {
            let shared = Arc::clone(&service.shared);
            let thread = Builder::new().name("tcp".into()).stack_size(STACK_BYTES);
            service.threads.push(thread.spawn(move || shared.accept())?);
        }
        Ok(service)
    }

    /// Where it listens; tells the port if 0 was asked for.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.listener.local_addr()
    }

    /// What it has counted so far.
    pub fn counts(&self) -> AuthorityCounts {
        self.shared.authority().counts()
    }
}

impl Drop for TcpService {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // Wakes every thread that waits in accept; a listener that is gone already wakes them too.
        let _ = shutdown(&self.shared.listener, Shutdown::Both);
        for thread in self.threads.drain(..) {
            // A thread that has panicked has nothing left to wait for.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn authority(&self) -> MutexGuard<'_, Authority> {
        // The counters are sound after a panic elsewhere: each is one addition.
        self.authority
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Serves one connection after the other.
    fn accept(&self) {
        while !self.stopping() {
            match self.listener.accept() {
                // However a connection ends, it is the other side's matter.
                Ok((stream, _)) => drop(self.serve(&stream)),
                // Out of descriptors, or a connection that is gone already: later ones may work.
                Err(_) => MonotonicClock.sleep(u64::from(LOOK.subsec_nanos())),
            }
        }
    }

    /// Answers the queries of a connection until it ends, idles or sends what gets no reply.
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(Duration::from_nanos(IDLE_NS)))?;
        let mut query = Vec::new();
        let mut reply = [0; 2 + REPLY_LEN_MAX];
        loop {
            let deadline = MonotonicClock.now() + IDLE_NS;
            let mut len = [0; 2];
            self.read(stream, &mut len, deadline)?;
            query.resize(usize::from(u16::from_be_bytes(len)), 0);
            self.read(stream, &mut query, deadline)?;
            let len = self
                .authority()
                .answer(&query, &mut reply[2..], Transport::Tcp);
            if len == 0 {
                return Ok(());
            }
            let prefix = u16::try_from(len).map_err(io::Error::other)?;
            reply[..2].copy_from_slice(&prefix.to_be_bytes());
            // In one piece: some clients take a length alone for an error (RFC 7766 section 8).
            let mut writer = stream;
            writer.write_all(&reply[..2 + len])?;
        }
    }

    /// Fills `bytes` before `deadline`, in spite of read timeouts.
    fn read(&self, mut stream: &TcpStream, bytes: &mut [u8], deadline: Nanos) -> io::Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match stream.read(&mut bytes[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => filled += n,
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            if self.stopping() || MonotonicClock.now() > deadline {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
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
        let stream = TcpStream::connect(service.local_addr().unwrap()).unwrap();
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
    fn dropping_the_service_closes_connections_and_frees_the_port() {
        let service = service();
        let addr = service.local_addr().unwrap();
        let mut stream = connect(&service);
        stream.write_all(&framed(QUERY)).unwrap();
        read_reply(&mut stream);
        drop(service);
        assert!(!matches!(stream.read(&mut [0; 1]), Ok(1..)));
        assert!(TcpStream::connect(addr).is_err());
    }
}
