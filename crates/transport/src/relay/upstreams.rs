//! [`UpstreamSide`] over connected kernel sockets.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::getsockname;

use super::pool::{Pool, drops, port_token};
use super::udp::send_all;
use super::{Arrival, Outgoing, UpstreamSide};
use crate::socket::{RECEIVE_BATCH, take};
use crate::sys::{FRAME_BYTES, Gather, ReceiveBatch};
use crate::{Counters, LinkError};

/// The sockets from which one worker queries its upstreams.
pub struct UdpUpstreams {
    epoll: Arc<OwnedFd>,
    pools: Vec<Pool>,
    receive: ReceiveBatch,
    /// Queries to all upstreams; their group is upstream and port.
    asks: Gather,
    /// Upstream and port of sockets with waiting datagrams.
    ready: Vec<(usize, usize)>,
    /// Upstream and port of undeliverable queries that were reported while others were sent.
    returned: Vec<(usize, usize)>,
    counted: Counters,
}

impl UdpUpstreams {
    pub(super) fn new(epoll: Arc<OwnedFd>) -> Self {
        Self {
            epoll,
            pools: Vec::new(),
            receive: ReceiveBatch::new(RECEIVE_BATCH),
            asks: Gather::new(),
            ready: Vec::new(),
            returned: Vec::new(),
            counted: Counters::default(),
        }
    }

    /// Clears the list of ready sockets before a new check.
    pub(super) fn forget_ready(&mut self) {
        self.ready.clear();
    }

    /// Notes a waiting datagram at this port of an upstream's pool.
    pub(super) fn note_ready(&mut self, server: usize, port: usize) {
        self.ready.push((server, port));
    }

    /// Whether [`UpstreamSide::receive`] has something to pass on that no socket reports.
    pub(crate) fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// Address and port of the socket at an upstream's port, which is opened if it is closed; `None` if it cannot be
    /// opened now.
    pub(crate) fn local_addr(&mut self, server: usize, port: usize) -> Option<SocketAddr> {
        let pool = self.pools.get_mut(server)?;
        let socket = pool.socket(port, &self.epoll, server)?;
        getsockname(socket).ok()?.try_into().ok()
    }

    /// Receives the waiting datagrams of an upstream's port, at most one batch.
    fn take_replies(
        &mut self,
        server: usize,
        port: usize,
        each: &mut impl FnMut(Arrival<'_>),
    ) -> usize {
        let Some(pool) = self.pools.get(server) else {
            return 0;
        };
        let Some(socket) = pool.opened(port) else {
            return 0;
        };
        let mut errors = 0;
        let socket = socket.as_fd();
        let taken = take(&mut self.receive, socket, RECEIVE_BATCH, &mut errors);
        // A rare ICMP error; reading it has cleared it.
        let got = taken.unwrap_or_else(|_| {
            errors += 1;
            0
        });
        let asked = pool.server();
        let mut total = 0;
        for i in 0..got {
            let message = self.receive.message(i);
            // Between bind and connect, a socket receives from any address.
            let from = message.from.addr();
            if from.is_none_or(|from| (from.ip(), from.port()) != (asked.ip(), asked.port())) {
                self.counted.foreign += 1;
                self.counted.foreign_from = self.counted.foreign_from.or(from);
                continue;
            }
            for payload in message.payload.chunks(message.segment.max(1)) {
                each(Arrival::Reply {
                    server,
                    port,
                    payload,
                });
                total += 1;
            }
        }
        if errors > 0 {
            self.counted.unreachable += errors;
            each(Arrival::Unreachable { server, port });
        }
        total
    }
}

impl UpstreamSide for UdpUpstreams {
    /// An unreachable upstream is not an error: queries to it are dropped and counted, and its ports are retried at
    /// most once per second, when a query is sent.
    fn set_servers(
        &mut self,
        servers: &[(SocketAddr, Outgoing)],
        ports: usize,
        avoided: &[RangeInclusive<u16>],
    ) {
        self.flush();
        self.returned.clear();
        let avoided: Arc<[_]> = avoided.into();
        let pool = |server| Pool::new(server, Arc::clone(&avoided), ports);
        self.pools = servers.iter().cloned().map(pool).collect();
    }

    fn receive(&mut self, mut each: impl FnMut(Arrival<'_>)) -> Result<usize, LinkError> {
        let mut total = 0;
        while let Some((server, port)) = self.ready.pop() {
            total += self.take_replies(server, port, &mut each);
        }
        for (server, port) in self.returned.drain(..) {
            each(Arrival::Unreachable { server, port });
        }
        Ok(total)
    }

    fn ask(&mut self, server: usize, port: usize, fill: impl FnOnce(&mut [u8]) -> usize) {
        if self.asks.is_full() {
            self.flush();
        }
        let len = fill(self.asks.frame());
        let is_known = self
            .pools
            .get(server)
            .is_some_and(|pool| port < pool.ports());
        match port_token(server, port) {
            Some(group) if is_known && (1..=FRAME_BYTES).contains(&len) => {
                self.asks.push(len, group, None, None);
            }
            _ => self.counted.send_drops += 1,
        }
    }

    fn close(&mut self, server: usize, port: usize) -> Result<(), LinkError> {
        let pool = self.pools.get_mut(server);
        if let Some(old) = pool.and_then(|pool| pool.close(port)) {
            self.counted.receive_drops += drops(&old)?;
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.asks.arrange();
        let mut first = 0;
        while first < self.asks.messages() {
            let (group, end) = self.asks.group(first);
            let (server, port) = super::pool::of_port_token(group);
            let pool = self.pools.get_mut(server);
            match pool.and_then(|pool| pool.socket(port, &self.epoll, server)) {
                Some(socket) => {
                    let sent = send_all(&mut self.asks, socket, first..end);
                    self.counted.send_drops += sent.lost;
                    self.counted.unreachable += sent.unreachable;
                    if sent.unreachable > 0 {
                        self.returned.push((server, port));
                    }
                }
                None => {
                    let lost: usize = (first..end).map(|i| self.asks.segments(i)).sum();
                    self.counted.send_drops += lost as u64;
                    self.returned.push((server, port));
                }
            }
            first = end;
        }
        self.asks.clear();
    }

    /// Datagrams dropped at a full port are counted only when the port is closed: reading the counters of thousands of
    /// sockets takes milliseconds.
    fn counters(&mut self) -> Result<Counters, LinkError> {
        Ok(self.counted)
    }
}
