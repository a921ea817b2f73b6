//! Questions that upstreams are asked: one for each question, however many clients ask it.

use dns64_transport::clock::Nanos;
use dns64_wire::codes::Rcode;
use hashbrown::HashTable;

use super::heap::Heap;
use super::upstreams::Asked;
use crate::cache::{Key, KeyBuf};

/// A question that upstreams are asked.
pub(super) struct Lookup {
    /// Its name as it is asked: in random case if that is wanted.
    pub(super) question: KeyBuf,
    /// First of the queries that wait for it.
    pub(super) waiters: Waiter,
    pub(super) begun: Nanos,
    pub(super) asked: Asked,
    /// The newest of its open exchanges; each knows the one before.
    pub(super) exchanges: Option<u32>,
    /// It has been asked as often as it may be, and waits for late answers.
    pub(super) resting: bool,
    /// It is asked over connections only: somebody forges answers to it.
    pub(super) connections_only: bool,
    /// Datagrams that were nearly answers: all but the ID was right, or all but the question.
    pub(super) near_misses: u8,
    /// The fingerprint of an answer that came in another case than the question.
    pub(super) other_case: Option<u64>,
    /// The last response code that an upstream gave for a failure, and its extended error, if any
    /// did.
    pub(super) failed: Option<(Rcode, Option<u16>)>,
}

/// One of the two things that a query can wait for, as number of the query times two plus
/// number of the part; or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter(pub(super) u32);

impl Waiter {
    pub(super) const NOBODY: Self = Self(u32::MAX);
}

/// The table of lookups.
pub(super) struct Lookups {
    slots: slab::Slab<Lookup>,
    by_key: HashTable<u32>,
    /// Those that nobody waits for, by the moment since when.
    abandoned: Heap,
    /// Those that another worker asks, by the moment until when it is waited for.
    elsewhere: Heap,
}

impl Lookups {
    pub(super) fn new() -> Self {
        Self {
            slots: slab::Slab::new(),
            by_key: HashTable::new(),
            abandoned: Heap::default(),
            elsewhere: Heap::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many of them are asked here.
    pub(super) fn asked_here(&self) -> usize {
        self.slots.len() - self.elsewhere.len()
    }

    /// The lookup of a question.
    pub(super) fn find(&self, key: &Key<'_>) -> Option<u32> {
        let same = |slot: &u32| self.question(*slot) == *key;
        self.by_key.find(key.hash(), same).copied()
    }

    /// Adds a lookup of a question that has none, for which nobody waits yet.
    pub(super) fn add(&mut self, question: &Key<'_>, now: Nanos) -> u32 {
        let slot = self.slots.insert(Lookup {
            question: question.to_buf(),
            waiters: Waiter::NOBODY,
            begun: now,
            asked: Asked::default(),
            exchanges: None,
            resting: false,
            connections_only: false,
            near_misses: 0,
            other_case: None,
            failed: None,
        });
        // The settings bound their number far below 2^32.
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        let slots = &self.slots;
        self.by_key.insert_unique(question.hash(), slot, |slot| {
            slots[*slot as usize].question.hash()
        });
        slot
    }

    /// The question of a lookup.
    pub(super) fn question(&self, slot: u32) -> Key<'_> {
        self.slots[slot as usize].question.as_key()
    }

    pub(super) fn get(&mut self, slot: u32) -> &mut Lookup {
        &mut self.slots[slot as usize]
    }

    /// Notes whether anybody waits for a lookup.
    pub(super) fn set_abandoned(&mut self, slot: u32, since: Option<Nanos>) {
        match since {
            Some(since) => self.abandoned.set(slot, since),
            None => self.abandoned.clear(slot),
        }
    }

    /// The lookup that nobody has waited for for the longest time.
    pub(super) fn oldest_abandoned(&self) -> Option<u32> {
        self.abandoned.first().map(|(_, slot)| slot)
    }

    /// Notes until when another worker is waited for, which asks a lookup.
    pub(super) fn set_elsewhere(&mut self, slot: u32, until: Option<Nanos>) {
        match until {
            Some(until) => self.elsewhere.set(slot, until),
            None => self.elsewhere.clear(slot),
        }
    }

    /// Whether another worker asks a lookup.
    pub(super) fn is_elsewhere(&self, slot: u32) -> bool {
        self.elsewhere.has(slot)
    }

    /// A lookup whose other worker has been waited for for long enough.
    pub(super) fn take_elsewhere(&mut self, now: Nanos) -> Option<u32> {
        self.elsewhere.take(now)
    }

    /// When there is such a lookup.
    pub(super) fn next_elsewhere(&self) -> Option<Nanos> {
        self.elsewhere.first().map(|(until, _)| until)
    }

    /// Takes a lookup out; returns the first of those that wait for it.
    pub(super) fn remove(&mut self, slot: u32) -> Waiter {
        self.abandoned.clear(slot);
        self.elsewhere.clear(slot);
        let lookup = self.slots.remove(slot as usize);
        let hash = lookup.question.hash();
        if let Ok(found) = self.by_key.find_entry(hash, |s| *s == slot) {
            found.remove();
        }
        lookup.waiters
    }

    /// The places of those that somebody waits for, and since when each is asked for.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = (u32, Nanos)> {
        let waited_for = self
            .slots
            .iter()
            .filter(|(_, l)| l.waiters != Waiter::NOBODY);
        waited_for.filter_map(|(slot, lookup)| Some((u32::try_from(slot).ok()?, lookup.begun)))
    }

    /// Whether a lookup of that moment is there, and somebody waits for it.
    pub(super) fn is_waited_for(&self, slot: u32, begun: Nanos) -> bool {
        let lookup = self.slots.get(slot as usize);
        lookup.is_some_and(|l| l.begun == begun && l.waiters != Waiter::NOBODY)
    }

    /// Whether anybody waits for a lookup; `None` if it is no more.
    pub(super) fn has_waiters(&self, slot: u32) -> Option<bool> {
        let lookup = self.slots.get(slot as usize)?;
        Some(lookup.waiters != Waiter::NOBODY)
    }

    /// The places of all lookups.
    pub(super) fn all(&self) -> Vec<u32> {
        let all = self.slots.iter().map(|(slot, _)| u32::try_from(slot));
        all.filter_map(Result::ok).collect()
    }
}
