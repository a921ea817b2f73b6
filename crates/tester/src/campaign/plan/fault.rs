//! Faults of a plan: all of them at once, each with its line and a mark below the place.

use std::fmt;
use std::ops::Range;

use super::PlanError;
use crate::lab::profile::position;

/// One fault of a plan. Its text is complete: file, line, column, the value, the bound and the remedy, then the line
/// itself with a mark below the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the plan.
    pub origin: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The fault and its remedy.
    pub message: String,
    /// The line, without control characters that a terminal would interpret.
    shown: String,
    /// Number of characters to mark, at least 1.
    width: usize,
}

impl Problem {
    /// Creates a problem for these octets of `text`.
    pub(super) fn new(origin: &str, text: &str, at: Range<usize>, message: String) -> Self {
        let start = floor(text, at.start);
        let (line, column) = position(text, start);
        let begin = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let end = text[start..].find('\n').map_or(text.len(), |n| start + n);
        let marked = text[start..floor(text, at.end).clamp(start, end)].trim_end();
        let printable = |c: char| match c {
            '\t' => ' ',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        };
        Self {
            origin: origin.to_owned(),
            line,
            column,
            message,
            shown: text[begin..end].trim_end().chars().map(printable).collect(),
            width: marked.chars().count().max(1),
        }
    }
}

/// The nearest character boundary at or before an offset.
fn floor(text: &str, offset: usize) -> usize {
    let mut at = offset.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column, width) = (self.line, self.column, self.width);
        writeln!(f, "{}:{line}:{column}: {}", self.origin, self.message)?;
        let gutter = line.to_string().len();
        let code = format!("{line} | {}", self.shown);
        writeln!(f, "{}", code.trim_end())?;
        let before = column - 1;
        write!(f, "{:gutter$} | {:before$}{:^<width$}", "", "", "")
    }
}

/// A fault at some octets of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Octets in the text.
    pub(super) span: Range<usize>,
    /// Name of the table, such as `[trial]`.
    pub(super) table: &'static str,
    /// The fault and its remedy.
    pub(super) message: String,
}

impl Fault {
    pub(super) fn locate(self, origin: &str, text: &str) -> Problem {
        Problem::new(origin, text, self.span, self.message)
    }
}

/// The faults found in a text so far.
#[derive(Debug)]
pub(super) struct Faults<'a> {
    /// The text.
    pub(super) text: &'a str,
    found: Vec<Fault>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let found = Vec::new();
        Self { text, found }
    }

    /// Adds a fault; the same fault at the same place counts once.
    pub(super) fn add(&mut self, fault: Fault) {
        if !self.found.contains(&fault) {
            self.found.push(fault);
        }
    }

    /// Returns the value; after a fault, adds the fault and returns `default`.
    pub(super) fn or<T>(&mut self, read: Result<T, Fault>, default: T) -> T {
        self.keep(read).unwrap_or(default)
    }

    /// Returns the value; after a fault, adds the fault and returns `None`.
    pub(super) fn keep<T>(&mut self, read: Result<T, Fault>) -> Option<T> {
        read.map_err(|fault| self.add(fault)).ok()
    }

    /// Whether a table whose name begins with one of `tables` has a fault: then checks that need all of its values are
    /// impossible.
    pub(super) fn spoil(&self, tables: &[&str]) -> bool {
        let of = |fault: &Fault| tables.iter().any(|table| fault.table.starts_with(table));
        self.found.iter().any(of)
    }

    /// Number of faults.
    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    /// Whether there is a fault at this place.
    pub(super) fn is_at(&self, span: &Range<usize>) -> bool {
        self.found.iter().any(|fault| fault.span == *span)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the value if there is one and no fault.
    pub(super) fn check<T>(self, origin: &str, value: Option<T>) -> Result<T, PlanError> {
        let text = self.text;
        self.check_by(value, |fault| fault.locate(origin, text))
    }

    /// Like [`Self::check`], with another function that locates faults.
    pub(super) fn check_by<T>(
        self,
        value: Option<T>,
        locate: impl FnMut(Fault) -> Problem,
    ) -> Result<T, PlanError> {
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => Err(refused(self.found.into_iter().map(locate).collect())),
        }
    }
}

/// The error with these problems, in their order in the file.
fn refused(mut problems: Vec<Problem>) -> PlanError {
    problems.sort_by_key(|problem| (problem.line, problem.column));
    PlanError::Refused { problems }
}
