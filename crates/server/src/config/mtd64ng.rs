//! The configuration of mtd64-ng: nine keys, one per line, each a word and a value.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::relay::Outgoing;
use dns64_wire::pref64::Pref64;
use ipnet::Ipv6Net;
use toml::Spanned;

use super::error::{ConfigError, Faults};
use super::keys::{listed, nearest};
use super::upstream::UpstreamTable;
use super::{Loaded, check, defaults, forward, read_text, values};
use crate::settings::domains::Domains;
use crate::settings::nets::NetSet;
use crate::settings::{
    Identity, LogLevel, LogSettings, SOURCE_PORTS, Selection, ServerSet, Settings, Upstream, View,
};

/// The file with the system's own resolvers (resolv.conf(5)).
pub(crate) const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Loads an mtd64-ng.conf; `nameserver defaults` reads /etc/resolv.conf.
///
/// # Errors
///
/// A file that cannot be read, and everything that [`parse`] refuses.
pub fn load(path: &Path) -> Result<Loaded, ConfigError> {
    let name = path.display().to_string();
    let text = read_text(path, &name)?;
    let resolvers = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    parse(&text, &name, &resolvers)
}

/// Parses the text of an mtd64-ng.conf of that name; `resolv_conf` is the text of /etc/resolv.conf,
/// for `nameserver defaults`.
///
/// # Errors
///
/// Keys that are unknown or repeated, values that are invalid or outside the bounds of this server,
/// and a missing name server.
pub fn parse(text: &str, name: &str, resolv_conf: &str) -> Result<Loaded, ConfigError> {
    let mut faults = Faults::default();
    let mut given = Given::default();
    for line in lines(text) {
        given.take(&line, resolv_conf, &mut faults);
    }
    let listen = defaults::listen(given.port.unwrap_or(defaults::LISTEN_PORT));
    let upstreams = given.upstreams();
    if upstreams.is_empty() && !given.seen.contains(&"nameserver") {
        let end = text.len()..text.len();
        faults.add(
            end,
            "no upstream is given; add a line like nameserver 192.0.2.53",
        );
    }
    check::servers(&upstreams, "nameserver", &mut faults);
    let spanned: Vec<_> = listen.iter().map(|a| Spanned::new(0..0, *a)).collect();
    check::loops(&spanned, &upstreams, &mut faults);
    let table = UpstreamTable {
        servers: upstreams,
        selection: given.selection.unwrap_or(defaults::SELECTION),
        ..UpstreamTable::default()
    };
    let (upstreams, sets) = forward::sets(&table, &[], &mut faults);
    faults.check(name, text)?;
    let notes = given.notes();
    let settings = given.settings(listen, upstreams, sets);
    Ok(Loaded { settings, notes })
}

const KEYS: [&str; 9] = [
    "nameserver",
    "selection-mode",
    "dns64-prefix",
    "debugging",
    "timeout-time",
    "resend-attempts",
    "response-maxlength",
    "num-threads",
    "port",
];

/// A line with a setting: two words and their positions.
struct Line<'t> {
    key: &'t str,
    key_span: Range<usize>,
    value: &'t str,
    span: Range<usize>,
}

/// The lines with a setting; comments begin with `#` or `//`.
fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut start = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        let line_start = start;
        start += line.len();
        let comment = [line.find('#'), line.find("//")];
        let end = comment.into_iter().flatten().min().unwrap_or(line.len());
        let said = line[..end].trim_end();
        let key_at = said.len() - said.trim_start().len();
        let rest = &said[key_at..];
        let key = rest
            .split(char::is_whitespace)
            .next()
            .filter(|k| !k.is_empty())?;
        let after = &rest[key.len()..];
        let value = after.trim_start();
        let key_start = line_start + key_at;
        let value_start = line_start + said.len() - value.len();
        Some(Line {
            key,
            key_span: key_start..key_start + key.len(),
            value,
            span: value_start..value_start + value.len(),
        })
    })
}

/// The values in the file.
#[derive(Debug, Default)]
struct Given {
    seen: Vec<&'static str>,
    nameservers: Vec<Spanned<SocketAddr>>,
    selection: Option<Selection>,
    prefix: Option<Pref64>,
    debugging: bool,
    timeout_ns: Option<Nanos>,
    resends: Option<u8>,
    response_len: Option<u64>,
    threads: Option<u64>,
    port: Option<u16>,
}

impl Given {
    fn take(&mut self, line: &Line<'_>, resolv_conf: &str, faults: &mut Faults) {
        let Some(key) = KEYS.into_iter().find(|key| *key == line.key) else {
            faults.add(line.key_span.clone(), unknown(line.key));
            return;
        };
        if self.seen.contains(&key) && key != "nameserver" {
            let text = format!("{key} is given twice; remove one");
            faults.add(line.key_span.clone(), text);
            return;
        }
        self.seen.push(key);
        if line.value.is_empty() {
            let text = format!(
                "{key} has no value; write it after the key, like {}",
                example(key)
            );
            faults.add(line.key_span.clone(), text);
            return;
        }
        if let Err(text) = self.set(key, line, resolv_conf) {
            faults.add(line.span.clone(), format!("{key} {text}"));
        }
    }

