//! Restricts the servers that may be loaded without confirmation to those that are not reached over the public
//! Internet.
//!
//! A search raises its rate until the server loses queries, so a wrong address floods somebody else's server and every
//! network on the way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dns64_transport::address;

use crate::lab::{Blame, LabError};
use crate::machine::Machine;

/// Refuses an address in the public Internet, unless the user `may_load` it, and a link-local one without an interface
/// of this machine.
///
/// Exempt are the ranges that are not routed there: this host, loopback, link-local, private (RFC 1918, RFC 4193),
/// shared (RFC 6598), for benchmarks (RFC 2544, RFC 5180) and for documentation (RFC 5737, RFC 3849, RFC 9637).
/// Addresses that this machine reaches without a router are also exempt: laboratories have public addresses, mainly for
/// IPv6, and the load stays on a link of the user.
///
/// # Errors
///
/// The address is not exempt, or is not complete.
pub fn check(server: SocketAddr, may_load: bool, machine: &Machine) -> Result<(), LabError> {
    address::check(server).map_err(|error| Blame::Request.error(error.to_string()))?;
    let server = server.ip().to_canonical();
    match may_load || is_reserved(server) || is_on_link(server, machine) {
        true => Ok(()),
        false => Err(Blame::Request.error(format!(
            "{server} is a public address: a measurement overloads the server and may overload every network on the way, \
             which is an attack unless all their operators have agreed; measure a server of your own, or give \
             --i-may-load-this-network if they have agreed"
        ))),
    }
}

fn is_reserved(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, ..] = address.octets();
            a == 0
                || address.is_loopback()
                || address.is_link_local()
                || address.is_private()
                || address.is_documentation()
                || (a == 100 && b & 0xc0 == 64)
                || (a == 198 && b & 0xfe == 18)
        }
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            address.is_unspecified()
                || address.is_loopback()
                || address.is_unicast_link_local()
                || address.is_unique_local()
                || (a == 0x2001 && b == 0xdb8)
                || (a == 0x2001 && b == 2 && c == 0)
                || (a == 0x3fff && b & 0xf000 == 0)
        }
    }
}

/// Returns whether a route without a gateway leads to the address.
fn is_on_link(address: IpAddr, machine: &Machine) -> bool {
    let routes = |path| machine.read(path).unwrap_or_default();
    match address {
        IpAddr::V4(address) => {
            let routes = routes("/proc/net/route");
            let mut links = routes.lines().filter_map(link_v4);
            links.any(|(to, mask)| u32::from(address) & mask == u32::from(to))
        }
        IpAddr::V6(address) => {
            let routes = routes("/proc/net/ipv6_route");
            let mut links = routes.lines().filter_map(link_v6);
            links.any(|(to, length)| {
                let mask = u128::MAX << (128 - length);
                u128::from(address) & mask == u128::from(to)
            })
        }
    }
}

/// Parses network and mask of a line of `/proc/net/route`, which has the octets in memory order (proc(5)).
fn link_v4(line: &str) -> Option<(Ipv4Addr, u32)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, to, gateway, flags, _, _, _, mask, ..] = words[..] else {
        return None;
    };
    let hex = |text| u32::from_str_radix(text, 16).ok();
    let (to, mask) = (
        hex(to)?.to_ne_bytes(),
        u32::from_be_bytes(hex(mask)?.to_ne_bytes()),
    );
    let is_link =
        is_link(hex(flags)?) && hex(gateway)? == 0 && mask.leading_ones() >= LENGTH_V4_MIN;
    is_link.then_some((to.into(), mask))
}

/// Parses network and prefix length of a line of `/proc/net/ipv6_route` (net/ipv6/route.c of Linux).
fn link_v6(line: &str) -> Option<(Ipv6Addr, u32)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [to, length, _, _, gateway, _, _, _, flags, _] = words[..] else {
        return None;
    };
    let hex = |text| u128::from_str_radix(text, 16).ok();
    let length = u32::from_str_radix(length, 16).ok()?;
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let is_link = is_link(flags) && hex(gateway)? == 0 && (LENGTH_V6_MIN..=128).contains(&length);
    is_link.then_some((hex(to)?.into(), length))
}

fn is_link(flags: u32) -> bool {
    flags & RTF_UP != 0 && flags & (RTF_GATEWAY | RTF_REJECT) == 0
}

