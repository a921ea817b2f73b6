//! Reads raw data row by row: the CSV of dns64perf++ and of this program.

use std::path::Path;
use std::str::FromStr;

use csv::{ByteRecord, Reader, ReaderBuilder};
use dns64_transport::clock::Nanos;

use crate::lab::{Blame, LabError};
use crate::report::raw::Header;
use crate::report::raw::csv::{COLUMNS, TITLE};

/// Reads the raw data at `path` and passes the sending time of each query to `each`.
///
/// # Errors
///
/// The first line that differs from the format of dns64perf++.
pub fn each(path: &Path, mut each: impl FnMut(Nanos)) -> Result<Header, LabError> {
    let mut reader = ReaderBuilder::new();
    reader.delimiter(b';').quoting(false);
    reader.has_headers(false).flexible(true);
    let opened = reader.from_path(path);
    let mut lines = Lines {
        reader: opened
            .map_err(Blame::Machine.because(format!("cannot read {}", path.display())))?,
        line: ByteRecord::new(),
    };
    let header = lines.read(&mut each);
    header.map_err(|what| {
        let number = lines.line.position().map_or(0, csv::Position::line);
        Blame::Request.error(format!("{}, line {number}: {what}", path.display()))
    })
}

/// The lines of a file, one at a time; empty ones are skipped.
struct Lines<R> {
    reader: Reader<R>,
    line: ByteRecord,
}

/// A row: name, thread, times of sending and receiving, whether a response came and was valid, and the round-trip time. All
/// columns are parsed, so that an incomplete row is refused.
type Row<'r> = (&'r [u8], u64, Nanos, Nanos, u8, u8, i64);

impl<R: std::io::Read> Lines<R> {
    fn read(&mut self, each: &mut impl FnMut(Nanos)) -> Result<Header, String> {
        self.value::<String>(TITLE, "")?;
        let header = Header {
            server: self.value("server: ", "")?,
            port: self.value("port: ", "")?,
            requests: self.value("number of requests: ", "")?,
            burst: self.positive("burst size: ", "")?,
            threads: self.positive("number of threads: ", "")?,
            delay_ns: self.positive("delay between bursts: ", " ns")?,
        };
        self.value::<String>(COLUMNS, "")?;
        while self.next()? {
            if self.line.len() != COLUMNS.split(';').count() {
                return Err(format!("{} fields instead of 7", self.line.len()));
            }
            let row: Row<'_> = self.line.deserialize(None).map_err(|e| e.to_string())?;
            each(row.2);
        }
        Ok(header)
    }

    /// Reads the next line; whether there is one.
    fn next(&mut self) -> Result<bool, String> {
        let read = self.reader.read_byte_record(&mut self.line);
        read.map_err(|error| error.to_string())
    }

    /// Value of the next line, between its label and its unit.
    fn value<T: FromStr>(&mut self, label: &str, unit: &str) -> Result<T, String> {
        self.next()?;
        let line = self.line.iter().collect::<Vec<_>>().join(&b';');
        let line = String::from_utf8_lossy(&line);
        let value = line
            .strip_prefix(label)
            .and_then(|rest| rest.strip_suffix(unit));
        value.and_then(|value| value.parse().ok()).ok_or_else(|| {
            let found: String = line.chars().take(SHOWN_MAX).collect();
            format!("{found:?} instead of '{label}' with its value{unit}; is this the raw data of a trial, as CSV?")
        })
    }

    /// A value that must be positive, since it is a divisor.
    fn positive(&mut self, label: &str, unit: &str) -> Result<u64, String> {
        match self.value(label, unit)? {
            0 => Err(format!("{label}0{unit}; at least 1 is needed")),
            value => Ok(value),
        }
    }
}

/// Maximum length of a wrong line in an error.
const SHOWN_MAX: usize = 60;
