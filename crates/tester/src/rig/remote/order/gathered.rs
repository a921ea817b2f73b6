//! Data that a host has gathered in a trial.

use std::net::SocketAddr;

use dns64_transport::clock::Nanos;
use dns64_transport::{Carrier, Counters};
use serde::{Deserialize, Serialize};

use super::as_text;
use crate::authority::counts::AuthorityCounts;
use crate::load::generator::Tally;
use crate::machine::usage::Usage;

/// Data that a host has gathered in a trial, without its ledgers, which follow.
#[derive(Debug, Serialize, Deserialize)]
pub struct GatheredOrder {
    /// Its shards; the ledger of each follows.
    pub shards: Vec<ShardOrder>,
    /// Its authority; the ledger follows last.
    pub authority: Option<AuthorityGathered>,
    /// CPU usage of its processors.
    pub usage: Usage,
    /// Clock source of its kernel.
    pub clock_source: Option<String>,
}

/// A shard that has run.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShardOrder {
    /// Index of the shard.
    pub shard: u64,
    /// Number of shards of the trial.
    pub shards: u64,
    /// Start on the host's clock.
    pub start: Nanos,
    /// Queries that were handed to the link.
    pub offered: usize,
    /// All datagrams that arrived before this time were processed.
    pub emptied_until_ns: Nanos,
    /// Counters in addition to the ledger.
    pub tally: Tally,
    /// Counters of its link.
    pub counters: CountersOrder,
    /// Change of the real-time clock relative to the monotonic one.
    pub clock_step_ns: i64,
    /// What carried its datagrams.
    #[serde(with = "as_text")]
    pub carrier: Carrier,
    /// Error of the link.
    pub error: Option<String>,
}

/// [`Counters`] of a link.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CountersOrder {
    receive_drops: u64,
    send_drops: u64,
    unreachable: u64,
    foreign: u64,
    foreign_from: Option<SocketAddr>,
}

impl From<Counters> for CountersOrder {
    fn from(counters: Counters) -> Self {
        Self {
            receive_drops: counters.receive_drops,
            send_drops: counters.send_drops,
            unreachable: counters.unreachable,
            foreign: counters.foreign,
            foreign_from: counters.foreign_from,
        }
    }
}

impl From<CountersOrder> for Counters {
    fn from(order: CountersOrder) -> Self {
        Self {
            receive_drops: order.receive_drops,
            send_drops: order.send_drops,
            unreachable: order.unreachable,
            foreign: order.foreign,
            foreign_from: order.foreign_from,
        }
    }
}

/// Activity of an authority during a trial.
#[derive(Debug, Serialize, Deserialize)]
pub struct AuthorityGathered {
    /// Queries and responses.
    pub counts: AuthorityCounts,
    /// Queries that its sockets lost.
    pub receive_drops: u64,
    /// Replies that the network did not accept.
    pub send_drops: u64,
    /// Why it stopped serving.
    pub error: Option<String>,
    /// Maximum configured delay from a query to its response.
    pub allowed_ns: Nanos,
    /// Start of its ledger, on the host's clock.
    pub ledger_start: Nanos,
    /// Number of AAAA and A queries for other names.
    pub other: (u64, u64),
}
