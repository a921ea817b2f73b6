//! [`Relay`] on the simulated network.

use std::net::{IpAddr, SocketAddr};

use super::{Impairment, Network, Queue};
use crate::clock::Nanos;
use crate::{Arrival, Counters, LinkError, Origin, PORTS_PER_SERVER, Relay};

impl Network {
    /// A relay that listens at `listen` and asks servers from ports at `local`.
    pub fn relay(&self, listen: SocketAddr, local: IpAddr, impairment: Impairment) -> MemoryRelay {
        self.0.borrow_mut().queues.insert(listen, Queue::default());
        MemoryRelay {
            network: self.clone(),
            listen,
            local,
            impairment,
            pools: Vec::new(),
            accepting: true,
            counted: Counters::default(),
        }
    }
}

/// Both sides of a forwarder on a [`Network`].
pub struct MemoryRelay {
    network: Network,
    listen: SocketAddr,
    local: IpAddr,
    impairment: Impairment,
    pools: Vec<Pool>,
    accepting: bool,
    /// What belongs to no port that is open now.
    counted: Counters,
}

struct Pool {
    server: SocketAddr,
    ports: Vec<SocketAddr>,
}

impl MemoryRelay {
    /// Changes what happens to the datagrams sent from now on, to clients and to servers.
    pub fn set_impairment(&mut self, impairment: Impairment) {
        self.impairment = impairment;
    }

    fn arrived(&self, at: SocketAddr) -> Option<(SocketAddr, Vec<u8>)> {
        let (_, from, payload) = self.network.0.borrow_mut().arrived(at)?;
        Some((from, payload))
    }

    fn send(&self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        let mut wire = self.network.0.borrow_mut();
        wire.send(from, to, payload, self.impairment);
    }

    fn close(&mut self, port: SocketAddr) {
        if let Some(queue) = self.network.0.borrow_mut().queues.remove(&port) {
            count(&mut self.counted, &queue);
        }
    }
}

fn count(counters: &mut Counters, queue: &Queue) {
    counters.receive_drops += queue.drops;
    counters.foreign += queue.foreign;
    counters.foreign_from = counters.foreign_from.or(queue.foreign_from);
}

impl Relay for MemoryRelay {
    fn set_servers(&mut self, servers: &[SocketAddr]) -> Result<(), LinkError> {
        let mut old = std::mem::take(&mut self.pools);
        for &server in servers {
            let stays = old.iter().position(|pool| pool.server == server);
            let pool = stays.map_or_else(
                || {
                    let mut wire = self.network.0.borrow_mut();
                    let ports = (0..PORTS_PER_SERVER).map(|_| wire.connected(self.local, server));
                    Pool {
                        server,
                        ports: ports.collect(),
                    }
                },
                |i| old.swap_remove(i),
            );
            self.pools.push(pool);
        }
        for port in old.iter().flat_map(|pool| &pool.ports) {
            self.close(*port);
        }
        Ok(())
    }

