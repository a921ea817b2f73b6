//! dns64perf of 2015 (Lencse 2015): a few threads send closed-loop queries, and only the total time of 256 queries is
//! measured.
//!
//! It compares servers and is not a trial of RFC 8219: the server determines the rate, so a slow server receives fewer
//! queries per second.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use dns64_transport::clock::{Clock, MonotonicClock, Nanos};
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{HEADER_LEN, Message, Section};

use super::arguments::{Classic, EXPERIMENTS};

/// Result of one experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Experiment {
    /// Time from the start of its threads to the end of the last one.
    pub(super) elapsed_ns: Nanos,
    /// Responses in time.
    pub(super) answered: usize,
    /// Responses in time with an AAAA record.
    pub(super) with_aaaa: usize,
}

impl Classic {
    /// Experiment `b`: queries the names `10-a-b-0` to `10-a-b-255` of client `a`. Each thread queries its part of them
    /// one after another.
    ///
    /// # Errors
    ///
    /// A query cannot be sent; a missing response is not an error.
    pub(super) fn experiment(&self, b: u8) -> anyhow::Result<Experiment> {
        let each = EXPERIMENTS / self.threads;
        let begun = MonotonicClock.now();
        let parts: Vec<_> = thread::scope(|scope| {
            let part = |k| scope.spawn(move || self.ask(b, k * each..(k + 1) * each));
            let threads: Vec<_> = (0..self.threads).map(part).collect();
            threads
                .into_iter()
                .map(thread::ScopedJoinHandle::join)
                .collect()
        });
        let mut sum = Experiment {
            elapsed_ns: MonotonicClock.now() - begun,
            ..Experiment::default()
        };
        for part in parts {
            let lost = "a thread of the experiment ended without a report; this is a bug";
            let part = part.map_err(|_| anyhow!(lost))??;
            sum.answered += part.answered;
            sum.with_aaaa += part.with_aaaa;
        }
        Ok(sum)
    }

    /// Queries the names of one thread.
    fn ask(&self, b: u8, numbers: std::ops::Range<usize>) -> anyhow::Result<Experiment> {
        let socket = self.socket().map_err(|e| self.failed(e))?;
        let mut part = Experiment::default();
        for c in numbers.filter_map(|c| u8::try_from(c).ok()) {
            let query = self.query(Ipv4Addr::new(10, self.client, b, c));
            let answer = self.exchange(&socket, &query);
            if let Some(reply) = answer.map_err(|e| self.failed(e))? {
                part.answered += 1;
                part.with_aaaa += usize::from(has_aaaa(&reply));
            }
        }
        Ok(part)
    }

    fn socket(&self) -> io::Result<UdpSocket> {
        let any: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(self.server)?;
        Ok(socket)
    }

    /// AAAA query for the name of an address: RD set, and an ID from the second and the third number (Lencse 2015,
    /// section IV.D.3).
    fn query(&self, address: Ipv4Addr) -> Vec<u8> {
        let [first, a, b, c] = address.octets();
        let label = format!("{first}-{a}-{b}-{c}");
        let mut query = vec![a, b, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend(u8::try_from(label.len()));
        query.extend(label.as_bytes());
        query.extend(self.suffix.as_wire());
        query.extend([0, 28, 0, 1]); // AAAA, IN
        query
    }

    /// Sends a query and waits for its response. All queries of an experiment have the same ID, so the question section
    /// distinguishes a response from a late one.
    fn exchange(&self, socket: &UdpSocket, query: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let question = &query[HEADER_LEN..];
        let mut reply = vec![0; REPLY_BYTES_MAX];
        let until = MonotonicClock.now() + self.timeout_ns;
        socket.send(query)?;
        loop {
            let left_ns = until.saturating_sub(MonotonicClock.now());
            if left_ns == 0 {
                return Ok(None);
            }
            socket.set_read_timeout(Some(Duration::from_nanos(left_ns)))?;
            match socket.recv(&mut reply) {
                Ok(len) if answers(&reply[..len], query, question) => {
                    reply.truncate(len);
                    return Ok(Some(reply));
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn failed(&self, reason: io::Error) -> anyhow::Error {
        let server = self.server;
        match reason.kind() {
            // ICMP port unreachable.
            io::ErrorKind::ConnectionRefused => anyhow!(
                "nothing listens at {server}; start the server or correct its address and port"
            ),
            _ => anyhow!("cannot ask {server}: {reason}"),
        }
    }
}

/// Whether `reply` has QR, the ID and the question of `query`.
fn answers(reply: &[u8], query: &[u8], question: &[u8]) -> bool {
    let echoed = reply.get(HEADER_LEN..HEADER_LEN + question.len());
    echoed.is_some_and(|echoed| echoed.eq_ignore_ascii_case(question))
        && reply[..2] == query[..2]
        && reply[2] & 0x80 != 0
}

/// Whether a response has any AAAA record.
fn has_aaaa(reply: &[u8]) -> bool {
    let Ok(message) = Message::parse(reply) else {
        return false;
    };
    message.rcode() == Rcode::NOERROR
        && message
            .records()
            .map_while(Result::ok)
            .any(|record| record.section == Section::Answer && record.rtype == Rtype::AAAA)
}

/// Queries have no OPT record, so no response is longer (RFC 1035 section 2.3.4).
const REPLY_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_has_the_dns64perf_name_and_id() {
        let spec = Classic {
            server: "[::1]:53".parse().unwrap(),
            client: 1,
            threads: 4,
            timeout_ns: 1,
            suffix: "dns64perf.test.".parse().unwrap(),
        };
        let query = spec.query(Ipv4Addr::new(10, 1, 20, 255));
        let expected = b"\x01\x14\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\
            \x0b10-1-20-255\x09dns64perf\x04test\x00\x00\x1c\x00\x01";
        assert_eq!(query, expected);
        let mut reply = query.clone();
        reply[2] |= 0x80;
        assert!(answers(&reply, &query, &query[HEADER_LEN..]));
        assert!(!has_aaaa(&reply));
        let other = spec.query(Ipv4Addr::new(10, 1, 20, 254));
        assert!(!answers(&reply, &other, &other[HEADER_LEN..]));
        assert!(!answers(&query, &query, &query[HEADER_LEN..]));
        assert!(!answers(b"", &query, &query[HEADER_LEN..]));
    }
}
