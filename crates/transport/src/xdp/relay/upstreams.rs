//! The upstream side.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use super::{BATCH, FIRST_LOOK_NS, HELD_MAX, Numbers, Server, Side, TRUST_NS, Way, XdpRelay, side};
use crate::clock::{Clock, MonotonicClock, Nanos};
use crate::relay::{Arrival, Outgoing, UpstreamSide};
use crate::sys::FRAME_BYTES;
use crate::xdp::frame::{self, Flow};
use crate::xdp::hops::fits;
use crate::xdp::netlink::Netlink;
use crate::xdp::queue::Queue;
use crate::xdp::steering::Role;
use crate::{Counters, LinkError};

impl XdpRelay {
    /// Passes the replies of a queue to `each`, at most one batch; returns the number of frames and the number of
    /// replies.
    fn replies_of(&mut self, at: usize, each: &mut impl FnMut(Arrival<'_>)) -> (usize, usize) {
        let (listen, numbers, asking) = (&self.listen, &self.numbers, &self.asking);
        let (queries, counted) = (&mut self.queries, &mut self.counted);
        let no_clients = &self.no_clients;
        let Queue {
            arrivals,
            interface,
            ..
        } = &mut self.queues[at];
        let mut total = 0;
        let frames = arrivals.take(BATCH, |octets, _| {
            // Damaged frames are dropped, as by a socket.
            let Some((flow, payload)) = frame::parse(octets, interface.is_veth) else {
                return;
            };
            match side(listen, numbers, &flow) {
                Side::Upstream(server, port) => {
                    if !asking.get(server).is_some_and(|it| it.sent(&flow, port)) {
                        counted.foreign += 1;
                        counted.foreign_from = counted.foreign_from.or(Some(flow.source()));
                        return;
                    }
                    total += 1;
                    each(Arrival::Reply {
                        server,
                        port,
                        payload,
                    });
                }
                Side::Client(_) if no_clients.contains(&flow.source().ip()) => {}
                Side::Client(_) => {
                    counted.receive_drops += u64::from(!queries.push((at, flow), payload));
                }
                Side::Nobody => counted.receive_drops += 1,
            }
        });
        (frames, total)
    }

    /// The flow from a port to its upstream and the outgoing queue; `None` if the query must go through the kernel.
    fn way_to(&mut self, server: usize, port: usize) -> Option<(usize, Flow)> {
        let Server {
            address,
            way,
            look_at,
            by_kernel,
            ..
        } = *self.asking.get(server)?;
        if by_kernel {
            return None;
        }
        let now = MonotonicClock.now();
        if look_at.is_none_or(|at| now >= at) {
            self.look(server, port, now);
            return None;
        }
        let way = way?;
        let local = self.steer(server, port)?;
        let flow = Flow {
            macs: way.macs,
            addresses: frame::addresses(local.ip(), address.ip())?,
            ports: [local.port(), address.port()],
        };
        // The path from another address may differ.
        (local.ip() == way.from).then_some((way.queue, flow))
    }

    /// Queries the path to an upstream from the kernel. The current query must go through the kernel.
    fn look(&mut self, server: usize, port: usize, now: Nanos) {
        let from = self.udp.upstreams.local_addr(server, port);
        let known = &mut self.asking[server];
        let is_first = known.look_at.is_none();
        known.look_at = Some(now + if is_first { FIRST_LOOK_NS } else { TRUST_NS });
        known.way = from.filter(|_| !is_first).and_then(|from| {
            let (queues, address) = (&self.queues, known.address);
            way(&mut self.netlink, queues, address, from.ip())
        });
    }

    /// The local address of a port whose replies arrive at the rings.
    fn steer(&mut self, server: usize, port: usize) -> Option<SocketAddr> {
        let known = self.asking.get_mut(server)?;
        let place = known.ports.get_mut(port)?;
        if let Some((local, _)) = place {
            return Some(*local);
        }
        let local = self.udp.upstreams.local_addr(server, port)?;
        let wanted = self.steerings.iter().map(|steering| {
            steering.want(Role::Asks, &[known.address], &[local.port()], self.part)
        });
        // If steering fails, the kernel carries the replies.
        let wanted = wanted.collect::<Result<Vec<_>, _>>().ok()?;
        *place = Some((local, wanted));
        self.numbers.set(local, Some((server, port)));
        Some(local)
    }

    /// Stops steering the replies to a port.
    fn forget(&mut self, server: usize, port: usize) {
        let place = self
            .asking
            .get_mut(server)
            .and_then(|it| it.ports.get_mut(port));
        if let Some((local, _)) = place.and_then(Option::take) {
            self.numbers.set(local, None);
        }
    }

    /// Number of frames dropped at full rings.
    pub(super) fn ring_drops(&self) -> Result<u64, LinkError> {
        let mut drops = 0;
        for queue in &self.queues {
            let counted = queue.arrivals.statistics().map_err(|reason| LinkError {
                call: "getsockopt XDP_STATISTICS",
                reason,
            })?;
            drops += counted.dropped + counted.ring_full + counted.invalid_arrivals;
        }
        Ok(drops)
    }
}

impl Server {
    fn new((address, outgoing): &(SocketAddr, Outgoing), ports: usize) -> Self {
        Self {
            address: *address,
            by_kernel: *outgoing != Outgoing::default(),
            way: None,
            look_at: None,
            ports: (0..ports).map(|_| None).collect(),
        }
    }

