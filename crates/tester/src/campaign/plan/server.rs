//! Addresses of running servers.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use dns64_transport::address::{self, AddressError};

use crate::quantity::ValueError;

/// Parses an address with or without a port. A link-local one may have an interface of another machine, where a report
/// is made of the journal; where it is measured, [`target::check`](crate::rig::target::check) refuses it.
pub(super) fn with_port(text: &str) -> Result<SocketAddr, ValueError> {
    match address::parse(text, DNS_PORT) {
        Ok(address) | Err(AddressError::Zone { address, .. }) => Ok(address),
        Err(error) => Err(ValueError(error.to_string())),
    }
}

/// A running server, as the user gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName {
    host: Host,
    /// Its port, if it was given with it.
    pub port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(SocketAddr),
    /// Not looked up yet.
    Name(String),
}

impl FromStr for ServerName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (host, port) = address::split(text);
        let host = match address::parse(text, DNS_PORT) {
            Ok(address) => Host::Address(address),
            Err(AddressError::Unreadable(_)) if is_name(host) => Host::Name(host.to_owned()),
            Err(AddressError::Unreadable(_)) => {
                return Err(ValueError::unreadable(
                    "an address or a host name",
                    "2001:db8::53, [2001:db8::53]:5300 or localhost",
                ));
            }
            Err(error) => return Err(ValueError(error.to_string())),
        };
        let port = port.and_then(|port| port.parse().ok());
        Ok(Self { host, port })
    }
}

/// Whether a text can be a host name, and no misspelt address.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.contains(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_part)
}

/// Without its port.
impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) => address.ip().fmt(f),
            Host::Name(name) => name.fmt(f),
        }
    }
}

impl ServerName {
    /// Its address at this port. For a host name the address that the system prefers, of the family of `local` if that
    /// is given.
    ///
    /// # Errors
    ///
    /// The name has no such address.
    pub fn address(&self, port: u16, local: Option<IpAddr>) -> io::Result<SocketAddr> {
        let name = match &self.host {
            Host::Address(address) => {
                let mut address = *address;
                address.set_port(port);
                return Ok(address);
            }
            Host::Name(name) => name,
        };
        let fits =
            |found: &SocketAddr| local.is_none_or(|local| local.is_ipv4() == found.is_ipv4());
        let none = || io::Error::other("it has no address of the family of --local");
        let mut found = (name.as_str(), port).to_socket_addrs()?;
        found.find(fits).ok_or_else(none)
    }
}

/// The port of DNS servers (RFC 1035 section 4.2).
pub const DNS_PORT: u16 = 53;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_server_is_an_address_or_a_host_name() {
        let read = |text: &str| text.parse::<ServerName>().unwrap();
        for (text, expected, port) in [
            ("::1", "[::1]:7", None),
            ("192.0.2.1", "192.0.2.1:7", None),
            ("[::1]:5300", "[::1]:7", Some(5300)),
            ("::1#5300", "[::1]:7", Some(5300)),
            ("fe80::53%lo", "[fe80::53%1]:7", None),
        ] {
            let address = read(text).address(7, None).unwrap();
            assert_eq!(
                (address.to_string().as_str(), read(text).port),
                (expected, port)
            );
        }
        let localhost = read("localhost:5300");
        assert_eq!(
            (localhost.to_string().as_str(), localhost.port),
            ("localhost", Some(5300))
        );
        assert!(localhost.address(7, None).unwrap().ip().is_loopback());
        let v4 = localhost.address(7, Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(v4.unwrap(), (Ipv4Addr::LOCALHOST, 7).into());
        for text in [
            "",
            "192.0.2",
            "a b",
            "256.1.1.1",
            "localhost:0",
            "::1:53",
            "fe80::1",
            "[localhost]",
        ] {
            assert!(text.parse::<ServerName>().is_err(), "{text}");
        }
    }

    #[test]
    fn plan_of_another_machine_keeps_its_link_local_address() {
        assert_eq!(
            with_port("fe80::53%nosuch0").unwrap().to_string(),
            "[fe80::53]:53"
        );
        assert_eq!(
            with_port("fe80::53%lo").unwrap().to_string(),
            "[fe80::53%1]:53"
        );
        assert!(with_port("ns.example").is_err());
    }
}
