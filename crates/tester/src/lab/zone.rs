//! The zone file of the measurement namespace, for authorities that need one.

use std::fmt;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What a zone file holds: for each IPv4 address `a.b.c.d` of a network the name
/// `AAA-BBB-CCC-DDD.suffix` with that address, and an AAAA record of its own where wanted.
pub struct Zone {
    /// First address of the network.
    pub network: Ipv4Addr,
    /// Length of the network's prefix in bits; at least [`PREFIX_LEN_MIN`].
    pub prefix_len: u8,
    /// Gives the AAAA record that a name has of its own, if any.
    pub own_aaaa: Box<dyn Fn(Ipv4Addr) -> Option<Ipv6Addr> + Send>,
}

impl Zone {
    /// Names in the zone.
    pub fn names(&self) -> u64 {
        1 << (32 - u32::from(self.prefix_len.min(32)))
    }

    /// Writes the zone of `suffix` in the format of RFC 1035 section 5.
    ///
    /// # Errors
    ///
    /// The network is too large or not a network; writing failed.
    pub fn write(&self, suffix: &str, to: &mut impl Write) -> Result<(), ZoneError> {
        let size = self.checked_size()?;
        let suffix = suffix.trim_end_matches('.');
        // The MINIMUM of 0 keeps negative answers out of the DUT's cache (RFC 2308 section 5).
        writeln!(
            to,
            "$ORIGIN {suffix}.\n$TTL 3600\n@ SOA ns hostmaster 1 3600 900 604800 0\n@ NS ns\nns A 198.18.0.2\nns AAAA 2001:2:0:2::2"
        )?;
        let first = u32::from(self.network);
        for offset in 0..size {
            let address = Ipv4Addr::from(first + offset);
            let [a, b, c, d] = address.octets();
            writeln!(to, "{a:03}-{b:03}-{c:03}-{d:03} A {address}")?;
            if let Some(own) = (self.own_aaaa)(address) {
                writeln!(to, " AAAA {own}")?;
            }
        }
        Ok(())
    }

    fn checked_size(&self) -> Result<u32, ZoneError> {
        let (network, prefix_len) = (self.network, self.prefix_len);
        if !(PREFIX_LEN_MIN..=32).contains(&prefix_len) {
            return Err(ZoneError::Size {
                network,
                prefix_len,
            });
        }
        let size = 1_u32 << (32 - u32::from(prefix_len));
        if u32::from(network) % size != 0 {
            return Err(ZoneError::HostBits {
                network,
                prefix_len,
            });
        }
        Ok(size)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({}/{})", self.network, self.prefix_len)
    }
}

/// Shortest prefix that a zone file is written for: 2^20 names. NSD 4.6 takes about 250 bytes of
/// memory for each name with an A record, 350 with an AAAA as well: so at most about 350 MiB.
pub const PREFIX_LEN_MIN: u8 = 12;

/// Why a zone file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ZoneError {
    /// More names than a zone file is good for.
    #[error(
        "a zone file for {network}/{prefix_len} is out of bounds; take a prefix of \
         /{PREFIX_LEN_MIN} to /32, or the built-in authority, which needs no zone file"
    )]
    Size {
        /// Network asked for.
        network: Ipv4Addr,
        /// Its prefix length.
        prefix_len: u8,
    },
    /// Not the first address of a network.
    #[error("{network} has bits set beyond /{prefix_len}; name the first address of the network")]
    HostBits {
        /// Network asked for.
        network: Ipv4Addr,
        /// Its prefix length.
        prefix_len: u8,
    },
    /// No space, no permission.
    #[error("cannot write the zone file")]
    Write(#[from] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn zone(network: [u8; 4], prefix_len: u8) -> Zone {
        Zone {
            network: network.into(),
            prefix_len,
            own_aaaa: Box::new(|address| {
                let odd = address.octets()[3] % 2 == 1;
                odd.then(|| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0xa00, 1))
            }),
        }
    }

    #[test]
    fn names_have_their_own_numbers() {
        let mut text = Vec::new();
        zone([10, 0, 0, 0], 31)
            .write("dns64perf.test", &mut text)
            .unwrap();
        expect![[r#"
            $ORIGIN dns64perf.test.
            $TTL 3600
            @ SOA ns hostmaster 1 3600 900 604800 0
            @ NS ns
            ns A 198.18.0.2
            ns AAAA 2001:2:0:2::2
            010-000-000-000 A 10.0.0.0
            010-000-000-001 A 10.0.0.1
             AAAA 2001:db8::a00:1
        "#]]
        .assert_eq(&String::from_utf8(text).unwrap());
    }

    #[test]
    fn the_last_network_of_all_is_no_special_case() {
        let mut text = Vec::new();
        zone([255, 255, 255, 254], 31)
            .write("x", &mut text)
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("255-255-255-255 A 255.255.255.255"));
    }

    #[test]
    fn sizes_out_of_bounds_are_refused() {
        for prefix_len in [0, 11, 33] {
            let error = zone([0; 4], prefix_len).write("x", &mut Vec::new());
            assert!(matches!(error, Err(ZoneError::Size { .. })), "{prefix_len}");
        }
        let error = zone([10, 0, 0, 1], 31).write("x", &mut Vec::new());
        assert!(matches!(error, Err(ZoneError::HostBits { .. })));
    }
}
