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
use std::path::Path;

use crate::lab::{Blame, LabError};
use crate::namespace::Prefixes;

pub use figures::Figures;
pub use plan::{plan, table};
use trace::Trace;

/// Reads a trace. An AAAA record with one of the prefixes is a synthesised one.
///
/// # Errors
///
/// The file cannot be read, is damaged, or has no query.
pub fn read(path: &Path, synthesised: Prefixes) -> Result<Figures, LabError> {
    let file = File::open(path).map_err(unread);
    let figures = file.and_then(|file| learn(BufReader::new(file), synthesised));
    figures.map_err(|error| error.blame.error(format!("{}: {error}", path.display())))
}

/// Reads a trace from any reader.
///
/// # Errors
///
/// As [`read`].
pub fn learn(input: impl BufRead + Send, synthesised: Prefixes) -> Result<Figures, LabError> {
    count(input, Trace::new(synthesised, trace::ENTRIES_MAX))
}

fn count(mut input: impl BufRead + Send, mut trace: Trace) -> Result<Figures, LabError> {
    match input.fill_buf().map_err(unread)? {
        [0x0a, 0x0d, 0x0d, 0x0a, ..]
        | [0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d, ..]
        | [0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1, ..] => capture::read(input, &mut trace)?,
        [0, 0, 0, 0, ..] => dnstap::read(input, &mut trace)?,
        _ => list::read(input, &mut trace)?,
    }
    let figures = trace.figures();
    match figures.queries {
        0 => Err(Blame::Request.error(format!(
            "no DNS query among its packets ({}); capture UDP and TCP of port 53 at the side of the clients",
            figures.others
        ))),
        _ => Ok(figures),
    }
}

fn unread(error: io::Error) -> LabError {
    Blame::Machine.error(format!("cannot read it: {error}"))
}

/// The file has octets that its format does not allow: the place, what is wrong there, and what to do.
fn damaged(at: At, what: impl fmt::Display, remedy: &str) -> LabError {
    Blame::Request.error(format!("damaged at {at}: {what}; {remedy}"))
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
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
