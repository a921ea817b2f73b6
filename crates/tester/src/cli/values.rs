//! Parsers of flag values that no other module has.

use std::net::{Ipv4Addr, SocketAddr};

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
    text.parse().map_err(|_| {
        ValueError::unreadable(
            "a port, or an address with a port",
            "8080, 192.0.2.1:8080 or [::1]:8080",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
