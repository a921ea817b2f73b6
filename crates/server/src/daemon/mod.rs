//! The running server: starts all threads, then waits for signals, requests and shutdown.
//!
//! - [`run`]: from the configuration to the end of the process;
//! - `start`: sockets, privileges, the sandbox and threads, in this order;
//! - [`privileges`]: changes from root to a user; `directory`: the directory that root creates for that user;
//! - `take_over`: the sockets of a running server, which this one replaces;
//! - `sandbox`: the files and system calls that remain allowed;
//! - `server`: the work of the main thread: reload, flush, stop; `inspect`, `lookup`: what
//!   operators ask for;
//! - `watchdog`: reports to the service manager whether workers and gateway make progress.

mod directory;
mod inspect;
mod lookup;
pub mod privileges;
mod relays;
mod sandbox;
mod server;
mod start;
mod take_over;
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
use crate::control::{AskError, SocketError};
use crate::driver::DriverError;
use crate::gateway::BindError;
use crate::log::{self, LogError};
use crate::settings::{LogTarget, Settings};
use privileges::PrivilegeError;
use start::Opened;

/// The configuration file of the server and its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file in this server's own format.
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

    /// Loads the configuration.
    ///
    /// # Errors
    ///
    /// The file is unreadable or invalid.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        match self {
            Self::Toml(path) => config::load(path),
            Self::Mtd64Ng(path) => config::mtd64ng::load(path),
        }
    }

    /// Checks the settings against this host.
    ///
    /// # Errors
    ///
    /// Those of [`config::check_host`].
    pub fn check_host(&self, settings: &Settings) -> Result<(), ConfigError> {
        match self {
            Self::Toml(path) => config::check_host(path, settings),
            // It has no such keys.
            Self::Mtd64Ng(_) => Ok(()),
        }
    }
}

/// Reason why the server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log cannot be started.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A TCP socket cannot be opened.
    #[error(transparent)]
    Tcp(#[from] BindError),
    /// A UDP socket cannot be opened.
    #[error(transparent)]
    Udp(#[from] OpenError),
    /// The program in the driver cannot be loaded.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The control socket cannot be opened.
    #[error(transparent)]
    Control(#[from] SocketError),
    /// The running server gives no sockets.
    #[error(transparent)]
    Predecessor(#[from] AskError),
    /// These settings cannot take over.
    #[error("cannot take over {0}: stop the running server, then start this one")]
    TakeOver(&'static str),
    /// The metrics page cannot be served.
    #[error(
        "cannot serve metrics at {address}: {reason}{}",
        crate::gateway::remedy(reason)
    )]
    Metrics {
        /// Address of the page.
        address: SocketAddr,
        /// Error of the kernel.
        reason: io::Error,
    },
    /// The change of user failed.
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    /// A thread or the signal handling cannot be started.
    #[error("cannot start {what}: {reason}")]
    Start {
        /// Its name.
        what: &'static str,
        /// Error of the system.
        reason: io::Error,
    },
    /// A thread ended unexpectedly.
    #[error("{thread} ended: {reason}")]
    Ended {
        /// The thread.
        thread: Thread,
        /// The reason.
        reason: String,
    },
}

/// A thread of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thread {
    /// A worker, by its index.
    Worker(usize),
    /// The gateway, which owns the connections.
    Gateway,
    /// Another thread.
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

/// Runs the server until a signal ends it. With `take_over` it replaces the one that runs with its control socket.
///
/// # Errors
///
/// An error that prevented the start or ended the server.
pub fn run(source: Source, take_over: bool) -> Result<(), DaemonError> {
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
    // Files are created for owner and group only.
    rustix::process::umask(Mode::from_raw_mode(0o007));
    let life = || {
        let opened = Opened::open(&source, &mut settings, take_over)?;
        log.begin()?;
        opened
            .start(source, settings, started, log.level.clone())?
            .supervise()
    };
    // Its state is not used after a panic.
    let ended = catch_unwind(AssertUnwindSafe(life)).unwrap_or_else(|_| {
        Err(DaemonError::Ended {
            thread: Thread::Named("main".to_owned()),
            reason: "it panicked".to_owned(),
        })
    });
    if let Err(error) = &ended
        && !to_stderr
    {
        // With the log on standard error, the exit message of the process suffices.
        tracing::error!("{error}");
    }
    ended
}

/// Notifies the service manager, if there is one.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}
