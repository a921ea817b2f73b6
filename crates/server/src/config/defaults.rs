//! Defaults for missing keys, and the bounds of all values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::cpu;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::values::{DNS_PORT, GIB, MIB, MILLISECOND, MINUTE};
use crate::settings::dns64::{Dns64, DomainRules, FailurePolicy, Ptr, SignedPolicy};
use crate::settings::nets::{ClientPrefixes, NetSet};
use crate::settings::{
    AnyPolicy, CacheSettings, DenyAction, Features, LogLevel, LogSettings, LogTarget, LookupOrder,
    Selection, TcpSettings,
};
use dns64_wire::pref64::Pref64;

/// All addresses of this machine, separately for IPv6 and IPv4.
pub(super) fn listen(port: u16) -> Vec<SocketAddr> {
    vec![
        SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
        SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
    ]
}

/// An address that no interface has is more likely a mistake.
pub(super) const FREE_BIND: bool = false;

pub(super) const LISTEN_PORT: u16 = DNS_PORT;

/// The upstream of the template: an address for documentation (RFC 5737).
pub(super) const EXAMPLE_UPSTREAM: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53)), DNS_PORT);

/// Maximum number of interfaces of the program in the driver.
pub(super) const DRIVER_INTERFACES_MAX: usize = 8;

/// One worker per core: workers never block, so more of them would only alternate.
pub(super) fn workers() -> usize {
    cpu::available().len().max(1)
}

/// No machine that serves DNS has more cores; each worker costs sockets and a table.
pub(super) const WORKERS: RangeInclusive<usize> = 1..=1_024;

/// Features that the kernel lacks are skipped, so the default never prevents a start.
pub(super) const SANDBOX: bool = true;

/// Loopback, link-local and private addresses. An open resolver amplifies attacks (RFC 5358 section 4), so other
/// clients must be permitted explicitly.
pub(super) fn allow() -> NetSet {
    NetSet::new(private())
}

/// Loopback, link-local and private addresses.
pub(super) fn private() -> Vec<IpNet> {
    const IPV6: [(u16, u8); 2] = [
        (0xfe80, 10), // link-local: RFC 4291 section 2.5.6
        (0xfc00, 7),  // unique local: RFC 4193
    ];
    const IPV4: [([u8; 4], u8); 5] = [
        ([127, 0, 0, 0], 8),    // loopback: RFC 1122 section 3.2.1.3
        ([10, 0, 0, 0], 8),     // private: RFC 1918
        ([172, 16, 0, 0], 12),  // private: RFC 1918
        ([192, 168, 0, 0], 16), // private: RFC 1918
        ([169, 254, 0, 0], 16), // link-local: RFC 3927
    ];
    let loopback = IpNet::from(IpAddr::V6(Ipv6Addr::LOCALHOST));
    let ipv6 = IPV6.iter().map(|&(first, len)| {
        Ipv6Net::new_assert(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0), len).into()
    });
    let ipv4 = IPV4
        .iter()
        .map(|&(octets, len)| Ipv4Net::new_assert(octets.into(), len).into());
    [loopback].into_iter().chain(ipv6).chain(ipv4).collect()
}

/// Refused clients get a response immediately, as from Unbound, instead of a timeout.
pub(super) const DENY: DenyAction = DenyAction::Refuse;

/// RFC 8482: no client needs all records, and attackers use them for amplification.
pub(super) const ANY: AnyPolicy = AnyPolicy::Minimal;

/// The size that crosses nearly every path unfragmented (DNS flag day 2020).
pub(super) const UDP_SIZE: u16 = 1_232;

/// From the size that every client accepts (RFC 1035 section 4.2.1) to the starting value of RFC 6891 section 6.2.5;
/// larger responses are fragmented everywhere.
pub(super) const UDP_SIZES: RangeInclusive<u16> = 512..=4_096;

