//! Parsers of flag values that no other module has.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};

use crate::quantity::ValueError;

/// Parses a setting of a profile, "threads=2": a name and a value, which may be empty.
///
/// # Errors
///
/// No name or no equals sign.
pub fn setting(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(ValueError::unreadable(
            "a setting of the profile and its value",
            "threads=2",
        )),
    }
}

/// Parses the listen address of the live page: "8080" on the loopback interface, or an address with a port.
///
/// # Errors
///
/// Any other text; names are not looked up.
pub fn http_listen(text: &str) -> Result<SocketAddr, ValueError> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        ValueError::unreadable(
            "a port, or an address with a port",
            "8080, 192.0.2.1:8080 or [::1]:8080",
        )
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

/// Parses an address or a host name.
///
/// # Errors
///
/// Any other text, such as an address with a port.
pub fn server(text: &str) -> Result<ServerName, ValueError> {
    if let Ok(address) = text.parse() {
        return Ok(ServerName::Address(address));
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let has_letter = text.contains(|c: char| c.is_ascii_alphabetic());
    if has_letter && text.chars().all(is_part) {
        return Ok(ServerName::Host(text.to_owned()));
    }
    Err(ValueError::unreadable(
        "an address without a port, or a host name",
        "2001:db8::53 or localhost",
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_names_with_values() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(setting("threads=2"), pair("threads", "2"));
        assert_eq!(setting("a=b=c"), pair("a", "b=c"));
        assert_eq!(setting("a="), pair("a", ""));
        for text in ["", "threads", "=2"] {
            assert_eq!(
                setting(text).unwrap_err().to_string(),
                "a setting of the profile and its value is expected, such as threads=2"
            );
        }
    }

    #[test]
    fn a_server_is_an_address_or_a_host_name() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for text in ["::1", "192.0.2.1"] {
            let read = server(text).unwrap();
            assert_eq!(read, ServerName::Address(address(text)));
            assert_eq!(read.address(None).unwrap(), address(text));
        }
        let localhost = server("localhost").unwrap();
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
            assert!(server(text).is_err(), "{text}");
        }
    }

    #[test]
    fn port_alone_means_the_loopback_interface() {
        let read = ["8080", "0.0.0.0:80", "[::1]:8080"].map(|text| http_listen(text).unwrap());
        assert_eq!(
            read.map(|listen| listen.to_string()),
            ["127.0.0.1:8080", "0.0.0.0:80", "[::1]:8080"]
        );
        for text in [
            "",
            "65536",
            "-1",
            ":8080",
            "127.0.0.1",
            "::1:x",
            "localhost:8080",
            "+",
        ] {
            let error = http_listen(text).unwrap_err().to_string();
            assert_eq!(
                error,
                "a port, or an address with a port is expected, such as 8080, 192.0.2.1:8080 or [::1]:8080",
                "{text}"
            );
        }
    }
}
