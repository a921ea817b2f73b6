//! Raw data: each query of a trial, written after the trial.
//!
//! [`csv`] is the file of dns64perf++, which its scripts read. Rows are read from the ledgers and written immediately,
//! without another copy in memory.

pub mod csv;

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use dns64_transport::clock::Nanos;

use crate::load::ledger::Fate;
use crate::trial::rows::{Row, Rows};

/// Description of the trial in the file, in the terms of dns64perf++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Address of the server.
    pub server: IpAddr,
    /// Port of the server.
    pub port: u16,
    /// Number of queries in the schedule.
    pub requests: u64,
    /// Queries in a burst.
    pub burst: u64,
    /// Threads.
    pub threads: u64,
    /// Time between two bursts of a thread.
    pub delay_ns: Nanos,
}

impl Header {
    /// Header of the trial of these rows.
    fn of(rows: &Rows<'_>) -> Self {
        let schedule = rows.schedule();
        Self {
            server: rows.server().ip(),
            port: rows.server().port(),
            requests: schedule.queries(),
            burst: schedule.burst(),
            threads: schedule.shards(),
            delay_ns: schedule.burst_interval_ns(),
        }
    }
}

/// Why raw data cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// The file cannot be created.
    #[error("cannot create {}: {reason}", path.display())]
    Create {
        /// Path of the file, as on the command line.
        path: PathBuf,
        /// Error of the system.
        reason: io::Error,
    },
    /// The file cannot be written completely.
    #[error("cannot write all of {}: {reason}; the file is incomplete", path.display())]
    Write {
        /// Path of the file, as on the command line.
        path: PathBuf,
        /// Error of the system.
        reason: io::Error,
    },
}

/// A file for raw data, created but still empty, so that its faults are reported before the trial.
#[derive(Debug)]
pub struct RawFile {
    path: PathBuf,
    file: File,
}

impl RawFile {
    /// Creates or empties the file.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn create(path: &Path) -> Result<Self, RawError> {
        let path = path.to_owned();
        match File::create(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(reason) => Err(RawError::Create { path, reason }),
        }
    }

    /// Writes all rows and returns their number.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn write(self, rows: Rows<'_>) -> Result<u64, RawError> {
        let Self { path, file } = self;
        let header = &Header::of(&rows);
        let written = csv::write(&file, rows, header, |row| row.fate == Fate::Valid);
        written.map_err(|reason| RawError::Write { path, reason })
    }
}

/// Writes all rows to `path` and returns their number.
///
/// # Errors
///
/// See [`RawFile`].
pub fn write(path: &Path, rows: Rows<'_>) -> Result<u64, RawError> {
    RawFile::create(path)?.write(rows)
}

/// The queried name.
pub(super) fn name(rows: &Rows<'_>, row: &Row) -> String {
    rows.names().zone.name(row.address)
}

/// The part of a name after its first label; a dot for the root.
fn suffix(rows: &Rows<'_>) -> String {
    let suffix = rows.names().zone.suffix.to_string();
    format!(".{}", suffix.trim_start_matches('.'))
}

#[cfg(test)]
pub(super) mod tests;
