//! Addresses of running servers.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use crate::quantity::ValueError;

/// Parses an address with or without a port.
pub(super) fn with_port(text: &str) -> Result<SocketAddr, ValueError> {
    let address = text.parse::<IpAddr>();
    address
        .map(|address| SocketAddr::new(address, DNS_PORT))
        .or_else(|_| text.parse())
        .map_err(|_| {
            ValueError(format!(
                "{text:?} is not an address; write \"2001:db8::53\" or, with a port, \"[2001:db8::53]:5300\""
            ))
        })
}
/// A running server, as the user gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerName {
    /// By its address.
    Address(IpAddr),
    /// By a host name, which is not looked up yet.
    Host(String),
}

impl FromStr for ServerName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let has_letter = text.contains(|c: char| c.is_ascii_alphabetic());
        if has_letter && text.chars().all(is_part) {
            return Ok(Self::Host(text.to_owned()));
        }
        Err(ValueError::unreadable(
            "an address without a port, or a host name",
            "2001:db8::53 or localhost",
        ))
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Host(name) => name.fmt(f),
        }
    }
}

impl ServerName {
    /// Its address. For a host name the address that the system prefers, of the family of `local` if that is given.
    ///
    /// # Errors
    ///
    /// The name has no such address.
    pub fn address(&self, local: Option<IpAddr>) -> io::Result<IpAddr> {
        let name = match self {
            Self::Address(address) => return Ok(*address),
            Self::Host(name) => name,
        };
        let fits = |found: &IpAddr| local.is_none_or(|local| local.is_ipv4() == found.is_ipv4());
        let mut found = (name.as_str(), 0).to_socket_addrs()?.map(|it| it.ip());
        let none = || io::Error::other("it has no address of the family of --local");
        found.find(fits).ok_or_else(none)
    }
}

/// RFC 1035 section 4.2.
pub(super) const DNS_PORT: u16 = 53;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_server_is_an_address_or_a_host_name() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for text in ["::1", "192.0.2.1"] {
            let read: ServerName = text.parse().unwrap();
            assert_eq!(read, ServerName::Address(address(text)));
            assert_eq!(read.address(None).unwrap(), address(text));
        }
        let localhost: ServerName = "localhost".parse().unwrap();
        assert!(localhost.address(None).unwrap().is_loopback());
        let v4 = localhost.address(Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(v4.unwrap(), Ipv4Addr::LOCALHOST);
        for text in [
            "",
            "192.0.2.1:53",
            "[::1]:53",
            "192.0.2",
            "a b",
            "256.1.1.1",
            "fe80::1%eth0",
        ] {
            assert!(text.parse::<ServerName>().is_err(), "{text}");
        }
    }
}
