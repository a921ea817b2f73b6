//! Log messages of a worker about single responses, if the operator enabled them.

use std::net::SocketAddr;

use dns64_transport::clock::Nanos;
use dns64_wire::message::{Header, Message};

use crate::counts::Servfail;
use crate::dnstap::{Response, Tap};
use crate::engine::Engine;
use crate::engine::actions::Client;
use crate::settings::Settings;

/// Log lines per second: enough to see the failures, without turning a flood of failures into one of lines, which the
/// journal would limit as well (`RateLimitBurst=`, journald.conf(5): 10,000 in 30 s).
const LINES_MAX: u32 = 10;

/// Log lines of the current second, and the responses that operators see.
#[derive(Debug, Default)]
pub(super) struct Notes {
    written: u32,
    left_out: u64,
    /// Where sampled responses go, beside the log.
    pub(super) tap: Option<Tap>,
    /// Responses since the last one of the sample.
    passed: u32,
}

impl Notes {
    /// Logs a SERVFAIL response to a client.
    pub(super) fn servfail(
        &mut self,
        settings: &Settings,
        client: SocketAddr,
        why: Servfail,
        message: &[u8],
    ) {
        if self.written == LINES_MAX {
            self.left_out += 1;
            return;
        }
        self.written += 1;
        let question = Message::parse(message).ok().and_then(|m| m.question());
        if let Some(q) = question {
            let client = shown(settings, client);
            tracing::info!("SERVFAIL for {} {} to {client}: {why}", q.name, q.rtype);
        }
    }

    /// Starts the next second.
    pub(super) fn next_second(&mut self) {
        if self.left_out > 0 {
            tracing::info!("SERVFAIL: {} more responses not logged", self.left_out);
        }
        (self.written, self.left_out) = (0, 0);
    }

    /// Whether somebody sees responses.
    pub(super) fn wants_responses(&self, settings: &Settings) -> bool {
        settings.log.queries || self.tap.is_some()
    }

    /// Logs a response of the sample, and sends it to dnstap. Queries without a response are only counted, in `dropped`.
    pub(super) fn response(
        &mut self,
        engine: &Engine,
        client: &Client,
        message: &[u8],
        took_ns: Nanos,
        at: Nanos,
    ) {
        if message.is_empty() {
            return;
        }
        let settings = engine.settings();
        self.passed += 1;
        if self.passed < settings.log.sample {
            return;
        }
        self.passed = 0;
        let address = shown(settings, client.address());
        if settings.log.queries {
            query(address, message, took_ns);
        }
        if let Some(tap) = &self.tap {
            let response = Response {
                client: address,
                is_tcp: matches!(client, Client::Tcp { .. }),
                at,
                took_ns,
                message: message.to_vec(),
            };
            if !tap.offer(response) {
                engine.counts().dnstap_lost.tick();
            }
        }
    }
}

/// A client as operators see it.
fn shown(settings: &Settings, client: SocketAddr) -> SocketAddr {
    match settings.log.anonymise {
        true => SocketAddr::new(settings.client_prefixes.network(client.ip()).address(), 0),
        false => client,
    }
}

/// Logs a query with its response.
fn query(client: SocketAddr, response: &[u8], took_ns: Nanos) {
    let (Ok(header), Ok(message)) = (Header::parse(response), Message::parse(response)) else {
        return;
    };
    let rcode = header.flags().rcode();
    let ms = format!("{}.{:03}", took_ns / 1_000_000, took_ns / 1_000 % 1_000);
    match message.question() {
        Some(q) => {
            tracing::info!(%client, name = %q.name, r#type = %q.rtype, %rcode, %ms, "query");
        }
        None => tracing::info!(%client, %rcode, %ms, "query without a question"),
    }
}

#[cfg(test)]
mod tests {
    use dns64_wire::message::HEADER_LEN;

    use super::super::tests::{logged, settings};
    use super::*;

    /// A SERVFAIL response for `a. A`.
    const RESPONSE: [u8; 19] = *b"\0\0\x80\x02\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    #[test]
    fn query_is_logged_with_rcode_and_time_of_its_response() {
        let client = SocketAddr::new([192, 0, 2, 1].into(), 4000);
        let lines = logged(|| {
            query(client, &RESPONSE, 12_034_900);
            query(client, &RESPONSE[..HEADER_LEN], 0);
            query(client, &[], 0);
            let mut bare = RESPONSE[..HEADER_LEN].to_vec();
            bare[5] = 0;
            query(client, &bare, 0);
        });
        let expected = [
            "INFO query client=192.0.2.1:4000 name=a. type=A rcode=SERVFAIL ms=12.034",
            "INFO query without a question client=192.0.2.1:4000 rcode=SERVFAIL ms=0.000",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn flood_of_failures_is_logged_as_ten_lines_and_a_count() {
        let mut notes = Notes::default();
        let settings = settings("192.0.2.53");
        let lines = logged(|| {
            for port in 1..=25 {
                let client = SocketAddr::new([192, 0, 2, 1].into(), port);
                notes.servfail(&settings, client, Servfail::NoAnswer, &RESPONSE);
            }
            notes.next_second();
            notes.next_second();
        });
        assert_eq!(lines.len(), 11, "{lines:?}");
        assert_eq!(
            lines[0],
            "INFO SERVFAIL for a. A to 192.0.2.1:1: no response from any upstream"
        );
        assert_eq!(lines[10], "INFO SERVFAIL: 15 more responses not logged");
    }

    #[test]
    fn anonymised_failure_has_the_network_of_its_client() {
        let mut settings = settings("192.0.2.53");
        settings.log.anonymise = true;
        let client = "[2001:db8:1:2:3::4]:4000".parse().unwrap();
        let lines = logged(|| {
            Notes::default().servfail(&settings, client, Servfail::NoAnswer, &RESPONSE);
        });
        assert_eq!(
            lines,
            ["INFO SERVFAIL for a. A to [2001:db8:1::]:0: no response from any upstream"]
        );
    }
}
