//! The way back to a client whose query came by an AF_XDP socket. It belongs to the query: a table by client would let
//! anybody on the link move a response by a frame with the address of that client.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::frame::{self, Addresses, Flow};
use super::netlink::Interface;
use super::queue::Queue;
use crate::relay::Hop;
use crate::{LocalAddr, Origin};

/// The origin of a frame that arrived at queue `at`, of this interface, for the socket with this index.
pub(super) fn origin(
    flow: &Flow,
    (socket, listen): (usize, SocketAddr),
    at: usize,
    interface: u32,
) -> Origin {
    // There are never more sockets or queues than ports, so each index fits.
    let short = |index: usize| u16::try_from(index).unwrap_or(u16::MAX);
    Origin {
        peer: peer(flow, listen, interface),
        local: local(flow, listen, interface),
        socket: short(socket),
        hop: Some(Hop {
            queue: short(at),
            mac: flow.macs[1],
        }),
    }
}

/// The queue and the flow of a response to a query for the socket at `listen`; `None` if the kernel has to carry it: it
/// carried the query, or the response does not fit into a packet.
pub(super) fn back(
    to: &Origin,
    listen: SocketAddr,
    queues: &[Queue],
    len: usize,
) -> Option<(usize, Flow)> {
    let Hop { queue, mac } = to.hop?;
    let at = usize::from(queue);
    let interface = &queues.get(at)?.interface;
    let local = to.local.map_or(listen.ip(), |local| local.ip);
    let flow = Flow {
        macs: [mac, interface.mac?],
        addresses: frame::addresses(local.to_canonical(), to.peer.ip().to_canonical())?,
        ports: [listen.port(), to.peer.port()],
    };
    fits(&flow, len, interface).then_some((at, flow))
}

/// Whether a datagram fits into one packet of the interface.
pub(super) fn fits(flow: &Flow, payload: usize, interface: &Interface) -> bool {
    let ip = match flow.addresses {
        Addresses::V4(_) => 28,
        Addresses::V6(_) => 48,
    };
    ip + payload <= interface.mtu
}

/// The sender of a frame as a socket would report it: IPv4 as a mapped IPv6 address if the socket serves both families.
fn peer(flow: &Flow, listen: SocketAddr, interface: u32) -> SocketAddr {
    match (flow.source(), listen) {
        (SocketAddr::V4(v4), SocketAddr::V6(_)) => {
            SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()
        }
        (SocketAddr::V6(v6), _) if Ipv6Addr::is_unicast_link_local(v6.ip()) => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, interface).into()
        }
        (source, _) => source,
    }
}

/// The destination address of a frame, as a socket that listens at more than one address would report it.
fn local(flow: &Flow, listen: SocketAddr, interface: u32) -> Option<LocalAddr> {
    if !listen.ip().is_unspecified() {
        return None;
    }
    let ip = match (flow.destination().ip(), listen) {
        (IpAddr::V4(v4), SocketAddr::V6(_)) => v4.to_ipv6_mapped().into(),
        (ip, _) => ip,
    };
    let is_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    Some(LocalAddr {
        ip,
        interface: if is_local { interface } else { 0 },
    })
}
