//! The connections of clients and to upstreams, on one thread with tokio.
//!
//! - [`Bound`]: listening sockets, opened before privileges are dropped;
//! - [`serve`]: passes queries of clients to workers and returns the responses, and queries upstreams;
//! - `dialogue`: one connection without socket and clock; `client` runs it over its socket;
//! - `stream`: a socket, in clear text or with TLS;
//! - `places`: chooses the connections to close if there are too many;
//! - `upstream`: queries to upstreams;
//! - [`counts`]: the counters.

mod client;
pub mod counts;
#[doc(hidden)] // For a fuzz target.
pub mod dialogue;
pub(crate) mod places;
mod stream;
mod upstream;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::ServerConnection;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, watch};

use crate::counts::Counter;
use crate::framed::Framed;
use crate::health::InForce;
use crate::inherited::Inherited;
use crate::mailbox::{GatewayMailbox, ToGateway, WorkerHandle};
use crate::proxy;
use crate::settings::Settings;
use client::Client;
use counts::GatewayCounts;
use dialogue::Closed;
use places::{Limits, Places, Refused, Standing};
use stream::Stream;
use upstream::{Upstreams, Wanted};

/// Size of the length prefix of a message in octets (RFC 1035 section 4.2.2).
const LENGTH_LEN: usize = 2;

/// Connections that may wait in the kernel; the kernel limits this to `somaxconn`, which is 4096 since Linux 5.4.
const BACKLOG: i32 = 4096;

/// Pause after the kernel refused to accept a connection, usually because no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Interval at which an idle gateway shows that its thread makes progress.
const BEAT: Duration = Duration::from_millis(500);

/// A socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address} over TCP: {reason}{}", remedy(reason))]
pub struct BindError {
    /// Its address.
    pub address: SocketAddr,
    /// Error of the kernel.
    pub reason: io::Error,
}

/// The remedy for a socket that could not be opened; empty if unknown.
pub fn remedy(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::AddrInUse => "; stop the server that has it, or choose another address",
        io::ErrorKind::PermissionDenied => {
            "; start as root or with CAP_NET_BIND_SERVICE, or choose a port from 1024 on"
        }
        io::ErrorKind::AddrNotAvailable => "; give an address of this machine, or set free-bind",
        _ => "",
    }
}

/// Listening sockets.
#[derive(Debug, Default)]
pub struct Bound {
    listeners: Vec<TcpListener>,
    /// Those for TLS.
    tls: Vec<TcpListener>,
}

impl Bound {
    /// Listens at all addresses of the settings, if TCP is enabled; at those of `inherited` sockets with them.
    ///
    /// # Errors
    ///
    /// The first address that is not available.
    pub fn open(settings: &Settings, inherited: &mut Inherited) -> Result<Self, BindError> {
        if settings.tcp.connections_max == 0 {
            return Ok(Self::default());
        }
        let mut at = |addresses: &[SocketAddr]| -> Result<Vec<_>, BindError> {
            let one = |&address| {
                let listener = listen(address, settings.free_bind, inherited);
                listener.map_err(|reason| BindError { address, reason })
            };
            addresses.iter().map(one).collect()
        };
        Ok(Self {
            listeners: at(&settings.listen)?,
            tls: at(settings.tls.as_ref().map_or(&[][..], |tls| &tls.listen[..]))?,
        })
    }

    /// The listening sockets.
    pub fn listeners(&self) -> impl Iterator<Item = &TcpListener> {
        self.listeners.iter().chain(&self.tls)
    }

    /// The listening addresses, with the actual ports if port 0 was requested; those for TLS are last.
    ///
    /// # Errors
    ///
    /// An error of the kernel.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners().map(TcpListener::local_addr).collect()
    }
}

