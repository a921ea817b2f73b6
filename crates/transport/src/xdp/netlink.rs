//! Routes, neighbours, interfaces and addresses, asked from the kernel (rtnetlink(7)).
//!
//! Over a socket, so that no program and no file system is needed: what counts is the network namespace of the thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Messages of `linux/rtnetlink.h` and `linux/netlink.h`.
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

/// `NLM_F_REQUEST`, and `NLM_F_DUMP`: all there are.
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;

const HEADER_BYTES: usize = 16;

/// States of a neighbour whose address can be used: `NUD_PERMANENT`, `NUD_NOARP`, `NUD_REACHABLE`, `NUD_PROBE`,
/// `NUD_STALE`, `NUD_DELAY`.
const USABLE: u16 = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08;

/// `IFF_UP`, `IFF_LOOPBACK`; `ARPHRD_ETHER`.
const UP: u32 = 1;
const LOOPBACK: u32 = 8;
const ETHERNET: u16 = 1;

/// A local address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) interface: u32,
    pub(super) ip: IpAddr,
}

/// An Ethernet interface, or one that behaves like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mac: [u8; 6],
    /// Octets of a packet.
    pub(super) mtu: usize,
    /// Receive queues that it could have.
    pub(super) queues: u32,
    /// It is up, is Ethernet and is not the loopback interface.
    pub(super) is_usable: bool,
}

/// How an address is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) interface: u32,
    /// Who takes the packets: a router, or the destination itself.
    pub(super) next: IpAddr,
}

/// All local addresses of the calling thread's network namespace.
pub(super) fn addresses() -> io::Result<Vec<Address>> {
    let replies = ask(GET_ADDRESS, DUMP, &[0; 8])?;
    Ok(replies.iter().filter_map(address).collect())
}

