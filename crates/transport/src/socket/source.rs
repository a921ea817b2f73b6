//! Source addresses that the user specified for a client.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::sockopt;

use super::{OpenError, bind_to, option};
use crate::xdp::netlink::Netlink;

/// Refuses an address whose datagrams this host would not take in. A socket bound to it freely (`IP_FREEBIND`) would send
/// from it and never see a reply.
///
/// # Errors
///
/// The first such address.
pub fn check(local: &[IpAddr]) -> Result<(), OpenError> {
    if local.is_empty() {
        return Ok(());
    }
    let mut netlink = option("socket (rtnetlink)", Netlink::open())?;
    // One check for all ports of an address.
    let local: BTreeSet<IpAddr> = local.iter().copied().collect();
    match local.into_iter().find(|ip| !netlink.is_local(*ip)) {
        Some(address) => Err(OpenError::NotLocal { address }),
        None => Ok(()),
    }
}

/// Binds a socket, even to an address that no interface has: a route of type local makes whole prefixes local, but IPv6
/// sockets cannot be bound by the route alone (`IP_FREEBIND`, ip(7)).
pub(crate) fn bind_freely(socket: &OwnedFd, address: SocketAddr) -> Result<(), OpenError> {
    option("IP_FREEBIND", freely(socket, address))?;
    bind_to(socket, address)
}

/// Lets a socket of the family of `address` be bound to any address.
///
/// # Errors
///
/// An error of the kernel.
pub fn freely(socket: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(socket, true)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(socket, true)?,
    }
    Ok(())
}
