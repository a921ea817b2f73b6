//! Learns the load of clients from a trace of their queries, and writes a plan with it.
//!
//! ```text
//! file -- capture (pcap, pcapng) | dnstap | list (text) --> messages -- trace --> counts -- figures --> shares -- plan --> TOML
//! ```
//!
//! No name and no address is kept: a trace counts hashes of them, with a key that ends with it.

mod capture;
mod dnstap;
mod figures;
mod list;
mod plan;
mod trace;

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::namespace::Prefixes;

pub use figures::Figures;
pub use plan::{plan, table};
use trace::Trace;

/// Reads a trace. An AAAA record with one of the prefixes is a synthesised one.
///
/// # Errors
///
/// The file cannot be read, is damaged, or has no query.
pub fn read(path: &Path, synthesised: Prefixes) -> Result<Figures, LearnError> {
    let because = |why| LearnError {
        path: path.to_owned(),
        why,
    };
    let file = File::open(path).map_err(|error| because(Why::Unread(error)))?;
    learn(BufReader::new(file), synthesised).map_err(because)
}

/// Reads a trace from any reader.
///
/// # Errors
///
/// As [`read`].
pub fn learn(input: impl BufRead + Send, synthesised: Prefixes) -> Result<Figures, Why> {
    count(input, Trace::new(synthesised, trace::ENTRIES_MAX))
}

fn count(mut input: impl BufRead + Send, mut trace: Trace) -> Result<Figures, Why> {
    match input.fill_buf()? {
        [0x0a, 0x0d, 0x0d, 0x0a, ..]
        | [0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d, ..]
        | [0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1, ..] => capture::read(input, &mut trace)?,
        [0, 0, 0, 0, ..] => dnstap::read(input, &mut trace)?,
        _ => list::read(input, &mut trace)?,
    }
    let figures = trace.figures();
    match figures.queries {
        0 => Err(Why::NoQuery {
            others: figures.others,
        }),
        _ => Ok(figures),
    }
}

/// A trace from which nothing can be learnt.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct LearnError {
    /// The file.
    path: PathBuf,
    /// The reason.
    why: Why,
}

impl LearnError {
    /// Returns whether the file cannot be read, and is not at fault itself.
    pub fn is_unread(&self) -> bool {
        matches!(self.why, Why::Unread(_))
    }
}

/// Why nothing can be learnt from a trace.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Unread(#[from] io::Error),
    /// The file has octets that its format does not allow.
    #[error("damaged at {at}: {what}; {remedy}")]
    Damaged {
        /// The place.
        at: At,
        /// What is wrong there.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The file has no query.
    #[error(
        "no DNS query among its packets ({others}); capture UDP and TCP of port 53 at the side of the clients"
    )]
    NoQuery {
        /// Number of packets or messages.
        others: u64,
    },
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Offset in octets, from 0.
    Octet(u64),
    /// Line, from 1.
    Line(u64),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Octet(offset) => write!(f, "octet {offset}"),
            Self::Line(number) => write!(f, "line {number}"),
        }
    }
}

#[cfg(test)]
mod tests;
