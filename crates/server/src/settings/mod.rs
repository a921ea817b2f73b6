//! The validated settings of the server, as plain data: `config` creates them, all other modules read them.
//!
//! - [`Settings`]: all settings;
//! - [`domains::Domains`]: values by domain;
//! - [`dns64::Dns64`]: the DNS64 function for one group of clients;
//! - [`local::Local`]: names that the server answers itself;
//! - [`cookies`]: secrets that several servers share;
//! - [`nets`]: sets of addresses.

pub mod cookies;
pub mod dns64;
pub mod domains;
pub mod local;
pub mod nets;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use dns64_transport::clock::Nanos;
use dns64_transport::relay::{Missing, Outgoing};
pub use dns64_transport::xdp::Attachment;
pub use dns64_transport::xdp::program::Mode as XdpMode;
use dns64_wire::name::NameBuf;
use dns64_wire::pref64::Pref64;

use cookies::CookieSecrets;
use dns64::Dns64;
use domains::Domains;
use local::Local;
use nets::{ClientPrefixes, NetSet};

use crate::tls::Certificate;
use crate::tls::client::{Authentication, Sessions};

/// All settings of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Addresses to listen at, over UDP and TCP; at least one.
    pub listen: Vec<SocketAddr>,
    /// Whether it listens at addresses that no interface has, and queries from them.
    pub free_bind: bool,
    /// Interfaces whose driver answers from the cache; at most 8.
    pub driver_cache: Vec<Attachment>,
    /// Interfaces with AF_XDP sockets; none of those of `driver_cache`.
    pub af_xdp: Vec<Attachment>,
    /// Worker threads; at least 1.
    pub workers: usize,
    /// User to become after the sockets are bound, when started as root.
    pub user: Option<String>,
    /// Whether the kernel denies the running server all files and system calls that it does not need, as far as it can.
    pub sandbox: bool,
    /// Addresses of permitted clients.
    pub allow: NetSet,
    /// Response to other clients.
    pub deny: DenyAction,
    /// Addresses of proxies, whose queries and connections begin with a header of the PROXY protocol.
    pub proxies: NetSet,
    /// Resolvers to query, of all sets; 1 to [`UPSTREAMS_MAX`].
    pub upstreams: Vec<Upstream>,
    /// Which of them are queried for the same names: first for all names, then for those of domains.
    pub sets: Vec<ServerSet>,
    /// Time of the A query (RFC 6147 section 5.1.8).
    pub order: LookupOrder,
    /// Groups of clients; the first that contains a client's address applies. The last contains all addresses; before
    /// it there are at most [`VIEWS_MAX`].
    pub views: Vec<View>,
    /// Addresses that names of the upstreams for all names must not have, so that no public name leads into the networks
    /// of clients (DNS rebinding).
    pub block_addresses: NetSet,
    /// Domains that may have them.
    pub block_except: Domains<()>,
    /// How the translators are probed; `None`: they are not.
    pub nat64_health: Option<Nat64Health>,
    /// Names that the server answers itself: special-use zones, and those of the operator.
    pub local: Arc<Local>,
    /// Files in the form of `/etc/hosts`, whose names are in `local`.
    pub hosts: Vec<PathBuf>,
    /// Cache.
    pub cache: CacheSettings,
    /// Maximum UDP payload that is advertised and sent to clients, in octets; 512 to 4096.
    pub udp_size: u16,
    /// Policy for ANY queries.
    pub any: AnyPolicy,
    /// What it says of itself.
    pub identity: Identity,
    /// File with the secrets of the cookies; `None`: the server draws its own.
    pub cookie_file: Option<PathBuf>,
    /// The secrets in this file.
    pub cookies: Option<CookieSecrets>,
    /// The networks that count as one client: for the shares of waiting queries, for connections and for the rate limit.
    pub client_prefixes: ClientPrefixes,
    /// Limit on the UDP responses to one client network, if there is one.
    pub rate_limit: Option<RateLimit>,
    /// Connections of clients.
    pub tcp: TcpSettings,
    /// Encrypted connections of clients, if there are any.
    pub tls: Option<TlsSettings>,
    /// Maximum number of pending client queries of one worker.
    pub queries_max: usize,
    /// Local ports from which upstreams are not queried.
    pub avoid_ports: Vec<RangeInclusive<u16>>,
    /// The same, by `net.ipv4.ip_local_reserved_ports` at the start.
    pub reserved_ports: Vec<RangeInclusive<u16>>,
    /// Source ports of all workers to all upstreams together: [`SOURCE_PORTS`], or fewer if the limit on open files
    /// requires it.
    pub source_ports: usize,
    /// Unix socket of `dns64d ctl`.
    pub control: Option<PathBuf>,
    /// Address of the metrics page.
    pub metrics: Option<SocketAddr>,
    /// Log destination and verbosity.
    pub log: LogSettings,
}

