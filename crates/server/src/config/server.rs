//! All tables except `[upstream]`, `[[forward]]`, `[local]`, `[dns64]` and `[[view]]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use dns64_wire::name::NameBuf;
use toml::Spanned;
use toml::de::DeTable;

use super::defaults;
use super::error::{Fault, Faults};
use super::forward::{self, Forward};
use super::section::{Section, Value};
use super::upstream::UpstreamTable;
use super::{check, cookies, dns64, keys, local, nat64, tls, values};
use crate::answer::local::{concerns, special_use};
use crate::settings::domains::Domains;
use crate::settings::nets::{ClientPrefixes, NetSet};
use crate::settings::{
    AnyPolicy, Attachment, CacheSettings, DenyAction, Identity, LogLevel, LogSettings, LogTarget,
    RateLimit, SOURCE_PORTS, Settings, ShortText, TcpSettings, XdpMode,
};

/// Reads a whole document. Invalid values are added to the faults and replaced by their defaults.
pub(super) fn read(
    document: &Spanned<DeTable<'_>>,
    file_len: usize,
    faults: &mut Faults,
) -> Settings {
    let top = Section::open(document.get_ref(), file_len..file_len, &keys::TOP, faults);
    let listen = listen(&top, faults);
    let upstream = UpstreamTable::read(&top, faults);
    let forwards = forward::read(&top, &upstream, faults);
    let servers = upstream.servers.iter();
    let servers = servers.chain(forwards.iter().flat_map(|forward| &forward.servers));
    check::loops(&listen, servers, faults);
    let tcp = tcp(&top, faults);
    let tls = tls::read(&top, &listen, &tcp, faults);
    let special = special_use(&forward_special(&top, &forwards, faults));
    let (local, hosts) = local::read(&top, &forwards, special, faults);
    let views = dns64::views(&top, &forwards, faults);
    let (upstreams, sets) = forward::sets(&upstream, &forwards, faults);
    Settings {
        listen: listen.into_iter().map(Spanned::into_inner).collect(),
        free_bind: upstream.manner.outgoing.free_bind,
        driver_cache: interfaces("driver-cache", &top, faults),
        af_xdp: af_xdp(&top, faults),
        workers: workers(&top, faults),
        user: top.read("user", faults, |v| v.text("\"dns64d\"", user)),
        sandbox: word("sandbox", &SANDBOX, &top, faults).unwrap_or(defaults::SANDBOX),
        allow: top
            .networks("allow", faults)
            .map_or_else(defaults::allow, |nets| {
                NetSet::new(nets.into_iter().map(Spanned::into_inner).collect())
            }),
        deny: word("deny-action", &DENY, &top, faults).unwrap_or(defaults::DENY),
        proxies: networks("proxy-protocol", &top, faults),
        upstreams,
        sets,
        order: upstream.order,
        avoid_ports: upstream.avoid_ports,
        reserved_ports: Vec::new(),
        block_addresses: block_addresses(&top, faults),
        block_except: block_except(&top, faults),
        nat64_health: nat64::read(&top, &views, faults),
        views,
        local: Arc::new(local),
        hosts,
        cache: cache(&top, faults),
        udp_size: top
            .read("udp-size", faults, |v| v.number(defaults::UDP_SIZES))
            .unwrap_or(defaults::UDP_SIZE),
        any: word("any", &ANY, &top, faults).unwrap_or(defaults::ANY),
        identity: identity(&top, faults),
        cookie_file: cookies::file(&top, faults),
        cookies: None,
        client_prefixes: client_prefixes(&top, faults),
        rate_limit: rate_limit(&top, faults),
        tcp,
        tls,
        source_ports: SOURCE_PORTS,
        queries_max: top
            .read("queries-max", faults, |v| v.count(defaults::QUERIES))
            .unwrap_or(defaults::QUERIES_MAX),
        control: control(&top, faults),
        metrics: metrics(&top, faults),
        log: log(&top, faults),
    }
}

