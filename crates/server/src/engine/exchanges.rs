//! The open exchanges with upstreams: queries without a response. A lookup can have several, so
//! that a late response is accepted. An exchange can outlive its lookup, so that a late response
//! still shows that the upstream is up and its round-trip time.

use dns64_transport::clock::Nanos;
use hashbrown::HashTable;

use super::habits::Form;
use super::heap::Heap;
use crate::cache::GOLDEN;

/// A query to an upstream.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// Its lookup; `None` if that has ended.
    pub(super) lookup: Option<u32>,
    /// The exchange of the same lookup that was opened before it.
    pub(super) before: Option<u32>,
    pub(super) server: usize,
    pub(super) way: Way,
    pub(super) id: u16,
    pub(super) form: Form,
    pub(super) sent_at: Nanos,
    /// Number of earlier queries for the same question to the same upstream.
    pub(super) repeats: u8,
    /// Its timeout has passed: another query was sent, or could have been.
    pub(super) late: bool,
    /// An ICMP error says that the upstream is unreachable: there will be no response.
    pub(super) unreachable: bool,
    /// An error code has come without the question, which may be forged: the response is awaited no longer than usual.
    pub(super) refused: bool,
    /// Its lookup has ended with the answer of another upstream.
    pub(super) outdone: bool,
    /// Time at which it ends without a response.
    pub(super) until: Nanos,
    /// The exchanges at the same port that were opened directly before and after it.
    older: Option<u32>,
    newer: Option<u32>,
    /// Distinguishes it from others in the same slot.
    number: u32,
}

/// The transport of a query to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// UDP from this port.
    Port(usize),
    /// TCP.
    Connection,
    /// TLS, as all queries to this upstream.
    Tls,
}

/// The table of open exchanges.
#[derive(Default)]
pub(super) struct Exchanges {
    slots: slab::Slab<Exchange>,
    by_place: HashTable<u32>,
    /// The newest exchange at each port, by upstream.
    newest: Vec<Vec<Option<u32>>>,
    pub(super) timers: Heap,
    number: u32,
}

/// A new exchange.
pub(super) struct Opening {
    pub(super) lookup: u32,
    /// The newest exchange of the lookup.
    pub(super) before: Option<u32>,
    pub(super) server: usize,
    pub(super) way: Way,
    pub(super) id: u16,
    pub(super) form: Form,
    pub(super) repeats: u8,
    pub(super) now: Nanos,
    pub(super) until: Nanos,
}