impl Settings {
    /// The index of a client's view.
    pub fn view_of(&self, client: IpAddr) -> usize {
        let found = self.views.iter().position(|v| v.clients.contains(client));
        found.unwrap_or(self.views.len() - 1)
    }

    /// The prefixes in use, each once.
    pub fn prefixes(&self) -> Vec<Pref64> {
        let dns64 = self.views.iter().filter_map(|view| view.dns64.as_ref());
        let mut prefixes: Vec<_> = Vec::new();
        for prefix in dns64.flat_map(Dns64::prefixes_in_use) {
            if !prefixes.contains(&prefix) {
                prefixes.push(prefix);
            }
        }
        prefixes
    }

    /// Whether a prefix is withdrawn, because its translator does not answer.
    pub fn is_withdrawn(&self, prefix: Pref64) -> bool {
        let mut dns64 = self.views.iter().filter_map(|view| view.dns64.as_ref());
        dns64.any(|dns64| dns64.withdrawn.contains(&prefix))
    }

    /// Withdraws these prefixes and no others.
    pub fn withdraw(&mut self, prefixes: &[Pref64]) {
        for dns64 in self.views.iter_mut().filter_map(|view| view.dns64.as_mut()) {
            dns64.withdrawn = prefixes.to_vec();
        }
    }

    /// Whether queries to any upstream have random case.
    pub fn randomises_case(&self) -> bool {
        self.upstreams.iter().any(|u| u.features.randomise_case)
    }

    /// The configuration key because of which `driver_cache` has no effect: the sockets answer all queries.
    pub fn driver_obstacle(&self) -> Option<&'static str> {
        if self.rate_limit.is_some() {
            Some("rate-limit")
        } else if self.log.queries {
            Some("log.queries")
        } else if self.log.dnstap.is_some() {
            Some("log.dnstap")
        } else if !self.proxies.nets().is_empty() {
            Some("proxy-protocol")
        } else if self.cache.bytes == 0 {
            Some("cache.size")
        } else {
            None
        }
    }

    /// Whether upstreams are queried as by these settings: the same ones for the same names, chosen alike, from the same
    /// ports.
    pub fn queries_like(&self, other: &Self) -> bool {
        self.upstreams == other.upstreams
            && self.sets == other.sets
            && (self.views.iter().map(|view| &view.forwards))
                .eq(other.views.iter().map(|view| &view.forwards))
            && self.avoid_ports == other.avoid_ports
    }

    /// Interfaces and source addresses that this host lacks now, each once.
    pub fn missing(&self) -> Vec<Missing> {
        let mut all = Vec::new();
        for missing in self.upstreams.iter().flat_map(|u| u.outgoing.missing()) {
            if !all.contains(&missing) {
                all.push(missing);
            }
        }
        all
    }

    /// Source ports of one worker to one upstream: an equal share, at most 4096.
    pub fn ports_per_upstream(&self) -> usize {
        let pools = self.workers * self.upstreams.len();
        (self.source_ports / pools.max(1)).clamp(1, PORTS_PER_UPSTREAM_MAX)
    }
}

/// Maximum number of upstreams: each has an equal share of the source ports.
pub const UPSTREAMS_MAX: usize = 32;

/// Maximum number of sets of upstreams for domains.
pub const FORWARDS_MAX: usize = 32;

/// Source ports of all workers to all upstreams together, unless the limit on open files is lower: a quarter of all
/// ports, so that other programs find free ones. Each open port takes about 3 KiB of kernel memory.
pub const SOURCE_PORTS: usize = 16_384;

/// Number of ports above 1023 that may be opened at least, without those to avoid: twice as many as are open at a time.
pub const PORTS_LEFT_MIN: usize = 2 * SOURCE_PORTS;

/// Number of ports above 1023 that are not in `avoided`.
pub fn ports_left(avoided: &[RangeInclusive<u16>]) -> usize {
    let is_left = |port: &u16| !avoided.iter().any(|range| range.contains(port));
    (1024..=u16::MAX).filter(is_left).count()
}

/// Maximum number of source ports of one worker to one upstream. RFC 5452 section 9.2 requires as many as practicable;
/// beyond 4096, only few more of some thousand queries have their own port.
const PORTS_PER_UPSTREAM_MAX: usize = 4096;

/// Maximum number of views in addition to the default view, so that the index of a view fits an octet.
pub const VIEWS_MAX: usize = 255;

