//! What the exit code says.

use crate::config::ConfigError;
use crate::control::Answer;
use crate::daemon::DaemonError;

/// Done.
pub const DONE: u8 = 0;

/// The configuration is invalid, or the server says no.
pub const REFUSED: u8 = 1;

/// The command line cannot be understood; clap gives it.
pub const USAGE: u8 = 2;

/// A running server failed.
pub const FAILED: u8 = 3;

/// A file, a socket, a user or a server is not there or not ours.
pub const ENVIRONMENT: u8 = 4;

/// The exit code of a configuration that was not taken.
pub fn of_config(error: &ConfigError) -> u8 {
    match error {
        ConfigError::Invalid { .. } => REFUSED,
        ConfigError::Unreadable { .. } => ENVIRONMENT,
    }
}

/// The exit code of a server that did not start or did not run on.
pub fn of_daemon(error: &DaemonError) -> u8 {
    match error {
        DaemonError::Config(error) => of_config(error),
        DaemonError::Ended { .. } => FAILED,
        _ => ENVIRONMENT,
    }
}

/// The exit code of what a server said.
pub fn of_answer(answer: &Answer) -> u8 {
    match answer {
        Answer::Refused { .. } => REFUSED,
        _ => DONE,
    }
}
