//! The validated settings of the server, as plain data: `config` creates them, all other modules
//! read them.
//!
//! - [`Settings`]: the whole;
//! - [`dns64::Dns64`]: the DNS64 function for one group of clients;
//! - [`nets`]: sets of addresses.

pub mod dns64;
pub mod nets;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use dns64_transport::clock::Nanos;
pub use dns64_transport::xdp::Attachment;
pub use dns64_transport::xdp::program::Mode as XdpMode;
use dns64_wire::name::NameBuf;

use dns64::Dns64;
use nets::NetSet;

/// All the settings of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Addresses to listen at, over UDP and TCP; at least one.
    pub listen: Vec<SocketAddr>,
    /// Interfaces whose driver answers from the cache; at most 8.
    pub driver_cache: Vec<Attachment>,
    /// Interfaces whose datagrams pass the kernel by; none of those of `driver_cache`.
    pub af_xdp: Vec<Attachment>,
    /// Worker threads; at least 1.
    pub workers: usize,
    /// User to become after the sockets are bound, when started as root.
    pub user: Option<String>,
    /// Whether files and system calls that a running server does not need are denied to it, as far as
    /// the kernel can.
    pub sandbox: bool,
    /// Who may ask.
    pub allow: NetSet,
    /// What others get.
    pub deny: DenyAction,
    /// Resolvers that are asked; 1 to [`UPSTREAMS_MAX`].
    pub upstreams: Vec<Upstream>,
    /// Which of them is asked first.
    pub selection: Selection,
    /// When the A record is asked for (RFC 6147 section 5.1.8).
    pub order: LookupOrder,
    /// Random case in questions to upstreams (draft-vixie-dnsext-dns0x20-00).
    pub randomise_case: bool,
    /// Groups of clients; the first that holds a client's address is taken. The last holds all;
    /// before it there are at most [`VIEWS_MAX`].
    pub views: Vec<View>,
    /// Domains of special-use zones that are forwarded all the same, and not answered here.
    pub forward_special: Vec<NameBuf>,
    /// What is remembered.
    pub cache: CacheSettings,
    /// Largest UDP payload that clients are told and sent, in octets; 512 to 4096.
    pub udp_size: u16,
    /// How questions for ANY are answered.
    pub any: AnyPolicy,
    /// Bound on the UDP responses to one client network, if there is one.
    pub rate_limit: Option<RateLimit>,
    /// Connections of clients.
    pub tcp: TcpSettings,
    /// Client queries that one worker holds at once.
    pub queries_max: usize,
    /// Source ports of all workers toward all upstreams together: [`SOURCE_PORTS`], or what the limit on
    /// open files leaves.
    pub source_ports: usize,
    /// Unix socket of `dns64d ctl`.
    pub control: Option<PathBuf>,
    /// Address of the metrics page.
    pub metrics: Option<SocketAddr>,
    /// Where the log goes, and how much of it.
    pub log: LogSettings,
}

impl Settings {
    /// The number of the view that a client belongs to.
    pub fn view_of(&self, client: IpAddr) -> usize {
        let found = self.views.iter().position(|v| v.clients.contains(client));
        found.unwrap_or(self.views.len() - 1)
    }

    /// The key for whose sake all queries are left to the sockets, whatever `driver_cache` says.
    pub fn driver_obstacle(&self) -> Option<&'static str> {
        if self.rate_limit.is_some() {
            Some("rate-limit")
        } else if self.log.queries {
            Some("log.queries")
        } else if self.cache.bytes == 0 {
            Some("cache.size")
        } else {
            None
        }
    }

    /// Source ports of one worker toward one upstream: an equal share, 64 to 4096.
    pub fn ports_per_upstream(&self) -> usize {
        let pools = self.workers * self.upstreams.len();
        let (least, most) = (*PORTS_PER_UPSTREAM.start(), *PORTS_PER_UPSTREAM.end());
        (self.source_ports / pools.max(1)).clamp(least, most)
    }
}

/// Most upstreams that a server can have.
pub const UPSTREAMS_MAX: usize = 16;

/// Source ports of all workers toward all upstreams together, unless the limit on open files is lower:
/// half of all ports. Each open one takes about 3 KiB of kernel memory.
pub const SOURCE_PORTS: usize = 32_768;

/// Least and most source ports of one worker toward one upstream. RFC 5452 section 9.2 wants as many as
/// is practicable; with more than 4096, few more of a few thousand questions have one of their own.
const PORTS_PER_UPSTREAM: std::ops::RangeInclusive<usize> = 64..=4096;