/// An upstream resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its address and port; with [`Authentication::Opportunistic`] that of clear text.
    pub address: SocketAddr,
    /// Timeout for one of its responses.
    pub timeout_ns: Nanos,
    /// Number of attempts per query; at least 1.
    pub attempts: u8,
    /// What it is queried with.
    pub features: Features,
    /// How it is queried over TLS, if it is.
    pub tls: Option<UpstreamTls>,
    /// The addresses and the interface from which it is queried.
    pub outgoing: Outgoing,
}

impl Upstream {
    /// Its address for TLS.
    pub fn tls_address(&self) -> SocketAddr {
        match &self.tls {
            Some(tls) if tls.authentication.is_strict() => self.address,
            _ => {
                let mut address = self.address;
                address.set_port(TLS_PORT);
                address
            }
        }
    }
}

/// The port of DNS over TLS (RFC 7858 section 3.1).
pub const TLS_PORT: u16 = 853;

/// The TLS of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// Who is believed to be this upstream.
    pub authentication: Authentication,
    /// File of the authorities that are trusted, in PEM form; `None`: those of the system.
    pub roots: Option<PathBuf>,
    /// Its sessions; `None` until the authorities are read.
    pub sessions: Option<Sessions>,
}

/// Sessions do not count: a reload begins others.
impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        (&self.authentication, &self.roots) == (&other.authentication, &other.roots)
    }
}

impl Eq for UpstreamTls {}

/// What an upstream is queried with. Without evidence to the contrary, an upstream supports all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// EDNS (RFC 6891).
    pub edns: bool,
    /// DNS cookies (RFC 7873); not without EDNS.
    pub cookies: bool,
    /// Random case of names (draft-vixie-dnsext-dns0x20-00).
    pub randomise_case: bool,
    /// TCP, for truncated responses and if responses over UDP are doubtful.
    pub tcp: bool,
}

/// Upstreams that are queried for the same names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSet {
    /// Its name for operators; `upstream` for the servers of `[upstream]`.
    pub name: String,
    /// Its domains; none for the servers of `[upstream]`.
    pub domains: Vec<NameBuf>,
    /// Indices of [`Settings::upstreams`], in the order of the configuration.
    pub servers: Vec<usize>,
    /// Selection of the first upstream for a query.
    pub selection: Selection,
}

/// Selection of the first upstream for a query. If it fails, the query goes to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// In turn.
    RoundRobin,
    /// At random.
    Random,
    /// The fastest so far; others are tried occasionally.
    Fastest,
    /// The first available one, in the order of the configuration.
    Failover,
}

/// Time of the A query (RFC 6147 sections 5.1.6 and 5.1.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupOrder {
    /// When the AAAA response shows that it is needed.
    AaaaThenA,
    /// At the same time as the AAAA query.
    Both,
    /// When the AAAA response shows that it is needed, or has not arrived after this time.
    Delayed(Nanos),
}

/// A group of clients and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Addresses of the clients.
    pub clients: NetSet,
    /// The DNS64 function for them; `None`: plain forwarding.
    pub dns64: Option<Dns64>,
    /// Domains with upstreams of their own: the index of their set in [`Settings::sets`].
    pub forwards: Domains<usize>,
}

/// Settings of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Memory limit of the cache in octets; 0: no cache.
    pub bytes: u64,
    /// Minimum TTL of positive responses in seconds.
    pub min_ttl_s: u32,
    /// Maximum TTL of positive responses in seconds.
    pub max_ttl_s: u32,
    /// Maximum TTL of negative responses in seconds (RFC 2308 section 5 suggests 1 to 3 hours).
    pub max_negative_ttl_s: u32,
    /// How long an expired response may be used if no upstream answers (RFC 8767), in seconds; 0: never.
    pub stale_s: u32,
    /// Whether responses are refreshed if they are requested shortly before they expire.
    pub prefetch: bool,
}

/// Response to clients without permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenyAction {
    /// REFUSED.
    Refuse,
    /// No response.
    Drop,
}

/// Policy for ANY queries (RFC 8482).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyPolicy {
    /// A HINFO record of this server (RFC 8482 section 4.2).
    Minimal,
    /// The response of the upstream, without synthesis.
    Forward,
    /// REFUSED.
    Refuse,
}

/// Limit on the UDP responses of all workers to one client network. Clients with a valid cookie are not limited (RFC 7873
/// section 5.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Responses per second on average; at least 1.
    pub responses_per_second: u32,
    /// Maximum burst of responses.
    pub burst: u32,
    /// Every n-th response above the limit is sent truncated, so that a genuine client retries over TCP; 0: none, 1:
    /// all.
    pub slip: u32,
    /// Addresses of clients that are not limited.
    pub exempt: NetSet,
}

