//! The `dns64perf.csv` of dns64perf++: seven lines of parameters, an empty line, the names of the columns, and a row
//! for each query, with semicolons.
//!
//! Times are real time, in nanoseconds since 1970. A query without a response was received at 0, with a round-trip time
//! of -1.

use std::io::{self, Write};

use super::{Header, suffix};
use crate::namespace;
use crate::trial::rows::{Row, Rows};

/// First line of the file.
pub const TITLE: &str = "dns64perf++ test parameters";

/// Names of the columns.
pub const COLUMNS: &str = "query;thread id;tsent [ns];treceived [ns];received;answered;rtt [ns]";

/// Octets of rows that are collected before a write.
const CHUNK_BYTES: usize = 256 * 1024;

/// Writes header and rows; `valid` decides which rows have `answered` = 1. Returns the number of rows.
///
/// # Errors
///
/// Those of the writer.
pub fn write(
    mut out: impl Write,
    rows: Rows<'_>,
    header: &Header,
    valid: impl Fn(&Row) -> bool,
) -> io::Result<u64> {
    let mut text = Vec::with_capacity(CHUNK_BYTES + ROW_BYTES_MAX);
    write_header(&mut text, header)?;
    let suffix = suffix(&rows) + ";";
    let started_at_ns = rows.started_at_ns();
    let mut count = 0;
    for row in rows {
        let valid = valid(&row);
        put_row(&mut text, &row, suffix.as_bytes(), started_at_ns, valid);
        count += 1;
        if text.len() >= CHUNK_BYTES {
            out.write_all(&text)?;
            text.clear();
        }
    }
    out.write_all(&text)?;
    out.flush()?;
    Ok(count)
}

fn write_header(out: &mut Vec<u8>, header: &Header) -> io::Result<()> {
    let (server, port, requests) = (header.server, header.port, header.requests);
    let (burst, threads, delay_ns) = (header.burst, header.threads, header.delay_ns);
    write!(
        out,
        "{TITLE}\nserver: {server}\nport: {port}\nnumber of requests: {requests}\n\
         burst size: {burst}\nnumber of threads: {threads}\n\
         delay between bursts: {delay_ns} ns\n\n{COLUMNS}\n"
    )
}

#[inline]
fn put_row(text: &mut Vec<u8>, row: &Row, suffix: &[u8], started_at_ns: u64, valid: bool) {
    let sent_at_ns = started_at_ns + row.sent_ns;
    text.extend(namespace::label(row.address));
    text.extend_from_slice(suffix);
    put_number(text, row.shard as u64);
    text.push(b';');
    put_number(text, sent_at_ns);
    text.push(b';');
    if row.received() {
        put_number(text, sent_at_ns + row.rtt_ns);
        text.extend_from_slice(if valid { b";1;1;" } else { b";1;0;" });
        put_number(text, row.rtt_ns);
        text.push(b'\n');
    } else {
        text.extend_from_slice(b"0;0;0;-1\n");
    }
}

/// Appends a number in decimal: this is most of the work of a row.
#[inline]
fn put_number(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// 2^64 has 20 digits.
const DIGITS_MAX: usize = 20;

/// A name of at most 255 octets, whose text is at most four times as long; numbers and separators.
const ROW_BYTES_MAX: usize = 4 * 255 + 5 * DIGITS_MAX;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::load::ledger::Fate;

    #[test]
    fn header_and_rows_have_the_expected_octets() {
        let header = Header {
            server: "2001:db8::53".parse().unwrap(),
            port: 53,
            requests: 3,
            burst: 1,
            threads: 2,
            delay_ns: 100_000,
        };
        let mut text = Vec::new();
        write_header(&mut text, &header).unwrap();
        let row = |index, fate, rtt_ns| Row {
            index,
            address: Ipv4Addr::new(10, 0, 7, 255),
            shard: 1,
            sent_ns: 42,
            lateness_ns: 2,
            rtt_ns,
            fate,
            expired: true,
        };
        for (row, valid) in [
            (row(0, Fate::Valid, 484_287), true),
            (row(1, Fate::Wrong, 7), false),
            (row(2, Fate::Pending, 0), false),
        ] {
            let suffix = b".dns64perf.test.;";
            put_row(&mut text, &row, suffix, 1_795_255_495_747_081_589, valid);
        }
        let expected = "\
dns64perf++ test parameters
server: 2001:db8::53
port: 53
number of requests: 3
burst size: 1
number of threads: 2
delay between bursts: 100000 ns

query;thread id;tsent [ns];treceived [ns];received;answered;rtt [ns]
010-000-007-255.dns64perf.test.;1;1795255495747081631;1795255495747565918;1;1;484287
010-000-007-255.dns64perf.test.;1;1795255495747081631;1795255495747081638;1;0;7
010-000-007-255.dns64perf.test.;1;1795255495747081631;0;0;0;-1
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
