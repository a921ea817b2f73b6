//! The work of the main thread while the server runs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use dns64_transport::relay::Missing;
use dns64_wire::pref64::Pref64;
use sd_notify::NotifyState;
use tokio::sync::{oneshot, watch};

use super::sandbox::Sandbox;
use super::watchdog::Watchdog;
use super::{DaemonError, Source, Thread, notify};
use crate::config::{self, Loaded};
use crate::control::{
    Answer, ForwardStatus, InterfaceStatus, PrefixStatus, Request, SocketFile, Status,
    UpstreamStatus, lines, refused,
};
use crate::driver::Driver;
use crate::gateway::Mode;
use crate::health::InForce;
use crate::log::Lowest;
use crate::mailbox::{Full, ToWorker, WorkerHandle};
use crate::settings::Settings;
use crate::stats::Stats;

/// Time for queries in flight when the server shuts down: all are answered before it ends, and clients retry after the
/// same time (resolv.conf(5)).
const DRAIN_NS: Nanos = 5 * SECOND;

/// Timeout for space in a worker's mailbox. A worker frees space in each turn, which is after milliseconds even under
/// full load.
const WORKER_NS: Nanos = 5 * SECOND;

/// Interval between two attempts to put a message into a full mailbox.
const RETRY_NS: Nanos = SECOND / 200;

/// An event for the main thread.
#[derive(Debug)]
pub(super) enum Event {
    /// Reload the configuration.
    Hangup,
    /// Shut the server down.
    Stop,
    /// Another process serves with the same sockets.
    Replaced,
    /// The translators of these prefixes do not answer; those of the others do.
    Translators(Vec<Pref64>),
    /// A request from the control socket.
    Request(Request, oneshot::Sender<Answer>),
    /// A thread has ended, with its result.
    Ended(Thread, Result<(), String>),
}

/// A server with running threads.
#[derive(Debug)]
pub(super) struct Server {
    pub source: Source,
    pub in_force: InForce,
    pub workers: Vec<WorkerHandle>,
    pub mode: watch::Sender<Mode>,
    pub events: Receiver<Event>,
    pub stats: Stats,
    pub driver: Option<Arc<Driver>>,
    pub af_xdp: Vec<InterfaceStatus>,
    pub begun: Nanos,
    pub sandbox: Sandbox,
    pub watchdog: Option<Watchdog>,
    pub log_level: Lowest,
    /// Copies of the listening sockets, for another process; empty if it cannot take over.
    pub copies: Arc<Vec<OwnedFd>>,
    /// Removed with the server, unless another process has it.
    pub control_file: Option<SocketFile>,
}

impl Server {
    /// Handles signals and requests until the server is to stop, and stops it.
    ///
    /// # Errors
    ///
    /// A thread that ended unexpectedly.
    pub(super) fn supervise(mut self) -> Result<(), DaemonError> {
        loop {
            match self.next() {
                Some(Event::Hangup) => drop(self.reload()),
                Some(Event::Request(request, asker)) => {
                    let answer = self.answer(request);
                    // The client may have disconnected.
                    let _ = asker.send(answer);
                }
                Some(Event::Translators(down)) => {
                    let mut settings = Settings::clone(&self.in_force.settings);
                    settings.withdraw(&down);
                    // It has been logged.
                    let _ = self.put_in_force(settings);
                }
                Some(Event::Replaced) => {
                    tracing::info!("another process has taken over");
                    self.leave_file();
                    self.stop();
                    return Ok(());
                }
                Some(Event::Stop) | None => {
                    self.stop();
                    return Ok(());
                }
                Some(Event::Ended(thread, result)) => {
                    let reason = match result {
                        Ok(()) => "it exited unexpectedly".to_owned(),
                        Err(reason) => reason,
                    };
                    return Err(DaemonError::Ended { thread, reason });
                }
            }
        }
    }

