//! Reasons why a configuration was refused, with their positions.

use std::fmt;
use std::io;
use std::ops::Range;

/// Reason why a configuration was refused. Its text is complete: for each problem the file name,
/// line, column, fault, remedy, and the line itself with a mark below the position.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{name}: cannot be read: {reason}; {remedy}")]
    Unreadable {
        /// The file.
        name: String,
        /// Error of the system.
        reason: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// The file is invalid: at least one problem, in the order of the file.
    #[error("{}", all(.problems))]
    Invalid {
        /// The problems.
        problems: Vec<Problem>,
    },
}

impl ConfigError {
    /// The error for a file that could not be opened or read.
    pub(super) fn unreadable(name: &str, reason: io::Error) -> Self {
        let remedy = match reason.kind() {
            io::ErrorKind::NotFound => "`dns64d template` prints an example",
            io::ErrorKind::PermissionDenied => "let the user that starts dns64d read it",
            _ => "give a regular file",
        };
        let name = name.to_owned();
        Self::Unreadable {
            name,
            reason,
            remedy,
        }
    }
}

fn all(problems: &[Problem]) -> String {
    let texts: Vec<String> = problems.iter().map(Problem::to_string).collect();
    texts.join("\n\n")
}

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub name: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The character in the line, counted from 1.
    pub column: usize,
    /// The fault and the remedy.
    pub text: String,
    /// The line itself, without control characters for terminals.
    shown: String,
    /// Number of characters to mark, at least 1.
    width: usize,
}

impl Problem {
    pub(super) fn new(name: &str, file: &str, fault: Fault) -> Self {
        let start = floor(file, fault.span.start);
        let line_start = file[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = file[start..].find('\n').map_or(file.len(), |at| start + at);
        let end = floor(file, fault.span.end).clamp(start, line_end);
        Self {
            name: name.to_owned(),
            line: file[..line_start].matches('\n').count() + 1,
            column: file[line_start..start].chars().count() + 1,
            text: fault.text,
            shown: printable(file[line_start..line_end].trim_end()),
            width: file[start..end].chars().count().max(1),
        }
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        let problems = vec![problem];
        Self::Invalid { problems }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            line,
            column,
            text,
            shown,
            width,
        } = self;
        let gutter = line.to_string().len();
        writeln!(f, "{name}:{line}:{column}: {text}")?;
        writeln!(f, "{:gutter$} |", "")?;
        let line_text = format!("{line} | {shown}");
        writeln!(f, "{}", line_text.trim_end())?;
        let before = column - 1;
        write!(f, "{:gutter$} | {:before$}{:^<width$}", "", "", "")
    }
}

/// The nearest character boundary at or before an offset; the file's end if it is beyond.
fn floor(file: &str, offset: usize) -> usize {
    (0..=offset.min(file.len()))
        .rev()
        .find(|&at| file.is_char_boundary(at))
        .unwrap_or(0)
}

/// A line in printable form: tabs become single blanks, so that the mark is below its position.
fn printable(line: &str) -> String {
    line.chars()
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

/// A fault at some octets of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Position in the file, in octets.
    pub(super) span: Range<usize>,
    /// The fault and the remedy.
    pub(super) text: String,
}

/// All faults found in a file so far.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a fault; duplicates at the same position count once.
    pub(super) fn add(&mut self, span: Range<usize>, text: impl Into<String>) {
        let text = text.into();
        let fault = Fault { span, text };
        if !self.0.contains(&fault) {
            self.0.push(fault);
        }
    }

    /// Returns the value, or adds its fault and returns `None`.
    pub(super) fn keep<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        result
            .map_err(|fault| self.add(fault.span, fault.text))
            .ok()
    }

    /// Returns an error if there are faults, in the order of the file.
    pub(super) fn check(&mut self, name: &str, file: &str) -> Result<(), ConfigError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut faults = std::mem::take(&mut self.0);
        faults.sort_by_key(|fault| fault.span.start);
        let problem = |fault| Problem::new(name, file, fault);
        let problems = faults.into_iter().map(problem).collect();
        Err(ConfigError::Invalid { problems })
    }
}
