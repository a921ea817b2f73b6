//! Lists of queries as text: a name and a type in each line, as for dnsperf.

use std::io::{BufRead, Read as _};

use dns64_wire::codes::Rtype;

use super::trace::Trace;
use super::{At, unread};
use crate::lab::LabError;

/// Longest line: a name in presentation format, and a type.
const LINE_MAX: usize = 1 << 12;

/// Reads all lines, or as many as a trace has room for; empty ones and those that begin with # or ; are comments.
pub(super) fn read(mut input: impl BufRead, trace: &mut Trace) -> Result<(), LabError> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut start = input.by_ref().take(LINE_MAX as u64);
        if trace.is_full() || start.read_until(b'\n', &mut line).map_err(unread)? == 0 {
            break;
        }
        let text = std::str::from_utf8(&line)
            .ok()
            .filter(|_| line.len() < LINE_MAX);
        let text = text
            .ok_or_else(|| damaged(number, "not a line of text"))?
            .trim();
        if text.is_empty() || text.starts_with(['#', ';']) {
            continue;
        }
        let mut words = text.split_whitespace();
        let (Some(name), Some(rtype)) = (words.next(), words.next()) else {
            return Err(damaged(number, "a name without a type"));
        };
        let rtype = parse(rtype).ok_or_else(|| damaged(number, "an unknown type"))?;
        trace.asked(name.trim_end_matches('.'), rtype);
    }
    Ok(())
}

fn damaged(number: u64, what: &str) -> LabError {
    let remedy =
        "give a capture (pcap, pcapng), a dnstap file, or lines such as `example.com AAAA`";
    super::damaged(At::Line(number), what, remedy)
}

/// Parses the mnemonic of a type, or the form TYPE64 (RFC 3597 section 5).
fn parse(text: &str) -> Option<Rtype> {
    let text = text.to_ascii_uppercase();
    let number = text
        .strip_prefix("TYPE")
        .and_then(|digits| digits.parse().ok());
    let named = || {
        (0..=u8::MAX.into())
            .map(Rtype)
            .find(|rtype| rtype.to_string() == text)
    };
    number.map(Rtype).or_else(named)
}
