//! A link that listens.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::{BATCH, Options, Server, XdpLink, arrival, flush, push};
use crate::clock::{Clock, MonotonicClock};
use crate::socket::{OpenError, Segmentation, UdpLink};
use crate::sys::FRAME_BYTES;
use crate::xdp::frame;
use crate::xdp::hops::{self, fits};
use crate::xdp::interface::may_answer;
use crate::xdp::netlink::{Address, Interface, Netlink, no_clients};
use crate::xdp::program::XdpError;
use crate::xdp::queue;
use crate::xdp::steering::{Role, Steering};
use crate::{Datagram, Departure, Link, LinkError, Origin};

impl XdpLink {
    /// Opens a socket that listens at `listen`, and AF_XDP sockets at the interface with this address, or, if it is
    /// unspecified, at all interfaces that have an address and to which programs may be attached. With `share`, several
    /// links may listen at the same address, each with a part of the queues.
    ///
    /// Addresses that an interface gets later are served through the kernel.
    ///
    /// # Errors
    ///
    /// The address is not available; no Ethernet interface has it, or that interface carries the default route and
    /// `options` does not force it; the kernel or the process's privileges are insufficient; another program uses the
    /// queues.
    pub fn server(listen: SocketAddr, share: bool, options: &Options) -> Result<Self, OpenError> {
        let slow = UdpLink::server(listen, share, Segmentation::Off)?;
        let listen = slow.local_addr(0).unwrap_or(listen);
        let unread = |reason| XdpError::Facts {
            what: "the interfaces and addresses of this host".into(),
            reason,
        };
        let mut netlink = Netlink::open().map_err(unread)?;
        let all = netlink.addresses().map_err(unread)?;
        let serving = serving(listen, &all, netlink.interfaces().map_err(unread)?);
        let (mut queues, mut wanted, mut refused) = (Vec::new(), Vec::new(), None);
        for interface in serving {
            let index = interface.index;
            let own = all.iter().filter(|address| address.interface == index);
            let served = own.filter(|address| serves(listen, address.ip));
            let ends: Vec<SocketAddr> = served
                .map(|address| SocketAddr::new(address.ip, listen.port()))
                .collect();
            let steering = may_answer(&interface.name)
                .and_then(|()| Steering::of(&interface, options.mode, options.force));
            match steering {
                Ok(steering) => {
                    queues.extend(queue::open(&Arc::new(interface), &steering, options.part)?);
                    wanted.push(steering.want(
                        Role::Listens,
                        &ends,
                        &[listen.port()],
                        options.part,
                    )?);
                }
                // Unspecified address: skips interfaces that may not be used.
                Err(
                    e @ (XdpError::DefaultRoute { .. }
                    | XdpError::HiddenTags { .. }
                    | XdpError::Subordinate { .. }),
                ) if listen.ip().is_unspecified() => refused = Some(e),
                Err(e) => return Err(e.into()),
            }
        }
        if queues.is_empty() {
            return Err(refused
                .unwrap_or(XdpError::NoInterface { ip: listen.ip() })
                .into());
        }
        let mut link = Self::over(slow, queues, wanted);
        link.server = Some(Server {
            listen,
            no_clients: no_clients(&all),
        });
        Ok(link)
    }

    pub(super) fn answer_queries(
        &mut self,
        max: usize,
        mut answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        self.departures.clear();
        for _ in 0..self.queues.len() {
            let taken = self.answer_queue(max.clamp(1, BATCH), &mut answer)?;
            self.cursor = (self.cursor + 1) % self.queues.len();
            if taken > 0 {
                return Ok(taken);
            }
        }
        if !self.is_slow_due() {
            return Ok(0);
        }
        let taken = self.slow.answer(max, answer)?;
        self.departures.extend_from_slice(self.slow.departures());
        if taken > 0 {
            // There may be more datagrams.
            self.looked = 0;
        }
        Ok(taken)
    }

