//! Sockets, privileges, the sandbox and threads, in this order.

use std::io;
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos};
use dns64_transport::socket;
use nix::unistd::User;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::runtime;
use tokio::sync::{Notify, watch};
use tokio::task::{LocalSet, spawn_local};

use super::relays::{self, AnyRelay};
use super::sandbox::{self, Sandbox};
use super::server::{Event, Server, warn_missing};
use super::watchdog::Watchdog;
use super::{DaemonError, Source, Thread, directory, notify, privileges, take_over};
use crate::cache::{Cache, Outlet};
use crate::control::{self, Offer, Predecessor, Socket};
use crate::counts::Counts;
use crate::dnstap;
use crate::driver::{Driver, Inbox, Keeper};
use crate::engine::rate_limit::RateLimiter;
use crate::engine::{Engine, Seeds};
use crate::gateway::counts::GatewayCounts;
use crate::gateway::{self, Bound, Mode};
use crate::health::InForce;
use crate::log::Lowest;
use crate::mailbox::{GatewayHandle, GatewayMailbox, ToWorker, WorkerHandle};
use crate::metrics::{self, Page};
use crate::nat64;
use crate::settings::{PORTS_LEFT_MIN, Settings, ports_left};
use crate::stats::Stats;
use crate::worker::THREAD;
use crate::worker::supervise::WorkerError;

/// All sockets of the server.
pub(super) struct Opened {
    relays: Vec<AnyRelay>,
    tcp: Bound,
    driver: Option<(Arc<Driver>, Inbox)>,
    control: Option<Socket>,
    metrics: Option<TcpListener>,
    /// Copies of all that listen, for another process; empty if it cannot take over from this one.
    copies: Arc<Vec<OwnedFd>>,
    predecessor: Option<Predecessor>,
    sandbox: Sandbox,
}

impl Opened {
    /// Opens the sockets, or takes those of the running server, and drops the privileges that this needed. The control
    /// socket needs none and is opened after the change of user, so it cannot affect files of other users. Threads
    /// inherit the privileges of the thread that starts them, so no other thread may exist yet.
    ///
    /// # Errors
    ///
    /// The first socket that is not available, or the user.
    pub(super) fn open(
        source: &Source,
        settings: &mut Settings,
        take_over: bool,
    ) -> Result<Self, DaemonError> {
        allow_source_ports(settings)?;
        let (predecessor, mut inherited) = match take_over {
            true => take_over::predecessor(settings)?,
            false => Default::default(),
        };
        settings.reserved_ports = reserved_ports(RESERVED_PORTS, &settings.avoid_ports);
        let user = settings.user.as_deref().map(privileges::find).transpose()?;
        // TCP first: unlike UDP it reports that another server uses the address.
        let tcp = Bound::open(settings, &mut inherited)?;
        let mut relays = relays::open(settings, &mut inherited)?;
        relays::warn(&mut relays);
        warn_missing(settings);
        let driver = match settings.driver_cache.as_slice() {
            [] => None,
            interfaces => Some(Driver::open(interfaces)?),
        };
        let metrics = settings.metrics.map(|address| {
            gateway::listen(address, false, &mut inherited)
                .map_err(|reason| DaemonError::Metrics { address, reason })
        });
        let metrics = metrics.transpose()?;
        drop_privileges(user.as_ref(), settings)?;
        let control = settings.control.as_deref();
        let control = control.map(|path| match inherited.take_unix() {
            Some(listener) => Ok(Socket::inherited(listener)),
            None => Socket::open(path),
        });
        let control = control.transpose()?;
        take_over::warn_left(&inherited);
        let copies = match driver {
            None => take_over::copies(&mut relays, &tcp, metrics.as_ref(), control.as_ref())
                .map_err(started("the copies of the sockets"))?,
            Some(_) => Vec::new(),
        };
        let sandbox = match settings.sandbox {
            true => sandbox::enter(source, settings),
            false => Sandbox::OFF,
        };
        Ok(Self {
            relays,
            tcp,
            driver,
            control,
            metrics,
            copies: Arc::new(copies),
            predecessor,
            sandbox,
        })
    }