/// The value of a key that is one of some words.
fn word<T: Copy>(
    key: &'static str,
    words: &[(&str, T)],
    section: &Section<'_, '_>,
    faults: &mut Faults,
) -> Option<T> {
    let example = format!("{:?}", words[0].0);
    section.read(key, faults, |v| {
        v.text(&example, |t| values::choice(t, words))
    })
}

fn listen(top: &Section<'_, '_>, faults: &mut Faults) -> Vec<Spanned<SocketAddr>> {
    let listen = top.some("listen", "[\"[::]:53\"]", faults, |v, faults| {
        faults.keep(v.text("\"[::]:53\"", |t| values::address(t, defaults::LISTEN_PORT)))
    });
    let listen = listen.unwrap_or_else(|| {
        let addresses = defaults::listen(defaults::LISTEN_PORT);
        addresses
            .into_iter()
            .map(|a| Spanned::new(0..0, a))
            .collect()
    });
    check::once(&listen, "listen", faults);
    listen
}

/// Interfaces with AF_XDP sockets.
fn af_xdp(top: &Section<'_, '_>, faults: &mut Faults) -> Vec<Attachment> {
    let own = interfaces("af-xdp", top, faults);
    let mut unheard = Faults::default();
    let driver = interfaces("driver-cache", top, &mut unheard);
    let both = own
        .iter()
        .find(|it| driver.iter().any(|other| other.interface == it.interface));
    if let (Some(both), Some(value)) = (both, top.value("af-xdp")) {
        let text = format!(
            "af-xdp and driver-cache both have {}, and an interface takes one XDP program; remove it from one",
            both.interface
        );
        faults.add(value.span(), text);
    }
    own
}

/// The interfaces of a key, each at most once.
fn interfaces(key: &'static str, top: &Section<'_, '_>, faults: &mut Faults) -> Vec<Attachment> {
    let list = top.list(key, "[\"eth0\"]", faults, driver_interface);
    let list = list.unwrap_or_default();
    for (index, entry) in list.iter().enumerate() {
        let name = &entry.get_ref().interface;
        if list[..index]
            .iter()
            .any(|other| other.get_ref().interface == *name)
        {
            let text = format!("{key} has {name} twice; remove one");
            faults.add(entry.span(), text);
        }
        if index == defaults::DRIVER_INTERFACES_MAX {
            let text = format!(
                "{key} has {}, and at most {index} are possible; remove this and the following",
                list.len()
            );
            faults.add(entry.span(), text);
        }
    }
    list.into_iter().map(Spanned::into_inner).collect()
}

/// An interface as a text, or as a table with its own mode.
fn driver_interface(value: Value<'_, '_>, faults: &mut Faults) -> Option<Attachment> {
    let example = "\"eth0\" or { interface = \"eth0\", mode = \"generic\" }";
    let name = |v: Value<'_, '_>| v.text(example, values::interface);
    if !value.is_table() {
        return Some(Attachment {
            interface: faults.keep(name(value))?,
            mode: XdpMode::Auto,
            force: false,
        });
    }
    let section = value.section(&keys::INTERFACE, faults)?;
    let mode = word("mode", &XDP_MODES, &section, faults);
    let force = section.read("force", faults, |v| v.boolean());
    if section.value("interface").is_none() {
        faults.add(
            section.span(),
            "this entry has no interface; add interface = \"eth0\"",
        );
    }
    Some(Attachment {
        interface: section.read("interface", faults, name)?,
        mode: mode.unwrap_or(XdpMode::Auto),
        force: force.unwrap_or(false),
    })
}

const XDP_MODES: [(&str, XdpMode); 3] = [
    ("auto", XdpMode::Auto),
    ("native", XdpMode::Native),
    ("generic", XdpMode::Generic),
];

const DENY: [(&str, DenyAction); 2] = [("refuse", DenyAction::Refuse), ("drop", DenyAction::Drop)];

const ANY: [(&str, AnyPolicy); 3] = [
    ("minimal", AnyPolicy::Minimal),
    ("forward", AnyPolicy::Forward),
    ("refuse", AnyPolicy::Refuse),
];

