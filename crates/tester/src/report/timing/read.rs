//! Reads raw data row by row: the CSV of dns64perf++ and of this program.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dns64_transport::clock::{Nanos, SECOND};

use crate::report::raw::Header;
use crate::report::raw::csv::{COLUMNS, TITLE};

/// Why raw data cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// A line is not what it has to be.
    #[error("{}, line {line}: {fault}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        fault: String,
    },
    /// The rows are of no trial.
    #[error(
        "{} has {queries} queries within {} s; a trial has at least one, and takes a day at most",
        path.display(),
        span_ns / SECOND
    )]
    NoTrial {
        /// The file.
        path: PathBuf,
        /// Rows.
        queries: u64,
        /// From the first to the last.
        span_ns: Nanos,
    },
}

/// A file of raw data.
#[derive(Clone, Debug)]
pub struct Source {
    path: PathBuf,
}

impl Source {
    /// The file at `path`, which is opened when it is read.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Reads the whole file and hands the sending time of each query to `each`.
    ///
    /// # Errors
    ///
    /// The first line that is not as dns64perf++ writes it.
    pub fn each(&self, each: impl FnMut(Nanos)) -> Result<Header, ReadError> {
        let file = File::open(&self.path).map_err(|reason| self.unread(reason))?;
        self.read(BufReader::with_capacity(BUFFER_BYTES, file), each)
    }

    fn read(&self, input: impl BufRead, mut each: impl FnMut(Nanos)) -> Result<Header, ReadError> {
        let mut lines = Lines {
            input,
            line: Vec::new(),
            number: 0,
        };
        let header = self.header(&mut lines)?;
        loop {
            match lines.next() {
                Ok(None) => return Ok(header),
                Ok(Some(line)) => match sent_ns(line) {
                    Ok(sent_ns) => each(sent_ns),
                    Err(fault) => return Err(self.fault(lines.number, fault)),
                },
                Err(reason) => return Err(self.unread(reason)),
            }
        }
    }

    /// The eight lines before the names of the columns, and these.
    fn header<R: BufRead>(&self, lines: &mut Lines<R>) -> Result<Header, ReadError> {
        self.expect(lines, TITLE)?;
        let header = Header {
            server: self.parameter::<_, IpAddr>(lines, "server: ", "")?,
            port: self.parameter(lines, "port: ", "")?,
            requests: self.parameter(lines, "number of requests: ", "")?,
            burst: self.positive(lines, "burst size: ", "")?,
            threads: self.positive(lines, "number of threads: ", "")?,
            delay_ns: self.positive(lines, "delay between bursts: ", " ns")?,
        };
        self.expect(lines, "")?;
        self.expect(lines, COLUMNS)?;
        Ok(header)
    }

    fn expect<R: BufRead>(&self, lines: &mut Lines<R>, text: &str) -> Result<(), ReadError> {
        let line = lines.next().map_err(|reason| self.unread(reason))?;
        if line == Some(text.as_bytes()) {
            return Ok(());
        }
        let found = line.map_or("the end".to_owned(), quoted);
        let fault =
            format!("{found} instead of '{text}'; is this the raw data of a trial, as CSV?");
        Err(self.fault(lines.number, fault))
    }

    /// What a line of the header says between its label and its unit.
    fn parameter<R: BufRead, T: FromStr>(
        &self,
        lines: &mut Lines<R>,
        label: &str,
        unit: &str,
    ) -> Result<T, ReadError> {
        let line = lines.next().map_err(|reason| self.unread(reason))?;
        let value = line
            .and_then(|line| std::str::from_utf8(line).ok())
            .and_then(|line| line.strip_prefix(label)?.strip_suffix(unit)?.parse().ok());
        let found = line.map_or("the end".to_owned(), quoted);
        value.ok_or_else(|| {
            let fault = format!("{found} instead of '{label}' with its value{unit}");
            self.fault(lines.number, fault)
        })
    }

    /// A parameter that counts something, and is divided by.
    fn positive<R: BufRead>(
        &self,
        lines: &mut Lines<R>,
        label: &str,
        unit: &str,
    ) -> Result<u64, ReadError> {
        match self.parameter(lines, label, unit)? {
            0 => Err(self.fault(
                lines.number,
                format!("{label}0{unit}; at least 1 is needed"),
            )),
            value => Ok(value),
        }
    }

    /// The rows are no trial's.
    pub(super) fn no_trial(&self, queries: u64, span_ns: Nanos) -> ReadError {
        ReadError::NoTrial {
            path: self.path.clone(),
            queries,
            span_ns,
        }
    }

    fn unread(&self, reason: io::Error) -> ReadError {
        ReadError::Read {
            path: self.path.clone(),
            reason,
        }
    }

    fn fault(&self, line: u64, fault: String) -> ReadError {
        ReadError::Line {
            path: self.path.clone(),
            line,
            fault,
        }
    }
}

/// When the query of a row left, in nanoseconds since 1970. All columns are looked at, so that half
/// a row is none.
fn sent_ns(line: &[u8]) -> Result<Nanos, String> {
    let mut fields = line.split(|&octet| octet == b';');
    let mut next = || fields.next();
    let columns = (next(), next(), next(), next(), next(), next(), next());
    let (
        Some(_name),
        Some(thread),
        Some(sent),
        Some(received),
        Some(has_come),
        Some(answered),
        Some(rtt),
    ) = columns
    else {
        let count = line.split(|&octet| octet == b';').count();
        return Err(format!("{count} fields instead of 7"));
    };
    if fields.next().is_some() {
        return Err("more than 7 fields".to_owned());
    }
    number(received, "treceived")?;
    number(thread, "thread id")?;
    number(rtt.strip_prefix(b"-").unwrap_or(rtt), "rtt")?;
    for (flag, column) in [(has_come, "received"), (answered, "answered")] {
        if flag != b"0" && flag != b"1" {
            return Err(format!("{column} is {}, neither 0 nor 1", quoted(flag)));
        }
    }
    number(sent, "tsent")
}

/// A number below 2^64 in decimals.
fn number(field: &[u8], column: &str) -> Result<u64, String> {
    let digits = (1..=20).contains(&field.len()) && field.iter().all(u8::is_ascii_digit);
    let value = digits.then(|| {
        field.iter().try_fold(0_u64, |value, digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
    });
    value
        .flatten()
        .ok_or_else(|| format!("{column} is {}, no whole number", quoted(field)))
}

/// A text of unknown length and making, for an error.
fn quoted(text: &[u8]) -> String {
    let shown = &text[..text.len().min(SHOWN_BYTES)];
    let more = if shown.len() < text.len() { "..." } else { "" };
    format!("'{}{more}'", shown.escape_ascii())
}

/// Lines of a reader, one at a time.
struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// The next line without its end; one that is longer than any row is cut.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        self.number += 1;
        let mut limited = io::Read::take(&mut self.input, LINE_BYTES_MAX);
        if limited.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        Ok(Some(&self.line))
    }
}

/// Rows are read from the system in pieces of this size.
const BUFFER_BYTES: usize = 256 * 1024;

/// Longer than any row: a name of 255 octets in its longest writing, and six numbers.
const LINE_BYTES_MAX: u64 = 2048;

/// As much of a wrong line as an error shows.
const SHOWN_BYTES: usize = 60;
