//! A simulated network: links that carry datagrams through memory on a [`ManualClock`], with delay,
//! jitter (and therefore reordering), loss and duplication determined by a seed.
//!
//! A whole system on such links needs no real time and every run is identical.

mod relay;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crate::clock::{Clock, ManualClock, Nanos};
use crate::random::SplitMix64;
use crate::{Carrier, Counters, Datagram, Departure, Link, LinkError, Origin};

pub use relay::MemoryRelay;

/// Impairment of the datagrams that a link sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Impairment {
    /// Minimum delay of every datagram.
    pub delay_ns: Nanos,
    /// Maximum additional delay, uniformly distributed; it reorders datagrams.
    pub jitter_ns: Nanos,
    /// Lost datagrams per million.
    pub loss_ppm: u32,
    /// Duplicated datagrams per million.
    pub duplicate_ppm: u32,
}

/// A network in memory. Clones share the network.
#[derive(Clone)]
pub struct Network(Rc<RefCell<Wire>>);

struct Wire {
    clock: ManualClock,
    random: SplitMix64,
    queues: HashMap<SocketAddr, Queue>,
    next_port: u16,
    sent: u64,
}

#[derive(Default)]
struct Queue {
    /// Ordered by arrival, then by send order.
    waiting: BTreeMap<(Nanos, u64), (SocketAddr, Vec<u8>)>,
    drops: u64,
    foreign: u64,
    foreign_from: Option<SocketAddr>,
    /// A connected port receives only from this address.
    peer: Option<SocketAddr>,
}

/// Capacity of a port's queue in datagrams; more are dropped, as by a socket buffer.
const QUEUE_CAPACITY: usize = 65_536;

/// First of the ports assigned to clients (RFC 6335 section 6, dynamic ports).
const FIRST_PORT: u16 = 49_152;

impl Network {
    /// Creates an empty network. Equal seeds give equal losses, delays and duplicates.
    pub fn new(clock: &ManualClock, seed: u64) -> Self {
        Self(Rc::new(RefCell::new(Wire {
            clock: clock.clone(),
            random: SplitMix64(seed),
            queues: HashMap::new(),
            next_port: FIRST_PORT,
            sent: 0,
        })))
    }

    /// Creates a link of `ports` connected ports at `local` to `server`.
    pub fn client(
        &self,
        local: IpAddr,
        ports: usize,
        server: SocketAddr,
        impairment: Impairment,
    ) -> MemoryLink {
        let mut wire = self.0.borrow_mut();
        let addresses = (0..ports).map(|_| wire.connected(local, server)).collect();
        drop(wire);
        MemoryLink::new(self.clone(), addresses, Some(server), impairment)
    }

    /// Creates a link that listens at `listen`.
    pub fn server(&self, listen: SocketAddr, impairment: Impairment) -> MemoryLink {
        self.0.borrow_mut().queues.insert(listen, Queue::default());
        MemoryLink::new(self.clone(), vec![listen], None, impairment)
    }

    /// Time of the next arrival anywhere, if a datagram is in transit.
    pub fn next_arrival(&self) -> Option<Nanos> {
        let wire = self.0.borrow();
        wire.queues
            .values()
            .filter_map(|q| q.waiting.keys().next())
            .map(|&(at, _)| at)
            .min()
    }
}

impl Wire {
    /// Opens a port at `local` that receives only from `server`.
    fn connected(&mut self, local: IpAddr, server: SocketAddr) -> SocketAddr {
        let address = loop {
            let address = SocketAddr::new(local, self.next_port);
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
            if !self.queues.contains_key(&address) {
                break address;
            }
        };
        let queue = Queue {
            peer: Some(server),
            ..Queue::default()
        };
        self.queues.insert(address, queue);
        address
    }

    fn happens(&mut self, ppm: u32) -> bool {
        self.random.draw() % 1_000_000 < u64::from(ppm)
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8], c: Impairment) {
        if self.happens(c.loss_ppm) {
            return;
        }
        let copies = if self.happens(c.duplicate_ppm) { 2 } else { 1 };
        for _ in 0..copies {
            let jitter = if c.jitter_ns == 0 {
                0
            } else {
                self.random.draw() % c.jitter_ns
            };
            let at = self.clock.now() + c.delay_ns + jitter;
            self.sent += 1;
            let Some(queue) = self.queues.get_mut(&to) else {
                continue;
            };
            if queue.peer.is_some_and(|peer| peer != from) {
                queue.foreign += 1;
                queue.foreign_from.get_or_insert(from);
            } else if queue.waiting.len() == QUEUE_CAPACITY {
                queue.drops += 1;
            } else {
                queue
                    .waiting
                    .insert((at, self.sent), (from, payload.to_vec()));
            }
        }
    }

    fn arrived(&mut self, at: SocketAddr) -> Option<(Nanos, SocketAddr, Vec<u8>)> {
        let now = self.clock.now();
        let queue = self.queues.get_mut(&at)?;
        let first = queue.waiting.first_entry()?;
        let (arrival, _) = *first.key();
        if arrival > now {
            return None;
        }
        let (from, payload) = first.remove();
        Some((arrival, from, payload))
    }
}