    /// Replies to the waiting datagrams of the queue at the cursor.
    fn answer_queue(
        &mut self,
        max: usize,
        answer: &mut impl FnMut(Datagram<'_>, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        let Some(server) = &mut self.server else {
            return Ok(0);
        };
        let queue = &mut self.queues[self.cursor];
        let (arrivals, departures) = (&mut queue.arrivals, &mut queue.departures);
        let (interface, now, cursor) = (&queue.interface, MonotonicClock.now(), self.cursor);
        let (mut waiting, mut dropped) = (0, 0);
        let noted = &mut self.departures;
        let mut too_long: Vec<(Origin, Box<[u8]>)> = Vec::new();
        let taken = arrivals.take(max, |octets, stamp| {
            // Damaged frames are dropped, as by a socket.
            let Some((flow, payload)) = frame::parse(octets, interface.is_veth) else {
                return;
            };
            if server.no_clients.contains(&flow.source().ip()) {
                return;
            }
            let origin = hops::origin(&flow, (0, server.listen), cursor, interface.index);
            let datagram = Datagram {
                port: 0,
                peer: origin.peer,
                payload,
                at: arrival(stamp, now),
                local: origin.local,
                hop: origin.hop,
            };
            let len = answer(datagram, &mut self.scratch).min(FRAME_BYTES);
            if len == 0 {
                return;
            }
            let back = flow.reversed();
            if fits(&back, len, interface) {
                let reply = &self.scratch[..len];
                let write = |frame: &mut [u8]| frame::build(&back, reply, frame).unwrap_or(0);
                waiting += 1;
                if !departures.push(write) {
                    dropped += 1;
                }
            } else {
                // It is sent last, but recorded in the order of writing.
                let at = MonotonicClock.now();
                let before = [waiting, 1].into_iter().filter(|replies| *replies > 0);
                noted.extend(before.map(|replies| Departure { replies, at }));
                waiting = 0;
                too_long.push((origin, self.scratch[..len].into()));
            }
        });
        self.send_drops += dropped;
        self.depart(cursor, waiting)?;
        if !too_long.is_empty() {
            self.send_drops += flush(&mut self.queues[cursor])?;
        }
        for (to, reply) in too_long {
            self.by_the_kernel(to, &reply)?;
        }
        Ok(taken)
    }

    pub(super) fn reply_later(
        &mut self,
        mut next: impl FnMut(&mut [u8]) -> Option<(Origin, usize)>,
    ) -> Result<usize, LinkError> {
        self.departures.clear();
        let (mut replies, mut waiting) = (0, 0);
        // All waiting replies are at this queue.
        let mut at = 0;
        while let Some((to, len)) = next(&mut self.scratch) {
            let len = len.min(FRAME_BYTES);
            replies += 1;
            let way = self
                .server
                .as_ref()
                .and_then(|server| hops::back(&to, server.listen, &self.queues, len));
            let Some((queue, flow)) = way else {
                self.depart(at, waiting)?;
                waiting = 0;
                let reply: Box<[u8]> = self.scratch[..len].into();
                self.by_the_kernel(to, &reply)?;
                self.departures.extend_from_slice(self.slow.departures());
                continue;
            };
            if waiting == BATCH || (waiting > 0 && queue != at) {
                self.depart(at, waiting)?;
                waiting = 0;
            }
            at = queue;
            waiting += 1;
            if !push(&mut self.queues[queue], &flow, &self.scratch[..len]) {
                self.send_drops += 1;
            }
        }
        self.depart(at, waiting)?;
        Ok(replies)
    }

    /// Sends `replies` replies and records the time.
    fn depart(&mut self, queue: usize, replies: usize) -> Result<(), LinkError> {
        if replies > 0 {
            self.departures.push(Departure {
                replies,
                at: MonotonicClock.now(),
            });
            self.send_drops += flush(&mut self.queues[queue])?;
        }
        Ok(())
    }

    /// Sends a reply by the ordinary socket, which can fragment it and resolve neighbours.
    fn by_the_kernel(&mut self, to: Origin, reply: &[u8]) -> Result<(), LinkError> {
        let mut left = Some(to);
        self.slow.reply(|frame| {
            let to = left.take()?;
            frame[..reply.len()].copy_from_slice(reply);
            Some((to, reply.len()))
        })?;
        Ok(())
    }
}

/// Whether a socket at `listen` receives datagrams to a local address.
fn serves(listen: SocketAddr, ip: IpAddr) -> bool {
    match listen.ip() {
        IpAddr::V4(any) if any.is_unspecified() => ip.is_ipv4(),
        // Such sockets serve both families, unless the system is configured otherwise.
        IpAddr::V6(any) if any.is_unspecified() => true,
        only => only == ip,
    }
}

/// The interfaces that have an address served by a socket at `listen` and that support AF_XDP.
fn serving(listen: SocketAddr, all: &[Address], mut interfaces: Vec<Interface>) -> Vec<Interface> {
    interfaces.retain(|interface| {
        let mut own = all.iter().filter(|it| it.interface == interface.index);
        interface.is_usable && own.any(|address| serves(listen, address.ip))
    });
    interfaces.sort_by_key(|interface| interface.index);
    interfaces
}
