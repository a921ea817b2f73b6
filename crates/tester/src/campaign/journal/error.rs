//! Why a journal cannot be written or read.

use std::io;
use std::path::PathBuf;

use super::reading::Torn;
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
    /// Another process works on the campaign.
    #[error(
        "{} is in use by {}; wait for its end, or stop it and continue with `dns64bench resume`",
        .path.display(),
        .pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Locked {
        /// The journal.
        path: PathBuf,
        /// The other process, if it has left its number.
        pid: Option<u32>,
    },
    /// The directory has a plan.toml that is not the plan of the new campaign.
    #[error(
        "{} is another plan than the one to run; choose another directory for the campaign",
        .path.display()
    )]
    OtherPlan {
        /// The file.
        path: PathBuf,
    },
    /// The plan beside the journal is not the one that the campaign was begun with.
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
        /// What was to be done.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// A line could not be written, and what there was of it was taken back.
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
        /// What the system says.
        reason: io::Error,
    },
    /// The journal is of a format that this program is too old for.
    #[error(
        "{} is of format {format}, written by {tester}; this program reads formats 1 to {FORMAT}, use \
         that one or a later one",
        .path.display()
    )]
    LaterFormat {
        /// The journal.
        path: PathBuf,
        /// Its version.
        format: u64,
        /// Who wrote it.
        tester: String,
    },
    /// The journal is of a format that is read but not written any more.
    #[error(
        "{} has format {format}, and this program can continue only format {FORMAT}: write the report of its \
         trials with `dns64bench report`, and run the plan in a new directory",
        .path.display()
    )]
    EarlierFormat {
        /// The journal.
        path: PathBuf,
        /// Its version.
        format: u32,
    },
    /// A line is not what was written.
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
        /// What is wrong.
        fault: String,
    },
    /// The last line is not whole, as a crash leaves it. The lines before it are good.
    #[error(transparent)]
    Torn(Box<Torn>),
}
