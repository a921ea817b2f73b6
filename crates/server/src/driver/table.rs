//! The places of responses in the maps of the program.
//!
//! A response that the program may be reading is never overwritten: a new response gets a place that has not been in
//! any bucket for at least a second, and is added to a bucket only after it is complete. A program that started earlier
//! and was delayed, for example by preemption, detects from the stamp that its response changed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use dns64_transport::xdp::program::XdpError;

use super::layout::{self, ANSWERS, BUCKETS, Bucket, Item, WAYS};

/// The destination of writes: the maps of the program, or memory in tests.
pub(super) trait Store {
    /// Writes a response.
    fn set_answer(&self, number: u32, octets: &[u8]) -> Result<(), XdpError>;
    /// Writes a bucket.
    fn set_bucket(&self, number: u32, octets: &Bucket) -> Result<(), XdpError>;
}

/// The reciprocal of the share of places that is kept free for new responses.
const FREE_SHARE: usize = 16;

/// The places.
#[derive(Debug)]
pub(super) struct Table {
    seed: u64,
    /// The response at each place.
    held: Vec<Option<Held>>,
    /// Places by the hash of the response in the cache.
    by_hash: HashMap<u64, u32>,
    buckets: Vec<[u64; WAYS]>,
    free: Vec<u32>,
    /// Places that were freed in this second, and in the previous one.
    resting: [Vec<u32>; 2],
    stamp: u64,
    /// The clock hand: position of the last place checked for eviction.
    hand: usize,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    hash: u64,
    bucket: u32,
    way: usize,
    expires_s: u32,
    /// Whether it was sent since the hand passed it.
    used: bool,
}