    fn set(&mut self, key: &str, line: &Line<'_>, resolv_conf: &str) -> Result<(), String> {
        let value = line.value;
        match key {
            "nameserver" => return self.nameserver(line, resolv_conf),
            "selection-mode" => self.selection = Some(values::choice(value, &SELECTION)?),
            "dns64-prefix" => self.prefix = Some(prefix(value)?),
            "debugging" => self.debugging = values::choice(value, &YES_OR_NO)?,
            "timeout-time" => self.timeout_ns = Some(timeout(value)?),
            "resend-attempts" => {
                let most = u64::from(*defaults::ATTEMPTS_BOUNDS.end() - 1);
                let resends = whole(value, 0, most)?;
                self.resends = u8::try_from(resends).ok();
            }
            "response-maxlength" => self.response_len = Some(whole(value, 1, u64::from(u16::MAX))?),
            "num-threads" => self.threads = Some(whole(value, 1, u64::from(u32::MAX))?),
            _ => {
                let port = whole(value, 1, u64::from(u16::MAX))?;
                self.port = u16::try_from(port).ok();
            }
        }
        Ok(())
    }

    fn nameserver(&mut self, line: &Line<'_>, resolv_conf: &str) -> Result<(), String> {
        let spanned = |address| Spanned::new(line.span.clone(), address);
        if line.value != "defaults" {
            let ip: IpAddr = line.value.parse().map_err(|_| {
                format!(
                    "{:?} is not an address; write it like 192.0.2.53, or write defaults",
                    line.value
                )
            })?;
            let address = values::upstream_address(&ip.to_string())?;
            self.nameservers.push(spanned(address));
            return Ok(());
        }
        let mut found: Vec<SocketAddr> = Vec::new();
        for address in resolvers(resolv_conf) {
            if !found.contains(&address) {
                found.push(address);
            }
        }
        if found.is_empty() {
            return Err(format!(
                "defaults finds no address in {RESOLV_CONF}; write an address instead"
            ));
        }
        self.nameservers.extend(found.into_iter().map(spanned));
        Ok(())
    }

    fn upstreams(&self) -> Vec<Spanned<Upstream>> {
        let upstream = |address: &Spanned<SocketAddr>| {
            let upstream = Upstream {
                address: *address.get_ref(),
                timeout_ns: self.timeout_ns.unwrap_or(defaults::TIMEOUT_NS),
                attempts: self.resends.map_or(defaults::ATTEMPTS, |n| n + 1),
                features: defaults::FEATURES,
                tls: None,
                outgoing: Outgoing::default(),
            };
            Spanned::new(address.span(), upstream)
        };
        self.nameservers.iter().map(upstream).collect()
    }

    fn udp_size(&self) -> u16 {
        let sizes = defaults::UDP_SIZES;
        let clamped = |len: u64| {
            let len = u16::try_from(len).unwrap_or(u16::MAX);
            len.clamp(*sizes.start(), *sizes.end())
        };
        self.response_len.map_or(defaults::UDP_SIZE, clamped)
    }

    fn workers(&self) -> usize {
        let cores = defaults::workers();
        let threads = self.threads.and_then(|n| usize::try_from(n).ok());
        threads.unwrap_or(cores).min(cores)
    }

    fn settings(
        &self,
        listen: Vec<SocketAddr>,
        upstreams: Vec<Upstream>,
        sets: Vec<ServerSet>,
    ) -> Settings {
        let mut dns64 = defaults::dns64();
        if let Some(prefix) = self.prefix {
            dns64.prefixes = vec![prefix];
        }
        let level = if self.debugging {
            LogLevel::Debug
        } else {
            defaults::LOG.level
        };
        Settings {
            listen,
            workers: self.workers(),
            user: None,
            free_bind: defaults::FREE_BIND,
            driver_cache: Vec::new(),
            af_xdp: Vec::new(),
            sandbox: defaults::SANDBOX,
            allow: NetSet::all(),
            deny: defaults::DENY,
            upstreams,
            sets,
            order: defaults::ORDER,
            views: vec![View {
                clients: NetSet::all(),
                dns64: Some(dns64),
                forwards: Domains::default(),
            }],
            block_addresses: NetSet::default(),
            block_except: Domains::default(),
            proxies: NetSet::default(),
            nat64_health: None,
            local: Arc::default(),
            hosts: Vec::new(),
            cache: defaults::CACHE,
            udp_size: self.udp_size(),
            any: defaults::ANY,
            identity: Identity::default(),
            cookie_file: None,
            cookies: None,
            client_prefixes: defaults::CLIENT_PREFIXES,
            rate_limit: None,
            tcp: defaults::TCP,
            tls: None,
            queries_max: defaults::QUERIES_MAX,
            avoid_ports: Vec::new(),
            reserved_ports: Vec::new(),
            source_ports: SOURCE_PORTS,
            control: Some(defaults::CONTROL.into()),
            metrics: None,
            log: LogSettings {
                level,
                ..defaults::LOG
            },
        }
    }

