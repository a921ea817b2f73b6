//! Addresses as people and other programs write them.
//!
//! ```text
//! 192.0.2.53         2001:db8::53        [2001:db8::53]         fe80::53%eth0        without a port
//! 192.0.2.53:5300    2001:db8::53#5300   [2001:db8::53]:5300    fe80::53%eth0@5300   with one
//! ```
//!
//! `#` is that of dig and dnsmasq, `@` that of Unbound.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::net::{AddressFamily, SocketType, netdevice, socket};

/// Reason why a text is not a usable address, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is neither an address nor an address with a port.
    #[error(
        "{0:?} is not an address; write it like \"192.0.2.53\", \"192.0.2.53:5353\", \"2001:db8::53\" or \
         \"[2001:db8::53]:5353\""
    )]
    Unreadable(String),
    /// The port is 0 or not a number of 16 bits.
    #[error("{0:?} has a port that cannot be used; it is a number from 1 to 65535")]
    Port(String),
    /// An IPv6 address without brackets whose last group may be a port.
    #[error(
        "\"{whole}\" has no brackets; write \"[{address}]:{port}\" for port {port} of {address}, or \"[{whole}]\" for the \
         address {whole}"
    )]
    Brackets {
        /// All of it.
        whole: Ipv6Addr,
        /// What is before the last group.
        address: Ipv6Addr,
        /// The last group.
        port: u16,
    },
    /// A link-local address, which is complete only with an interface (RFC 4007 section 11).
    #[error("{}", needs_zone(.address, .interfaces))]
    Zone {
        /// The address, without a zone.
        address: SocketAddr,
        /// Interfaces of this host with a link-local address.
        interfaces: Vec<String>,
    },
}

fn needs_zone(address: &SocketAddr, interfaces: &[String]) -> String {
    let ip = address.ip();
    let needs = format!("{ip} is link-local and needs the interface that leads to it");
    match interfaces {
        [] => format!(
            "{needs}, and no interface of this machine has a link-local address; bring one up"
        ),
        [first, ..] => {
            let all = interfaces.join(", ");
            format!("{needs}, like \"{ip}%{first}\"; this machine has {all}")
        }
    }
}

/// Parses an address, with this port if the text has none. IPv4-mapped addresses become IPv4. The zone of a link-local
/// address is the name or the index of an interface of this host; of other addresses it is dropped.
///
/// # Errors
///
/// It is no such address.
pub fn parse(text: &str, default_port: u16) -> Result<SocketAddr, AddressError> {
    let (host, port) = split(text);
    if port.is_none() && !host.starts_with('[') {
        no_port_without_brackets(host, default_port)?;
    }
    let port = match port {
        None => default_port,
        Some(port) => match port.parse() {
            Ok(port @ 1..) => port,
            _ => return Err(AddressError::Port(text.to_owned())),
        },
    };
    let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let (ip, zone) = match inner.unwrap_or(host).split_once('%') {
        Some((ip, zone)) => (ip, Some(zone)),
        None => (inner.unwrap_or(host), None),
    };
    let ip: IpAddr = match (ip.parse(), inner) {
        (Ok(ip), None) => ip,
        (Ok(ip @ IpAddr::V6(_)), Some(_)) => ip,
        _ => return Err(AddressError::Unreadable(text.to_owned())),
    };
    let address = SocketAddr::new(ip.to_canonical(), port);
    let address = within(address, zone.and_then(index).unwrap_or_default());
    check(address)?;
    Ok(address)
}

/// Splits a text into the host, which may be a name, and the port, if it has one. Neither is checked.
pub fn split(text: &str) -> (&str, Option<&str>) {
    let colon = match text.rsplit_once(':') {
        Some((host, _)) if host.ends_with(']') || !host.contains(':') => text.rsplit_once(':'),
        _ => None,
    };
    match text.rsplit_once(['#', '@']).or(colon) {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    }
}

/// Refuses a link-local address without a zone.
///
/// # Errors
///
/// It is one.
pub fn check(address: SocketAddr) -> Result<(), AddressError> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            Err(AddressError::Zone {
                address,
                interfaces: link_local_interfaces(),
            })
        }
        _ => Ok(()),
    }
}

/// An address with its zone, if it is link-local: the index of an interface, 0 for none.
pub fn within(address: SocketAddr, zone: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, zone).into()
        }
        other => other,
    }
}

/// The zone of an address: the index of an interface; 0 for none.
pub fn zone(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}

/// The name of the interface in the zone of an address.
pub fn interface(address: SocketAddr) -> Option<String> {
    let zone = Some(zone(address)).filter(|zone| *zone != 0)?;
    let any = socket(AddressFamily::INET6, SocketType::DGRAM, None).ok()?;
    netdevice::index_to_name(&any, zone).ok()
}

/// An address with the name of its interface.
#[derive(Clone, Copy, Debug)]
pub struct Shown(pub SocketAddr);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match interface(self.0) {
            Some(name) => write!(f, "[{}%{name}]:{}", self.0.ip(), self.0.port()),
            None => self.0.fmt(f),
        }
    }
}

/// Refuses an IPv6 address without brackets that is probably meant to have a port: its last group is the default port,
/// or it is an IPv4-compatible address (RFC 4291 section 2.5.5.1), which no host has.
fn no_port_without_brackets(text: &str, default_port: u16) -> Result<(), AddressError> {
    let Some((address, port)) = text.rsplit_once(':') else {
        return Ok(());
    };
    let (Ok(whole), Ok(address), Ok(port)) = (text.parse(), address.parse(), port.parse()) else {
        return Ok(());
    };
    let segments = Ipv6Addr::segments(&whole);
    let is_compatible = segments[..6] == [0; 6] && segments[6] != 0;
    match port == default_port || is_compatible {
        true => Err(AddressError::Brackets {
            whole,
            address,
            port,
        }),
        false => Ok(()),
    }
}

