//! The prefix of a translator and the IPv4 addresses embedded in it (RFC 6052).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Valid prefix lengths, in bits (RFC 6052 section 2.2).
pub const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// An IPv6 prefix under which IPv4 addresses are embedded (Pref64::/n, RFC 6052 section 2.2).
///
/// Always of one of the six [`LENGTHS`], with the bits after the prefix zero, and but for
/// [`Pref64::around`] the bits 64 to 71 (the octet "u"), too.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pref64 {
    bits: u128,
    len: u8,
}

impl Pref64 {
    /// The Well-Known Prefix, 64:ff9b::/96 (RFC 6052 section 2.1).
    pub const WELL_KNOWN: Self = Self {
        bits: 0x0064_ff9b << 96,
        len: 96,
    };

    /// Creates a prefix from its address and its length in bits.
    pub fn new(addr: Ipv6Addr, len: u8) -> Result<Self, Pref64Error> {
        if !LENGTHS.contains(&len) {
            return Err(Pref64Error::Length { len });
        }
        let bits = addr.to_bits();
        let prefix = bits & mask(len);
        if prefix != bits {
            return Err(Pref64Error::HostBits {
                addr,
                len,
                network: prefix.into(),
            });
        }
        if bits & U_OCTET != 0 {
            return Err(Pref64Error::UOctet {
                addr,
                len,
                without: (bits & !U_OCTET).into(),
            });
        }
        Ok(Self { bits, len })
    }

    /// The prefix of this length of an address, as servers without the checks of [`Pref64::new`]
    /// use it: the bits after the prefix are ignored, and a prefix of 96 bits keeps its octet "u",
    /// against RFC 6052 section 2.2.
    pub fn around(addr: Ipv6Addr, len: u8) -> Result<Self, Pref64Error> {
        match LENGTHS.contains(&len) {
            true => Ok(Self {
                bits: addr.to_bits() & mask(len),
                len,
            }),
            false => Err(Pref64Error::Length { len }),
        }
    }

    /// Whether its octet "u" is zero, as RFC 6052 section 2.2 demands.
    pub fn has_zero_u(&self) -> bool {
        self.bits & U_OCTET == 0
    }

    /// The prefix as an address.
    pub fn addr(&self) -> Ipv6Addr {
        self.bits.into()
    }

    /// Length in bits.
    pub fn prefix_len(&self) -> u8 {
        self.len
    }

    /// The IPv6 address that represents `ipv4`; its suffix is zero (RFC 6052 section 2.3).
    pub fn embed(&self, ipv4: Ipv4Addr) -> Ipv6Addr {
        let straight = u128::from(ipv4.to_bits()) << (96 - self.len);
        let embedded = if self.len == 96 {
            straight
        } else {
            straight & UPPER_HALF | (straight & !UPPER_HALF) >> 8
        };
        (self.bits | embedded).into()
    }

    /// The IPv4 address that `ipv6` represents; `None` if it is in another prefix or if its octet
    /// "u" is not zero.
    ///
    /// The suffix is ignored, as RFC 6052 section 2.2 requires: `extract` also finds the IPv4
    /// address in some addresses that [`Pref64::embed`] never returns.
    pub fn extract(&self, ipv6: Ipv6Addr) -> Option<Ipv4Addr> {
        let bits = ipv6.to_bits();
        if bits & (mask(self.len) | U_OCTET) != self.bits {
            return None;
        }
        let straight = if self.len == 96 {
            bits
        } else {
            bits & UPPER_HALF | (bits & !UPPER_HALF) << 8
        };
        let low = straight >> (96 - self.len) & u128::from(u32::MAX);
        u32::try_from(low).ok().map(Ipv4Addr::from_bits)
    }

    /// The prefixes with which `aaaa` represents `ipv4`, shortest first: prefix discovery from the
    /// response for a name with a known IPv4 address (RFC 7050 section 3).
    ///
    /// More than one prefix means that the address occurs more than once in `aaaa`: query a name
    /// with another address and keep the prefixes that both responses give.
    pub fn learn(aaaa: Ipv6Addr, ipv4: Ipv4Addr) -> impl Iterator<Item = Self> {
        LENGTHS.into_iter().filter_map(move |len| {
            let prefix = Self::new((aaaa.to_bits() & mask(len)).into(), len).ok()?;
            (prefix.extract(aaaa) == Some(ipv4)).then_some(prefix)
        })
    }
}

impl FromStr for Pref64 {
    type Err = Pref64Error;

    fn from_str(text: &str) -> Result<Self, Pref64Error> {
        let syntax = || Pref64Error::Syntax {
            text: text.to_owned(),
        };
        let (addr, len) = text.split_once('/').ok_or_else(syntax)?;
        let addr = addr.parse().map_err(|_| syntax())?;
        let len = len.parse().map_err(|_| syntax())?;
        Self::new(addr, len)
    }
}

impl fmt::Display for Pref64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr(), self.len)
    }
}

impl fmt::Debug for Pref64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pref64({self})")
    }
}

