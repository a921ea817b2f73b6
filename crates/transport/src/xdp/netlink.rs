//! Queries interfaces, addresses, routes and neighbours from the kernel (rtnetlink(7)).
//!
//! All over one socket, so that no program and no file system is needed. A process that denies itself new sockets opens
//! it before and uses it later.

mod tags;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt,
};

use crate::address;
pub use tags::{hides_tags, show_tags};

/// Message types of `linux/rtnetlink.h` and `linux/netlink.h`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;
const GET_NEIGHBOUR: u16 = 30;

/// `NLM_F_REQUEST`, and `NLM_F_DUMP` for all objects.
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;

/// Sizes of `struct nlmsghdr`, `ifinfomsg`, `ifaddrmsg`, `rtmsg`, `ndmsg` in octets.
const HEADER: usize = 16;
const LINK: usize = 16;
const ADDRESS: usize = 8;
const ROUTE: usize = 12;
const NEIGHBOUR: usize = 12;

/// Attributes: `IFLA_*`, `IFLA_INFO_KIND`, `IFA_*`, `RTA_*`, `NDA_*`.
const LINK_MAC: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_MASTER: u16 = 10;
const LINK_INFO: u16 = 18;
const LINK_QUEUES: u16 = 32;
const INFO_KIND: u16 = 1;
const ADDRESS_IP: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_BROADCAST: u16 = 4;
const ROUTE_TO: u16 = 1;
const ROUTE_FROM: u16 = 2;
const ROUTE_INTERFACE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_TUNNEL: u16 = 22;
const NEIGHBOUR_IP: u16 = 1;
const NEIGHBOUR_MAC: u16 = 2;

/// Offset of the route type in `struct rtmsg`, and `RTN_LOCAL`.
const ROUTE_TYPE: usize = 7;
const LOCAL: u8 = 2;

/// The bits of an attribute's type that are not flags: nested, network order.
const ATTRIBUTE: u16 = 0x3fff;

/// States of a neighbour with a usable address: `NUD_PERMANENT`, `NUD_NOARP`, `NUD_REACHABLE`, `NUD_PROBE`,
/// `NUD_STALE`, `NUD_DELAY`.
const USABLE: u16 = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08;

/// `IFF_UP`, `IFF_LOOPBACK`, `IFF_LOWER_UP`; `ARPHRD_ETHER`.
const UP: u32 = 1;
const LOOPBACK: u32 = 8;
const LOWER_UP: u32 = 1 << 16;
const ETHERNET: u16 = 1;

/// Timeout for a response of the kernel, which responds immediately.
const PATIENCE: Duration = Duration::from_secs(1);

/// Maximum size of a datagram from the kernel: at most 32 KiB for lists (netlink(7)).
const DATAGRAM_MAX: usize = 1 << 16;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's index of the interface.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Ethernet address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// Index of the bridge, bond or VRF that it belongs to.
    pub master: Option<u32>,
    /// Whether datagrams arrive with the sum of the pseudo header in place of their checksum: both ends of a veth link
    /// are on this machine, which checks nothing between them.
    pub is_veth: bool,
    /// Maximum size of a packet in octets.
    pub mtu: usize,
    /// Maximum number of receive queues; at least 1.
    pub queues: u32,
    /// Whether AF_XDP can be used: the interface is up, is Ethernet and is not the loopback interface.
    pub is_usable: bool,
    /// Its link is up: what is sent now leaves.
    pub has_carrier: bool,
}

/// An address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Index of the interface that has it.
    pub interface: u32,
    /// The address.
    pub ip: IpAddr,
    /// The broadcast address that was assigned with it, if there is one.
    pub broadcast: Option<Ipv4Addr>,
    /// The first and the last address of its IPv4 network, unless that has only one or two addresses.
    pub ends: Option<[Ipv4Addr; 2]>,
}

/// Sources that the kernel refuses, or answers within this host: its own addresses, assigned broadcast addresses, and
/// the last address of each network, which is one for the kernel in any case; before Linux 5.14 the first one was, too.
pub fn no_clients(addresses: &[Address]) -> Vec<IpAddr> {
    let own = addresses.iter().map(|address| address.ip);
    let assigned = addresses.iter().filter_map(|address| address.broadcast);
    let ends = addresses.iter().filter_map(|address| address.ends);
    let broadcast = assigned.chain(ends.flatten());
    own.chain(broadcast.map(IpAddr::V4)).collect()
}

/// The route to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Index of the outgoing interface.
    pub interface: u32,
    /// The next hop: a router, or the destination itself.
    pub next: IpAddr,
}

