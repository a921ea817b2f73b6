//! The report of a campaign: converts the journal to numbers, and those to files.
//!
//! ```text
//! journal's lines -> analysis (every number, plain data) -> results.json, CSV, LaTeX, figures, HTML
//! ```
//!
//! The journal is the only input, so the same journal gives the same octets: `verify` checks that.

pub mod analyse;
pub mod analysis;
pub mod compare;
mod csv;
pub mod dry_run;
pub mod files;
mod html;
mod latex;
pub mod live;
mod plots;
pub mod progress;
mod table;
mod tables;
pub mod verify;
mod words;

use super::numbers;

#[cfg(test)]
pub(crate) mod tests;