    /// Starts all threads.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub(super) fn start(
        self,
        source: Source,
        settings: Settings,
        begun: Nanos,
        log_level: Lowest,
    ) -> Result<Server, DaemonError> {
        let mut in_force = InForce::new(settings);
        start_dnstap(&mut in_force)?;
        let (sender, events) = channel();
        watch_panics(sender.clone());
        spawn_signals(sender.clone())?;
        let (gateway, mailbox) = GatewayHandle::new();
        // Any worker accepts a cookie of any other.
        let cookies = rand::random();
        let limiter = Arc::new(RateLimiter::new(rand::random()));
        let (workers, mailboxes) = mailboxes(&self.relays);
        let af_xdp = relays::attached(&self.relays);
        let (driver, mut stats) = start_cache(self.driver, &in_force.settings)?;
        let old = self.predecessor.as_ref();
        take_over::warm(&stats.cache, &in_force.settings.cache, old);
        let others: Arc<[_]> = workers.as_slice().into();
        for (index, (relay, mailbox)) in self.relays.into_iter().zip(mailboxes).enumerate() {
            let counts = Arc::default();
            stats.workers.push(Arc::clone(&counts));
            let shared = (workers.len() > 1).then(|| (index, Arc::clone(&limiter)));
            let renew = engines(Arc::clone(&stats.cache), counts, cookies, shared);
            let (in_force, others, gateway) = (in_force.clone(), others.clone(), gateway.clone());
            let thread = relay.spawn(index, in_force, mailbox, others, gateway, renew);
            let thread = thread.map_err(started("a worker"))?;
            watch_worker(index, thread, sender.clone())?;
        }
        let (mode, seen) = watch::channel(Mode {
            in_force: in_force.clone(),
            draining: false,
        });
        let (control, control_file) = self.control.map(Socket::into_parts).unzip();
        let page = |socket| (socket, Page::new(stats.clone(), seen.clone(), begun));
        let network = Network {
            tcp: self.tcp,
            workers: workers.clone(),
            mailbox,
            counts: Arc::clone(&stats.gateway),
            control,
            copies: Arc::downgrade(&self.copies),
            cache: Arc::clone(&stats.cache),
            metrics: self.metrics.map(page),
            mode: seen,
        };
        spawn_network(network, sender)?;
        ready(&in_force.settings);
        let file = self.predecessor.map(Predecessor::replace);
        Ok(Server {
            source,
            in_force,
            workers,
            mode,
            events,
            stats,
            driver,
            af_xdp,
            begun,
            sandbox: self.sandbox,
            watchdog: watchdog(),
            log_level,
            copies: self.copies,
            control_file: file.or(control_file.flatten()),
        })
    }
}

/// Starts the thread that sends responses to other programs, if any gets them.
fn start_dnstap(in_force: &mut InForce) -> Result<(), DaemonError> {
    if let Some(path) = &in_force.settings.log.dnstap {
        let (tap, writer) = dnstap::channel(path);
        spawn("dnstap", || writer.run())?;
        in_force.tap = Some(tap);
    }
    Ok(())
}

/// Becomes the user of the settings, with the directory of its control socket, and drops all capabilities.
fn drop_privileges(user: Option<&User>, settings: &Settings) -> Result<(), DaemonError> {
    match (user, privileges::is_root()) {
        (Some(user), true) => {
            if let Some(path) = &settings.control {
                // If the directory is still missing, opening the socket reports it.
                let _ = directory::make_for(user, path);
            }
            privileges::become_user(user)?;
        }
        (Some(user), false) => {
            tracing::info!(
                "not started as root: the key user, {}, has no effect",
                user.name
            );
        }
        (None, true) => {
            tracing::warn!("running as root: set user to an unprivileged user");
        }
        (None, false) => {}
    }
    if let Err(error) = privileges::drop_capabilities() {
        // A service manager may forbid even this.
        tracing::warn!("{error}");
    }
    Ok(())
}

