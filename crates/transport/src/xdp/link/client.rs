//! A link that queries one server.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use super::{
    BATCH, Client, FOR_EACH, LOOK_PORTS, LOOKS_MAX, MonotonicClock, Options, XdpLink, arrival,
    flush, push,
};
use crate::clock::{Clock, Nanos, SECOND};
use crate::socket::{OpenError, Segmentation, UdpLink, unspecified};
use crate::xdp::frame::{self, Flow};
use crate::xdp::hops::fits;
use crate::xdp::netlink::{Netlink, Route};
use crate::xdp::program::XdpError;
use crate::xdp::queue;
use crate::xdp::steering::{Role, Steering};
use crate::{Datagram, Link, LinkError};

/// Destination port (discard, RFC 863) of the datagram that makes the kernel resolve a neighbour.
const DISCARD_PORT: u16 = 9;

/// How long a link may be down after a program was attached: a card negotiates for two to three seconds.
const CARRIER_NS: Nanos = 10 * SECOND;

/// Timeout of neighbour resolution.
const NEIGHBOUR_NS: Nanos = 2 * SECOND;
const NEIGHBOUR_RETRY_NS: Nanos = 5_000_000;

impl XdpLink {
    /// Opens `ports` source ports to `server`, and AF_XDP sockets at the interface that leads there. Their source
    /// addresses are those of `local`, in turn; without any the routing table selects them.
    ///
    /// # Errors
    ///
    /// The ports are not available; no Ethernet interface leads to the server, or it carries the default route and
    /// `options` does not force it; the MAC address of the next hop is unknown; the kernel or the process's privileges
    /// are insufficient; another program uses the queues.
    pub fn client(
        server: SocketAddr,
        local: &[IpAddr],
        ports: usize,
        options: &Options,
    ) -> Result<Self, OpenError> {
        // Datagrams from the kernel arrive one by one, like those from the rings.
        let slow = UdpLink::client(server, local, ports, Segmentation::Off)?;
        let own: Option<Vec<SocketAddr>> = (0..slow.ports()).map(|i| slow.local_addr(i)).collect();
        let own = own.unwrap_or_default();
        let source = own.first().map_or(server.ip(), SocketAddr::ip);
        let asked = |what: &'static str| {
            move |reason| XdpError::Facts {
                what: what.into(),
                reason,
            }
        };
        let mut netlink = Netlink::open().map_err(asked("routes and neighbours"))?;
        let route = netlink.route(server, source);
        let route = route.map_err(asked("the route"))?;
        let interface = netlink.interface(route.interface);
        let interface = Arc::new(interface.map_err(asked("the interface"))?);
        let (true, Some(own_mac)) = (interface.is_usable, interface.mac) else {
            return Err(XdpError::Unusable {
                interface: interface.name.clone(),
                reason: "it is not an Ethernet interface that is up",
            }
            .into());
        };
        let steering = Steering::of(&interface, options.mode, options.force)?;
        let queues = queue::open(&interface, &steering, options.part)?;
        await_carrier(&mut netlink, route.interface);
        let mac = neighbour(&mut netlink, route, server)?;
        let numbers: Vec<u16> = own.iter().map(SocketAddr::port).collect();
        let wanted = steering.want(Role::Asks, &[server], &numbers, options.part)?;
        let mut link = Self::over(slow, queues, vec![wanted]);
        link.client = Some(client(server, &own, [mac, own_mac]));
        Ok(link)
    }

    pub(super) fn send_queries(
        &mut self,
        port: usize,
        n: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        let Some(client) = &self.client else {
            return self.slow.send(port, n, fill);
        };
        let flow = client.flows[port];
        let count = self.queues.len();
        let queue = &mut self.queues[port % count];
        let mut sent = 0;
        while sent < n {
            let len = fill(sent, &mut self.scratch).min(self.scratch.len());
            let payload = &self.scratch[..len];
            if fits(&flow, len, &queue.interface) {
                if !push(queue, &flow, payload) {
                    break;
                }
            } else {
                let taken = self.slow.send(port, 1, |_, frame| {
                    frame[..len].copy_from_slice(payload);
                    len
                })?;
                if taken == 0 {
                    break;
                }
            }
            sent += 1;
        }
        // The driver does not report which frames it drops.
        let dropped = flush(queue)?;
        self.send_drops += dropped;
        Ok(sent - usize::try_from(dropped).unwrap_or(sent).min(sent))
    }

    pub(super) fn receive_replies(
        &mut self,
        max: usize,
        mut each: impl FnMut(Datagram<'_>),
    ) -> Result<usize, LinkError> {
        let max = max.max(1).saturating_mul(FOR_EACH);
        let mut total = 0;
        let now = MonotonicClock.now();
        if let Some(client) = &self.client {
            for _ in 0..self.queues.len() {
                let queue = &mut self.queues[self.cursor];
                let asked = (max - total).min(2 * BATCH);
                let (misdirected, is_veth) = (&mut self.misdirected, queue.interface.is_veth);
                let got = queue.arrivals.take(asked, |octets, stamp| {
                    // Damaged frames are dropped, as by a socket.
                    let Some((flow, payload)) = frame::parse(octets, is_veth) else {
                        return;
                    };
                    match client.indices[usize::from(flow.ports[1])].checked_sub(1) {
                        Some(port) => each(Datagram::new(
                            port.into(),
                            client.server,
                            payload,
                            arrival(stamp, now),
                        )),
                        None => *misdirected += 1,
                    }
                });
                total += got;
                if got == asked {
                    return Ok(total);
                }
                self.cursor = (self.cursor + 1) % self.queues.len();
            }
        }
        // The rings were empty a moment ago.
        if self.is_slow_due() {
            let ports = LOOK_PORTS.max(self.ports().div_ceil(LOOKS_MAX));
            total += self.slow.receive(ports, each)?;
        }
        Ok(total)
    }
}