/// A socket to the kernel, for the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn open() -> io::Result<Self> {
        // Protocol 0 is NETLINK_ROUTE.
        Self::of(None)
    }

    fn of(protocol: Option<Protocol>) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// All interfaces.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        self.ask(GET_LINK, DUMP, &[0; LINK], NEW_LINK, interface)
    }

    /// The interface with this index.
    ///
    /// # Errors
    ///
    /// It does not exist, or the kernel refuses.
    pub fn interface(&mut self, index: u32) -> io::Result<Interface> {
        let mut request = [0; LINK];
        request[4..8].copy_from_slice(&index.to_ne_bytes());
        one(self.ask(GET_LINK, 0, &request, NEW_LINK, interface)?)
    }

    /// All addresses of this host.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn addresses(&mut self) -> io::Result<Vec<Address>> {
        self.ask(GET_ADDRESS, DUMP, &[0; ADDRESS], NEW_ADDRESS, address)
    }

    /// The route from a local address to another address, which for a link-local one is that of its zone.
    ///
    /// # Errors
    ///
    /// There is no route, or it leads through a tunnel; the kernel refuses.
    pub fn route(&mut self, to: SocketAddr, from: IpAddr) -> io::Result<Route> {
        let (ip, zone) = (to.ip(), address::zone(to));
        let (family, bits) = family(ip);
        let mut request = vec![0; ROUTE];
        request[..3].copy_from_slice(&[family, bits, bits]);
        push(&mut request, ROUTE_TO, ip);
        push(&mut request, ROUTE_FROM, from);
        if zone != 0 {
            request.extend(8_u16.to_ne_bytes());
            request.extend(ROUTE_INTERFACE.to_ne_bytes());
            request.extend(zone.to_ne_bytes());
        }
        let path = |body: &[u8]| path(body, ip);
        one(self.ask(GET_ROUTE, 0, &request, NEW_ROUTE, path)?)
    }

    /// Whether this host receives datagrams to this address: an interface has it, or a route of type local covers it.
    pub fn is_local(&mut self, ip: IpAddr) -> bool {
        let (family, bits) = family(ip);
        let mut request = vec![0; ROUTE];
        request[..2].copy_from_slice(&[family, bits]);
        push(&mut request, ROUTE_TO, ip);
        let kind = |body: &[u8]| body.get(ROUTE_TYPE).copied();
        // An error means that there is no route.
        self.ask(GET_ROUTE, 0, &request, NEW_ROUTE, kind)
            .is_ok_and(|kinds| kinds.contains(&LOCAL))
    }

    /// The MAC address of a neighbour; `None` if the kernel does not know it.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn neighbour(&mut self, interface: u32, ip: IpAddr) -> io::Result<Option<[u8; 6]>> {
        let mut request = vec![0; NEIGHBOUR];
        request[0] = family(ip).0;
        request[4..8].copy_from_slice(&interface.to_ne_bytes());
        push(&mut request, NEIGHBOUR_IP, ip);
        match self.ask(GET_NEIGHBOUR, 0, &request, NEW_NEIGHBOUR, mac) {
            Ok(found) => Ok(found.into_iter().next()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sends a request, and reads one response, or all responses of a dump: the results of `read` for those of the
    /// wanted type.
    fn ask<T>(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        wanted: u16,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = Vec::with_capacity(HEADER + body.len());
        let len = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
        request.extend(len.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend((REQUEST | flags).to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend([0; 4]);
        request.extend_from_slice(body);
        rustix::net::send(&self.socket, &request, SendFlags::empty())?;
        let mut found = Vec::new();
        let mut datagram = vec![0; DATAGRAM_MAX];
        loop {
            let (len, _) = rustix::net::recv(&self.socket, &mut datagram[..], RecvFlags::empty())?;
            for (kind, sequence, body) in messages(&datagram[..len]) {
                // The rest of an earlier response that timed out.
                if sequence != self.sequence {
                    continue;
                }
                match kind {
                    DONE => return Ok(found),
                    ERROR => {
                        let code = number(body, 0).map_or(0, u32::cast_signed);
                        return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
                    }
                    kind if kind == wanted => found.extend(read(body)),
                    _ => {}
                }
                if flags & DUMP == 0 {
                    return Ok(found);
                }
            }
        }
    }
}

fn one<T>(found: Vec<T>) -> io::Result<T> {
    let first = found.into_iter().next();
    first.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// `AF_INET` or `AF_INET6`, and the length of its addresses in bits.
fn family(ip: IpAddr) -> (u8, u8) {
    match ip {
        IpAddr::V4(_) => (2, 32),
        IpAddr::V6(_) => (10, 128),
    }
}

/// Appends an attribute.
fn push(request: &mut Vec<u8>, kind: u16, ip: IpAddr) {
    let (len, octets): (u16, Vec<u8>) = match ip {
        IpAddr::V4(ip) => (8, ip.octets().into()),
        IpAddr::V6(ip) => (20, ip.octets().into()),
    };
    request.extend(len.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(octets);
}

/// The messages of a datagram: type, sequence number, and the content after the header.
fn messages(mut rest: &[u8]) -> impl Iterator<Item = (u16, u32, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::try_from(number(rest, 0)?).ok()?;
        let found = (short(rest, 4)?, number(rest, 8)?, rest.get(HEADER..len)?);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(found)
    })
}

/// The attributes: type and value.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(short(rest, 0)?);
        let found = (short(rest, 2)? & ATTRIBUTE, rest.get(4..len)?);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(found)
    })
}

