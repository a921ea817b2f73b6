//! The questions that upstreams are queried for: one lookup for each question, shared by all its
//! clients.

use dns64_transport::clock::Nanos;
use dns64_wire::codes::Rcode;
use hashbrown::HashTable;

use super::heap::Heap;
use super::upstreams::Asked;
use crate::cache::{Key, KeyBuf};

/// A question that upstreams are queried for.
pub(super) struct Lookup {
    /// Its name in the case of the query: random if configured.
    pub(super) question: KeyBuf,
    /// The first of the queries that wait for it.
    pub(super) waiters: Waiter,
    pub(super) begun: Nanos,
    pub(super) asked: Asked,
    /// The newest of its open exchanges; each refers to the one before.
    pub(super) exchanges: Option<u32>,
    /// It has no attempts left, and waits for late responses.
    pub(super) resting: bool,
    /// It uses TCP only, because responses to it are forged.
    pub(super) connections_only: bool,
    /// Number of UDP responses that match except for the ID or the question.
    pub(super) near_misses: u8,
    /// Responses of an upstream in another case than the query.
    pub(super) other_case: Option<OtherCase>,
    /// The last response code of a failure, and its extended error, if an upstream sent one.
    pub(super) failed: Option<(Rcode, Option<u16>)>,
    /// The upstreams that failed it, as a set of numbers.
    pub(super) failed_by: u32,
}

/// Responses of an upstream to one question, of which the first had another case than its query.
pub(super) struct OtherCase {
    pub(super) server: usize,
    /// The fingerprint of the last one, and the number of equal ones.
    pub(super) fingerprint: u64,
    pub(super) responses: u8,
    /// Number of queries for them.
    pub(super) asked: u8,
}

/// A part of a query that waits, as two times the number of the query plus the number of the part;
/// or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter(pub(super) u32);

impl Waiter {
    pub(super) const NOBODY: Self = Self(u32::MAX);
}

/// The table of lookups.
pub(super) struct Lookups {
    slots: slab::Slab<Lookup>,
    by_key: HashTable<u32>,
    /// Lookups without waiting queries, by the time since when.
    abandoned: Heap,
    /// Lookups of other workers, by the time until which their outcome is awaited.
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

    /// Number of lookups of this worker.
    pub(super) fn asked_here(&self) -> usize {
        self.slots.len() - self.elsewhere.len()
    }

    /// The lookup of a question.
    pub(super) fn find(&self, key: &Key<'_>) -> Option<u32> {
        let same = |slot: &u32| self.question(*slot) == *key;
        self.by_key.find(key.hash(), same).copied()
    }

    /// Adds a lookup of a question that has none, without waiting queries.
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
            failed_by: 0,
        });
        // The settings limit their number to far less than 2^32.
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

    pub(super) fn peek(&self, slot: u32) -> &Lookup {
        &self.slots[slot as usize]
    }

    /// Sets since when no query waits for a lookup; `None` if one does.
    pub(super) fn set_abandoned(&mut self, slot: u32, since: Option<Nanos>) {
        match since {
            Some(since) => self.abandoned.set(slot, since),
            None => self.abandoned.clear(slot),
        }
    }

    /// The lookup that has had no waiting query for the longest time.
    pub(super) fn oldest_abandoned(&self) -> Option<u32> {
        self.abandoned.first().map(|(_, slot)| slot)
    }

    /// Sets until when the outcome of another worker is awaited for a lookup.
    pub(super) fn set_elsewhere(&mut self, slot: u32, until: Option<Nanos>) {
        match until {
            Some(until) => self.elsewhere.set(slot, until),
            None => self.elsewhere.clear(slot),
        }
    }

    /// Whether another worker has the claim for a lookup.
    pub(super) fn is_elsewhere(&self, slot: u32) -> bool {
        self.elsewhere.has(slot)
    }

    /// Removes the deadline of a lookup whose claim of another worker has expired; returns the
    /// lookup.
    pub(super) fn take_elsewhere(&mut self, now: Nanos) -> Option<u32> {
        self.elsewhere.take(now)
    }

    /// Time at which the next claim of another worker expires.
    pub(super) fn next_elsewhere(&self) -> Option<Nanos> {
        self.elsewhere.first().map(|(until, _)| until)
    }

    /// Removes a lookup; returns the first of the queries that wait for it.
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

    /// The slots of the lookups with waiting queries, and their start times.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = (u32, Nanos)> {
        let waited_for = self
            .slots
            .iter()
            .filter(|(_, l)| l.waiters != Waiter::NOBODY);
        waited_for.filter_map(|(slot, lookup)| Some((u32::try_from(slot).ok()?, lookup.begun)))
    }

    /// Whether a lookup with this start time exists and has waiting queries.
    pub(super) fn is_waited_for(&self, slot: u32, begun: Nanos) -> bool {
        let lookup = self.slots.get(slot as usize);
        lookup.is_some_and(|l| l.begun == begun && l.waiters != Waiter::NOBODY)
    }

    /// Whether a lookup has waiting queries; `None` if it has ended.
    pub(super) fn has_waiters(&self, slot: u32) -> Option<bool> {
        let lookup = self.slots.get(slot as usize)?;
        Some(lookup.waiters != Waiter::NOBODY)
    }

    /// The slots of all lookups.
    pub(super) fn all(&self) -> Vec<u32> {
        let all = self.slots.iter().map(|(slot, _)| u32::try_from(slot));
        all.filter_map(Result::ok).collect()
    }
}
