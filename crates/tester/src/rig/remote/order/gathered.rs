//! What a host has gathered in a trial.

use std::net::SocketAddr;

use dns64_transport::Counters;
use dns64_transport::clock::Nanos;
use serde::{Deserialize, Serialize};

use crate::authority::counts::AuthorityCounts;
use crate::lab::usage::Usage;
use crate::load::generator::Tally;

/// What a host has gathered in a trial, without its ledgers, which follow.
#[derive(Debug, Serialize, Deserialize)]
pub struct GatheredOrder {
    /// Its shards; the ledger of each follows.
    pub shards: Vec<ShardOrder>,
    /// Its authority; the ledger follows last.
    pub authority: Option<AuthorityGathered>,
    /// Who used its processors.
    pub usage: Usage,
    /// What its kernel reads the time from.
    pub clock_source: Option<String>,
}

/// A shard that has run.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShardOrder {
    /// Its number,
    pub shard: u64,
    /// and how many there are in the whole trial.
    pub shards: u64,
    /// When it began, on the host's clock.
    pub start: Nanos,
    /// Queries that were handed to the link.
    pub offered: usize,
    /// What arrived within this time has been taken in.
    pub emptied_until_ns: Nanos,
    /// What was counted beside its ledger.
    pub tally: Tally,
    /// What its link counted.
    pub counters: CountersOrder,
    /// How far the real-time clock moved against the monotonic one.
    pub clock_step_ns: i64,
    /// Kind of link.
    pub backend: String,
    /// Why the link failed.
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

/// What an authority did during a trial.
#[derive(Debug, Serialize, Deserialize)]
pub struct AuthorityGathered {
    /// Queries and answers.
    pub counts: AuthorityCounts,
    /// Queries that its sockets lost.
    pub receive_drops: u64,
    /// Replies that the network did not take.
    pub send_drops: u64,
    /// Why it stopped serving.
    pub error: Option<String>,
    /// How long after a question its answers were asked to leave at the latest.
    pub allowed_ns: Nanos,
    /// When its ledger begins, on the host's clock.
    pub ledger_start: Nanos,
    /// Questions for AAAA and A of other names.
    pub other: (u64, u64),
}
