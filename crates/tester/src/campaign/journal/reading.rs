//! The result of reading a journal.

use std::path::PathBuf;

use crate::campaign::record::Line;

/// Contents of a journal.
#[derive(Clone, Debug)]
pub struct Reading {
    /// All complete lines; the first is that of the campaign.
    pub lines: Vec<Line>,
    /// Seal of the last line, which depends on every octet before it.
    pub seal: String,
    /// Octets of all lines.
    pub octets: u64,
    /// The incomplete line after them, if there is one.
    pub torn: Option<Torn>,
}

/// An incomplete last line.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "line {line} of {}, at octet {offset}, is incomplete: {octets} octets, left by a crash; `dns64bench resume` removes them",
    .path.display()
)]
pub struct Torn {
    /// The journal.
    pub path: PathBuf,
    /// Number of the line, from 1.
    pub line: u64,
    /// Octets before it.
    pub offset: u64,
    /// Octets of it.
    pub octets: u64,
}
