//! What a host does for a measurement: it starts servers, runs its part of a trial, reads counters, sends single queries.
//!
//! ```text
//! Host::ask --Request--> Post                                   this machine: a call
//! Host::ask --Request--> Link ==ssh==> agent::serve --> Post    another host
//! ```
//!
//! A [`Host`](host::Host) is this machine or one at the other end of a connection ([`links`]); a [`work::Post`] executes its
//! requests. Both ends are the same build, so the requests contain the types of the domain. Whatever a host was asked to begin
//! ends with the drop of its owner, with [`Request::Close`], and with the connection.

pub mod clocks;
mod exchange;
pub mod host;
pub mod links;
pub mod probe;
pub mod pulse;
pub mod work;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use derive_more::TryInto;
use dns64_transport::Backend;
use dns64_transport::clock::Nanos;
use dns64_wire::name::NameBuf;
use serde::{Deserialize, Serialize};
use serde_with::{As, DisplayFromStr};

use crate::agent::facts::HostFacts;
use crate::authority::counts::AuthorityCounts;
use crate::lab::Blame;
use crate::lab::profile::{Profile, as_source};
use crate::lab::routes::Route;
use crate::lab::server::{ServerSpec, Start};
use crate::load::transport::Protocol;
use crate::machine::Role;
use crate::machine::counters::CounterReading;
use crate::machine::network::Network;
use crate::machine::process::Resources;
use crate::trial::part::{Gathered, Part, ReusedLedgers};
use crate::trial::{AuthDns, Measurer, TrialSpec};

/// Request to a host. The reply is the [`Reply`] of its line, or an error.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Starts a server from its profile, without waiting for its first response: [`Reply::Done`].
    Launch(Role, Box<ServerSpec>),
    /// Stops it and launches it again with empty caches: [`Reply::Done`].
    Relaunch(Role),
    /// Stops it: [`Reply::Done`].
    Stop(Role),
    /// Returns the state of a server: [`Reply::State`].
    State(Role),
    /// Records its first correct response: [`Reply::Started`].
    Ready(Role),
    /// Returns its program: [`Reply::Program`].
    Program(Role),
    /// Opens the threads and sockets of Measurer and authority, instead of the existing ones: [`Reply::Done`].
    Open(Box<TesterSpec>),
    /// Ends them, and the queries to an authority: [`Reply::Done`].
    Close,
    /// Returns the counters of the built-in authority since its start: [`Reply::Counts`].
    Counts,
    /// Prepares this host's part of a trial: [`Reply::Done`].
    Arm {
        /// The trial.
        spec: Box<TrialSpec>,
        /// The part.
        part: Part,
        /// Memory of an earlier trial, for reuse; on another host it stays there.
        #[serde(skip)]
        spare: ReusedLedgers,
    },
    /// Runs it from this time of the host's monotonic clock to its end: [`Reply::Ran`].
    Run(Nanos),
    /// Returns its data: [`Reply::Gathered`]. From another host the ledgers follow.
    Gather,
    /// Returns the current counters of a network, with or without those of its queues: [`Reply::Reading`].
    Read(Network, bool),
    /// Returns the facts of the host, which takes a second: [`Reply::Facts`].
    Facts,
    /// Returns the version of a profile's program, if it exists: [`Reply::Version`].
    Find(Box<Wanted>),
    /// Sends one query and returns its response, whatever it contains: [`Reply::Answer`].
    Ask(HostQuery),
    /// Starts to send a query repeatedly, from this core or from any: [`Reply::Done`].
    Pulse(HostQuery, Option<usize>),
    /// Stops these queries: [`Reply::Waits`].
    EndPulse,
    /// Sets these routes to source addresses, which replace earlier ones and are removed when the agent ends:
    /// [`Reply::Done`].
    Routes(Vec<Route>),
}

