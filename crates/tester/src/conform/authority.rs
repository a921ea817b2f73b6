//! The authority of the cases at its sockets: UDP and TCP, a thread each and one for each connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use dns64_transport::clock::{MonotonicClock, Nanos};
use dns64_transport::socket::drops;
use domain::base::iana::{Rcode, Rtype};

use super::query::Query;
use super::script::{Outgoing, Script, empty, question};
use super::text::{self, Owned};
use crate::authority::REPLY_LEN_MAX;
use crate::authority::answer::{Authority as Names, NEGATIVE_TTL_DEFAULT_S, TTL_DEFAULT_S};
use crate::authority::zone::ZoneConfig;
use crate::lab::{Blame, LabError};
use crate::load::transport::Protocol;
use crate::machine::network::Network;
use crate::namespace::Zone;

/// The runs that are under way.
#[derive(Debug)]
pub(super) struct Runs {
    suffix: Owned,
    scripts: RwLock<Vec<Arc<Script>>>,
    /// For the names of a load.
    names: Mutex<Names>,
    /// Whether one was asked for.
    loaded: AtomicBool,
    /// Source ports and IDs of the questions, while they are noted.
    sources: Mutex<Option<Vec<(u16, u16)>>>,
}

/// Questions that are noted.
const SOURCES_MAX: usize = 1 << 14;

impl Runs {
    /// None yet; their names are below `suffix`.
    pub(super) fn new(suffix: Owned) -> Self {
        Self {
            names: Mutex::new(names(&suffix)),
            loaded: AtomicBool::default(),
            suffix,
            scripts: RwLock::default(),
            sources: Mutex::default(),
        }
    }

    /// A query that every server answers, and that no case counts.
    pub(super) fn control(&self) -> Query {
        Query::plain(&self.suffix, Rtype::TXT)
    }

    /// Begins a run.
    pub(super) fn begin(&self, script: &Arc<Script>) {
        let mut scripts = self.scripts.write().unwrap_or_else(PoisonError::into_inner);
        scripts.push(Arc::clone(script));
    }

    /// Ends it: its names are refused from now on.
    pub(super) fn end(&self, script: &Arc<Script>) {
        let mut scripts = self.scripts.write().unwrap_or_else(PoisonError::into_inner);
        scripts.retain(|it| !Arc::ptr_eq(it, script));
    }

    /// Begins to note source ports and IDs.
    pub(super) fn watch(&self) {
        *self.sources.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    }

    /// Those of the questions over UDP since then.
    pub(super) fn watched(&self) -> Vec<(u16, u16)> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.take().unwrap_or_default()
    }

    fn note(&self, from: SocketAddr, question: &[u8]) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(sources), Some(id)) = (&mut *sources, question.first_chunk::<2>())
            && sources.len() < SOURCES_MAX
        {
            sources.push((from.port(), u16::from_be_bytes(*id)));
        }
    }

    /// Whether a name of a load was asked for since the last call.
    pub(super) fn take_loaded(&self) -> bool {
        self.loaded.swap(false, Ordering::Relaxed)
    }

    /// The answer to a query for a name of the load, if it is one.
    fn of_load(&self, query: &[u8], tcp: bool) -> Option<Outgoing> {
        let mut octets = vec![0; REPLY_LEN_MAX];
        let protocol = if tcp { Protocol::Tcp } else { Protocol::Udp };
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = names.answer(query, &mut octets, protocol);
        octets.truncate(answered.len);
        answered.asked.map(|_| {
            self.loaded.store(true, Ordering::Relaxed);
            Outgoing::of(octets)
        })
    }

    /// The answers to a query.
    pub(super) fn respond(&self, query: &[u8], tcp: bool) -> Vec<Outgoing> {
        let scripts = self.scripts.read().unwrap_or_else(PoisonError::into_inner);
        let Some((name, _)) = question(query) else {
            return Vec::new();
        };
        let script = scripts.iter().find(|it| it.knows(&name)).cloned();
        let is_above = scripts.iter().any(|it| it.is_below(&name));
        drop(scripts);
        match script {
            Some(script) => script.respond(query, tcp),
            // Such as a parent that is asked for its keys or servers.
            None if is_above || self.suffix.ends_with(&name) => vec![empty(query, Rcode::NOERROR)],
            None => {
                let answer = self.of_load(query, tcp);
                vec![answer.unwrap_or_else(|| empty(query, Rcode::REFUSED))]
            }
        }
    }
}

