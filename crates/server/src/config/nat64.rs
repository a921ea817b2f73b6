//! The table `[nat64-health]`.

use std::net::{AddrParseError, Ipv4Addr, SocketAddr};

use toml::Spanned;

use super::error::Faults;
use super::section::Section;
use super::{keys, values};
use crate::settings::dns64::{Dns64, DomainAction, DomainRule};
use crate::settings::{Nat64Health, ProbedHost, View};

/// Largest number of hosts: each costs three connections a second while a translator does not answer.
const HOSTS_MAX: usize = 4;

/// Port of HTTPS, which most hosts answer or refuse.
const PORT: u16 = 443;

/// Rounds in a row: 3 of a second each are less than 5 s, and at a loss of 10 % never all without an answer.
const ROUNDS: u32 = 3;
const ROUNDS_MAX: u32 = 60;

pub(super) fn read(
    top: &Section<'_, '_>,
    views: &[View],
    faults: &mut Faults,
) -> Option<Nat64Health> {
    let section = top.section("nat64-health", &keys::NAT64_HEALTH, faults)?;
    let mut rounds = |key| {
        let given = section.read(key, faults, |v| v.number(1..=ROUNDS_MAX));
        given.unwrap_or(ROUNDS)
    };
    let (failures, successes) = (rounds("failures"), rounds("successes"));
    let example = "\"192.0.2.1:443\"";
    let hosts = section.list("hosts", "[\"192.0.2.1:443\"]", faults, |v, faults| {
        faults.keep(v.text(example, host))
    });
    let hosts = hosts.unwrap_or_default();
    if let Some(first_over) = hosts.get(HOSTS_MAX) {
        faults.add(
            first_over.span(),
            format!("more than {HOSTS_MAX} hosts are given; remove this and the following"),
        );
    }
    for host in &hosts {
        if !views
            .iter()
            .filter_map(|view| view.dns64.as_ref())
            .any(|dns64| reaches(dns64, host.get_ref().ip()))
        {
            let text = format!(
                "no prefix of [dns64] can represent {}; give a host with a public address",
                host.get_ref().ip()
            );
            faults.add(host.span(), text);
        }
    }
    let hosts: Vec<_> = hosts.into_iter().map(Spanned::into_inner).collect();
    (!hosts.is_empty()).then_some(Nat64Health {
        hosts,
        failures,
        successes,
    })
}

/// A host to connect to, or to ping.
fn host(text: &str) -> Result<ProbedHost, String> {
    if let Some(pinged) = text.strip_prefix("ping:") {
        let wrong = |_: AddrParseError| {
            format!("{text:?} has no IPv4 address; write it like \"ping:192.0.2.1\"")
        };
        return pinged.parse().map(ProbedHost::Ping).map_err(wrong);
    }
    match values::address(text, PORT)? {
        SocketAddr::V4(host) => Ok(ProbedHost::Connect(host)),
        SocketAddr::V6(_) => Err(format!(
            "{text:?} is not an IPv4 address; give a host behind the translator"
        )),
    }
}

/// Whether an address is synthesised for a host.
fn reaches(dns64: &Dns64, host: Ipv4Addr) -> bool {
    let rule = DomainRule {
        action: DomainAction::Include,
        prefix: None,
    };
    dns64.embed(host, rule).next().is_some() || dns64.domains.prefixes().next().is_some()
}
