//! The table `[upstream]`, and the servers of all tables.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use dns64_transport::clock::Nanos;
use dns64_transport::relay::Outgoing;
use toml::Spanned;

use super::error::Faults;
use super::section::{Section, Value};
use super::{check, defaults, keys, tls, values};
use crate::settings::{
    Features, LookupOrder, PORTS_LEFT_MIN, Selection, Upstream, UpstreamTls, ports_left,
};

/// The values in `[upstream]`.
pub(super) struct UpstreamTable {
    pub(super) servers: Vec<Spanned<Upstream>>,
    pub(super) manner: Manner,
    pub(super) selection: Selection,
    pub(super) order: LookupOrder,
    pub(super) avoid_ports: Vec<RangeInclusive<u16>>,
}

impl Default for UpstreamTable {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            manner: Manner::DEFAULT,
            selection: defaults::SELECTION,
            order: defaults::ORDER,
            avoid_ports: Vec::new(),
        }
    }
}

impl UpstreamTable {
    pub(super) fn read(top: &Section<'_, '_>, faults: &mut Faults) -> Self {
        let Some(section) = top.section("upstream", &keys::UPSTREAM, faults) else {
            if top.value("upstream").is_none() {
                let text =
                    "no upstream is given; add [upstream] and below it servers = [\"192.0.2.53\"]";
                faults.add(top.span(), text);
            }
            return Self::default();
        };
        let mut manner = Manner::DEFAULT;
        if let Some(free_bind) = top.read("free-bind", faults, |v| v.boolean()) {
            manner.outgoing.free_bind = free_bind;
        }
        let manner = Manner::read(&section, &manner, faults);
        Self {
            servers: servers(&section, &manner, faults),
            manner,
            selection: selection(&section, faults).unwrap_or(defaults::SELECTION),
            order: order(&section, faults),
            avoid_ports: avoid_ports(&section, faults),
        }
    }
}

/// The servers of a table.
pub(super) fn servers(
    section: &Section<'_, '_>,
    manner: &Manner,
    faults: &mut Faults,
) -> Vec<Spanned<Upstream>> {
    if section.value("servers").is_none() {
        let text = format!(
            "{} names no servers; add servers = [\"192.0.2.53\"]",
            section.table()
        );
        faults.add(section.span(), text);
    }
    let example = "[\"192.0.2.53\"]";
    let servers = section.some("servers", example, faults, |v, faults| {
        server(v, manner, faults)
    });
    let servers = servers.unwrap_or_default();
    check::servers(&servers, "servers", faults);
    servers
}

pub(super) fn selection(section: &Section<'_, '_>, faults: &mut Faults) -> Option<Selection> {
    section.read("selection", faults, |v| {
        v.text("\"fastest\"", |t| values::choice(t, &SELECTION))
    })
}

const SELECTION: [(&str, Selection); 4] = [
    ("fastest", Selection::Fastest),
    ("round-robin", Selection::RoundRobin),
    ("random", Selection::Random),
    ("failover", Selection::Failover),
];

/// How a server is queried; a table has the defaults of its servers.
#[derive(Clone)]
pub(super) struct Manner {
    timeout_ns: Nanos,
    attempts: u8,
    features: Features,
    pub(super) outgoing: Outgoing,
}

impl Manner {
    const DEFAULT: Self = Self {
        timeout_ns: defaults::TIMEOUT_NS,
        attempts: defaults::ATTEMPTS,
        features: defaults::FEATURES,
        outgoing: Outgoing {
            sources: Vec::new(),
            interface: None,
            free_bind: defaults::FREE_BIND,
        },
    };

    pub(super) fn read(section: &Section<'_, '_>, others: &Self, faults: &mut Faults) -> Self {
        let timeout = section.read("timeout", faults, |v| v.time(defaults::TIMEOUTS_NS));
        let attempts = section.read("attempts", faults, |v| v.number(defaults::ATTEMPTS_BOUNDS));
        let mut read = |key, other| {
            let own = section.read(key, faults, |v| v.boolean());
            own.unwrap_or(other)
        };
        Self {
            timeout_ns: timeout.unwrap_or(others.timeout_ns),
            attempts: attempts.unwrap_or(others.attempts),
            features: Features {
                edns: read("edns", others.features.edns),
                cookies: read("cookies", others.features.cookies),
                randomise_case: read("randomise-case", others.features.randomise_case),
                tcp: read("tcp", others.features.tcp),
            },
            outgoing: outgoing(section, &others.outgoing, faults),
        }
    }