/// The zone of a load with the suffix of the cases.
pub(super) fn zone(suffix: &str) -> Zone {
    let zone = Zone::default();
    Zone {
        suffix: suffix.parse().unwrap_or(zone.suffix),
        ..zone
    }
}

/// The authority of trials.
fn names(suffix: &Owned) -> Names {
    let zone = zone(&text::dotted(suffix));
    Names::new(ZoneConfig {
        zone,
        self_test: false,
        ttl_s: TTL_DEFAULT_S,
        negative_ttl_s: NEGATIVE_TTL_DEFAULT_S,
    })
}

/// A running authority. Dropping it ends its threads.
#[derive(Debug)]
pub(super) struct Authority {
    end: Arc<AtomicBool>,
    /// That of the zone, and another one.
    ports: Arc<[UdpSocket; 2]>,
    threads: Vec<JoinHandle<()>>,
}

/// How often its threads look whether they shall end.
const POLL: Duration = Duration::from_millis(50);

/// Longest time that a connection is idle.
const IDLE: Duration = Duration::from_secs(10);

impl Authority {
    /// Opens its sockets in a network and answers there.
    ///
    /// # Errors
    ///
    /// The address is not of this network, in use, or below 1024 without permission.
    pub(super) fn serve(
        runs: &Arc<Runs>,
        network: &Network,
        listen: SocketAddr,
    ) -> Result<Self, LabError> {
        let open = || -> io::Result<_> {
            let udp = UdpSocket::bind(listen)?;
            udp.set_read_timeout(Some(POLL))?;
            let other = UdpSocket::bind((listen.ip(), 0))?;
            let tcp = TcpListener::bind(listen)?;
            tcp.set_nonblocking(true)?;
            Ok((udp, other, tcp))
        };
        let (udp, other, tcp) = network.enter(open)?.map_err(Blame::Machine.because(format!(
            "the authority cannot listen at {listen} on {network}; stop the program that does, or use another address"
        )))?;
        let end = Arc::new(AtomicBool::new(false));
        let ports = Arc::new([udp, other]);
        let datagrams = {
            let (runs, ports, end) = (Arc::clone(runs), Arc::clone(&ports), Arc::clone(&end));
            std::thread::spawn(move || datagrams(&runs, &ports, &end))
        };
        let connections = {
            let (runs, end) = (Arc::clone(runs), Arc::clone(&end));
            std::thread::spawn(move || connections(&runs, &tcp, &end))
        };
        Ok(Self {
            end,
            ports,
            threads: vec![datagrams, connections],
        })
    }

    /// Questions that it has lost so far, because they came faster than it answers; 0 if the kernel does not tell.
    pub(super) fn lost(&self) -> u64 {
        drops(&self.ports[0]).unwrap_or_default()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }
}

fn datagrams(runs: &Runs, ports: &Arc<[UdpSocket; 2]>, end: &AtomicBool) {
    let mut buffer = [0; 4096];
    while !end.load(Ordering::Relaxed) {
        let Ok((length, from)) = ports[0].recv_from(&mut buffer) else {
            continue;
        };
        runs.note(from, &buffer[..length]);
        for answer in runs.respond(&buffer[..length], false) {
            let ports = Arc::clone(ports);
            after(answer.delay_ns, move || {
                // The client may have gone.
                let port = &ports[usize::from(answer.other_port)];
                let _ = port.send_to(&answer.octets, from);
            });
        }
    }
}

/// Does it at once, or later on a thread.
fn after(delay_ns: Nanos, work: impl FnOnce() + Send + 'static) {
    match delay_ns {
        0 => work(),
        delay_ns => drop(std::thread::spawn(move || {
            MonotonicClock.sleep(delay_ns);
            work();
        })),
    }
}

fn connections(runs: &Arc<Runs>, listener: &TcpListener, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                let runs = Arc::clone(runs);
                // It ends with the connection, or when that is idle.
                std::thread::spawn(move || connection(&runs, stream));
            }
            Err(_) => MonotonicClock.sleep(ACCEPT_NS),
        }
    }
}

/// Time between two looks for connections.
const ACCEPT_NS: Nanos = 1_000_000;

fn connection(runs: &Runs, mut stream: TcpStream) -> Option<()> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(IDLE)).ok()?;
    loop {
        let query = framed(&mut stream).ok()?;
        for answer in runs.respond(&query, true) {
            MonotonicClock.sleep(answer.delay_ns);
            stream.write_all(&frame(&answer.octets)).ok()?;
        }
    }
}

/// Reads a message of a connection (RFC 1035 section 4.2.2).
pub(super) fn framed(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// A message with its length in front.
pub(super) fn frame(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), message].concat()
}
