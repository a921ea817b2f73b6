//! Questions in flight to upstreams: one for each question, however many clients ask it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use dns64_transport::clock::Nanos;
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::name::NameBuf;
use hashbrown::HashTable;

use super::upstreams::Asked;
use crate::cache::Key;

/// A question in flight.
pub(super) struct Lookup {
    pub(super) key: Box<[u8]>,
    hash: u64,
    /// As it is asked: in random case if that is wanted.
    pub(super) name: NameBuf,
    pub(super) rtype: Rtype,
    pub(super) class: Class,
    pub(super) do_bit: bool,
    pub(super) cd: bool,
    /// First of the queries that wait for it.
    pub(super) waiters: Waiter,
    pub(super) asked: Asked,
    /// Where it was asked last.
    pub(super) exchange: Exchange,
    pub(super) sent_at: Nanos,
    /// Tells this lookup from earlier ones in the same place.
    pub(super) generation: u32,
    /// The last response code that an upstream gave for a failure, and its extended error, if any
    /// did.
    pub(super) failed: Option<(Rcode, Option<u16>)>,
}

/// Where a question is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// Nowhere at the moment.
    None,
    /// In a datagram from a port, with an ID.
    Datagram { server: usize, port: usize, id: u16 },
    /// Over a connection, with an ID.
    Connection { server: usize, id: u16 },
}

/// One of the two things that a query can wait for, as number of the query times two plus
/// number of the part; or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter(pub(super) u32);

impl Waiter {
    pub(super) const NOBODY: Self = Self(u32::MAX);
}

/// The table of questions in flight.
pub(super) struct Lookups {
    slots: slab::Slab<Lookup>,
    by_key: HashTable<u32>,
    by_exchange: HashTable<u32>,
    hashing: RandomState,
    generation: u32,
    capacity: usize,
}

/// The table is full.
pub(super) struct Full;

/// What is asked.
pub(super) struct Question<'a> {
    pub(super) name: &'a NameBuf,
    pub(super) rtype: Rtype,
    pub(super) class: Class,
    pub(super) do_bit: bool,
    pub(super) cd: bool,
}

impl Question<'_> {
    pub(super) fn key(&self) -> Key {
        Key::new(self.name, self.rtype, self.class, self.do_bit, self.cd)
    }
}

impl Lookups {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            slots: slab::Slab::new(),
            by_key: HashTable::new(),
            by_exchange: HashTable::new(),
            hashing: RandomState::new(),
            generation: 0,
            capacity,
        }
    }

    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The lookup of a question that is in flight already.
    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        let hash = self.hashing.hash_one(key.as_bytes());
        let same = |slot: &u32| *self.slots[*slot as usize].key == *key.as_bytes();
        self.by_key.find(hash, same).copied()
    }

    /// Adds a lookup; the question must not be in flight.
    pub(super) fn add(&mut self, question: &Question<'_>, key: &Key) -> Result<u32, Full> {
        if self.slots.len() >= self.capacity {
            return Err(Full);
        }
        let hash = self.hashing.hash_one(key.as_bytes());
        self.generation = self.generation.wrapping_add(1);
        let slot = self.slots.insert(Lookup {
            key: key.as_bytes().into(),
            hash,
            name: question.name.clone(),
            rtype: question.rtype,
            class: question.class,
            do_bit: question.do_bit,
            cd: question.cd,
            waiters: Waiter::NOBODY,
            asked: Asked::default(),
            exchange: Exchange::None,
            sent_at: 0,
            generation: self.generation,
            failed: None,
        });
        // The capacity is far below 2^32.
        let slot = u32::try_from(slot).map_err(|_| Full)?;
        let slots = &self.slots;
        self.by_key
            .insert_unique(hash, slot, |slot| slots[*slot as usize].hash);
        Ok(slot)
    }

    pub(super) fn get(&mut self, slot: u32) -> &mut Lookup {
        &mut self.slots[slot as usize]
    }

    /// The lookup in a place, if it is still the one of that generation.
    pub(super) fn same(&self, slot: u32, generation: u32) -> bool {
        let found = self.slots.get(slot as usize);
        found.is_some_and(|lookup| lookup.generation == generation)
    }

    /// The lookup that was asked from this port with this ID.
    pub(super) fn at(&self, server: usize, port: usize, id: u16) -> Option<u32> {
        let exchange = Exchange::Datagram { server, port, id };
        let same = |slot: &u32| self.slots[*slot as usize].exchange == exchange;
        let hash = self.hash_exchange(server, port, id);
        self.by_exchange.find(hash, same).copied()
    }

    /// Notes where a lookup is in flight now; it must be nowhere before.
    pub(super) fn depart(&mut self, slot: u32, exchange: Exchange) {
        self.slots[slot as usize].exchange = exchange;
        if let Exchange::Datagram { server, port, id } = exchange {
            let hash = self.hash_exchange(server, port, id);
            let Self {
                slots,
                by_exchange,
                hashing,
                ..
            } = self;
            by_exchange.insert_unique(hash, slot, |slot| match slots[*slot as usize].exchange {
                Exchange::Datagram { server, port, id } => {
                    hashing.hash_one(exchange_number(server, port, id))
                }
                _ => 0,
            });
        }
    }

    /// A lookup is in flight nowhere any more; tells where it was.
    pub(super) fn arrive(&mut self, slot: u32) -> Exchange {
        let exchange = self.slots[slot as usize].exchange;
        if let Exchange::Datagram { server, port, id } = exchange {
            let hash = self.hash_exchange(server, port, id);
            if let Ok(found) = self.by_exchange.find_entry(hash, |s| *s == slot) {
                found.remove();
            }
        }
        self.slots[slot as usize].exchange = Exchange::None;
        exchange
    }

    /// Takes a lookup out; it must be in flight nowhere.
    pub(super) fn remove(&mut self, slot: u32) -> Lookup {
        let lookup = self.slots.remove(slot as usize);
        if let Ok(found) = self.by_key.find_entry(lookup.hash, |s| *s == slot) {
            found.remove();
        }
        lookup
    }

    /// The places of all lookups.
    pub(super) fn all(&self) -> Vec<u32> {
        let all = self.slots.iter().map(|(slot, _)| u32::try_from(slot));
        all.filter_map(Result::ok).collect()
    }

    fn hash_exchange(&self, server: usize, port: usize, id: u16) -> u64 {
        self.hashing.hash_one(exchange_number(server, port, id))
    }
}

fn exchange_number(server: usize, port: usize, id: u16) -> u64 {
    (server as u64) << 32 | (port as u64) << 16 | u64::from(id)
}
