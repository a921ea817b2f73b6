//! Sets of addresses.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// A set of addresses, as networks. IPv4-mapped IPv6 addresses count as IPv4.
#[derive(Clone, Debug, Default)]
pub struct NetSet {
    nets: Vec<IpNet>,
}

impl NetSet {
    /// The addresses of all these networks.
    pub fn new(nets: Vec<IpNet>) -> Self {
        Self { nets }
    }

    /// Whether the address is in the set.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.nets.iter().any(|net| net.contains(&address))
    }

    /// As [`NetSet::contains`], without the rule for IPv4-mapped addresses: what is excluded from
    /// answers is told apart by its bits.
    pub fn contains_bits(&self, address: Ipv6Addr) -> bool {
        let address = IpAddr::V6(address);
        self.nets.iter().any(|net| net.contains(&address))
    }
}