/// One end of a [`Network`].
pub struct MemoryLink {
    network: Network,
    addresses: Vec<SocketAddr>,
    server: Option<SocketAddr>,
    impairment: Impairment,
    cursor: usize,
    sweeps: u64,
    departures: Vec<Departure>,
    frame: Vec<u8>,
}

/// Maximum length of a datagram, as for sockets.
const FRAME_BYTES: usize = 4096;

impl MemoryLink {
    fn new(
        network: Network,
        addresses: Vec<SocketAddr>,
        server: Option<SocketAddr>,
        impairment: Impairment,
    ) -> Self {
        let frame = vec![0; FRAME_BYTES];
        Self {
            network,
            addresses,
            server,
            impairment,
            cursor: 0,
            sweeps: 0,
            departures: Vec::new(),
            frame,
        }
    }

    /// Changes the impairment of datagrams sent from now on.
    pub fn set_impairment(&mut self, impairment: Impairment) {
        self.impairment = impairment;
    }

    /// Sends one datagram from port 0 to any address: for scripted peers.
    pub fn send_to(&mut self, to: SocketAddr, payload: &[u8]) {
        self.network
            .0
            .borrow_mut()
            .send(self.addresses[0], to, payload, self.impairment);
    }

    /// The next datagram that has arrived; the ports take turns.
    fn next(&mut self) -> Option<(usize, Nanos, SocketAddr, Vec<u8>)> {
        for _ in 0..self.addresses.len() {
            let port = self.cursor;
            let arrived = self.network.0.borrow_mut().arrived(self.addresses[port]);
            if let Some((at, from, payload)) = arrived {
                return Some((port, at, from, payload));
            }
            self.cursor += 1;
            if self.cursor == self.addresses.len() {
                self.cursor = 0;
                self.sweeps += 1;
            }
        }
        None
    }

    /// Records that `replies` replies were sent now.
    fn departed(&mut self, replies: usize) {
        let at = self.now();
        let departure = (replies > 0).then_some(Departure { replies, at });
        self.departures.clear();
        self.departures.extend(departure);
    }
}

/// Closes the ports: datagrams in transit to them are lost.
impl Drop for MemoryLink {
    fn drop(&mut self) {
        let mut wire = self.network.0.borrow_mut();
        for address in &self.addresses {
            wire.queues.remove(address);
        }
    }
}

impl Link for MemoryLink {
    fn ports(&self) -> usize {
        self.addresses.len()
    }

    fn send(
        &mut self,
        port: usize,
        n: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        let Some(server) = self.server else {
            return Ok(0);
        };
        for i in 0..n {
            let len = fill(i, &mut self.frame);
            let payload = &self.frame[..len];
            let mut wire = self.network.0.borrow_mut();
            wire.send(self.addresses[port], server, payload, self.impairment);
        }
        Ok(n)
    }

