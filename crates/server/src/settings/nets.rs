//! Sets of addresses, and the network that counts as one client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A set of addresses, as networks. IPv4-mapped IPv6 addresses count as IPv4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetSet {
    nets: Vec<IpNet>,
    ipv4: Ranges<u32>,
    ipv6: Ranges<u128>,
}

/// First and last addresses of ranges, sorted, without overlaps.
type Ranges<T> = Vec<(T, T)>;

impl NetSet {
    /// Creates the set of the addresses of all these networks.
    pub fn new(nets: Vec<IpNet>) -> Self {
        let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
        for net in &nets {
            match net {
                IpNet::V4(net) => ipv4.push((net.network().to_bits(), net.broadcast().to_bits())),
                IpNet::V6(net) => ipv6.push((net.network().to_bits(), net.broadcast().to_bits())),
            }
        }
        let (ipv4, ipv6) = (merged(ipv4), merged(ipv6));
        Self { nets, ipv4, ipv6 }
    }

    /// All addresses.
    pub fn all() -> Self {
        Self::new(vec![Ipv6Net::default().into(), Ipv4Net::default().into()])
    }

    /// The networks of the set.
    pub fn nets(&self) -> &[IpNet] {
        &self.nets
    }

    /// First and last addresses of its IPv4 ranges, sorted, without overlaps.
    pub(crate) fn ranges4(&self) -> &[(u32, u32)] {
        &self.ipv4
    }

    /// The same for its IPv6 ranges.
    pub(crate) fn ranges6(&self) -> &[(u128, u128)] {
        &self.ipv6
    }

    /// Whether the address is in the set. The time is logarithmic in the number of networks.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => holds(&self.ipv4, address.to_bits()),
            IpAddr::V6(address) => holds(&self.ipv6, address.to_bits()),
        }
    }

    /// Like [`NetSet::contains`], without the rule for IPv4-mapped addresses: exclusion from
    /// answers compares the bits.
    pub fn contains_bits(&self, address: Ipv6Addr) -> bool {
        holds(&self.ipv6, address.to_bits())
    }
}

/// Sorts ranges and joins overlapping ones: networks are disjoint or nested.
fn merged<T: Copy + Ord>(mut ranges: Ranges<T>) -> Ranges<T> {
    ranges.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    ranges.dedup_by(|next, before| next.1 <= before.1);
    ranges
}

fn holds<T: Copy + Ord>(ranges: &Ranges<T>, address: T) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= address);
    after > 0 && address <= ranges[after - 1].1
}

/// The network that counts as one client for per-client limits. IPv4-mapped IPv6 addresses count as
/// IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientNetwork {
    /// The address with the bits after the prefix 0.
    Ipv4(u32),
    /// The first 64 bits of the address, with those after the prefix 0.
    Ipv6(u64),
}

/// The prefix lengths of [`ClientNetwork`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPrefixes {
    /// For IPv4; 1 to 32.
    pub ipv4: u8,
    /// For IPv6; 1 to 64: a subnet has 64 (RFC 4291 section 2.5.4), and its hosts choose the rest.
    pub ipv6: u8,
}

impl ClientPrefixes {
    /// The network of an address.
    pub fn network(self, address: IpAddr) -> ClientNetwork {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let host_bits = 32_u32.saturating_sub(self.ipv4.into());
                ClientNetwork::Ipv4(address.to_bits() >> host_bits << host_bits)
            }
            IpAddr::V6(address) => {
                let [subnet, _] = halves(address);
                let rest_bits = 64_u32.saturating_sub(self.ipv6.into());
                ClientNetwork::Ipv6(subnet >> rest_bits << rest_bits)
            }
        }
    }
}

impl ClientNetwork {
    /// Its first address.
    pub fn address(self) -> IpAddr {
        match self {
            Self::Ipv4(bits) => Ipv4Addr::from_bits(bits).into(),
            Self::Ipv6(subnet) => Ipv6Addr::from_bits(u128::from(subnet) << 64).into(),
        }
    }
}

