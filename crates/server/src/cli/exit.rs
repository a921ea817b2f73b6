//! The exit codes.

use crate::config::ConfigError;
use crate::control::Answer;
use crate::daemon::DaemonError;

/// Success.
pub const DONE: u8 = 0;

/// The configuration is invalid, or the server refused the request.
pub const REFUSED: u8 = 1;

/// The command line is invalid; set by clap.
pub const USAGE: u8 = 2;

/// A running server failed.
pub const FAILED: u8 = 3;

/// A file, a socket, a user or a server does not exist or is not accessible.
pub const ENVIRONMENT: u8 = 4;

/// The exit code for a refused configuration.
pub fn of_config(error: &ConfigError) -> u8 {
    match error {
        ConfigError::Invalid { .. } => REFUSED,
        ConfigError::Unreadable { .. } => ENVIRONMENT,
    }
}

/// The exit code of a server that did not start or ended with an error.
pub fn of_daemon(error: &DaemonError) -> u8 {
    match error {
        DaemonError::Config(error) => of_config(error),
        DaemonError::Ended { .. } => FAILED,
        _ => ENVIRONMENT,
    }
}

/// The exit code for an answer of a server.
pub fn of_answer(answer: &Answer) -> u8 {
    match answer {
        Answer::Refused { .. } => REFUSED,
        _ => DONE,
    }
}