    fn receive(
        &mut self,
        max: usize,
        mut each: impl FnMut(Datagram<'_>),
    ) -> Result<usize, LinkError> {
        let mut total = 0;
        while total < max
            && let Some((port, at, peer, payload)) = self.next()
        {
            each(Datagram::new(port, peer, &payload, at));
            total += 1;
        }
        Ok(total)
    }

    fn sweeps(&self) -> u64 {
        self.sweeps
    }

    fn answer(
        &mut self,
        max: usize,
        mut answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        let mut total = 0;
        let mut replies = 0;
        while total < max
            && let Some((port, at, peer, payload)) = self.next()
        {
            total += 1;
            let len = answer(Datagram::new(port, peer, &payload, at), &mut self.frame);
            if len > 0 {
                let reply = &self.frame[..len];
                let mut wire = self.network.0.borrow_mut();
                wire.send(self.addresses[port], peer, reply, self.impairment);
                replies += 1;
            }
        }
        self.departed(replies);
        Ok(total)
    }

    fn reply(
        &mut self,
        mut next: impl FnMut(&mut [u8]) -> Option<(Origin, usize)>,
    ) -> Result<usize, LinkError> {
        let mut replies = 0;
        while let Some((to, len)) = next(&mut self.frame) {
            let reply = &self.frame[..len];
            let mut wire = self.network.0.borrow_mut();
            wire.send(self.addresses[0], to.peer, reply, self.impairment);
            replies += 1;
        }
        self.departed(replies);
        Ok(replies)
    }

    fn now(&self) -> Nanos {
        self.network.0.borrow().clock.now()
    }

    fn departures(&self) -> &[Departure] {
        &self.departures
    }

    /// Does nothing: on a manual clock, only the simulation advances the time.
    fn wait(&mut self, _timeout: Nanos) -> Result<(), LinkError> {
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let wire = self.network.0.borrow();
        let mut counters = Counters::default();
        for queue in self.addresses.iter().filter_map(|a| wire.queues.get(a)) {
            counters.receive_drops += queue.drops;
            counters.foreign += queue.foreign;
            counters.foreign_from = counters.foreign_from.or(queue.foreign_from);
        }
        Ok(counters)
    }

    fn carrier(&self) -> Carrier {
        Carrier::Memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "[2001:2::53]:53";

    fn exchange(seed: u64, impairment: Impairment, n: usize) -> Vec<(usize, Nanos, u8)> {
        let clock = ManualClock::default();
        let network = Network::new(&clock, seed);
        let server = SERVER.parse().unwrap();
        let mut client = network.client("2001:2::1".parse().unwrap(), 4, server, impairment);
        let mut echo = network.server(server, Impairment::default());
        for i in 0..n {
            let sent = client.send(i % 4, 1, |_, frame| {
                frame[0] = u8::try_from(i).unwrap();
                1
            });
            assert_eq!(sent.unwrap(), 1);
        }
        let mut got = Vec::new();
        while let Some(at) = network.next_arrival() {
            clock.advance_to(at);
            let echoed = |d: Datagram<'_>, frame: &mut [u8]| {
                frame[0] = d.payload[0];
                1
            };
            echo.answer(usize::MAX, echoed).unwrap();
            client
                .receive(usize::MAX, |d| got.push((d.port, d.at, d.payload[0])))
                .unwrap();
        }
        got
    }

    #[test]
    fn unimpaired_network_returns_each_datagram_to_its_port_after_the_delay() {
        let got = exchange(
            1,
            Impairment {
                delay_ns: 500,
                ..Impairment::default()
            },
            8,
        );
        let expected: Vec<_> = (0..8)
            .map(|i| (i % 4, 500, u8::try_from(i).unwrap()))
            .collect();
        let mut sorted = got.clone();
        sorted.sort_by_key(|g| g.2);
        assert_eq!(sorted, expected);
    }

    #[test]
    fn equal_seeds_give_equal_runs_and_different_seeds_do_not() {
        let bad = Impairment {
            delay_ns: 1000,
            jitter_ns: 5000,
            loss_ppm: 200_000,
            duplicate_ppm: 200_000,
        };
        assert_eq!(exchange(7, bad, 100), exchange(7, bad, 100));
        assert_ne!(exchange(7, bad, 100), exchange(8, bad, 100));
    }

    #[test]
    fn jitter_reorders_and_loss_and_duplication_have_their_rates() {
        let jitter = Impairment {
            jitter_ns: 1_000_000,
            ..Impairment::default()
        };
        let order: Vec<u8> = exchange(3, jitter, 100).iter().map(|g| g.2).collect();
        assert_eq!(order.len(), 100);
        assert!(!order.is_sorted());
        let lossy = Impairment {
            loss_ppm: 500_000,
            ..Impairment::default()
        };
        assert!((30..70).contains(&exchange(3, lossy, 100).len()));
        let doubling = Impairment {
            duplicate_ppm: 1_000_000,
            ..Impairment::default()
        };
        assert_eq!(exchange(3, doubling, 100).len(), 200);
    }

    #[test]
    fn connected_port_counts_and_drops_foreign_datagrams() {
        let clock = ManualClock::default();
        let network = Network::new(&clock, 0);
        let server = SERVER.parse().unwrap();
        let none = Impairment::default();
        let mut client = network.client("2001:2::1".parse().unwrap(), 1, server, none);
        let stranger = "[2001:2::66]:53".parse().unwrap();
        network
            .server(stranger, none)
            .send_to(client.addresses[0], b"boo");
        assert_eq!(client.receive(10, |_| panic!("unwanted")).unwrap(), 0);
        let counters = client.counters().unwrap();
        assert_eq!(
            (counters.foreign, counters.foreign_from),
            (1, Some(stranger))
        );
    }

    #[test]
    fn sweep_is_counted_only_if_every_port_was_empty() {
        let clock = ManualClock::default();
        let network = Network::new(&clock, 0);
        let server = SERVER.parse().unwrap();
        let mut client = network.client(
            "2001:2::1".parse().unwrap(),
            2,
            server,
            Impairment::default(),
        );
        let from = client.addresses[1];
        let mut peer = network.server(server, Impairment::default());
        peer.send_to(from, b"x");
        assert_eq!(client.receive(1, |_| ()).unwrap(), 1);
        assert_eq!(client.sweeps(), 0, "the queue at port 1 may hold more");
        assert_eq!(client.receive(1, |_| ()).unwrap(), 0);
        assert_eq!(client.sweeps(), 1);
    }
}
