//! Source addresses of the Measurer.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use dns64_transport::address::{self, AddressError};
use ipnet::IpNet;
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::quantity::ValueError;

/// One address, or the host addresses of a prefix, which the flows of a trial use in rotation: flow i has address
/// number i modulo their number.
///
/// The network and broadcast addresses of an IPv4 prefix shorter than /31 (RFC 3021) are excluded. So is the
/// Subnet-Router anycast address, the first one, of an IPv6 prefix shorter than /127 (RFC 4291 section 2.6.1, RFC
/// 6164).
#[derive(Clone, Copy, Debug, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct Sources(IpNet);

/// Largest number of addresses: the Measurer's largest number of source ports, because no flow would use more.
pub const SOURCES_MAX: u64 = 1 << HOST_BITS_MAX;
const HOST_BITS_MAX: u8 = 14;

impl Sources {
    /// Number of addresses: 1 to [`SOURCES_MAX`].
    pub fn count(&self) -> usize {
        let all = 1 << self.host_bits();
        match self.0 {
            _ if self.host_bits() < 2 => all,
            IpNet::V4(_) => all - 2,
            IpNet::V6(_) => all - 1,
        }
    }

    /// Returns the address of flow number `flow`.
    pub fn address(&self, flow: usize) -> IpAddr {
        let skipped = usize::from(self.host_bits() >= 2);
        let number = skipped + flow % self.count();
        match self.0 {
            IpNet::V4(net) => {
                let number = u32::try_from(number).unwrap_or_default();
                Ipv4Addr::from_bits(net.addr().to_bits() | number).into()
            }
            IpNet::V6(net) => Ipv6Addr::from_bits(net.addr().to_bits() | number as u128).into(),
        }
    }

    /// Part `k` of `parts` equal ones, each a prefix of its own: no two have an address in common. What is left of the prefix
    /// if `parts` is no power of two is not used. `None` if there are fewer addresses than parts.
    pub fn part(&self, k: usize, parts: usize) -> Option<Self> {
        let bits = parts.next_power_of_two().trailing_zeros();
        let len = self.0.prefix_len().saturating_add(u8::try_from(bits).ok()?);
        self.0.subnets(len).ok()?.nth(k).map(Self)
    }

    /// The longest length of a prefix that has so many parts.
    pub fn len_for(&self, parts: usize) -> u8 {
        let bits = parts.next_power_of_two().trailing_zeros();
        self.0.max_prefix_len() - u8::try_from(bits).unwrap_or(HOST_BITS_MAX)
    }

    /// Returns whether the prefix contains an address.
    pub fn covers(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    fn host_bits(&self) -> u8 {
        self.0.max_prefix_len() - self.0.prefix_len()
    }
}

impl From<IpAddr> for Sources {
    fn from(address: IpAddr) -> Self {
        Self(address.into())
    }
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host_bits() {
            0 => self.0.addr().fmt(f),
            _ => self.0.fmt(f),
        }
    }
}

impl FromStr for Sources {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        // The zone of a link-local address is that of the server.
        match address::parse(text, 0) {
            Ok(address) if address.port() == 0 => return Ok(address.ip().into()),
            Err(AddressError::Zone { address, .. }) => return Ok(address.ip().into()),
            _ => {}
        }
        let prefix = text.parse::<IpNet>().map_err(|_| {
            let what = "an address, or a prefix of addresses";
            ValueError::unreadable(what, "2001:db8::1 or 2001:db8:1::/116")
        })?;
        let longest = prefix.max_prefix_len();
        let shortest = longest - HOST_BITS_MAX;
        if prefix.prefix_len() < shortest {
            return Err(ValueError(format!(
                "{prefix} has more than {SOURCES_MAX} addresses, the limit of source ports; give a prefix of /{shortest} to \
                 /{longest}"
            )));
        }
        if prefix != prefix.trunc() {
            return Err(ValueError(format!(
                "{prefix} has bits set beyond its length; give {} for the prefix, or {} for the one address",
                prefix.trunc(),
                prefix.addr()
            )));
        }
        Ok(Self(prefix))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn sources(text: &str) -> Sources {
        text.parse().unwrap()
    }

    fn all(text: &str) -> Vec<String> {
        let sources = sources(text);
        let each = (0..sources.count()).map(|flow| sources.address(flow).to_string());
        each.collect()
    }

