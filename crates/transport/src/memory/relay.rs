//! [`Relay`] on the simulated network.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use super::{FRAME_BYTES, Impairment, Network, Queue};
use crate::clock::Nanos;
use crate::relay::Outgoing;
use crate::{Arrival, ClientSide, Counters, LinkError, Origin, Relay, UpstreamSide};

impl Network {
    /// Creates a relay that listens at `listen` and queries upstreams from ports at `local`.
    pub fn relay(&self, listen: SocketAddr, local: IpAddr, impairment: Impairment) -> MemoryRelay {
        self.0.borrow_mut().queues.insert(listen, Queue::default());
        MemoryRelay {
            clients: MemoryClients {
                network: self.clone(),
                listen,
                impairment,
                accepting: true,
                frame: vec![0; FRAME_BYTES],
            },
            upstreams: MemoryUpstreams {
                network: self.clone(),
                local,
                impairment,
                pools: Vec::new(),
                frame: vec![0; FRAME_BYTES],
                counted: Counters::default(),
            },
        }
    }
}

/// Both sides of a forwarder on a [`Network`].
pub struct MemoryRelay {
    clients: MemoryClients,
    upstreams: MemoryUpstreams,
}

/// The address at which a [`MemoryRelay`] receives queries.
pub struct MemoryClients {
    network: Network,
    listen: SocketAddr,
    impairment: Impairment,
    accepting: bool,
    frame: Vec<u8>,
}

/// The ports from which a [`MemoryRelay`] queries upstreams.
pub struct MemoryUpstreams {
    network: Network,
    local: IpAddr,
    impairment: Impairment,
    pools: Vec<Pool>,
    frame: Vec<u8>,
    /// Counts that belong to no port that is open now.
    counted: Counters,
}

struct Pool {
    server: SocketAddr,
    /// Open and closed ports.
    ports: Vec<Option<SocketAddr>>,
}

impl MemoryRelay {
    /// Changes the impairment of datagrams sent from now on, to clients and to upstreams.
    pub fn set_impairment(&mut self, impairment: Impairment) {
        self.clients.impairment = impairment;
        self.upstreams.impairment = impairment;
    }
}

impl Relay for MemoryRelay {
    type Clients = MemoryClients;
    type Upstreams = MemoryUpstreams;

    fn clients(&mut self) -> &mut MemoryClients {
        &mut self.clients
    }

    fn upstreams(&mut self) -> &mut MemoryUpstreams {
        &mut self.upstreams
    }

    /// Does nothing: on a manual clock, only the simulation advances the time. Datagrams that have
    /// arrived are passed on without it.
    fn wait(&mut self, _timeout: Nanos) -> Result<(), LinkError> {
        Ok(())
    }
}

fn count(counters: &mut Counters, queue: &Queue) {
    counters.receive_drops += queue.drops;
    counters.foreign += queue.foreign;
    counters.foreign_from = counters.foreign_from.or(queue.foreign_from);
}

impl ClientSide for MemoryClients {
    fn receive(
        &mut self,
        max: usize,
        mut answer: impl FnMut(&Origin, &[u8], &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        let mut queries = 0;
        while self.accepting && queries < max {
            let mut wire = self.network.0.borrow_mut();
            let Some((_, peer, payload)) = wire.arrived(self.listen) else {
                break;
            };
            let len = answer(&Origin::new(peer), &payload, &mut self.frame);
            if len > 0 {
                wire.send(self.listen, peer, &self.frame[..len], self.impairment);
            }
            queries += 1;
        }
        Ok(queries)
    }

    fn reply(&mut self, to: &Origin, fill: impl FnOnce(&mut [u8]) -> usize) {
        let len = fill(&mut self.frame);
        let mut wire = self.network.0.borrow_mut();
        wire.send(self.listen, to.peer(), &self.frame[..len], self.impairment);
    }

    /// Does nothing: queued responses were already sent.
    fn flush(&mut self) {}

    fn accept(&mut self, yes: bool) {
        self.accepting = yes;
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let mut counters = Counters::default();
        if let Some(queue) = self.network.0.borrow().queues.get(&self.listen) {
            count(&mut counters, queue);
        }
        Ok(counters)
    }
}

impl MemoryUpstreams {
    fn forget(&mut self, port: SocketAddr) {
        if let Some(queue) = self.network.0.borrow_mut().queues.remove(&port) {
            count(&mut self.counted, &queue);
        }
    }