const SANDBOX: [(&str, bool); 2] = [("auto", true), ("off", false)];

const TARGETS: [(&str, LogTarget); 3] = [
    ("stderr", LogTarget::Stderr),
    ("journald", LogTarget::Journald),
    ("syslog", LogTarget::Syslog),
];

const LEVELS: [(&str, LogLevel); 4] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
];

/// Parses a level of the log.
pub(crate) fn log_level(text: &str) -> Result<LogLevel, String> {
    values::choice(text, &LEVELS)
}

fn workers(top: &Section<'_, '_>, faults: &mut Faults) -> usize {
    let given = top.read("workers", faults, |v| {
        if v.says("auto") {
            return Ok(defaults::workers());
        }
        if v.is_text() {
            return v.text("", |text| {
                Err(format!(
                    "{text:?} is not a number; write \"auto\", or a number without quotes"
                ))
            });
        }
        v.count(defaults::WORKERS)
    });
    given.unwrap_or_else(defaults::workers)
}

fn user(name: &str) -> Result<String, String> {
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!(
            "{name:?} is not a user of this system; write a name from /etc/passwd"
        ));
    }
    Ok(name.to_owned())
}

/// Addresses that names of `[upstream]` must not have.
fn block_addresses(top: &Section<'_, '_>, faults: &mut Faults) -> NetSet {
    let given = top.list(
        "block-addresses",
        "[\"10.0.0.0/8\"]",
        faults,
        |v, faults| {
            if v.says("private") {
                return Some(defaults::private());
            }
            let net = v.text("\"10.0.0.0/8\" or \"private\"", values::network);
            Some(vec![faults.keep(net)?])
        },
    );
    let given = given.unwrap_or_default().into_iter();
    NetSet::new(given.flat_map(Spanned::into_inner).collect())
}

/// Domains that may have these addresses.
fn block_except(top: &Section<'_, '_>, faults: &mut Faults) -> Domains<()> {
    let domains = top.list("block-except", "[\"example.com\"]", faults, |v, faults| {
        faults.keep(v.text("\"example.com\"", values::domain))
    });
    if let (Some(value), None) = (top.value("block-except"), top.value("block-addresses"))
        && !value.is_empty_list()
    {
        let fault =
            value.fault("has no effect without block-addresses; add that, or remove this key");
        faults.add(fault.span, fault.text);
    }
    let domains = domains.unwrap_or_default().into_iter();
    domains.map(|domain| (domain.into_inner(), ())).collect()
}

/// Domains of special-use zones that are forwarded.
fn forward_special(
    top: &Section<'_, '_>,
    forwards: &[Forward],
    faults: &mut Faults,
) -> Vec<NameBuf> {
    let example = "\"10.in-addr.arpa\"";
    let domains = top.list("forward-special", "[\"10.in-addr.arpa\"]", faults, |v, faults| {
        let domain = faults.keep(v.text(example, values::domain))?;
        if !concerns(&domain) {
            let text = format!(
                "{domain} is in no special-use zone; name one, like {example}, or \".\" for all \
                 of them"
            );
            let fault = v.fault(text);
            faults.add(fault.span, fault.text);
        }
        Some(domain)
    });
    let domains = domains.unwrap_or_default();
    forward::apart(forwards, &domains, faults);
    domains.into_iter().map(Spanned::into_inner).collect()
}