impl Exchanges {
    /// An empty table whose exchanges are numbered from here on. After a panic the numbers differ
    /// from those before, so that a late message from a connection is not assigned to another
    /// exchange.
    pub(super) fn numbered_from(number: u32) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// Removes all exchanges; numbering continues.
    pub(super) fn clear(&mut self) {
        *self = Self::numbered_from(self.number);
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get(&self, slot: u32) -> &Exchange {
        &self.slots[slot as usize]
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Exchange {
        &mut self.slots[slot as usize]
    }

    /// Opens an exchange. No other may be open at the same port with the same ID.
    pub(super) fn open(&mut self, opening: Opening) -> u32 {
        self.number = self.number.wrapping_add(1);
        let slot = self.slots.insert(Exchange {
            lookup: Some(opening.lookup),
            before: opening.before,
            server: opening.server,
            way: opening.way,
            id: opening.id,
            form: opening.form,
            sent_at: opening.now,
            repeats: opening.repeats,
            late: false,
            unreachable: false,
            refused: false,
            outdone: false,
            until: opening.until,
            older: None,
            newer: None,
            number: self.number,
        });
        // The number of lookups limits their number.
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        if let Way::Port(port) = opening.way {
            let hash = hash(opening.server, port, opening.id);
            let slots = &self.slots;
            self.by_place.insert_unique(hash, slot, |slot| {
                let other = &slots[*slot as usize];
                match other.way {
                    Way::Port(port) => hash_of(other, port),
                    Way::Connection | Way::Tls => 0,
                }
            });
            let older = self.newest_at(opening.server, port).replace(slot);
            self.get_mut(slot).older = older;
            if let Some(older) = older {
                self.get_mut(older).newer = Some(slot);
            }
        }
        slot
    }

    fn newest_at(&mut self, server: usize, port: usize) -> &mut Option<u32> {
        if server >= self.newest.len() {
            self.newest.resize_with(server + 1, Vec::new);
        }
        let ports = &mut self.newest[server];
        if port >= ports.len() {
            ports.resize(port + 1, None);
        }
        &mut ports[port]
    }

    /// Removes an exchange, also from the list of its lookup, whose newest is `newest`.
    pub(super) fn close(&mut self, slot: u32, newest: Option<&mut Option<u32>>) -> Exchange {
        self.timers.clear(slot);
        let before = self.get(slot).before;
        match newest {
            Some(newest) if *newest == Some(slot) => *newest = before,
            Some(newest) => {
                let after = self.of(*newest).find(|(_, e)| e.before == Some(slot));
                if let Some(after) = after.map(|(after, _)| after) {
                    self.get_mut(after).before = before;
                }
            }
            None => {}
        }
        let exchange = self.slots.remove(slot as usize);
        if let Way::Port(port) = exchange.way {
            self.leave_port(slot, &exchange, port);
        }
        exchange
    }

    /// Removes an exchange from the list of its port.
    fn leave_port(&mut self, slot: u32, exchange: &Exchange, port: usize) {
        let hash = hash_of(exchange, port);
        if let Ok(found) = self.by_place.find_entry(hash, |s| *s == slot) {
            found.remove();
        }
        match exchange.newer {
            Some(newer) => self.get_mut(newer).older = exchange.older,
            None => *self.newest_at(exchange.server, port) = exchange.older,
        }
        if let Some(older) = exchange.older {
            self.get_mut(older).newer = exchange.newer;
        }
    }

    /// The exchange that was opened from this port with this ID.
    pub(super) fn at(&self, server: usize, port: usize, id: u16) -> Option<u32> {
        let same = |slot: &u32| {
            let exchange = &self.slots[*slot as usize];
            (exchange.server, exchange.way, exchange.id) == (server, Way::Port(port), id)
        };
        self.by_place.find(hash(server, port, id), same).copied()
    }

    /// The numbers of all exchanges at one port, beginning with the newest.
    pub(super) fn at_port(&self, server: usize, port: usize) -> Vec<u64> {
        let newest = self.newest.get(server).and_then(|ports| ports.get(port));
        let all = std::iter::successors(newest.copied().flatten(), |slot| self.get(*slot).older);
        all.map(|slot| self.number(slot)).collect()
    }

    /// The exchanges of a lookup, beginning with the newest.
    pub(super) fn of(&self, newest: Option<u32>) -> impl Iterator<Item = (u32, &Exchange)> {
        let each = move |slot: u32| (slot, &self.slots[slot as usize]);
        std::iter::successors(newest.map(each), move |(_, exchange)| {
            exchange.before.map(each)
        })
    }

    /// The number that identifies an exchange permanently.
    pub(super) fn number(&self, slot: u32) -> u64 {
        u64::from(self.slots[slot as usize].number) << 32 | u64::from(slot)
    }

    /// The exchange with a number, if it is still open.
    pub(super) fn numbered(&self, number: u64) -> Option<u32> {
        let [slot, number] = [number & u64::from(u32::MAX), number >> 32]
            .map(|half| u32::try_from(half).unwrap_or_default());
        let found = self.slots.get(slot as usize);
        found.is_some_and(|e| e.number == number).then_some(slot)
    }
}

fn hash_of(exchange: &Exchange, port: usize) -> u64 {
    hash(exchange.server, port, exchange.id)
}

/// The IDs are random here, so that an attacker cannot choose colliding ones: any mixing is
/// sufficient.
fn hash(server: usize, port: usize, id: u16) -> u64 {
    let number = (server as u64) << 32 | (port as u64) << 16 | u64::from(id);
    number.wrapping_mul(GOLDEN).rotate_left(u64::BITS / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(before: Option<u32>, way: Way, id: u16) -> Opening {
        let form = Form {
            edns: true,
            cookie: false,
            exact_case: false,
            again: false,
        };
        Opening {
            lookup: 1,
            before,
            server: 0,
            way,
            id,
            form,
            repeats: 0,
            now: 0,
            until: 10,
        }
    }

    #[test]
    fn exchanges_of_a_lookup_can_be_closed_in_any_order() {
        for gone in [0, 1, 2] {
            let mut table = Exchanges::default();
            let mut newest = None;
            let mut slots = Vec::new();
            for id in 0..3 {
                let slot = table.open(opening(newest, Way::Port(5), id));
                newest = Some(slot);
                slots.push(slot);
            }
            let id = table.close(slots.remove(gone), Some(&mut newest)).id;
            assert_eq!(table.at(0, 5, id), None);
            let left: Vec<_> = table.of(newest).map(|(slot, _)| slot).collect();
            slots.reverse();
            assert_eq!(left, slots);
            let numbers: Vec<_> = slots.iter().map(|slot| table.number(*slot)).collect();
            assert_eq!(table.at_port(0, 5), numbers);
        }
    }

    proptest::proptest! {
        /// Exchanges are found by their port, beginning with the newest, after any sequence of
        /// openings and closings.
        #[test]
        fn exchanges_are_found_by_port(
            steps in proptest::collection::vec((0..2_usize, 0..3_usize, 0..8_usize), 1..60),
        ) {
            let mut table = Exchanges::default();
            let mut open: Vec<(usize, Way, u32)> = Vec::new();
            for (id, (server, port, gone)) in steps.into_iter().enumerate() {
                let way = [Way::Port(0), Way::Port(7), Way::Connection][port];
                let id = u16::try_from(id).unwrap();
                let slot = table.open(Opening { server, ..opening(None, way, id) });
                open.push((server, way, slot));
                if gone < open.len() {
                    let (.., slot) = open.remove(gone);
                    table.close(slot, None);
                }
                for (server, port) in [(0, 0), (0, 7), (1, 0), (1, 7), (0, 1), (2, 0)] {
                    let there = open.iter().rev();
                    let there = there.filter(|e| (e.0, e.1) == (server, Way::Port(port)));
                    let expected: Vec<_> = there.map(|(.., slot)| table.number(*slot)).collect();
                    proptest::prop_assert_eq!(table.at_port(server, port), expected);
                }
            }
        }
    }

    #[test]
    fn number_of_tcp_exchange_is_valid_for_one_exchange() {
        let mut table = Exchanges::default();
        let first = table.open(opening(None, Way::Connection, 1));
        let number = table.number(first);
        assert_eq!(table.numbered(number), Some(first));
        table.close(first, None);
        let second = table.open(opening(None, Way::Connection, 2));
        assert_eq!(second, first, "the same place");
        assert_eq!(table.numbered(number), None);
        table.clear();
        assert_eq!(table.open(opening(None, Way::Connection, 3)), first);
        assert_eq!(table.numbered(number), None, "all were forgotten");
    }
}