    /// Local and remote address of a port, which is opened if it is closed.
    fn way(&mut self, server: usize, port: usize) -> Option<(SocketAddr, SocketAddr)> {
        let pool = self.pools.get_mut(server)?;
        let place = pool.ports.get_mut(port)?;
        let mut wire = self.network.0.borrow_mut();
        let from = *place.get_or_insert_with(|| wire.connected(self.local, pool.server));
        Some((from, pool.server))
    }
}

impl UpstreamSide for MemoryUpstreams {
    /// No other program has ports in a simulated network, so none is avoided.
    fn set_servers(
        &mut self,
        servers: &[(SocketAddr, Outgoing)],
        ports: usize,
        _avoided: &[RangeInclusive<u16>],
    ) {
        let old = std::mem::take(&mut self.pools);
        for port in old.into_iter().flat_map(|pool| pool.ports).flatten() {
            self.forget(port);
        }
        let ports = vec![None; ports];
        let pool = |&(server, _): &(SocketAddr, Outgoing)| Pool {
            server,
            ports: ports.clone(),
        };
        self.pools = servers.iter().map(pool).collect();
    }

    fn receive(&mut self, mut each: impl FnMut(Arrival<'_>)) -> Result<usize, LinkError> {
        let mut total = 0;
        for (server, pool) in self.pools.iter().enumerate() {
            for (port, at) in pool.ports.iter().enumerate() {
                let Some(at) = at else { continue };
                let mut wire = self.network.0.borrow_mut();
                while let Some((_, _, payload)) = wire.arrived(*at) {
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
        Ok(total)
    }

    fn ask(&mut self, server: usize, port: usize, fill: impl FnOnce(&mut [u8]) -> usize) {
        let len = fill(&mut self.frame);
        match self.way(server, port) {
            Some((from, to)) => {
                let mut wire = self.network.0.borrow_mut();
                wire.send(from, to, &self.frame[..len], self.impairment);
            }
            None => self.counted.send_drops += 1,
        }
    }

    fn close(&mut self, server: usize, port: usize) -> Result<(), LinkError> {
        let old = self.pools.get_mut(server).and_then(|pool| {
            let place = pool.ports.get_mut(port)?;
            place.take()
        });
        if let Some(old) = old {
            self.forget(old);
        }
        Ok(())
    }

    /// Does nothing: queued queries were already sent.
    fn flush(&mut self) {}

    fn counters(&mut self) -> Result<Counters, LinkError> {
        let wire = self.network.0.borrow();
        let ports = self
            .pools
            .iter()
            .flat_map(|pool| pool.ports.iter().flatten());
        let mut counters = self.counted;
        for queue in ports.filter_map(|at| wire.queues.get(at)) {
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

    const PORTS: usize = 64;

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
        let servers: [SocketAddr; 2] = UPSTREAMS.map(|s| s.parse().unwrap());
        let targets = servers.map(|server| (server, Outgoing::default()));
        relay.upstreams().set_servers(&targets, PORTS, &[]);
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
            Arrival::Unreachable { .. } => panic!("all servers are reachable"),
        };
        relay.upstreams().receive(each).unwrap();
        got
    }

    fn copy(payload: &[u8]) -> impl FnOnce(&mut [u8]) -> usize {
        |frame| {
            frame[..payload.len()].copy_from_slice(payload);
            payload.len()
        }
    }

    fn ask(relay: &mut MemoryRelay, server: usize, port: usize, payload: &[u8]) {
        relay.upstreams().ask(server, port, copy(payload));
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
    fn receive_passes_on_at_most_max_queries_and_answers_may_be_in_any_order() {
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
        let clients = relay.clients();
        clients.accept(false);
        let got = clients.receive(9, |_, _, _| panic!("not accepting"));
        assert_eq!(got.unwrap(), 0);
        clients.accept(true);
        let mut asked = Vec::new();
        for expected in [2, 1, 0] {
            // The first query is answered immediately.
            let each = |origin: &Origin, payload: &[u8], frame: &mut [u8]| {
                asked.push((*origin, payload.to_vec()));
                frame[0] = payload[0];
                usize::from(asked.len() == 1)
            };
            assert_eq!(clients.receive(2, each).unwrap(), expected);
        }
        for (origin, payload) in asked[1..].iter().rev() {
            clients.reply(origin, copy(payload));
        }
        let mut got = Vec::new();
        client
            .receive(9, |d| got.push((d.port, d.payload[0])))
            .unwrap();
        got.sort_unstable();
        assert_eq!(got, [(0, b'a'), (1, b'b'), (2, b'c')]);
    }

    #[test]
    fn response_reports_the_queried_server_and_port() {
        let (clock, _network, mut relay, mut links) = setup();
        relay.set_impairment(Impairment {
            delay_ns: 500,
            ..NONE
        });
        ask(&mut relay, 0, 7, b"a");
        ask(&mut relay, 1, PORTS - 1, b"b");
        ask(&mut relay, 1, PORTS, b"no such port");
        ask(&mut relay, 2, 0, b"no such server");
        assert!(echo(&mut links[0]).is_empty(), "still in flight");
        clock.advance(500);
        links.iter_mut().for_each(|link| {
            assert_eq!(echo(link).len(), 1);
        });
        assert_eq!(
            replies(&mut relay),
            [(0, 7, b"a".to_vec()), (1, 63, b"b".to_vec())]
        );
        assert_eq!(relay.upstreams().counters().unwrap().send_drops, 2);
    }

    #[test]
    fn port_reopened_differs_and_datagrams_in_flight_to_the_old_one_are_lost() {
        let (_clock, network, mut relay, mut links) = setup();
        ask(&mut relay, 0, 0, b"a");
        let old = echo(&mut links[0])[0];
        let stranger = "[2001:2::66]:53".parse().unwrap();
        network.server(stranger, NONE).send_to(old, b"boo");
        relay.upstreams().close(0, 0).unwrap();
        assert!(replies(&mut relay).is_empty());
        ask(&mut relay, 0, 0, b"b");
        let new = echo(&mut links[0])[0];
        assert_ne!(new, old);
        links[0].send_to(old, b"late");
        assert_eq!(replies(&mut relay), [(0, 0, b"b".to_vec())]);
        let counters = relay.upstreams().counters().unwrap();
        assert_eq!(
            (counters.foreign, counters.foreign_from),
            (1, Some(stranger)),
            "the counts of a closed port stay"
        );
    }

    #[test]
    fn new_list_of_servers_closes_all_ports() {
        let (_clock, _network, mut relay, mut links) = setup();
        ask(&mut relay, 0, 3, b"gone");
        ask(&mut relay, 1, 3, b"stays");
        let peers: Vec<_> = links.iter_mut().map(|link| echo(link)[0]).collect();
        let stays = (UPSTREAMS[1].parse().unwrap(), Outgoing::default());
        relay.upstreams().set_servers(&[stays], PORTS, &[]);
        assert!(replies(&mut relay).is_empty());
        ask(&mut relay, 0, 3, b"again");
        assert_ne!(echo(&mut links[1]), [peers[1]]);
        assert_eq!(replies(&mut relay), [(0, 3, b"again".to_vec())]);
    }
}