/// Takes the non-blocking listening socket at an address, or opens one. For IPv6 it does not accept IPv4. With
/// `free_bind`, no interface needs to have the address.
///
/// # Errors
///
/// An error of the kernel.
pub fn listen(
    address: SocketAddr,
    free_bind: bool,
    inherited: &mut Inherited,
) -> io::Result<TcpListener> {
    if let Some(socket) = inherited.take(SocketType::STREAM, address).pop() {
        return Ok(socket.into());
    }
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    if free_bind {
        dns64_transport::socket::freely(&socket, address)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// The mode of the gateway, set by other threads.
#[derive(Clone, Debug)]
pub struct Mode {
    /// The settings. Open connections keep theirs.
    pub in_force: InForce,
    /// Whether new connections and queries are refused.
    pub draining: bool,
}

/// State that all connections share.
struct Shared {
    workers: Vec<WorkerHandle>,
    mode: watch::Receiver<Mode>,
    /// Destination of the responses of each connection.
    places: RefCell<Places<mpsc::Sender<Framed>>>,
    open: Cell<usize>,
    /// Connections of proxies without a complete header.
    headers: Cell<usize>,
    all_closed: Notify,
    upstreams: Upstreams,
    counts: Arc<GatewayCounts>,
}

/// Serves connections until all [`crate::mailbox::GatewayHandle`]s are dropped, and then until the last responses are
/// sent. Needs a [`tokio::task::LocalSet`].
///
/// # Errors
///
/// Tokio cannot use a socket.
pub async fn serve(
    bound: Bound,
    workers: Vec<WorkerHandle>,
    mut mailbox: GatewayMailbox,
    mode: watch::Receiver<Mode>,
    counts: Arc<GatewayCounts>,
) -> io::Result<()> {
    let shared = Rc::new(Shared {
        workers,
        mode,
        places: RefCell::default(),
        open: Cell::new(0),
        headers: Cell::new(0),
        all_closed: Notify::new(),
        upstreams: Upstreams::default(),
        counts,
    });
    let beats = Arc::clone(&shared.counts);
    tokio::task::spawn_local(async move {
        loop {
            beats.turns.tick();
            tokio::time::sleep(BEAT).await;
        }
    });
    for (listeners, tls) in [(bound.listeners, false), (bound.tls, true)] {
        for listener in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::task::spawn_local(accept(Rc::clone(&shared), listener, tls));
        }
    }
    while let Some(message) = mailbox.recv().await {
        shared.take(message);
    }
    while shared.open.get() > 0 {
        shared.all_closed.notified().await;
    }
    Ok(())
}

/// Accepts connections until the server drains.
async fn accept(shared: Rc<Shared>, listener: tokio::net::TcpListener, tls: bool) {
    let mut mode = shared.mode.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // An error means that the gateway ends.
            drained = mode.wait_for(|mode| mode.draining) => {
                drop(drained);
                return;
            }
        };
        match accepted {
            Ok((stream, peer)) => shared.admit(stream, peer, tls),
            Err(_) => {
                shared.counts.refused_system.tick();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Shared {
    /// Executes a message of a worker.
    fn take(self: &Rc<Self>, message: ToGateway) {
        match message {
            ToGateway::Reply { connection, answer } => {
                self.reply(connection >> u16::BITS, answer);
            }
            ToGateway::Ask {
                worker,
                exchange,
                server,
                tls,
                timeout_ns,
                message,
            } => upstream::ask(
                self,
                Wanted {
                    worker,
                    exchange,
                    server,
                    tls,
                    timeout_ns,
                    message,
                },
            ),
        }
    }

    fn reply(&self, number: u64, answer: Framed) {
        let places = self.places.borrow();
        let answers = places.get(number);
        if answers.is_none_or(|answers| answers.try_send(answer).is_err()) {
            self.counts.answers_unsent.tick();
        }
    }

    /// Opens a connection, one of a proxy after its header.
    fn admit(self: &Rc<Self>, mut stream: TcpStream, peer: SocketAddr, tls: bool) {
        let settings = Arc::clone(&self.mode.borrow().in_force.settings);
        if !settings.proxies.contains(peer.ip()) {
            return self.open(stream, peer, tls);
        }
        if self.headers.get() >= settings.tcp.connections_max {
            return self.counts.refused_full.tick();
        }
        self.headers.set(self.headers.get() + 1);
        let shared = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let idle = Duration::from_nanos(settings.tcp.idle_ns);
            let client = tokio::time::timeout(idle, client_of(&mut stream, peer)).await;
            shared.headers.set(shared.headers.get() - 1);
            match client {
                Ok(Some(client)) => shared.open(stream, client, tls),
                _ => shared.counts.refused_proxy.tick(),
            }
        });
    }

    /// Adds a new connection, if its client has permission and there is a place or one can be freed.
    fn open(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, tls: bool) {
        let settings = Arc::clone(&self.mode.borrow().in_force.settings);
        if !settings.allow.contains(peer.ip()) {
            self.counts.refused_access.tick();
            return;
        }
        let limits = settings.tcp;
        let places = Limits {
            total: limits.connections_max,
            network: limits.per_client_max,
        };
        let network = settings.client_prefixes.network(peer.ip());
        let now = MonotonicClock.now();
        let room = self.places.borrow_mut().make_room(network, places, now);
        match room {
            // The task of an evicted connection detects that its sender is dropped, and ends.
            Ok(evicted) => drop(evicted),
            Err(Refused::Network) => return self.counts.refused_client.tick(),
            Err(Refused::Full) => return self.counts.refused_full.tick(),
        }
        let session = match tls.then(|| session(&settings)) {
            None => None,
            Some(Some(session)) => Some(session),
            Some(None) => return self.counts.refused_system.tick(),
        };
        self.counts.accepted.tick();
        // Each pending query adds at most one message, so this is never full.
        let (sender, answers) = mpsc::channel(limits.pipeline_max.max(1));
        let number = self.places.borrow_mut().take(network, now, sender);
        self.set_open(self.open.get() + 1);
        let client = Client {
            number,
            peer,
            tls,
            answers,
            shared: Rc::clone(self),
        };
        let shared = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let reason = client.serve(Stream::new(stream, session)).await;
            shared.close(number, reason);
        });
    }

    /// Records the state of a connection.
    fn stand(&self, number: u64, standing: Standing) {
        self.places.borrow_mut().stand(number, standing);
    }

    fn close(&self, number: u64, reason: Closed) {
        self.places.borrow_mut().release(number);
        self.closed(reason).tick();
        self.set_open(self.open.get() - 1);
        if self.open.get() == 0 {
            self.all_closed.notify_one();
        }
    }

    fn set_open(&self, open: usize) {
        self.open.set(open);
        self.counts.open.set(open as u64);
    }

    fn closed(&self, reason: Closed) -> &Counter {
        match reason {
            Closed::Client => &self.counts.closed_client,
            Closed::Idle => &self.counts.closed_idle,
            Closed::Unread => &self.counts.closed_unread,
            Closed::Unanswered => &self.counts.closed_unanswered,
            Closed::Format => &self.counts.closed_format,
            Closed::Tls => &self.counts.closed_tls,
            Closed::Full => &self.counts.closed_full,
            Closed::Drain => &self.counts.closed_drain,
        }
    }
}

/// The client of a connection, by the header that a proxy sends first; `None`: it is invalid, or the connection ends.
async fn client_of(stream: &mut TcpStream, proxy: SocketAddr) -> Option<SocketAddr> {
    let mut fixed = [0; proxy::FIXED_LEN];
    stream.read_exact(&mut fixed).await.ok()?;
    let mut rest = vec![0; proxy::rest_len(&fixed)?];
    stream.read_exact(&mut rest).await.ok()?;
    proxy::client(&fixed, &rest, proxy)
}

/// The session of a new connection; `None` if the system has no memory or random numbers for it.
fn session(settings: &Settings) -> Option<rustls::Connection> {
    let certificate = settings.tls.as_ref()?.certificate.as_ref()?;
    let session = ServerConnection::new(Arc::clone(certificate.sessions()));
    Some(session.ok()?.into())
}

#[cfg(test)]
mod tests;
