//! The paths to clients whose queries are answered later, taken from the headers of their queries.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::frame::{self, Flow};
use crate::{LocalAddr, Origin};

/// The paths to many clients.
#[derive(Default)]
pub(super) struct Hops(HashMap<IpAddr, Hop>);

#[derive(Clone, Copy)]
struct Hop {
    queue: usize,
    macs: [[u8; 6]; 2],
    vlan: Option<[u8; 2]>,
}

/// Maximum number of clients with a known path; replies to others go through the kernel.
const HOPS_MAX: usize = 65_536;

impl Hops {
    /// Records the path to a client: this queue, with the addresses of the reversed flow.
    pub(super) fn remember(&mut self, client: IpAddr, queue: usize, back: &Flow) {
        if self.0.len() >= HOPS_MAX {
            self.0.clear();
        }
        let hop = Hop {
            queue,
            macs: back.macs,
            vlan: back.vlan,
        };
        self.0.insert(client, hop);
    }

    /// The queue and the flow to a client of the socket at `listen`; `None` for a client whose query did not arrive by
    /// a queue.
    pub(super) fn way(&self, listen: SocketAddr, to: &Origin) -> Option<(usize, Flow)> {
        let hop = self.0.get(&to.peer.ip())?;
        let local = to.local.map_or(listen.ip(), |local| local.ip);
        let flow = Flow {
            macs: hop.macs,
            vlan: hop.vlan,
            addresses: frame::addresses(local.to_canonical(), to.peer.ip().to_canonical())?,
            ports: [listen.port(), to.peer.port()],
        };
        Some((hop.queue, flow))
    }
}

/// The sender of a frame as a socket would report it: IPv4 as a mapped IPv6 address if the socket serves both families.
pub(super) fn peer(flow: &Flow, listen: SocketAddr, interface: u32) -> SocketAddr {
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
pub(super) fn local(flow: &Flow, listen: SocketAddr, interface: u32) -> Option<LocalAddr> {
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
