//! Responses to clients as dnstap messages (dnstap.proto) in Frame Streams over a UNIX socket.
//!
//! - [`channel`]: a bounded queue from the workers, which never wait, to one writer;
//! - [`Writer`]: connects, writes, and connects again.

use std::io::{self, BufWriter, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};

/// Capacity of the queue in responses; of the largest over TCP, 32 MiB.
const RESPONSES_MAX: usize = 512;

/// Interval between two attempts to connect.
const RETRY_NS: Nanos = SECOND;

/// Time for the receiver to accept the stream, or to read on.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long written frames may wait for others.
const FLUSH: Duration = Duration::from_millis(200);

/// Type of the content of a stream.
const CONTENT: &[u8] = b"protobuf:dnstap.Dnstap";

/// Types of control frames, and of their field with the type of the content (Frame Streams, `fstrm/control.h`).
const ACCEPT: u32 = 1;
const START: u32 = 2;
const READY: u32 = 4;
const FIELD_CONTENT: u32 = 1;

/// Longest control frame (`FSTRM_CONTROL_FRAME_LENGTH_MAX`).
const CONTROL_MAX: u32 = 512;

/// A response to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The client.
    pub client: SocketAddr,
    /// Whether it came over a connection.
    pub is_tcp: bool,
    /// Time of the response.
    pub at: Nanos,
    /// Time since the query.
    pub took_ns: Nanos,
    /// Its octets.
    pub message: Vec<u8>,
}

/// The workers' end of the queue.
#[derive(Clone, Debug)]
pub struct Tap(SyncSender<Response>);

impl Tap {
    /// Queues a response; returns false if the queue is full.
    pub fn offer(&self, response: Response) -> bool {
        self.0.try_send(response).is_ok()
    }
}

/// The writer's end of the queue.
#[derive(Debug)]
pub struct Writer {
    responses: Receiver<Response>,
    path: PathBuf,
}

/// A queue to the socket at this path.
pub fn channel(path: &Path) -> (Tap, Writer) {
    let (sender, responses) = sync_channel(RESPONSES_MAX);
    let path = path.to_owned();
    (Tap(sender), Writer { responses, path })
}

impl Writer {
    /// Writes responses until all taps are dropped. While nobody listens at the path, responses wait, and then are lost.
    pub fn run(self) {
        let path = self.path.display();
        let mut is_told = false;
        loop {
            let written = self.connect().and_then(|stream| {
                tracing::info!("dnstap: connected to {path}");
                is_told = false;
                self.write(stream)
            });
            match written {
                Ok(()) => return,
                Err(reason) if !is_told => {
                    tracing::warn!("dnstap: {path}: {reason}; trying each second");
                    is_told = true;
                }
                Err(_) => {}
            }
            MonotonicClock.sleep(RETRY_NS);
        }
    }

    /// Connects, and agrees on the content with the receiver.
    fn connect(&self) -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&control(READY))?;
        let mut number = || {
            let mut octets = [0; 4];
            let read = stream.read_exact(&mut octets);
            read.map(|()| u32::from_be_bytes(octets))
        };
        let (escape, length, kind) = (number()?, number()?, number()?);
        if (escape, kind) != (0, ACCEPT) || !(4..=CONTROL_MAX).contains(&length) {
            return Err(io::Error::other("the receiver does not accept the stream"));
        }
        // The only type that was offered.
        io::copy(&mut (&stream).take(u64::from(length) - 4), &mut io::sink())?;
        (&stream).write_all(&control(START))?;
        Ok(stream)
    }

    /// Writes responses until all taps are dropped, or the receiver fails.
    fn write(&self, stream: UnixStream) -> io::Result<()> {
        let mut stream = BufWriter::new(stream);
        let offset_ns = MonotonicClock.realtime_offset();
        loop {
            match self.responses.recv_timeout(FLUSH) {
                Ok(response) => stream.write_all(&frame(&response, offset_ns))?,
                Err(RecvTimeoutError::Timeout) => stream.flush()?,
                Err(RecvTimeoutError::Disconnected) => return stream.flush(),
            }
        }
    }
}

/// A control frame with the type of the content.
fn control(kind: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    let length = 12 + CONTENT.len();
    for number in [
        0,
        length_of(length),
        kind,
        FIELD_CONTENT,
        length_of(CONTENT.len()),
    ] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend(CONTENT);
    frame
}

/// A response as a frame. `offset_ns`: real time minus the server's clock.
fn frame(response: &Response, offset_ns: i64) -> Vec<u8> {
    let mut dnstap = Vec::new();
    octets(&mut dnstap, 14, &message(response, offset_ns));
    // MESSAGE.
    number(&mut dnstap, 15, 1);
    let mut frame = length_of(dnstap.len()).to_be_bytes().to_vec();
    frame.extend(dnstap);
    frame
}