/// Reply of a host.
#[derive(Debug, TryInto, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The request was completed.
    Done,
    /// Another host refused the request: what failed with its causes, and who has to change something.
    Refused(Blame, String),
    /// State of a server.
    State(ServerState),
    /// Start of a server.
    Started(Start),
    /// Program of a server.
    Program(Box<Program>),
    /// Counters of the authority.
    Counts(AuthorityCounts),
    /// The trial has run, with this delay of its start.
    Ran(Nanos),
    /// A part of a trial.
    Gathered(Box<Gathered>),
    /// Counters; `None` if they cannot be read.
    Reading(Option<CounterReading>),
    /// Facts of the host.
    Facts(Box<HostFacts>),
    /// Version of a program; `None` if its output does not match the profile.
    Version(Option<String>),
    /// The octets of a response, or the reason for its absence.
    Answer(Result<Vec<u8>, NoAnswer>),
    /// Response time of each query.
    Waits(Vec<Nanos>),
}

/// Roles of the Tester on a host; none on the host of a DUT, which is only observed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct TesterSpec {
    /// The Measurer's threads on this host.
    pub measurer: Option<Measurer>,
    /// Source ports that the Measurer needs at least.
    pub ports: usize,
    /// The built-in authority.
    pub authority: Option<AuthDns>,
}

/// A program to look up.
#[derive(Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// Profile of its server.
    #[serde(with = "as_source")]
    pub profile: Profile,
    /// Path of the program, if it is not looked up.
    pub program: Option<PathBuf>,
}

/// State of a server.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ServerState {
    /// How it ended, if it has.
    pub ended: Option<String>,
    /// Its last log lines.
    pub log_tail: String,
    /// Its use of resources.
    pub resources: Resources,
    /// CPU time of its threads so far.
    pub cpu_ns: Nanos,
    /// Datagrams lost by its sockets so far, at full receive buffers.
    pub udp_drops: u64,
}

impl ServerState {
    /// Combines it with the state of a server on another host that acts as one with it.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            ended: self.ended.or(other.ended),
            log_tail: format!("{}; {}", self.log_tail, other.log_tail),
            resources: self.resources.with(other.resources),
            cpu_ns: self.cpu_ns + other.cpu_ns,
            udp_drops: self.udp_drops + other.udp_drops,
        }
    }
}

/// Program of a server; unknown items are empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// Its version, as it prints it.
    pub version: Option<String>,
    /// Program and arguments, with `{workdir}` in place of its directory.
    pub command: Vec<String>,
    /// Environment variables that were set.
    pub environment: BTreeMap<String, String>,
    /// Its rendered files, by name.
    pub files: BTreeMap<String, String>,
    /// SHA-256 of its program.
    pub sha256: Option<String>,
    /// Its core affinity.
    pub cores: Option<String>,
}

/// One query for the name of an address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostQuery {
    /// Network of the sender.
    pub network: Network,
    /// Kind of its link: an authority in the driver may only answer on one.
    #[serde(with = "As::<DisplayFromStr>")]
    pub backend: Backend,
    /// Transport of the query.
    pub protocol: Protocol,
    /// Source address; `None` for that of the routing table.
    pub local: Option<IpAddr>,
    /// The queried server.
    pub server: SocketAddr,
    /// The zone.
    #[serde(with = "As::<DisplayFromStr>")]
    pub suffix: NameBuf,
    /// The address whose name is queried.
    pub address: Ipv4Addr,
    /// The type of the query.
    pub rtype: u16,
    /// Timeout of the query.
    pub wait_ns: Nanos,
}

/// Reason why a query has no usable response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoAnswer {
    /// ICMP port unreachable, or a refused connection.
    Unreachable,
    /// No response.
    Silence,
    /// Response from this other address.
    Foreign(SocketAddr),
    /// A datagram that answers no query.
    Garbage,
    /// The TLS handshake failed.
    WithoutTls,
    /// The server closed or reset the connection.
    Ended,
    /// The query could not be sent.
    Failed(String),
}