/// Reason why a prefix is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Pref64Error {
    /// Not an address, a slash and a length.
    #[error("{text:?} is not an IPv6 prefix; write it like 64:ff9b::/96")]
    Syntax {
        /// The text.
        text: String,
    },
    /// A length that RFC 6052 does not define.
    #[error("pref64 length {len} is not one of 32, 40, 48, 56, 64 and 96; use one of these")]
    Length {
        /// Length in bits.
        len: u8,
    },
    /// Bits set after the prefix.
    #[error("{addr}/{len} has bits set after its first {len}; write {network}/{len}")]
    HostBits {
        /// Address given.
        addr: Ipv6Addr,
        /// Length in bits.
        len: u8,
        /// The address without those bits.
        network: Ipv6Addr,
    },
    /// Bits 64 to 71 are not zero, which RFC 6052 section 2.2 forbids for /96 too.
    #[error(
        "{addr}/{len} has bits set among bits 64 to 71, which RFC 6052 reserves; use {without}/{len}"
    )]
    UOctet {
        /// Address given.
        addr: Ipv6Addr,
        /// Length in bits.
        len: u8,
        /// The address without those bits.
        without: Ipv6Addr,
    },
}

/// Bits 64 to 71, counted from the most significant (RFC 6052 section 2.2).
const U_OCTET: u128 = 0xff << 56;

const UPPER_HALF: u128 = !0 << 64;

/// The first `len` bits; `len` is one of [`LENGTHS`].
fn mask(len: u8) -> u128 {
    !0 << (128 - len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6052 section 2.4, tables 1 and 2, all for 192.0.2.33.
    const RFC_6052_VECTORS: [(&str, &str); 7] = [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
    ];

    fn ipv6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn the_vectors_of_rfc_6052_hold_in_both_directions() {
        let ipv4 = Ipv4Addr::new(192, 0, 2, 33);
        for (prefix, embedded) in RFC_6052_VECTORS {
            let pref64: Pref64 = prefix.parse().unwrap();
            assert_eq!(pref64.embed(ipv4), ipv6(embedded), "{prefix}");
            assert_eq!(pref64.extract(ipv6(embedded)), Some(ipv4), "{prefix}");
            assert_eq!(pref64.to_string(), prefix);
            let learnt: Vec<_> = Pref64::learn(ipv6(embedded), ipv4).collect();
            assert_eq!(learnt, [pref64]);
        }
        assert_eq!("64:ff9b::/96".parse(), Ok(Pref64::WELL_KNOWN));
    }

    #[test]
    fn extraction_checks_only_the_prefix_and_octet_u() {
        let pref64: Pref64 = "2001:db8:122::/48".parse().unwrap();
        let found = |text| pref64.extract(ipv6(text));
        assert_eq!(found("2001:db8:123:c000:2:2100::"), None);
        assert_eq!(found("2001:db8:122:c000:102:2100::"), None);
        let with_suffix = found("2001:db8:122:c000:2:21ff:ffff:ffff");
        assert_eq!(with_suffix, Some(Ipv4Addr::new(192, 0, 2, 33)));
        assert_eq!(
            Pref64::WELL_KNOWN.extract(ipv6("64:ff9b:1::192.0.2.33")),
            None
        );
    }

    #[test]
    fn learning_returns_all_possible_prefixes() {
        let ipv4 = Ipv4Addr::new(192, 0, 2, 33);
        assert_eq!(Pref64::learn(ipv6("2001:db8::1"), ipv4).count(), 0);
        // The address at the position of /32 and at that of /96.
        let twice = ipv6("2001:db8:c000:221::192.0.2.33");
        let learnt: Vec<_> = Pref64::learn(twice, ipv4).map(|p| p.prefix_len()).collect();
        assert_eq!(learnt, [32, 96]);
        // The octet "u" is not zero: no prefix is possible.
        let none = ipv6("2001:db8:122:344:100:0:192.0.2.33");
        assert_eq!(Pref64::learn(none, ipv4).count(), 0);
    }

    #[test]
    fn prefix_around_an_address_keeps_its_octet_u() {
        let around = |len| Pref64::around(ipv6("2001:db8:1:2:dead:beef:3:4"), len).unwrap();
        let all = [64, 96].map(around);
        let texts = all.map(|prefix| prefix.to_string());
        assert_eq!(texts, ["2001:db8:1:2::/64", "2001:db8:1:2:dead:beef::/96"]);
        assert_eq!(all.map(|prefix| prefix.has_zero_u()), [true, false]);
        let ipv4 = Ipv4Addr::new(192, 0, 2, 33);
        for prefix in all {
            assert_eq!(prefix.extract(prefix.embed(ipv4)), Some(ipv4), "{prefix}");
        }
        let length = Pref64Error::Length { len: 80 };
        assert_eq!(Pref64::around(ipv6("::"), 80), Err(length));
    }

    #[test]
    fn errors_name_the_remedy() {
        let error = |text: &str| text.parse::<Pref64>().unwrap_err().to_string();
        assert_eq!(
            error("64:ff9b::"),
            "\"64:ff9b::\" is not an IPv6 prefix; write it like 64:ff9b::/96"
        );
        assert_eq!(
            error("64:ff9b::/x"),
            "\"64:ff9b::/x\" is not an IPv6 prefix; write it like 64:ff9b::/96"
        );
        assert_eq!(
            error("2001:db8::/80"),
            "pref64 length 80 is not one of 32, 40, 48, 56, 64 and 96; use one of these"
        );
        assert_eq!(
            error("2001:db8:1::/32"),
            "2001:db8:1::/32 has bits set after its first 32; write 2001:db8::/32"
        );
        assert_eq!(
            error("2001:db8:0:0:ff00::/96"),
            "2001:db8:0:0:ff00::/96 has bits set among bits 64 to 71, which RFC 6052 reserves; \
             use 2001:db8::/96"
        );
    }
}
