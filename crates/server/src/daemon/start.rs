//! Sockets, privileges and threads, in this order.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use dns64_transport::LinkError;
use dns64_transport::clock::Nanos;
use dns64_transport::relay::udp::UdpRelay;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};

use super::server::{Event, Server};
use super::{DaemonError, Source, Thread, notify, privileges};
use crate::cache::Cache;
use crate::control::{self, Socket, SocketFile};
use crate::engine::{Engine, Seeds};
use crate::gateway::counts::GatewayCounts;
use crate::gateway::{self, Bound, Mode};
use crate::mailbox::{GatewayHandle, GatewayMailbox, WorkerHandle};
use crate::metrics::{self, Page};
use crate::settings::Settings;
use crate::stats::Stats;
use crate::worker;

/// All the sockets of the server.
pub(super) struct Opened {
    relays: Vec<UdpRelay>,
    tcp: Bound,
    control: Option<Socket>,
    metrics: Option<TcpListener>,
}

impl Opened {
    /// Opens them, and then gives up the privileges that it took.
    ///
    /// # Errors
    ///
    /// The first socket that cannot be had, or the user.
    pub(super) fn open(settings: &Settings) -> Result<Self, DaemonError> {
        let user = settings.user.as_deref().map(privileges::find).transpose()?;
        // TCP first: unlike UDP it tells when another server has the address.
        let tcp = Bound::open(settings)?;
        let relays = (0..settings.workers).map(|_| UdpRelay::open(&settings.listen, &[]));
        let opened = Self {
            relays: relays.collect::<Result<_, _>>()?,
            tcp,
            control: settings.control.as_deref().map(Socket::open).transpose()?,
            metrics: settings.metrics.map(open_metrics).transpose()?,
        };
        match (&user, privileges::is_root()) {
            (Some(user), true) => {
                if let Some(control) = &opened.control {
                    let given = control.give_to(user.uid.as_raw(), user.gid.as_raw());
                    given.map_err(started("the control socket"))?;
                }
                privileges::become_user(user)?;
            }
            (Some(user), false) => {
                tracing::info!(
                    "not started as root, so it does not become user {}",
                    user.name
                );
            }
            (None, true) => {
                tracing::warn!("it runs as root; set user to one that may do nothing else");
            }
            (None, false) => {}
        }
        Ok(opened)
    }

    /// Starts all threads.
    ///
    /// # Errors
    ///
    /// What the system refuses.
    pub(super) fn start(
        self,
        source: Source,
        settings: Settings,
        begun: Nanos,
    ) -> Result<Server, DaemonError> {
        let settings = Arc::new(settings);
        let (sender, events) = channel();
        spawn_signals(sender.clone())?;
        let (gateway, mailbox) = GatewayHandle::new();
        // A client's cookie is good at every worker.
        let cookies = rand::random();
        let mut workers = Vec::new();
        let cache = Arc::new(Cache::new(&settings.cache, None));
        let mut stats = Stats {
            workers: Vec::new(),
            cache: Arc::clone(&cache),
            gateway: Arc::default(),
        };
        for (index, relay) in self.relays.into_iter().enumerate() {
            let waker = relay.waker();
            let (handle, receiver) = WorkerHandle::new(Arc::new(move || waker.wake()));
            let counts = Arc::default();
            stats.workers.push(Arc::clone(&counts));
            let settings = Arc::clone(&settings);
            let seeds = Seeds {
                random: rand::random(),
                cookies,
            };
            let cache = Arc::clone(&cache);
            let engine = move |now| Engine::new(&settings, cache, counts, &seeds, now);
            let thread = worker::spawn(index, relay, receiver, gateway.clone(), engine);
            let thread = thread.map_err(started("a worker"))?;
            watch_worker(index, thread, sender.clone())?;
            workers.push(handle);
        }
        let (mode, seen) = watch::channel(Mode {
            settings: Arc::clone(&settings),
            draining: false,
        });
        let (control, control_file) = self.control.map(Socket::into_parts).unzip();
        let network = Network {
            tcp: self.tcp,
            workers: workers.clone(),
            mailbox,
            mode: seen,
            counts: Arc::clone(&stats.gateway),
            control,
            metrics: self
                .metrics
                .map(|socket| (socket, Page::new(stats.clone(), begun))),
        };
        spawn_network(network, sender)?;
        ready(&settings);
        let control_file: Option<SocketFile> = control_file;
        Ok(Server {
            source,
            settings,
            workers,
            mode,
            events,
            stats,
            begun,
            _control_file: control_file,
        })
    }
}