/// How the translators are probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat64Health {
    /// Hosts behind the translators; at least one.
    pub hosts: Vec<ProbedHost>,
    /// Number of rounds in a row without an answer after which a prefix is withdrawn; at least 1.
    pub failures: u32,
    /// Number of rounds in a row with an answer after which it comes back; at least 1.
    pub successes: u32,
}

/// A host behind the translators, by which they are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbedHost {
    /// It is connected to, by TCP.
    Connect(SocketAddrV4),
    /// It is pinged.
    Ping(Ipv4Addr),
}

impl ProbedHost {
    /// Its address.
    pub const fn ip(self) -> Ipv4Addr {
        match self {
            Self::Connect(host) => *host.ip(),
            Self::Ping(ip) => ip,
        }
    }
}

/// What the server says of itself to clients that ask; empty texts: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// NSID (RFC 5001), `id.server` and `hostname.bind` (RFC 4892).
    pub id: ShortText,
    /// `version.server` and `version.bind`.
    pub version: ShortText,
}

/// A text of up to 31 octets. It is copied with each query, so the copies share its octets, which stay until the process ends: few
/// texts are ever configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortText(&'static str);

impl ShortText {
    /// An empty text.
    pub const NONE: Self = Self("");

    /// Length of the longest text in octets.
    pub const LEN_MAX: usize = 31;

    /// `None`: too long.
    pub fn new(text: &str) -> Option<Self> {
        static KNOWN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
        if text.len() > Self::LEN_MAX {
            return None;
        }
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = known.get(text).copied().unwrap_or_else(|| {
            let shared: &'static str = text.to_owned().leak();
            known.insert(shared);
            shared
        });
        Some(Self(shared))
    }

    /// Its octets.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Connections of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSettings {
    /// Maximum number of connections; 0: no TCP.
    pub connections_max: usize,
    /// Maximum number of connections of one client network ([`nets::ClientNetwork`]); at most `connections_max`.
    pub per_client_max: usize,
    /// A connection without a complete query for this time is closed (RFC 7766 section 6.2.3).
    pub idle_ns: Nanos,
    /// Maximum number of pending queries of one connection.
    pub pipeline_max: usize,
}

/// Encrypted connections of clients (RFC 7858), within the limits of [`TcpSettings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Addresses to listen at; at least one.
    pub listen: Vec<SocketAddr>,
    /// File of the certificate and those that lead to its issuer, in PEM form.
    pub certificate_file: PathBuf,
    /// File of its key.
    pub key_file: PathBuf,
    /// The contents of the files; `None` until they are read.
    pub certificate: Option<Certificate>,
}

/// Log destination and verbosity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Destination.
    pub target: LogTarget,
    /// Lowest level that is logged.
    pub level: LogLevel,
    /// Whether responses are logged.
    pub queries: bool,
    /// UNIX socket that gets responses as dnstap messages.
    pub dnstap: Option<PathBuf>,
    /// One in how many responses is logged, and sent to `dnstap`; at least 1.
    pub sample: u32,
    /// Whether clients appear there as their networks only ([`ClientPrefixes`]).
    pub anonymise: bool,
    /// Whether SERVFAIL responses are logged, with the reason.
    pub servfail: bool,
}

/// Log destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard error.
    Stderr,
    /// The journal of systemd.
    Journald,
    /// The system log (`/dev/log`).
    Syslog,
}

/// Log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// The server cannot do its work.
    Error,
    /// Something is wrong, but the server continues.
    Warn,
    /// Starts, stops, reloads.
    Info,
    /// Details for troubleshooting.
    Debug,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_are_divided_among_workers_and_upstreams_within_bounds() {
        let mut settings = crate::config::parse(crate::config::template(), "template").unwrap();
        let upstream = settings.upstreams[0].clone();
        for (workers, upstreams, source_ports, expected) in [
            (1, 1, SOURCE_PORTS, 4096),
            (2, 8, SOURCE_PORTS, 1024),
            (16, 16, SOURCE_PORTS, 64),
            (64, 16, SOURCE_PORTS, 16),
            (1024, 16, SOURCE_PORTS, 1),
            (2, 1, 1000, 500),
            (4, 16, 10, 1),
        ] {
            settings.workers = workers;
            settings.upstreams = vec![upstream.clone(); upstreams];
            settings.source_ports = source_ports;
            assert_eq!(
                settings.ports_per_upstream(),
                expected,
                "{workers} x {upstreams}"
            );
        }
    }
}