/// Creates the cache and the counters of all its users. If there is a driver, it answers from the cache from now on.
fn start_cache(
    driver: Option<(Arc<Driver>, Inbox)>,
    settings: &Settings,
) -> Result<(Option<Arc<Driver>>, Stats), DaemonError> {
    let outlet = driver
        .as_ref()
        .map(|(driver, _)| Arc::clone(driver) as Arc<dyn Outlet>);
    let cache = Arc::new(Cache::new(&settings.cache, outlet));
    let mut stats = Stats {
        workers: Vec::new(),
        driver: None,
        cache: Arc::clone(&cache),
        gateway: Arc::default(),
    };
    let Some((driver, inbox)) = driver else {
        return Ok((None, stats));
    };
    driver.configure(settings, &cache)?;
    let counts = stats.driver.insert(Arc::default());
    let (now, counts) = (MonotonicClock.now(), Arc::clone(counts));
    let keeper = Keeper::new(Arc::clone(&driver), inbox, cache, counts, now);
    spawn("driver", || keeper.run())?;
    for (interface, mode) in driver.state().attached {
        tracing::info!("driver-cache: answering in the driver of {interface}, mode {mode}");
    }
    Ok((Some(driver), stats))
}

/// Creates the mailboxes of the workers of these relays, and the handles to them.
fn mailboxes(relays: &[AnyRelay]) -> (Vec<WorkerHandle>, Vec<Receiver<ToWorker>>) {
    let mailbox = |relay: &AnyRelay| {
        let waker = relay.waker();
        WorkerHandle::new(Arc::new(move || waker.wake()))
    };
    relays.iter().map(mailbox).unzip()
}

/// Creates the engines of one worker: the first, and one after each panic. `shared`: its index for the other workers,
/// if there are any, and their rate limiter.
fn engines(
    cache: Arc<Cache>,
    counts: Arc<Counts>,
    cookies: [u8; 16],
    shared: Option<(usize, Arc<RateLimiter>)>,
) -> impl Fn(&Settings) -> Engine + Send + 'static {
    move |settings| {
        // Numbers drawn before a panic are not drawn again.
        let random = rand::random();
        let seeds = Seeds { random, cookies };
        let engine = Engine::new(settings, Arc::clone(&cache), Arc::clone(&counts), &seeds);
        match &shared {
            Some((number, limiter)) => engine.share(*number, limiter),
            None => engine,
        }
    }
}

/// Raises the limit on open files for the source ports of the settings, or reduces their number.
fn allow_source_ports(settings: &mut Settings) -> Result<(), DaemonError> {
    let wanted = settings.workers * settings.upstreams.len() * settings.ports_per_upstream();
    let granted = socket::allow_descriptors(settings.source_ports.max(wanted))?;
    settings.source_ports = granted;
    if granted < wanted {
        tracing::warn!(
            "the limit on open files leaves {granted} of {wanted} source ports toward upstreams, which makes \
             forged answers easier: raise it to {} (LimitNOFILE= of the unit, ulimit -Hn)",
            wanted as u64 + socket::DESCRIPTORS_BESIDE
        );
    }
    Ok(())
}

/// The kernel's list of ports that it gives to no program without request.
const RESERVED_PORTS: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// Reads a list of ports and ranges of ports, as `5353,6000-6100`. A file that cannot be read is an empty list: it depends
/// on the mounted file systems. So is one that leaves too few ports beside `avoided`.
fn reserved_ports(path: &str, avoided: &[RangeInclusive<u16>]) -> Vec<RangeInclusive<u16>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    let ranges: Vec<RangeInclusive<u16>> = ranges.collect();
    let left = ports_left(&[avoided, &ranges].concat());
    if left < PORTS_LEFT_MIN {
        tracing::warn!(
            "{path} and avoid-ports leave {left} ports above 1023, so that {path} is not honoured: must leave {PORTS_LEFT_MIN}"
        );
        return Vec::new();
    }
    ranges
}

fn started(what: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |reason| DaemonError::Start { what, reason }
}

/// Logs and reports that the server is ready.
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

/// The watchdog, if the service manager requests one.
fn watchdog() -> Option<Watchdog> {
    let limit = sd_notify::watchdog_enabled()?;
    // A limit above 584 years has the same effect.
    let limit_ns = Nanos::try_from(limit.as_nanos()).unwrap_or(Nanos::MAX);
    Some(Watchdog::new(limit_ns, MonotonicClock.now()))
}

/// Converts signals to events. The second request to stop ends the process immediately.
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

