//! Connections of clients: the gateway without its sockets, and clients that write in pieces, read late, or stall.

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::Rtype;
use dns64d::engine::actions::Client;
use dns64d::framed::framed;
use dns64d::gateway::dialogue::{Closed, Dialogue};
use rand::RngExt as _;

use super::clients::address;
use super::faults::Fault;
use super::laws::{Holds, Law, require};
use super::truth;
use super::world::{Event, WORKERS, World};

const MILLISECOND: Nanos = SECOND / 1000;

/// The connection of a network of clients.
pub(crate) struct Connection {
    number: u64,
    dialogue: Dialogue,
    /// Octets of queries that the client has not written.
    unwritten: Vec<u8>,
    /// Octets of responses that it has not read.
    unread: Vec<u8>,
    /// The client neither reads nor writes before.
    stalls_until: Nanos,
}

impl World {
    /// A client asks over its connection, or over a new one.
    pub(crate) fn ask_over_connection(&mut self, network: u8, name: u32, rtype: Rtype) {
        // The ports of UDP are higher.
        self.clients.last_tcp_id = self.clients.last_tcp_id.wrapping_add(1);
        let query = truth::query(self.clients.last_tcp_id, name, rtype, self.random.random());
        let (number, limits, now) = (self.random.random(), self.settings.tcp, self.now);
        let new = || Connection {
            number,
            dialogue: Dialogue::new(limits, now),
            unwritten: Vec::new(),
            unread: Vec::new(),
            stalls_until: 0,
        };
        let connection = self.connections.entry(network).or_insert_with(new);
        connection.unwritten.extend(framed(&query).unwrap());
        self.after(0, Event::Write { network });
    }

    /// The connection of a client that is to read or write; `None` if it is closed, or if the client stalls, and then
    /// it does so later.
    fn at_work(&mut self, network: u8, event: Event) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(&network)?;
        if self.now >= connection.stalls_until && self.random.random_range(0..200) == 0 {
            // Longer than the server waits.
            connection.stalls_until = self.now + self.random.random_range(0..40 * SECOND);
        }
        if self.now < connection.stalls_until {
            let left = connection.stalls_until - self.now;
            self.after(left, event);
            return None;
        }
        self.connections.get_mut(&network)
    }

    fn go_on(&mut self, event: Event) {
        let pause = self.random.random_range(0..20 * MILLISECOND);
        self.after(pause, event);
    }

    /// A client writes some octets.
    pub(crate) fn write(&mut self, network: u8) -> Holds {
        let share = self.random.random_range(0..=4);
        if let Some(connection) = self.at_work(network, Event::Write { network })
            && connection.dialogue.wants_queries()
        {
            let len = connection.unwritten.len() * share / 4;
            let octets = connection.unwritten.drain(..len);
            connection.dialogue.inbox().extend(octets);
            if !connection.unwritten.is_empty() {
                self.go_on(Event::Write { network });
            }
        }
        self.serve(network)
    }

    /// The gateway passes complete queries on, and closes the connection if it has ended.
    pub(crate) fn serve(&mut self, network: u8) -> Holds {
        while let Some(connection) = self.connections.get_mut(&network) {
            let query = connection.dialogue.query().unwrap();
            let Some(query) = query.map(<[u8]>::to_vec) else {
                break;
            };
            connection.dialogue.taken(query.len(), self.now);
            let client = Client::Tcp {
                connection: connection.number,
                address: address(network, network.into()),
                tls: false,
            };
            self.query(usize::from(network) % WORKERS, client, network, &query)?;
        }
        let connection = self.connections.get(&network);
        if let Some(reason) = connection.and_then(|it| it.dialogue.over(self.now)) {
            self.connections.remove(&network);
            self.note(match reason {
                Closed::Idle => "idle connections",
                Closed::Unread => "connections with unread responses",
                _ => "other closed connections",
            });
        }
        Ok(())
    }

    /// A worker has answered, or tells that it does not.
    pub(crate) fn answered(&mut self, number: u64, response: &[u8]) {
        let mut connections = self.connections.iter_mut();
        let Some((network, connection)) = connections.find(|(_, it)| it.number == number) else {
            // Closed meanwhile.
            return;
        };
        let (network, framed) = (*network, self.held.frame(response).unwrap());
        connection.unread.extend(&*framed);
        connection.dialogue.answered(framed, self.now);
        self.go_on(Event::Read { network });
        // Queries may have waited for room.
        self.go_on(Event::Write { network });
    }

    /// A client reads some octets.
    pub(crate) fn read(&mut self, network: u8) -> Holds {
        let now = self.now;
        let tears = self.planted.strikes(Fault::TornStream);
        let share = self.random.random_range(1..=4);
        if let Some(connection) = self.at_work(network, Event::Read { network })
            && let Some(unsent) = connection.dialogue.unsent()
        {
            let len = (unsent.len() * share / 4).max(1);
            let mut octets = unsent[..len].to_vec();
            octets[0] ^= u8::from(tears);
            connection.dialogue.sent(len, now);
            let is_next = connection.unread.starts_with(&octets);
            connection.unread.drain(..len);
            let waits = !connection.unwritten.is_empty();
            require(is_next, Law::OneResponse, || format!("read {octets:02x?}"))?;
            self.go_on(Event::Read { network });
            if waits {
                self.go_on(Event::Write { network });
            }
        }
        self.serve(network)
    }
}
