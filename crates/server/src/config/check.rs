//! Checks for combinations of values that exclude each other.

use std::net::SocketAddr;

use ipnet::{IpNet, Ipv4Net};
use toml::Spanned;

use super::error::Faults;
use crate::settings::Upstream;

/// Checks that each address is given once.
pub(super) fn once(addresses: &[Spanned<SocketAddr>], key: &str, faults: &mut Faults) {
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            let text = format!("{key} has {} twice; remove one", address.get_ref());
            faults.add(address.span(), text);
        }
    }
}

/// Checks that each server is given once.
pub(super) fn servers(servers: &[Spanned<Upstream>], key: &str, faults: &mut Faults) {
    let addresses: Vec<_> = servers
        .iter()
        .map(|server| Spanned::new(server.span(), server.get_ref().address))
        .collect();
    once(&addresses, key, faults);
}

/// Checks that no upstream is this server itself.
pub(super) fn loops<'a>(
    listen: &[Spanned<SocketAddr>],
    servers: impl IntoIterator<Item = &'a Spanned<Upstream>>,
    faults: &mut Faults,
) {
    for server in servers {
        let asked = server.get_ref().address;
        let own = listen.iter().find(|own| reaches(asked, *own.get_ref()));
        if let Some(own) = own {
            let text = format!(
                "upstream {asked} is this server itself, which listens at {}; name another \
                 server, or listen at other addresses or another port",
                own.get_ref()
            );
            faults.add(server.span(), text);
        }
    }
}

/// Checks that servers with one address for TLS, and so with the same sessions, have the same sources and interface.
pub(super) fn sessions<'a>(
    servers: impl IntoIterator<Item = &'a Spanned<Upstream>>,
    faults: &mut Faults,
) {
    let mut known: Vec<&Upstream> = Vec::new();
    for server in servers {
        let own = server.get_ref();
        let differs = |other: &&Upstream| {
            other.address != own.address
                && other.tls_address() == own.tls_address()
                && other.outgoing != own.outgoing
        };
        if own.tls.is_none() {
            continue;
        }
        if let Some(other) = known.iter().copied().find(differs) {
            let text = format!(
                "{} has the sessions of {}, at {}, but another source or interface; write the same ones in both",
                own.address,
                other.address,
                own.tls_address()
            );
            faults.add(server.span(), text);
        }
        known.push(own);
    }
}

/// Whether a query to one address reaches a socket at the other, according to the addresses alone:
/// of the addresses of this machine, only loopback is known here.
fn reaches(asked: SocketAddr, own: SocketAddr) -> bool {
    let same_family = asked.is_ipv4() == own.is_ipv4();
    let everywhere = own.ip().is_unspecified() && same_family && asked.ip().is_loopback();
    asked.port() == own.port() && (asked.ip() == own.ip() || everywhere)
}

/// Checks that the networks of a map do not overlap.
pub(super) fn map_overlaps<T>(map: &[Spanned<(Ipv4Net, T)>], faults: &mut Faults) {
    for (index, entry) in map.iter().enumerate() {
        let net = entry.get_ref().0;
        let overlapped = map[..index]
            .iter()
            .map(|other| other.get_ref().0)
            .find(|other| other.contains(&net) || net.contains(other));
        let text = match overlapped {
            Some(same) if same == net => format!("map has {net} twice; remove one"),
            Some(other) => format!(
                "{net} of map overlaps {other}; remove one, or split the larger one around the \
                 smaller"
            ),
            None => continue,
        };
        faults.add(entry.span(), text);
    }
}

/// Checks that no network of a view is within one of an earlier view, because the first matching
/// view applies.
pub(super) fn shadowed<'a>(views: impl Iterator<Item = &'a [Spanned<IpNet>]>, faults: &mut Faults) {
    let views: Vec<_> = views.collect();
    for (index, view) in views.iter().enumerate() {
        let earlier = || views[..index].iter().copied().flatten();
        for net in *view {
            let Some(shadow) = earlier().find(|e| e.get_ref().contains(net.get_ref())) else {
                continue;
            };
            let (net_text, shadow) = (net.get_ref(), shadow.get_ref());
            let text = format!(
                "clients {net_text} are already in {shadow} of an earlier view; move this view before that one, \
                 or remove the network"
            );
            faults.add(net.span(), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_through_an_unspecified_address_is_detected() {
        let sees = |asked: &str, own: &str| reaches(asked.parse().unwrap(), own.parse().unwrap());
        assert!(sees("192.0.2.1:53", "192.0.2.1:53"));
        assert!(sees("127.0.0.1:53", "0.0.0.0:53"));
        assert!(sees("127.0.0.53:53", "0.0.0.0:53"));
        assert!(sees("[::1]:53", "[::]:53"));
        assert!(!sees("127.0.0.1:53", "[::]:53"));
        assert!(!sees("127.0.0.1:5353", "0.0.0.0:53"));
        assert!(!sees("192.0.2.1:53", "0.0.0.0:53"));
        assert!(!sees("127.0.0.1:53", "127.0.0.2:53"));
    }
}