    /// Waits for the next event, and reports to the service manager meanwhile. `None`: all threads, which hold the
    /// senders, have ended.
    fn next(&mut self) -> Option<Event> {
        let Some(watchdog) = &mut self.watchdog else {
            return self.events.recv().ok();
        };
        loop {
            let now = MonotonicClock.now();
            if watchdog.look(&self.stats.turns(), now) {
                notify(&[NotifyState::Watchdog]);
            }
            let left = Duration::from_nanos(watchdog.left(now));
            match self.events.recv_timeout(left) {
                Ok(event) => return Some(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Status => Answer::Status(Box::new(self.status())),
            Request::Stats => Answer::Stats {
                figures: self.stats.by_name(&self.in_force.settings.upstreams),
            },
            Request::Flush { name, rtype } => self.flush(name.as_deref(), rtype.as_deref()),
            Request::Reload => self.reload(),
            Request::Lookup {
                name,
                rtype,
                client,
            } => self.lookup(&name, rtype.as_deref(), client),
            Request::Dump { from } => self.dump(from),
            Request::Inflight => self.in_flight(),
            Request::Upstream { address, up } => self.close(&address, !up),
            Request::LogLevel { level } => match config::log_level(&level) {
                Ok(new) => {
                    self.log_level.set(new);
                    lines([format!("log-level={level}")])
                }
                Err(wrong) => refused(wrong),
            },
        }
    }

    pub(super) fn status(&self) -> Status {
        let now = MonotonicClock.now();
        let upstreams = &self.in_force.settings.upstreams;
        let missing = self.in_force.settings.missing();
        let missing = missing.iter();
        let addresses = |servers: &[usize]| servers.iter().map(|i| upstreams[*i].address).collect();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: (now - self.begun) / SECOND,
            config: self.source.path().clone(),
            listen: self.in_force.settings.listen.clone(),
            workers: self.workers.len(),
            upstreams: self
                .in_force
                .health
                .states()
                .map(|(address, state)| UpstreamStatus::new(address, &state, now))
                .collect(),
            forwards: self
                .in_force
                .sets()
                .skip(1)
                .map(|(set, up)| ForwardStatus {
                    name: set.name.clone(),
                    up,
                    servers: addresses(&set.servers),
                    domains: set.domains.iter().map(ToString::to_string).collect(),
                })
                .collect(),
            missing: missing.map(ToString::to_string).collect(),
            nat64: self.prefixes(),
            cache_entries: self.stats.cache.entries(),
            cache_bytes: self.stats.cache.bytes(),
            cache_bytes_max: self.in_force.settings.cache.bytes,
            driver_cache: self.driver.as_ref().map(|driver| driver.state().into()),
            af_xdp: self.af_xdp.clone(),
            sandbox: self.sandbox.to_string(),
        }
    }

    /// The prefixes, if their translators are probed.
    fn prefixes(&self) -> Vec<PrefixStatus> {
        let settings = &self.in_force.settings;
        let probed = settings
            .nat64_health
            .iter()
            .flat_map(|_| settings.prefixes());
        probed
            .map(|prefix| PrefixStatus {
                prefix: prefix.to_string(),
                up: !settings.is_withdrawn(prefix),
            })
            .collect()
    }

    /// Reloads the configuration. An invalid one changes nothing.
    fn reload(&mut self) -> Answer {
        // systemd uses this as the start of the reload (sd_notify(3), MONOTONIC_USEC).
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!("cannot tell the service manager of the reload: {error}"),
        }
        let answer = match self.source.load() {
            Ok(loaded) => self.apply(loaded),
            Err(error) => {
                tracing::error!("configuration not reloaded: {error}");
                refused(format!("configuration not reloaded: {error}"))
            }
        };
        notify(&[NotifyState::Ready]);
        answer
    }

