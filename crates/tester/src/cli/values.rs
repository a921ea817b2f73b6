//! Parsers of flag values that no other module has.

use std::net::{Ipv4Addr, SocketAddr};

use dns64_transport::address::{self, AddressError};

use crate::campaign::plan::DNS_PORT;
use crate::quantity::ValueError;

/// Parses the listen address of the live page: "8080" on the loopback interface, or an address with a port.
///
/// # Errors
///
/// Any other text; names are not looked up.
pub fn http_listen(text: &str) -> Result<SocketAddr, ValueError> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    match listen(text) {
        Ok(listen) if listen.port() != 0 => Ok(listen),
        Err(error @ AddressError::Zone { .. }) => Err(ValueError(error.to_string())),
        _ => Err(ValueError::unreadable(
            "a port, or an address with a port",
            "8080, 192.0.2.1:8080 or [::1]:8080",
        )),
    }
}

/// Parses the address of a server, with port 53 unless it has another.
///
/// # Errors
///
/// Any other text; names are not looked up.
pub fn server(text: &str) -> Result<SocketAddr, AddressError> {
    address::parse(text, DNS_PORT)
}

/// Parses an address to listen at, with port 0 unless it has another.
///
/// # Errors
///
/// Any other text.
pub fn listen(text: &str) -> Result<SocketAddr, AddressError> {
    address::parse(text, 0)
}

/// Parses an address whose port is given separately; it has port 0.
///
/// # Errors
///
/// Any other text.
pub fn without_port(text: &str) -> Result<SocketAddr, ValueError> {
    match address::parse(text, 0) {
        Ok(address) if address.port() == 0 => Ok(address),
        Ok(_) => {
            let error = format!("{text:?} has a port, which is given separately; omit it here");
            Err(ValueError(error))
        }
        Err(error) => Err(ValueError(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_given_separately_or_with_the_address() {
        assert_eq!(without_port("::1").unwrap().to_string(), "[::1]:0");
        assert_eq!(
            without_port("fe80::1%lo").unwrap().to_string(),
            "[fe80::1%1]:0"
        );
        assert!(without_port("[::1]:53").is_err() && without_port("host").is_err());
        assert_eq!(server("::1").unwrap().to_string(), "[::1]:53");
        assert_eq!(server("::1#5300").unwrap().to_string(), "[::1]:5300");
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