    /// Whether a frame is from this server and to the address of this port.
    pub(super) fn sent(&self, flow: &Flow, port: usize) -> bool {
        let from = flow.source();
        let local = self.ports.get(port).and_then(Option::as_ref);
        (from.ip(), from.port()) == (self.address.ip(), self.address.port())
            && local.is_some_and(|(local, _)| local.ip() == flow.destination().ip())
    }
}

/// The kernel's path to an upstream, if it leads through one of these queues and the neighbour is known.
fn way(netlink: &mut Netlink, queues: &[Queue], to: SocketAddr, from: IpAddr) -> Option<Way> {
    let route = netlink.route(to, from).ok()?;
    let mut leaving = queues.iter();
    let queue = leaving.position(|queue| queue.interface.index == route.interface)?;
    let own = netlink.interface(route.interface).ok()?.mac?;
    let next = netlink.neighbour(route.interface, route.next).ok()??;
    Some(Way {
        from,
        queue,
        macs: [next, own],
    })
}

impl UpstreamSide for XdpRelay {
    fn set_servers(
        &mut self,
        servers: &[(SocketAddr, Outgoing)],
        ports: usize,
        avoided: &[RangeInclusive<u16>],
    ) {
        self.flush_rings();
        self.replies.clear();
        self.numbers = Numbers::new();
        let new = servers.iter().map(|server| Server::new(server, ports));
        self.asking = new.collect();
        self.udp.upstreams.set_servers(servers, ports, avoided);
    }

    fn receive(&mut self, mut each: impl FnMut(Arrival<'_>)) -> Result<usize, LinkError> {
        let mut total = self.replies.len();
        for (&(server, port), payload) in self.replies.iter() {
            each(Arrival::Reply {
                server,
                port,
                payload,
            });
        }
        self.replies.clear();
        for at in 0..self.queues.len() {
            while self.uses[at].upstreams {
                let (frames, replies) = self.replies_of(at, &mut each);
                total += replies;
                if frames < BATCH || self.queries.len() >= HELD_MAX {
                    break;
                }
            }
        }
        Ok(total + self.udp.upstreams.receive(each)?)
    }

    fn ask(&mut self, server: usize, port: usize, fill: impl FnOnce(&mut [u8]) -> usize) {
        let Some((at, flow)) = self.way_to(server, port) else {
            return self.udp.upstreams.ask(server, port, fill);
        };
        let len = fill(&mut self.scratch);
        let question = &self.scratch[..len.min(FRAME_BYTES)];
        if question.is_empty() {
            self.counted.send_drops += 1;
        } else if fits(&flow, question.len(), &self.queues[at].interface) {
            let write = |frame: &mut [u8]| frame::build(&flow, question, frame).unwrap_or(0);
            let is_pushed = self.queues[at].departures.push(write);
            self.counted.send_drops += u64::from(!is_pushed);
        } else {
            self.udp.upstreams.ask(server, port, |frame| {
                frame[..question.len()].copy_from_slice(question);
                question.len()
            });
        }
    }

    fn close(&mut self, server: usize, port: usize) -> Result<(), LinkError> {
        self.forget(server, port);
        self.udp.upstreams.close(server, port)
    }

    fn flush(&mut self) {
        self.flush_rings();
        self.udp.upstreams.flush();
    }

    /// Losses of the rings are counted on the client side.
    fn counters(&mut self) -> Result<Counters, LinkError> {
        let mut counters = self.udp.upstreams.counters()?;
        counters.foreign += self.counted.foreign;
        counters.foreign_from = counters.foreign_from.or(self.counted.foreign_from);
        Ok(counters)
    }
}
