//! Headers of the PROXY protocol, version 2 (HAProxy, proxy-protocol.txt section 2.2): the client of a datagram or of a
//! connection that a proxy forwards.

use std::net::{IpAddr, SocketAddr};

/// Length of the part before the addresses, in octets.
pub const FIXED_LEN: usize = 16;

/// Length of the longest header with its extensions, in octets: the default of PowerDNS Recursor
/// (`proxy-protocol-maximum-size`).
pub const LEN_MAX: usize = 512;

/// The first octets: no DNS message over TCP or TLS record begins like this.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2 with the command of a proxy that speaks for itself, such as in health checks.
const LOCAL: u8 = 0x20;

/// Version 2 with the command of a proxy that forwards.
const PROXY: u8 = 0x21;

/// Number of octets after the fixed part of a header; `None`: it is not one of version 2, or too long.
pub fn rest_len(fixed: &[u8; FIXED_LEN]) -> Option<usize> {
    let len = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    (fixed.starts_with(&SIGNATURE) && FIXED_LEN + len <= LEN_MAX).then_some(len)
}

/// The client that a header names, or the proxy, if it speaks for itself or does not know the client. `None`: the header
/// is invalid, or the client has no IP address.
pub fn client(fixed: &[u8; FIXED_LEN], rest: &[u8], proxy: SocketAddr) -> Option<SocketAddr> {
    let (ip, port): (IpAddr, _) = match (fixed[12], fixed[13] >> 4) {
        (LOCAL, _) | (PROXY, 0) => return Some(proxy),
        // Addresses and ports, of the source first.
        (PROXY, 1) => (rest.first_chunk::<4>()?.to_owned().into(), rest.get(8..12)?),
        (PROXY, 2) => (
            rest.first_chunk::<16>()?.to_owned().into(),
            rest.get(32..36)?,
        ),
        _ => return None,
    };
    let port = u16::from_be_bytes([port[0], port[1]]);
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// The client and the message in a datagram of a proxy; `None`: it has no valid header.
pub fn split(datagram: &[u8], proxy: SocketAddr) -> Option<(SocketAddr, &[u8])> {
    let (fixed, rest) = datagram.split_first_chunk()?;
    let (rest, message) = rest.split_at_checked(rest_len(fixed)?)?;
    Some((client(fixed, rest, proxy)?, message))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IPV4: &[u8] =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c\xc0\0\x02\x01\x7f\0\0\x01\x10\x01\0\x35";
    const IPV6: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x28\
        \x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x10\x02\0\x35\x04\0\x01x";

    /// The client and the message behind it.
    fn found(datagram: &[u8]) -> String {
        let proxy = SocketAddr::from(([127, 0, 0, 1], 9));
        split(datagram, proxy).map_or("none".to_owned(), |(client, message)| {
            format!("{client} {}", message.escape_ascii())
        })
    }

    /// A header with one octet changed, and a message.
    fn with(at: usize, octet: u8) -> String {
        let mut datagram = [IPV4, b"query"].concat();
        datagram[at] = octet;
        found(&datagram)
    }

    #[test]
    fn header_names_the_client() {
        assert_eq!(found(&[IPV4, b"query"].concat()), "192.0.2.1:4097 query");
        assert_eq!(
            found(&[IPV6, b"query"].concat()),
            "[2001:db8::1]:4098 query"
        );
        // Over TCP, or without a known transport.
        assert_eq!(with(13, 0x11), "192.0.2.1:4097 query");
        let mut mapped = IPV6.to_vec();
        mapped[16..32].copy_from_slice(b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01");
        assert_eq!(found(&mapped), "192.0.2.1:4098 ");
    }

    #[test]
    fn proxy_without_a_known_client_is_the_client() {
        assert_eq!(with(12, 0x20), "127.0.0.1:9 query");
        assert_eq!(with(13, 0), "127.0.0.1:9 query");
        assert_eq!(found(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0q"), "127.0.0.1:9 q");
    }

    #[test]
    fn invalid_header_is_refused() {
        // The signature, version 1, an unknown command, a UNIX socket, IPv6 in too few octets.
        for (at, octet) in [(4, 1), (12, 0x11), (12, 0x22), (13, 0x31), (13, 0x22)] {
            assert_eq!(with(at, octet), "none", "{at} {octet}");
        }
        // Longer than the datagram, and shorter than the addresses.
        assert_eq!(with(15, 18), "none");
        assert_eq!(with(15, 11), "none");
        let mut longest = [IPV4, &[0; 496]].concat();
        longest[14..16].copy_from_slice(&496_u16.to_be_bytes());
        assert_eq!(
            found(&longest),
            "192.0.2.1:4097 ".to_owned() + &"\\x00".repeat(12)
        );
        longest[15] += 1;
        assert_eq!(found(&longest), "none");
    }

    proptest! {
        #[test]
        fn any_octets_are_split_or_refused(
            head in prop::sample::select(vec![&b""[..], &SIGNATURE, IPV4, IPV6]),
            rest in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let datagram = [head, &rest].concat();
            let proxy = SocketAddr::from(([127, 0, 0, 1], 9));
            if let Some((_, message)) = split(&datagram, proxy) {
                prop_assert!(datagram.len() - message.len() <= LEN_MAX);
            }
        }
    }
}
