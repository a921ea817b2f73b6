//! Messages of a dnstap file: Protocol Buffers in Frame Streams.

use std::io::{self, BufRead};
use std::net::IpAddr;

use super::trace::{Carrier, Seen, Trace};
use super::{At, unread};
use crate::lab::LabError;

/// `Message` of dnstap.proto, with the fields that are read.
#[derive(Default)]
struct DnsMessage<'a> {
    kind: u64,
    protocol: u64,
    query_address: &'a [u8],
    query_time_s: Option<u64>,
    query: &'a [u8],
    response: &'a [u8],
}

/// Values of `Message.Type`: queries and responses of an authority, and those of the clients of a resolver.
const AUTH_QUERY: u64 = 1;
const AUTH_RESPONSE: u64 = 2;
const CLIENT_QUERY: u64 = 5;
const CLIENT_RESPONSE: u64 = 6;

/// The flag of responses in the third octet (RFC 1035 section 4.1.1).
const QR: u8 = 0x80;

/// Values of `SocketProtocol`.
const UDP: u64 = 1;
const TCP: u64 = 2;

/// Type of the control frame that ends a stream.
const STOP: u32 = 3;

/// Largest frame: two messages and their addresses.
const FRAME_MAX: u32 = 1 << 18;

/// Reads all frames, or as many as a trace has room for.
pub(super) fn read(mut input: impl BufRead, trace: &mut Trace) -> Result<(), LabError> {
    let mut offset = 0;
    let mut has_queries = false;
    let mut frame = Vec::new();
    while !trace.is_full() && !input.fill_buf().map_err(unread)?.is_empty() {
        let damaged = |what: &str| {
            let remedy = "write it again with the server stopped before it is read";
            super::damaged(At::Octet(offset), what, remedy)
        };
        let mut number = || {
            let mut octets = [0; 4];
            let read = input.read_exact(&mut octets);
            read.map(|()| u32::from_be_bytes(octets))
        };
        let short = |_: io::Error| damaged("it ends within a frame");
        let (is_control, length) = match number().map_err(short)? {
            0 => (true, number().map_err(short)?),
            length => (false, length),
        };
        if length > FRAME_MAX {
            return Err(damaged(&format!(
                "a frame of {length} octets, more than {FRAME_MAX}"
            )));
        }
        frame.resize(usize::try_from(length).unwrap_or_default(), 0);
        input.read_exact(&mut frame).map_err(short)?;
        match is_control {
            true if frame.first_chunk() == Some(&STOP.to_be_bytes()) => return Ok(()),
            true => {}
            false => {
                let message = DnsMessage::parse(&frame);
                let message = message.ok_or_else(|| damaged("not a dnstap message"))?;
                has_queries |= [AUTH_QUERY, CLIENT_QUERY].contains(&message.kind);
                count(&message, has_queries, trace);
            }
        }
        offset += u64::from(length) + if is_control { 8 } else { 4 };
    }
    Ok(())
}

/// Counts a message. In a stream without queries, a response stands for its query, too.
fn count(it: &DnsMessage<'_>, has_queries: bool, trace: &mut Trace) {
    let octets = match it.kind {
        AUTH_QUERY | CLIENT_QUERY => it.query,
        AUTH_RESPONSE | CLIENT_RESPONSE => it.response,
        _ => return trace.other(),
    };
    let ipv4 = <[u8; 4]>::try_from(it.query_address).map(IpAddr::from);
    let ipv6 = || <[u8; 16]>::try_from(it.query_address).map(IpAddr::from);
    let seen = Seen {
        at_s: it.query_time_s,
        client: ipv4.or_else(|_| ipv6()).ok(),
        carrier: match it.protocol {
            0 | UDP => Carrier::Udp,
            TCP => Carrier::Tcp,
            _ => Carrier::Encrypted,
        },
        octets,
    };
    if !has_queries && let Some(flags) = octets.get(2) {
        let mut query = octets.to_vec();
        query[2] = flags & !QR;
        trace.message(&Seen {
            octets: &query,
            ..seen
        });
    }
    trace.message(&seen);
}

impl<'a> DnsMessage<'a> {
    /// Parses a `Dnstap`, whose field 14 is the message; `None` if the frame is not one.
    fn parse(mut frame: &'a [u8]) -> Option<Self> {
        let mut message: &[u8] = &[];
        while !frame.is_empty() {
            if let (14, Value::Octets(octets)) = field(&mut frame)? {
                message = octets;
            }
        }
        let mut it = Self::default();
        while !message.is_empty() {
            match field(&mut message)? {
                (1, Value::Number(kind)) => it.kind = kind,
                (3, Value::Number(protocol)) => it.protocol = protocol,
                (4, Value::Octets(address)) => it.query_address = address,
                (8, Value::Number(time_s)) => it.query_time_s = Some(time_s),
                (10, Value::Octets(query)) => it.query = query,
                (14, Value::Octets(response)) => it.response = response,
                _ => {}
            }
        }
        Some(it)
    }
}

/// Value of a field of Protocol Buffers.
enum Value<'a> {
    Number(u64),
    Octets(&'a [u8]),
}

/// Takes the number and the value of the next field; `None` if the octets are not a field.
fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let key = number(rest)?;
    let value = match key & 7 {
        0 => Value::Number(number(rest)?),
        1 => Value::Octets(octets(rest, 8)?),
        2 => {
            let length = number(rest)?;
            Value::Octets(octets(rest, length)?)
        }
        5 => Value::Octets(octets(rest, 4)?),
        _ => return None,
    };
    Some((key >> 3, value))
}

/// Takes a number in groups of 7 bits, the lowest first.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (octet, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn octets<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(taken)
}
