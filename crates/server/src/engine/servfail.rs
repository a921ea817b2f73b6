//! Determines the reason of each SERVFAIL for a client: it is counted, and logged if configured.

use dns64_wire::codes::Rcode;
use dns64_wire::message::{Flags, HEADER_LEN};

use super::Engine;
use super::actions::{Actions, Client};
use super::exchange::NO_REACHABLE_AUTHORITY;
use super::queries::Query;
use crate::counts::Servfail;

impl Servfail {
    /// The reason of the failure of a query whose response was built from known responses.
    pub(super) fn of(query: &Query) -> Self {
        // A was queried last, so its failure comes first.
        let known = query.known.iter().rev().flatten();
        let mut failed = known.filter(|part| part.stored.is_failure());
        match failed.next().map(|part| part.stored.extended_error()) {
            Some(Some(NO_REACHABLE_AUTHORITY)) => Self::NoAnswer,
            Some(_) => Self::Rcode,
            None => Self::Translator,
        }
    }
}

impl Engine {
    /// If the response in the frame, which is about to be sent, is SERVFAIL: counts the reason, and
    /// logs it if the settings say so.
    pub(super) fn explain(&self, client: Client, why: Servfail, len: usize, actions: &mut Actions) {
        if self.failed(len) {
            self.counts.count_servfail(why);
            if self.maker.settings.log.servfail {
                actions.servfail(client.address(), why, &self.maker.frame[..len]);
            }
        }
    }

    /// Whether the response in the frame is SERVFAIL.
    pub(super) fn failed(&self, len: usize) -> bool {
        let header = self.maker.frame[..len].first_chunk::<HEADER_LEN>();
        header.is_some_and(|h| Flags(u16::from_be_bytes([h[2], h[3]])).rcode() == Rcode::SERVFAIL)
    }
}