/// The value of an attribute that follows a structure of `after` octets.
fn attribute(body: &[u8], after: usize, wanted: u16) -> Option<&[u8]> {
    let mut all = attributes(body.get(after..)?);
    all.find_map(|(kind, value)| (kind == wanted).then_some(value))
}

/// `struct ifinfomsg`.
fn interface(body: &[u8]) -> Option<Interface> {
    let value = |kind| attribute(body, LINK, kind);
    let figure = |kind| number(value(kind)?, 0);
    let (device, flags) = (short(body, 2)?, number(body, 8)?);
    let mac = value(LINK_MAC).and_then(|octets| octets.try_into().ok());
    let mac = mac.filter(|mac| *mac != [0; 6]);
    let kind = value(LINK_INFO).and_then(|info| attribute(info, 0, INFO_KIND));
    Some(Interface {
        index: number(body, 4)?,
        name: text(value(LINK_NAME)?),
        mac,
        master: figure(LINK_MASTER),
        is_veth: kind.is_some_and(|kind| text(kind) == "veth"),
        mtu: usize::try_from(figure(LINK_MTU)?).ok()?,
        queues: figure(LINK_QUEUES).unwrap_or(1).max(1),
        is_usable: device == ETHERNET && flags & UP != 0 && flags & LOOPBACK == 0 && mac.is_some(),
        has_carrier: flags & LOWER_UP != 0,
    })
}

/// `struct ifaddrmsg`.
fn address(body: &[u8]) -> Option<Address> {
    let value = |kind| attribute(body, ADDRESS, kind).and_then(ip);
    let value4 = |kind| match value(kind) {
        Some(IpAddr::V4(v4)) => Some(v4),
        _ => None,
    };
    // On a point-to-point link the other attribute is the address of the peer, in whose network the host is.
    let own = value(ADDRESS_LOCAL).or_else(|| value(ADDRESS_IP));
    let prefix_len = *body.get(1)?;
    Some(Address {
        interface: number(body, 4)?,
        ip: own?,
        broadcast: value4(ADDRESS_BROADCAST),
        ends: value4(ADDRESS_IP).and_then(|ip| ends(ip, prefix_len)),
    })
}

/// The first and the last address of the network of an address. A network with a longer prefix has no others (RFC 3021).
fn ends(ip: Ipv4Addr, prefix_len: u8) -> Option<[Ipv4Addr; 2]> {
    let hosts = u32::MAX.checked_shr(prefix_len.into())?;
    let bits = [ip.to_bits() & !hosts, ip.to_bits() | hosts];
    (prefix_len < 31).then_some(bits.map(Ipv4Addr::from_bits))
}

/// `struct rtmsg`. An interface and a neighbour do not describe a tunnel (`RTA_ENCAP`).
fn path(body: &[u8], to: IpAddr) -> Option<Route> {
    let value = |kind| attribute(body, ROUTE, kind);
    let is_plain = value(ROUTE_TUNNEL).is_none();
    is_plain.then_some(Route {
        interface: number(value(ROUTE_INTERFACE)?, 0)?,
        next: value(ROUTE_GATEWAY).and_then(ip).unwrap_or(to),
    })
}

/// `struct ndmsg`.
fn mac(body: &[u8]) -> Option<[u8; 6]> {
    let is_usable = short(body, 8)? & USABLE != 0;
    let mac = attribute(body, NEIGHBOUR, NEIGHBOUR_MAC)?.try_into().ok();
    mac.filter(|_| is_usable)
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    let ipv4 = <[u8; 4]>::try_from(value).map(|octets| Ipv4Addr::from(octets).into());
    let ipv6 = || <[u8; 16]>::try_from(value).map(|octets| Ipv6Addr::from(octets).into());
    ipv4.or_else(|_| ipv6()).ok()
}