/// 110,000 queries a second, each waiting 150 ms for an upstream.
pub(super) const QUERIES_MAX: usize = 16_384;

/// Maximum: the number of IDs of DNS messages (RFC 1035 section 4.1.1).
pub(super) const QUERIES: RangeInclusive<usize> = 1..=65_536;

/// By round-trip time, like the selection of forwarders in Unbound and BIND.
pub(super) const SELECTION: Selection = Selection::Fastest;

/// Slightly less than the deadline of a client query: otherwise a query that is lost late is not retried in time.
pub(super) const TIMEOUT_NS: Nanos = 4 * SECOND;

/// From the round-trip time within a country to the deadline after which a query is answered SERVFAIL
/// (`engine::DEADLINE_NS`): later responses reach no client.
pub(super) const TIMEOUTS_NS: RangeInclusive<Nanos> = 10 * MILLISECOND..=4_500 * MILLISECOND;

/// RFC 9520 section 3.1: three queries in total to a server. A path that loses two of three packets is hardly usable.
pub(super) const ATTEMPTS: u8 = 3;

/// More attempts would exceed the timeout of any client.
pub(super) const ATTEMPTS_BOUNDS: RangeInclusive<u8> = 1..=10;

pub(super) const FEATURES: Features = Features {
    edns: true,
    cookies: true,
    // Resolvers hand the case on to authoritative servers, some of which find only names in lower case.
    randomise_case: false,
    tcp: true,
};

/// One query if it suffices; RFC 6147 section 5.1.8 permits more but does not require them.
pub(super) const ORDER: LookupOrder = LookupOrder::AaaaThenA;

/// The Resolution Delay of Happy Eyeballs (RFC 8305 section 3).
pub(super) const DELAY_NS: Nanos = 50 * MILLISECOND;

/// Below a millisecond it is equivalent to "both"; after a second "aaaa-then-a" also queries A.
pub(super) const DELAYS_NS: RangeInclusive<Nanos> = MILLISECOND..=SECOND;

/// The DNS64 function with the Well-Known Prefix (RFC 6147 section 5.2).
pub(super) fn dns64() -> Dns64 {
    Dns64 {
        prefixes: vec![Pref64::WELL_KNOWN],
        ranges: Vec::new(),
        exclude_aaaa: NetSet::new(vec![ipv4_mapped().into()]),
        // RFC 6052 section 3.1: MUST NOT.
        well_known_private: false,
        domains: DomainRules::default(),
        // RFC 6147 section 5.5 (2): after validation, which the upstreams do.
        signed: SignedPolicy::Validated,
        // RFC 6147 section 5.3.1, second option; the behaviour of BIND.
        ptr: Ptr::Cname,
        // RFC 8880 section 7.1: MUST.
        ipv4only: true,
        // Few clients read extended errors, and all receive the additional octets.
        mark_synthesised: false,
        // RFC 6147 section 5.1.2: any error is treated as if there were no AAAA records.
        failure: FailurePolicy::Synthesise,
        filter_a: false,
        withdrawn: Vec::new(),
    }
}

/// ::ffff:0:0/96 (RFC 4291 section 2.5.5.2), the default of RFC 6147 section 5.1.4, though written ::ffff/96 there.
fn ipv4_mapped() -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96)
}

/// The cache. The TTLs are those of Unbound (`cache-min-ttl`, `cache-max-ttl`,
/// `cache-max-negative-ttl`); 256 MiB hold a million names with AAAA and A at 128 octets each.
pub(super) const CACHE: CacheSettings = CacheSettings {
    bytes: 256 * MIB,
    min_ttl_s: 0,
    max_ttl_s: 86_400,
    // RFC 2308 section 5: one to three hours have been found to work well.
    max_negative_ttl_s: 3_600,
    // Stale responses (RFC 8767) can be wrong, so they must be enabled explicitly.
    stale_s: 0,
    prefetch: false,
};