    fn upstream(&self, address: SocketAddr, tls: Option<UpstreamTls>) -> Upstream {
        Upstream {
            address,
            tls,
            timeout_ns: self.timeout_ns,
            attempts: self.attempts,
            features: self.features,
            outgoing: self.outgoing.clone(),
        }
    }
}

/// From where servers are queried.
fn outgoing(section: &Section<'_, '_>, others: &Outgoing, faults: &mut Faults) -> Outgoing {
    let sources = match section.value("source") {
        Some(v) if v.is_list() => {
            let list = section.list("source", SOURCES, faults, |v, faults| {
                faults.keep(v.text(SOURCES, values::source))
            });
            list.map(|list| list.into_iter().map(Spanned::into_inner).collect())
        }
        Some(v) => faults.keep(v.text(SOURCES, values::source).map(|one| vec![one])),
        None => None,
    };
    let interface = section.read("interface", faults, |v| {
        v.text("\"eth0\"", values::interface)
    });
    Outgoing {
        sources: sources.unwrap_or_else(|| others.sources.clone()),
        interface: interface.or_else(|| others.interface.clone()),
        free_bind: others.free_bind,
    }
}

const SOURCES: &str = "[\"192.0.2.1\", \"2001:db8::1\"]";

/// A server as a text, or as a table with keys of its own.
fn server(value: Value<'_, '_>, others: &Manner, faults: &mut Faults) -> Option<Upstream> {
    let example = "\"192.0.2.53\" or { address = \"192.0.2.53\", timeout = \"500ms\" }";
    if !value.is_table() {
        let address = faults.keep(value.text(example, values::upstream_address))?;
        return Some(others.upstream(address, None));
    }
    let section = value.section(&keys::SERVER, faults)?;
    let manner = Manner::read(&section, others, faults);
    let tls = tls::of_upstream(&section, faults);
    let authentication = tls.as_ref().map(|tls| &tls.authentication);
    let read_address =
        |v: Value<'_, '_>| v.text(example, |text| tls::upstream_address(text, authentication));
    if section.value("address").is_none() {
        faults.add(
            section.span(),
            "this server has no address; add address = \"192.0.2.53\"",
        );
    }
    let address = section.read("address", faults, read_address)?;
    let mut sources = manner.outgoing.sources.iter();
    if let Some(source) = section.value("source")
        && !sources.any(|source| source.is_ipv4() == address.is_ipv4())
    {
        let text = "has no address of the family of this server; add one, or remove this key";
        let fault = source.fault(text);
        faults.add(fault.span, fault.text);
    }
    Some(manner.upstream(address, tls))
}

fn avoid_ports(section: &Section<'_, '_>, faults: &mut Faults) -> Vec<RangeInclusive<u16>> {
    let example = "[5353, \"6000-6100\"]";
    let list = section.list("avoid-ports", example, faults, |v, faults| {
        let range = match v.is_text() {
            true => v.text(example, values::ports),
            false => v.number(1..=u16::MAX).map(|port| port..=port),
        };
        faults.keep(range)
    });
    let list: Vec<_> = list
        .unwrap_or_default()
        .into_iter()
        .map(Spanned::into_inner)
        .collect();
    let left = ports_left(&list);
    if let Some(value) = section.value("avoid-ports")
        && left < PORTS_LEFT_MIN
    {
        let fault = value.fault(format_args!(
            "leaves {left} ports above 1023: must leave {PORTS_LEFT_MIN}; list fewer"
        ));
        faults.add(fault.span, fault.text);
    }
    list
}

fn order(section: &Section<'_, '_>, faults: &mut Faults) -> LookupOrder {
    let delay = section.read("delay", faults, |v| v.time(defaults::DELAYS_NS));
    let orders = [
        ("aaaa-then-a", LookupOrder::AaaaThenA),
        ("both", LookupOrder::Both),
        (
            "delayed",
            LookupOrder::Delayed(delay.unwrap_or(defaults::DELAY_NS)),
        ),
    ];
    let order = section
        .read("order", faults, |v| {
            v.text("\"aaaa-then-a\"", |t| values::choice(t, &orders))
        })
        .unwrap_or(defaults::ORDER);
    if let Some(delay) = section.value("delay")
        && !section.value("order").is_some_and(|v| v.says("delayed"))
    {
        let text = "has no effect unless order = \"delayed\"; add that, or remove this key";
        let fault = delay.fault(text);
        faults.add(fault.span, fault.text);
    }
    order
}