fn cache(top: &Section<'_, '_>, faults: &mut Faults) -> CacheSettings {
    let mut cache = defaults::CACHE;
    let Some(section) = top.section("cache", &keys::CACHE, faults) else {
        return cache;
    };
    let mut ttl = |key, bounds| section.read(key, faults, |v| v.seconds(bounds));
    cache.min_ttl_s = ttl("min-ttl", defaults::MIN_TTLS_S).unwrap_or(cache.min_ttl_s);
    cache.max_ttl_s = ttl("max-ttl", defaults::MAX_TTLS_S).unwrap_or(cache.max_ttl_s);
    cache.max_negative_ttl_s =
        ttl("max-negative-ttl", defaults::NEGATIVE_TTLS_S).unwrap_or(cache.max_negative_ttl_s);
    if let Some(v) = section.value("min-ttl")
        && cache.min_ttl_s > cache.max_ttl_s
    {
        let text = format!(
            "min-ttl of {} s is above max-ttl of {} s; lower it",
            cache.min_ttl_s, cache.max_ttl_s
        );
        faults.add(v.span(), text);
    }
    let size = section.read("size", faults, |v| {
        if v.says("off") || v.is_zero() {
            return Ok(0);
        }
        v.needs_unit("\"256MiB\", or \"off\"")?;
        v.text("\"256MiB\" or \"off\"", |t| {
            values::size(t, defaults::CACHE_BYTES)
        })
    });
    cache.bytes = size.unwrap_or(cache.bytes);
    let stale = section.read("serve-stale", faults, |v| match v.says("off") {
        true => Ok(0),
        false => v.seconds(defaults::STALE_S),
    });
    cache.stale_s = stale.unwrap_or(cache.stale_s);
    let prefetch = section.read("prefetch", faults, |v| v.boolean());
    cache.prefetch = prefetch.unwrap_or(cache.prefetch);
    cache
}

fn identity(top: &Section<'_, '_>, faults: &mut Faults) -> Identity {
    Identity {
        id: short_text("server-id", top, faults),
        version: short_text("server-version", top, faults),
    }
}

/// What the server says of itself.
fn short_text(key: &'static str, top: &Section<'_, '_>, faults: &mut Faults) -> ShortText {
    let read = |text: &str| {
        let (len, most) = (text.len(), ShortText::LEN_MAX);
        ShortText::new(text)
            .ok_or_else(|| format!("{text:?} has {len} octets: must be {most} at most; shorten it"))
    };
    let text = top.read(key, faults, |v| v.text("\"dns1.example\"", read));
    text.unwrap_or_default()
}

fn client_prefixes(top: &Section<'_, '_>, faults: &mut Faults) -> ClientPrefixes {
    let mut read = |key, bounds| top.read(key, faults, |v| v.number(bounds));
    let ipv4 = read("client-prefix-ipv4", defaults::PREFIX_LENS_IPV4);
    let ipv6 = read("client-prefix-ipv6", defaults::PREFIX_LENS_IPV6);
    ClientPrefixes {
        ipv4: ipv4.unwrap_or(defaults::CLIENT_PREFIXES.ipv4),
        ipv6: ipv6.unwrap_or(defaults::CLIENT_PREFIXES.ipv6),
    }
}

/// Networks, or none.
fn networks(key: &'static str, section: &Section<'_, '_>, faults: &mut Faults) -> NetSet {
    let nets = match section.value(key) {
        Some(v) if v.is_empty_list() => None,
        _ => section.networks(key, faults),
    };
    let nets = nets.unwrap_or_default().into_iter();
    NetSet::new(nets.map(Spanned::into_inner).collect())
}

fn rate_limit(top: &Section<'_, '_>, faults: &mut Faults) -> Option<RateLimit> {
    let section = top.section("rate-limit", &keys::RATE_LIMIT, faults)?;
    let burst = section.read("burst", faults, |v| {
        v.number(defaults::RESPONSES_PER_SECOND)
    });
    let slip = section.read("slip", faults, |v| v.number(defaults::SLIPS));
    let exempt = networks("exempt", &section, faults);
    let Some(rate) = section.value("responses-per-second") else {
        let text = "[rate-limit] has no rate; add responses-per-second = 100, or \"off\"";
        faults.add(section.span(), text);
        return None;
    };
    if rate.says("off") {
        return None;
    }
    let read = if rate.is_zero() {
        Err(rate.fault("0 allows no responses; write \"off\" for no limit"))
    } else {
        rate.number(defaults::RESPONSES_PER_SECOND)
    };
    let responses_per_second = faults.keep(read)?;
    Some(RateLimit {
        responses_per_second,
        burst: burst.unwrap_or(responses_per_second),
        slip: slip.unwrap_or(defaults::SLIP),
        exempt,
    })
}

