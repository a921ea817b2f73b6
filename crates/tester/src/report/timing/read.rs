//! Reads raw data row by row: the CSV of dns64perf++ and of this program.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::str::FromStr;

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
    let told = |reason: io::Error, line| match reason.kind() {
        ErrorKind::InvalidData => {
            Blame::Request.error(format!("{}, line {line}: {reason}", path.display()))
        }
        _ => Blame::Machine.because(format!("cannot read {}", path.display()))(reason),
    };
    let file = File::open(path).map_err(|reason| told(reason, 0))?;
    let mut lines = Lines {
        input: BufReader::with_capacity(BUFFER_BYTES, file),
        line: Vec::new(),
        number: 0,
    };
    let header = lines.read(&mut each);
    header.map_err(|reason| told(reason, lines.number))
}

/// A line with the wrong form.
fn fault(text: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

/// Sending time of the query of a row, in nanoseconds since 1970. Checks all columns, so that an incomplete row is
/// refused.
fn sent_ns(line: &[u8]) -> io::Result<Nanos> {
    let mut fields = [&line[..0]; 7];
    let mut count = 0;
    for field in line.split(|&octet| octet == b';') {
        if let Some(place) = fields.get_mut(count) {
            *place = field;
        }
        count += 1;
    }
    if count != fields.len() {
        return Err(fault(format!("{count} fields instead of 7")));
    }
    let [_name, thread, sent, received, has_come, answered, rtt] = fields;
    number(received, "treceived")?;
    number(thread, "thread id")?;
    number(rtt.strip_prefix(b"-").unwrap_or(rtt), "rtt")?;
    for (flag, column) in [(has_come, "received"), (answered, "answered")] {
        if flag != b"0" && flag != b"1" {
            let found = quoted(flag);
            return Err(fault(format!("{column} is {found}, neither 0 nor 1")));
        }
    }
    number(sent, "tsent")
}

/// A decimal number below 2^64.
fn number(field: &[u8], column: &str) -> io::Result<u64> {
    let digits = field.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(field).ok().filter(|_| digits);
    let value = text.and_then(|text| text.parse().ok());
    value.ok_or_else(|| fault(format!("{column} is {}, no whole number", quoted(field))))
}

/// A text of unknown length and origin, quoted for an error.
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
    fn read(&mut self, each: &mut impl FnMut(Nanos)) -> io::Result<Header> {
        self.expect(TITLE)?;
        let header = Header {
            server: self.parameter("server: ", "")?,
            port: self.parameter("port: ", "")?,
            requests: self.parameter("number of requests: ", "")?,
            burst: self.positive("burst size: ", "")?,
            threads: self.positive("number of threads: ", "")?,
            delay_ns: self.positive("delay between bursts: ", " ns")?,
        };
        self.expect("")?;
        self.expect(COLUMNS)?;
        while let Some(line) = self.next()? {
            each(sent_ns(line)?);
        }
        Ok(header)
    }

    fn expect(&mut self, text: &str) -> io::Result<()> {
        let line = self.next()?;
        if line == Some(text.as_bytes()) {
            return Ok(());
        }
        let found = line.map_or("the end".to_owned(), quoted);
        Err(fault(format!(
            "{found} instead of '{text}'; is this the raw data of a trial, as CSV?"
        )))
    }

    /// Value of a line of the header, between its label and its unit.
    fn parameter<T: FromStr>(&mut self, label: &str, unit: &str) -> io::Result<T> {
        let line = self.next()?;
        let value = line
            .and_then(|line| std::str::from_utf8(line).ok())
            .and_then(|line| line.strip_prefix(label)?.strip_suffix(unit)?.parse().ok());
        value.ok_or_else(|| {
            let found = line.map_or("the end".to_owned(), quoted);
            fault(format!("{found} instead of '{label}' with its value{unit}"))
        })
    }

    /// A parameter that must be positive, since it is a divisor.
    fn positive(&mut self, label: &str, unit: &str) -> io::Result<u64> {
        match self.parameter(label, unit)? {
            0 => Err(fault(format!("{label}0{unit}; at least 1 is needed"))),
            value => Ok(value),
        }
    }

    /// The next line without its end; a line that is longer than any row is truncated.
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

/// Size of the reads from the system.
const BUFFER_BYTES: usize = 256 * 1024;

/// Longer than any row: a name of 255 octets in its longest form, and six numbers.
const LINE_BYTES_MAX: u64 = 2048;

/// Maximum length of a wrong line in an error.
const SHOWN_BYTES: usize = 60;