/// The interface of this number.
pub(super) fn interface(index: u32) -> io::Result<Interface> {
    let mut request = [0; 16];
    request[4..8].copy_from_slice(&index.to_ne_bytes());
    let replies = ask(GET_LINK, 0, &request)?;
    let found = replies.iter().find_map(link);
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The way from a local address to another.
pub(super) fn route(to: IpAddr, from: IpAddr) -> io::Result<Route> {
    let (family, bits) = family(to);
    let mut request = vec![family, bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    attribute(&mut request, 1, to);
    attribute(&mut request, 2, from);
    let replies = ask(GET_ROUTE, 0, &request)?;
    let found = replies.iter().find_map(|reply| path(reply, to));
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The MAC address of a neighbour, if the kernel knows it.
pub(super) fn neighbour(interface: u32, ip: IpAddr) -> io::Result<Option<[u8; 6]>> {
    let mut request = vec![family(ip).0, 0, 0, 0];
    request.extend(interface.to_ne_bytes());
    request.extend([0; 4]);
    attribute(&mut request, 1, ip);
    match ask(GET_NEIGHBOUR, 0, &request) {
        Ok(replies) => Ok(replies.iter().find_map(mac)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// `AF_INET` or `AF_INET6`, and the length of its addresses in bits.
fn family(ip: IpAddr) -> (u8, u8) {
    match ip {
        IpAddr::V4(_) => (2, 32),
        IpAddr::V6(_) => (10, 128),
    }
}

fn attribute(request: &mut Vec<u8>, kind: u16, ip: IpAddr) {
    let octets = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most 16 octets and a header of 4"
    )]
    let bytes = (octets.len() + 4) as u16;
    request.extend(bytes.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(octets);
}

/// A message: its type, and what follows its header.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    kind: u16,
    body: Vec<u8>,
}

fn ask(kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Message>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // `NETLINK_ROUTE` is number 0.
        None,
    )?;
    let mut request = Vec::with_capacity(HEADER_BYTES + body.len());
    let bytes = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
    request.extend(bytes.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend((REQUEST | flags).to_ne_bytes());
    request.extend([0; 8]);
    request.extend_from_slice(body);
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    answers(&socket, flags & DUMP != 0)
}

/// Reads one answer, or all there are of a dump.
fn answers(socket: &OwnedFd, is_dump: bool) -> io::Result<Vec<Message>> {
    let mut messages = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (got, _) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty())?;
        for message in split(&buffer[..got]) {
            match message.kind {
                DONE => return Ok(messages),
                ERROR => {
                    let code = message
                        .body
                        .first_chunk()
                        .map_or(0, |c| i32::from_ne_bytes(*c));
                    return match code {
                        0 => Ok(messages),
                        code => Err(io::Error::from_raw_os_error(-code)),
                    };
                }
                _ => messages.push(message),
            }
        }
        if !is_dump {
            return Ok(messages);
        }
    }
}

/// The messages of a datagram.
fn split(mut octets: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some(header) = octets.first_chunk::<HEADER_BYTES>() {
        let bytes = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(body) = octets.get(HEADER_BYTES..bytes) else {
            break;
        };
        messages.push(Message {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            body: body.to_vec(),
        });
        octets = octets.get(bytes.next_multiple_of(4)..).unwrap_or_default();
    }
    messages
}

impl Message {
    /// The value of an attribute behind a structure of so many octets.
    fn attribute(&self, after: usize, wanted: u16) -> Option<&[u8]> {
        let mut octets = self.body.get(after..)?;
        while let Some(header) = octets.first_chunk::<4>() {
            let bytes = usize::from(u16::from_ne_bytes([header[0], header[1]]));
            let kind = u16::from_ne_bytes([header[2], header[3]]);
            let value = octets.get(4..bytes)?;
            if kind == wanted {
                return Some(value);
            }
            octets = octets.get(bytes.next_multiple_of(4)..).unwrap_or_default();
        }
        None
    }

    fn word(&self, at: usize) -> Option<u32> {
        number(self.body.get(at..)?)
    }

    fn ip(&self, after: usize, kind: u16) -> Option<IpAddr> {
        let octets = self.attribute(after, kind)?;
        let v4 = <[u8; 4]>::try_from(octets).map(|o| Ipv4Addr::from(o).into());
        v4.or_else(|_| <[u8; 16]>::try_from(octets).map(|o| Ipv6Addr::from(o).into()))
            .ok()
    }
}

fn number(octets: &[u8]) -> Option<u32> {
    octets.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

/// `struct ifaddrmsg`; `IFA_LOCAL` before `IFA_ADDRESS`, which is the other end's where there is one.
fn address(message: &Message) -> Option<Address> {
    const AFTER: usize = 8;
    let ip = message.ip(AFTER, 2).or_else(|| message.ip(AFTER, 1));
    (message.kind == NEW_ADDRESS).then_some(Address {
        interface: message.word(4)?,
        ip: ip?,
    })
}

/// `struct ifinfomsg`; `IFLA_ADDRESS`, `IFLA_IFNAME`, `IFLA_MTU`, `IFLA_NUM_RX_QUEUES`.
fn link(message: &Message) -> Option<Interface> {
    const AFTER: usize = 16;
    if message.kind != NEW_LINK {
        return None;
    }
    let kind = u16::from_ne_bytes(*message.body.get(2..)?.first_chunk()?);
    let flags = message.word(8)?;
    let name = message
        .attribute(AFTER, 3)?
        .split(|octet| *octet == 0)
        .next()?;
    let mac = message.attribute(AFTER, 1).and_then(|o| o.try_into().ok());
    let queues = message.attribute(AFTER, 32).and_then(number);
    Some(Interface {
        index: message.word(4)?,
        name: String::from_utf8_lossy(name).into_owned(),
        mac: mac.unwrap_or_default(),
        mtu: message.attribute(AFTER, 4).and_then(number)? as usize,
        queues: queues.unwrap_or(1).max(1),
        is_usable: kind == ETHERNET && flags & UP != 0 && flags & LOOPBACK == 0 && mac.is_some(),
    })
}

/// `struct rtmsg`; `RTA_OIF`, `RTA_GATEWAY`.
fn path(message: &Message, to: IpAddr) -> Option<Route> {
    const AFTER: usize = 12;
    (message.kind == NEW_ROUTE).then_some(Route {
        interface: message.attribute(AFTER, 4).and_then(number)?,
        next: message.ip(AFTER, 5).unwrap_or(to),
    })
}

/// `struct ndmsg`; `NDA_LLADDR`.
fn mac(message: &Message) -> Option<[u8; 6]> {
    const AFTER: usize = 12;
    let state = u16::from_ne_bytes(*message.body.get(8..)?.first_chunk()?);
    let is_usable = message.kind == NEW_NEIGHBOUR && state & USABLE != 0;
    let mac = message.attribute(AFTER, 2)?.try_into().ok();
    mac.filter(|_| is_usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to `ip route get 2001:db8:2::53` by way of a router.
    #[test]
    fn a_route_by_way_of_a_router_names_the_router() {
        let mut body = vec![10, 128, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0];
        body.extend([8, 0, 4, 0, 7, 0, 0, 0]);
        let router: Ipv6Addr = "2001:db8::1".parse().unwrap();
        attribute(&mut body, 5, router.into());
        let message = Message {
            kind: NEW_ROUTE,
            body,
        };
        let to = "2001:db8:2::53".parse().unwrap();
        let expected = Route {
            interface: 7,
            next: router.into(),
        };
        assert_eq!(path(&message, to), Some(expected));
    }

    #[test]
    fn a_neighbour_that_has_not_answered_has_no_address() {
        let neighbour = |state: u8| {
            let mut body = vec![10, 0, 0, 0, 3, 0, 0, 0, state, 0, 0, 0];
            body.extend([10, 0, 2, 0, 2, 0, 0, 0, 0, 9, 0, 0]);
            Message {
                kind: NEW_NEIGHBOUR,
                body,
            }
        };
        let (incomplete, reachable, failed) = (0x01, 0x02, 0x20);
        assert_eq!(mac(&neighbour(incomplete)), None);
        assert_eq!(mac(&neighbour(failed)), None);
        assert_eq!(mac(&neighbour(reachable)), Some([2, 0, 0, 0, 0, 9]));
    }

    #[test]
    fn a_message_that_is_cut_short_is_left_out() {
        let mut octets = 20_u32.to_ne_bytes().to_vec();
        octets.extend([24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        let whole = Message {
            kind: 24,
            body: vec![1, 2, 3, 4],
        };
        let both = [octets.clone(), octets[..18].to_vec()].concat();
        assert_eq!(split(&both), [whole]);
    }

    #[test]
    fn the_loopback_interface_has_its_address_and_is_not_usable() {
        let all = addresses().unwrap();
        let local = all
            .iter()
            .find(|a| a.ip == IpAddr::from(Ipv4Addr::LOCALHOST));
        let Some(local) = local else {
            // A namespace whose loopback interface is down.
            return;
        };
        let found = interface(local.interface).unwrap();
        assert_eq!((found.name.as_str(), found.is_usable), ("lo", false));
        let way = route(local.ip, local.ip).unwrap();
        assert_eq!(way.interface, local.interface);
    }
}