fn tcp(top: &Section<'_, '_>, faults: &mut Faults) -> TcpSettings {
    let tcp = defaults::TCP;
    let Some(section) = top.section("tcp", &keys::TCP, faults) else {
        return tcp;
    };
    let connections = section.read("connections", faults, |v| v.count(defaults::CONNECTIONS));
    let connections_max = connections.unwrap_or(tcp.connections_max);
    let per_client = section.read("connections-per-client", faults, |v| {
        v.count(1..=connections_max.max(1))
    });
    let idle = section.read("idle", faults, |v| v.time(defaults::IDLE_NS));
    let pipeline = section.read("pipeline", faults, |v| v.count(defaults::PIPELINE));
    TcpSettings {
        connections_max,
        per_client_max: per_client.unwrap_or(defaults::per_client_max(connections_max)),
        idle_ns: idle.unwrap_or(tcp.idle_ns),
        pipeline_max: pipeline.unwrap_or(tcp.pipeline_max),
    }
}

fn log(top: &Section<'_, '_>, faults: &mut Faults) -> LogSettings {
    let log = defaults::LOG;
    let Some(section) = top.section("log", &keys::LOG, faults) else {
        return log;
    };
    let target = word("target", &TARGETS, &section, faults);
    let level = section.read("level", faults, |v| v.text("\"info\"", log_level));
    let queries = section.read("queries", faults, |v| v.boolean());
    let dnstap = section.read("dnstap", faults, |v| match v.says("off") {
        true => Ok(None),
        false => v
            .text("\"/run/dnstap.sock\" or \"off\"", socket_path)
            .map(Some),
    });
    let sample = section.read("sample", faults, |v| v.number(defaults::SAMPLES));
    let anonymise = section.read("anonymise", faults, |v| v.boolean());
    let servfail = section.read("servfail", faults, |v| v.boolean());
    LogSettings {
        target: target.unwrap_or(log.target),
        level: level.unwrap_or(log.level),
        queries: queries.unwrap_or(log.queries),
        dnstap: dnstap.unwrap_or(log.dnstap),
        sample: sample.unwrap_or(log.sample),
        anonymise: anonymise.unwrap_or(log.anonymise),
        servfail: servfail.unwrap_or(log.servfail),
    }
}

fn metrics(top: &Section<'_, '_>, faults: &mut Faults) -> Option<SocketAddr> {
    let section = top.section("metrics", &keys::METRICS, faults)?;
    let off_or = |v: Value<'_, '_>| -> Result<Option<SocketAddr>, Fault> {
        if v.says("off") {
            return Ok(None);
        }
        let example = "\"127.0.0.1:9164\" or \"off\"";
        v.text(example, |t| values::address(t, defaults::METRICS_PORT))
            .map(Some)
    };
    section.read("listen", faults, off_or).flatten()
}

fn control(top: &Section<'_, '_>, faults: &mut Faults) -> Option<PathBuf> {
    let default = || Some(PathBuf::from(defaults::CONTROL));
    let Some(section) = top.section("control", &keys::CONTROL, faults) else {
        return default();
    };
    let off_or = |v: Value<'_, '_>| -> Result<Option<PathBuf>, Fault> {
        if v.says("off") {
            return Ok(None);
        }
        v.text("\"/run/dns64d/control.sock\" or \"off\"", socket_path)
            .map(Some)
    };
    section
        .read("socket", faults, off_or)
        .unwrap_or_else(default)
}

fn socket_path(path: &str) -> Result<PathBuf, String> {
    let absolute = values::absolute_path(path, defaults::CONTROL)?;
    if path.len() > defaults::SOCKET_PATH_MAX {
        let (len, most) = (path.len(), defaults::SOCKET_PATH_MAX);
        return Err(format!(
            "{path:?} has {len} octets, and a socket's path at most {most}; use a shorter one"
        ));
    }
    Ok(absolute)
}
