//! Clients: what they ask and hear.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::{FRAME_BYTES, Origin};
use dns64_wire::codes::{Rcode, Rtype};
use dns64d::engine::actions::Client;
use rand::RngExt as _;

use super::faults::Fault;
use super::laws::{Heard, Holds, Law, Pending, require};
use super::truth;
use super::world::{Event, WORKERS, World};

/// A query is answered after this time at the latest: 4.5 s, and a turn.
const ANSWERED_NS: Nanos = 4_550_000_000;

/// A query that is older is not answered any more: the machine has slept meanwhile.
const LATE_NS: Nanos = 5 * SECOND;

/// Networks of clients: of one that asks little, and of one that floods.
const MODEST: u8 = 1;
const FLOODING: u8 = 9;

/// Ports of connections are the numbers of networks.
const TCP_PORT_MAX: u16 = FLOODING as u16;

const POPULAR: u32 = 500;
const NAMES: u32 = 1_000_000;

/// How much clients ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Regime {
    Quiet,
    #[default]
    Normal,
    Busy,
    Flood,
}

#[derive(Default)]
pub(crate) struct Clients {
    regime: Regime,
    regime_until: Nanos,
    /// By port and ID of the client's query.
    pending: BTreeMap<u32, Pending>,
    pub(crate) queries: u64,
    pub(crate) goal: u64,
    pub(crate) last_query_at: Nanos,
    pub(crate) last_tcp_id: u16,
    /// Queries of workers that panicked.
    lost: u64,
    /// Queries that waited when the machine slept.
    late: u64,
}

/// The address of a client.
pub(crate) fn address(network: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, network, 1], port))
}

fn join(port: u16, id: u16) -> u32 {
    u32::from(port) << 16 | u32::from(id)
}

/// Port and ID of a message.
fn key(client: Client, message: &[u8]) -> u32 {
    let id = u16::from_be_bytes([message[0], message[1]]);
    join(client.address().port(), id)
}

impl Clients {
    /// Whether they have asked all that they will ask.
    pub(crate) fn are_done(&self) -> bool {
        self.queries >= self.goal
    }

    /// The queries of a worker are lost.
    pub(crate) fn lose(&mut self, worker: usize) {
        self.lost += self.forget(|pending| pending.worker == worker);
    }

    /// The clock jumps to this time: the queries before are not answered.
    pub(crate) fn expire(&mut self, now: Nanos) {
        self.late += self.forget(|pending| now - pending.asked_at > LATE_NS);
    }

    fn forget(&mut self, which: impl Fn(&Pending) -> bool) -> u64 {
        let before = self.pending.len();
        self.pending.retain(|_, pending| !which(pending));
        (before - self.pending.len()) as u64
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            queries,
            lost,
            late,
            ..
        } = self;
        write!(f, "{queries} queries, {lost} lost by panics, {late} late")
    }
}

impl World {
    /// Clients ask, and will ask again.
    pub(crate) fn load(&mut self) -> Holds {
        if self.clients.are_done() {
            return Ok(());
        }
        if self.now >= self.clients.regime_until {
            let (regime, longest_s) = match self.random.random_range(0..4) {
                0 => (Regime::Quiet, 900),
                1 => (Regime::Normal, 900),
                2 => (Regime::Busy, 20),
                _ => (Regime::Flood, 5),
            };
            self.clients.regime = regime;
            self.clients.regime_until = self.now + self.random.random_range(1..=longest_s) * SECOND;
        }
        let (most, gap_ms) = match self.clients.regime {
            Regime::Quiet => (1, 10_000),
            Regime::Normal => (1, 1000),
            Regime::Busy => (8, 100),
            Regime::Flood => (128, 500),
        };
        for _ in 0..self.random.random_range(1..=most) {
            let network = match self.clients.regime {
                Regime::Flood => FLOODING,
                _ => self.random.random_range(2..FLOODING),
            };
            self.ask(network)?;
        }
        if self.random.random_range(0..4) == 0 {
            self.ask(MODEST)?;
        }
        (MODEST..=FLOODING).try_for_each(|network| self.serve(network))?;
        self.is_bounded()?;
        self.none_waits_too_long()?;
        let delay = self.random.random_range(0..gap_ms * SECOND / 1000);
        self.after(delay, Event::Load);
        Ok(())
    }

    fn name(&mut self, network: u8) -> u32 {
        match network {
            FLOODING => truth::DEAD + self.random.random_range(0..NAMES),
            MODEST => self.random.random_range(0..POPULAR),
            _ if self.random.random_range(0..10) > 0 => {
                // The lower, the more popular.
                let below = self.random.random_range(1..=POPULAR);
                self.random.random_range(0..below)
            }
            _ => self.random.random_range(0..NAMES),
        }
    }

    /// The port and the ID of no other query that waits.
    fn unused_key(&mut self) -> [u16; 2] {
        loop {
            let [port, id] = self.random.random();
            let is_used = self.clients.pending.contains_key(&join(port, id));
            if port > TCP_PORT_MAX && !is_used {
                return [port, id];
            }
        }
    }