    fn apply(&mut self, loaded: Loaded) -> Answer {
        let Loaded {
            mut settings,
            notes,
        } = loaded;
        let needs_restart = config::diff_needing_restart(&self.in_force.settings, &settings);
        let path = self.source.path().display().to_string();
        for note in &notes {
            tracing::info!("{path}: {note}");
        }
        for key in &needs_restart {
            tracing::warn!("{path}: the new value of {key} takes effect after a restart");
        }
        config::keep_until_restart(&self.in_force.settings, &mut settings);
        if let Err(message) = self.put_in_force(settings) {
            return refused(message);
        }
        warn_missing(&self.in_force.settings);
        tracing::info!("{path}: configuration reloaded");
        Answer::Reloaded {
            notes,
            needs_restart: needs_restart.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Passes settings to all threads.
    ///
    /// # Errors
    ///
    /// A worker does not get them, which is logged.
    fn put_in_force(&mut self, settings: Settings) -> Result<(), &'static str> {
        self.in_force.reload(settings);
        let in_force = &self.in_force;
        self.mode
            .send_modify(|mode| mode.in_force = in_force.clone());
        if let Some(driver) = &self.driver
            && let Err(error) = driver.configure(&in_force.settings, &self.stats.cache)
        {
            tracing::error!("{error}; the program is detached");
        }
        let until = MonotonicClock.now() + WORKER_NS;
        let reached = |worker| deliver(worker, ToWorker::Reload(in_force.clone()), until);
        if self
            .workers
            .iter()
            .map(reached)
            .fold(true, |all, one| all & one)
        {
            return Ok(());
        }
        let message = "the mailbox of a worker is full and it keeps its old settings; reload again";
        tracing::error!("{message}");
        Err(message)
    }

    /// No process can take over any more. One that is about to has the control socket, too.
    fn withdraw(&mut self) {
        if Arc::into_inner(std::mem::take(&mut self.copies)).is_none() {
            self.leave_file();
        }
    }

    fn leave_file(&mut self) {
        std::mem::forget(self.control_file.take());
    }

    /// Stops all threads, or leaves them to the end of the process.
    fn stop(mut self) {
        notify(&[NotifyState::Stopping]);
        tracing::info!(
            "shutting down; in-flight queries have {} s",
            DRAIN_NS / SECOND
        );
        if let Some(driver) = &self.driver {
            driver.detach();
        }
        self.withdraw();
        // The end of the process frees it at once.
        std::mem::forget(Arc::clone(&self.stats.cache));
        self.mode.send_modify(|mode| mode.draining = true);
        let until = MonotonicClock.now() + DRAIN_NS;
        for worker in &self.workers {
            // An unreachable worker ends with the process.
            deliver(worker, ToWorker::Drain, until);
        }
        // All workers, and the gateway after them.
        let mut running = self.workers.len() + 1;
        while running > 0 {
            let left = until.saturating_sub(MonotonicClock.now());
            match self.events.recv_timeout(Duration::from_nanos(left)) {
                Ok(Event::Ended(thread, result)) => {
                    running -= 1;
                    if let Err(reason) = result {
                        tracing::warn!("{thread} ended: {reason}");
                    }
                }
                Ok(Event::Request(_, asker)) => {
                    // The client may have disconnected.
                    let _ = asker.send(refused("the server is shutting down"));
                }
                Ok(Event::Hangup | Event::Stop | Event::Replaced | Event::Translators(_)) => {}
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("{running} threads did not finish in time");
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Logs the source addresses and interfaces that queries to upstreams wait for.
pub(super) fn warn_missing(settings: &Settings) {
    for missing in settings.missing() {
        match missing {
            Missing::Interface(name) => {
                tracing::warn!(
                    "interface {name} does not exist; queries to its upstreams wait for it"
                );
            }
            Missing::Source(source) => {
                tracing::warn!(
                    "no interface has the source address {source}; queries from it wait for one"
                );
            }
        }
    }
}

/// Puts a message into a mailbox, and waits for space until `until`; returns whether it succeeded.
fn deliver(worker: &WorkerHandle, message: ToWorker, until: Nanos) -> bool {
    let mut undelivered = worker.send(message);
    while let Err(Full(message)) = undelivered {
        if MonotonicClock.now() > until {
            return false;
        }
        MonotonicClock.sleep(RETRY_NS);
        undelivered = worker.send(message);
    }
    true
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::cache::Cache;

    /// A server without threads, with their event sender and the mailbox of its one worker.
    pub(in crate::daemon) fn server() -> (Server, Sender<Event>, Receiver<ToWorker>) {
        let settings = config::parse(config::template(), "template").unwrap();
        let in_force = InForce::new(settings);
        let (worker, mailbox) = WorkerHandle::new(Arc::new(|| {}));
        let (sender, events) = channel();
        let (mode, _) = watch::channel(Mode {
            in_force: in_force.clone(),
            draining: false,
        });
        let cache = Arc::new(Cache::new(&in_force.settings.cache, None));
        let server = Server {
            source: Source::Toml("/nonexistent/dns64d.toml".into()),
            in_force,
            workers: vec![worker],
            mode,
            events,
            stats: Stats {
                workers: vec![Arc::default()],
                driver: None,
                cache,
                gateway: Arc::default(),
            },
            driver: None,
            af_xdp: Vec::new(),
            begun: MonotonicClock.now(),
            sandbox: Sandbox::OFF,
            watchdog: None,
            log_level: Lowest::default(),
            copies: Arc::default(),
            control_file: None,
        };
        (server, sender, mailbox)
    }

    #[test]
    fn unexpected_end_of_a_worker_ends_the_server() {
        for (result, reason) in [
            (Ok(()), "it exited unexpectedly"),
            (Err("recvmmsg failed".to_owned()), "recvmmsg failed"),
        ] {
            let (server, events, _mailbox) = server();
            events
                .send(Event::Ended(Thread::Worker(0), result))
                .unwrap();
            let error = server.supervise().unwrap_err().to_string();
            assert_eq!(error, format!("worker 0 ended: {reason}"));
        }
    }

    #[test]
    fn server_ends_after_all_threads_and_refuses_requests_meanwhile() {
        let (server, events, mailbox) = server();
        let mode = server.mode.subscribe();
        let (asker, answer) = oneshot::channel();
        events.send(Event::Stop).unwrap();
        events.send(Event::Request(Request::Status, asker)).unwrap();
        events
            .send(Event::Ended(Thread::Worker(0), Ok(())))
            .unwrap();
        events.send(Event::Ended(Thread::Gateway, Ok(()))).unwrap();
        server.supervise().unwrap();
        assert!(matches!(mailbox.recv(), Ok(ToWorker::Drain)));
        assert_eq!(
            answer.blocking_recv(),
            Ok(refused("the server is shutting down"))
        );
        assert!(mode.borrow().draining);
    }

    #[test]
    fn settings_that_need_a_restart_are_kept_and_reported_each_time() {
        let (mut server, _events, mailbox) = server();
        let running = Arc::clone(&server.in_force.settings);
        let file = || {
            let mut settings = Settings::clone(&running);
            settings.workers += 1;
            settings.listen.clear();
            settings.udp_size = 600;
            Loaded {
                settings,
                notes: Vec::new(),
            }
        };
        for _ in 0..2 {
            let Answer::Reloaded { needs_restart, .. } = server.apply(file()) else {
                panic!("a valid file was refused");
            };
            assert_eq!(needs_restart, ["listen", "workers"]);
            let Ok(ToWorker::Reload(told)) = mailbox.try_recv() else {
                panic!("no reload message");
            };
            assert_eq!(
                (told.settings.workers, told.settings.udp_size),
                (running.workers, 600)
            );
            assert_eq!(server.status().listen, running.listen);
        }
    }

    #[test]
    fn failed_reload_keeps_the_settings() {
        let (mut server, _events, mailbox) = server();
        let before = Arc::clone(&server.in_force.settings);
        let Answer::Refused { message } = server.reload() else {
            panic!("a missing file was loaded");
        };
        assert!(message.starts_with("configuration not reloaded: /nonexistent/"));
        assert!(Arc::ptr_eq(&before, &server.in_force.settings));
        assert!(mailbox.try_recv().is_err());
    }
}
