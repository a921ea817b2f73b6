//! Why a journal cannot be written or read.

use std::io;
use std::path::PathBuf;

use crate::campaign::record::FORMAT;

/// Why a journal cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// There is a campaign in the directory already.
    #[error(
        "{} holds a campaign already; continue it with `dns64bench resume`, or choose another directory",
        .dir.display()
    )]
    Exists {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no campaign in the directory.
    #[error(
        "{} is not the directory of a campaign: it has no journal.jsonl; start a campaign with `dns64bench \
         run`, or give its directory",
        .dir.display()
    )]
    Missing {
        /// The directory.
        dir: PathBuf,
    },
    /// Another process uses the campaign.
    #[error(
        "{} is in use by {}; wait for its end, or stop it and continue with `dns64bench resume`",
        .path.display(),
        .pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Locked {
        /// The journal.
        path: PathBuf,
        /// ID of the other process, if it has written it.
        pid: Option<u32>,
    },
    /// The plan.toml in the directory is not the plan of the new campaign.
    #[error(
        "{} is a different plan; choose another directory for the campaign",
        .path.display()
    )]
    OtherPlan {
        /// The file.
        path: PathBuf,
    },
    /// The plan beside the journal is not the one that the campaign began with.
    #[error(
        "{} was changed: its SHA-256 is {found}, that of the plan of the campaign is {begun}; remove \
         it, and `dns64bench resume` restores it from the journal, or run it in another directory",
        .path.display()
    )]
    PlanChanged {
        /// The file.
        path: PathBuf,
        /// Its hash now.
        found: String,
        /// The hash in the journal.
        begun: String,
    },
    /// A file or directory cannot be used.
    #[error("cannot {what} {}: {reason}", .path.display())]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        reason: io::Error,
    },
    /// A line could not be written, and the partial line was removed.
    #[error(
        "cannot write line {line} ({kind}) of {}: {reason}; this record is lost, all earlier ones are safe: \
         free space on the disk and continue with `dns64bench resume`",
        .path.display()
    )]
    NotWritten {
        /// The journal.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// Kind of the record.
        kind: &'static str,
        /// Error of the system.
        reason: io::Error,
    },
    /// The format is not that of this program.
    #[error(
        "{} is of format {format}, written by {tester}; this program reads format {FORMAT}, use that one",
        .path.display()
    )]
    OtherFormat {
        /// The journal.
        path: PathBuf,
        /// Its version.
        format: u64,
        /// Program that wrote it.
        tester: String,
    },
    /// A line was changed after it was written.
    #[error(
        "line {line} of {}, at octet {offset}, {fault}; restore the file from a copy, or measure again",
        .path.display()
    )]
    BadLine {
        /// The journal.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// Octets before it.
        offset: u64,
        /// The fault.
        fault: String,
    },
}