    fn ask(&mut self, network: u8) -> Holds {
        let name = self.name(network);
        let rtype = match self.random.random_range(0..10) {
            0 => Rtype::TXT,
            1..=3 => Rtype::A,
            _ => Rtype::AAAA,
        };
        if self.random.random_range(0..20) == 0 {
            self.ask_over_connection(network, name, rtype);
            return Ok(());
        }
        let [port, id] = self.unused_key();
        let query = truth::query(id, name, rtype, self.random.random());
        let network_seen = match self.planted.is(Fault::OneNetwork) {
            true => FLOODING,
            false => network,
        };
        let client = Client::Udp(Origin::new(address(network_seen, port)));
        self.query(usize::from(port) % WORKERS, client, network, &query)
    }

    /// A query of this network reaches a worker.
    pub(crate) fn query(
        &mut self,
        worker: usize,
        client: Client,
        network: u8,
        query: &[u8],
    ) -> Holds {
        let (name, rtype) = truth::asked(query);
        let pending = Pending {
            name,
            rtype,
            query: query.to_vec(),
            worker,
            asked_at: self.now,
            is_modest: network == MODEST,
            was_calm: self.is_calm(),
        };
        self.clients.pending.insert(key(client, query), pending);
        self.clients.queries += 1;
        self.clients.last_query_at = self.now;
        if self.planted.strikes(Fault::LostQuery) {
            return Ok(());
        }
        let late = match worker == 1 && self.planted.is(Fault::LateClock) {
            true => 60 * SECOND,
            false => 0,
        };
        let (mut frame, mut len) = ([0; FRAME_BYTES], 0);
        self.call(worker, |engine, now, actions| {
            len = engine.on_query(client, query, &mut frame, now - late, actions);
        })?;
        match len {
            0 => Ok(()),
            len => self.respond(client, &frame[..len]),
        }
    }

    /// The server responds to a client, unless a planted fault changes it.
    pub(crate) fn respond(&mut self, client: Client, response: &[u8]) -> Holds {
        if let Client::Tcp { connection, .. } = client {
            self.answered(connection, response);
        }
        if response.is_empty() {
            // The query was dropped, and is counted.
            return Ok(());
        }
        let mut response = response.to_vec();
        let mut key = key(client, &response);
        self.planted.damage(&mut response);
        if self.planted.strikes(Fault::LostResponse) {
            return Ok(());
        }
        if self.planted.strikes(Fault::LateResponse) {
            self.after(LATE_NS + SECOND, Event::Late { key, response });
            return Ok(());
        }
        if self.planted.strikes(Fault::ForeignId) {
            key ^= 1;
        }
        if self.planted.strikes(Fault::DoubledResponse) {
            self.heard(key, &response)?;
        }
        self.heard(key, &response)
    }

    /// A client hears a response.
    pub(crate) fn heard(&mut self, key: u32, response: &[u8]) -> Holds {
        let Some(pending) = self.clients.pending.remove(&key) else {
            return require(false, Law::OneResponse, || {
                format!("{key:08x}: {response:02x?}")
            });
        };
        let is_late = self.now - pending.asked_at > LATE_NS;
        require(!is_late, Law::AnsweredOrCounted, || {
            format!("{pending:?} at {}", self.now)
        })?;
        let since = self.healthy_since;
        let heard = Heard {
            pending: &pending,
            response,
            now: self.now,
            is_calm: pending.was_calm && since.is_some_and(|since| since < pending.asked_at),
        };
        let rcode = heard.check(&self.expiry)?;
        self.note(match rcode {
            Rcode::SERVFAIL => "SERVFAIL",
            _ if pending.asked_at == self.now => "answers at once",
            _ => "answers later",
        });
        for octet in response.iter().chain(&self.now.to_be_bytes()) {
            self.digest = (self.digest ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }

    fn none_waits_too_long(&self) -> Holds {
        let mut pending = self.clients.pending.values();
        let oldest = pending.find(|pending| self.now - pending.asked_at > ANSWERED_NS);
        require(oldest.is_none(), Law::AnsweredOrCounted, || {
            format!("{oldest:?} at {}", self.now)
        })
    }

    pub(crate) fn all_are_answered_or_counted(&self) -> Holds {
        let clients = &self.clients;
        let left = clients.pending.values().next();
        require(left.is_none(), Law::AnsweredOrCounted, || {
            format!("{left:?}")
        })?;
        let (mut counted, mut late) = (0, 0);
        for counts in &self.counts {
            counted += counts.queries_udp.get() + counts.queries_tcp.get();
            late += counts.dropped_late.get();
        }
        let is_right = (counted, late) == (clients.queries, clients.late);
        require(is_right, Law::AnsweredOrCounted, || {
            format!("{clients}, and counted are {counted} and {late}")
        })
    }
}