    fn receive(
        &mut self,
        max: usize,
        mut each: impl FnMut(Arrival<'_>),
    ) -> Result<usize, LinkError> {
        let mut total = 0;
        for (server, pool) in self.pools.iter().enumerate() {
            for (port, &at) in pool.ports.iter().enumerate() {
                while let Some((_, payload)) = self.arrived(at) {
                    let payload = &payload;
                    each(Arrival::Reply {
                        server,
                        port,
                        payload,
                    });
                    total += 1;
                }
            }
        }
        let mut queries = 0;
        while self.accepting
            && queries < max
            && let Some((peer, payload)) = self.arrived(self.listen)
        {
            each(Arrival::Query {
                origin: &Origin::new(peer),
                payload: &payload,
            });
            queries += 1;
        }
        Ok(total + queries)
    }

    fn reply(&mut self, to: &Origin, payload: &[u8]) -> Result<(), LinkError> {
        self.send(self.listen, to.peer(), payload);
        Ok(())
    }

    fn ask(&mut self, server: usize, port: usize, payload: &[u8]) -> Result<(), LinkError> {
        let pool = self.pools.get(server);
        match pool.and_then(|pool| Some((pool.server, *pool.ports.get(port)?))) {
            Some((server, from)) => self.send(from, server, payload),
            None => self.counted.send_drops += 1,
        }
        Ok(())
    }

    /// Does nothing: what was taken has left.
    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    fn renew(&mut self, server: usize, port: usize) -> Result<(), LinkError> {
        let local = self.local;
        let Some(pool) = self.pools.get_mut(server) else {
            return Ok(());
        };
        let Some(place) = pool.ports.get_mut(port) else {
            return Ok(());
        };
        let new = self.network.0.borrow_mut().connected(local, pool.server);
        let old = std::mem::replace(place, new);
        self.close(old);
        Ok(())
    }

    fn accept_queries(&mut self, yes: bool) {
        self.accepting = yes;
    }

    /// Does nothing: on a manual clock, time passes only when the simulation says so.
    fn wait(&mut self, _timeout: Nanos) -> Result<(), LinkError> {
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let wire = self.network.0.borrow();
        let ports = self.pools.iter().flat_map(|pool| &pool.ports);
        let mut counters = self.counted;
        for queue in ports
            .chain([&self.listen])
            .filter_map(|a| wire.queues.get(a))
        {
            count(&mut counters, queue);
        }
        Ok(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryLink;
    use super::*;
    use crate::clock::ManualClock;
    use crate::{Datagram, Link};

    const LISTEN: &str = "[2001:2::64]:53";
    const UPSTREAMS: [&str; 2] = ["[2001:2::1]:53", "[2001:2::2]:53"];
    const NONE: Impairment = Impairment {
        delay_ns: 0,
        jitter_ns: 0,
        loss_ppm: 0,
        duplicate_ppm: 0,
    };

    fn setup() -> (ManualClock, Network, MemoryRelay, Vec<MemoryLink>) {
        let clock = ManualClock::default();
        let network = Network::new(&clock, 0);
        let local = "2001:2::64".parse().unwrap();
        let mut relay = network.relay(LISTEN.parse().unwrap(), local, NONE);
        let servers = UPSTREAMS.map(|s| s.parse().unwrap());
        relay.set_servers(&servers).unwrap();
        let links = servers.iter().map(|&s| network.server(s, NONE)).collect();
        (clock, network, relay, links)
    }

    fn replies(relay: &mut MemoryRelay) -> Vec<(usize, usize, Vec<u8>)> {
        let mut got = Vec::new();
        let each = |arrival: Arrival<'_>| match arrival {
            Arrival::Reply {
                server,
                port,
                payload,
            } => got.push((server, port, payload.to_vec())),
            Arrival::Query { .. } => panic!("nobody has asked"),
        };
        relay.receive(usize::MAX, each).unwrap();
        got
    }

    fn echo(link: &mut MemoryLink) -> Vec<SocketAddr> {
        let mut peers = Vec::new();
        let echo = |d: Datagram<'_>, frame: &mut [u8]| {
            peers.push(d.peer);
            frame[..d.payload.len()].copy_from_slice(d.payload);
            d.payload.len()
        };
        link.answer(usize::MAX, echo).unwrap();
        peers
    }

    #[test]
    fn queries_are_handed_over_up_to_max_and_answered_in_any_order() {
        let (_clock, network, mut relay, _links) = setup();
        let listen = LISTEN.parse().unwrap();
        let mut client = network.client("2001:2::c".parse().unwrap(), 3, listen, NONE);
        for port in 0..3 {
            client
                .send(port, 1, |_, frame| {
                    frame[0] = b'a' + u8::try_from(port).unwrap();
                    1
                })
                .unwrap();
        }
        relay.accept_queries(false);
        assert_eq!(relay.receive(9, |_| panic!("handed over")).unwrap(), 0);
        relay.accept_queries(true);
        let mut asked = Vec::new();
        for expected in [2, 1, 0] {
            let each = |arrival: Arrival<'_>| match arrival {
                Arrival::Query { origin, payload } => asked.push((*origin, payload.to_vec())),
                Arrival::Reply { .. } => panic!("nobody was asked"),
            };
            assert_eq!(relay.receive(2, each).unwrap(), expected);
        }
        for (origin, payload) in asked.iter().rev() {
            relay.reply(origin, payload).unwrap();
        }
        let mut got = Vec::new();
        client
            .receive(9, |d| got.push((d.port, d.payload[0])))
            .unwrap();
        got.sort_unstable();
        assert_eq!(got, [(0, b'a'), (1, b'b'), (2, b'c')]);
    }

    #[test]
    fn a_reply_tells_the_server_and_the_port_that_were_asked() {
        let (clock, _network, mut relay, mut links) = setup();
        relay.set_impairment(Impairment {
            delay_ns: 500,
            ..NONE
        });
        relay.ask(0, 7, b"a").unwrap();
        relay.ask(1, PORTS_PER_SERVER - 1, b"b").unwrap();
        relay.ask(1, PORTS_PER_SERVER, b"no such port").unwrap();
        relay.ask(2, 0, b"no such server").unwrap();
        assert!(echo(&mut links[0]).is_empty(), "still under way");
        clock.advance(500);
        links.iter_mut().for_each(|link| {
            assert_eq!(echo(link).len(), 1);
        });
        assert_eq!(
            replies(&mut relay),
            [(0, 7, b"a".to_vec()), (1, 63, b"b".to_vec())]
        );
        assert_eq!(relay.counters().unwrap().send_drops, 2);
    }

    #[test]
    fn a_renewed_port_is_another_and_what_was_under_way_to_the_old_is_lost() {
        let (_clock, network, mut relay, mut links) = setup();
        relay.ask(0, 0, b"a").unwrap();
        let old = echo(&mut links[0])[0];
        let stranger = "[2001:2::66]:53".parse().unwrap();
        network.server(stranger, NONE).send_to(old, b"boo");
        relay.renew(0, 0).unwrap();
        assert!(replies(&mut relay).is_empty());
        relay.ask(0, 0, b"b").unwrap();
        let new = echo(&mut links[0])[0];
        assert_ne!(new, old);
        links[0].send_to(old, b"late");
        assert_eq!(replies(&mut relay), [(0, 0, b"b".to_vec())]);
        let counters = relay.counters().unwrap();
        assert_eq!(
            (counters.foreign, counters.foreign_from),
            (1, Some(stranger)),
            "the counts of a closed port stay"
        );
    }

    #[test]
    fn a_server_that_stays_keeps_its_ports_under_its_new_number() {
        let (_clock, _network, mut relay, mut links) = setup();
        relay.ask(0, 3, b"gone").unwrap();
        relay.ask(1, 3, b"stays").unwrap();
        let peers: Vec<_> = links.iter_mut().map(|link| echo(link)[0]).collect();
        relay.set_servers(&[UPSTREAMS[1].parse().unwrap()]).unwrap();
        assert_eq!(replies(&mut relay), [(0, 3, b"stays".to_vec())]);
        relay.ask(0, 3, b"again").unwrap();
        assert_eq!(echo(&mut links[1]), [peers[1]]);
    }
}
