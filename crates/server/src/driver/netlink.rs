//! Interfaces and addresses of this host, asked of the kernel over rtnetlink(7).
//!
//! The socket is opened before the sandbox closes and asked again while the server runs.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mac: Option<[u8; 6]>,
    /// Its kind, such as `veth`; empty for hardware.
    pub(super) kind: String,
}

/// An address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) index: u32,
    pub(super) address: IpAddr,
    pub(super) broadcast: Option<Ipv4Addr>,
}

/// Longest time that the kernel takes to answer: it does so at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// Octets of a datagram of the kernel: at most 32 KiB for lists (netlink(7)).
const DATAGRAM_MAX: usize = 1 << 16;

/// Numbers of `linux/netlink.h`, `linux/rtnetlink.h`, `linux/if_link.h` and `linux/if_addr.h`.
const REQUEST_LIST: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const LINK_MAC: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_BROADCAST: u16 = 4;

/// Lengths of `struct nlmsghdr`, `struct ifinfomsg`, `struct ifaddrmsg`.
const HEADER: usize = 16;
const LINK: usize = 16;
const ADDRESS_HEADER: usize = 8;

/// Bits of an attribute's type that say something else: nested, network order.
const TYPE: u16 = 0x3fff;

/// A socket to the kernel, for the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens one.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub(super) fn open() -> io::Result<Self> {
        // Protocol 0 is NETLINK_ROUTE.
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
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
    /// What the kernel says.
    pub(super) fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        let mut found = Vec::new();
        self.list(GET_LINK, |kind, body| {
            if kind == NEW_LINK {
                found.extend(interface(body));
            }
        })?;
        Ok(found)
    }

    /// All addresses.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub(super) fn addresses(&mut self) -> io::Result<Vec<Address>> {
        let mut found = Vec::new();
        self.list(GET_ADDRESS, |kind, body| {
            if kind == NEW_ADDRESS {
                found.extend(address(body));
            }
        })?;
        Ok(found)
    }

    /// Asks for a list and hands over each message of it.
    fn list(&mut self, request: u16, mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut octets = Vec::with_capacity(HEADER + LINK);
        // The header, and one of all families and interfaces.
        let len: u32 = 32;
        octets.extend(len.to_ne_bytes());
        octets.extend(request.to_ne_bytes());
        octets.extend(REQUEST_LIST.to_ne_bytes());
        octets.extend(self.sequence.to_ne_bytes());
        octets.resize(HEADER + LINK, 0);
        rustix::net::send(&self.socket, &octets, SendFlags::empty())?;
        let mut datagram = vec![0; DATAGRAM_MAX];
        loop {
            let (_, len) = rustix::net::recv(&self.socket, &mut datagram[..], RecvFlags::empty())?;
            let datagram = datagram.get(..len).unwrap_or(&datagram);
            for (kind, sequence, body) in messages(datagram) {
                match kind {
                    // What is left of an earlier list that was given up.
                    _ if sequence != self.sequence => {}
                    DONE => return Ok(()),
                    ERROR => {
                        let code = number(body, 0).map(|code| code.cast_signed().wrapping_neg());
                        return Err(io::Error::from_raw_os_error(code.unwrap_or_default()));
                    }
                    _ => each(kind, body),
                }
            }
        }
    }
}

/// The messages of a datagram: type, sequence, and what is behind the header.
fn messages(mut rest: &[u8]) -> impl Iterator<Item = (u16, u32, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::try_from(number(rest, 0)?).ok()?;
        let body = rest.get(HEADER..len)?;
        let found = (short(rest, 4)?, number(rest, 8)?, body);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(found)
    })
}

/// Attributes: type and value.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(short(rest, 0)?);
        let found = (short(rest, 2)? & TYPE, rest.get(4..len)?);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(found)
    })
}

fn interface(body: &[u8]) -> Option<Interface> {
    let mut found = Interface {
        index: number(body, 4)?,
        name: String::new(),
        mac: None,
        kind: String::new(),
    };
    for (kind, value) in attributes(body.get(LINK..)?) {
        match kind {
            LINK_MAC => found.mac = value.try_into().ok(),
            LINK_NAME => found.name = text(value),
            LINK_INFO => {
                let mut info = attributes(value);
                let kind = info.find(|(kind, _)| *kind == INFO_KIND);
                found.kind = kind.map(|(_, value)| text(value)).unwrap_or_default();
            }
            _ => {}
        }
    }
    Some(found)
}

fn address(body: &[u8]) -> Option<Address> {
    let index = number(body, 4)?;
    let (mut own, mut local, mut broadcast) = (None, None, None);
    for (kind, value) in attributes(body.get(ADDRESS_HEADER..)?) {
        match kind {
            ADDRESS => own = ip(value),
            ADDRESS_LOCAL => local = ip(value),
            ADDRESS_BROADCAST => {
                broadcast = <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from);
            }
            _ => {}
        }
    }
    // On a point-to-point link the other one is that of the peer.
    Some(Address {
        index,
        address: local.or(own)?,
        broadcast,
    })
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    let ipv4 = <[u8; 4]>::try_from(value).map(|octets| Ipv4Addr::from(octets).into());
    let ipv6 = || <[u8; 16]>::try_from(value).map(|octets| Ipv6Addr::from(octets).into());
    ipv4.or_else(|_| ipv6()).ok()
}

/// A text, which ends with an octet 0.
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

    #[test]
    fn loopback_has_its_name_and_addresses() {
        let mut netlink = Netlink::open().unwrap();
        for _ in 0..2 {
            let interfaces = netlink.interfaces().unwrap();
            let loopback = interfaces.iter().find(|found| found.name == "lo").unwrap();
            assert_eq!((loopback.mac, loopback.kind.as_str()), (Some([0; 6]), ""));
            let addresses = netlink.addresses().unwrap();
            let localhost = Ipv4Addr::LOCALHOST;
            let own = addresses.iter().find(|found| found.address == localhost);
            // A namespace in which it is down has none.
            assert!(own.is_none_or(|own| own.index == loopback.index && own.broadcast.is_none()));
        }
    }
}