fn halves(address: Ipv6Addr) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = address.octets();
    [[a, b, c, d, e, f, g, h], rest].map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(nets: &[&str]) -> NetSet {
        NetSet::new(nets.iter().map(|net| net.parse().unwrap()).collect())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn set_contains_exactly_the_addresses_of_its_networks() {
        let clients = set(&["10.0.0.0/8", "2001:db8::/32"]);
        for inside in ["10.0.0.0", "10.255.255.255", "2001:db8:ffff::1"] {
            assert!(clients.contains(ip(inside)), "{inside}");
        }
        for outside in ["9.255.255.255", "11.0.0.0", "2001:db9::", "::"] {
            assert!(!clients.contains(ip(outside)), "{outside}");
        }
        assert!(!NetSet::default().contains(ip("::1")));
    }

    #[test]
    fn nested_and_equal_networks_count_once() {
        let nested = set(&[
            "10.1.0.0/16",
            "10.0.0.0/8",
            "10.0.0.0/8",
            "10.255.0.0/16",
            "12.0.0.0/8",
        ]);
        for inside in [
            "10.0.0.0",
            "10.1.255.255",
            "10.2.0.0",
            "10.255.255.255",
            "12.0.0.1",
        ] {
            assert!(nested.contains(ip(inside)), "{inside}");
        }
        for outside in ["9.255.255.255", "11.0.0.0", "13.0.0.0"] {
            assert!(!nested.contains(ip(outside)), "{outside}");
        }
    }

    #[test]
    fn client_with_a_mapped_address_counts_as_ipv4() {
        assert!(set(&["10.0.0.0/8"]).contains(ip("::ffff:10.1.2.3")));
        // IPv4 clients of a dual-stack socket are not IPv6 clients.
        assert!(!set(&["::/0"]).contains(ip("::ffff:10.1.2.3")));
    }

    #[test]
    fn contains_bits_treats_a_mapped_address_as_ipv6() {
        let mapped: Ipv6Addr = "::ffff:10.1.2.3".parse().unwrap();
        assert!(set(&["::ffff:0:0/96"]).contains_bits(mapped));
        assert!(!set(&["10.0.0.0/8"]).contains_bits(mapped));
        assert!(!set(&["::ffff:0:0/96"]).contains_bits("::fffe:a01:203".parse().unwrap()));
    }

    #[test]
    fn set_of_all_contains_both_families() {
        for address in [
            "0.0.0.0",
            "255.255.255.255",
            "::",
            "::ffff:10.0.0.1",
            "ff02::1",
        ] {
            assert!(NetSet::all().contains(ip(address)), "{address}");
        }
    }

    #[test]
    fn addresses_with_one_prefix_are_one_client() {
        let network = |ipv4, ipv6, address| ClientPrefixes { ipv4, ipv6 }.network(ip(address));
        let same = |a, b| network(24, 56, a) == network(24, 56, b);
        assert!(same("192.0.2.1", "192.0.2.254"));
        assert!(same("192.0.2.1", "::ffff:192.0.2.9"));
        assert!(!same("192.0.2.1", "192.0.3.1"));
        assert!(same("2001:db8:0:ff::1", "2001:db8::2"));
        assert!(!same("2001:db8:0:ff::1", "2001:db8:0:100::1"));
        assert!(!same("0.0.0.0", "::"));
        let narrow = |a, b| network(32, 64, a) == network(32, 64, b);
        assert!(!narrow("192.0.2.1", "192.0.2.2"));
        assert!(narrow("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!narrow("2001:db8::1", "2001:db8:0:1::1"));
        let wide = |a, b| network(8, 32, a) == network(8, 32, b);
        assert!(wide("10.0.0.1", "10.255.0.1"));
        assert!(wide("2001:db8::1", "2001:db8:ffff::1"));
    }
}