/// Less holds almost nothing; no machine has more.
pub(super) const CACHE_BYTES: RangeInclusive<u64> = MIB..=1_024 * GIB;

/// More than an hour serves records that their owners have replaced (unbound.conf(5)).
pub(super) const MIN_TTLS_S: RangeInclusive<u32> = 0..=3_600;

/// RFC 8767 section 4: a cap of seven days is recommended.
pub(super) const MAX_TTLS_S: RangeInclusive<u32> = 1..=7 * 86_400;

/// RFC 2308 section 5: more than a day has been found to be problematic.
pub(super) const NEGATIVE_TTLS_S: RangeInclusive<u32> = 0..=86_400;

/// RFC 8767 section 5 suggests one to three days at most; a week is the cap of TTLs there.
pub(super) const STALE_S: RangeInclusive<u32> = 1..=7 * 86_400;

/// Client connections.
pub(super) const TCP: TcpSettings = TcpSettings {
    // Fits the default limit of 1,024 descriptors, together with the sockets for upstreams.
    connections_max: 256,
    per_client_max: per_client_max(256),
    // RFC 7766 section 6.2.3: of the order of a few seconds.
    idle_ns: 10 * SECOND,
    // As in Knot Resolver (`net.tcp_pipeline`).
    pipeline_max: 100,
};

/// A quarter of all connections: a few networks with many connections leave places for others, and a network of many
/// clients still has dozens.
pub(super) const fn per_client_max(connections_max: usize) -> usize {
    connections_max.div_ceil(4)
}

/// All ports of one client; 0: no TCP.
pub(super) const CONNECTIONS: RangeInclusive<usize> = 0..=65_536;

/// Below a second slow clients never finish; above ten minutes other clients need the descriptors.
pub(super) const IDLE_NS: RangeInclusive<Nanos> = SECOND..=10 * MINUTE;

/// At least one query at a time; a single connection must not fill a worker's table.
pub(super) const PIPELINE: RangeInclusive<usize> = 1..=4_096;

/// The networks of BIND's response rate limiting. An IPv6 customer often has a /56 (RIPE-690): shorter networks than
/// those of customers make several of them share a limit, longer ones give one customer several shares.
pub(super) const CLIENT_PREFIXES: ClientPrefixes = ClientPrefixes { ipv4: 24, ipv6: 56 };

/// From the largest networks of one client to single addresses; of IPv6 to single subnets.
pub(super) const PREFIX_LENS_IPV4: RangeInclusive<u8> = 8..=32;
pub(super) const PREFIX_LENS_IPV6: RangeInclusive<u8> = 32..=64;

/// From one response to more than one machine can send.
pub(super) const RESPONSES_PER_SECOND: RangeInclusive<u32> = 1..=10_000_000;

/// Every second response above the limit is truncated, as in BIND and NSD.
pub(super) const SLIP: u32 = 2;

/// The bounds of `slip` in BIND.
pub(super) const SLIPS: RangeInclusive<u32> = 0..=10;

/// systemd sends standard error to the journal in any case.
pub(super) const LOG: LogSettings = LogSettings {
    target: LogTarget::Stderr,
    level: LogLevel::Info,
    queries: false,
    dnstap: None,
    sample: 1,
    anonymise: false,
    servfail: false,
};

/// Numbers of responses of which one is logged.
pub(super) const SAMPLES: RangeInclusive<u32> = 1..=1_000_000;

/// A port in the range of Prometheus exporters that no other name server uses.
pub(super) const METRICS_PORT: u16 = 9_164;

/// The default path in `dns64d ctl`.
pub(super) const CONTROL: &str = "/run/dns64d/control.sock";

/// Maximum length of a socket's path without the closing NUL (unix(7)).
pub(super) const SOCKET_PATH_MAX: usize = 107;

/// Maximum file size: a hundred thousand ranges and domains.
pub(super) const FILE_MAX: u64 = 16 * MIB;