/// A text that ends with an octet 0.
fn text(value: &[u8]) -> String {
    let value = value.strip_suffix(&[0]).unwrap_or(value);
    String::from_utf8_lossy(value).into_owned()
}

fn short(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*octets.get(at..)?.first_chunk()?))
}

fn number(octets: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*octets.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Responses to `ip route get 2001:db8:2::53`: through a router, and through a tunnel.
    #[test]
    fn route_through_a_router_names_the_router_and_route_through_a_tunnel_is_none() {
        let mut body = vec![10, 128, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0];
        body.extend([8, 0, 4, 0, 7, 0, 0, 0]);
        let router: Ipv6Addr = "2001:db8::1".parse().unwrap();
        push(&mut body, ROUTE_GATEWAY, router.into());
        let to = "2001:db8:2::53".parse().unwrap();
        let expected = Route {
            interface: 7,
            next: router.into(),
        };
        assert_eq!(path(&body, to), Some(expected));
        body.extend([8, 0, 22, 0x80, 0, 0, 0, 0]);
        assert_eq!(path(&body, to), None);
    }

    #[test]
    fn unresolved_neighbour_has_no_address() {
        let neighbour = |state: u8| {
            let mut body = vec![10, 0, 0, 0, 3, 0, 0, 0, state, 0, 0, 0];
            body.extend([10, 0, 2, 0, 2, 0, 0, 0, 0, 9, 0, 0]);
            mac(&body)
        };
        let (incomplete, reachable, failed) = (0x01, 0x02, 0x20);
        assert_eq!(neighbour(incomplete), None);
        assert_eq!(neighbour(failed), None);
        assert_eq!(neighbour(reachable), Some([2, 0, 0, 0, 0, 9]));
    }

    #[test]
    fn truncated_message_is_skipped() {
        let mut octets = 20_u32.to_ne_bytes().to_vec();
        octets.extend([24, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        let both = [octets.clone(), octets[..18].to_vec()].concat();
        let all: Vec<_> = messages(&both).collect();
        assert_eq!(all, [(24, 5, &[1, 2, 3, 4][..])]);
    }

    #[test]
    fn ends_of_networks_are_no_clients() {
        let ip = Ipv4Addr::new(192, 0, 2, 77);
        assert_eq!(
            ends(ip, 0),
            Some([Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST])
        );
        let [first, last] = ends(ip, 30).unwrap();
        assert_eq!(
            [first, last],
            [76, 79].map(|last| Ipv4Addr::new(192, 0, 2, last))
        );
        assert_eq!([31, 32].map(|prefix_len| ends(ip, prefix_len)), [None; 2]);
        let address = Address {
            interface: 1,
            ip: ip.into(),
            broadcast: None,
            ends: Some([first, last]),
        };
        assert_eq!(no_clients(&[address]), [ip, first, last].map(IpAddr::V4));
    }

    #[test]
    fn loopback_interface_has_its_address_and_is_not_usable() {
        let mut netlink = Netlink::open().unwrap();
        // The same socket is used twice.
        for _ in 0..2 {
            let all = netlink.addresses().unwrap();
            let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
            let own = all.iter().find(|address| address.ip == localhost);
            let own = own.expect("127.0.0.1: this test needs a loopback interface that is up");
            assert_eq!(own.broadcast, None);
            let ends = [[127, 0, 0, 0], [127, 255, 255, 255]].map(Ipv4Addr::from);
            assert_eq!(own.ends, Some(ends));
            let lo = netlink.interface(own.interface).unwrap();
            assert_eq!(
                (lo.name.as_str(), lo.is_veth, lo.master),
                ("lo", false, None)
            );
            assert_eq!((lo.mac, lo.is_usable), (None, false));
            assert!(netlink.interfaces().unwrap().contains(&lo));
            let way = netlink.route((own.ip, 0).into(), own.ip).unwrap();
            assert_eq!((way.interface, way.next), (lo.index, own.ip));
            let nobody = "192.0.2.77".parse().unwrap();
            // All of 127.0.0.0/8 is local by a route, but the interface has only one of these addresses.
            let by_route = "127.1.2.3".parse().unwrap();
            assert!(netlink.is_local(own.ip) && netlink.is_local(by_route));
            assert!(!netlink.is_local(nobody));
            assert_eq!(netlink.neighbour(lo.index, nobody).unwrap(), None);
            let unknown = netlink.interface(u32::MAX >> 1).unwrap_err();
            assert_eq!(unknown.raw_os_error(), Some(libc::ENODEV));
        }
    }
}
