//! The running server: starts all threads, then waits for signals, requests and shutdown.
//!
//! - [`run`]: from the configuration to the end of the process;
//! - `start`: sockets, privileges, the sandbox and threads, in this order;
//! - [`privileges`]: changes from root to a user; `directory`: the directory that root creates for that user;
//! - `sandbox`: the files and system calls that remain allowed;
//! - `server`: the work of the main thread: reload, flush, stop;
//! - `watchdog`: reports to the service manager whether all workers make progress.

mod directory;
pub mod privileges;
mod relays;
mod sandbox;
mod server;
mod start;
mod watchdog;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::{fmt, io};

use dns64_transport::clock::{Clock, MonotonicClock};
use dns64_transport::socket::OpenError;
use rustix::fs::Mode;
use sd_notify::NotifyState;

use crate::config::{self, ConfigError, Loaded};
use crate::control::SocketError;
use crate::driver::DriverError;
use crate::gateway::BindError;
use crate::log::{self, LogError};
use crate::settings::LogTarget;
use privileges::PrivilegeError;
use start::Opened;

/// Which file configures the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file of its own form.
    Toml(PathBuf),
    /// An mtd64-ng.conf.
    Mtd64Ng(PathBuf),
}

impl Source {
    /// The file.
    pub fn path(&self) -> &PathBuf {
        match self {
            Self::Toml(path) | Self::Mtd64Ng(path) => path,
        }
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// It cannot be read, or says what cannot be done.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        match self {
            Self::Toml(path) => config::load(path),
            Self::Mtd64Ng(path) => config::mtd64ng::load(path),
        }
    }
}

/// Why the server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A TCP socket.
    #[error(transparent)]
    Tcp(#[from] BindError),
    /// A UDP socket.
    #[error(transparent)]
    Udp(#[from] OpenError),
    /// The program in the driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The control socket.
    #[error(transparent)]
    Control(#[from] SocketError),
    /// The metrics page.
    #[error(
        "cannot serve metrics at {address}: {reason}{}",
        crate::gateway::remedy(reason)
    )]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        reason: io::Error,
    },
    /// The user to become.
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    /// A thread or the handling of signals.
    #[error("cannot start {what}: {reason}")]
    Start {
        /// Which.
        what: &'static str,
        /// What the system said.
        reason: io::Error,
    },
    /// A thread that was to run on.
    #[error("{thread} ended: {reason}")]
    Ended {
        /// Which.
        thread: Thread,
        /// Why.
        reason: String,
    },
}

/// A thread of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thread {
    /// A worker, by its number.
    Worker(usize),
    /// The one with the connections.
    Gateway,
    /// Another one.
    Named(String),
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(number) => write!(f, "worker {number}"),
            Self::Gateway => f.write_str("the gateway"),
            Self::Named(name) => write!(f, "thread {name}"),
        }
    }
}

/// Runs the server until a signal ends it.
///
/// # Errors
///
/// What kept it from starting, or from running on.
pub fn run(source: Source) -> Result<(), DaemonError> {
    let started = MonotonicClock.now();
    let Loaded {
        mut settings,
        notes,
    } = source.load()?;
    let mut log = log::start(&settings.log)?;
    for note in &notes {
        tracing::info!("{}: {note}", source.path().display());
    }
    let to_stderr = settings.log.target == LogTarget::Stderr;
    // Whatever it makes is for its owner and group.
    rustix::process::umask(Mode::from_raw_mode(0o007));
    let life = || {
        let opened = Opened::open(&source, &mut settings)?;
        log.begin()?;
        opened.start(source, settings, started)?.supervise()
    };
    // Nothing of what it had is used after a panic.
    let ended = catch_unwind(AssertUnwindSafe(life)).unwrap_or_else(|_| {
        Err(DaemonError::Ended {
            thread: Thread::Named("main".to_owned()),
            reason: "it panicked".to_owned(),
        })
    });
    if let Err(error) = &ended
        && !to_stderr
    {
        // On standard error it is the last word of the process anyway.
        tracing::error!("{error}");
    }
    ended
}

/// Tells the service manager, if there is one that wants to know.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}
