//! Converts between records and sealed lines. Pure functions on octets and plain data.

use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::reading::{Reading, Torn};
use crate::campaign::record::{FORMAT, Line, Record};
use crate::hash::{hex, sha256_hex};
use crate::lab::{Blame, LabError};

/// A line as in the file, including the line feed, and its seal: the SHA-256 over the seal of the line before (64
/// hexadecimal digits, nothing before the first line) and the octets of this line up to the comma before its key
/// `seal`.
pub(super) fn sealed(before: &str, line: &Line) -> serde_json::Result<(Vec<u8>, String)> {
    let mut octets = serde_json::to_vec(line)?;
    // The closing brace comes after the seal.
    octets.pop();
    let seal = seal_of(before, &octets);
    octets.extend_from_slice(SEAL_KEY);
    octets.extend_from_slice(seal.as_bytes());
    octets.extend_from_slice(LINE_END);
    Ok((octets, seal))
}

/// Reads a whole journal. `path` is for messages.
pub(super) fn parse(path: &Path, octets: &[u8]) -> Result<Reading, LabError> {
    check_format(path, octets)?;
    let mut reading = Reading {
        lines: Vec::new(),
        seal: String::new(),
        octets: 0,
        torn: None,
    };
    let mut rest = octets;
    while !rest.is_empty() {
        let end = rest.iter().position(|&octet| octet == b'\n');
        let (text, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
        let at_end = after.is_empty();
        let found = match end {
            Some(_) => checked(path, &reading, text, at_end)?,
            None => None,
        };
        let Some((line, seal)) = found else {
            reading.torn = Some(Torn {
                path: path.to_owned(),
                line: reading.lines.len() as u64 + 1,
                offset: reading.octets,
                octets: text.len() as u64,
            });
            break;
        };
        reading.lines.push(line);
        reading.seal = seal;
        reading.octets += text.len() as u64;
        rest = after;
    }
    if reading.lines.is_empty() {
        let missing = "is missing: the file holds no whole line";
        return Err(bad(path, &reading, missing));
    }
    Ok(reading)
}

/// Checks one line that ends with a line feed; `None` if it is the last and incomplete.
fn checked(
    path: &Path,
    before: &Reading,
    text: &[u8],
    at_end: bool,
) -> Result<Option<(Line, String)>, LabError> {
    let found = match unsealed(&before.seal, text) {
        Ok(seal) => record(before, text).map(|line| Some((line, seal))),
        // A crash of the machine can leave the end of a line on the disk without its middle, which then reads as zeros.
        // JSON has no zero octets. Any other change has another cause, and to cut the line off would hide it.
        Err(_) if at_end && text.contains(&0) => Ok(None),
        Err(fault) => Err(fault.to_owned()),
    };
    found.map_err(|fault| bad(path, before, &fault))
}

/// Returns the seal of a line if it is correct.
///
/// # Errors
///
/// What is wrong with the seal.
fn unsealed(before: &str, text: &[u8]) -> Result<String, &'static str> {
    let split = || {
        let body_len = text.len().checked_sub(TAIL_LEN)?;
        let (body, tail) = text.split_at(body_len);
        let seal = tail.strip_prefix(SEAL_KEY)?.strip_suffix(LINE_END)?;
        Some((body, seal))
    };
    let (body, found) = split().ok_or("does not end with a seal")?;
    let seal = seal_of(before, body);
    if seal.as_bytes() == found {
        Ok(seal)
    } else {
        Err("was changed: its octets do not fit its seal")
    }
}

/// Returns the record of a line with a correct seal.
///
/// # Errors
///
/// Why the record cannot follow `before`.
fn record(before: &Reading, text: &[u8]) -> Result<Line, String> {
    let line: Line = serde_json::from_slice(text)
        .map_err(|error| format!("holds an unknown record: {error}"))?;
    let (due, number) = (before.lines.len() as u64, line.number);
    if number != due {
        return Err(format!("has number {number} where {due} is due"));
    }
    match &line.record {
        Record::Campaign {
            plan, plan_sha256, ..
        } if due == 0 => {
            let found = sha256_hex(plan.as_bytes());
            if found != *plan_sha256 {
                return Err(format!(
                    "has a plan whose SHA-256 is {found}, not the {plan_sha256} that it states"
                ));
            }
        }
        // The first line must be the record of the campaign, and no other line may be.
        other if due == 0 || matches!(other, Record::Campaign { .. }) => {
            let kind: &str = other.into();
            return Err(format!("is a record '{kind}', which is not allowed there"));
        }
        _ => {}
    }
    Ok(line)
}

/// Refuses another format than [`FORMAT`] before anything else is read: all the rest may differ.
fn check_format(path: &Path, octets: &[u8]) -> Result<(), LabError> {
    let text = octets.split(|&octet| octet == b'\n').next();
    let first: Value = serde_json::from_slice(text.unwrap_or_default()).unwrap_or_default();
    let campaign = &first["record"]["campaign"];
    match campaign["format"].as_u64() {
        Some(format) if format != u64::from(FORMAT) => Err(Blame::Machine.error(format!(
            "{} is of format {format}, written by {}; this program reads format {FORMAT}, use that one",
            path.display(),
            campaign["tester"].as_str().unwrap_or_default()
        ))),
        // Without a format it is not a line of a journal: the reader reports it.
        _ => Ok(()),
    }
}

fn seal_of(before: &str, body: &[u8]) -> String {
    hex(&Sha256::new()
        .chain_update(before)
        .chain_update(body)
        .finalize())
}

fn bad(path: &Path, before: &Reading, fault: &str) -> LabError {
    Blame::Record.error(format!(
        "line {} of {}, at octet {}, {fault}; restore the file from a copy, or measure again",
        before.lines.len() + 1,
        path.display(),
        before.octets
    ))
}

const SEAL_KEY: &[u8] = b",\"seal\":\"";
const LINE_END: &[u8] = b"\"}\n";
/// Between the two are 64 hexadecimal digits of SHA-256.
const TAIL_LEN: usize = SEAL_KEY.len() + 64 + LINE_END.len();
