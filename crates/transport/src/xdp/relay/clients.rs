//! The client side.

use super::{BATCH, Held, Side, XdpRelay, side};
use crate::relay::ClientSide;
use crate::sys::FRAME_BYTES;
use crate::xdp::frame;
use crate::xdp::hops::{self, fits};
use crate::xdp::queue::Queue;
use crate::{Counters, LinkError, Origin};

impl XdpRelay {
    /// Passes the queries of a queue to `answer`, at most one batch; returns their number.
    fn queries_of(
        &mut self,
        at: usize,
        max: usize,
        answer: &mut impl FnMut(&Origin, &[u8], &mut [u8]) -> usize,
    ) -> usize {
        let (listen, numbers, no_clients) = (&self.listen, &self.numbers, &self.no_clients);
        let (scratch, replies, counted) = (&mut self.scratch, &mut self.replies, &mut self.counted);
        let (asking, uses) = (&self.asking, &mut self.uses[at]);
        let Queue {
            arrivals,
            departures,
            interface,
            ..
        } = &mut self.queues[at];
        let mut too_long: Vec<(Origin, Box<[u8]>)> = Vec::new();
        let mut total = 0;
        arrivals.take(max.min(BATCH), |octets, _| {
            // Damaged frames are dropped, as by a socket.
            let Some((flow, payload)) = frame::parse(octets, interface.is_veth) else {
                return;
            };
            let listener = match side(listen, numbers, &flow) {
                Side::Client(_) if no_clients.contains(&flow.source().ip()) => return,
                Side::Client(listener) => listener,
                Side::Upstream(server, port) => {
                    uses.upstreams = true;
                    if !asking.get(server).is_some_and(|it| it.sent(&flow, port)) {
                        counted.foreign += 1;
                        counted.foreign_from = counted.foreign_from.or(Some(flow.source()));
                    } else if !replies.push((server, port), payload) {
                        counted.receive_drops += 1;
                    }
                    return;
                }
                Side::Nobody => {
                    counted.receive_drops += 1;
                    return;
                }
            };
            total += 1;
            let to = (listener, listen[listener]);
            let origin = hops::origin(&flow, to, at, interface.index);
            let len = answer(&origin, payload, scratch).min(FRAME_BYTES);
            if len == 0 {
                return;
            }
            let back = flow.reversed();
            if fits(&back, len, interface) {
                let reply = &scratch[..len];
                let write = |frame: &mut [u8]| frame::build(&back, reply, frame).unwrap_or(0);
                counted.send_drops += u64::from(!departures.push(write));
            } else {
                too_long.push((origin, scratch[..len].into()));
            }
        });
        for (to, reply) in too_long {
            self.by_the_kernel(&to, &reply);
        }
        total
    }

    /// Passes on the queries received while reading for replies.
    fn held_queries(
        &mut self,
        answer: &mut impl FnMut(&Origin, &[u8], &mut [u8]) -> usize,
    ) -> usize {
        let mut held = std::mem::replace(&mut self.queries, Held::new());
        for ((at, flow), payload) in held.iter() {
            let Side::Client(listener) = side(&self.listen, &self.numbers, flow) else {
                continue;
            };
            let to = (listener, self.listen[listener]);
            let origin = hops::origin(flow, to, *at, self.queues[*at].interface.index);
            let mut reply = std::mem::take(&mut self.scratch);
            let len = answer(&origin, payload, &mut reply).min(FRAME_BYTES);
            if len > 0 {
                self.send_reply(&origin, &reply[..len]);
            }
            self.scratch = reply;
        }
        let total = held.len();
        held.clear();
        self.queries = held;
        total
    }

    /// Sends a reply by the ring that received its query, if possible.
    fn send_reply(&mut self, to: &Origin, reply: &[u8]) {
        let listen = self.listen.get(usize::from(to.socket));
        let way = listen.and_then(|listen| hops::back(to, *listen, &self.queues, reply.len()));
        let Some((at, flow)) = way else {
            return self.by_the_kernel(to, reply);
        };
        let write = |frame: &mut [u8]| frame::build(&flow, reply, frame).unwrap_or(0);
        let is_pushed = self.queues[at].departures.push(write);
        self.counted.send_drops += u64::from(!is_pushed);
    }

    /// Sends a reply by an ordinary socket, which can fragment it and resolve neighbours.
    fn by_the_kernel(&mut self, to: &Origin, reply: &[u8]) {
        self.udp.clients.reply(to, |frame| {
            frame[..reply.len()].copy_from_slice(reply);
            reply.len()
        });
    }
}

impl ClientSide for XdpRelay {
    fn receive(
        &mut self,
        max: usize,
        mut answer: impl FnMut(&Origin, &[u8], &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        if !self.accepting {
            return Ok(0);
        }
        let mut total = self.held_queries(&mut answer);
        for at in 0..self.queues.len() {
            while self.uses[at].clients && total < max {
                let queries = self.queries_of(at, max - total, &mut answer);
                total += queries;
                if queries == 0 {
                    break;
                }
            }
        }
        Ok(total
            + self
                .udp
                .clients
                .receive(max.saturating_sub(total), answer)?)
    }

    fn reply(&mut self, to: &Origin, fill: impl FnOnce(&mut [u8]) -> usize) {
        let mut frame = std::mem::take(&mut self.scratch);
        let len = fill(&mut frame);
        match len {
            1..=FRAME_BYTES => self.send_reply(to, &frame[..len]),
            _ => self.counted.send_drops += 1,
        }
        self.scratch = frame;
    }

    fn flush(&mut self) {
        self.flush_rings();
        self.udp.clients.flush();
    }

    /// Meanwhile, queries wait in the rings that carry no replies. Queries in the other rings are held here up to a
    /// limit; more are lost and counted.
    fn accept(&mut self, yes: bool) {
        self.accepting = yes;
        self.udp.clients.accept(yes);
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let mut counters = self.udp.clients.counters()?;
        counters.receive_drops += self.counted.receive_drops + self.ring_drops()?;
        counters.send_drops += self.counted.send_drops;
        Ok(counters)
    }
}