    #[test]
    fn single_address_is_one_source() {
        for text in ["192.0.2.1", "2001:db8::1"] {
            let read = sources(text);
            assert_eq!(read, text.parse::<IpAddr>().unwrap().into());
            assert_eq!((read.count(), read.to_string().as_str()), (1, text));
            assert_eq!(read.address(7).to_string(), text);
        }
        assert_eq!(sources("192.0.2.1/32"), sources("192.0.2.1"));
        assert_eq!(sources("2001:db8::1/128"), sources("2001:db8::1"));
    }

    #[test]
    fn addresses_that_are_not_host_addresses_are_excluded() {
        assert_eq!(all("192.0.2.8/30"), ["192.0.2.9", "192.0.2.10"]);
        assert_eq!(all("192.0.2.8/31"), ["192.0.2.8", "192.0.2.9"]);
        assert_eq!(
            all("2001:db8::4/126"),
            ["2001:db8::5", "2001:db8::6", "2001:db8::7"]
        );
        assert_eq!(all("2001:db8::4/127"), ["2001:db8::4", "2001:db8::5"]);
        assert_eq!(sources("2001:db8::/114").count(), 16_383);
        assert_eq!(sources("198.18.0.0/18").count(), 16_382);
    }

    #[test]
    fn error_names_the_value_the_bound_and_the_remedy() {
        let error = |text: &str| text.parse::<Sources>().unwrap_err().to_string();
        let large = "has more than 16384 addresses, the limit of source ports; give a prefix of";
        assert_eq!(
            error("2001:db8::/64"),
            format!("2001:db8::/64 {large} /114 to /128")
        );
        assert_eq!(
            error("198.18.0.0/17"),
            format!("198.18.0.0/17 {large} /18 to /32")
        );
        assert_eq!(
            error("192.0.2.1/24"),
            "192.0.2.1/24 has bits set beyond its length; give 192.0.2.0/24 for the prefix, or 192.0.2.1 for the one address"
        );
        for text in ["", "x", "192.0.2.0/33", "::/129", "192.0.2.0/", "::1#53"] {
            assert_eq!(
                error(text),
                "an address, or a prefix of addresses is expected, such as 2001:db8::1 or 2001:db8:1::/116",
                "{text}"
            );
        }
    }

    #[test]
    fn parts_are_prefixes_that_share_no_address() {
        let parts = |text: &str, n: usize| -> Option<Vec<String>> {
            let whole = sources(text);
            let each = (0..n).map(|k| Some(whole.part(k, n)?.to_string()));
            each.collect()
        };
        assert_eq!(parts("2001:db8::/118", 1).unwrap(), ["2001:db8::/118"]);
        assert_eq!(
            parts("2001:db8::/118", 3).unwrap(),
            ["2001:db8::/120", "2001:db8::100/120", "2001:db8::200/120"]
        );
        assert_eq!(
            parts("2001:db8::4/127", 2).unwrap(),
            ["2001:db8::4", "2001:db8::5"]
        );
        assert_eq!(parts("2001:db8::4/127", 3), None);
        assert_eq!(parts("2001:db8::4", 2), None);
        assert_eq!(sources("2001:db8::4").len_for(3), 126);
        assert_eq!(sources("2001:db8::4").len_for(1), 128);
    }

    proptest! {
        /// Flows are spread evenly, only over addresses of the prefix, and over all of them with enough flows.
        #[test]
        fn flows_are_spread_evenly_over_the_prefix(bits in 0..=8_u8, v6: bool, base: u128, flows in 1..2000_usize) {
            let net = if v6 {
                IpNet::new(Ipv6Addr::from_bits(base).into(), 128 - bits)
            } else {
                IpNet::new(Ipv4Addr::from_bits((base >> 96) as u32).into(), 32 - bits)
            };
            let net = net.unwrap().trunc();
            let sources: Sources = net.to_string().parse().unwrap();
            let mut uses = BTreeMap::new();
            for flow in 0..flows {
                let address = sources.address(flow);
                prop_assert!(net.contains(&address) && sources.covers(address));
                *uses.entry(address).or_insert(0) += 1;
            }
            prop_assert_eq!(uses.len(), flows.min(sources.count()));
            let (least, most) = (uses.values().min().unwrap(), uses.values().max().unwrap());
            prop_assert!(most - least <= 1, "{least} to {most}");
            prop_assert_eq!(sources.to_string().parse(), Ok(sources));
        }
    }
}