impl Table {
    /// Creates an empty table; the seed of the hashes must be random.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            held: vec![None; ANSWERS as usize],
            by_hash: HashMap::new(),
            buckets: vec![[0; WAYS]; BUCKETS as usize],
            free: (0..ANSWERS).rev().collect(),
            resting: [Vec::new(), Vec::new()],
            stamp: 0,
            hand: 0,
        }
    }

    /// The hashes of all responses in the table.
    #[cfg(test)]
    pub(super) fn hashes(&self) -> Vec<u64> {
        self.by_hash.keys().copied().collect()
    }

    /// Number of responses in the table.
    pub(super) fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Adds a response, which replaces an older one to the same question; `false`: no place is free.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub(super) fn publish(&mut self, store: &impl Store, item: &Item) -> Result<bool, XdpError> {
        let Some(number) = self.free.pop() else {
            return Ok(false);
        };
        self.stamp += 1;
        store.set_answer(number, &item.encode(self.stamp))?;
        self.withdraw(store, item.hash)?;
        let place = item.place(self.seed);
        let bucket = layout::bucket(place);
        let ways = self.buckets[bucket as usize];
        let empty = ways.iter().position(|way| *way == 0);
        // In a full bucket, an arbitrary entry is evicted.
        let any = usize::try_from(self.stamp % WAYS as u64).unwrap_or_default();
        let way = empty.unwrap_or(any);
        if empty.is_none() {
            self.take_out(store, bucket, way)?;
        }
        self.buckets[bucket as usize][way] = layout::way(place, number);
        self.write_bucket(store, bucket)?;
        self.held[number as usize] = Some(Held {
            hash: item.hash,
            bucket,
            way,
            expires_s: item.expires_s,
            used: true,
        });
        self.by_hash.insert(item.hash, number);
        Ok(true)
    }

    /// Removes a response, if it is there.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub(super) fn withdraw(&mut self, store: &impl Store, hash: u64) -> Result<(), XdpError> {
        match self
            .by_hash
            .get(&hash)
            .and_then(|number| self.held[*number as usize])
        {
            Some(held) => self.take_out(store, held.bucket, held.way),
            None => Ok(()),
        }
    }

    /// Removes all responses.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub(super) fn clear(&mut self, store: &impl Store) -> Result<(), XdpError> {
        for bucket in 0..BUCKETS {
            let ways = std::mem::take(&mut self.buckets[bucket as usize]);
            if ways != [0; WAYS] {
                self.write_bucket(store, bucket)?;
            }
        }
        for number in self.by_hash.drain().map(|(_, number)| number) {
            self.held[number as usize] = None;
            self.resting[0].push(number);
        }
        Ok(())
    }

    /// Marks the response at a place as sent; returns its hash.
    pub(super) fn note_used(&mut self, number: usize) -> Option<u64> {
        let held = self.held.get_mut(number)?.as_mut()?;
        held.used = true;
        Some(held.hash)
    }

    /// Does the work of each second. Places that were freed before the last second become free for new responses. To
    /// free enough places, expired and unused responses are evicted, and the hashes of those that have not expired are
    /// passed on.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub(super) fn next_second(
        &mut self,
        store: &impl Store,
        now_s: u32,
        mut gone: impl FnMut(u64),
    ) -> Result<(), XdpError> {
        let [now, before] = &mut self.resting;
        self.free.append(before);
        std::mem::swap(now, before);
        let enough = self.held.len() / FREE_SHARE;
        let coming = self.free.len() + self.resting[1].len();
        let mut wanted = enough.saturating_sub(coming);
        // The first round clears all use marks; the second finds responses without one.
        for _ in 0..2 * self.held.len() {
            if wanted == 0 {
                break;
            }
            self.hand = (self.hand + 1) % self.held.len();
            let Some(held) = &mut self.held[self.hand] else {
                continue;
            };
            if held.used && held.expires_s > now_s {
                held.used = false;
                continue;
            }
            let held = *held;
            self.take_out(store, held.bucket, held.way)?;
            if held.expires_s > now_s {
                gone(held.hash);
            }
            wanted -= 1;
        }
        Ok(())
    }

    /// Removes an entry from a bucket.
    fn take_out(&mut self, store: &impl Store, bucket: u32, way: usize) -> Result<(), XdpError> {
        let word = std::mem::take(&mut self.buckets[bucket as usize][way]);
        self.write_bucket(store, bucket)?;
        // The lower half is the number plus 1.
        let number = u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default();
        let Some(number) = number.checked_sub(1) else {
            return Ok(());
        };
        if let Some(held) = self.held[number as usize].take()
            && let Entry::Occupied(entry) = self.by_hash.entry(held.hash)
            && *entry.get() == number
        {
            entry.remove();
        }
        self.resting[0].push(number);
        Ok(())
    }

    fn write_bucket(&self, store: &impl Store, bucket: u32) -> Result<(), XdpError> {
        store.set_bucket(
            bucket,
            &layout::encode_bucket(&self.buckets[bucket as usize]),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The maps, and the number of writes to them.
    #[derive(Default)]
    struct Memory {
        answers: RefCell<HashMap<u32, Vec<u8>>>,
        buckets: RefCell<HashMap<u32, Bucket>>,
    }

    impl Store for Memory {
        fn set_answer(&self, number: u32, octets: &[u8]) -> Result<(), XdpError> {
            let is_small = self.buckets.borrow().len() < 10;
            assert!(
                !is_small || !self.numbers().contains(&number),
                "it may be read"
            );
            self.answers.borrow_mut().insert(number, octets.to_vec());
            Ok(())
        }

        fn set_bucket(&self, number: u32, octets: &Bucket) -> Result<(), XdpError> {
            self.buckets.borrow_mut().insert(number, *octets);
            Ok(())
        }
    }

    impl Memory {
        /// The places that buckets refer to.
        fn numbers(&self) -> Vec<u32> {
            let buckets = self.buckets.borrow();
            let words = buckets
                .values()
                .flat_map(|bucket| bucket.as_chunks::<8>().0);
            let numbers = words.map(|word| u64::from_ne_bytes(*word) & 0xffff_ffff);
            let numbers = numbers.filter(|number| *number > 0);
            numbers
                .map(|number| u32::try_from(number - 1).unwrap())
                .collect()
        }
    }

    fn item(n: u32, expires_s: u32) -> Item {
        let label = format!("\x08{n:08}\0");
        let question = [label.as_bytes(), &[0, 1, 0, 1]].concat();
        Item {
            hash: n.into(),
            generation: 0,
            policy: 1,
            bits: 0,
            note: 0,
            extended_error: None,
            rendered_s: 0,
            expires_s,
            question_len: question.len(),
            message: [&[0; 12], &question[..]].concat().into(),
            ttls: Box::default(),
        }
    }

    #[test]
    fn freed_place_is_not_reused_for_a_second() {
        let (memory, mut table) = (Memory::default(), Table::new(7));
        table.publish(&memory, &item(1, 100)).unwrap();
        let [place] = memory.numbers()[..] else {
            panic!("not one answer");
        };
        table.withdraw(&memory, 1).unwrap();
        assert_eq!((memory.numbers(), table.len()), (Vec::new(), 0));
        assert!(!table.free.contains(&place));
        table.next_second(&memory, 1, |_| {}).unwrap();
        assert!(!table.free.contains(&place));
        table.next_second(&memory, 2, |_| {}).unwrap();
        assert!(table.free.contains(&place));
    }

    #[test]
    fn replacing_response_gets_another_place() {
        let (memory, mut table) = (Memory::default(), Table::new(7));
        table.publish(&memory, &item(1, 100)).unwrap();
        let first = memory.numbers();
        table.publish(&memory, &item(1, 200)).unwrap();
        assert_eq!((memory.numbers().len(), table.len()), (1, 1));
        assert_ne!(memory.numbers(), first);
        table.clear(&memory).unwrap();
        assert_eq!((memory.numbers(), table.len()), (Vec::new(), 0));
    }

    #[test]
    fn expired_and_unused_responses_are_evicted() {
        let (memory, mut table) = (Memory::default(), Table::new(7));
        let mut kept = 0;
        for n in 0..ANSWERS {
            let expires_s = if n % 2 == 0 { 5 } else { 100 };
            kept += usize::from(table.publish(&memory, &item(n, expires_s)).unwrap());
        }
        // Some buckets were full.
        assert!(
            kept > 15_000 && table.len() > 15_000,
            "{kept}, {}",
            table.len()
        );
        let mut gone = Vec::new();
        for second in 10..13 {
            for number in 0..ANSWERS as usize {
                table.note_used(number);
            }
            table
                .next_second(&memory, second, |hash| gone.push(hash))
                .unwrap();
        }
        assert!(table.free.len() >= ANSWERS as usize / FREE_SHARE);
        assert_eq!(gone, [0; 0], "evicting expired answers suffices");
        assert!(table.publish(&memory, &item(ANSWERS, 100)).unwrap());
    }
}