/// `Message` of dnstap.proto.
fn message(response: &Response, offset_ns: i64) -> Vec<u8> {
    let Response {
        client,
        is_tcp,
        at,
        took_ns,
        message,
    } = response;
    let mut out = Vec::new();
    // CLIENT_RESPONSE.
    number(&mut out, 1, 6);
    let ip = client.ip().to_canonical();
    number(&mut out, 2, if ip.is_ipv4() { 1 } else { 2 });
    number(&mut out, 3, if *is_tcp { 2 } else { 1 });
    match ip {
        IpAddr::V4(ip) => octets(&mut out, 4, &ip.octets()),
        IpAddr::V6(ip) => octets(&mut out, 4, &ip.octets()),
    }
    number(&mut out, 6, client.port().into());
    for (field, moment) in [(8, at.saturating_sub(*took_ns)), (12, *at)] {
        let real_ns = moment.saturating_add_signed(offset_ns);
        number(&mut out, field, real_ns / SECOND);
        let rest_ns = u32::try_from(real_ns % SECOND).unwrap_or_default();
        varint(&mut out, u64::from(field + 1) << 3 | 5);
        out.extend(rest_ns.to_le_bytes());
    }
    octets(&mut out, 14, message);
    out
}

/// Appends a field of Protocol Buffers.
fn octets(out: &mut Vec<u8>, field: u32, octets: &[u8]) {
    varint(out, u64::from(field) << 3 | 2);
    varint(out, octets.len() as u64);
    out.extend(octets);
}

fn number(out: &mut Vec<u8>, field: u32, number: u64) {
    varint(out, u64::from(field) << 3);
    varint(out, number);
}

/// Appends a number in groups of 7 bits, the lowest first.
fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        #[expect(clippy::cast_possible_truncation, reason = "the lowest bits")]
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most 7 bits")]
    out.push(number as u8);
}

fn length_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// What `dns64bench learn` reads in its tests.
    const STREAM: &[u8] = include_bytes!("dnstap.fstrm");

    /// NOERROR for `a. AAAA`, without records.
    const MESSAGE: &[u8] = b"\x12\x34\x81\x80\0\x01\0\0\0\0\0\0\x01a\0\0\x1c\0\x01";

    fn response(client: &str, is_tcp: bool) -> Response {
        Response {
            client: client.parse().unwrap(),
            is_tcp,
            at: 7 * SECOND + 5,
            took_ns: 2 * SECOND,
            message: MESSAGE.to_vec(),
        }
    }

    /// 2026-01-01 at the start of the clock.
    const OFFSET_NS: i64 = 1_767_225_600 * 1_000_000_000;

    #[test]
    fn stream_is_the_one_that_learn_reads() {
        let mut stream = control(START);
        stream.extend(frame(&response("192.0.2.0:0", false), OFFSET_NS));
        stream.extend(frame(&response("[2001:db8::1]:4000", true), OFFSET_NS));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/dnstap.fstrm");
            std::fs::write(path, &stream).unwrap();
        }
        assert_eq!(stream, STREAM);
    }

    #[test]
    fn fields_are_those_of_dnstap_proto() {
        let found = frame(&response("192.0.2.7:4000", false), OFFSET_NS);
        let mut expected = vec![0x72, 58, 0x08, 6, 0x10, 1, 0x18, 1];
        expected.extend([0x22, 4, 192, 0, 2, 7, 0x30, 0xa0, 0x1f]);
        // 1,767,225,605 and 1,767,225,607 s.
        expected.extend([0x40, 0x85, 0xf2, 0xd6, 0xca, 0x06, 0x4d, 5, 0, 0, 0]);
        expected.extend([0x60, 0x87, 0xf2, 0xd6, 0xca, 0x06, 0x6d, 5, 0, 0, 0]);
        expected.extend([0x72, 19]);
        expected.extend(MESSAGE);
        expected.extend([0x78, 1]);
        assert_eq!(found[4..], expected);
        assert_eq!(usize::from(found[3]), expected.len());
    }

    #[test]
    fn full_queue_refuses_and_a_late_receiver_gets_what_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tap.sock");
        let (tap, writer) = channel(&path);
        let offered = (0..=RESPONSES_MAX).map(|_| tap.offer(response("[::1]:1", false)));
        let taken = offered.filter(|is_taken| *is_taken).count();
        assert_eq!(taken, RESPONSES_MAX);
        drop(tap);
        let listener = UnixListener::bind(&path).unwrap();
        let writing = std::thread::spawn(|| writer.run());
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&control(ACCEPT)).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        writing.join().unwrap();
        let opening = [control(READY), control(START)].concat();
        assert!(got.starts_with(&opening));
        let one = frame(
            &response("[::1]:1", false),
            MonotonicClock.realtime_offset(),
        )
        .len();
        assert_eq!(got.len(), opening.len() + RESPONSES_MAX * one);
    }
}