// Linux: include/uapi/linux/route.h.
const RTF_UP: u32 = 1;
const RTF_GATEWAY: u32 = 2;
const RTF_REJECT: u32 = 0x200;

/// Minimum prefix length of a link; shorter prefixes are tunnels to the Internet: 0.0.0.0/0, 0.0.0.0/1.
const LENGTH_V4_MIN: u32 = 8;

/// Minimum prefix length of a link for IPv6; 2000::/3 is a tunnel. Registries assign 32 bits to a provider.
const LENGTH_V6_MIN: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on 192.88.99.0/24 and 2a00:1:2:3::/64, with a router and a tunnel to half of the Internet.
    fn machine() -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/net");
        std::fs::create_dir_all(&folder).unwrap();
        let v4 = |to: [u8; 4], gateway: [u8; 4], flags: &str, mask: [u8; 4]| {
            let [to, gateway, mask] = [to, gateway, mask].map(u32::from_ne_bytes);
            format!("eth0\t{to:08X}\t{gateway:08X}\t{flags}\t0\t0\t0\t{mask:08X}\t0\t0\t0\n")
        };
        let route =
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
                .to_owned()
                + &v4([0; 4], [192, 88, 99, 1], "0003", [0; 4])
                + &v4([0; 4], [0; 4], "0001", [128, 0, 0, 0])
                + &v4([192, 88, 99, 0], [0; 4], "0001", [255, 255, 255, 0])
                + &v4([9, 0, 0, 0], [192, 88, 99, 2], "0003", [255, 0, 0, 0]);
        std::fs::write(folder.join("route"), route).unwrap();
        let v6 = |to: &str, length: u32, gateway: &str, flags: u32| {
            let [to, gateway] =
                [to, gateway].map(|text| u128::from(text.parse::<Ipv6Addr>().unwrap()));
            let none = 0;
            format!(
                "{to:032x} {length:02x} {none:032x} 00 {gateway:032x} 00000100 00000001 00000000 {flags:08x}     eth0\n"
            )
        };
        let route = v6("2a00:1:2:3::", 64, "::", 1)
            + &v6("2a00:1:2:4::", 64, "::", 0x200)
            + &v6("2a00:1:2:5::", 64, "fe80::1", 3)
            + &v6("2000::", 3, "::", 1)
            + &v6("::", 0, "fe80::1", 3);
        std::fs::write(folder.join("ipv6_route"), route).unwrap();
        let machine = Machine::at(root.path());
        (root, machine)
    }

    fn server(address: &str) -> SocketAddr {
        let ip = address.parse().map(|ip| SocketAddr::new(ip, 53));
        ip.unwrap_or_else(|_| format!("[{address}]:53").parse().unwrap())
    }

    #[test]
    fn link_local_address_needs_its_interface_even_if_it_may_be_loaded() {
        let (_root, machine) = machine();
        assert!(check(server("fe80::1"), true, &machine).is_err());
    }

    #[test]
    fn reserved_ranges_and_connected_networks_are_allowed() {
        let (_root, machine) = machine();
        for address in [
            "0.0.0.0",
            "127.0.0.53",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.2.1",
            "198.18.0.2",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "192.88.99.7",
            "::",
            "::1",
            "fe80::1%1",
            "fd00::53",
            "2001:db8::53",
            "2001:2::1",
            "3fff:0:1::1",
            "::ffff:10.0.0.1",
            "2a00:1:2:3::53",
        ] {
            let checked = check(server(address), false, &machine);
            assert!(checked.is_ok(), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_refused_despite_router_or_tunnel() {
        let (_root, machine) = machine();
        for address in [
            "8.8.8.8",
            "9.9.9.9",
            "100.63.255.255",
            "100.128.0.1",
            "172.32.0.1",
            "198.20.0.1",
            "192.88.98.1",
            "2001:4860:4860::8888",
            "2001:2:1::1",
            "3fff:1000::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2a00:1:2:4::1",
            "2a00:1:2:5::1",
        ] {
            let refused = check(server(address), false, &machine);
            assert!(refused.is_err(), "{address}");
            assert!(check(server(address), true, &machine).is_ok(), "{address}");
        }
        let refused = check(server("::ffff:8.8.8.8"), false, &machine).unwrap_err();
        let told = refused.to_string();
        assert!(told.starts_with("8.8.8.8 is a public address: "), "{told}");
        assert!(told.contains("--i-may-load-this-network"), "{told}");
    }
}