/// Most views beside that of all other clients, so that the number of a view fits an octet.
pub const VIEWS_MAX: usize = 255;

/// A resolver that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its address and port.
    pub address: SocketAddr,
    /// How long one of its answers is waited for.
    pub timeout_ns: Nanos,
    /// How often it is asked for one question; at least 1.
    pub attempts: u8,
}

/// Which upstream a question goes to first. A question that it fails goes to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// One after the other.
    RoundRobin,
    /// Any, by chance.
    Random,
    /// The one that has been answering fastest; others are tried now and then.
    Fastest,
    /// The first that works, in the order of the configuration.
    Failover,
}

/// When the A record is asked for (RFC 6147 sections 5.1.6 and 5.1.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupOrder {
    /// Once the AAAA answer says that it is needed.
    AaaaThenA,
    /// At the same time as the AAAA record.
    Both,
    /// When the AAAA answer says so, or has not come after this long.
    Delayed(Nanos),
}

/// A group of clients and what they get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Their addresses.
    pub clients: NetSet,
    /// The DNS64 function for them; `None`: plain forwarding.
    pub dns64: Option<Dns64>,
}

/// What is remembered, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Bound on the memory of the cache, in octets; 0: no cache.
    pub bytes: u64,
    /// Bounds on the TTL of positive answers, in seconds.
    pub min_ttl_s: u32,
    /// See `min_ttl_s`.
    pub max_ttl_s: u32,
    /// Bound on the TTL of negative answers, in seconds (RFC 2308 section 5 suggests 1 to 3 hours).
    pub max_negative_ttl_s: u32,
    /// How long after its end an answer may be used when no upstream answers (RFC 8767), in
    /// seconds; 0: never.
    pub stale_s: u32,
    /// Whether answers that are asked for shortly before they expire are fetched again.
    pub prefetch: bool,
}

/// What clients get that may not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenyAction {
    /// REFUSED.
    Refuse,
    /// No answer.
    Drop,
}

/// How questions for ANY are answered (RFC 8482).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyPolicy {
    /// With a HINFO record of this server's own (RFC 8482 section 4.2).
    Minimal,
    /// With what the upstream says, nothing synthesised.
    Forward,
    /// Not at all: REFUSED.
    Refuse,
}

/// Bound on the UDP responses to one client network (/24 of IPv4, /56 of IPv6). Clients with a
/// valid cookie are not bound (RFC 7873 section 5.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Responses per second in the long run; at least 1.
    pub responses_per_second: u32,
    /// Responses that may come at once.
    pub burst: u32,
    /// Every n-th response over the bound is sent truncated, so that a true client comes back
    /// over TCP; 0: none, 1: all.
    pub slip: u32,
}

/// Connections of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSettings {
    /// Connections at once; 0: no TCP.
    pub connections_max: usize,
    /// Connections of one client network ([`nets::ClientNetwork`]) at once; at most
    /// `connections_max`.
    pub per_client_max: usize,
    /// A connection without a whole query for this long is closed (RFC 7766 section 6.2.3).
    pub idle_ns: Nanos,
    /// Queries of one connection that are worked on at once.
    pub pipeline_max: usize,
}

/// Where the log goes, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Where to.
    pub target: LogTarget,
    /// Least important messages that are written.
    pub level: LogLevel,
    /// Whether each query is written too.
    pub queries: bool,
    /// Whether queries that are answered SERVFAIL are written, with the reason.
    pub servfail: bool,
}

/// Where the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard error.
    Stderr,
    /// The journal of systemd.
    Journald,
    /// The system log (`/dev/log`).
    Syslog,
}

/// Importance of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// The server cannot do its work.
    Error,
    /// Something is wrong, and it goes on.
    Warn,
    /// Starts, stops, reloads.
    Info,
    /// More, for whoever looks for a fault.
    Debug,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_are_shared_by_workers_and_upstreams_within_bounds() {
        let mut settings = crate::config::parse(crate::config::template(), "template").unwrap();
        let upstream = settings.upstreams[0];
        for (workers, upstreams, source_ports, expected) in [
            (1, 1, SOURCE_PORTS, 4096),
            (2, 8, SOURCE_PORTS, 2048),
            (16, 16, SOURCE_PORTS, 128),
            (64, 16, SOURCE_PORTS, 64),
            (2, 1, 1000, 500),
            (4, 16, 1000, 64),
        ] {
            settings.workers = workers;
            settings.upstreams = vec![upstream; upstreams];
            settings.source_ports = source_ports;
            assert_eq!(
                settings.ports_per_upstream(),
                expected,
                "{workers} x {upstreams}"
            );
        }
    }
}