/// Logs panics. A panic of a thread other than a worker ends the server: no other thread takes over its work, and tokio
/// does not report panics of tasks.
fn watch_panics(events: Sender<Event>) {
    std::panic::set_hook(Box::new(move |panic| {
        let payload = panic.payload();
        let message = payload.downcast_ref::<&str>().copied();
        let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let place = panic.location().map(ToString::to_string);
        let (message, place) = (message.unwrap_or_default(), place.unwrap_or_default());
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        tracing::error!("thread {name} panicked at {place}: {message}");
        if !name.starts_with(THREAD) {
            let ended = Event::Ended(
                Thread::Named(name.to_owned()),
                Err("it panicked".to_owned()),
            );
            // Without a receiver the process ends anyway.
            let _ = events.send(ended);
        }
    }));
}

/// Reports the end of a worker.
fn watch_worker(
    index: usize,
    thread: JoinHandle<Result<(), WorkerError>>,
    events: Sender<Event>,
) -> Result<(), DaemonError> {
    spawn("watch", move || {
        let result = match thread.join() {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("it panicked while a panic was handled".to_owned()),
        };
        // Without a receiver the process ends anyway.
        let _ = events.send(Event::Ended(Thread::Worker(index), result));
    })
}

/// The work of the gateway's thread.
struct Network {
    tcp: Bound,
    workers: Vec<WorkerHandle>,
    mailbox: GatewayMailbox,
    mode: watch::Receiver<Mode>,
    counts: Arc<GatewayCounts>,
    control: Option<UnixListener>,
    copies: Weak<Vec<OwnedFd>>,
    cache: Arc<Cache>,
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
        let report = events.clone();
        spawn_local(nat64::watch(self.mode.clone(), move |down| {
            // Without a receiver the process ends.
            let _ = report.send(Event::Translators(down));
        }));
        // Whoever takes over has these two sockets, and answers alone.
        let replaced = Rc::new(Notify::new());
        if let Some((listener, page)) = self.metrics {
            spawn_until(Rc::clone(&replaced), metrics::serve(listener, page));
        }
        if let Some(listener) = self.control {
            let (until, report) = (Rc::clone(&replaced), events.clone());
            let (cache, mode) = (self.cache, self.mode.clone());
            let offer = Offer {
                sockets: self.copies,
                cache: Box::new(move |from| {
                    let settings = mode.borrow().in_force.settings.cache;
                    cache.records(&settings, from, MonotonicClock.now())
                }),
                replaced: Box::new(move || {
                    replaced.notify_waiters();
                    // Without a receiver the process ends.
                    let _ = report.send(Event::Replaced);
                }),
            };
            let sink = move |request, answer| {
                // Without a receiver the process ends, and the request with it.
                let _ = events.send(Event::Request(request, answer));
            };
            let serving = control::serve(listener, offer, sink);
            spawn_until(until, serving);
        }
        gateway::serve(self.tcp, self.workers, self.mailbox, self.mode, self.counts).await
    }
}

/// Starts a task that ends with the notification.
fn spawn_until(end: Rc<Notify>, serving: impl Future<Output = io::Result<()>> + 'static) {
    spawn_local(async move {
        tokio::select! {
            () = end.notified() => Ok(()),
            ended = serving => ended,
        }
    });
}

fn spawn(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<(), DaemonError> {
    let thread = Builder::new().name(name.into()).spawn(body);
    thread.map(drop).map_err(started("a thread"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ports_are_read_as_the_kernel_writes_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reserved");
        let path = path.to_str().unwrap();
        assert_eq!(reserved_ports(path, &[]), []);
        let half = 1024..=33_791;
        for (text, avoided, expected) in [
            ("\n", vec![], vec![]),
            ("5353,6000-6100\n", vec![], vec![5353..=5353, 6000..=6100]),
            // Too few are left.
            ("1024-33791\n", vec![], vec![]),
            ("53,1024-32767\n", vec![32_768..=32_768], vec![]),
            ("1024-32766\n", vec![32_767..=32_767], vec![1024..=32_766]),
            ("5353\n", vec![half], vec![]),
        ] {
            std::fs::write(path, text).unwrap();
            assert_eq!(reserved_ports(path, &avoided), expected, "{text}");
        }
    }
}