/// The index of an interface by its name or index; `None` if this host has none of this name.
fn index(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let any = socket(AddressFamily::INET6, SocketType::DGRAM, None).ok()?;
    netdevice::name_to_index(&any, name).ok()
}

/// The interfaces of this host with a link-local address.
fn link_local_interfaces() -> Vec<String> {
    let text = std::fs::read_to_string(IF_INET6).unwrap_or_default();
    let mut names: Vec<String> = text
        .lines()
        .filter_map(link_local)
        .map(str::to_owned)
        .collect();
    names.dedup();
    names
}

/// Address, index, length, scope, flags and name of each address (net/ipv6/addrconf.c of Linux).
const IF_INET6: &str = "/proc/self/net/if_inet6";

/// The name in a line of a link-local address.
fn link_local(line: &str) -> Option<&str> {
    line.starts_with("fe8")
        .then(|| line.split_whitespace().last())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        parse(text, 53).map_or_else(|error| format!("{error:?}"), |it| it.to_string())
    }

    #[test]
    fn addresses_are_read_as_people_and_other_programs_write_them() {
        for (text, expected) in [
            ("192.0.2.53", "192.0.2.53:53"),
            ("192.0.2.53:5300", "192.0.2.53:5300"),
            ("192.0.2.53#5300", "192.0.2.53:5300"),
            ("192.0.2.53@5300", "192.0.2.53:5300"),
            ("::1", "[::1]:53"),
            ("[::1]", "[::1]:53"),
            ("[::1]:5300", "[::1]:5300"),
            ("::1#53", "[::1]:53"),
            ("::1@5300", "[::1]:5300"),
            ("[::1]#5300", "[::1]:5300"),
            ("::1%lo", "[::1]:53"),
            ("2001:db8::53", "[2001:db8::53]:53"),
            ("::ffff:192.0.2.1", "192.0.2.1:53"),
            ("[::ffff:192.0.2.1]:5300", "192.0.2.1:5300"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn zone_is_the_name_or_the_index_of_an_interface() {
        // The loopback interface of a network is its first.
        for text in [
            "fe80::53%lo",
            "[fe80::53%lo]",
            "[fe80::53%1]:53",
            "[fe80::53%lo]:53",
            "fe80::53%lo#53",
            "fe80::53%lo@53",
        ] {
            assert_eq!(read(text), "[fe80::53%1]:53", "{text}");
        }
        let address = parse("[fe80::53%lo]:5300", 53).unwrap();
        assert_eq!(Shown(address).to_string(), "[fe80::53%lo]:5300");
        assert_eq!(interface(address).as_deref(), Some("lo"));
        let other = parse("::1", 53).unwrap();
        assert_eq!((zone(other), interface(other)), (0, None));
        assert_eq!(Shown(other).to_string(), "[::1]:53");
    }

    #[test]
    fn link_local_address_without_an_interface_of_this_host_is_refused() {
        for text in [
            "fe80::53",
            "[fe80::53]:53",
            "fe80::53%",
            "fe80::53%0",
            "fe80::53%nosuch0",
        ] {
            let Err(AddressError::Zone { address, .. }) = parse(text, 53) else {
                panic!("{text} is accepted");
            };
            assert_eq!(address, "[fe80::53]:53".parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn interfaces_with_a_link_local_address_are_listed() {
        let line = "fe80000000000000b0b2c4fffe6a7e11 02 40 20 80     eth0";
        assert_eq!(link_local(line), Some("eth0"));
        let global = "20010db8000000000000000000000001 02 40 00 80     eth0";
        assert_eq!(link_local(global), None);
        let error = |interfaces: &[&str]| {
            let address = "[fe80::53]:53".parse().unwrap();
            let interfaces = interfaces.iter().map(|&name| name.to_owned()).collect();
            AddressError::Zone {
                address,
                interfaces,
            }
            .to_string()
        };
        assert_eq!(
            error(&["eth0", "wlan0"]),
            "fe80::53 is link-local and needs the interface that leads to it, like \"fe80::53%eth0\"; this machine has \
             eth0, wlan0"
        );
        assert_eq!(
            error(&[]),
            "fe80::53 is link-local and needs the interface that leads to it, and no interface of this machine has a \
             link-local address; bring one up"
        );
    }

    #[test]
    fn ports_and_addresses_that_cannot_be_used_are_refused() {
        for text in ["::1#0", "[::1]:65536", "192.0.2.1:x", "192.0.2.1@"] {
            assert_eq!(parse(text, 53), Err(AddressError::Port(text.to_owned())));
        }
        for text in [
            "",
            "eth0",
            "[192.0.2.1]",
            "[::1",
            "256.0.2.1",
            "[[::1]]",
            "[]",
        ] {
            let unreadable = AddressError::Unreadable(text.to_owned());
            assert_eq!(parse(text, 53), Err(unreadable));
        }
        for (text, address, port) in [("::1:53", "::1", 53), ("::1:5353", "::1", 5353)] {
            let brackets = AddressError::Brackets {
                whole: text.parse().unwrap(),
                address: address.parse().unwrap(),
                port,
            };
            assert_eq!(parse(text, 53), Err(brackets));
        }
        assert!(parse("2001:db8::1:5353", 53).is_ok());
    }

    #[test]
    fn hosts_and_ports_are_split() {
        for (text, host, port) in [
            ("localhost", "localhost", None),
            ("localhost:5300", "localhost", Some("5300")),
            ("localhost@5300", "localhost", Some("5300")),
            ("[::1]:5300", "[::1]", Some("5300")),
            ("::1", "::1", None),
        ] {
            assert_eq!(split(text), (host, port));
        }
    }
}
