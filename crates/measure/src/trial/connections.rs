//! The Measurer's connections in a trial over TCP or TLS, from what its links counted.

use dns64_transport::stream::{self, Ending};

use super::distribution::Times;
use super::result::{Connections, Ended};
use super::surroundings::ShardReport;

/// Returns those of all shards; `None` for datagrams.
pub(super) fn of(shards: &[ShardReport]) -> Option<Connections> {
    if !shards.iter().any(|shard| shard.carrier.is_stream()) {
        return None;
    }
    let all = || shards.iter().map(|shard| &shard.connections);
    let sum = |of: fn(&stream::Connections) -> u64| all().map(of).sum::<u64>();
    let ended = |how: Ending| Ended {
        connections: all().map(|it| it.ended[how as usize]).sum(),
        queries: all().map(|it| it.lost[how as usize]).sum(),
    };
    let mut times = Times::new();
    let set_ups = all().flat_map(|it| &it.set_up_ns);
    set_ups.for_each(|&ns| times.record(ns.into()));
    Some(Connections {
        established: sum(|it| it.established),
        before_trial: sum(|it| it.at_opening),
        set_up_ns: times.rtt(),
        ended_idle: sum(|it| it.ended_idle),
        refused: ended(Ending::Refused),
        reset: ended(Ending::Reset),
        closed: ended(Ending::Closed),
        tls_failed: ended(Ending::Tls),
        unreachable: ended(Ending::Unreachable),
        queries_not_read: sum(|it| it.not_read),
        segments_retransmitted: sum(|it| it.retransmitted),
    })
}

/// Returns remarks on what the server did to connections.
pub(super) fn notes(connections: &Connections) -> Vec<String> {
    let ended = connections.endings().into_iter();
    let mut notes: Vec<String> = ended
        .filter(|(ended, _)| *ended != Ended::default())
        .map(|(Ended { connections, queries }, how)| {
            format!("{connections} connections to the server were {how}: {queries} queries were lost with them")
        })
        .collect();
    if connections.queries_not_read > 0 {
        notes.push(format!(
            "the server did not read: {} queries were due while its window was closed",
            connections.queries_not_read
        ));
    }
    notes
}
