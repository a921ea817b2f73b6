//! What a worker writes into the log about single responses, for operators who asked for it.

use std::net::SocketAddr;

use dns64_wire::message::Message;

use crate::counts::Servfail;

/// Lines in a second. Enough to see what fails; a flood of failures shall not become one of lines, which
/// the journal would bound as well (`RateLimitBurst=`, journald.conf(5): 10,000 in 30 s).
const LINES_MAX: u32 = 10;

/// Lines of this second.
#[derive(Debug, Default)]
pub(super) struct Notes {
    written: u32,
    left_out: u64,
}

impl Notes {
    /// A client got SERVFAIL with this message.
    pub(super) fn servfail(&mut self, client: SocketAddr, why: Servfail, message: &[u8]) {
        if self.written == LINES_MAX {
            self.left_out += 1;
            return;
        }
        self.written += 1;
        let question = Message::parse(message).ok().and_then(|m| m.question());
        if let Some(q) = question {
            tracing::info!("SERVFAIL for {} {} to {client}: {why}", q.name, q.rtype);
        }
    }

    /// A second has passed.
    pub(super) fn next_second(&mut self) {
        if self.left_out > 0 {
            tracing::info!("SERVFAIL: {} more responses not logged", self.left_out);
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::logged;
    use super::*;

    /// A response for `a. A` with SERVFAIL.
    const RESPONSE: [u8; 19] = *b"\0\0\x80\x02\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    #[test]
    fn a_flood_of_failures_is_ten_lines_and_their_number() {
        let mut notes = Notes::default();
        let lines = logged(|| {
            for port in 1..=25 {
                let client = SocketAddr::new([192, 0, 2, 1].into(), port);
                notes.servfail(client, Servfail::NoAnswer, &RESPONSE);
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
}