fn client(server: SocketAddr, own: &[SocketAddr], macs: [[u8; 6]; 2]) -> Client {
    let mut indices = vec![0; 1 << 16].into_boxed_slice();
    let mut flows = Vec::with_capacity(own.len());
    for (i, local) in own.iter().enumerate() {
        indices[usize::from(local.port())] = u16::try_from(i + 1).unwrap_or(0);
        let addresses = frame::addresses(local.ip(), server.ip());
        flows.extend(addresses.map(|addresses| Flow {
            macs,
            addresses,
            ports: [local.port(), server.port()],
        }));
    }
    Client {
        server,
        flows,
        indices,
    }
}

/// Waits for a link that the driver took down to attach the program, as igb does. If it stays down, no neighbour is found.
fn await_carrier(netlink: &mut Netlink, interface: u32) {
    let end = MonotonicClock.now() + CARRIER_NS;
    let mut is_down = || netlink.interface(interface).is_ok_and(|i| !i.has_carrier);
    while MonotonicClock.now() < end && is_down() {
        MonotonicClock.sleep(NEIGHBOUR_RETRY_NS);
    }
}

/// The MAC address of the next hop to the server; the kernel resolves it if necessary.
fn neighbour(netlink: &mut Netlink, route: Route, server: SocketAddr) -> Result<[u8; 6], XdpError> {
    let unknown = |reason: io::Error| XdpError::Neighbour {
        ip: route.next,
        reason,
    };
    let mut known = || {
        let mac = netlink.neighbour(route.interface, route.next);
        mac.map_err(unknown)
    };
    if let Some(mac) = known()? {
        return Ok(mac);
    }
    // From an address of the interface: the kernel does not resolve neighbours for an address that is local only by a
    // route.
    let socket = UdpSocket::bind((unspecified(server), 0)).map_err(unknown)?;
    let mut discarded = server;
    discarded.set_port(DISCARD_PORT);
    let end = MonotonicClock.now() + NEIGHBOUR_NS;
    let mut tried = 0_u32;
    while MonotonicClock.now() < end {
        // Repeated from time to time: the kernel gives up after three requests.
        if tried.is_multiple_of(100) {
            // May report an earlier failure; only the neighbour entry matters.
            let _ = socket.send_to(&[], discarded);
        }
        tried += 1;
        MonotonicClock.sleep(NEIGHBOUR_RETRY_NS);
        if let Some(mac) = known()? {
            return Ok(mac);
        }
    }
    Err(unknown(io::ErrorKind::TimedOut.into()))
}
