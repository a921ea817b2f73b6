//! What reading a journal gives.

use std::path::PathBuf;

use crate::campaign::record::Line;

/// What a journal holds.
#[derive(Clone, Debug)]
pub struct Reading {
    /// All whole lines; the first is that of the campaign.
    pub lines: Vec<Line>,
    /// Seal of the last of them, which depends on every octet before it.
    pub seal: String,
    /// Octets of them.
    pub octets: u64,
    /// Version of the format that they were written in; they are read as lines of today.
    pub format: u32,
}

/// A journal whose last line is not whole.
#[derive(Debug, thiserror::Error)]
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
    /// What stands before it.
    pub reading: Reading,
}
