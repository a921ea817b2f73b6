//! Raw data: each query of a trial, written after the trial.
//!
//! [`csv`] is the file of dns64perf++, which its scripts read. Rows are read from the ledgers and written immediately,
//! without another copy in memory.

pub mod csv;

use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use dns64_transport::clock::Nanos;

use crate::lab::{Blame, LabError};
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
    pub fn create(path: &Path) -> Result<Self, LabError> {
        let cannot = format!("cannot create {}", path.display());
        let file = File::create(path).map_err(Blame::Machine.because(cannot))?;
        let path = path.to_owned();
        Ok(Self { path, file })
    }

    /// Writes all rows and returns their number.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn write(self, rows: Rows<'_>) -> Result<u64, LabError> {
        let header = Header::of(&rows);
        self.write_as(rows, &header, |row| row.fate == Fate::Valid)
    }

    /// Writes all rows with another header, or another meaning of a valid response.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn write_as(
        self,
        rows: Rows<'_>,
        header: &Header,
        valid: impl Fn(&Row) -> bool,
    ) -> Result<u64, LabError> {
        let path = self.path.display();
        let cannot = format!("the raw data are incomplete: cannot write all of {path}");
        csv::write(&self.file, rows, header, valid).map_err(Blame::Machine.because(cannot))
    }
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