    /// The differences from mtd64-ng.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = DIFFERENCES.into_iter().map(str::to_owned).collect();
        if let Some(prefix) = self.prefix.filter(|prefix| !prefix.has_zero_u()) {
            notes.push(format!(
                "dns64-prefix: {prefix} has bits set among bits 64 to 71, which are zero in every prefix of RFC 6052 \
                 (section 2.2); it is used as it is"
            ));
        }
        if self
            .prefix
            .is_none_or(|prefix| prefix == Pref64::WELL_KNOWN)
        {
            notes.push(
                "dns64-prefix: 64:ff9b::/96 must not stand for private IPv4 addresses (RFC 6052 section 3.1), \
                 so AAAA records are not synthesised for these"
                    .to_owned(),
            );
        }
        let (workers, udp_size) = (self.workers(), self.udp_size());
        if let Some(threads) = self.threads {
            notes.push(format!(
                "num-threads: {workers} of {threads}; a worker serves many queries at once, so one for \
                 each core is enough"
            ));
        }
        if let Some(len) = self.response_len.filter(|len| *len != u64::from(udp_size)) {
            notes.push(format!(
                "response-maxlength: {udp_size} is used instead of {len}"
            ));
        }
        notes
    }
}

/// Differences from mtd64-ng without a key there.
const DIFFERENCES: [&str; 4] = [
    "cache: answers are cached, up to 256 MiB; mtd64-ng has no cache",
    "clients: every address may send queries, as with mtd64-ng; the key allow of a TOML file restricts this",
    "failures: clients get SERVFAIL when no server answers; mtd64-ng sends no response",
    "answers: PTR of synthesised addresses and ipv4only.arpa are answered, and TTLs are bounded by \
     those of the missing AAAA (RFC 6147 section 5.1.7); keys that are not given have the defaults \
     of dns64d",
];

/// By round-robin mtd64-ng means the next server if the current one does not reply in time (Lencse and Bakai 2017,
/// section 2.3).
const SELECTION: [(&str, Selection); 2] = [
    ("random", Selection::Random),
    ("round-robin", Selection::Failover),
];

const YES_OR_NO: [(&str, bool); 2] = [("yes", true), ("no", false)];

fn unknown(key: &str) -> String {
    let remedy = nearest(key, KEYS).map_or_else(
        || format!("its keys are {}", listed(&KEYS)),
        |near| format!("did you mean {near}?"),
    );
    format!("unknown key {key:?}; {remedy}")
}

fn example(key: &str) -> &'static str {
    match key {
        "nameserver" => "192.0.2.53",
        "selection-mode" => "random",
        "dns64-prefix" => "64:ff9b::/96",
        "debugging" => "no",
        "timeout-time" => "2.5",
        "response-maxlength" => "512",
        "num-threads" => "30",
        "port" => "53",
        _ => "2",
    }
}

/// A prefix: mtd64-ng ignores the bits after it, and does not check its octet "u". Its own example has both.
fn prefix(value: &str) -> Result<Pref64, String> {
    let net = value.parse::<Ipv6Net>().ok();
    match net.and_then(|net| Pref64::around(net.addr(), net.prefix_len()).ok()) {
        Some(prefix) => values::routed(prefix, value),
        None => values::prefix(value),
    }
}

/// A duration in seconds without a unit.
fn timeout(value: &str) -> Result<Nanos, String> {
    let ns = values::time(&format!("{value}s"), 0..=Nanos::MAX)
        .map_err(|_| format!("{value:?} is not a number of seconds; write it like 2.5"))?;
    values::within(ns, &defaults::TIMEOUTS_NS, |ns| {
        (ns as f64 / SECOND as f64).to_string()
    })
    .map_err(|wrong| format!("{value} {wrong}"))?;
    Ok(ns)
}

fn whole(value: &str, least: u64, most: u64) -> Result<u64, String> {
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "{value:?} is not a whole number from {least} to {most}"
        ));
    }
    let number = value.parse().unwrap_or(u64::MAX);
    values::within(number, &(least..=most), |n| n.to_string())
        .map_err(|wrong| format!("{value} {wrong}"))?;
    Ok(number)
}

/// The servers in resolv.conf(5). Invalid lines are skipped, as by the C library.
fn resolvers(resolv_conf: &str) -> impl Iterator<Item = SocketAddr> {
    resolv_conf.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words
            .next()
            .filter(|key| *key == "nameserver")
            .and(words.next())?;
        values::upstream_address(address).ok()
    })
}

#[cfg(test)]
mod tests;
