//! From what the user types for one flag to what it means, where no other room reads such texts.

use std::net::{Ipv4Addr, SocketAddr};

use crate::quantity::ValueError;

/// Reads a setting of a profile, "threads=2": a name and a value, which may be empty.
///
/// # Errors
///
/// What has no name or no equals sign.
pub fn setting(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(ValueError::unreadable(
            "a setting of the profile and its value",
            "threads=2",
        )),
    }
}

/// Reads where a page is served: "8080" on the loopback interface, or an address with a port.
///
/// # Errors
///
/// What is neither; names are not looked up.
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
    fn a_port_alone_is_one_of_the_loopback_interface() {
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