fn open_metrics(address: std::net::SocketAddr) -> Result<TcpListener, DaemonError> {
    gateway::listen(address).map_err(|reason| DaemonError::Metrics { address, reason })
}

fn started(what: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |reason| DaemonError::Start { what, reason }
}

/// Says that everything runs.
fn ready(settings: &Settings) {
    let listen: Vec<_> = settings.listen.iter().map(ToString::to_string).collect();
    let status = format!(
        "serving at {} with {} workers",
        listen.join(", "),
        settings.workers
    );
    tracing::info!("dns64d {} is {status}", env!("CARGO_PKG_VERSION"));
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Turns signals into events. The second one to end ends the process at once.
fn spawn_signals(events: Sender<Event>) -> Result<(), DaemonError> {
    let armed = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&armed))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&armed)))
            .map_err(started("the handling of signals"))?;
    }
    let signals = Signals::new([SIGHUP, SIGTERM, SIGINT]);
    let mut signals = signals.map_err(started("the handling of signals"))?;
    let turn = move || {
        for signal in signals.forever() {
            let event = if signal == SIGHUP {
                Event::Hangup
            } else {
                Event::Stop
            };
            if events.send(event).is_err() {
                return;
            }
        }
    };
    spawn("signals", turn)
}

/// Tells when a worker has ended.
fn watch_worker(
    index: usize,
    thread: JoinHandle<Result<(), LinkError>>,
    events: Sender<Event>,
) -> Result<(), DaemonError> {
    spawn("watch", move || {
        let result = match thread.join() {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("it panicked".to_owned()),
        };
        // Without a receiver the process ends anyway.
        let _ = events.send(Event::Ended(Thread::Worker(index), result));
    })
}

/// What runs on the thread of the gateway.
struct Network {
    tcp: Bound,
    workers: Vec<WorkerHandle>,
    mailbox: GatewayMailbox,
    mode: watch::Receiver<Mode>,
    counts: Arc<GatewayCounts>,
    control: Option<UnixListener>,
    metrics: Option<(TcpListener, Page)>,
}

fn spawn_network(network: Network, events: Sender<Event>) -> Result<(), DaemonError> {
    spawn("gateway", move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let requests = events.clone();
        let result =
            runtime.and_then(|runtime| LocalSet::new().block_on(&runtime, network.serve(requests)));
        let result = result.map_err(|error| error.to_string());
        // Without a receiver the process ends anyway.
        let _ = events.send(Event::Ended(Thread::Gateway, result));
    })
}

impl Network {
    async fn serve(self, events: Sender<Event>) -> io::Result<()> {
        if let Some(listener) = self.control {
            spawn_local(control::serve(listener, move |request, answer| {
                // Without a receiver the process ends, and the request with it.
                let _ = events.send(Event::Request(request, answer));
            }));
        }
        if let Some((listener, page)) = self.metrics {
            spawn_local(metrics::serve(listener, page));
        }
        gateway::serve(self.tcp, self.workers, self.mailbox, self.mode, self.counts).await
    }
}

fn spawn(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<(), DaemonError> {
    let thread = Builder::new().name(name.into()).spawn(body);
    thread.map(drop).map_err(started("a thread"))
}
