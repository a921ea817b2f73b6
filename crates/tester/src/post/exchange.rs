//! One query from a host.

use dns64_transport::Link;
use dns64_transport::clock::{Clock, MonotonicClock, Nanos};
use dns64_transport::stream::Ending;
use dns64_wire::codes::Rtype;

use super::{HostQuery, NoAnswer};
use crate::load::query::{Edns, QueryTemplate};
use crate::namespace::AskedName;
use crate::naming::Naming;
use crate::trial::backend;

/// ID of all queries: "64".
const PROBE_ID: u16 = 0x3634;

/// Sends one query and waits for its response. Distinguishes responses from another address, unrelated datagrams, connections
/// that the server ended, and no response.
pub(super) fn exchange(question: &HostQuery) -> Result<Vec<u8>, NoAnswer> {
    let HostQuery { network, .. } = question;
    match network.enter(|| exchange_here(question)) {
        Ok(answer) => answer,
        Err(error) => Err(failed(error)),
    }
}

fn exchange_here(question: &HostQuery) -> Result<Vec<u8>, NoAnswer> {
    let HostQuery {
        address, server, ..
    } = *question;
    let template = QueryTemplate::new(&question.suffix, Edns::None);
    let asked = AskedName {
        address,
        rtype: Rtype(question.rtype),
    };
    let mut link = backend::client(question.backend, question.protocol, server, question.local)
        .map_err(failed)?;
    let sent = link.send(0, 1, |_, frame| template.write(PROBE_ID, asked, frame));
    sent.map_err(failed)?;
    let until = MonotonicClock.now() + question.wait_ns;
    let mut reply = None;
    let mut strays = 0;
    while reply.is_none() && MonotonicClock.now() < until {
        link.wait(WAIT_STEP_NS).map_err(failed)?;
        let received = link.receive(1, |datagram| {
            if datagram.payload.starts_with(&PROBE_ID.to_be_bytes()) {
                reply = Some(datagram.payload.to_vec());
            } else {
                strays += 1;
            }
        });
        received.map_err(failed)?;
        let counters = link.counters().map_err(failed)?;
        if let Some(from) = counters.foreign_from {
            return Err(NoAnswer::Foreign(from));
        }
        if counters.unreachable > 0 {
            return Err(NoAnswer::Unreachable);
        }
        let ended = link.connections().ended;
        let has_ended = |how: Ending| ended[how as usize] > 0;
        if reply.is_none() && has_ended(Ending::Tls) {
            return Err(NoAnswer::WithoutTls);
        }
        if reply.is_none() && (has_ended(Ending::Closed) || has_ended(Ending::Reset)) {
            return Err(NoAnswer::Ended);
        }
    }
    reply.ok_or(match strays {
        0 => NoAnswer::Silence,
        _ => NoAnswer::Garbage,
    })
}

fn failed(error: impl std::error::Error) -> NoAnswer {
    NoAnswer::Failed(Naming::Flags.with_causes(&error))
}

/// Maximum wait between two checks for the response.
const WAIT_STEP_NS: Nanos = 5_000_000;
